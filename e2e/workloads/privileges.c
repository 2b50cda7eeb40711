// Runs PROGRAM as a user without privileges, except for these capabilities: a mask in hexadecimal (capabilities(7)), by numbers.
// Usage: privileges UID CAPABILITIES PROGRAM [ARGUMENT...]
#define _GNU_SOURCE
#include <grp.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int set_capabilities(uint64_t mask) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    for (int i = 0; i < 2; i++) {
        uint32_t word = (uint32_t)(mask >> (32 * i));
        data[i] = (struct __user_cap_data_struct){.effective = word, .permitted = word, .inheritable = word};
    }
    if (syscall(SYS_capset, &header, data)) return 0;
    // Those that exec keeps.
    for (int number = 0; number < 64; number++)
        if (mask >> number & 1 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0)) return 0;
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    unsigned int user = (unsigned int)strtoul(argv[1], NULL, 10);
    uint64_t mask = strtoull(argv[2], NULL, 16);
    if (setgroups(0, NULL) || prctl(PR_SET_KEEPCAPS, 1) || setresgid(user, user, user) || setresuid(user, user, user) ||
        !set_capabilities(mask)) {
        perror("privileges");
        return 125;
    }
    execv(argv[3], argv + 3);
    perror(argv[3]);
    return 127;
}
