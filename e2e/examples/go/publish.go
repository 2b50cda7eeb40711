package main

import (
	"context"
	"encoding/binary"
	"runtime/pprof"
	"sync/atomic"
	"unsafe"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// inSpan runs f in a new span. While it does, its goroutine, and those that it starts, have the ids of the trace and of the
// span as pprof labels: that is all that a profiler needs to know.
func inSpan(ctx context.Context, tracer trace.Tracer, route string, f func(context.Context)) {
	ctx, span := tracer.Start(ctx, route)
	defer span.End()
	ids := span.SpanContext()
	labels := pprof.Labels("trace_id", ids.TraceID().String(), "span_id", ids.SpanID().String(), "http.route", route)
	pprof.Do(ctx, labels, f)
}

// headerBytes: the signature, u32 version, u32 bytes of the payload, u64 time of publication, u64 address of the payload.
const headerBytes = 32

// publishProcess publishes who the process is, and that its goroutines say by pprof labels which span they are in
// (OTEP 4719, "Process Context"). Call it once.
func publishProcess(name, version string) error {
	resource := append(keyValue(1, "service.name", name), keyValue(1, "service.version", version)...)
	payload := field(1, resource)
	payload = append(payload, keyValue(2, "threadlocal.schema_version", "go_pprof_labels_v1")...)

	// Readers know the mapping by the name of its file.
	file, err := unix.MemfdCreate("OTEL_CTX", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	size := headerBytes + len(payload)
	if err := unix.Ftruncate(file, int64(size)); err != nil {
		return err
	}
	mapping, err := unix.Mmap(file, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	// A child is another process.
	if err := unix.Madvise(mapping, unix.MADV_DONTFORK); err != nil {
		return err
	}
	copy(mapping[headerBytes:], payload)
	copy(mapping, "OTEL_CTX")
	binary.NativeEndian.PutUint32(mapping[8:], 2)
	binary.NativeEndian.PutUint32(mapping[12:], uint32(len(payload)))
	binary.NativeEndian.PutUint64(mapping[24:], uint64(uintptr(unsafe.Pointer(&mapping[headerBytes]))))
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return err
	}
	// Last: until then the header says that it is not finished.
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&mapping[16])), uint64(now.Nano()))
	return nil
}

// field is a field of a protobuf message.
func field(number protowire.Number, bytes []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), bytes)
}

// keyValue is a field with a KeyValue, whose value is a text.
func keyValue(number protowire.Number, key, value string) []byte {
	return field(number, append(field(1, []byte(key)), field(2, field(1, []byte(value)))...))
}
