/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Settings and counters of each CPU, and limits of a slot. */
#ifndef SIDEWINDER_INTF_CPU_H
#define SIDEWINDER_INTF_CPU_H

#include "frames.h"
#include "outcomes.h"
#include "probes.h"
#include "records.h"
#include <linux/types.h>

/* Fields of the kernel's types without which the programs do less. `src/fields.rs` says what is lost without each. */
enum sw_kernel_field {
	SW_FIELD_IN_EXECVE = 0,
	SW_FIELD_START_STACK,
	SW_FIELD_START_CODE,
	SW_FIELD_EXE_FILE,
	SW_FIELD_THREAD_POINTER,
	SW_FIELD_RUN_DELAY,
};

/* The CPU clock interrupts programs of other events, and nothing interrupts the CPU clock's. */
#define SW_SLOTS_PER_CPU 2
#define SW_CHUNK_FRAMES 256
#define SW_CHAIN_CHUNKS 64
#define SW_STACK_WINDOW_BYTES 2048
#define SW_VM_WINDOW_BYTES 2048
#define SW_VM_CODES_BITS 7
#define SW_VM_CODES (1u << SW_VM_CODES_BITS)
#define SW_KERNEL_FRAMES_MAX 127
#define SW_FRAMES_PER_CALL 32 /* if walks use tail calls */
#define SW_CALLS_MAX 33 /* consecutive tail calls: MAX_TAIL_CALL_CNT, which before Linux 5.16 was 32 but also allowed 33 */
/*
 * Frames per round, if walks use a loop. Each round ends with a return, which takes about 8 ns if the kernel mitigates SRSO;
 * but the verifier checks each frame of a round separately.
 */
#define SW_FRAMES_PER_ROUND 4
#define SW_DEPTHS 15 /* enough for the 16,383 frames that fit into a chain */

/*
 * The settings and the counters of one CPU, side by side so that an interrupt touches few pages. The receiver writes the
 * settings of all CPUs, and reads the counters, which are never reset, through its own mapping.
 */
struct sw_cpu {
	__u32 epoch; /* from 1; each stack is sent once in each */
	/* From 1; advances a few times a second, to measure the age of segments, and before arena memory is reused. */
	__u32 clock;

	/* The process that was last found in `listed`: most interrupts find the same one again. */
	__u64 listed_start_ns;
	__u32 listed_pid;
	__u32 tells_newcomers; /* whether events are per container, and new containers must be reported */

	__u64 waits_since_ns; /* when sampling began or last continued: waits from before then are not accounted for */

	__u64 outcomes[SW_SAMPLE_KINDS][SW_OUTCOME_PLACES]; /* of interrupts that got no slot, by kind and sw_outcome */
	__u64 scope_list_full; /* forks that found no room in the map `listed` */
	__u64 off_cpu_waits_missing_unseen; /* threads from before the start that had begun to wait before it */
	__u64 off_cpu_waits_missing_end_lost; /* ends of sampled waits that found no room in the ring */
	__u32 snapshot_window; /* the time, in units of 2^SW_SNAPSHOT_WINDOW_SHIFT ns */
	__u32 snapshots_in_window;

	__u64 hooks_paused; /* 0: hits of probes, and wakers, are sampled */
	__u64 switches_paused; /* 0: the tracepoint of context switches samples waits that begin on this CPU */
	struct sw_probe_hits probes[SW_USER_PROBES_MAX];
};

/*
 * The head of a slot: its claims, and its counters, which are never reset. A slot has one holder at a time, so additions to
 * its counters needn't be atomic.
 */
struct sw_slot_head {
	__u32 claims; /* 0: free; 1: in use; more: others are finding it in use */
	__u32 sequence; /* the number of uses that have ended */
	__u64 stacks_known; /* samples whose stack was already sent in this epoch */
	__u64 stacks_sent;
	__u64 frames_table;
	__u64 frames_frame_pointer;
	__u64 frames_guess;
	__u64 nested_walks; /* uses begun while another slot of this CPU was in use */
	__u64 outcomes[SW_SAMPLE_KINDS][SW_OUTCOME_PLACES]; /* of interrupts, by kind and sw_outcome */
	__u64 stack_depths[SW_DEPTHS]; /* stacks by their frames, complete or cut: [i] counts stacks of 2^i to 2^(i+1)-1 frames */
	__u64 snapshots_refused; /* the ring had no room, or there were too many in this window */
	__u64 thread_contexts_read; /* the thread published a span or labels */
	__u64 thread_contexts_changing; /* the thread was updating its record: valid was not 1 */
	__u64 thread_contexts_unreadable; /* the thread's variable or record could not be read */
	__u64 vm_frames_frames; /* frames of runtimes in stacks */
	__u64 vm_frames_groups; /* activations of their loops whose frames were found */
	__u64 vm_frames_missing[SW_VM_MISSING_PLACES]; /* frames that could not be found, by sw_vm_missing */
	__u64 vm_function_copies_sent; /* functions of young processes */
	__u64 vm_function_copies_dropped; /* of these, not sent now: the ring was half full */
};

/*
 * A stack, or chunk of one, that was sent: 96 bits of its hash, so that a set is one cache line. If two stacks had the same
 * 96 bits, the second would be missing when its sample arrives.
 */
struct sw_known {
	__u64 lo;
	__u32 hi;
	__u32 epoch;
};

#define SW_KNOWN_WAYS 4

#endif
