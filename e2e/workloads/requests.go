// Sends requests to a server that runs in the same folder, from four goroutines at once: requests KIND SECONDS.
//
//	kubernetes  the API server of e2e/cluster: creates, lists, reads and deletes ConfigMaps, one of them watching
//	collector   the Collector of collector.yaml: sends spans as JSON over HTTP
//
// Once each goroutine has been answered 20 times, a file `ready` says so.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	workers     = 4
	first       = 20
	startWithin = 2 * time.Minute
	kept        = 100
	spans       = 200
)

func main() {
	seconds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	var turn func(worker, number int) error
	switch os.Args[1] {
	case "kubernetes":
		turn, err = kubernetes()
	case "collector":
		turn, err = collector()
	default:
		err = fmt.Errorf("unknown kind %q", os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
	var ready, done sync.WaitGroup
	ready.Add(workers)
	done.Add(workers)
	for worker := 0; worker < workers; worker++ {
		go func(worker int) {
			defer done.Done()
			for number := 0; time.Now().Before(deadline); number++ {
				if err := turn(worker, number); err != nil {
					log.Fatal(err)
				}
				if number == first {
					ready.Done()
				}
			}
		}(worker)
	}
	ready.Wait()
	if err := os.WriteFile("ready", nil, 0o600); err != nil {
		log.Fatal(err)
	}
	done.Wait()
}

// untilItSucceeds tries until a server that has just been started answers.
func untilItSucceeds(try func() error) error {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := try()
		if err == nil || time.Since(began) > startWithin {
			return err
		}
	}
}

// request sends one and returns what was answered.
func request(client *http.Client, request *http.Request) ([]byte, error) {
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", request.Method, request.URL, answer.Status, body)
	}
	return body, err
}

func kubernetes() (func(worker, number int) error, error) {
	var server, token string
	client := &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: workers,
		// Its certificate is of its own authority.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	send := func(method, path, body string) ([]byte, error) {
		wanted, err := http.NewRequest(method, server+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		wanted.Header.Set("Authorization", "Bearer "+token)
		wanted.Header.Set("Content-Type", "application/json")
		return request(client, wanted)
	}
	err := untilItSucceeds(func() error {
		config, err := os.ReadFile("kubeconfig")
		if err != nil {
			return err
		}
		address := regexp.MustCompile(`server: "([^"]+)"`).FindSubmatch(config)
		secret := regexp.MustCompile(`token: "([^"]+)"`).FindSubmatch(config)
		if address == nil || secret == nil {
			return fmt.Errorf("kubeconfig has no server or no token")
		}
		server, token = string(address[1]), string(secret[1])
		if _, err := send("GET", "/readyz", ""); err != nil {
			return err
		}
		_, err = send("GET", "/api/v1/namespaces/default", "")
		return err
	})
	if err != nil {
		return nil, err
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	value := strings.Repeat("what a ConfigMap holds ", 50)
	create := func(name string) error {
		object, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name, "labels": map[string]string{"app": "requests"}},
			"data":     map[string]string{"key": value},
		})
		if err == nil {
			_, err = send("POST", maps, string(object))
		}
		return err
	}
	for number := 0; number < kept; number++ {
		if err := create(fmt.Sprintf("kept-%d", number)); err != nil {
			return nil, err
		}
	}
	go func() {
		// Until the server ends the watch, again and again.
		for {
			if _, err := send("GET", maps+"?watch=1&timeoutSeconds=10", ""); err != nil {
				log.Print(err)
				return
			}
		}
	}()
	return func(worker, number int) error {
		name := fmt.Sprintf("turn-%d-%d", worker, number)
		if err := create(name); err != nil {
			return err
		}
		for _, asked := range [][2]string{
			{"GET", maps + "/" + name},
			{"GET", maps + "?labelSelector=app%3Drequests"},
			{"GET", "/apis/apps/v1"},
			{"DELETE", maps + "/" + name},
		} {
			if _, err := send(asked[0], asked[1], ""); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func collector() (func(worker, number int) error, error) {
	client := &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: workers,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", "otlp.sock")
		},
	}}
	var list []any
	for number := 0; number < spans; number++ {
		text := func(key, value string) any {
			return map[string]any{"key": key, "value": map[string]string{"stringValue": value}}
		}
		list = append(list, map[string]any{
			"traceId": fmt.Sprintf("%032x", number/10+1), "spanId": fmt.Sprintf("%016x", number+1),
			"name": fmt.Sprintf("GET /items/%d", number), "kind": 2,
			"startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000000100000000",
			"attributes": []any{
				text("http.request.method", "GET"), text("url.path", fmt.Sprintf("/items/%d", number)),
				text("server.address", "items.example"), text("user_agent.original", "requests"),
			},
			"events": []any{map[string]any{"timeUnixNano": "1700000000050000000", "name": "found"}},
		})
	}
	text, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource": map[string]any{"attributes": []any{
			map[string]any{"key": "service.name", "value": map[string]string{"stringValue": "items"}},
		}},
		"scopeSpans": []any{map[string]any{"scope": map[string]string{"name": "requests"}, "spans": list}},
	}}})
	if err != nil {
		return nil, err
	}
	// As it is sent, so that the work is the Collector's.
	var body bytes.Buffer
	compressed := gzip.NewWriter(&body)
	if _, err := compressed.Write(text); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	turn := func(_, _ int) error {
		wanted, err := http.NewRequest("POST", "http://collector/v1/traces", bytes.NewReader(body.Bytes()))
		if err != nil {
			return err
		}
		wanted.Header.Set("Content-Type", "application/json")
		wanted.Header.Set("Content-Encoding", "gzip")
		_, err = request(client, wanted)
		return err
	}
	return turn, untilItSucceeds(func() error { return turn(0, 0) })
}
