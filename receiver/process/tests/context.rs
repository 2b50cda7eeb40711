//! Contexts of real processes, written as the specification requires.
#![expect(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

mod common;

use std::process::Command;

use common::{Talker, compile};
use sidewinder_process::context::{
    ContextError, PublishedContext, find_context_mappings, read_process_context,
};
use sidewinder_process::{ProcRoot, ProcessDir, ProcessMemory};

/// Publishes `service.name` = `one`, prints a line, and then does what each input line says, in the specification's order:
/// the header first, its time last, and zero in its place during a change.
const WRITER: &str = r#"
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
struct header { char signature[8]; uint32_t version, payload_bytes; volatile uint64_t published_ns; const void *payload; };
static uint8_t payloads[2][64];
static uint64_t now(void) {
    struct timespec t; clock_gettime(CLOCK_BOOTTIME, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static uint32_t encode(uint8_t *to, const char *name) { /* resource { service.name: name } */
    uint8_t length = strlen(name);
    uint8_t head[] = { 0x0a, 20 + length, 0x0a, 18 + length, 0x0a, 12, 's','e','r','v','i','c','e','.','n','a','m','e',
                       0x12, 2 + length, 0x0a, length };
    memcpy(to, head, sizeof head); memcpy(to + sizeof head, name, length); return sizeof head + length; }
int main(int argc, char **argv) {
    int is_anonymous = argc > 1 && !strcmp(argv[1], "anonymous"), next = 1;
    int fd = is_anonymous ? -1 : memfd_create("OTEL_CTX", MFD_CLOEXEC);
    if (!is_anonymous && ftruncate(fd, 4096)) return 1;
    struct header *header = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | (is_anonymous ? MAP_ANONYMOUS : 0), fd, 0);
    if (header == MAP_FAILED) return 1;
    if (!is_anonymous) close(fd);
    memcpy(header->signature, "OTEL_CTX", 8);
    header->version = 2; header->payload = payloads[0]; header->payload_bytes = encode(payloads[0], "one");
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    header->published_ns = now();
    int named = prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, header, 4096, "OTEL_CTX");
    printf("%s\n", named ? "unnamed" : "named"); fflush(stdout);
    char line[32];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        header->published_ns = 0;
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (!strcmp(line, "wild")) header->payload = (void *)0x1234;
        else if (!strcmp(line, "gone")) munmap(header, 4096);
        else if (strcmp(line, "busy")) {
            header->payload = payloads[next]; header->payload_bytes = encode(payloads[next], line); next ^= 1; }
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (strcmp(line, "busy") && strcmp(line, "gone")) header->published_ns = now();
        puts("done"); fflush(stdout);
    }
}
"#;

fn context_of(talker: &Talker) -> Result<PublishedContext, ContextError> {
    let open = || ProcessDir::open(&ProcRoot::default(), talker.pid()).unwrap();
    let mappings = find_context_mappings(open().file("maps").unwrap()).unwrap();
    read_process_context(mappings, &ProcessMemory::new(open()))
}

fn is_current(published: &PublishedContext, talker: &Talker) -> bool {
    published.is_current(&ProcessMemory::new(ProcessDir::open(&ProcRoot::default(), talker.pid()).unwrap()))
}

fn name_of(published: &PublishedContext) -> String {
    format!("{:?}", published.context.resource)
}

#[test]
fn the_context_of_a_process_is_found_and_followed() {
    let directory = tempfile::tempdir().unwrap();
    let writer = compile(directory.path(), "writer", WRITER, &["-O1"]);
    for kind in ["memfd", "anonymous"] {
        let mut talker = Talker::start(Command::new(&writer).arg(kind));
        let is_named = talker.hear() == "named";
        if kind == "anonymous" && !is_named {
            eprintln!("skipped: this kernel names no anonymous memory (CONFIG_ANON_VMA_NAME)");
            continue;
        }
        let first = context_of(&talker).unwrap();
        assert!(name_of(&first).contains("service.name") && name_of(&first).contains("one"), "{first:?}");
        assert!(is_current(&first, &talker));

        talker.say("another");
        talker.hear();
        assert!(!is_current(&first, &talker));
        let second = context_of(&talker).unwrap();
        assert!(name_of(&second).contains("another") && second.published_ns > first.published_ns);

        talker.say("busy");
        talker.hear();
        assert!(!is_current(&second, &talker));
        assert!(matches!(context_of(&talker), Err(ContextError::Busy)));
        talker.say("wild");
        talker.hear();
        assert!(matches!(context_of(&talker), Err(ContextError::Unreadable(_))));
        talker.say("gone");
        talker.hear();
        assert!(!is_current(&second, &talker));
        assert!(matches!(context_of(&talker), Err(ContextError::Absent)));
        assert!(!is_current(&second, &talker));
    }
}

#[test]
fn a_process_without_a_context_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let source = "#include <stdio.h>\nint main(void) { puts(\"x\"); fflush(stdout); getchar(); }";
    let mut talker = Talker::start(&mut Command::new(compile(directory.path(), "plain", source, &[])));
    talker.hear();
    assert!(matches!(context_of(&talker), Err(ContextError::Absent)));
}
