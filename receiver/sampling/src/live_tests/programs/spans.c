#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
struct record { uint8_t trace[16], span[8]; volatile uint8_t valid; uint8_t flags; uint16_t bytes; uint8_t attributes[612]; };
#ifdef OPENED
static void **(*where)(void);
#else
__thread struct record *otel_thread_ctx_v1;
static void **where(void) { return (void **)&otel_thread_ctx_v1; }
#endif
volatile unsigned long sink;
#ifdef WAITS
#define BURN(name) __attribute__((noinline)) void name(void) { usleep(1000); sink++; }
#else
#define BURN(name) __attribute__((noinline)) void name(void) { for (int i = 0; i < 2000000; i++) sink += i; }
#endif
BURN(in_outer) BURN(in_inner) BURN(outside) BURN(changing) BURN(wild) BURN(cut)
static void enter(struct record *record, uint8_t span) {
    uint32_t tid = syscall(SYS_gettid);
    record->valid = 0; __atomic_signal_fence(__ATOMIC_SEQ_CST);
    memset(record->trace, 1, 16); memcpy(record->trace, &tid, 4); memset(record->span, span, 8);
    static const uint8_t attributes[] = "\x01\x05/cart\x00\x01x";
    memcpy(record->attributes, attributes, sizeof attributes - 1); record->bytes = sizeof attributes - 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); record->valid = 1; }
static void *run(void *hostile) {
    uint8_t *pages = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 2 * 4096, 4096);
    struct record *outer = (void *)(pages + 4096 - 30), *inner = (void *)(pages + 2 * 4096 - 38);
    void **current = where();
    for (;;) {
        enter(outer, 0xa); *current = outer; in_outer();
        enter(inner, 0xb); *current = inner; in_inner(); *current = outer; in_outer();
        *current = 0; outside();
        if (!hostile) continue;
        outer->valid = 0; *current = outer; changing();
        outer->valid = 2; changing(); outer->valid = 255; changing();
        *current = (void *)0x10; wild(); *current = (void *)-1ul; wild(); *current = pages + 2 * 4096 - 8; wild();
        *current = (void *)0xffff888000000000ul; wild(); *current = (void *)0x7ffffffff000ul; wild();
        *current = 0;
        enter(outer, 0xc); outer->bytes = 30; outer->attributes[8] = 255; *current = outer; cut();
        outer->bytes = 65535; cut(); *current = 0;
    }
}
struct header { char signature[8]; uint32_t version, payload_bytes; volatile uint64_t published_ns; const void *payload; };
static size_t put(uint8_t *to, uint8_t number, const void *bytes, size_t length) {
    to[0] = number << 3 | 2; to[1] = length; memcpy(to + 2, bytes, length); return 2 + length; }
static size_t put_text(uint8_t *to, const char *text) { return put(to, 1, text, strlen(text)); }
static size_t put_pair(uint8_t *to, const char *key, const uint8_t *value, size_t length) {
    uint8_t pair[100]; size_t at = put_text(pair, key); at += put(pair + at, 2, value, length); return put(to, 2, pair, at); }
static void publish(void) {
    static uint8_t payload[200]; uint8_t value[50], values[50]; size_t at, length = 0;
    at = put_pair(payload, "threadlocal.schema_version", value, put_text(value, "tls_v1"));
    length += put(values + length, 1, value, put_text(value, "user"));
    length += put(values + length, 1, value, put_text(value, "http.route"));
    at += put_pair(payload + at, "threadlocal.attribute_key_map", value, put(value, 5, values, length));
    int file = memfd_create("OTEL_CTX", MFD_CLOEXEC);
    if (ftruncate(file, 4096)) exit(1);
    struct header *header = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    *header = (struct header){ "OTEL_CTX", 2, at, 0, payload };
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    header->published_ns = 1; }
int main(int argc, char **argv) {
    pthread_t threads[4]; int is_hostile = !strcmp(argv[argc - 1], "hostile");
    publish();
#ifdef OPENED
    usleep(1000000);
    where = (void **(*)(void))dlsym(dlopen(argv[1], RTLD_NOW), "where");
    if (!where) return 1;
#endif
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, run, is_hostile ? argv : 0);
    pthread_join(threads[0], 0);
}
