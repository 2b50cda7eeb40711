/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* How interrupts end. */
#ifndef SIDEWINDER_INTF_OUTCOMES_H
#define SIDEWINDER_INTF_OUTCOMES_H

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
	X(EXITING, 0, "thread was ending", "the thread had already released its memory")                      \
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
	X(STILL_RUNNABLE, 0, "preempted, not waiting", "the thread gave up its CPU to another, without waiting for anything") \
	X(NOT_DRAWN, 0, "skipped by sampling", "short wait, not sampled") \
	X(TOO_MANY_THREADS, 1, "too many threads", "the list of the threads that may be waiting was full") \
	X(STACK_UNREADABLE, 1, "unreadable stack", "the stack of a thread that was found waiting could not be read, or the thread went on meanwhile") \
	X(NO_LOCK, 0, "not for a lock", "the thread waits, but not in a futex, and only waits for locks are sampled") \
	X(THINNED, 0, "thinned", "a hit of a probe whose next sampled hit counts for it, too") \
	X(NO_RELEASE, 0, "not released", "a timeout, a signal or the end of a thread ended the wait, and not a call that wakes waiters of a futex")

enum sw_outcome {
#define SW_OUTCOME_VALUE(name, is_loss, summary, meaning) SW_OUTCOME_##name,
	SW_OUTCOMES(SW_OUTCOME_VALUE)
#undef SW_OUTCOME_VALUE
		SW_OUTCOME_COUNT
};

#define SW_OUTCOME_PLACES 32 /* length of arrays by outcome; a power of two */
_Static_assert(SW_OUTCOME_COUNT <= SW_OUTCOME_PLACES, "each outcome needs a place");

#endif
