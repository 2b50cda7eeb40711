// Runs code of its own making, and tells debuggers of it ("JIT Compilation Interface", GDB's manual); or has something else
// where they would look.
//
// jit_interface KIND; `removed` removes names on SIGUSR1
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loop.h"

struct entry {
    struct entry *next, *previous;
    const void *file;
    uint64_t bytes;
};

struct {
    uint32_t version, action;
    struct entry *relevant, *first;
} __jit_debug_descriptor = { 1, 0, 0, 0 };

__attribute__((noinline)) void __jit_debug_register_code(void) { __asm__ volatile(""); }

enum { TEXT = 1, SYMBOLS, NAMES, SECTIONS };

// An object file whose text is at an address, with one function that is all of it.
struct file {
    Elf64_Ehdr header;
    Elf64_Shdr sections[SECTIONS];
    Elf64_Sym symbols[2];
    char names[32];
};

static struct file file_of(const void *code, size_t bytes, const char *name) {
    struct file file = {
        .header = {
            .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
            .e_type = ET_REL,
            .e_machine = EM_X86_64,
            .e_version = EV_CURRENT,
            .e_shoff = offsetof(struct file, sections),
            .e_ehsize = sizeof(Elf64_Ehdr),
            .e_shentsize = sizeof(Elf64_Shdr),
            .e_shnum = SECTIONS,
            .e_shstrndx = NAMES,
        },
        .sections = {
            [TEXT] = { .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR, .sh_addr = (uintptr_t)code, .sh_size = bytes },
            [SYMBOLS] = { .sh_type = SHT_SYMTAB, .sh_offset = offsetof(struct file, symbols), .sh_size = 2 * sizeof(Elf64_Sym),
                          .sh_link = NAMES, .sh_info = 1, .sh_entsize = sizeof(Elf64_Sym) },
            [NAMES] = { .sh_type = SHT_STRTAB, .sh_offset = offsetof(struct file, names), .sh_size = sizeof file.names },
        },
        .symbols = { [1] = { .st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = TEXT, .st_size = bytes } },
    };
    strncpy(file.names + 1, name, sizeof file.names - 2);
    return file;
}

enum { LONG = 200000 };

static struct file file, other;
static struct entry entry, second;

static void lay(const char *kind, const void *code) {
    if (strcmp(kind, "none") == 0) return;
    __jit_debug_descriptor.first = &entry;
    entry = (struct entry){ 0, 0, &file, sizeof file };
    if (strcmp(kind, "loop") == 0) {
        entry.next = &second;
        second = (struct entry){ &entry, 0, &file, sizeof file };
    }
    if (strcmp(kind, "long") == 0) {
        struct entry *entries = calloc(LONG, sizeof *entries);
        for (int i = 0; i < LONG; i++) entries[i] = (struct entry){ i + 1 < LONG ? &entries[i + 1] : 0, 0, &file, sizeof file };
        __jit_debug_descriptor.first = entries;
    }
    if (strcmp(kind, "huge") == 0) entry.bytes = UINT64_MAX;
    // All that may be read of it is there.
    if (strcmp(kind, "large") == 0) {
        entry.bytes = 1 << 30;
        entry.file = mmap(0, entry.bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (strcmp(kind, "short") == 0) entry.bytes = 16;
    if (strcmp(kind, "garbage") == 0) memset(&file.sections, 0xff, sizeof file.sections);
    if (strcmp(kind, "nowhere") == 0) entry.file = (void *)0xdead0000;
    if (strcmp(kind, "beyond") == 0) entry.next = (void *)(UINTPTR_MAX - 8);
    if (strcmp(kind, "version") == 0) __jit_debug_descriptor.version = 2;
    // Newer code in the place of older.
    if (strcmp(kind, "replaced") == 0) {
        other = file_of(code, sizeof LOOP, "replaced_here");
        second = (struct entry){ &entry, 0, &other, sizeof other };
        __jit_debug_descriptor.first = &second;
    }
    __jit_debug_register_code();
}

static volatile sig_atomic_t is_to_be_removed;

static void remove_later(int signal) { is_to_be_removed = signal; }

int main(int count, char **arguments) {
    nice(5); // a dozen of them compute at once: whoever reads what they have comes first
    if (count != 2) return 2;
    const char *kind = arguments[1];
    void *code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, LOOP, sizeof LOOP);
    mprotect(code, 4096, PROT_READ | PROT_EXEC);
    file = file_of(code, sizeof LOOP, "made_here");
    lay(kind, code);
    if (strcmp(kind, "removed") == 0) signal(SIGUSR1, remove_later);
    puts("ready");
    fflush(stdout);
    for (;;) {
        ((void (*)(void))code)();
        // Leaves some time to the others, and to who reads what they have.
        usleep(4000);
        // Thrown away, but for the code itself.
        if (is_to_be_removed) __jit_debug_descriptor.first = 0;
        // Comes and goes.
        if (strcmp(kind, "changing") == 0) {
            __jit_debug_descriptor.first = __jit_debug_descriptor.first ? 0 : &entry;
            __jit_debug_register_code();
        }
    }
}
