/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* The programs of a sampler: they take samples at one kind of hook, and differ from others in how a sample begins and ends. */
#ifndef SIDEWINDER_SAMPLER_BPF_H
#define SIDEWINDER_SAMPLER_BPF_H

#include "maps.bpf.h"
#include "slot.bpf.h"
#include "unwind.bpf.h"

/* Defines the program that begins a sample, and does `walk` if there is a user stack to walk. See SW_SAMPLER. */
#define SW_FIRST_PROGRAM(section, name, context_type, begin, walk, end)                                       \
	SEC(section)                                                                                          \
	int name(context_type *ctx)                                                                           \
	{                                                                                                     \
		struct sw_cpu *cpu = this_cpu();                                                              \
		struct sw_slot *slot;                                                                         \
		bool walks;                                                                                   \
                                                                                                              \
		if (!cpu)                                                                                     \
			return 0;                                                                             \
		slot = begin;                                                                                 \
		if (!slot)                                                                                    \
			return 0;                                                                             \
		if (walks)                                                                                    \
			walk;                                                                                 \
		end;                                                                                          \
		return 0;                                                                                     \
	}

/*
 * Defines sample_NAME, which walks the user stack in a loop (since Linux 5.17); and for older kernels
 * sample_NAME_by_calls, which begins the sample, and walk_NAME_by_calls, which walks, calls itself through entry `index` of
 * the map `calls` for more frames, and ends the sample. These arguments are expressions:
 *
 *   kind    the kind of the sample, from `ctx`
 *   begin   the sample's slot, from `ctx` and `cpu`; null: there is no sample. Sets `walks`: whether to walk the user stack
 *   end     sends the sample and releases `slot`, of `cpu`
 */
#define SW_SAMPLER(section, name, context_type, kind, begin, end, calls, index)                               \
	SW_FIRST_PROGRAM(section, sample_##name, context_type, begin, walk_by_loop(slot), end)                \
	SW_FIRST_PROGRAM(section, sample_##name##_by_calls, context_type, begin,                              \
			 bpf_tail_call(ctx, &calls, index), end)                                              \
	SEC(section)                                                                                          \
	int walk_##name##_by_calls(context_type *ctx)                                                         \
	{                                                                                                     \
		struct sw_cpu *cpu = this_cpu();                                                              \
		struct sw_slot *slot;                                                                         \
		__u32 number;                                                                                 \
                                                                                                              \
		slot = claimed_slot(kind, &number);                                                           \
		if (!cpu || !slot)                                                                            \
			return 0;                                                                             \
		if (walk_by_calls(number))                                                                    \
			bpf_tail_call(ctx, &calls, index);                                                    \
		end;                                                                                          \
		return 0;                                                                                     \
	}

#endif
