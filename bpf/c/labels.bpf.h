/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Reads the labels of the running goroutine (pprof), or of a thread (custom-labels, ABI 1), whose set begins like a Go
 * slice. On a thread's own stack, as in the scheduler, its g isn't the goroutine's, so the goroutine is found through
 * the thread's m. It takes six reads of user memory to reach the labels, or seven where the g is in a register, one more for a
 * map, and two for each label.
 */
#ifndef SIDEWINDER_LABELS_BPF_H
#define SIDEWINDER_LABELS_BPF_H

#include "arch.bpf.h"
#include "maps.bpf.h"

#define SW_STRING_BYTES 16 /* a pointer and a length */
#define SW_GO_LENGTH_AT 8 /* in a string */
#define SW_CUSTOM_LENGTH_AT 0
#define SW_GO_M 48 /* in a g: Go 1.21 to 1.26 */
#define SW_GO_G0 0 /* in an m, likewise */
#define SW_GO_BUCKET_CELLS 8 /* of a map before Go 1.24: 8 hashes of one byte, then 8 keys, then 8 values */
#define SW_GO_BUCKET_BYTES (SW_GO_BUCKET_CELLS * (1 + 2 * SW_STRING_BYTES))
#define SW_GO_HASH_MIN 5 /* smaller ones mark empty cells */

/* A slice of pairs of strings: a key and a value. */
struct sw_label_slice {
	__u64 start, length;
};

/* The first fields of `runtime.hmap`, up to the pointer to its buckets. */
struct sw_go_map {
	__u64 count;
	__u8 flags, log_buckets;
	__u16 overflows;
	__u32 seed;
	__u64 buckets;
};

static __always_inline __u64 window_word(struct sw_slot *slot, __u32 at)
{
	return *(__u64 *)(slot->window + (at & (SW_STACK_WINDOW_BYTES - 8)));
}

/* Copies the string whose two words are at offset `at` of the window. Returns its length, or 0 if it exceeds `max` bytes. */
static __always_inline __u8 copy_string(char *to, __u32 max, struct sw_slot *slot, __u32 at, __u32 length_at)
{
	__u64 length = window_word(slot, at + length_at);
	__u64 start = window_word(slot, at + 8 - length_at);
	__u32 bytes = length;

	if (length > max)
		return 0;
	barrier_var(bytes);
	if (!bytes || bytes > max || bpf_probe_read_user(to, bytes, (void *)start))
		return 0;
	return bytes;
}

/*
 * Copies the strings at two offsets of the window into the key and the value of a label. Not static, and the slot is passed
 * by index: twelve strings, each present or not, are more paths than older verifiers can follow.
 */
__noinline int copy_label(__u32 number, __u32 i, __u32 key_at, __u32 value_at, __u32 length_at)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	struct sw_label *label;

	barrier_var(i);
	if (!slot || i >= SW_LABELS_MAX)
		return 0;
	label = &slot->labels[i];
	label->key_bytes = copy_string(label->key, sizeof(label->key), slot, key_at, length_at);
	label->value_bytes = copy_string(label->value, sizeof(label->value), slot, value_at, length_at);
	return 0;
}

static __always_inline bool copy_slice(struct sw_slot *slot, __u32 number, __u64 labels, __u32 length_at)
{
	struct sw_label_slice slice;
	__u32 bytes;

	if (bpf_probe_read_user(&slice, sizeof(slice), (void *)labels))
		return false;
	bytes = (slice.length < SW_LABELS_MAX ? slice.length : SW_LABELS_MAX) * 2 * SW_STRING_BYTES;
	barrier_var(bytes);
	if (!bytes)
		return true;
	if (bytes > SW_LABELS_MAX * 2 * SW_STRING_BYTES || bpf_probe_read_user(slot->window, bytes, (void *)slice.start))
		return false;
#pragma unroll
	for (__u32 i = 0; i < SW_LABELS_MAX; i++) {
		const __u32 at = i * 2 * SW_STRING_BYTES;

		if (at < bytes)
			copy_label(number, i, at, at + SW_STRING_BYTES, length_at);
	}
	return true;
}

static __always_inline bool follow(__u64 *pointer, __u64 offset)
{
	return !bpf_probe_read_user(pointer, sizeof(*pointer), (void *)(*pointer + offset)) && *pointer;
}

/* Copies labels from a map of one bucket, given a pointer to the map: of up to eight, those in the first cells. */
static __always_inline bool copy_map(struct sw_slot *slot, __u32 number, __u64 labels)
{
	struct sw_go_map map;

	if (!follow(&labels, 0) || bpf_probe_read_user(&map, sizeof(map), (void *)labels) || map.log_buckets || !map.buckets ||
	    bpf_probe_read_user(slot->window, SW_GO_BUCKET_BYTES, (void *)map.buckets))
		return false;
#pragma unroll
	for (__u32 i = 0; i < SW_LABELS_MAX; i++) {
		const __u32 at = SW_GO_BUCKET_CELLS + i * SW_STRING_BYTES;

		if (slot->window[i] >= SW_GO_HASH_MIN)
			copy_label(number, i, at, at + SW_GO_BUCKET_CELLS * SW_STRING_BYTES, SW_GO_LENGTH_AT);
	}
	return true;
}

/* The m of the interrupted thread; 0: none is known. */
static __always_inline __u64 thread_m(struct sw_slot *slot, struct sw_tls_variable *variable)
{
	__u64 m = variable->offset ? thread_pointer() : 0;

	if (m && follow(&m, variable->offset))
		return follow(&m, SW_GO_M) ? m : 0;
#ifdef SW_REG_GOROUTINE
	/* The register may hold anything in a thread that Go's runtime doesn't know: an m and its g0 point to each other. */
	__u64 back;

	m = slot->registers[SW_REG_GOROUTINE];
	if (!follow(&m, SW_GO_M))
		return 0;
	back = m;
	return follow(&back, SW_GO_G0) && follow(&back, SW_GO_M) && back == m ? m : 0;
#else
	return 0;
#endif
}

/* The address of the labels of the goroutine that the thread runs; 0 if it runs none, or one without labels. */
static __always_inline __u64 goroutine_labels(struct sw_slot *slot, struct sw_tls_variable *variable)
{
	__u64 curg = (variable->module & 0xff) * 8, labels = (variable->module >> 8) * 8, at = thread_m(slot, variable);

	return at && follow(&at, curg) && follow(&at, labels) ? at : 0;
}

/* Copies the labels at that address into the slot. */
static __always_inline void read_labels(struct sw_slot *slot, __u32 number, __u64 labels, __u16 model)
{
	__u32 length_at = model & SW_TLS_LABEL_SET ? SW_CUSTOM_LENGTH_AT : SW_GO_LENGTH_AT;
	__u8 keys_bytes = 0;

#pragma unroll
	for (__u32 i = 0; i < SW_LABELS_MAX; i++)
		slot->labels[i].key_bytes = 0;
	if (!(model == SW_TLS_GO_MAP ? copy_map(slot, number, labels) : copy_slice(slot, number, labels, length_at))) {
		slot->head.thread_contexts_unreadable++;
		return;
	}
#pragma unroll
	for (__u32 i = 0; i < SW_LABELS_MAX; i++)
		keys_bytes |= slot->labels[i].key_bytes;
	if (!keys_bytes)
		return;
	slot->context_flag = SW_SAMPLE_HAS_LABELS;
	slot->context_bytes = sizeof(slot->labels);
	slot->head.thread_contexts_read++;
}

#endif
