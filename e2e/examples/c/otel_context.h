/*
 * Which span a thread is in, for readers outside of the process: OpenTelemetry's process context (OTEP 4719), published once, and
 * thread context (OTEP 4947), a record for each span. To copy; include it in one file of a program or of a library.
 *
 * A program is linked with -rdynamic, which makes otel_thread_ctx_v1 a dynamic symbol, by which readers find it. A library needs
 * no option for that.
 */
#ifndef OTEL_CONTEXT_H
#define OTEL_CONTEXT_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Attributes are: the number of a key, the length of a text, the text. */
struct otel_thread_context {
	uint8_t trace_id[16], span_id[8];
	uint8_t valid; /* 1, unless it is being changed */
	uint8_t trace_flags;
	uint16_t attributes_bytes;
	uint8_t attributes[64];
};

/* Null: the thread is in no span. */
__thread const struct otel_thread_context *otel_thread_ctx_v1;

/* Makes this the context of the thread, or none by a null. What it points to must not change before the next call. */
static inline void otel_set_thread_context(const struct otel_thread_context *context)
{
	/* A reader stops the thread between two instructions: it is the compiler that must not reorder. */
	atomic_signal_fence(memory_order_seq_cst);
	otel_thread_ctx_v1 = context;
	atomic_signal_fence(memory_order_seq_cst);
}

/* Adds a text, of up to 255 bytes, if it fits. */
static inline void otel_add_attribute(struct otel_thread_context *context, uint8_t key, const char *text)
{
	size_t length = strlen(text), at = context->attributes_bytes;

	if (length > UINT8_MAX || at + 2 + length > sizeof(context->attributes))
		return;
	context->attributes[at] = key;
	context->attributes[at + 1] = length;
	memcpy(context->attributes + at + 2, text, length);
	context->attributes_bytes = at + 2 + length;
}

/* The mapping that readers look for by its name. The message is opentelemetry.proto.profiles' ProcessContext. */
struct otel_process_context {
	char signature[8];
	uint32_t version, payload_bytes;
	_Atomic uint64_t published_ns; /* 0: not yet */
	const uint8_t *payload;
	uint8_t message[512];
};

/* Appends a field of a protobuf message; all here are shorter than 128 bytes, so that lengths take one. */
static inline size_t otel_field(uint8_t *to, int number, const void *bytes, size_t length)
{
	to[0] = number << 3 | 2;
	to[1] = length;
	memcpy(to + 2, bytes, length);
	return 2 + length;
}

/* As field `number` a KeyValue, whose value is an AnyValue: field 1 is a text, field 5 a list. */
static inline size_t otel_key_value(uint8_t *to, int number, const char *key, int kind, const void *bytes, size_t length)
{
	uint8_t value[96], pair[128];
	size_t at = otel_field(pair, 1, key, strlen(key));

	at += otel_field(pair + at, 2, value, otel_field(value, kind, bytes, length));
	return otel_field(to, number, pair, at);
}

/* Says who the process is, and that attributes with the number 0 are of this key. Names of up to 40 bytes. 0: published. */
static inline int otel_publish_process(const char *service, const char *version, const char *key)
{
	uint8_t resource[128], text[64], keys[64], *message;
	struct otel_process_context *context;
	struct timespec now;
	size_t size;
	int file = memfd_create("OTEL_CTX", MFD_CLOEXEC);

	if (strlen(service) > 40 || strlen(version) > 40 || strlen(key) > 40 || file < 0 || ftruncate(file, sizeof(*context)))
		return -1;
	context = mmap(NULL, sizeof(*context), PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	close(file);
	if (context == MAP_FAILED || madvise(context, sizeof(*context), MADV_DONTFORK))
		return -1;
	size = otel_key_value(resource, 1, "service.name", 1, service, strlen(service));
	size += otel_key_value(resource + size, 1, "service.version", 1, version, strlen(version));
	message = context->message;
	message += otel_field(message, 1, resource, size);
	message += otel_key_value(message, 2, "threadlocal.schema_version", 1, "tls_v1", 6);
	size = otel_field(keys, 1, text, otel_field(text, 1, key, strlen(key)));
	message += otel_key_value(message, 2, "threadlocal.attribute_key_map", 5, keys, size);

	memcpy(context->signature, "OTEL_CTX", 8);
	context->version = 2;
	context->payload = context->message;
	context->payload_bytes = message - context->message;
	clock_gettime(CLOCK_BOOTTIME, &now);
	atomic_store(&context->published_ns, now.tv_sec * 1000000000ull + now.tv_nsec);
	return 0;
}

#endif
