/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Unwind tables: the format that the receiver writes and the programs read. */
#ifndef SIDEWINDER_INTF_TABLES_H
#define SIDEWINDER_INTF_TABLES_H

#include <linux/types.h>

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
 * row 0 is at the segment's start. Its index names a rule or, from `first_run` on, a run.
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
	/*
	 * These two say where the caller's SW_REG_CALLEE_SAVED is. Without either, it is lost. With both, it is in the word
	 * above the saved frame pointer, which is SW_PLACE_MEMORY.
	 */
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

#endif
