/*
 * Telling a profiler which span each thread is in, in C: the process publishes who it is (OTEP 4719, "Process Context"), and
 * each thread a record of its span (OTEP 4947, "Thread Context").
 *
 *     cc -O2 -pthread -rdynamic spans.c -o spans && ./spans 10
 *
 * -rdynamic makes otel_thread_ctx_v1 a dynamic symbol, by which readers find it. A library needs no option for that.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* The record of a thread. Attributes are: the number of a key in the key map, the length of a text, the text. */
struct thread_context {
	uint8_t trace_id[16], span_id[8];
	uint8_t valid; /* 1, unless it is being changed */
	uint8_t trace_flags;
	uint16_t attributes_bytes;
	uint8_t attributes[64];
};

/* Null: the thread is in no span. */
__thread const struct thread_context *otel_thread_ctx_v1;

/* A span with a record of its own, so that none is changed while a reader may see it: only the pointer is. */
struct span {
	struct thread_context context;
	const struct thread_context *outer;
};

static void publish(const struct thread_context *context)
{
	/* A reader stops the thread between two instructions: it is the compiler that must not reorder. */
	atomic_signal_fence(memory_order_seq_cst);
	otel_thread_ctx_v1 = context;
	atomic_signal_fence(memory_order_seq_cst);
}

static void enter(struct span *span, const char *route)
{
	struct thread_context *context = &span->context;
	size_t length = strlen(route);

	*context = (struct thread_context){ .valid = 1, .trace_flags = 1, .attributes_bytes = 2 + length };
	span->outer = otel_thread_ctx_v1;
	if (span->outer)
		memcpy(context->trace_id, span->outer->trace_id, sizeof(context->trace_id));
	else if (getrandom(context->trace_id, sizeof(context->trace_id), 0) < 0)
		abort();
	if (getrandom(context->span_id, sizeof(context->span_id), 0) < 0)
		abort();
	context->attributes[0] = 0; /* http.route, by the list of keys below */
	context->attributes[1] = length;
	memcpy(context->attributes + 2, route, length);
	publish(context);
}

static void leave(struct span *span)
{
	publish(span->outer);
}

/* Appends a field of a protobuf message; all here are shorter than 128 bytes, so that lengths take one. */
static size_t field(uint8_t *to, int number, const void *bytes, size_t length)
{
	to[0] = number << 3 | 2;
	to[1] = length;
	memcpy(to + 2, bytes, length);
	return 2 + length;
}

/* A text: field 1 of AnyValue, and of whatever else has one here. */
static size_t text(uint8_t *to, const char *string)
{
	return field(to, 1, string, strlen(string));
}

static size_t key_value(uint8_t *to, int number, const char *key, const uint8_t *value, size_t length)
{
	uint8_t pair[128];
	size_t at = text(pair, key);

	at += field(pair + at, 2, value, length);
	return field(to, number, pair, at);
}

static size_t key_text(uint8_t *to, int number, const char *key, const char *string)
{
	uint8_t value[96];

	return key_value(to, number, key, value, text(value, string));
}

/* The mapping that readers look for by its name. */
struct process_context {
	char signature[8];
	uint32_t version, payload_bytes;
	_Atomic uint64_t published_ns; /* 0: not yet */
	const uint8_t *payload;
	uint8_t message[512];
};

static int publish_process(const char *name, const char *version)
{
	uint8_t resource[128], item[32], list[32], value[32];
	size_t resource_bytes = key_text(resource, 1, "service.name", name);
	resource_bytes += key_text(resource + resource_bytes, 1, "service.version", version);
	/* Keys of the attributes in records, by number: here one. A list is field 5 of AnyValue. */
	size_t keys_bytes = field(value, 5, list, field(list, 1, item, text(item, "http.route")));

	int file = memfd_create("OTEL_CTX", MFD_CLOEXEC);
	if (file < 0 || ftruncate(file, sizeof(struct process_context)))
		return -1;
	struct process_context *context =
		mmap(NULL, sizeof(*context), PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	close(file);
	if (context == MAP_FAILED || madvise(context, sizeof(*context), MADV_DONTFORK))
		return -1;
	uint8_t *message = context->message;
	message += field(message, 1, resource, resource_bytes);
	message += key_text(message, 2, "threadlocal.schema_version", "tls_v1");
	message += key_value(message, 2, "threadlocal.attribute_key_map", value, keys_bytes);
	memcpy(context->signature, "OTEL_CTX", 8);
	context->version = 2;
	context->payload = context->message;
	context->payload_bytes = message - context->message;

	struct timespec now;
	clock_gettime(CLOCK_BOOTTIME, &now);
	atomic_store(&context->published_ns, now.tv_sec * 1000000000ull + now.tv_nsec);
	return 0;
}

/* What follows is a service of two routes. It prints each span that it has handled. */

static volatile uint64_t sink;

#define COMPUTE(name)                               \
	__attribute__((noinline)) void name(void)   \
	{                                           \
		for (int i = 0; i < 2000000; i++)   \
			sink += i;                  \
	}
COMPUTE(cart)
COMPUTE(query)
COMPUTE(outside)

static void print(const struct span *span, const char *route)
{
	char line[80];
	int at = 0;

	for (size_t i = 0; i < 24; i++) /* both ids, which lie side by side */
		at += sprintf(line + at, i == 16 ? " %02x" : "%02x", ((const uint8_t *)&span->context)[i]);
	printf("%s %s\n", line, route);
}

static void *serve(void *end)
{
	while (time(NULL) < *(time_t *)end) {
		struct span request, inner;

		enter(&request, "/cart");
		cart();
		enter(&inner, "/query");
		query();
		leave(&inner);
		cart();
		leave(&request);
		print(&inner, "/query");
		print(&request, "/cart");
		outside();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
	pthread_t threads[4];

	if (publish_process("spans-in-c", "1.0.0"))
		return perror("process context"), 1;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, serve, &end);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}
