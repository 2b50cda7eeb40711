// Publishes spans through pointers with a tag in the highest byte, which CPUs of arm64 ignore. Prints the spans as
// examples/c/spans.c does.
// Usage: tagged SECONDS
#define _GNU_SOURCE
#include "../examples/c/otel_context.h"
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define TAG_SHIFT 56
#define RECORDS 64

enum { HTTP_ROUTE };

static struct otel_thread_context records[RECORDS];

static struct otel_thread_context *tag(struct otel_thread_context *plain, uint64_t tag) {
    return (struct otel_thread_context *)((uint64_t)plain | tag << TAG_SHIFT);
}

static struct otel_thread_context *enter(const char *route) {
    static unsigned next;
    unsigned number = next++ % RECORDS;
    struct otel_thread_context *span = tag(&records[number], number + 1);
    memset(span, 0, sizeof *span);
    if (getrandom(&records[number], 24, 0) != 24) abort(); // the kernel takes no tagged pointers
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
    if (otel_publish_process("tagged-in-c", "1.0.0", "http.route")) return 1;
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
