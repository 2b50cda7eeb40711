// A registry in memory, with TLS, on a free port of this machine, to which `make release-check` publishes. Prints its address.
//
//	registry CERTIFICATE KEY
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func serve(certificate, key string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("localhost:%d\n", listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: registry.New(), ReadHeaderTimeout: time.Minute}
	return server.ServeTLS(listener, certificate, key)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: registry CERTIFICATE KEY")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "registry:", serve(os.Args[1], os.Args[2]))
	os.Exit(1)
}
