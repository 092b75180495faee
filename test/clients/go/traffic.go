package main

import (
	"net/http"
	"path"
	"strings"
	"sync"
)

// The requests of the clients. Informers do not report when they list again, so their requests are counted.
type traffic struct {
	mutex sync.Mutex
	// By resource: first pages of lists, and watches that begin with all existing objects.
	Lists map[string]int `json:"lists"`
	// By resource: watches that resume at the last version.
	Resumed map[string]int `json:"resumed"`
	// By media type.
	Sent     map[string]int `json:"sent"`
	Received map[string]int `json:"received"`
}

func newTraffic() *traffic {
	return &traffic{
		Lists: map[string]int{}, Resumed: map[string]int{}, Sent: map[string]int{}, Received: map[string]int{},
	}
}

type transport func(*http.Request) (*http.Response, error)

func (call transport) RoundTrip(request *http.Request) (*http.Response, error) { return call(request) }

func (t *traffic) wrap(inner http.RoundTripper) http.RoundTripper {
	return transport(func(request *http.Request) (*http.Response, error) {
		response, err := inner.RoundTrip(request)
		// A request that did not reach the server is not counted.
		if err == nil {
			t.count(request, response)
		}
		return response, err
	})
}

func (t *traffic) count(request *http.Request, response *http.Response) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	query, resource := request.URL.Query(), path.Base(request.URL.Path)
	switch {
	case request.Method != http.MethodGet:
		t.Sent[media(request.Header)]++
	case query.Get("watch") == "true" && query.Get("sendInitialEvents") != "true":
		t.Resumed[resource]++
	case query.Get("continue") == "":
		t.Lists[resource]++
	}
	t.Received[media(response.Header)]++
}

func media(header http.Header) string {
	essence, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return essence
}

func (t *traffic) snapshot() traffic {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	copied := func(from map[string]int) map[string]int {
		to := map[string]int{}
		for name, count := range from {
			to[name] = count
		}
		return to
	}
	return traffic{
		Lists: copied(t.Lists), Resumed: copied(t.Resumed), Sent: copied(t.Sent), Received: copied(t.Received),
	}
}
