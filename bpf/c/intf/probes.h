/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Users' probes. */
#ifndef SIDEWINDER_INTF_PROBES_H
#define SIDEWINDER_INTF_PROBES_H

#include <linux/types.h>

#define SW_PROBE_SITES_MAX 256 /* a power of two */
#define SW_TRACEPOINTS_MAX 4 /* the sites of these are behind all others */
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
	SW_OPERAND_ARGUMENT, /* of a tracepoint: the one with the index `reg` */
};

/*
 * A place of a program at which a probe is, whose index is the cookie of the attachment; or a tracepoint, with the index
 * SW_PROBE_SITES_MAX + its program's.
 */
struct sw_probe_site {
	__u32 probe; /* index among the run's probes */
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

#endif
