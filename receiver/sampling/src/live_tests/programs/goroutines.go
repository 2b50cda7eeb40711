package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime/pprof"
	"syscall"
	"unsafe"
)

var sink [64]uint64

//go:noinline
func in_outer(n int) { for i := 0; i < 3000000; i++ { sink[n] += uint64(i) } }

//go:noinline
func in_inner(n int) { for i := 0; i < 3000000; i++ { sink[n] += uint64(i) } }

//go:noinline
func outside(n int) { for i := 0; i < 3000000; i++ { sink[n] += uint64(i) } }

func run(n int) {
	labels := func(span byte) pprof.LabelSet {
		return pprof.Labels("trace_id", fmt.Sprintf("%032x", n+1), "span_id", fmt.Sprintf("%016x", span), "http.route", "/cart")
	}
	for {
		pprof.Do(context.Background(), labels(0xa), func(ctx context.Context) {
			in_outer(n)
			pprof.Do(ctx, labels(0xb), func(context.Context) { in_inner(n) })
			in_outer(n)
		})
		outside(n)
	}
}

func main() {
	schema := "\n\x1athreadlocal.schema_version\x12\x14\n\x12go_pprof_labels_v1"
	payload := append([]byte{0x12, byte(len(schema))}, schema...)
	name, _ := syscall.BytePtrFromString("OTEL_CTX")
	fd, _, _ := syscall.Syscall(319, uintptr(unsafe.Pointer(name)), 1, 0)
	syscall.Ftruncate(int(fd), 4096)
	header, _ := syscall.Mmap(int(fd), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	copy(header, "OTEL_CTX")
	binary.LittleEndian.PutUint32(header[8:], 2)
	binary.LittleEndian.PutUint32(header[12:], uint32(len(payload)))
	binary.LittleEndian.PutUint64(header[24:], uint64(uintptr(unsafe.Pointer(&payload[0]))))
	binary.LittleEndian.PutUint64(header[16:], 1)
	for n := 0; n < 8; n++ {
		go run(n)
	}
	select {}
}
