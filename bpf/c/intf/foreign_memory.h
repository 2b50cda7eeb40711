/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Requests to read memory of other processes. */
#ifndef SIDEWINDER_INTF_FOREIGN_MEMORY_H
#define SIDEWINDER_INTF_FOREIGN_MEMORY_H

#include <linux/types.h>

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

#endif
