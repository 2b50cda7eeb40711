//! What real processes publish of themselves.

use sidewinder_process::context::ContextValue;

use super::*;

/// Publishes a process context by the steps of OTEP 4719 when it is told to, while a thread burns CPU.
const PUBLISHER: &str = r#"
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
    usleep(1500000);
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
"#;

/// A process that publishes its context long after it was first met is told of anew.
#[test]
fn a_context_is_found_that_is_published_late() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let burner = Burner::start_with(PUBLISHER);
    for is_enabled in [true, false] {
        let mut storage = Storage::uninit();
        let mut options = options(burner.child.id(), 97, 8 << 20);
        options.trace_context.enabled = is_enabled;
        let Some(mut sampler) = sampler(&mut storage, options) else { return };
        sampler.start().unwrap();
        let mut said = Vec::new();
        let patience = Instant::now() + Duration::from_secs(if is_enabled { 20 } else { 2 });
        while Instant::now() < patience && !said.contains(&true) {
            let messages = poll_for(&mut sampler, Duration::from_millis(200));
            said.extend(messages.iter().filter_map(|message| match message {
                Message::Process(_, description) => Some(description.context.is_some()),
                _ => None,
            }));
        }
        if is_enabled {
            assert_eq!(said, [false, true], "first met without, then told of with a context");
            let description = sampler.registry.describe(sidewinder_process::Pid(burner.child.id())).unwrap();
            let key = ProcessKey::of(sampler.registry.processes().next().unwrap());
            let description = sampler.contexts.complete(key, description);
            let resource = &description.context.as_ref().unwrap().resource;
            assert_eq!(resource[..], [("service.name".into(), ContextValue::Text("by-sdk".into()))]);
        } else {
            assert_eq!(said, [false], "it was not to be read");
        }
    }
}
