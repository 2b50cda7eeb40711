/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What all virtual machines share: results of steps, and a window on the memory in which a machine keeps its frames. */
#ifndef SIDEWINDER_VM_MEMORY_BPF_H
#define SIDEWINDER_VM_MEMORY_BPF_H

#include "maps.bpf.h"
#include "stack.bpf.h"
#include "table.bpf.h"

enum sw_vm_step {
	SW_VM_GROUP_ENDED = 0,
	SW_VM_PUSHED,
	SW_VM_GROUP_FOUND, /* nothing was pushed yet */
	SW_VM_NO_ROOM, /* the ring is full */
	SW_VM_UNREADABLE_FRAME, /* or one that was met before; those after it can't be found through it */
	SW_VM_UNREADABLE_CODE, /* of a frame that was read */
	SW_VM_STEPPED, /* all of the native frame is in the stack, and its caller is the current one */
	SW_VM_WALK_ENDED, /* there is no caller; the slot's outcome says why */
};

/* `vm_state` of a slot. */
enum sw_vm_state {
	SW_VM_UNREAD = 0, /* the thread's state was not read in this walk */
	SW_VM_READ, /* `vm_frame` is the next frame */
	SW_VM_LOST, /* plus the sw_vm_missing that says why */
};

/* `vm_group` of a slot. */
enum sw_vm_group {
	SW_VM_OPEN = 0, /* more of its frames may follow */
	SW_VM_ENDED, /* all are in the stack; there is something to decide (`settle_group`) */
	SW_VM_SETTLED, /* all are in the stack */
};

/* A frame to push. */
struct sw_vm_frame {
	__u64 head;
	__u64 address;
};

static __always_inline bool read_vm_window(struct sw_slot *slot, struct sw_vm_scratch *scratch, __u64 start, __u32 bytes)
{
	slot->vm_window_start = start;
	slot->vm_window_bytes = bytes;
	/* Checked last, for verifiers that lose the bounds of values that compilers spill to the stack. */
	barrier_var(bytes);
	if (bytes <= SW_VM_WINDOW_BYTES && !bpf_probe_read_user(scratch->window, bytes, (void *)start))
		return true;
	slot->vm_window_bytes = 0;
	return false;
}

/*
 * Makes the window contain `bytes` bytes at an address. A read costs about the same for 8 bytes as for the whole window, and
 * callers' frames are usually below: the window ends with these bytes.
 */
static __always_inline bool read_vm(struct sw_slot *slot, struct sw_vm_scratch *scratch, __u64 address, __u32 bytes)
{
	__u64 offset = address - slot->vm_window_start, page = address & ~(SW_PAGE_BYTES - 1ull);
	__u32 bytes_of_page = address - page + bytes;

	if (offset < slot->vm_window_bytes && offset + bytes <= slot->vm_window_bytes)
		return true;
	if (read_vm_window(slot, scratch, address + bytes - SW_VM_WINDOW_BYTES, SW_VM_WINDOW_BYTES))
		return true;
	/* The page below may be unmapped or absent. A longer part of the address's own page was just tried. */
	return bytes_of_page < SW_VM_WINDOW_BYTES && read_vm_window(slot, scratch, page, bytes_of_page);
}

/*
 * Whether frames lead to one that was met before: each is compared with the one whose number in this walk was the last power
 * of two (Brent's algorithm), so a cycle is found before it has been walked three times.
 */
static __always_inline bool was_met(struct sw_slot *slot, __u64 frame)
{
	__u32 number = ++slot->vm_frames_met;

	if (frame == slot->vm_frame_before)
		return true;
	if (!(number & (number - 1)))
		slot->vm_frame_before = frame;
	return false;
}

static __always_inline void end_group(struct sw_slot *slot)
{
	slot->vm_group = slot->vm_anchor || slot->vm_is_lost ? SW_VM_ENDED : SW_VM_SETTLED;
}

/* The word at an address in the window. */
static __always_inline __u64 vm_word(const struct sw_slot *slot, const struct sw_vm_scratch *scratch, __u64 address)
{
	__u32 at = (address - slot->vm_window_start) & (SW_VM_WINDOW_BYTES - 1);

	return at <= SW_VM_WINDOW_BYTES - sizeof(__u64) ? *(const __u64 *)(scratch->window + at) : 0;
}

/* The byte at an address in the window. */
static __always_inline __u8 vm_byte(const struct sw_slot *slot, const struct sw_vm_scratch *scratch, __u64 address)
{
	return scratch->window[(address - slot->vm_window_start) & (SW_VM_WINDOW_BYTES - 1)];
}

/* The entry for an address among the cookies and hashes that are remembered. */
static __always_inline struct sw_vm_code *remembered_code(struct sw_vm_scratch *scratch, __u64 address)
{
	return &scratch->codes[(__u32)(address >> 3) * SW_HASH_MULTIPLIER >> (32 - SW_VM_CODES_BITS)];
}

/* The entry for where the object at an address leads. */
static __always_inline struct sw_vm_link *remembered_link(struct sw_vm_scratch *scratch, __u64 from)
{
	return &scratch->links[(__u32)(from >> 3) * SW_HASH_MULTIPLIER >> (32 - SW_VM_LINKS_BITS)];
}

/* Pushes the frame that stands for one of a group, or for the rest of it. */
static __always_inline int push_missing(struct sw_slot *slot, __u32 kind, __u32 reason)
{
	slot->head.vm_frames_missing[reason & (SW_VM_MISSING_PLACES - 1)]++;
	return push_frame(slot, frame_head(kind, SW_FRAME_MISSING, 0), reason) ? SW_VM_PUSHED : SW_VM_NO_ROOM;
}

#endif
