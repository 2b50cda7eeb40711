/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Every map, what bounds its size, and the settings that are fixed when the programs are loaded. */
#ifndef SIDEWINDER_MAPS_BPF_H
#define SIDEWINDER_MAPS_BPF_H

#include "atomic.bpf.h"
#include "intf.h"
#include "kernel.bpf.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Set before load: the verifier removes what they switch off. */
const volatile __u32 scope_mode = SW_SCOPE_ALL;
const volatile __u32 pod_level; /* of the pod's cgroup, the root being 0; 0: there is no pod */
const volatile __u64 pod_cgroup; /* its id */
const volatile __u64 loaded_ns; /* CLOCK_BOOTTIME, before any program was attached */
const volatile __u32 pid_namespace_inode; /* of the receiver; 0: the initial one, which knows every task */
const volatile __u32 frame_limit = 8192;
const volatile __u32 process_mask; /* places in `processes` - 1; a power of two - 1 */
const volatile __u32 known_mask; /* sets in `known_stacks` - 1; a power of two - 1 */
const volatile __u32 ring_bytes; /* of one CPU's ring */
const volatile __u64 hash_key[4]; /* secret, odd: nobody can aim for a collision */
const volatile bool kernel_frames = true;
const volatile bool kernel_threads; /* whether they are sampled too */
const volatile bool reads_attributes; /* of contexts, besides their head */

/*
 * A frame that walks came by, and the rule that leads to its caller: most samples meet the frames of the last ones again.
 * One cache line each.
 */
struct sw_found {
	__u64 pc;
	sw_location ranges; /* of its process */
	__u32 clock; /* when it was found; it does not hold at another time. 0: never */
	__u32 is_return_address;
	__u64 head;
	__u64 address;
	__u32 number; /* of the rule */
	struct sw_rule rule; /* unless the number says it all */
} __attribute__((aligned(64)));

#define SW_FOUND_BITS 6
#define SW_FOUND_FRAMES (1u << SW_FOUND_BITS)

/*
 * Scratch of one entry point on one CPU, claimed for the length of one interrupt. Walks keep their state here
 * rather than on the stack, where the verifier would follow each value of it.
 */
struct sw_slot {
	struct sw_slot_head head;

	/* The sample that is being taken. */
	__u32 number; /* of this slot */
	__u64 owner; /* the task that it interrupted, as bpf_get_current_pid_tgid() */
	__u64 time_ns;
	__u32 pid;
	__u32 tid;
	__u32 outcome;
	__u8 kind;
	__u8 in_kernel;

	/* The frame about to be looked at. */
	__u64 pc;
	__u64 sp;
	__u64 fp;
	__u64 callee_saved; /* SW_REG_CALLEE_SAVED, where has_callee_saved: each rule so far said where it is */
	__u64 registers[SW_REGISTERS]; /* of the interrupted frame */
	__u32 is_return_address;
	__u32 has_callee_saved;
	__u32 is_interrupted; /* `registers` belong to this frame */
	__u32 unproven; /* SW_FRAME_UNPROVEN, or 0 */
	__u32 guesses; /* unproven frames of this walk */
	__u32 stack_switches; /* times that the walk went down instead of up */

	/* The mappings of the process, and the one that was looked at last. */
	sw_location ranges;
	__u32 range_count;
	__u32 clock; /* as this CPU was told, after `ranges` were looked up */
	__u32 variables_offset; /* in the same chunk */
	__u32 variable_count;
	__u64 range_start;
	__u64 range_bytes;
	__u64 range_file_offset;
	__u32 file;
	__u32 segment_chunk;
	__u32 segment_offset;
	__u32 segment_bytes; /* 0: no table */
	__u64 segment_file_offset;
	__u32 segment_rules;
	__u32 segment_rows;
	__u32 segment_first_run;

	/* What `window` holds of the user's stack, and the word that could not be had. */
	__u64 window_start;
	__u32 window_bytes;
	__u64 first_sp; /* of this walk, or of the one before */
	__u64 bytes_before; /* from the first to the last frame's, in the walk before */
	__u64 unreadable;

	/* The chunk being filled, and the chunks that are full. */
	__u32 count;
	__u32 chunks;
	__u32 depth;
	struct sw_hash hash;

	__u32 context_bytes; /* 0: none, as in each slot that is free */
	__u32 context_flag; /* which of the two follows the sample */
	struct sw_sample sample; /* of a thread with a context, and, contiguous with it, that */
	union {
		struct sw_context context;
		struct sw_label labels[SW_LABELS_MAX];
	};

	struct sw_found found[SW_FOUND_FRAMES]; /* by pc; kept from sample to sample */
	struct sw_hash chain[SW_CHAIN_CHUNKS];
	__u8 window[SW_STACK_WINDOW_BYTES];
	struct sw_body body; /* and, contiguous with it, its frames */
	struct sw_frame frames[SW_CHUNK_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* possible CPUs * SW_SLOTS_PER_CPU */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sw_slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* possible CPUs */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sw_cpu);
} cpus SEC(".maps");

struct sw_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set before load */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); /* possible CPUs */
	__type(key, __u32);
	__array(values, struct sw_ring);
} rings SEC(".maps");

/* One for all CPUs: few samples need it, at the start of programs. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set before load */
} snapshots SEC(".maps");

typedef __u8 sw_chunk[SW_CHUNK_BYTES];

struct sw_chunk_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, sw_chunk);
};

/* Grows by one chunk when the receiver needs it; never beyond the budget. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SW_CHUNKS_MAX);
	__type(key, __u32);
	__array(values, struct sw_chunk_map);
} arena SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before load */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sw_segment);
} segments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* process_mask + 1 */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sw_process);
} processes SEC(".maps");

struct sw_known_set {
	struct sw_known ways[SW_KNOWN_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* known_mask + 1 */
	__uint(map_flags, BPF_F_MMAPABLE); /* for the alignment: a set is a cache line */
	__type(key, __u32);
	__type(value, struct sw_known_set);
} known_stacks SEC(".maps");

/*
 * Thread groups that the scope is made of, or is without, and when their leader started. Written by the receiver and by
 * the fork hook.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before load; 1 where the scope is all */
	__type(key, __u32);
	__type(value, __u64);
} listed SEC(".maps");

/*
 * Of listed processes whose exit has begun: their numbers in the receiver's PID namespace, by thread group id. The kernel
 * takes the number from a process before it frees it. As many at most as there are in `listed`.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* as `listed` in a PID namespace; 1 elsewhere */
	__type(key, __u32);
	__type(value, __u32);
} exiting SEC(".maps");

/* What `listed` lacks; the only thing in .bss. */
struct sw_scope_gaps scope_gaps;

/* The containers that the receiver has heard of, by the ids of their cgroups. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load; 1 where there is no pod */
	__type(key, __u64);
	__type(value, __u32);
} containers SEC(".maps");

/* The program that walks on, where walks go on by tail calls. One for each type of program. */
struct sw_walks {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};

struct sw_walks cpu_walks SEC(".maps");

static __always_inline struct sw_cpu *this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline void *this_ring(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&rings, &cpu);
}

/* Nested programs share the counters of a CPU, so each addition is atomic. */
#define sw_count(counter, n) sw_atomic_add(&(counter), (n))

static __always_inline __u8 *arena_chunk(__u32 number)
{
	__u32 zero = 0;
	void *map = bpf_map_lookup_elem(&arena, &number);

	return map ? bpf_map_lookup_elem(map, &zero) : 0;
}

/*
 * A T at an offset of a chunk. The mask keeps any offset inside the chunk and on a multiple of `align`, which must
 * be a power of two no smaller than T.
 */
#define sw_at(T, chunk, offset, align) ((T *)((chunk) + ((offset) & (SW_CHUNK_BYTES - (align)))))

#endif
