#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
struct header { char signature[8]; uint32_t version, payload_bytes; volatile uint64_t published_ns; const void *payload; };
static uint8_t payload[64];
volatile unsigned long sink;
static void *burn(void *unused) { for (;;) sink = sink * 6364136223846793005ul + 1; }
int main(void) {
    pthread_t thread; pthread_create(&thread, 0, burn, 0);
    usleep(4000000);
    static const uint8_t message[] = "\x0a\x1a\x0a\x18\x0a\x0cservice.name\x12\x08\x0a\x06" "by-sdk";
    memcpy(payload, message, sizeof message - 1);
    int file = memfd_create("OTEL_CTX", MFD_CLOEXEC);
    if (ftruncate(file, 4096)) return 1;
    struct header *header = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    *header = (struct header){ "OTEL_CTX", 2, sizeof message - 1, 0, payload };
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    header->published_ns = 1;
    pause();
}
