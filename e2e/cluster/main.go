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
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	store, err := storage(folder)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	token := rand.Text()
	for name, write := range map[string]func(path string) error{
		"tokens":         text(token + ",admin,admin,system:masters\n"),
		"kubeconfig":     text(kubeconfig(folder, port, token)),
		"accounts.key":   accountsKey,
	} {
		if err := write(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	server := app.NewAPIServerCommand()
	server.SetArgs([]string{
		"--etcd-servers=" + store,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		// Its own certificate, with the authority that signed it behind it.
		"--cert-dir=certificates",
		"--token-auth-file=tokens", "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.invalid",
		"--service-account-key-file=accounts.key", "--service-account-signing-key-file=accounts.key",
		"--service-cluster-ip-range=10.0.0.0/24",
		// A service cannot lead to the loopback interface.
		"--endpoint-reconciler-type=none",
	})
	return server.Execute()
}

// storage starts etcd and returns where it is.
func storage(folder string) (string, error) {
	config := embed.NewConfig()
	config.Dir = filepath.Join(folder, "etcd")
	config.LogLevel = "warn"
	// Nothing here outlives the process.
	config.UnsafeNoFsync = true
	clients := url.URL{Scheme: "unix", Path: filepath.Join(folder, "etcd.sock")}
	config.ListenClientUrls = []url.URL{clients}
	// There are none.
	config.ListenPeerUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(folder, "peers.sock")}}
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

func text(text string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
}

// accountsKey writes what tokens of service accounts are signed with.
func accountsKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	bytes, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bytes}), 0o600)
}

func kubeconfig(folder string, port int, token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: cluster
clusters:
  - name: cluster
    cluster: { server: 'https://127.0.0.1:%d', certificate-authority: '%s/certificates/apiserver.crt' }
users:
  - name: admin
    user: { token: '%s' }
contexts:
  - name: cluster
    context: { cluster: cluster, user: admin }
`, port, folder, token)
}
