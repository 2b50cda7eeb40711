/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* All maps, the limits of their sizes, and the settings that are fixed when the programs are loaded. */
#ifndef SIDEWINDER_MAPS_BPF_H
#define SIDEWINDER_MAPS_BPF_H

#include "atomic.bpf.h"
#include "cpython/state.bpf.h"
#include "hotspot/state.bpf.h"
#include "intf.h"
#include "kernel.bpf.h"
#include "v8/state.bpf.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Set before load, as in identity.bpf.h, so that the verifier removes code that they disable. */
const volatile __u32 scope_mode = SW_SCOPE_ALL;
const volatile __u64 loaded_ns; /* CLOCK_BOOTTIME, before any program was attached */
const volatile __u32 frame_limit = 8192;
const volatile __u32 process_mask; /* entries of `processes` - 1; a power of two - 1 */
const volatile __u32 known_mask; /* sets in `known_stacks` - 1; a power of two - 1 */
const volatile __u32 ring_bytes; /* of one CPU's ring */
const volatile __u64 hash_key[4]; /* secret and odd, so that collisions can't be constructed */
const volatile bool kernel_frames = true;
const volatile bool kernel_threads; /* whether they are sampled too */
const volatile __u64 min_process_age_ns; /* younger processes are not sampled */
const volatile bool vm_frames = true; /* whether frames of runtimes are walked */
const volatile __u64 off_cpu_probability; /* the least probability with which a wait is sampled, of SW_CERTAIN */
const volatile __u64 lock_probability; /* the same of a wait in a futex */
const volatile bool only_locks; /* whether other waits aren't sampled */
const volatile bool samples_runnable; /* whether the time is sampled, too, in which threads wait for a CPU */
const volatile bool reads_attributes; /* of contexts, in addition to their head */
const volatile bool has_several_counters;
const volatile __s64 preempt_count_from_rq; /* the distance of two variables of a CPU, in bytes; see arch/x86_64.bpf.h */

/*
 * A cached frame, with the rule that leads to its caller: most samples have frames in common with the previous ones. One
 * cache line each.
 */
struct sw_found {
	__u64 pc;
	sw_location ranges; /* of its process */
	__u32 clock; /* when it was found: it is only valid while the clock has this value. 0: never */
	__u32 is_return_address;
	__u64 head;
	__u64 address;
	__u32 number; /* index of the rule */
	struct sw_rule rule; /* only if the index names no fixed rule */
} __attribute__((aligned(64)));

#define SW_FOUND_BITS 6
#define SW_FOUND_FRAMES (1u << SW_FOUND_BITS)

/* What was read of an object, a cookie or a number, and the sample for which it was read. */
struct sw_vm_code {
	__u64 address; /* 0: none */
	__u32 sample; /* the low half of its time */
	__u32 cookie;
};

/* Where an object leads, for threads of one number, and the sample for which that was read. */
struct sw_vm_link {
	__u64 from; /* 0: none */
	__u64 to; /* 0: it could not be read */
	__u32 sample; /* the low half of its time */
	__u32 number; /* 0: for all threads */
};

#define SW_VM_LINKS_BITS 5
#define SW_VM_LINKS (1u << SW_VM_LINKS_BITS)

/* The part of a runtime's memory that the window on it holds. */
struct sw_vm_window {
	__u64 start;
	__u32 bytes;
};

/*
 * Scratch memory of one entry point on one CPU, claimed for the duration of one interrupt. Walks keep their state here
 * rather than on the stack, where the verifier would track each value.
 */
struct sw_slot {
	struct sw_slot_head head;

	/* The current sample. */
	__u32 number; /* index of this slot */
	__u64 owner; /* the task that it interrupted, as bpf_get_current_pid_tgid() */
	__u64 time_ns;
	__u64 value; /* in the unit of its kind */
	__u64 weight; /* hits of a probe that it counts for */
	__u64 started_ns; /* when its process started or, if that was later, ran exec */
	__u32 pid;
	__u32 tid;
	__u32 outcome;
	__u8 kind;
	__u8 in_kernel;
	__u32 wait_flags; /* of the sample of a wait */

	/* The current frame. */
	__u64 pc;
	__u64 sp;
	__u64 fp;
	__u64 callee_saved; /* SW_REG_CALLEE_SAVED; valid if has_callee_saved, as long as each rule says where it is */
	__u64 registers[SW_REGISTERS]; /* of the interrupted frame */
	__u32 is_return_address;
	__u32 has_callee_saved;
	__u32 is_interrupted; /* `registers` belong to this frame */
	__u32 unproven; /* SW_FRAME_UNPROVEN, or 0 */
	__u32 guesses; /* unproven frames of this walk */
	__u32 stack_switches; /* how often the walk went down instead of up */
#ifdef SW_REG_LINK
	__u32 sp_is_bound; /* the frame's stack pointer is unknown, but not below `sp` */
	__u32 reserved;
#endif

	/* The mappings of the process, and the last one that was looked up. */
	sw_location ranges;
	__u32 range_count;
	__u32 clock; /* this CPU's clock, read after `ranges` were looked up */
	__u32 variables_offset; /* in the same chunk */
	__u32 variable_count;
	__u32 runtime_kind; /* sw_frame_kind of its runtime with a loop, CPython or V8; 0: it runs none of them */
	__u32 runtime_offset; /* of that, in the same chunk; 0: likewise */
	__u32 hotspot_offset; /* likewise, of HotSpot */
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

	/* The part of the user stack that `window` holds, and the address of the word that could not be read. */
	__u64 window_start;
	__u32 window_bytes;
	__u64 first_sp; /* of this walk; before it starts, of the previous one */
	__u64 bytes_before; /* from the first to the last frame's stack pointer, in the previous walk */
	__u64 unreadable;

	/* The frames of the process's runtimes. */
	struct sw_vm_window vm_window;
	struct sw_cpython_walk cpython;
	struct sw_hotspot_walk hotspot;

	/* The current chunk, and the full ones. */
	__u32 count;
	__u32 chunks;
	__u32 depth;
	struct sw_hash hash;

	__u32 context_bytes; /* 0: none, as in every free slot */
	__u32 context_flag; /* which member of the union follows the sample */
	struct sw_sample sample; /* of a thread with a context, which directly follows it */
	union {
		struct sw_context context;
		struct sw_label labels[SW_LABELS_MAX];
	};

	struct sw_found found[SW_FOUND_FRAMES]; /* by pc; kept from sample to sample */
	struct sw_hash chain[SW_CHAIN_CHUNKS];
	__u8 window[SW_STACK_WINDOW_BYTES];
	struct sw_body body; /* directly followed by its frames */
	struct sw_frame frames[SW_CHUNK_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* possible CPUs * SW_SLOTS_PER_CPU */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sw_slot);
} slots SEC(".maps");

/*
 * Scratch memory for frames of runtimes, of one CPU. It belongs to the CPU's first slot. The others are for samples
 * taken while a program takes one: too few to have memory for this in each.
 */
struct sw_vm_scratch {
	/* By address; kept from sample to sample. */
	struct sw_vm_code codes[SW_VM_CODES];
	struct sw_vm_link links[SW_VM_LINKS];
	struct sw_cpython_scratch cpython;
	struct sw_hotspot_scratch hotspot;
	struct sw_v8_scratch v8;
	__u8 window[SW_VM_WINDOW_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* possible CPUs; 1 if these frames aren't walked */
	__type(key, __u32);
	__type(value, struct sw_vm_scratch);
} vm_scratches SEC(".maps");

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

/* One for all CPUs: only a few samples need it, when programs start. */
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

/* The receiver adds a chunk when it needs one, within its budget. */
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
	__uint(map_flags, BPF_F_MMAPABLE); /* for alignment: a set is a cache line */
	__type(key, __u32);
	__type(value, struct sw_known_set);
} known_stacks SEC(".maps");

/*
 * The thread groups that are in scope, or those that are excluded, with the start time of their leader, to which
 * SW_LISTED_FROM_EXEC may be added. Written by the receiver, and by the hooks of fork and exec.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before load; 1 if all tasks are in scope */
	__type(key, __u32);
	__type(value, __u64);
} listed SEC(".maps");

/*
 * The ids, in the receiver's PID namespace, of listed processes that have begun to exit, by thread group id. The kernel
 * detaches these ids from a process before it frees it. At most as many as there are in `listed`.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* as `listed` in a PID namespace; 1 elsewhere */
	__type(key, __u32);
	__type(value, __u32);
} exiting SEC(".maps");

/* Whether a process is listed when it executes a program of `listed_programs`. Set before load. */
const volatile bool lists_programs;

/* The programs that bring every process that executes them into scope. Written by the receiver. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load; 1 unless lists_programs */
	__type(key, struct sw_program);
	__type(value, __u32);
} listed_programs SEC(".maps");

/* The program that each process executed last, for the receiver to list it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* likewise */
	__type(key, __u32);
	__type(value, struct sw_program);
} executed_programs SEC(".maps");

/* Whether processes are missing from `listed`; the only variable in .bss. */
struct sw_scope_gaps scope_gaps;

/* The containers that the receiver knows, by the ids of their cgroups. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load; 1 where there is no pod */
	__type(key, __u64);
	__type(value, __u32);
} containers SEC(".maps");

/* Threads that have left a CPU, by their id in the initial PID namespace. An entry ends with its thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before load; 1 if off-CPU time isn't sampled */
	__type(key, __u32);
	__type(value, struct sw_wait);
} waits SEC(".maps");

/* Where list_waits prepares its output. One thread of the receiver runs it. */
struct sw_wait_list_scratch {
	struct sw_found_wait found;
	struct sw_wait_end progress;
	__u64 registers[SW_REGISTERS + 8]; /* as the kernel saves them */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sw_wait_list_scratch);
} wait_list_scratch SEC(".maps");

/* Where probes are: see sw_probe_site. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* SW_PROBE_SITES_MAX + SW_TRACEPOINTS_MAX; 1 if there are no probes */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sw_probe_site);
} probe_sites SEC(".maps");

/* The program that continues a walk, if walks use tail calls. One map for each type of program. */
struct sw_walks {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};

struct sw_walks cpu_walks SEC(".maps");
struct sw_walks counter_walks SEC(".maps");
struct sw_walks off_cpu_walks SEC(".maps");
struct sw_walks switch_walks SEC(".maps");
struct sw_walks user_probe_walks SEC(".maps");

/* The same of tracepoints, each of which has its own programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SW_TRACEPOINTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} tracepoint_walks SEC(".maps");

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

/* The scratch memory for runtimes that belongs to a slot; null if none does. */
static __always_inline struct sw_vm_scratch *vm_scratch(__u32 slot)
{
	__u32 cpu = slot / SW_SLOTS_PER_CPU;

	return slot % SW_SLOTS_PER_CPU ? 0 : bpf_map_lookup_elem(&vm_scratches, &cpu);
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
 * A pointer to a T at an offset of a chunk. The mask keeps any offset within the chunk and on a multiple of `align`, which
 * must be a power of two no smaller than T.
 */
#define sw_at(T, chunk, offset, align) ((T *)((chunk) + ((offset) & (SW_CHUNK_BYTES - (align)))))

#endif
