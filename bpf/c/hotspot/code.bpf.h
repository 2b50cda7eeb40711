/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * HotSpot's code cache: which blob of machine code contains an address. A blob is a compiled method (nmethod), a stub, an
 * adapter, or the interpreter. The process needs no agent for this: the segment map of each heap leads from an address to
 * the blob's header.
 */
#ifndef SIDEWINDER_HOTSPOT_CODE_BPF_H
#define SIDEWINDER_HOTSPOT_CODE_BPF_H

#include "../call.bpf.h"
#include "../cookie.bpf.h"
#include "../table.bpf.h"
#include "../vm_memory.bpf.h"

_Static_assert(SW_BLOB_BYTES <= SW_VM_WINDOW_BYTES, "a blob's header fits the window");

#define SW_SEGMENT_FREE 0xff

static __always_inline bool is_in_interpreter(const struct sw_hotspot *hotspot, __u64 address)
{
	return address - hotspot->interpreter < hotspot->interpreter_bytes;
}

static __always_inline bool is_in_code_cache(const struct sw_hotspot *hotspot, __u64 address)
{
	return address - hotspot->code_start < hotspot->code_bytes;
}

/*
 * The byte of a segment map, which starts at an address, for a segment; negative if it can't be read. Read with it are those to which
 * it may lead, none of which are before the map: a read of a page that was never touched takes as long as five. Not static: the
 * verifier checks it once.
 */
__noinline int segment_byte(__u32 number, __u64 segments, __u64 segment)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u64 address = segments + segment;
	__u32 bytes = segment < SW_SEGMENT_FREE ? segment + 1 : SW_SEGMENT_FREE + 1;

	if (!slot || !scratch)
		return -1;
	if (address - slot->vm_window.start >= slot->vm_window.bytes &&
	    !read_vm_window(slot, scratch, address + 1 - bytes, bytes))
		return -1;
	return vm_byte(slot, scratch, address);
}

/* The address of the block that contains an address of a heap; 0 if there is none. */
static __always_inline __u64 find_block(__u32 number, const struct sw_hotspot *hotspot, __u64 address)
{
	__u64 start = 0, segments = 0, segment;

#pragma unroll
	for (__u32 i = 0; i < SW_CODE_HEAPS; i++) {
		if (address - hotspot->heaps[i].start < hotspot->heaps[i].bytes) {
			start = hotspot->heaps[i].start;
			segments = hotspot->heaps[i].segments;
		}
	}
	if (!start)
		return 0;
	segment = (address - start) >> (hotspot->segment_shift & 63);
	for (__u32 i = 0; i < SW_SEGMENT_HOPS; i++) {
		int back = segment_byte(number, segments, segment);

		if (!back)
			return start + (segment << (hotspot->segment_shift & 63));
		if (back < 0 || back == SW_SEGMENT_FREE || (__u64)back > segment)
			break;
		segment -= back;
	}
	return 0;
}

/* The address in a blob that a field states: as a pointer, or as an offset from the blob. */
static __always_inline __u64 blob_address(const struct sw_slot *slot, const struct sw_vm_scratch *scratch,
					  const struct sw_hotspot *hotspot, __u64 blob, __u16 field)
{
	__u64 word = vm_word(slot, scratch, blob + field);

	return hotspot->has_offsets ? blob + (__s32)word : word;
}

/*
 * Reads the blob that starts at an address into the scratch memory, if its code contains another one. Returns 0 if it doesn't. Not
 * static: the verifier checks it once.
 */
__noinline int read_blob(__u32 number, __u64 start, __u64 address)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_HOTSPOT) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	const struct sw_hotspot *hotspot;
	__u64 word, cookie;
	__u32 size;
	struct sw_blob *blob;

	if (!runtime || !scratch)
		return 0;
	hotspot = &runtime->hotspot;
	blob = &scratch->hotspot.blob;
	if (!read_vm_window(slot, scratch, start, SW_BLOB_BYTES))
		return 0;
	size = vm_word(slot, scratch, start + hotspot->size);
	blob->address = start;
	blob->code = blob_address(slot, scratch, hotspot, start, hotspot->code);
	if (address - start >= size || blob->code <= start || blob->code > address)
		return 0;
	blob->frame_words = vm_word(slot, scratch, start + hotspot->frame_size);
	word = vm_word(slot, scratch, start + hotspot->frame_complete);
	blob->frame_complete = hotspot->frame_complete_is_short ? (__s16)word : (__s32)word;
	blob->handlers[0] = blob_address(slot, scratch, hotspot, start, hotspot->deopt_handlers[0]);
	blob->handlers[1] = blob_address(slot, scratch, hotspot, start, hotspot->deopt_handlers[1]);
	blob->original_pc = vm_word(slot, scratch, start + hotspot->original_pc);
	/*
	 * Whether the blob is a method is in its name, which may not be in memory. If it is none, what is read in the place of a
	 * method's fields is code.
	 */
	cookie = add_to_cookie(0, vm_word(slot, scratch, start + hotspot->name));
	cookie = add_to_cookie(cookie, size);
	if (size >= hotspot->compile_id + sizeof(__u32) && size >= hotspot->method + sizeof(__u64)) {
		cookie = add_to_cookie(cookie, (__u32)vm_word(slot, scratch, start + hotspot->compile_id));
		cookie = add_to_cookie(cookie, vm_word(slot, scratch, start + hotspot->method));
	}
	blob->cookie = finished_cookie(cookie);
	return 1;
}

/*
 * Finds the blob that contains an address, and reads it into the scratch memory. Returns 0 if there is none. Not static: the
 * verifier checks it once.
 */
__noinline int find_blob(__u32 number, __u64 address)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_HOTSPOT) : 0;
	__u64 block;

	if (!runtime)
		return 0;
	block = find_block(number, &runtime->hotspot, address);
	return block && read_blob(number, block + runtime->hotspot.block_header_bytes, address);
}

enum sw_hotspot_caller {
	SW_CALLER_NONE = 0,
	SW_CALLER_NATIVE,
	SW_CALLER_GENERATED, /* in the code cache */
};

/*
 * Whether code may return to an address, as an sw_hotspot_caller: after a call, into the interpreter, which pushes return
 * addresses itself, or to a handler with which HotSpot has replaced the return address of a deoptimized function. The blob in
 * the scratch memory may be another one afterwards. Not static: the verifier checks it once.
 */
__noinline int may_return_to(__u32 number, __u64 address)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_HOTSPOT) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	bool is_generated;

	if (!runtime || !scratch)
		return 0;
	if (is_in_interpreter(&runtime->hotspot, address))
		return SW_CALLER_GENERATED;
	is_generated = is_in_code_cache(&runtime->hotspot, address);
	if (is_after_call_of(address, 0)) {
		if (is_generated)
			return SW_CALLER_GENERATED;
		return enter_range(slot->number, address - 1) ? SW_CALLER_NATIVE : SW_CALLER_NONE;
	}
	if (!is_generated || !find_blob(number, address))
		return SW_CALLER_NONE;
	if (address == scratch->hotspot.blob.handlers[0] || address == scratch->hotspot.blob.handlers[1])
		return SW_CALLER_GENERATED;
	return SW_CALLER_NONE;
}

#endif
