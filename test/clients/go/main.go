// client-go as operators use it, controlled by test/tests/clients; it prints lines of JSON.
//
//	client-go informers KUBECONFIG NAMESPACE   run informers, and print all objects for each "dump" on stdin
//	client-go typed KUBECONFIG NAMESPACE       elect a leader, and handle a Deployment
//	client-go --version                        print the version of client-go
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "client-go:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 1 && arguments[0] == "--version" {
		fmt.Println(version())
		return nil
	}
	if len(arguments) != 3 {
		return fmt.Errorf("usage: client-go informers|typed KUBECONFIG NAMESPACE")
	}
	config, err := clientcmd.BuildConfigFromFlags("", arguments[1])
	if err != nil {
		return err
	}
	// No rate limit in the client.
	config.QPS = -1
	traffic := newTraffic()
	config.Wrap(traffic.wrap)
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	switch arguments[0] {
	case "informers":
		return runInformers(clients, arguments[2], traffic)
	case "typed":
		return handleTyped(clients, arguments[2], traffic)
	}
	return fmt.Errorf("unknown command %q", arguments[0])
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "k8s.io/client-go" {
			// Kubernetes 1.37.2 is client-go 0.37.2; the table of peers has the latter.
			return "client-go " + module.Version[1:]
		}
	}
	return "client-go of unknown version"
}

func printLine(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
