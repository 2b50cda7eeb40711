// Runs code of its own making, and lays a trap for whoever opens the files that it says tell of it: the map of that
// code, a jitdump of more of it, its debug file, and the file that its units were split off to.
//
// traps KIND OUTSIDE: OUTSIDE is an absolute path without its suffix, of files that are not in its root.
// traps ROOT KIND OUTSIDE: the same as `/program` of this root, as a container would have it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

// Where maps, those outside too, say that the code is.
#define CODE ((char *)0x100000000000)
// Where the jitdump says so.
#define DUMPED ((char *)0x200000000000)
// It is there before, for jitdumps are found by being mapped.
#define DUMPS "/tmp/dumps"
#define DUMP DUMPS "/jit-1.dump"
#define NOINLINE __attribute__((noinline, noclone))

extern char __start_copied[], __stop_copied[];

__attribute__((section("copied"), noinline, used)) static void spin(void) {
    for (int i = 0; i < 1000000; i++) __asm__ volatile("");
}

// A local function, which only the debug file names.
static NOINLINE void known_by_debug_file(void) {
    for (int i = 0; i < 1000000; i++) __asm__ volatile("");
}

static void must(int is_done, const char *what) {
    if (!is_done) {
        perror(what);
        exit(1);
    }
}

static int create(const char *path, const char *content) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    must(file >= 0 && write(file, content, strlen(content)) >= 0, path);
    return file;
}

static void fill(int file, char byte, int mib) {
    static char chunk[1 << 20];
    memset(chunk, byte, sizeof chunk);
    while (mib-- > 0) must(write(file, chunk, sizeof chunk) > 0, "write");
}

// What lies at a path: something that isn't a regular file, or one that leads out of the root or has no end.
static void trap(const char *kind, const char *path, const char *outside, const char *line) {
    if (strcmp(kind, "none") == 0) return;
    if (strcmp(kind, "fifo") == 0) must(mkfifo(path, 0644) == 0, path);
    if (strcmp(kind, "device") == 0) must(mknod(path, S_IFCHR | 0644, makedev(1, 5)) == 0, path);
    if (strcmp(kind, "directory") == 0) must(mkdir(path, 0755) == 0, path);
    if (strcmp(kind, "link") == 0) must(symlink(outside, path) == 0, path);
    if (strcmp(kind, "way-out") == 0) {
        char way[4096];
        snprintf(way, sizeof way, "../../../../../../../../..%s", outside);
        must(symlink(way, path) == 0, path);
    }
    if (strcmp(kind, "loop") == 0) must(symlink(path, path) == 0, path);
    if (strcmp(kind, "sparse") == 0) must(ftruncate(create(path, line), (off_t)1 << 40) == 0, path);
    if (strcmp(kind, "endless") == 0) fill(create(path, line), 'x', 96);
    if (strcmp(kind, "changing") == 0) create(path, line);
}

static void enter(const char *root) {
    must(unshare(CLONE_NEWNS) == 0, "unshare");
    must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "mount");
    must(mount(root, root, NULL, MS_BIND, NULL) == 0 && chdir(root) == 0, root);
    must(syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0, "pivot_root");
}

// Code that isn't in any file.
static void (*copy_to(char *place))(void) {
    char *code = mmap(place, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    must(code != MAP_FAILED, "mmap");
    memcpy(code, __start_copied, (size_t)(__stop_copied - __start_copied));
    must(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0, "mprotect");
    return (void (*)(void))code;
}

// Has a jitdump found, and another directory over the one that it is in.
static void claim_dump(int is_to_be_covered) {
    int dump = open(DUMP, O_RDONLY);
    must(dump >= 0 && mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0) != MAP_FAILED, DUMP);
    close(dump);
    if (is_to_be_covered)
        must(mkdir("/tmp/over", 0755) == 0 && mount("/tmp/over", DUMPS, NULL, MS_BIND, NULL) == 0, DUMPS);
}

int main(int count, char **arguments) {
    nice(5); // a dozen of them compute at once: whoever reads what they have comes first
    if (count == 4) {
        enter(arguments[1]);
        execl("/program", "program", arguments[2], arguments[3], NULL);
    }
    if (count != 3) return 2;
    const char *kind = arguments[1];
    char map[64], outside[4096], line[16384];
    snprintf(map, sizeof map, "/tmp/perf-%d.map", (int)getpid());
    size_t bytes = (size_t)(__stop_copied - __start_copied);
    snprintf(line, sizeof line, "%llx %zx made_here\n", (unsigned long long)(uintptr_t)CODE, bytes);
    if (strcmp(kind, "names") == 0) {
        // An entry that is replaced by one with a name of ten thousand letters, and control characters before them.
        sprintf(line + strlen(line), "%llx %zx \033[31m\a\r", (unsigned long long)(uintptr_t)CODE, bytes);
        size_t end = strlen(line);
        memset(line + end, 'n', 10000);
        strcpy(line + end + 10000, "\n");
    }
    int is_trap = strcmp(kind, "none") != 0 && strcmp(kind, "names") != 0;
    claim_dump(is_trap);
    if (!is_trap) {
        close(create(map, line));
    } else {
        snprintf(outside, sizeof outside, "%s.dump", arguments[2]);
        trap(kind, DUMP, outside, "DTiJ");
        snprintf(outside, sizeof outside, "%s.map", arguments[2]);
        trap(kind, map, outside, line);
        snprintf(outside, sizeof outside, "%s.debug", arguments[2]);
        trap(kind, "/program.debug", outside, "\x7f" "ELF\2\1\1");
        snprintf(outside, sizeof outside, "%s.dwo", arguments[2]);
        trap(kind, "/unit.dwo", outside, "\x7f" "ELF\2\1\1");
    }

    void (*made)(void) = copy_to(CODE), (*dumped)(void) = copy_to(DUMPED);
    puts("ready");
    fflush(stdout);
    int changed = open(map, O_RDWR | O_NONBLOCK);
    for (int round = 0;; round++) {
        made();
        dumped();
        known_by_debug_file();
        if (strcmp(kind, "changing") == 0 && round % 16 == 0) {
            // Grows by what is half a line, and is empty the next time.
            must(round % 32 ? ftruncate(changed, 0) == 0 : pwrite(changed, line, strlen(line) - 3, 0) > 0, "change");
        }
    }
}
