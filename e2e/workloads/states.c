// Two hundred threads in all states that a thread can be in, until the process is killed: `asleep` for good, `dozes` for some
// milliseconds at a time, `busy`, `pingpong` in pairs that wake each other after each turn, `moves` from CPU to CPU,
// `spawner` and the threads that it starts (`brief`), `vfork` without interruption until its child ends, and, in a child process,
// `stopped` by signals half of the time.
//
// Usage: states TURN_NS FILE
//
// A turn of `pingpong` takes this much CPU time. The file gets two 64-bit numbers, which grow: for how long the threads `brief`
// that have ended have lived, and for how much of that they were on a CPU, in nanoseconds.
// Prints {"ready":PID,"child":PID}.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "workload.h"

#define ASLEEP 80
#define DOZES 88
#define BUSY 4
#define PAIRS 6
#define MOVES 6
#define SPAWNERS 4
#define VFORKS 2
#define STOPPED 4

static pthread_attr_t small_stack;

static void sleep_ns(uint64_t ns) {
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&time, 0);
}

static NOINLINE void asleep(void *which) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    switch ((uintptr_t)which % 3) {
    case 0:
        for (;;) poll(0, 0, -1);
    case 1:
        pthread_mutex_lock(&mutex);
        for (;;) pthread_cond_wait(&never, &mutex);
    default:
        for (;;) sleep_ns(1000000000000u);
    }
}

static NOINLINE void dozes(void *which) {
    unsigned seed = (unsigned)(uintptr_t)which + 1;
    for (;;) sleep_ns(1000000 + (uint64_t)rand_r(&seed) % 60000000);
}

static NOINLINE void busy(void *value) {
    uint64_t sum = (uintptr_t)value;
    for (;;) sum = workload_spin(sum);
}

static int pipes[2 * PAIRS][2];
static uint64_t turn_ns;

static NOINLINE void pingpong(void *which) {
    // The other one of a pair has the number that differs in the last bit.
    uintptr_t number = (uintptr_t)which;
    char byte = 0;
    if (number % 2 && write(pipes[number][1], &byte, 1) != 1) exit(1);
    for (;;) {
        if (read(pipes[number ^ 1][0], &byte, 1) != 1) exit(1);
        uint64_t end_ns = workload_clock_ns(CLOCK_THREAD_CPUTIME_ID) + turn_ns;
        while (turn_ns && workload_clock_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns) {}
        if (write(pipes[number][1], &byte, 1) != 1) exit(1);
    }
}

static NOINLINE void moves(void *which) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (uintptr_t cpu = (uintptr_t)which;; cpu++) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu % (uintptr_t)cpus, &set);
        sched_setaffinity(0, sizeof set, &set);
        AFTER_CALL(cpu);
        for (volatile int i = 0; i < 20000; i++) {}
        sleep_ns(3000000);
    }
}

static uint64_t *brief_lived_ns, *brief_on_cpu_ns;

static NOINLINE void *brief(void *nothing) {
    uint64_t start_ns = workload_clock_ns(CLOCK_MONOTONIC), on_cpu_ns = workload_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    prctl(PR_SET_NAME, "brief");
    sleep_ns(2000000);
    on_cpu_ns = workload_clock_ns(CLOCK_THREAD_CPUTIME_ID) - on_cpu_ns;
    __atomic_add_fetch(brief_lived_ns, workload_clock_ns(CLOCK_MONOTONIC) - start_ns, __ATOMIC_RELAXED);
    __atomic_add_fetch(brief_on_cpu_ns, on_cpu_ns, __ATOMIC_RELAXED);
    return nothing;
}

static void share_lives(const char *path) {
    int file = open(path, O_RDWR);
    size_t bytes = 2 * sizeof *brief_lived_ns;
    if (file < 0 || ftruncate(file, (off_t)bytes)) exit(1);
    brief_lived_ns = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (brief_lived_ns == MAP_FAILED) exit(1);
    brief_on_cpu_ns = brief_lived_ns + 1;
}

static NOINLINE void spawner(void *nothing) {
    for (;;) {
        pthread_t thread;
        if (!pthread_create(&thread, &small_stack, brief, nothing)) pthread_join(thread, 0);
    }
}

// The parent waits in state D for as long as the child uses its memory.
static NOINLINE void vfork_and_wait(void *nothing __attribute__((unused))) {
    for (;;) {
        if (!vfork()) {
            sleep_ns(300000000);
            _exit(0);
        }
        wait(0);
    }
}

static NOINLINE void stopped(void *which) {
    dozes(which);
    AFTER_CALL(which);
}

struct start {
    void (*run)(void *);
    const char *name;
    uintptr_t which;
};

static void *begin(void *of) {
    struct start start = *(struct start *)of;
    free(of);
    prctl(PR_SET_NAME, start.name);
    start.run((void *)start.which);
    return 0;
}

static void start(int count, const char *name, void (*run)(void *)) {
    for (int i = 0; i < count; i++) {
        struct start *of = malloc(sizeof *of);
        pthread_t thread;
        *of = (struct start){run, name, (uintptr_t)i};
        if (pthread_create(&thread, &small_stack, begin, of)) exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    turn_ns = strtoull(argv[1], 0, 10);
    share_lives(argv[2]);
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, 64 << 10);
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        start(STOPPED, "stopped", stopped);
        for (;;) pause();
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        if (pipe(pipes[i])) return 1;
    start(ASLEEP, "asleep", asleep);
    start(DOZES, "dozes", dozes);
    start(BUSY, "busy", busy);
    start(2 * PAIRS, "pingpong", pingpong);
    start(MOVES, "moves", moves);
    start(SPAWNERS, "spawner", spawner);
    start(VFORKS, "vfork", vfork_and_wait);
    printf("{\"ready\":%d,\"child\":%d}\n", (int)getpid(), (int)child);
    fflush(stdout);
    for (;;) {
        sleep_ns(500000000);
        kill(child, SIGSTOP);
        sleep_ns(500000000);
        kill(child, SIGCONT);
    }
}
