// A service of two routes whose goroutines say which span they are in; publish.go is what there is to copy. It prints each
// span that it has handled.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

//go:noinline
func cart() uint64 { return compute(3) }

//go:noinline
func query() uint64 { return compute(5) }

//go:noinline
func outside() uint64 { return compute(7) }

func compute(value uint64) uint64 {
	for i := uint64(0); i < 2_000_000; i++ {
		value = (value ^ i) * 6364136223846793005
	}
	return value
}

func handled(ctx context.Context, route string) {
	ids := trace.SpanContextFromContext(ctx)
	fmt.Println(ids.TraceID(), ids.SpanID(), route)
}

func serve(tracer trace.Tracer, end time.Time) (sum uint64) {
	for time.Now().Before(end) {
		inSpan(context.Background(), tracer, "/cart", func(ctx context.Context) {
			sum += cart()
			inSpan(ctx, tracer, "/query", func(ctx context.Context) {
				sum += query()
				handled(ctx, "/query")
			})
			sum += cart()
			handled(ctx, "/cart")
		})
		sum += outside()
	}
	return sum
}

func main() {
	seconds := 10
	if len(os.Args) > 1 {
		seconds, _ = strconv.Atoi(os.Args[1])
	}
	if err := publishProcess("spans-in-go", "1.0.0"); err != nil {
		log.Fatal("process context: ", err)
	}
	// As it is set up anywhere else, with an exporter.
	tracer := sdktrace.NewTracerProvider().Tracer("spans-in-go")
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	var workers sync.WaitGroup
	for range 4 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			serve(tracer, end)
		}()
	}
	workers.Wait()
}
