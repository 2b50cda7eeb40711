// Publishes spans through pointers that have memory tags, on arm64: each record lies in memory whose tag is that in the highest
// byte of the pointer to it. Prints the spans as examples/c/spans.c does, and before them whether pointers have tags.
// Usage: tagged SECONDS
#define _GNU_SOURCE
#include "../examples/c/otel_context.h"
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>

#define PROT_MTE 0x20
#define GRANULE_BYTES 16 // which have one tag
#define ALL_TAGS_BUT_0 (0xfffeul << PR_MTE_TAG_SHIFT)
#define RECORDS 64

enum { HTTP_ROUTE };

struct record {
    struct otel_thread_context context;
} __attribute__((aligned(GRANULE_BYTES)));

static struct record *records;

static int map_records(void) {
    if (prctl(PR_SET_TAGGED_ADDR_CTRL, PR_TAGGED_ADDR_ENABLE | PR_MTE_TCF_SYNC | ALL_TAGS_BUT_0, 0, 0, 0)) return -1;
    records = mmap(NULL, RECORDS * sizeof *records, PROT_READ | PROT_WRITE | PROT_MTE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return records == MAP_FAILED ? -1 : 0;
}

// Gives a record a tag of its own; returns the pointer with it.
static struct record *tag(struct record *plain) {
    struct record *tagged;
    __asm__(".arch armv8.5-a+memtag\n\tirg %0, %1" : "=r"(tagged) : "r"(plain));
    for (size_t at = 0; at < sizeof *plain; at += GRANULE_BYTES)
        __asm__ volatile(".arch armv8.5-a+memtag\n\tstg %0, [%0]" ::"r"((char *)tagged + at) : "memory");
    return tagged;
}

static struct otel_thread_context *enter(const char *route) {
    static unsigned next;
    struct otel_thread_context *span = &tag(&records[next++ % RECORDS])->context;
    memset(span, 0, sizeof *span);
    if (getrandom(span, 24, 0) != 24) abort();
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
    if (otel_publish_process("tagged-in-c", "1.0.0", "http.route") || map_records()) return 1;
    printf("pointers are %s\n", (uint64_t)tag(records) >> 56 ? "tagged" : "plain");
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
