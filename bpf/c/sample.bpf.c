// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Sidewinder's programs.
 *
 * An interrupt of the CPU clock, or of a counter, becomes a sample: first the task must be in scope; then its kernel frames,
 * if it was in the kernel, and its user frames are walked into scratch memory of this CPU, and hashed; a stack that was not
 * seen in this epoch is sent in full, followed by a small record that refers to it by hash. Each interrupt ends in exactly
 * one outcome, counted where it ends.
 *
 * Each header compiles by itself. Samplers, each with the programs of one kind of hook:
 *
 *   interrupt.bpf.h    the CPU clock and counters      off_cpu.bpf.h     threads that leave their CPU
 *   user_probe.bpf.h   probes in programs              wait_list.bpf.h   waits in progress
 *   tracepoint.bpf.h   probes at the kernel's          waker.bpf.h       threads that end waits of others
 *   test.bpf.h         programs that only tests load   process.bpf.h     fork, exec and exit
 *
 * What they are made of:
 *
 *   sampler.bpf.h      the programs of a sampler       sample.bpf.h      how a sample begins and ends
 *   entry.bpf.h        from a hook to the user stack   scope.bpf.h       which tasks are in scope
 *   slot.bpf.h         claiming scratch memory         context.bpf.h     the span that a thread is in
 *   lock.bpf.h         locks that threads wait for     labels.bpf.h      labels of goroutines and of threads
 *   tls.bpf.h          thread-local variables          snapshot.bpf.h    stacks that the receiver walks later
 *
 * Walks:
 *
 *   unwind.bpf.h       from registers to the start of the thread
 *   current_frame.bpf.h  a frame's registers, and its end
 *   call.bpf.h         whether an address is behind a call
 *   stack_window.bpf.h a window on the stack           table.bpf.h       from an address to its rule
 *   stack.bpf.h        frames, their hash, sending them
 *
 * Frames of language runtimes. Each has one header for others, with its parts in the folder of the same name:
 *
 *   vm.bpf.h           which runtime walks a frame     vm_memory.bpf.h   what their walks share
 *   cpython.bpf.h      groups of CPython's frames      cookie.bpf.h      hashes that identify objects
 *   hotspot.bpf.h      HotSpot's, on the native stack  v8.bpf.h          V8's, likewise
 *
 * The ground floor:
 *
 *   intf.h             shared with the receiver        maps.bpf.h        maps, options, scratch memory
 *   arch.bpf.h         the architecture                atomic.bpf.h      access to shared memory
 *   kernel.bpf.h       the kernel's types              fields.bpf.h      fields of these that may be missing
 *   task.bpf.h         properties of a task            identity.bpf.h    which process a task belongs to
 */
#include "interrupt.bpf.h"
#include "off_cpu.bpf.h"
#include "process.bpf.h"
#include "tracepoint.bpf.h"
#include "user_probe.bpf.h"
#include "wait_list.bpf.h"
#include "waker.bpf.h"

#ifdef SW_TEST_PROGRAMS
#include "test.bpf.h"
#endif

char LICENSE[] SEC("license") = "Dual MIT/GPL";
