/* A program of spans that profilers see: cc -O2 -pthread -rdynamic spans.c -o spans && ./spans 10 */
#define _GNU_SOURCE
#include "otel_context.h"
#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum { HTTP_ROUTE }; /* the numbers of attributes' keys */

/* Each span has a record of its own, so that none changes while a reader may see it. */
struct span {
	struct otel_thread_context context;
	const struct otel_thread_context *outer;
};

static void enter(struct span *span, const char *route)
{
	*span = (struct span){ .context = { .valid = 1, .trace_flags = 1 }, .outer = otel_thread_ctx_v1 };
	/* Your SDK's ids, in place of these: a new span, and a new trace where there is no outer one. */
	if (getrandom(&span->context, 24, 0) != 24)
		abort();
	if (span->outer)
		memcpy(span->context.trace_id, span->outer->trace_id, 16);
	otel_add_attribute(&span->context, HTTP_ROUTE, route);
	otel_set_thread_context(&span->context);
}

static void leave(struct span *span, const char *route)
{
	uint64_t ids[3];

	otel_set_thread_context(span->outer);
	memcpy(ids, &span->context, sizeof(ids));
	printf("%016lx%016lx %016lx %s\n", be64toh(ids[0]), be64toh(ids[1]), be64toh(ids[2]), route);
}

#define COMPUTE(name) __attribute__((noinline)) void name(void) { for (volatile int i = 0; i < 2000000; i++); }
COMPUTE(cart) COMPUTE(query) COMPUTE(outside)

static void *serve(void *end)
{
	while (time(NULL) < *(time_t *)end) {
		struct span request, inner;

		enter(&request, "/cart");
		cart();
		enter(&inner, "/query");
		query();
		leave(&inner, "/query");
		cart();
		leave(&request, "/cart");
		outside();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
	pthread_t threads[4];

	if (otel_publish_process("spans-in-c", "1.0.0", "http.route"))
		return perror("process context"), 1;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, serve, &end);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}
