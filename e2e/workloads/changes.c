// Computes while what it runs changes under it. Each change is a way of its own through the program's functions, so
// that a stack that mixes two of them shows.
// Usage: changes reload   SECONDS PLUGIN-A PLUGIN-B  loads and unloads both in turn, at the same place
//        changes memfd    SECONDS PLUGIN-A           from a file without a name
//        changes deleted  SECONDS PLUGIN-A           from a file that is deleted then
//        changes upgrade  SECONDS PLUGIN-A PLUGIN-B  A's file becomes B while A is in use; then both are
//        changes twice    SECONDS PLUGIN-A           the same file at two places
//        changes exec     SECONDS OTHER-PROGRAM      runs the other program, which runs this one, in one process
//        changes beside   SECONDS PLUGIN-A PLUGIN-B  each at the same place of a process of its own, on one CPU
//        changes fork     SECONDS                    children that never exec
//        changes deep     SECONDS                    the same from 2,000 calls deep
//        changes vfork    SECONDS                    children on their parent's memory
//        changes leader   SECONDS                    a thread that outlives the first one
//        changes mounted  SECONDS OTHER-PROGRAM      the other program, mounted over this one for itself alone
//        changes reuse    SECONDS OTHER-PROGRAM      this and the other program in turn, under one process number
// The other program is this one compiled with OTHER, whose functions have other names, sizes and frames.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "workload.h"

#ifdef OTHER
#define OWN(name) other_##name
#define FRAME_BYTES 200
#else
#define OWN(name) own_##name
#define FRAME_BYTES 40
#endif

typedef uint64_t (*run_function)(uint64_t, double);

static uint64_t value = 1;

static void must(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static NOINLINE uint64_t OWN(burn)(uint64_t start, double seconds) {
    char frame[FRAME_BYTES];
    __asm__ volatile("" ::"r"(frame) : "memory");
    uint64_t deadline_ns = workload_deadline_ns(seconds);
    while (workload_clock_ns(CLOCK_MONOTONIC) < deadline_ns)
        for (int i = 0; i < 20000; i++) {
            start += (uint64_t)i;
            AFTER_CALL(start);
        }
    return start;
}

static NOINLINE void OWN(work)(double seconds) {
    value = OWN(burn)(value, seconds);
    AFTER_CALL(value);
}

// ---- Libraries ------------------------------------------------------------------------------------------------------

static void *loaded(Lmid_t namespace, const char *path) {
    void *library = dlmopen(namespace, path, RTLD_NOW);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    must(library != NULL, "dlmopen");
    return library;
}

static run_function function_of(void *library) {
    run_function run;
    *(void **)&run = dlsym(library, "plugin_run");
    must(run != NULL, "dlsym");
    return run;
}

// The two differ, or the compiler would make them one.
static NOINLINE void visit_a(run_function run, double seconds) {
    value = run(value, seconds) + 1;
    AFTER_CALL(value);
}

static NOINLINE void visit_b(run_function run, double seconds) {
    value = run(value, seconds) + 2;
    AFTER_CALL(value);
}

static void copy(const char *from, int to) {
    int source = open(from, O_RDONLY | O_CLOEXEC);
    struct stat status;
    must(source >= 0 && fstat(source, &status) == 0, from);
    must(sendfile(to, source, NULL, (size_t)status.st_size) == status.st_size, "sendfile");
    must(fchmod(to, 0755) == 0, "fchmod");
    close(source);
}

static void copy_to_path(const char *from, const char *path) {
    int to = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0755);
    must(to >= 0, path);
    copy(from, to);
    close(to);
}

static void reload(uint64_t deadline_ns, const char *a, const char *b) {
    while (!workload_over(deadline_ns)) {
        void *library = loaded(LM_ID_BASE, a);
        visit_a(function_of(library), 0.03);
        dlclose(library);
        library = loaded(LM_ID_BASE, b);
        visit_b(function_of(library), 0.03);
        dlclose(library);
    }
}

static void from_memfd(double seconds, const char *plugin) {
    char path[64];
    int file = memfd_create("plugin", MFD_CLOEXEC);
    must(file >= 0, "memfd_create");
    copy(plugin, file);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    void *library = loaded(LM_ID_BASE, path);
    close(file);
    visit_a(function_of(library), seconds);
}

static const char *scratch(char *path, size_t bytes) {
    snprintf(path, bytes, "/tmp/changes-%d.so", (int)getpid());
    return path;
}

static void deleted(double seconds, const char *plugin) {
    char path[64];
    copy_to_path(plugin, scratch(path, sizeof path));
    void *library = loaded(LM_ID_BASE, path);
    unlink(path);
    visit_a(function_of(library), seconds);
}

static void upgrade(double seconds, const char *a, const char *b) {
    char path[64], next[72];
    copy_to_path(a, scratch(path, sizeof path));
    void *old = loaded(LM_ID_BASE, path);
    visit_a(function_of(old), seconds / 4);
    snprintf(next, sizeof next, "%s.next", path);
    copy_to_path(b, next);
    must(rename(next, path) == 0, "rename");
    visit_a(function_of(old), seconds / 4);
    // Under another spelling: the C library takes a name that it knows for the file that it knows.
    snprintf(next, sizeof next, "/.%s", path);
    void *new = loaded(LM_ID_BASE, next);
    unlink(path);
    visit_b(function_of(new), seconds / 4);
    visit_a(function_of(old), seconds / 4);
}

static void twice(uint64_t deadline_ns, const char *plugin) {
    void *first = loaded(LM_ID_BASE, plugin), *second = loaded(LM_ID_NEWLM, plugin);
    must(function_of(first) != function_of(second), "loading a file twice");
    while (!workload_over(deadline_ns)) {
        visit_a(function_of(first), 0.02);
        visit_a(function_of(second), 0.02);
    }
}

// ---- Processes ------------------------------------------------------------------------------------------------------

static void wait_for(pid_t child) {
    int status;
    must(child > 0, "fork");
    must(waitpid(child, &status, 0) == child && status == 0, "a child");
}

static NOINLINE void run_child(void) {
    OWN(work)(0.005);
    _exit(0);
}

static void forks(uint64_t deadline_ns) {
    while (!workload_over(deadline_ns)) {
        pid_t child = fork();
        if (child == 0) run_child();
        wait_for(child);
    }
}

static void beside(double seconds, const char *a, const char *b) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    must(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
    pid_t child = fork();
    void *library = loaded(LM_ID_BASE, child == 0 ? b : a);
    if (child == 0) {
        visit_b(function_of(library), seconds);
        _exit(0);
    }
    visit_a(function_of(library), seconds);
    wait_for(child);
}

static NOINLINE void descend(int calls, uint64_t deadline_ns) {
    if (calls) descend(calls - 1, deadline_ns);
    else forks(deadline_ns);
    AFTER_CALL(value);
}

static void vforks(uint64_t deadline_ns) {
    while (!workload_over(deadline_ns)) {
        pid_t child = vfork();
        if (child == 0) run_child();
        wait_for(child);
    }
}

static void *outlive(void *seconds) {
    OWN(work)(*(double *)seconds);
    exit(0);
}

static void leader(double seconds) {
    static double rest;
    pthread_t thread;
    rest = seconds;
    must(pthread_create(&thread, NULL, outlive, &rest) == 0, "pthread_create");
    pthread_exit(NULL);
}

// Each program runs for a while and then the other one, until it is late enough.
static void exec_in_turn(const char *deadline, const char *self, char *other) {
    OWN(work)(0.03);
    if (workload_clock_ns(CLOCK_MONOTONIC) >= strtoull(deadline, NULL, 10)) exit(0);
    execl(other, other, "turn", deadline, self, NULL);
    must(0, other);
}

static void mounted(const char *self, const char *other, const char *seconds) {
    pid_t child = fork();
    if (child == 0) {
        must(unshare(CLONE_NEWNS) == 0, "unshare");
        must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "mount");
        must(mount(other, self, NULL, MS_BIND, NULL) == 0, "mount");
        execl(self, self, "work", seconds, NULL);
        must(0, self);
    }
    wait_for(child);
}

static void reuse(uint64_t deadline_ns, const char *self, const char *other) {
    pid_t number = 0;
    for (int turn = 0; !workload_over(deadline_ns); turn++) {
        struct clone_args args = {.exit_signal = SIGCHLD};
        if (number) args.set_tid = (uint64_t)(uintptr_t)&number, args.set_tid_size = 1;
        pid_t child = (pid_t)syscall(SYS_clone3, &args, sizeof args);
        if (child == 0) {
            execl(turn % 2 ? other : self, "changes", "work", "0.01", NULL);
            _exit(1);
        }
        number = child;
        wait_for(child);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *mode = argv[1], *a = argc > 3 ? argv[3] : "", *b = argc > 4 ? argv[4] : "";
    if (!strcmp(mode, "turn")) exec_in_turn(argv[2], argv[0], argv[3]);
    double seconds = atof(argv[2]);
    uint64_t deadline_ns = workload_deadline_ns(seconds);
    if (!strcmp(mode, "work")) OWN(work)(seconds);
    else if (!strcmp(mode, "reload")) reload(deadline_ns, a, b);
    else if (!strcmp(mode, "memfd")) from_memfd(seconds, a);
    else if (!strcmp(mode, "deleted")) deleted(seconds, a);
    else if (!strcmp(mode, "upgrade")) upgrade(seconds, a, b);
    else if (!strcmp(mode, "twice")) twice(deadline_ns, a);
    else if (!strcmp(mode, "beside")) beside(seconds, a, b);
    else if (!strcmp(mode, "fork")) forks(deadline_ns);
    else if (!strcmp(mode, "deep")) usleep(300000), descend(2000, deadline_ns);
    else if (!strcmp(mode, "vfork")) vforks(deadline_ns);
    else if (!strcmp(mode, "leader")) leader(seconds);
    else if (!strcmp(mode, "mounted")) mounted(argv[0], a, argv[2]);
    else if (!strcmp(mode, "reuse")) reuse(deadline_ns, argv[0], a);
    else if (!strcmp(mode, "exec")) {
        char deadline[32];
        snprintf(deadline, sizeof deadline, "%llu", (unsigned long long)deadline_ns);
        exec_in_turn(deadline, argv[0], argv[3]);
    } else return 2;
    return value == 42;
}
