// Publishes spans whose records are on a heap that tags pointers: with GLIBC_TUNABLES=glibc.mem.tagging=3 on a machine with
// memory tags, the pointer to a record has its tag in the highest byte. Prints the spans as examples/c/spans.c does, and at its
// start whether pointers are tagged.
// Usage: tagged SECONDS
#define _GNU_SOURCE
#include "../examples/c/otel_context.h"
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum { HTTP_ROUTE };

static struct otel_thread_context *enter(const char *route) {
    struct otel_thread_context *span = calloc(1, sizeof *span);
    if (!span || getrandom(span, 24, 0) != 24) abort();
    span->valid = 1;
    otel_add_attribute(span, HTTP_ROUTE, route);
    otel_set_thread_context(span);
    return span;
}

static void leave(struct otel_thread_context *span, const char *route) {
    uint64_t ids[3];
    otel_set_thread_context(NULL);
    memcpy(ids, span, sizeof ids);
    printf("%016lx%016lx %016lx %s\n", be64toh(ids[0]), be64toh(ids[1]), be64toh(ids[2]), route);
    free(span);
}

#define COMPUTE(name) \
    __attribute__((noinline)) void name(void) { \
        for (volatile int i = 0; i < 2000000; i++); \
    }
COMPUTE(cart)
COMPUTE(query)
COMPUTE(outside)

int main(int argc, char **argv) {
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    void *some = malloc(64);
    if (otel_publish_process("tagged-in-c", "1.0.0", "http.route")) return 1;
    printf("pointers are %s\n", (uint64_t)some >> 56 ? "tagged" : "plain");
    while (time(NULL) < end) {
        struct otel_thread_context *span = enter("/cart");
        cart();
        leave(span, "/cart");
        span = enter("/query");
        query();
        leave(span, "/query");
        outside();
    }
    return 0;
}
