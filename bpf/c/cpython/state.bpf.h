/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What walks of CPython's frames keep, in the slot of a sample and in the scratch memory of a CPU. */
#ifndef SIDEWINDER_CPYTHON_STATE_BPF_H
#define SIDEWINDER_CPYTHON_STATE_BPF_H

#include "../intf.h"

/* Whether the thread's state was read in this walk. */
enum sw_cpython_state {
	SW_CPYTHON_UNREAD = 0,
	SW_CPYTHON_READ,
	SW_CPYTHON_LOST, /* it could not be; plus the sw_vm_missing that says why */
};

/* How much of the current activation's group is in the stack. */
enum sw_cpython_group_progress {
	SW_CPYTHON_GROUP_OPEN = 0, /* more of its frames may follow */
	SW_CPYTHON_GROUP_ENDED, /* all of it; there is something to decide (`settle_group`) */
	SW_CPYTHON_GROUP_SETTLED, /* all of it */
};

/* What the walk goes back to if the frames that seemed to belong to the innermost activation belong to the next one. */
struct sw_cpython_mark {
	__u64 frame; /* address of the innermost frame */
	struct sw_hash hash;
	__u32 count;
	__u32 chunks;
	__u32 depth;
	__u64 frames; /* counters of the slot */
	__u64 unreadable;
};

/* How far below the end of an activation's native frame these are, in a process. */
struct sw_cpython_distances {
	sw_location ranges; /* of the process */
	__u64 anchor;
	__u64 cframe; /* 0: not known */
};

/* The walk of one sample. */
struct sw_cpython_walk {
	__u32 state; /* sw_cpython_state */
	__u32 group_progress; /* sw_cpython_group_progress: of the current activation */
	__u32 group_frames; /* the number of them so far */
	__u32 objects; /* sent with this sample */
	__u32 is_innermost; /* the current activation is the innermost one */
	__u32 has_no_group; /* the next activation has no frames, or they are in the stack already */
	__u32 is_lost; /* the frames of the current activation don't lead to the one after them */
	__u32 frames_met; /* so far, of all activations */
	__u32 is_alone; /* frames are taken without the native frames of their activations */
	__u64 frame; /* address of the next frame; 0: there is none */
	__u64 frame_before; /* address of one of the frames so far, by which cycles are found */
	__u64 anchor; /* address of what the activation to which the last group belongs keeps in its native frame; 0: not known */
	__u64 cframe; /* address of the innermost activation's `cframe`; 0: there is none */
	struct sw_cpython_mark mark;
	struct sw_cpython_distances distances; /* kept from sample to sample */
};

/*
 * Where a thread has the address of its state. To find it takes reads of the thread's vector and, afterwards, of the stack
 * once more, for which the window was used. It doesn't move while the thread lives.
 */
struct sw_cpython_thread {
	__u64 addresses[2]; /* of the variables in sw_runtime; 0: not known */
	sw_location ranges; /* of the process */
	__u32 tid;
	__u32 clock; /* when this was found, as in sw_found */
};

#define SW_CPYTHON_THREADS 4 /* a power of two */
#define SW_CPYTHON_PATHS_BITS 3
#define SW_CPYTHON_PATHS (1u << SW_CPYTHON_PATHS_BITS)
#define SW_CPYTHON_IDENTITY_WORDS 16 /* a power of two */
#define SW_CPYTHON_TEXT_WORDS 32 /* likewise */
#define SW_CPYTHON_TEXT_BYTES (SW_CPYTHON_TEXT_WORDS * sizeof(__u64))
_Static_assert(SW_CPYTHON_IDENTITY_BYTES <= SW_CPYTHON_IDENTITY_WORDS * sizeof(__u64), "an identity fits");

/* The hash of a path, and the sample for which it was read. */
struct sw_cpython_path {
	__u64 address; /* 0: none */
	__u32 sample; /* the low half of its time */
	__u32 hash;
};

struct sw_cpython_scratch {
	/* Kept from sample to sample: paths by address, threads by id. */
	struct sw_cpython_path paths[SW_CPYTHON_PATHS];
	struct sw_cpython_thread threads[SW_CPYTHON_THREADS];
	__u64 identity[SW_CPYTHON_IDENTITY_WORDS]; /* of the code object that was read last */
	__u64 text[SW_CPYTHON_TEXT_WORDS]; /* the string that was read last */
};

#endif
