package main

import (
	"bufio"
	"context"
	"os"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// The fields of an object that the test compares.
type objectLine struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"resourceVersion"`
	Value   string `json:"value"`
}

type summary struct {
	// Events with an older version of an object than a previous event.
	Back    int      `json:"back"`
	Events  int      `json:"events"`
	Traffic *traffic `json:"traffic"`
}

func runInformers(clients kubernetes.Interface, namespace string, traffic *traffic) error {
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(namespace))
	order := &order{newest: map[string]uint64{}}
	informersByKind := map[string]cache.SharedIndexInformer{
		"ConfigMap": factory.Core().V1().ConfigMaps().Informer(),
		"Secret":    factory.Core().V1().Secrets().Informer(),
		"Pod":       factory.Core().V1().Pods().Informer(),
	}
	for kind, informer := range informersByKind {
		if _, err := informer.AddEventHandler(order.handler(kind)); err != nil {
			return err
		}
	}
	factory.Start(context.Background().Done())
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		for kind, informer := range informersByKind {
			for _, object := range informer.GetStore().List() {
				meta := object.(metav1.Object)
				printLine(objectLine{Kind: kind, Name: meta.GetName(), Version: meta.GetResourceVersion(), Value: value(object)})
			}
		}
		wire := traffic.snapshot()
		back, events := order.counts()
		printLine(map[string]summary{"summary": {Back: back, Events: events, Traffic: &wire}})
	}
	return commands.Err()
}

// The part of an object that the writers change.
func value(object any) string {
	switch object := object.(type) {
	case *corev1.ConfigMap:
		return object.Data["value"]
	case *corev1.Secret:
		return string(object.Data["value"])
	case *corev1.Pod:
		return object.Spec.Containers[0].Image
	}
	return ""
}

// Counts events with an older version of an object than a previous event.
type order struct {
	mutex  sync.Mutex
	newest map[string]uint64
	back   int
	events int
}

func (o *order) handler(kind string) cache.ResourceEventHandler {
	seen := func(object any) {
		// After a missed deletion the handler gets a tombstone with the last known object, which is not a new version.
		if meta, ok := object.(metav1.Object); ok {
			o.seen(kind+"/"+meta.GetName(), meta.GetResourceVersion())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, object any) { seen(object) }, DeleteFunc: seen,
	}
}

func (o *order) seen(key, text string) {
	version, err := strconv.ParseUint(text, 10, 64)
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.events++
	if err != nil || version < o.newest[key] {
		o.back++
		return
	}
	o.newest[key] = version
}

func (o *order) counts() (int, int) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.back, o.events
}
