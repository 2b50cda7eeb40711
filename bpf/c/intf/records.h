/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Records in the ring buffers. */
#ifndef SIDEWINDER_INTF_RECORDS_H
#define SIDEWINDER_INTF_RECORDS_H

#include "../arch.h"
#include <linux/types.h>

/* 128 bits over all frames of a stack and its outcome, keyed by a secret of this run. */
struct sw_hash {
	__u64 lo;
	__u64 hi;
};

enum sw_record_type {
	SW_RECORD_SAMPLE = 1,
	SW_RECORD_STACK = 2, /* body: sw_frame[count], leaf first */
	SW_RECORD_CHAIN = 3, /* body: sw_hash[count], the chunks of a stack, leaf end first */
	SW_RECORD_SNAPSHOT = 4, /* sw_snapshot: the data needed to walk a sample's stack again, later */
	SW_RECORD_NEWCOMER = 5, /* sw_newcomer: a process runs in a container that has no events */
	SW_RECORD_OBJECT = 6, /* sw_object: a function of a runtime, whose process may soon be gone */
	SW_RECORD_WAIT_END = 7, /* sw_wait_end: how long the wait of an off-CPU sample was */
	/* These two are the output of list_waits, not in rings. */
	SW_RECORD_WAIT_PROGRESS = 8, /* sw_wait_end: how long a sampled wait is so far */
	SW_RECORD_WAIT_FOUND = 9, /* sw_found_wait: a wait that has no sample */
};

enum sw_sample_kind {
	SW_SAMPLE_CPU = 1, /* value: 1 interrupt of the CPU clock */
	SW_SAMPLE_OFF_CPU = 2, /* a thread begins to wait. value: the probability of this sample, of SW_CERTAIN */
	SW_SAMPLE_WAKER = 3, /* a thread ends the sampled wait of another one in a futex. Value: 1 wait */
	SW_SAMPLE_COUNTER = 4, /* and the next SW_COUNTERS_MAX - 1: one for each counter. Value: counts, the period of the event */
	SW_SAMPLE_USER_PROBE = 8, /* and the next SW_USER_PROBES_MAX - 1, likewise. Value: hits; or a value of the hit, times hits */
#ifdef SW_TEST_PROGRAMS
	SW_SAMPLE_PROBE = 255, /* value: 1 run of a test program */
#endif
};

#define SW_SAMPLE_KINDS 16 /* length of arrays by sw_sample_kind, without the kinds of tests; a power of two */
#define SW_COUNTERS_MAX 4 /* a power of two */
_Static_assert(SW_SAMPLE_COUNTER + SW_COUNTERS_MAX <= SW_SAMPLE_USER_PROBE, "each counter needs a place");
#define SW_USER_PROBES_MAX 8 /* a power of two */
_Static_assert(SW_SAMPLE_USER_PROBE + SW_USER_PROBES_MAX <= SW_SAMPLE_KINDS, "each probe needs a place");

enum sw_sample_flag {
	SW_SAMPLE_IN_KERNEL = 1, /* the interrupt found the CPU in kernel mode */
	SW_SAMPLE_HAS_SNAPSHOT = 2, /* with the same tid and time_ns, submitted before */
	SW_SAMPLE_HAS_CONTEXT = 4, /* a sw_context follows, cut after its last attribute */
	SW_SAMPLE_HAS_LABELS = 8, /* sw_label[SW_LABELS_MAX] follows */
};

/* Of a sample of a wait, in its flags: the state of the thread, and what it waits for. */
#define SW_SAMPLE_WAIT_STATE_SHIFT 8
#define SW_SAMPLE_WAIT_CAUSE_SHIFT 16

enum sw_wait_state {
	SW_WAIT_NONE = 0, /* not a sample of a wait */
	SW_WAIT_SLEEPING, /* a signal ends it */
	SW_WAIT_UNINTERRUPTIBLE, /* mostly for a disk, or for memory */
	SW_WAIT_STOPPED, /* by a signal or a debugger */
	SW_WAIT_RUNNABLE, /* it does not wait: it has left its CPU to another thread */
};

/* What a thread waits for, by the system call that it is in. */
enum sw_wait_cause {
	SW_CAUSE_OTHER_CALL = 0,
	SW_CAUSE_NO_CALL, /* outside of system calls: mostly for a page that its code has touched */
	SW_CAUSE_SLEEP,
	SW_CAUSE_FUTEX,
	SW_CAUSE_POLL, /* poll, select and epoll */
	SW_CAUSE_READ,
	SW_CAUSE_WRITE,
	SW_CAUSE_RECEIVE,
	SW_CAUSE_SEND,
	SW_CAUSE_CONNECT,
	SW_CAUSE_ACCEPT,
	SW_CAUSE_OPEN,
	SW_CAUSE_SYNC, /* of a file with its disk */
	SW_CAUSE_FILE_LOCK,
	SW_CAUSE_CHILD,
	SW_CAUSE_SIGNAL,
	SW_CAUSE_IPC, /* semaphores and message queues of System V */
	SW_CAUSE_ASYNC_IO, /* io_uring and AIO */
};

#define SW_COMM_BYTES 16

#define SW_CERTAIN (1ull << 32) /* the probability 1 */

/* The end of a wait, with the time off the CPU since its sample; or a wait in progress, likewise. */
struct sw_wait_end {
	__u16 type;
	__u8 futex_use; /* sw_futex_use */
	__u8 is_woken; /* of one in progress: it is over, and the thread's account of runnable time is not complete */
	__u32 tid; /* of the sample */
	__u64 lock; /* as in sw_wait */
	__u64 start_ns; /* time_ns of the sample, or of the found wait */
	__u64 time_ns;
	__u64 off_cpu_ns;
	__u64 runnable_ns; /* waiting for a CPU */
	__u64 walk_ns; /* what it took to take the sample, as a part of `off_cpu_ns`: other waits have no such part */
	__u64 undrawn_ns; /* how long the thread's waits were that were not drawn, since the last such record; 0: in progress */
	__u64 waker_ns; /* of the sample of the thread that ended the wait, with `waker_tid`: its time; 0: there is none */
	__u32 waker_tid;
	__u32 reserved;
};

#define SW_FOUND_KERNEL_FRAMES_MAX 64

/* A thread that waits without a sample: since before the start, or since a switch that was not drawn. */
struct sw_found_wait {
	__u16 type;
	__u16 kernel_frames;
	__u32 flags; /* as in sw_sample */
	__u32 pid; /* in the receiver's PID namespace, like `tid` */
	__u32 tid;
	__u32 cpu;
	__u32 reserved;
	__u64 time_ns; /* when it was found: its sample's time */
	__u64 timeslices; /* how often the thread was given a CPU: another number later means that it has run meanwhile */
	__u64 registers[SW_REGISTERS]; /* of user mode; the stack pointer is 0 if they are not known */
	char comm[SW_COMM_BYTES];
	__u64 kernel[SW_FOUND_KERNEL_FRAMES_MAX]; /* addresses, leaf first */
};

/* One interrupt. Its stack was sent in this epoch, unless that record was lost or is late. A sw_context may follow. */
struct sw_sample {
	__u16 type;
	__u8 kind;
	__u8 outcome;
	__u32 epoch;
	__u64 time_ns;
	struct sw_hash stack;
	__u32 pid; /* thread group, in the receiver's PID namespace */
	__u32 tid;
	__u32 cpu;
	__u32 flags;
	__u64 value;
	char comm[SW_COMM_BYTES];
};

/*
 * The context that a thread publishes of its current span, copied unchanged: a record of OTEP 4947, "Thread Context". Its
 * size is the maximum that the OTEP recommends.
 */
#define SW_CONTEXT_BYTES 640
#define SW_CONTEXT_HEAD_BYTES 28

struct sw_context {
	__u8 trace_id[16];
	__u8 span_id[8];
	__u8 valid; /* 1, unless it is being changed */
	__u8 trace_flags;
	__u16 attributes_bytes;
	__u8 attributes[SW_CONTEXT_BYTES - SW_CONTEXT_HEAD_BYTES]; /* each: key index, length of the text in bytes, the text */
};

/* A label of a goroutine (pprof) or of a thread (custom-labels). */
#define SW_LABELS_MAX 6
#define SW_LABEL_KEY_BYTES 30
#define SW_LABEL_VALUE_BYTES 64

struct sw_label {
	__u8 key_bytes; /* 0: none, or too long */
	__u8 value_bytes;
	char key[SW_LABEL_KEY_BYTES];
	char value[SW_LABEL_VALUE_BYTES];
};

/* The head of SW_RECORD_STACK and SW_RECORD_CHAIN: a stack, or a chunk of one. */
struct sw_body {
	__u16 type;
	__u16 count;
	__u32 epoch;
	struct sw_hash hash;
};

/*
 * The user registers and the top of the stack, for a walk that was missing mappings or tables which the receiver will have
 * soon: it then walks the rest. A process may exit before the receiver sees it, and a file is first seen when it runs.
 */
#define SW_SNAPSHOT_BYTES 8192 /* of the stack, after the page in which it begins */
#define SW_SNAPSHOT_LARGE_BYTES 32768 /* if the stack may be larger, while the ring of snapshots is less than half full */
#define SW_SNAPSHOT_HUGE_BYTES 131072 /* if it may be larger still, while the ring is less than a quarter full */
#define SW_SNAPSHOT_BASE_BYTES 65536 /* around the base of the stack, in a separate record, if that is further away */
#define SW_SNAPSHOT_WINDOW_SHIFT 27 /* 134 ms */
#define SW_SNAPSHOTS_PER_WINDOW 256 /* of one CPU */

struct sw_snapshot {
	__u16 type;
	__u16 reserved;
	__u32 tid;
	__u64 time_ns;
	__u64 registers[SW_REGISTERS];
	__u64 start; /* address of the first byte of `stack` */
	__u64 bytes; /* up to the last page that could be read */
	__u8 stack[];
};

/*
 * A code object of CPython, copied for its name. A young process may end before the receiver reads its memory, and
 * imports modules, whose code is freed once it was executed: with large packages for some seconds. So the functions in its
 * stacks are sent; each once in an epoch, ahead of the sample.
 */
#define SW_YOUNG_NS 10000000000ull
#define SW_OBJECTS_PER_SAMPLE 16 /* others are sent with later samples */
#define SW_OBJECT_TEXT_BYTES 256 /* of its name, and of its path */
#define SW_OBJECT_LINES_BYTES 480
#define SW_CPYTHON_HEAD_BYTES 32 /* the largest `PyObject` */
#define SW_CPYTHON_IDENTITY_BYTES 96 /* `sw_cpython.identity_bytes` is at most this */

struct sw_object {
	__u16 type;
	/* How much was read of each object that the code object points to. */
	__u16 name_bytes;
	__u16 path_bytes;
	__u16 lines_bytes;
	__u32 pid;
	__u32 cookie;
	__u64 time_ns; /* of the sample */
	__u64 address;
	__u8 head[SW_CPYTHON_HEAD_BYTES]; /* its start, with its count of references; zeros if it could not be read */
	__u8 identity[SW_CPYTHON_IDENTITY_BYTES]; /* the first `sw_cpython.identity_bytes` are valid */
	__u8 name[SW_OBJECT_TEXT_BYTES];
	__u8 path[SW_OBJECT_TEXT_BYTES];
	__u8 lines[SW_OBJECT_LINES_BYTES];
};

#endif
