/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Lookup of an address's mapping, its file's table, and its unwind rule: the only reader of the format in intf/tables.h. */
#ifndef SIDEWINDER_TABLE_BPF_H
#define SIDEWINDER_TABLE_BPF_H

#include "maps.bpf.h"

static __always_inline __u32 location_chunk(sw_location location)
{
	return location >> 32;
}

static __always_inline __u32 location_offset(sw_location location)
{
	return (__u32)location;
}

/* The index in `processes` where the search for a pid starts. */
static __always_inline __u32 process_place(__u32 pid)
{
	return (pid * SW_HASH_MULTIPLIER) >> SW_PROCESS_PLACE_SHIFT;
}

static __always_inline int enter_ranges(struct sw_slot *slot, sw_location location)
{
	__u8 *chunk = arena_chunk(location_chunk(location));
	struct sw_cpu *cpu = this_cpu();
	struct sw_ranges *ranges;
	__u32 offset;

	if (!location || !chunk || !cpu)
		return 0;
	slot->clock = READ_ONCE(cpu->clock);
	ranges = sw_at(struct sw_ranges, chunk, location_offset(location), 8);
	slot->range_count = ranges->count;
	slot->variable_count = ranges->variables;
	slot->variables_offset = location_offset(location) + sizeof(*ranges);
	offset = slot->variables_offset + slot->variable_count * sizeof(struct sw_tls_variable);
	slot->runtime_kind = slot->runtime_offset = 0;
	if (ranges->interpreters) {
		slot->runtime_kind = *sw_at(__u32, chunk, offset + __builtin_offsetof(struct sw_runtime, kind), 4);
		slot->runtime_offset = offset;
		offset += sizeof(struct sw_runtime);
	}
	slot->hotspot_offset = ranges->hotspots ? offset : 0;
	if (ranges->hotspots)
		offset += sizeof(struct sw_runtime);
	slot->ranges = location - location_offset(location) + offset;
	return 1;
}

/*
 * Prepares the slot for walks in a process, with its mappings at `time_ns`. False: its mappings are unknown, or were read
 * at a later time, or were read before it started or last ran exec, so they may belong to another program.
 */
static __always_inline int enter_process(struct sw_slot *slot, __u32 pid, __u64 start_ns, __u64 time_ns)
{
	__u32 place = process_place(pid);

	slot->range_bytes = 0;
	for (__u32 i = 0; i < SW_PROCESS_PROBES; i++) {
		__u32 number = (place + i) & process_mask;
		struct sw_process *process = bpf_map_lookup_elem(&processes, &number);
		__u64 known_ns, exec_ns;

		if (!process)
			return 0;
		if (READ_ONCE(process->pid) != pid)
			continue;
		/*
		 * The receiver writes the ranges, then known_ns, then the pid. Reading in the opposite order ensures that
		 * the ranges are at least as new as known_ns. The clock is read after the ranges, since it advances before
		 * the memory of old ranges is reused.
		 */
		smp_rmb();
		known_ns = smp_load_acquire(&process->known_ns);
		exec_ns = READ_ONCE(process->exec_ns);
		if (known_ns <= start_ns || known_ns <= exec_ns || known_ns > time_ns)
			return 0;
		slot->started_ns = exec_ns > start_ns ? exec_ns : start_ns;
		return enter_ranges(slot, smp_load_acquire(&process->ranges));
	}
	return 0;
}

/* Caches the location of a segment's table in the slot, for further frames in the same segment. */
static __always_inline void enter_segment(struct sw_slot *slot, __u32 number)
{
	struct sw_segment *segment = bpf_map_lookup_elem(&segments, &number);
	struct sw_cpu *cpu = this_cpu();
	struct sw_segment_header *header;
	sw_location location;
	__u32 clock;
	__u8 *chunk;

	slot->segment_bytes = 0;
	if (!number || !segment || !cpu)
		return;
	/* Ordered by address dependency: the table is read through its location. */
	location = READ_ONCE(segment->location);
	if (!location)
		return;
	chunk = arena_chunk(location_chunk(location));
	if (!chunk)
		return;
	clock = READ_ONCE(cpu->clock);
	if (READ_ONCE(segment->used) != clock)
		WRITE_ONCE(segment->used, clock);
	header = sw_at(struct sw_segment_header, chunk, location_offset(location), 32);
	slot->segment_chunk = location_chunk(location);
	slot->segment_offset = location_offset(location);
	slot->segment_file_offset = header->file_offset;
	slot->segment_rules = location_offset(location) + header->rules;
	slot->segment_rows = location_offset(location) + header->rows;
	slot->segment_first_run = header->first_run;
	slot->segment_bytes = header->text_bytes;
}

/*
 * Finds the executable mapping that contains an address, by binary search, and caches it in the slot. False if there is
 * none. Without mappings, range_bytes is 0, so that no address is considered to be in the cached one. Not static: the verifier
 * checks it once.
 */
__noinline int enter_range(__u32 number, __u64 address)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u32 base, low = 0, size;
	struct sw_range *range;
	__u8 *chunk;

	if (!slot)
		return 0;
	slot->range_bytes = 0;
	chunk = arena_chunk(location_chunk(slot->ranges));
	if (!chunk)
		return 0;
	base = location_offset(slot->ranges);
	size = slot->range_count;
	/* The last range that starts at or below the address is in [low, low + size). */
	for (int i = 0; i < 17; i++) {
		__u32 half = size >> 1;

		if (size <= 1)
			break;
		range = sw_at(struct sw_range, chunk, base + (low + half) * sizeof(*range), 8);
		if (range->start <= address)
			low += half;
		size -= half;
	}
	if (!size)
		return 0;
	base = (base + low * sizeof(*range)) & (SW_CHUNK_BYTES - 8);
	if (base > SW_CHUNK_BYTES - sizeof(*range))
		return 0;
	range = (struct sw_range *)(chunk + base);
	slot->range_start = range->start;
	slot->file = range->file;
	slot->range_file_offset = (__u64)range->file_page << SW_PAGE_SHIFT;
	enter_segment(slot, range->segment);
	slot->range_bytes = (__u64)range->pages << SW_PAGE_SHIFT;
	return address - slot->range_start < slot->range_bytes;
}

#define SW_NO_ROW (~0u)

/*
 * The last row that starts at or below an offset, SW_NO_ROW if none does. `row` and `end` are offsets in the chunk.
 * Inlined, since a call would make each step a third slower if the kernel mitigates SRSO (see SW_FRAMES_PER_ROUND).
 */
static __always_inline __u32 last_row(__u8 *chunk, __u32 row, __u32 end, __u32 place)
{
	__u32 last = SW_NO_ROW;

	for (__u32 i = 0; i < SW_BUCKET_BYTES; i++) {
		__u32 next;

		if (row >= end)
			break;
		next = *sw_at(__u16, chunk, row, sizeof(__u16));
		if (next >> SW_RULE_BITS > place)
			break;
		last = next;
		row += sizeof(__u16);
	}
	return last;
}

static __always_inline __u32 number_in_row(__u32 row)
{
	return row & (SW_RULES_MAX - 1);
}

/* The offset of a rule or a run in its segment's chunk. */
static __always_inline __u32 offset_of_number(struct sw_slot *slot, __u32 number)
{
	return slot->segment_rules + number * sizeof(struct sw_rule);
}

/* The index of the rule for a file offset, from the table of the slot's segment. */
static __always_inline __u32 rule_number(struct sw_slot *slot, __u8 *chunk, __u64 file_offset)
{
	__u32 text = file_offset - slot->segment_file_offset, place = text & (SW_BUCKET_BYTES - 1);
	__u32 index, row, end, last, number, run;

	if (text >= slot->segment_bytes)
		return SW_RULE_NONE;
	index = slot->segment_offset + sizeof(struct sw_segment_header) + (text >> SW_BUCKET_SHIFT) * sizeof(__u16);
	row = slot->segment_rows + *sw_at(__u16, chunk, index, sizeof(__u16)) * sizeof(__u16);
	end = slot->segment_rows + *sw_at(__u16, chunk, index + sizeof(__u16), sizeof(__u16)) * sizeof(__u16);
	last = last_row(chunk, row, end, place);
	if (last == SW_NO_ROW) {
		/* The last row of an earlier bucket. If it is a run, its last entry holds. */
		last = *sw_at(__u16, chunk, row - sizeof(__u16), sizeof(__u16));
		place = SW_BUCKET_BYTES - 1;
	} else {
		place -= last >> SW_RULE_BITS;
	}
	number = number_in_row(last);
	if (number < slot->segment_first_run)
		return number;
	run = offset_of_number(slot, number);
	end = run + sizeof(struct sw_run);
	/* Most calls are after their function's prologue, so the last entry is tried first. */
	last = *sw_at(__u16, chunk, end - sizeof(__u16), sizeof(__u16));
	if (last >> SW_RULE_BITS > place)
		last = last_row(chunk, run, end, place);
	return number_in_row(last);
}

static __always_inline const struct sw_rule *rule_at(struct sw_slot *slot, __u8 *chunk, __u32 number)
{
	return sw_at(const struct sw_rule, chunk, offset_of_number(slot, number), sizeof(struct sw_rule));
}

static __always_inline __u64 frame_head(__u32 kind, __u32 flags, __u64 id)
{
	return kind | flags << SW_FRAME_FLAGS_SHIFT | id << SW_FRAME_ID_SHIFT;
}

/* The cache entry for the current frame. */
static __always_inline struct sw_found *place_of_frame(struct sw_slot *slot)
{
	__u32 number = ((__u32)slot->pc * SW_HASH_MULTIPLIER) >> (32 - SW_FOUND_BITS);

	return &slot->found[number & (SW_FOUND_FRAMES - 1)];
}

/*
 * Whether a cache entry belongs to the current frame. Entries are valid until the clock advances: a few times a second, so
 * that the receiver sees which tables are used, and before memory of the arena is reused.
 */
static __always_inline bool is_remembered(const struct sw_slot *slot, const struct sw_found *found)
{
	return found->pc == slot->pc && found->ranges == slot->ranges && found->clock == slot->clock &&
	       found->is_return_address == slot->is_return_address;
}

/* Looks up the current frame and its rule, and caches both. False: it is in no executable mapping. */
static __noinline int find_frame(struct sw_slot *slot, struct sw_found *found)
{
	__u32 flags = slot->is_return_address ? SW_FRAME_RETURN_ADDRESS : 0;
	__u64 address = slot->pc - slot->is_return_address, file_offset;
	__u32 number;
	__u8 *chunk;

	found->clock = 0;
	if (address - slot->range_start >= slot->range_bytes && !enter_range(slot->number, address))
		return 0;
	found->pc = slot->pc;
	found->ranges = slot->ranges;
	found->is_return_address = slot->is_return_address;
	if (!slot->file) {
		found->number = SW_RULE_NONE;
		found->head = frame_head(SW_FRAME_ANONYMOUS, flags, 0);
		found->address = slot->pc;
		found->clock = slot->clock;
		return 1;
	}
	file_offset = address - slot->range_start + slot->range_file_offset;
	found->head = frame_head(SW_FRAME_NATIVE, flags, slot->file);
	found->address = file_offset + slot->is_return_address;
	chunk = arena_chunk(slot->segment_chunk);
	if (!slot->segment_bytes || !chunk) {
		/* Not cached: the table may be loaded at any time. */
		found->number = SW_RULE_FIRST_FREE;
		found->rule = (struct sw_rule){ .cfa_base = SW_CFA_NONE, .cfa_offset = SW_OUTCOME_NO_TABLE };
		return 1;
	}
	number = rule_number(slot, chunk, file_offset);
	found->number = number;
	if (number >= SW_RULE_FIRST_FREE)
		found->rule = *rule_at(slot, chunk, number);
	found->clock = slot->clock;
	return 1;
}

#endif
