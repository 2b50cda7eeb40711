/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What the receiver has published of each process, and the scope. */
#ifndef SIDEWINDER_INTF_PROCESSES_H
#define SIDEWINDER_INTF_PROCESSES_H

#include "../arch.h"
#include "tables.h"
#include <linux/types.h>

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

/*
 * The ranges of a process: this header, followed by the variables in which its threads publish their contexts, its virtual
 * machines, and then the ranges.
 */
struct sw_ranges {
	__u32 count;
	__u16 variables;
	/* 0 or 1. A process may have both, for example a Java program that embeds Python: this is their order. */
	__u8 interpreters; /* those with a loop: CPython or V8 */
	__u8 hotspots;
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

/*
 * A program, by the directory entry and the mount through which its file was opened: these give its path, until a file or a
 * directory is renamed. The inode tells entries apart that were in the same memory.
 */
struct sw_program {
	__u64 mount;
	__u64 entry;
	__u64 inode;
	__u64 device;
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

/* Set in a start time in `listed`: the process belongs to the list from its next exec on. */
#define SW_LISTED_FROM_EXEC (1ull << 62)

#endif
