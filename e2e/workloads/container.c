// Runs /PROGRAM of a container's root as a runtime does for another user than root: with these capabilities alone in its
// bounding set, permitted but neither inheritable nor ambient, and with no_new_privs. CAPABILITIES is a mask in hexadecimal
// (capabilities(7)), FILE_CAPABILITIES the program's attribute security.capability, which archives may have lost.
// Usage: container ROOT FILE_CAPABILITIES UID CAPABILITIES PROGRAM [ARGUMENT...]
#define _GNU_SOURCE
#include <grp.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

static int permit(uint64_t mask) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    for (int i = 0; i < 2; i++) {
        uint32_t word = (uint32_t)(mask >> (32 * i));
        data[i] = (struct __user_cap_data_struct){.effective = word, .permitted = word};
    }
    return syscall(SYS_capset, &header, data);
}

static int bound(uint64_t mask) {
    // The first number that the kernel does not know is an error.
    for (int number = 0; prctl(PR_CAPBSET_READ, number) >= 0; number++)
        if (!(mask >> number & 1) && prctl(PR_CAPBSET_DROP, number)) return -1;
    return 0;
}

static int give(const char *program, const char *hexadecimal) {
    unsigned char value[64];
    size_t size = strlen(hexadecimal) / 2;
    if (size > sizeof(value)) return -1;
    for (size_t i = 0; i < size; i++)
        if (sscanf(hexadecimal + 2 * i, "%2hhx", &value[i]) != 1) return -1;
    return setxattr(program, "security.capability", value, size, 0);
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    unsigned int user = (unsigned int)strtoul(argv[3], NULL, 10);
    uint64_t mask = strtoull(argv[4], NULL, 16);
    if (chroot(argv[1]) || chdir("/") || give(argv[5], argv[2]) || bound(mask) || setgroups(0, NULL) ||
        prctl(PR_SET_KEEPCAPS, 1) || setresgid(user, user, user) || setresuid(user, user, user) || permit(mask) ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
        perror("container");
        return 125;
    }
    execv(argv[5], argv + 5);
    perror(argv[5]);
    return 127;
}
