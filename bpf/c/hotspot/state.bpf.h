/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What walks of HotSpot's frames keep, in the slot of a sample and in the scratch memory of a CPU. */
#ifndef SIDEWINDER_HOTSPOT_STATE_BPF_H
#define SIDEWINDER_HOTSPOT_STATE_BPF_H

#include "../intf.h"

/* The walk of one sample. */
struct sw_hotspot_walk {
	__u32 has_blob; /* the blob in the scratch memory belongs to the current frame */
};

/* A blob of HotSpot's machine code. */
struct sw_blob {
	__u64 address;
	__u64 code; /* address of its first instruction */
	__u64 handlers[2]; /* to which deoptimized functions are returned to; 0: none */
	__s32 frame_words; /* from the stack pointer to the end of its frame, at calls; not above 0: it has no frame of one size */
	__s32 frame_complete; /* offset in the code from which on it has its frame; negative: 0 */
	__u32 cookie;
	__u32 original_pc; /* offset from the stack pointer */
};

/* Around the interrupted pc. */
#define SW_HOTSPOT_CODE_BEFORE 64
#define SW_HOTSPOT_CODE_AFTER 8

/* Bytes of a class's name that belong to the identity of its methods: the last ones, in which names that are made up differ. */
#define SW_CLASS_NAME_BYTES 64

/* What is read of a symbol at once. */
#define SW_SYMBOL_BYTES 128
_Static_assert(!(SW_SYMBOL_BYTES & (SW_SYMBOL_BYTES - 1)), "an offset is masked");

struct sw_hotspot_scratch {
	struct sw_blob blob; /* that was read last */
	__u8 code[SW_HOTSPOT_CODE_BEFORE + SW_HOTSPOT_CODE_AFTER]; /* around the interrupted pc */
	/* Of the interpreted method whose frame was read last: its ConstMethod, and an address that its class's methods share, or 0. */
	__u64 const_method;
	__u64 class;
	__u8 symbol[SW_SYMBOL_BYTES + SW_CLASS_NAME_BYTES] __attribute__((aligned(8))); /* the start of a class's name, or its end */
};

#endif
