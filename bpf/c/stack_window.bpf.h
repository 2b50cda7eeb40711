/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Reading the interrupted stack through a window: a read of user memory costs about the same for 8 bytes as for 2 KiB.
 */
#ifndef SIDEWINDER_STACK_WINDOW_BPF_H
#define SIDEWINDER_STACK_WINDOW_BPF_H

#include "maps.bpf.h"

/* A window starts a little below the requested word: the saved frame pointer is below the return address. */
#define SW_WINDOW_LEAD 64

/*
 * The first window of a stack has the size of the previous stack, plus at most this much more of the same page. The next
 * page may never have been touched, as above the first frames of many programs, and a read that gets there takes as long as
 * five.
 */
#define SW_WINDOW_SPARE 256

static __always_inline __u32 first_window_bytes(struct sw_slot *slot, __u64 start)
{
	const __u32 lead_and_word = SW_WINDOW_LEAD + sizeof(__u64);
	__u64 needed = slot->bytes_before + lead_and_word, to_page_end = -(start + needed) & (SW_PAGE_BYTES - 1);

	/* Also if the previous walk ended on another stack, below where it began. */
	if (slot->bytes_before > SW_STACK_WINDOW_BYTES - SW_WINDOW_SPARE - lead_and_word)
		return SW_STACK_WINDOW_BYTES;
	return needed + (to_page_end < SW_WINDOW_SPARE ? to_page_end : SW_WINDOW_SPARE);
}

static __always_inline bool read_window(struct sw_slot *slot, __u64 start, __u32 bytes)
{
	slot->window_start = start;
	slot->window_bytes = bytes;
	/* Checked last, for verifiers that lose the bounds of values that compilers spill to the stack. */
	barrier_var(bytes);
	return bytes <= SW_STACK_WINDOW_BYTES && !bpf_probe_read_user(slot->window, bytes, (void *)start);
}

/* Moves the window so that it contains a whole word. False: the word can't be read. */
static __noinline int move_window(struct sw_slot *slot, __u64 address)
{
	__u64 start = address - SW_WINDOW_LEAD;
	__u32 to_page_end = SW_PAGE_BYTES - (start & (SW_PAGE_BYTES - 1));

	if (read_window(slot, start, slot->window_bytes ? SW_STACK_WINDOW_BYTES : first_window_bytes(slot, start)))
		return 1;
	/* The window may extend beyond either end of the stack: try the part on the word's own page. */
	if (to_page_end <= SW_WINDOW_LEAD) {
		start += to_page_end;
		to_page_end = SW_PAGE_BYTES;
	}
	if (to_page_end > SW_STACK_WINDOW_BYTES)
		to_page_end = SW_STACK_WINDOW_BYTES;
	/* A word may be on two pages. */
	if (start + to_page_end - address >= sizeof(__u64) && read_window(slot, start, to_page_end))
		return 1;
	if (read_window(slot, address, sizeof(__u64)))
		return 1;
	slot->window_bytes = 0;
	return 0;
}

/* Reads one word of the stack. */
static __always_inline bool try_read_word(struct sw_slot *slot, __u64 address, __u64 *word)
{
	__u64 offset = address - slot->window_start;

	if (offset > SW_STACK_WINDOW_BYTES - sizeof(__u64) || offset + sizeof(__u64) > slot->window_bytes) {
		if (!move_window(slot, address))
			return false;
		offset = address - slot->window_start;
	}
	offset &= SW_STACK_WINDOW_BYTES - 1;
	if (offset > SW_STACK_WINDOW_BYTES - sizeof(__u64))
		return false;
	*word = *(__u64 *)(slot->window + offset);
	return true;
}

/* Ends the walk at an unreadable address as a bad read; walk_by_loop checks afterwards whether the page was only absent. */
static __always_inline bool unreadable(struct sw_slot *slot, __u64 address)
{
	slot->outcome = SW_OUTCOME_BAD_ADDRESS;
	slot->unreadable = address;
	return false;
}

/* Reads one word that the walk needs; false: slot->outcome says why not. */
static __always_inline bool read_word(struct sw_slot *slot, __u64 address, __u64 *word)
{
	return try_read_word(slot, address, word) || unreadable(slot, address);
}

#endif
