// An API server of Kubernetes and the etcd below it, in one process, on the loopback interface: no node, no controller.
// It ends with its standard input, and leaves what it keeps in the folder that it is started in: for who is let in,
// `kubeconfig`.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	go func() {
		// Whoever started it has ended, or wants it to.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := serve(); err != nil {
		log.Fatal(err)
	}
}

func serve() error {
	store, err := storage()
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	key, err := accountsKey()
	if err != nil {
		return err
	}
	token := rand.Text()
	for name, content := range map[string][]byte{
		"accounts.key": key,
		"kubeconfig":   fmt.Appendf(nil, kubeconfig, port, token),
		"tokens":       fmt.Appendf(nil, "%s,admin,admin,system:masters\n", token),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
	server := app.NewAPIServerCommand()
	server.SetArgs([]string{
		"--etcd-servers=" + store,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		// It makes its own certificate, and puts the authority behind it.
		"--cert-dir=certificates",
		"--token-auth-file=tokens", "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.invalid",
		"--service-account-key-file=accounts.key", "--service-account-signing-key-file=accounts.key",
		"--service-cluster-ip-range=10.0.0.0/24",
		// What Kubernetes 1.34 and 1.35 have of it.
		"--runtime-config=admissionregistration.k8s.io/v1beta1=true",
		// A service cannot lead to the loopback interface.
		"--endpoint-reconciler-type=none",
	})
	return server.Execute()
}

// storage starts etcd and returns where it is.
func storage() (string, error) {
	socket, err := filepath.Abs("etcd.sock")
	if err != nil {
		return "", err
	}
	config := embed.NewConfig()
	config.Dir = "etcd"
	config.LogLevel = "error"
	// Nothing here outlives the process.
	config.UnsafeNoFsync = true
	clients := url.URL{Scheme: "unix", Path: socket}
	config.ListenClientUrls = []url.URL{clients}
	// There are none. Of a peer's URL only this part is read.
	config.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: "peers.sock"}}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return "", err
	}
	<-etcd.Server.ReadyNotify()
	return clients.String(), nil
}

// freePort is one that was free a moment ago.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// accountsKey is what tokens of service accounts are signed with.
func accountsKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	bytes, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bytes}), nil
}

// kubeconfig wants a port and a token.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: cluster
clusters:
  - name: cluster
    cluster: { server: "https://127.0.0.1:%d", certificate-authority: certificates/apiserver.crt }
users:
  - name: admin
    user: { token: "%s" }
contexts:
  - name: cluster
    context: { cluster: cluster, user: admin }
`
