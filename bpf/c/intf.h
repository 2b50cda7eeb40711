/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Everything that the eBPF programs and the receiver share: records, tables, settings and outcomes.
 *
 * The Rust view is generated from this file, so each layout and constant has one definition. Sizes and
 * offsets are in bytes and times in nanoseconds of CLOCK_MONOTONIC unless a name says otherwise.
 */
#ifndef SIDEWINDER_INTF_H
#define SIDEWINDER_INTF_H

#include "arch.h"
#include <linux/types.h>

/* ---- Outcomes ------------------------------------------------------------------------------------------ */

/*
 * How an interrupt ended. Each interrupt for which a program ran ends in exactly one of these. Interrupts without
 * a program run are counted as `missed`: the difference to the events' own counts.
 *
 * X(name, is_loss, summary, meaning). The receiver derives metric labels and the `[truncated: ...]` markers of
 * OTLP from the name; users see the summary (a few words) and the meaning (a sentence). Append only: the
 * value is part of the stack hash and of records.
 */
#define SW_OUTCOMES(X)                                                                                        \
	X(COMPLETE, 0, "complete stack", "the stack reaches the start of its program, thread or fibre")       \
	X(IDLE, 0, "idle CPU", "the CPU was idle")                                                            \
	X(OUT_OF_SCOPE, 0, "out of scope", "the task is outside the configured scope")                        \
	X(KERNEL_THREAD, 0, "kernel thread", "a kernel thread or worker: it has no user stack")               \
	X(EXEC, 0, "during exec", "inside execve, where the registers belong to the program that was replaced") \
	X(EXITING, 0, "exiting task", "the task has already released its memory on its way out")              \
	X(FRAME_LIMIT, 1, "frame limit reached", "the stack has more frames than the configured limit")       \
	X(UNKNOWN_PROCESS, 1, "process not known yet", "the mappings of this process are not known yet")      \
	X(NO_MAPPING, 1, "address outside any mapping", "a return address lies in no executable mapping")     \
	X(NO_TABLE, 1, "unwind table not loaded", "the unwind table of this file is not loaded")              \
	X(NO_RULE, 1, "no unwind information", "the file has no unwind information for this address, and no frame pointer leads on") \
	X(UNSUPPORTED_RULE, 1, "unsupported unwind rule", "the file's unwind rule for this address is of a kind that the tables can't hold") \
	X(NO_FRAME_POINTER, 1, "no frame pointer", "unwinding by frame pointers is configured, and this code does not keep them") \
	X(REGISTER_LOST, 1, "register value unknown", "the unwind rule needs a register whose value is known in the interrupted function only") \
	X(STACK_NOT_RISING, 1, "stack runs in a loop", "the stack leads to lower addresses again and again, as if it were a loop") \
	X(BAD_ADDRESS, 1, "invalid stack address", "the stack leads to an address that is not mapped")        \
	X(PAGE_ABSENT, 1, "stack page not in memory", "a page of the stack is not in memory, and an interrupt can't wait for it") \
	X(FOREIGN_ABI, 1, "32-bit task", "a 32-bit task")                                                     \
	X(NO_REGISTERS, 1, "user registers unavailable", "this kernel does not provide the user-mode registers") \
	X(BUSY, 1, "too many nested interrupts", "all scratch slots of this CPU were in use by the programs that it interrupted") \
	X(RING_FULL, 1, "ring buffer full", "the receiver did not drain the ring buffer in time")             \
	X(SNAPSHOT_END, 1, "copied stack too short", "the stack is longer than the part of it that was copied for a later walk") \
	X(STALE_MAPPING, 1, "mapping just changed", "the process had just mapped another file where the stack leads") \
	X(YOUNG_PROCESS, 0, "young process", "the process is younger than the configured age") \
	X(STILL_RUNNABLE, 0, "still runnable", "the thread gave up its CPU to another, without waiting for anything") \
	X(NOT_DRAWN, 0, "not drawn", "one of the context switches that the configured threshold leaves out") \
	X(TOO_MANY_THREADS, 1, "too many threads", "the list of the threads that may be waiting was full") \
	X(STACK_UNREADABLE, 1, "unreadable stack", "the stack of a thread that was found waiting could not be read, or the thread went on meanwhile") \
	X(NO_LOCK, 0, "not for a lock", "the thread waits, but not in a futex, and only waits for locks are sampled") \
	X(THINNED, 0, "thinned", "a hit of a probe whose next sampled hit counts for it, too")

enum sw_outcome {
#define SW_OUTCOME_VALUE(name, is_loss, summary, meaning) SW_OUTCOME_##name,
	SW_OUTCOMES(SW_OUTCOME_VALUE)
#undef SW_OUTCOME_VALUE
		SW_OUTCOME_COUNT
};

#define SW_OUTCOME_PLACES 32 /* length of arrays by outcome; a power of two */
_Static_assert(SW_OUTCOME_COUNT <= SW_OUTCOME_PLACES, "each outcome needs a place");

/* ---- Frames -------------------------------------------------------------------------------------------- */

enum sw_frame_kind {
	SW_FRAME_NATIVE = 1, /* id: file id; address: offset in that file */
	SW_FRAME_KERNEL = 2, /* id: 0; address: in the kernel's address space */
	SW_FRAME_ANONYMOUS = 3, /* id: 0; address: in the process's address space, backed by no file */
	/* A function that CPython interprets. id: address of its code object; address: instruction << 32 | cookie of the code */
	SW_FRAME_CPYTHON = 4,
	/*
	 * A function of Java, or other code of HotSpot's. id: address of the Method if it is interpreted, otherwise of the blob of
	 * machine code; address: offset of the bytecode or of the pc << 32 | cookie
	 */
	SW_FRAME_HOTSPOT = 5,
};

enum sw_frame_flag {
	/* The address is a return address; otherwise it is that of the next instruction to execute. */
	SW_FRAME_RETURN_ADDRESS = 1,
	/* Found by guessing: only sanity checks support it, no unwind rule or proven frame pointer. */
	SW_FRAME_UNPROVEN = 2,
	/* Of a native frame: it is an activation of a virtual machine's loop, whose frames are those before it. */
	SW_FRAME_VM_LOOP = 4,
	/* In the place of frames of a virtual machine that could not be read. address: sw_vm_missing */
	SW_FRAME_MISSING = 8,
};

/* One frame of any kind, native, kernel or interpreted. */
struct sw_frame {
	__u64 head; /* bits 0-7 kind, 8-15 flags, 16-63 file or runtime id */
	__u64 address;
};

/* Why frames of a virtual machine are missing. Append only, as outcomes. */
enum sw_vm_missing {
	SW_VM_NO_STATE = 0, /* the thread has no state of the virtual machine, or it could not be read */
	SW_VM_OTHER_THREAD, /* the state is that of another thread */
	SW_VM_UNREADABLE, /* a frame, or the function in it, could not be read */
	SW_VM_NO_FRAMES, /* there are more activations of the loop than groups of frames */
	SW_VM_TOO_EARLY, /* the receiver did not know the virtual machine yet; the programs don't use this */
	SW_VM_BUSY, /* the sample interrupted a program that was taking another one */
	SW_VM_MISSING_COUNT
};

#define SW_VM_MISSING_PLACES 8 /* length of arrays by sw_vm_missing; a power of two */

#define SW_FRAME_FLAGS_SHIFT 8
#define SW_FRAME_ID_SHIFT 16
#define SW_VM_PLACE_SHIFT 32 /* in the address of a frame of a virtual machine */

/* ---- Walks --------------------------------------------------------------------------------------------- */

/* The number of registers that a rule can encode. No architecture needs more. */
#define SW_RULE_REGISTERS 32
_Static_assert(SW_REGISTERS <= SW_RULE_REGISTERS + 1, "all but the pc have a number in rules");

/*
 * A caller's frame is above its callee's, unless the code switched stacks: signal handlers, Go's system stack, coroutines.
 * A stack has few of these switches. The limit keeps walks of stack memory that forms a loop short.
 */
#define SW_STACK_SWITCHES_MAX 8

/* The largest frame that is accepted from a frame pointer without an unwind rule. */
#define SW_UNPROVEN_FRAME_BYTES_MAX (1u << 20)

/* Functions are shorter than this: a call target that is lower than an instruction by more belongs to another function. */
#define SW_FUNCTION_BYTES_MAX (1u << 18)
/* An arbitrary word of a stack counts as a return address if it follows a call of a function that starts this near. */
#define SW_NEAR_BYTES_MAX (1u << 14)

/* How many words above the stack pointer of generated code are searched for a return address. */
#define SW_SEARCH_WORDS 128

/* ---- Records in the ring buffers ----------------------------------------------------------------------- */

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
	SW_RECORD_OBJECT = 6, /* sw_object: a function of a virtual machine, whose process may soon be gone */
	SW_RECORD_WAIT_END = 7, /* sw_wait_end: how long the wait of an off-CPU sample was */
	/* These two are the output of list_waits, not in rings. */
	SW_RECORD_WAIT_PROGRESS = 8, /* sw_wait_end: how long a sampled wait is so far */
	SW_RECORD_WAIT_FOUND = 9, /* sw_found_wait: a wait that has no sample */
};

enum sw_sample_kind {
	SW_SAMPLE_CPU = 1, /* value: 1 interrupt of the CPU clock */
	SW_SAMPLE_OFF_CPU = 2, /* a thread begins to wait. value: the probability of this sample, of SW_CERTAIN */
	SW_SAMPLE_COUNTER = 4, /* and the next SW_COUNTERS_MAX - 1: one for each counter. Value: counts, the period of the event */
	SW_SAMPLE_USER_PROBE = 8, /* and the next SW_USER_PROBES_MAX - 1, likewise. Value: hits; or a value of the hit, times hits */
#ifdef SW_TEST_PROGRAMS
	SW_SAMPLE_PROBE = 255, /* value: 1 run of a test program */
#endif
};

#define SW_SAMPLE_KINDS 16 /* length of arrays by sw_sample_kind, without those of tests; a power of two */
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

/* ---- Unwind tables ------------------------------------------------------------------------------------- */

/*
 * Tables and mappings live in an arena of equal chunks, each one value of an array that the receiver maps
 * into its own memory, and are published as in RCU: written to a new block, published by one word, and freed
 * only after each slot has finished its current walk. Then the clock advances, since slots cache what walks found.
 */
#define SW_CHUNK_BYTES (2u << 20)
#define SW_CHUNKS_MAX 256

/* The location of a block of the arena: chunk << 32 | byte offset. 0: absent (offset 0 is never allocated). */
typedef __u64 sw_location;

/*
 * A segment is the unwind table of one page-aligned range of one file. In the arena:
 *
 *   sw_segment_header
 *   __u16   index[buckets + 1]   the first row of each bucket
 *   sw_rule rules[]              16-byte aligned
 *   sw_run  runs[]
 *   __u16   rows[]               (offset in bucket) << SW_RULE_BITS | index
 *
 * A bucket covers SW_BUCKET_BYTES of text. A row holds from its offset to the next row's, also in later buckets;
 * row 0 is at the segment's start. Its index is that of a rule or, from `first_run` on, of a run.
 */
#define SW_BUCKET_SHIFT 7
#define SW_BUCKET_BYTES (1u << SW_BUCKET_SHIFT)
#define SW_RULE_BITS 9
#define SW_RULES_MAX (1u << SW_RULE_BITS) /* and runs */
#define SW_SEGMENT_ROWS_MAX (1u << 16)

/*
 * A run is a sequence of closely spaced rows, as in prologues and epilogues, where each push or pop needs a row. There are
 * few distinct sequences, each of which occurs often, so one row stands for a whole sequence. Entries have the format of
 * rows, with offsets from the run's start; the first is 0. Unused entries repeat the last.
 */
#define SW_RUN_ROWS 8

struct sw_run {
	__u16 rows[SW_RUN_ROWS];
};

/* Rules with the same index in every segment. */
enum sw_fixed_rule {
	SW_RULE_NONE = 0, /* no information */
	SW_RULE_FRAME_POINTER = 1, /* CFA = frame pointer + 16, caller's frame pointer at CFA-16, return address at CFA-8 */
	SW_RULE_FIRST_FREE = 2,
	/* Rules of HotSpot's code. No table has these numbers. */
	SW_RULE_HOTSPOT = SW_RULES_MAX, /* the rule and the frame depend on the code address only */
	SW_RULE_HOTSPOT_DEPENDS, /* they depend on the stack too */
};

struct sw_segment_header {
	__u64 file_offset; /* of the first byte covered, page-aligned */
	__u32 text_bytes;
	__u32 rules; /* offsets from the header */
	__u32 rows;
	__u32 first_run; /* the index of the first run */
};

enum sw_cfa_base {
	SW_CFA_NONE = 0, /* no rule; cfa_offset holds the sw_outcome that says why */
	SW_CFA_REGISTER, /* register + offset */
	/* stack pointer + 8, and 8 more where the pc is `offset` or more bytes into its SW_LINKAGE_ENTRY_BYTES */
	SW_CFA_PLT,
	SW_CFA_DEREF, /* the word at register + offset, plus 8 * addend_by_8 */
	SW_CFA_DEREF_INDEXED, /* the same, with the word 8 * ra_register higher; `ra` is SW_PLACE_CFA */
};

enum sw_place {
	SW_PLACE_SAME = 0, /* unchanged (not for a return address) */
	SW_PLACE_CFA, /* the word at CFA + offset */
	SW_PLACE_MEMORY, /* the word at register + offset */
	SW_PLACE_REGISTER, /* the register */
	SW_PLACE_UNDEFINED, /* of a return address: this is where stacks start */
};

enum sw_rule_flag {
	SW_RULE_SIGNAL_FRAME = 1, /* the caller was interrupted: its pc is exact, and it may be on another stack */
	SW_RULE_AFTER_CLONE = 2, /* if SW_REG_SYSCALL_RESULT is 0, this is a new thread at the start of its stack */
	/* These two say where the caller's SW_REG_CALLEE_SAVED is. Without either, it is lost. */
	SW_RULE_KEEPS_CALLEE_SAVED = 4, /* still in the register */
	SW_RULE_SAVES_CALLEE_SAVED = 8, /* 8 * (addend_by_8 + 1) below the CFA, which then has no addend */
};

/* How to find the caller of a frame. Registers are numbered as in DWARF. */
struct sw_rule {
	__s32 cfa_offset;
	__s32 fp_offset;
	__s32 ra_offset;
	__u8 cfa_base : 3; /* sw_cfa_base */
	__u8 cfa_register : 5;
	__u8 fp : 3; /* sw_place */
	__u8 fp_register : 5;
	__u8 ra : 3; /* sw_place */
	__u8 ra_register : 5;
	__u8 flags : 4;
	__u8 addend_by_8 : 4;
};

/* The ranges of processes refer to these by index; a segment whose table was evicted keeps its index. */
struct sw_segment {
	sw_location location;
	__u32 used; /* the CPU's `clock` when a walk last used it; 0: never */
	__u32 reserved;
};

/* ---- Processes ----------------------------------------------------------------------------------------- */

/*
 * Mappings and segments are measured in the architecture's smallest pages. If the kernel's pages are larger, they are
 * multiples of these.
 */
#define SW_PAGE_BYTES (1 << SW_PAGE_SHIFT)

/* One executable mapping, or the part of one that a segment covers. Sorted by start in the arena. */
struct sw_range {
	__u64 start;
	__u32 pages;
	__u32 file; /* file id; 0: backed by no file */
	__u32 file_page; /* offset of `start` in the file, in pages */
	__u32 segment; /* index of its sw_segment; 0: none */
};

/* How to find a thread's copy of a thread-local variable (ELF Handling For Thread-Local Storage). */
enum sw_tls_model {
	SW_TLS_STATIC = 1, /* at an offset from the thread pointer */
	/* at an offset in the block of its module, which is found through the thread's dynamic thread vector: */
	SW_TLS_GLIBC = 2, /* entries of 16 bytes, the length in the two words before them */
	SW_TLS_MUSL = 3, /* entries of 8 bytes, the length in the first word */
	/*
	 * Not a variable, but the path to the labels of the running goroutine: `offset` is that of the thread's g, and
	 * `module` holds the offset of `curg` in an m, divided by 8, and in the upper 8 bits that of `labels` in a g,
	 * likewise. Labels are a slice since Go 1.24.
	 */
	SW_TLS_GO_SLICE = 4,
	SW_TLS_GO_MAP = 5,
	/* at an offset from where a word of the thread points to; `module`, signed, is the word's offset from the thread pointer */
	SW_TLS_INDIRECT = 6,
	/* With any but those of goroutines: the variable points to a set of labels, not to a record (custom-labels, ABI 1). */
	SW_TLS_LABEL_SET = 8,
};

struct sw_tls_variable {
	__s32 offset;
	__u16 module;
	__u16 model;
};

#define SW_TLS_VARIABLES_MAX 4 /* of a process: several libraries may each have one of the same name */
#define SW_TLS_MODULE_MAX 126 /* vectors are read into the window */

/* ---- Virtual machines ---------------------------------------------------------------------------------- */

/* Where the frames of one activation of CPython's evaluation loop end. */
enum sw_cpython_groups {
	SW_CPYTHON_ONE_FRAME = 0, /* each activation has one frame (until 3.10) */
	SW_CPYTHON_LAST_IS_ENTRY = 1, /* the frame whose `is_entry` is set is the last (3.11) */
	/* a frame that the loop keeps on the C stack, and that isn't shown, follows the last (since 3.12) */
	SW_CPYTHON_ENDS_AT_SHIM = 2,
};

/* Since 3.12, frames with this owner or a higher one are on the C stack. */
#define SW_CPYTHON_OWNED_BY_C_STACK 3

enum sw_cpython_instruction {
	SW_CPYTHON_INDEX = 0, /* an `int`: offset in the code object's bytecode, in bytes (until 3.9) */
	SW_CPYTHON_INDEX_BY_2 = 1, /* likewise, in units of 2 bytes (3.10) */
	SW_CPYTHON_POINTER = 2, /* into the bytecode at the end of the code object */
};

/*
 * Where CPython keeps its frames: offsets of fields, in bytes. The first group is in a PyThreadState, the second in a frame,
 * the third in a code object.
 */
struct sw_cpython {
	__u16 thread_id; /* equals the thread pointer */
	__u16 cframe; /* 0: `current_frame` is in the state; otherwise in the structure that this points to (3.11, 3.12) */
	__u16 current_frame;

	__u16 previous;
	__u16 code;
	__u16 instruction;
	__u16 owner; /* one byte: what ends a group */
	__u16 frame_bytes; /* to read of a frame, for all of these */

	__u16 bytecode;
	__u16 identity; /* fields that don't change, and that tell apart code objects which have one address in turn */
	__u16 identity_bytes; /* a multiple of 8 */
	/* In the identity: pointers to the name, the path, and the table of lines. */
	__u16 name;
	__u16 path;
	__u16 lines;

	__u8 groups; /* sw_cpython_groups */
	__u8 instruction_form; /* sw_cpython_instruction */
	__u8 identity_has_texts; /* the texts of the name and the path belong to it, too (until 3.11) */
	__u8 reserved;
};

/* A part of HotSpot's code cache, over the addresses that it has reserved. */
struct sw_code_heap {
	__u64 start;
	__u64 bytes;
	/*
	 * The segment map: a byte for each segment of the heap. The first segment of a block has 0, and others how many segments
	 * to go back, towards it.
	 */
	__u64 segments;
};

#define SW_CODE_HEAPS 4

/* Where HotSpot keeps its code: addresses in the process, and offsets of fields, in bytes. */
struct sw_hotspot {
	struct sw_code_heap heaps[SW_CODE_HEAPS]; /* unused ones are empty */
	__u64 code_start; /* a range that contains all heaps */
	__u64 code_bytes;
	__u64 call_stub_return; /* where methods return to that native code has called */
	__u64 interpreter; /* the interpreter's code */
	__u32 interpreter_bytes;

	/* In a CodeBlob, which follows the header of its block. Sizes are 4 bytes, pointers 8. */
	__u16 name; /* pointer */
	__u16 size;
	__u16 frame_size; /* in words */
	__u16 frame_complete; /* offset in the code */
	__u16 code; /* where the code begins */

	/* In an nmethod, which is a CodeBlob. */
	__u16 method; /* pointer */
	__u16 compile_id;
	/* Two handlers to which deoptimized functions are returned to. */
	__u16 deopt_handlers[2];

	/* In a Method, and in the ConstMethod to which it points. */
	__u16 const_method;
	__u16 bytecodes;

	__u8 segment_shift;
	__u8 block_header_bytes;
	__u8 has_offsets; /* `code` and the handlers are offsets from the blob of 4 bytes (since 23), not pointers */
	__u8 frame_complete_is_short; /* 2 bytes (since 24) */
	__u16 reserved;
};

#define SW_BLOB_BYTES 384 /* of a blob are read, at most: all fields are in these */
#define SW_SEGMENT_HOPS 64 /* a block of a MiB takes about as many */

#define SW_CPYTHON_STATE_BYTES 256 /* of a PyThreadState are read */
#define SW_CPYTHON_FRAME_BYTES 128 /* `frame_bytes` is at most this */
#define SW_COOKIE_MULTIPLIER 0x9E3779B97F4A7C15ull

/* Until 3.11: fields of a string (`PyASCIIObject`), and where its text is if it is compact. */
#define SW_CPYTHON_TEXT_LENGTH 16 /* in characters */
#define SW_CPYTHON_TEXT_STATE 32
#define SW_CPYTHON_TEXT_ASCII 48
#define SW_CPYTHON_TEXT_COMPACT 72 /* of any text that isn't ASCII */

/* A part of a file, in bytes. */
struct sw_file_range {
	__u32 start;
	__u32 bytes;
};

#define SW_VM_LOOP_RANGES 4
#define SW_VM_UNLINKED_RANGES 4

/* A virtual machine that a process runs. */
struct sw_runtime {
	__u32 file; /* that contains its loop */
	__u32 kind; /* sw_frame_kind of its frames */
	struct sw_file_range loop[SW_VM_LOOP_RANGES]; /* the code of the loop */
	/* Of these, where an activation's frame isn't the thread's current one: not yet (until 3.12), or no more (until 3.10). */
	struct sw_file_range unlinked[SW_VM_UNLINKED_RANGES];
	/* Where a thread has the address of its state; if the first is null, the second counts. A model of 0 is none. */
	struct sw_tls_variable state[2];
	/* Of these two, one is used, by `kind`. */
	struct sw_cpython cpython;
	struct sw_hotspot hotspot;
};

/*
 * The ranges of a process: this header, followed by the variables in which its threads publish their contexts, its virtual
 * machines, and then the ranges.
 */
struct sw_ranges {
	__u32 count;
	__u16 variables;
	__u16 runtimes; /* 0 or 1 */
};

/* An entry of an open-addressed table keyed by pid: a process is within SW_PROCESS_PROBES entries of its hash. */
struct sw_process {
	__u32 pid; /* 0: free */
	__u32 reserved;
	sw_location ranges;
	__u64 known_ns; /* the receiver has seen all changes up to here */
	__u64 exec_ns; /* written by the kernel side: when it last ran exec */
};

#define SW_PROCESS_PROBES 16
#define SW_HASH_MULTIPLIER 0x9E3779B1u /* 2^32 divided by the golden ratio: spreads nearby keys */
#define SW_PROCESS_PLACE_SHIFT 7 /* index = (pid * SW_HASH_MULTIPLIER) >> SW_PROCESS_PLACE_SHIFT, modulo the table */

/* ---- Scope --------------------------------------------------------------------------------------------- */

/*
 * Which tasks are in scope, among those in the receiver's PID namespace and, if it runs in a pod, in its pod. The map
 * `listed` also covers the descendants of its processes.
 */
enum sw_scope {
	SW_SCOPE_ALL = 0,
	SW_SCOPE_LISTED = 1,
	SW_SCOPE_UNLISTED = 2,
};

/*
 * Whether `listed` had no room for a process that should be in it. Each flag is set once and never cleared, so writes need
 * no ordering. If listed processes are the ones out of scope, processes that may be unlisted for this reason, and
 * descendants of such processes, are out of scope too.
 */
struct sw_scope_gaps {
	__u32 young; /* for one that started after the programs were loaded */
	__u32 any; /* for an older one */
};

#define SW_CGROUP_LEVELS 32 /* more than any runtime nests */
/* A name of 511 bytes (KSYM_NAME_LEN), with the suffix that follows it. */
#define SW_KERNEL_SYMBOL_BYTES 640

/* A process ran exec in a container without events: the receiver must open events for it. */
struct sw_newcomer {
	__u16 type;
	__u16 reserved;
	__u32 pid;
	__u64 container; /* id of its cgroup */
};

/* Start times in /proc are truncated to clock ticks of this length. */
#define SW_START_TIME_TICK_NS 10000000ull

/* ---- Memory of other processes --------------------------------------------------------------------------- */

#define SW_READS_MAX 16
#define SW_READ_BYTES_MAX 4096
/* One for each thread that reads, since any of them may wait for memory without limit. */
#define SW_READ_BATCHES 4
/* Mappings of one process that may be a context. A process has one, unless it is malicious. */
#define SW_CONTEXTS_MAX 4

struct sw_read {
	__u64 address;
	__u32 bytes; /* at most SW_READ_BYTES_MAX */
	__s32 error; /* 0, or a negative number of <errno.h>; then the data is undefined */
};

/* What one run of a program in foreign_memory.bpf.c does. The thread that runs it owns the batch. */
struct sw_read_batch {
	__u32 reader; /* the thread that owns it, in the receiver's PID namespace; 0: free */
	__u32 pid; /* of the process, in the same namespace */
	__u64 start_ns; /* when that started, by CLOCK_BOOTTIME, truncated to a clock tick */
	__s32 error; /* of all of it: 0 once the process was found */
	__u32 count; /* of reads, or of contexts that were found */
	__u64 contexts[SW_CONTEXTS_MAX]; /* addresses of mappings */
	struct sw_read reads[SW_READS_MAX];
};

/* What the reads of one batch have read: each from a multiple of SW_READ_BYTES_MAX. */
#define SW_READ_DATA_BYTES (SW_READS_MAX * SW_READ_BYTES_MAX)

/* ---- Waits --------------------------------------------------------------------------------------------- */

/*
 * A wait whose thread is off the CPUs for this long on average is always sampled, whatever the threshold: probabilities are
 * proportional to that average. So threads that sleep long and seldom are measured without an error of sampling.
 */
#define SW_CERTAIN_WAIT_SHIFT 24 /* 16.8 ms */
#define SW_MEAN_WAIT_SHIFT 3 /* a wait changes the average by an eighth of the difference */

/* What the call by which a thread waits in a futex says of its use (lock.bpf.h). */
enum sw_futex_use {
	SW_FUTEX_NONE = 0, /* it is in no such call */
	SW_FUTEX_OTHER, /* not known: a condition, a parked thread, a semaphore, or a lock that looks like one of these */
	SW_FUTEX_LOCK, /* the futex is a lock, which is held */
	SW_FUTEX_PARKED, /* the futex belongs to the thread, which is parked for a lock at another address */
};

/*
 * The scheduler's accounts of a thread when it last left a CPU. Only the CPU on which the thread runs writes it, with the
 * exception of `found_ns`.
 */
struct sw_wait {
	__u64 thread_start_ns; /* by CLOCK_BOOTTIME: a later thread with the same id has another */
	__u64 time_ns;
	__u64 on_cpu_ns; /* since the thread's start */
	__u64 runnable_ns; /* waiting for a CPU, since the thread's start */
	__u64 mean_ns; /* the average time of its waits that is sampled */
	__u64 probability; /* of the sample of its current wait; 0: there is none */
	__u64 found_ns; /* when list_waits found it without a sample; of an earlier wait if it is before `time_ns` */
	__u32 pid; /* in the receiver's PID namespace, like `tid` */
	__u32 tid;
	__u32 is_sampled; /* whether samples are drawn of such a wait: not of a thread that is still runnable, unless that is sampled */
	__u32 walk_ns; /* what it took to take the sample of its current wait */
	__u64 lock; /* the address of the lock, or of the futex if that isn't known; 0: it waits in no futex */
	__u32 futex_use; /* sw_futex_use: of its current wait */
	__u32 reserved;
};

/* ---- Optional kernel fields ----------------------------------------------------------------------------- */

/* Fields of the kernel's types without which the programs do less. `src/fields.rs` says what is lost without each. */
enum sw_kernel_field {
	SW_FIELD_IN_EXECVE = 0,
	SW_FIELD_START_STACK,
	SW_FIELD_START_CODE,
	SW_FIELD_EXE_FILE,
	SW_FIELD_THREAD_POINTER,
	SW_FIELD_RUN_DELAY,
};

/* ---- Per CPU, per slot ---------------------------------------------------------------------------------- */

/* The CPU clock interrupts programs of other events, and nothing interrupts those of the CPU clock. */
#define SW_SLOTS_PER_CPU 2
#define SW_CHUNK_FRAMES 256
#define SW_CHAIN_CHUNKS 64
#define SW_STACK_WINDOW_BYTES 2048
#define SW_VM_WINDOW_BYTES 2048
#define SW_VM_CODES_BITS 7
#define SW_VM_CODES (1u << SW_VM_CODES_BITS)
#define SW_VM_PATHS_BITS 3
#define SW_VM_PATHS (1u << SW_VM_PATHS_BITS)
#define SW_KERNEL_FRAMES_MAX 127
#define SW_FRAMES_PER_CALL 32 /* if walks use tail calls */
#define SW_CALLS_MAX 33 /* consecutive tail calls: MAX_TAIL_CALL_CNT, which before Linux 5.16 was 32 but also allowed 33 */
/*
 * Frames per round, if walks use a loop. Each round ends with a return, which takes about 8 ns if the kernel mitigates SRSO;
 * but the verifier checks each frame of a round separately.
 */
#define SW_FRAMES_PER_ROUND 4
#define SW_DEPTHS 15 /* enough for the 16,383 frames that fit into a chain */

/* ---- Probes of users ----------------------------------------------------------------------------------- */

#define SW_PROBE_SITES_MAX 256 /* a power of two */
/* Values above this count as this: sums of them, times hits, fit 63 bits. */
#define SW_PROBE_VALUE_MAX (1ull << 40)
#define SW_PROBE_WINDOW_SHIFT 29 /* the time for which a probe's budget is: 537 ms */
#define SW_PROBE_PERIOD_MAX (1u << 20)
/* What the receiver takes for a sample, about. The programs measure only their own time. */
#define SW_PROBE_RECEIVER_NS 4000

/* Where the value of a hit is. */
enum sw_probe_operand {
	SW_OPERAND_NONE = 0, /* there is none: hits are counted */
	SW_OPERAND_CONSTANT, /* it is `offset` */
	SW_OPERAND_REGISTER,
	SW_OPERAND_MEMORY, /* at `offset` bytes from the address in a register */
};

/* A place of a program at which a probe is. Its index is the cookie of the attachment. */
struct sw_probe_site {
	__u32 probe; /* index among those of the run */
	__u8 is_return; /* it is hit when the function has returned */
	__u8 operand; /* sw_probe_operand */
	__u8 reg; /* by its DWARF number */
	__u8 bits; /* of the value: 8, 16, 32 or 64 */
	__u8 is_signed;
	__u8 reserved[7];
	__s64 offset;
};

/*
 * The hits of a probe on one CPU. Of a number of hits that is drawn at random, with the period as its mean, the last one is
 * sampled, and counts for all of them: so the values of samples add up to the number of hits, and a program that repeats
 * itself is not always sampled in the same place. A sample that is lost leaves its hits to the next one. The period grows
 * when samples cost more than the budget.
 */
struct sw_probe_hits {
	__u64 hits; /* in scope */
	__u64 sampled; /* of these, up to the last one that was sampled */
	__u64 next; /* the number of hits at which the next one is sampled */
	__u64 lost; /* hits of lost samples */
	__u64 lost_taken; /* of these, those that a later sample counts for */
	__u64 samples;
	__u64 cost_ns; /* of samples, with what the receiver takes */
	__u64 budget_ns; /* in each window; set by the receiver */
	__u64 window; /* the time, in units of 2^SW_PROBE_WINDOW_SHIFT ns */
	__u64 window_cost_ns;
	__u64 window_limit_ns; /* at which the period grows next */
	__u32 claims; /* of programs that draw the next hit; 0: none does */
	__u32 period; /* 0 counts as 1 */
};

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
	__u64 scope_full; /* forks that found no room in the map `listed` */
	__u64 waits_unseen; /* threads from before the start that had begun to wait before it */
	__u64 wait_ends_lost; /* ends of sampled waits that found no room in the ring */
	__u32 snapshot_window; /* the time, in units of 2^SW_SNAPSHOT_WINDOW_SHIFT ns */
	__u32 snapshots_in_window;

	__u64 probes_paused; /* 0: hits are counted */
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
	__u64 frames_by_table;
	__u64 frames_by_frame_pointer;
	__u64 frames_unproven;
	__u64 nested; /* uses begun while another slot of this CPU was in use */
	__u64 outcomes[SW_SAMPLE_KINDS][SW_OUTCOME_PLACES]; /* of interrupts, by kind and sw_outcome */
	__u64 depths[SW_DEPTHS]; /* of stacks, complete or cut: [i] counts those of 2^i frames up to 2^(i+1)-1 */
	__u64 snapshots_refused; /* the ring had no room, or there were too many in this window */
	__u64 contexts_read; /* the thread published a span or labels */
	__u64 contexts_changing; /* the thread was updating its record: valid was not 1 */
	__u64 contexts_unreadable; /* the thread's variable or record could not be read */
	__u64 vm_frames; /* frames of virtual machines in stacks */
	__u64 vm_groups; /* activations of their loops whose frames were found */
	__u64 vm_missing[SW_VM_MISSING_PLACES]; /* frames that stand for missing ones, by sw_vm_missing */
	__u64 vm_objects_sent; /* functions of young processes */
	__u64 vm_objects_dropped; /* of these, not sent now: the ring was half full */
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
