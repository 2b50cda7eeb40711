// Has a worker of io_uring copy memory: a thread with this program's memory that never runs in user mode.
// Usage: uring SECONDS
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "workload.h"

static void *mapped(int ring, size_t bytes, off_t what) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, what);
    if (memory == MAP_FAILED) exit(1);
    return memory;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct io_uring_params parameters = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);
    if (ring < 0) {
        fprintf(stderr, "io_uring_setup: %s\n", strerror(errno));
        return 3;
    }
    char *submission = mapped(ring, parameters.sq_off.array + sizeof(unsigned), IORING_OFF_SQ_RING);
    char *completion = mapped(ring, parameters.cq_off.cqes + parameters.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    struct io_uring_sqe *entry = mapped(ring, sizeof *entry, IORING_OFF_SQES);
    unsigned *submitted = (unsigned *)(submission + parameters.sq_off.tail);
    unsigned *completed = (unsigned *)(completion + parameters.cq_off.head);
    unsigned *first = (unsigned *)(submission + parameters.sq_off.array);
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    static char buffer[64 << 20];
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    do {
        *entry = (struct io_uring_sqe){.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = zero,
                                       .addr = (uint64_t)(uintptr_t)buffer, .len = sizeof buffer};
        *first = 0;
        __atomic_store_n(submitted, *submitted + 1, __ATOMIC_RELEASE);
        if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1) return 1;
        __atomic_store_n(completed, *completed + 1, __ATOMIC_RELEASE);
    } while (!workload_over(deadline_ns));
    return 0;
}
