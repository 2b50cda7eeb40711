/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * All that the eBPF programs and the receiver both see: records, tables, settings and outcomes.
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
 * How an interrupt ended. Each interrupt for which a program ran ends in exactly one of these. Interrupts for
 * which none ran are counted as `missed`, by the difference to the events' own counts.
 *
 * X(name, is_loss, summary, meaning). The receiver derives metric labels and the `[truncated: ...]` markers of
 * OTLP from the name; people are shown the summary, a few words, and the meaning, a sentence. Append only: the
 * number is part of the stack hash and of records.
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
	X(STALE_MAPPING, 1, "mapping just changed", "the process had just mapped another file where the stack leads")

enum sw_outcome {
#define SW_OUTCOME_VALUE(name, is_loss, summary, meaning) SW_OUTCOME_##name,
	SW_OUTCOMES(SW_OUTCOME_VALUE)
#undef SW_OUTCOME_VALUE
		SW_OUTCOME_COUNT
};

#define SW_OUTCOME_PLACES 32 /* a power of two, and room for each */
_Static_assert(SW_OUTCOME_COUNT <= SW_OUTCOME_PLACES, "each outcome needs a place");

/* ---- Frames -------------------------------------------------------------------------------------------- */

enum sw_frame_kind {
	SW_FRAME_NATIVE = 1, /* id: file id; address: offset in that file */
	SW_FRAME_KERNEL = 2, /* id: 0; address: in the kernel's address space */
	SW_FRAME_ANONYMOUS = 3, /* id: 0; address: in the process's address space, backed by no file */
};

enum sw_frame_flag {
	/* The address is where a call returns to; else it is the next instruction to be executed. */
	SW_FRAME_RETURN_ADDRESS = 1,
	/* Found by a frame pointer that nothing but sanity checks vouches for. */
	SW_FRAME_UNPROVEN = 2,
};

/* One frame of any kind, native, kernel or interpreted. */
struct sw_frame {
	__u64 head; /* bits 0-7 kind, 8-15 flags, 16-63 file or runtime id */
	__u64 address;
};

#define SW_FRAME_FLAGS_SHIFT 8
#define SW_FRAME_ID_SHIFT 16

/* ---- Walks --------------------------------------------------------------------------------------------- */

/* What a rule has room for; no architecture has more that rules start from. */
#define SW_RULE_REGISTERS 32
_Static_assert(SW_REGISTERS <= SW_RULE_REGISTERS + 1, "all but the pc have a number in rules");

/*
 * A caller's frame lies above its callee's, unless code goes on on another stack: signal handlers, Go's system stack,
 * coroutines. Few of those are on one stack, so that memory made to loop isn't walked to the bound each time.
 */
#define SW_STACK_SWITCHES_MAX 8

/* The largest frame that a frame pointer with no table behind it may claim. */
#define SW_UNPROVEN_FRAME_BYTES_MAX (1u << 20)

/* Functions are shorter: a call of an address lower by more is a call of another function. */
#define SW_FUNCTION_BYTES_MAX (1u << 18)
/* A word of a stack that may be anything is a return address if it comes after a call of a function that starts so near. */
#define SW_NEAR_BYTES_MAX (1u << 14)

/* Words above the stack pointer of generated code among which a return address is searched. */
#define SW_SEARCH_WORDS 128

/* ---- Records in the ring buffers ----------------------------------------------------------------------- */

/* 128 bits over every frame of a stack and its outcome, keyed by a secret of this run. */
struct sw_hash {
	__u64 lo;
	__u64 hi;
};

enum sw_record_type {
	SW_RECORD_SAMPLE = 1,
	SW_RECORD_STACK = 2, /* body: sw_frame[count], leaf first */
	SW_RECORD_CHAIN = 3, /* body: sw_hash[count], the chunks of a stack, leaf end first */
	SW_RECORD_SNAPSHOT = 4, /* sw_snapshot: what it takes to walk a sample's stack once more, later */
	SW_RECORD_NEWCOMER = 5, /* sw_newcomer: a process runs in a container that has no events */
};

enum sw_sample_kind {
	SW_SAMPLE_CPU = 1, /* value: 1 interrupt of the CPU clock */
#ifdef SW_TEST_PROGRAMS
	SW_SAMPLE_PROBE = 255, /* value: 1 run of a test program */
#endif
};

enum sw_sample_flag {
	SW_SAMPLE_IN_KERNEL = 1, /* the interrupt found the CPU in kernel mode */
	SW_SAMPLE_HAS_SNAPSHOT = 2, /* with the same tid and time_ns, submitted before */
	SW_SAMPLE_HAS_CONTEXT = 4, /* a sw_context follows, cut after its last attribute */
	SW_SAMPLE_HAS_LABELS = 8, /* sw_label[SW_LABELS_MAX] follows */
};

#define SW_COMM_BYTES 16

/* One interrupt. Its stack was sent in this epoch or, by a record lost or late, will be missing. A sw_context may follow. */
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
 * What a thread publishes of the span that it is in, as it publishes it: a record of OTEP 4947, "Thread Context". Its size
 * is what that advises as the most.
 */
#define SW_CONTEXT_BYTES 640
#define SW_CONTEXT_HEAD_BYTES 28

struct sw_context {
	__u8 trace_id[16];
	__u8 span_id[8];
	__u8 valid; /* 1, unless it is being changed */
	__u8 trace_flags;
	__u16 attributes_bytes;
	__u8 attributes[SW_CONTEXT_BYTES - SW_CONTEXT_HEAD_BYTES]; /* each: number of the key, bytes of the text, the text */
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
 * The user's registers and the top of its stack, where a walk lacked mappings or tables that the receiver will have
 * soon: it walks the rest then. A process is over before a receiver hears of it, and a file is first seen when it runs.
 */
#define SW_SNAPSHOT_BYTES 8192 /* of the stack, after the page in which it begins */
#define SW_SNAPSHOT_LARGE_BYTES 32768 /* where there may be more of it, while the ring of snapshots is not half full */
#define SW_SNAPSHOT_HUGE_BYTES 131072 /* where there may be more still, while the ring is not a quarter full */
#define SW_SNAPSHOT_BASE_BYTES 65536 /* where a stack begins, in a record of its own, if that is further away */
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

/* ---- Unwind tables ------------------------------------------------------------------------------------- */

/*
 * Tables and mappings live in an arena of equal chunks, each one value of an array that the receiver maps
 * into its own memory, and are published as in RCU: written anew, pointed to by one word, and freed only
 * after each slot has left the walk it was in. The clock advances then, since slots remember what walks found.
 */
#define SW_CHUNK_BYTES (2u << 20)
#define SW_CHUNKS_MAX 256

/* Where a block of the arena starts: chunk << 32 | byte offset. 0: absent (offset 0 is never given out). */
typedef __u64 sw_location;

/*
 * A segment is the unwind table of one page-aligned stretch of one file. In the arena:
 *
 *   sw_segment_header
 *   __u16   index[buckets + 1]   the first row of each bucket
 *   sw_rule rules[]              16-byte aligned
 *   sw_run  runs[]
 *   __u16   rows[]               (offset in bucket) << SW_RULE_BITS | number
 *
 * A bucket covers SW_BUCKET_BYTES of text. A row is in force from its offset to the next row's, also in later
 * buckets; row 0 is at the segment's start. Its number is that of a rule, or, from `first_run` on, of a run.
 */
#define SW_BUCKET_SHIFT 7
#define SW_BUCKET_BYTES (1u << SW_BUCKET_SHIFT)
#define SW_RULE_BITS 9
#define SW_RULES_MAX (1u << SW_RULE_BITS) /* and runs */
#define SW_SEGMENT_ROWS_MAX (1u << 16)

/*
 * Rows that follow each other closely, as in prologues and epilogues, where each push or pop makes one. Few such
 * sequences occur, many times each, so a sequence is one row that names it. Entries are as rows are, with offsets
 * from the run's start; the first is 0. Unused ones repeat the last.
 */
#define SW_RUN_ROWS 8

struct sw_run {
	__u16 rows[SW_RUN_ROWS];
};

/* Rules with fixed numbers in every segment. */
enum sw_fixed_rule {
	SW_RULE_NONE = 0, /* no information */
	SW_RULE_FRAME_POINTER = 1, /* CFA = frame pointer + 16, caller's frame pointer at CFA-16, return address at CFA-8 */
	SW_RULE_FIRST_FREE = 2,
};

struct sw_segment_header {
	__u64 file_offset; /* of the first byte covered, page-aligned */
	__u32 text_bytes;
	__u32 rules; /* offsets from the header */
	__u32 rows;
	__u32 first_run; /* the number of the first run */
};

enum sw_cfa_base {
	SW_CFA_NONE = 0, /* no rule; cfa_offset holds the sw_outcome that says why */
	SW_CFA_REGISTER, /* register + offset */
	/* stack pointer + 8, and 8 more where the pc is `offset` or more bytes into its SW_LINKAGE_ENTRY_BYTES */
	SW_CFA_PLT,
	SW_CFA_DEREF, /* the word at register + offset, and 8 * addend_by_8 */
	SW_CFA_DEREF_INDEXED, /* the same, but 8 * ra_register further up; the return address is at the CFA */
};

enum sw_place {
	SW_PLACE_SAME = 0, /* unchanged (not for a return address) */
	SW_PLACE_CFA, /* the word at CFA + offset */
	SW_PLACE_MEMORY, /* the word at register + offset */
	SW_PLACE_REGISTER, /* the register */
	SW_PLACE_UNDEFINED, /* of a return address: this is where stacks start */
};

enum sw_rule_flag {
	SW_RULE_SIGNAL_FRAME = 1, /* the caller was interrupted: its pc is exact, its stack may be another */
	SW_RULE_AFTER_CLONE = 2, /* where SW_REG_SYSCALL_RESULT is 0, this is a new thread, and where its stack starts */
	/* Of the caller's SW_REG_CALLEE_SAVED, which is lost where a rule says neither: */
	SW_RULE_KEEPS_CALLEE_SAVED = 4, /* the register still holds it */
	SW_RULE_SAVES_CALLEE_SAVED = 8, /* it is 8 * (addend_by_8 + 1) below the CFA, which has no addend then */
};

/* How a frame leads to its caller. Registers are numbered as in DWARF. */
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

/* What the ranges of processes name; a slot whose table was evicted keeps its id. */
struct sw_segment {
	sw_location location;
	__u32 used; /* the last `clock` of its CPU in which a walk used it; 0: none has */
	__u32 reserved;
};

/* ---- Processes ----------------------------------------------------------------------------------------- */

/*
 * Mappings and segments are counted in the smallest pages that the architecture has. Where the kernel's are larger, what lies
 * in one of these lies in one of those.
 */
#define SW_PAGE_BYTES (1 << SW_PAGE_SHIFT)

/* One executable mapping, or the part of one that a segment covers. Sorted by start in the arena. */
struct sw_range {
	__u64 start;
	__u32 pages;
	__u32 file; /* file id; 0: backed by no file */
	__u32 file_page; /* offset of `start` in the file, in pages */
	__u32 segment; /* number of its sw_segment; 0: none */
};

/* How a thread's copy of a thread-local variable is found (ELF Handling For Thread-Local Storage). */
enum sw_tls_model {
	SW_TLS_STATIC = 1, /* at an offset from the thread pointer */
	/* at an offset in the block of its module, to which the thread's dynamic thread vector leads: */
	SW_TLS_GLIBC = 2, /* 16 bytes for each module, the length in the two words before */
	SW_TLS_MUSL = 3, /* 8 bytes for each module, the length in the first word */
	/*
	 * No variable of its own: what leads to the labels of the running goroutine. The offset is that of its g, and `module`
	 * tells the offsets by 8 of `curg` in an m and, 8 bits up, of `labels` in a g. Labels are a slice since Go 1.24.
	 */
	SW_TLS_GO_SLICE = 4,
	SW_TLS_GO_MAP = 5,
	/* With one of the first three: the variable points to a set of labels, not to a record (custom-labels, ABI 1). */
	SW_TLS_LABEL_SET = 8,
};

struct sw_tls_variable {
	__s32 offset;
	__u16 module;
	__u16 model;
};

#define SW_TLS_VARIABLES_MAX 4 /* of a process: several libraries may each have one of the same name */
#define SW_TLS_MODULE_MAX 126 /* vectors are read by the window */

/*
 * The ranges of a process: this head, the variables in which its threads publish their contexts, and the ranges right
 * behind those.
 */
struct sw_ranges {
	__u32 count;
	__u32 variables;
};

/* An open-addressed table keyed by pid: a process is within SW_PROCESS_PROBES places of its hash. */
struct sw_process {
	__u32 pid; /* 0: free */
	__u32 reserved;
	sw_location ranges;
	__u64 known_ns; /* the receiver has seen all changes up to here */
	__u64 exec_ns; /* written by the kernel side: when it last ran exec */
};

#define SW_PROCESS_PROBES 16
#define SW_HASH_MULTIPLIER 0x9E3779B1u /* 2^32 by the golden ratio: spreads numbers that lie close together */
#define SW_PROCESS_PLACE_SHIFT 7 /* place = (pid * SW_HASH_MULTIPLIER) >> SW_PROCESS_PLACE_SHIFT, modulo the table */

/* ---- Scope --------------------------------------------------------------------------------------------- */

/*
 * Which of the tasks that the receiver's PID namespace knows, and that run in its pod where it has one. The processes in
 * the map `listed` stand for what they fork, too.
 */
enum sw_scope {
	SW_SCOPE_ALL = 0,
	SW_SCOPE_LISTED = 1,
	SW_SCOPE_UNLISTED = 2,
};

/*
 * Whether `listed` had no room for a process that should be in it. Each is set once and never cleared, so that writers need
 * no order among them. Where listed processes are the ones out of scope, what may be such a process, or a descendant of
 * one, is out of scope too.
 */
struct sw_scope_gaps {
	__u32 young; /* for one that started after the programs were loaded */
	__u32 any; /* for an older one */
};

#define SW_CGROUP_LEVELS 32 /* more than any runtime nests */
/* A name of 511 bytes (KSYM_NAME_LEN), and what follows it. */
#define SW_KERNEL_SYMBOL_BYTES 640

/* A process has run exec in a container that has no events, for which it is time to be opened. */
struct sw_newcomer {
	__u16 type;
	__u16 reserved;
	__u32 pid;
	__u64 container; /* id of its cgroup */
};

/* A start time read from /proc is cut to clock ticks of this length. */
#define SW_START_TIME_TICK_NS 10000000ull

/* ---- What kernels may lack ------------------------------------------------------------------------------- */

/* Fields of the kernel's types without which the programs do less. `src/fields.rs` says what. */
enum sw_kernel_field {
	SW_FIELD_IN_EXECVE = 0,
	SW_FIELD_START_STACK,
	SW_FIELD_START_CODE,
	SW_FIELD_EXE_FILE,
	SW_FIELD_THREAD_POINTER,
};

/* ---- Per CPU, per slot ---------------------------------------------------------------------------------- */

#define SW_SLOTS_PER_CPU 3
#define SW_CHUNK_FRAMES 256
#define SW_CHAIN_CHUNKS 64
#define SW_STACK_WINDOW_BYTES 2048
#define SW_KERNEL_FRAMES_MAX 127
#define SW_FRAMES_PER_CALL 32 /* where a walk goes on by tail calls */
#define SW_CALLS_MAX 33 /* tail calls in a row: MAX_TAIL_CALL_CNT, which was 32 for as many before Linux 5.16 */
/*
 * Frames of one round, where a walk goes on by a loop. Each round ends in a return, which takes about 8 ns where the
 * kernel guards returns (SRSO); but the verifier looks at each frame of it by itself.
 */
#define SW_FRAMES_PER_ROUND 4
#define SW_DEPTHS 15 /* 16,383 frames is what a chain has room for */

/*
 * What one CPU is told and what it counted, side by side: an interrupt touches as few pages as it can. The receiver
 * writes the settings of all CPUs, and reads the counters, which are never reset, through its own mapping.
 */
struct sw_cpu {
	__u32 epoch; /* from 1; each stack is sent once in each */
	/* From 1; advances some times a second: the age of segments; and before memory of the arena is used again. */
	__u32 clock;

	/* The process that was last found to be listed: most interrupts find the same one again. */
	__u64 listed_start_ns;
	__u32 listed_pid;
	__u32 tells_newcomers; /* whether events are those of containers, and new ones must be told of */

	__u64 outcomes[SW_OUTCOME_PLACES]; /* of interrupts that got no slot, by sw_outcome */
	__u64 scope_full; /* forks that found no room in the map `listed` */
	__u32 snapshot_window; /* the time, in units of 2^SW_SNAPSHOT_WINDOW_SHIFT ns */
	__u32 snapshots_in_window;
};

/*
 * How a slot begins: who holds it, and what its holders counted, which is never reset. It has one holder at a time, so no
 * addition need be locked.
 */
struct sw_slot_head {
	__u32 claims; /* 0: free; 1: in use; more: others are just finding it so */
	__u32 sequence; /* of its uses, counted when they end */
	__u64 stacks_known; /* samples whose stack had been sent in this epoch */
	__u64 stacks_sent;
	__u64 frames_by_table;
	__u64 frames_by_frame_pointer;
	__u64 frames_unproven;
	__u64 nested; /* uses begun while another slot of this CPU was in use */
	__u64 outcomes[SW_OUTCOME_PLACES]; /* of interrupts, by sw_outcome */
	__u64 depths[SW_DEPTHS]; /* of stacks, complete or cut: [i] counts those of 2^i frames up to 2^(i+1)-1 */
	__u64 snapshots_refused; /* for want of room, or because there were too many in this window */
	__u64 contexts_read; /* of threads that said which span they were in */
	__u64 contexts_changing; /* of threads that were just saying so: valid was not 1 */
	__u64 contexts_unreadable; /* of threads whose variable or record could not be read */
};

/*
 * A stack, or chunk of one, that has been sent: 96 bits of its hash, so that a set is one cache line. Should they ever be
 * another stack's, too, that one is missing where its sample arrives.
 */
struct sw_known {
	__u64 lo;
	__u32 hi;
	__u32 epoch;
};

#define SW_KNOWN_WAYS 4

#endif
