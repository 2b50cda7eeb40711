/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Building a stack from the leaf: frames in the slot, a running hash over them, and sending them to the receiver.
 *
 * A body is sent once per epoch; every sample refers to its stack by hash. A stack longer than a chunk is a chain: a body
 * that lists the hashes of its chunks, so that deep recursion sends few distinct chunks.
 */
#ifndef SIDEWINDER_STACK_BPF_H
#define SIDEWINDER_STACK_BPF_H

#include "maps.bpf.h"

static __always_inline __u64 mix(__u64 hash, __u64 word, __u64 key)
{
	hash = (hash ^ word) * key;
	return hash ^ (hash >> 29);
}

/*
 * The lanes absorb two combinations of the words that together lose no information: their determinant,
 * 1 - key[0] * (key[2] << 1), is odd, so it has an inverse modulo 2^64.
 */
static __always_inline void absorb(struct sw_hash *hash, __u64 a, __u64 b)
{
	hash->lo = mix(hash->lo, a + b * hash_key[0], hash_key[1]);
	hash->hi = mix(hash->hi, b + a * (hash_key[2] << 1), hash_key[3]);
}

static __always_inline struct sw_hash hash_seed(__u32 type)
{
	struct sw_hash seed = { .lo = hash_key[2] + type, .hi = hash_key[0] ^ type };

	return seed;
}

/*
 * The flags that decide whether a record wakes the receiver. The receiver polls the rings; only a record that starts another
 * quarter of the ring wakes it. Sizes of rings are powers of two, so this needs no division.
 */
static __always_inline __u64 wakeup(__u64 bytes_before, __u64 bytes, __u64 bytes_of_ring)
{
	__u64 bytes_after = bytes_before + ((BPF_RINGBUF_HDR_SZ + bytes + 7) & ~7ull);

	return (bytes_before ^ bytes_after) >= bytes_of_ring / 4 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* The same for a record that is about to be written to a CPU's ring. */
static __always_inline __u64 wakeup_of(void *ring, __u32 bytes)
{
	return wakeup(bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA), bytes, ring_bytes);
}

/*
 * Sends a record of at most `most` bytes through this CPU's ring. Verifiers before Linux 5.16 lose the bounds of values that
 * compilers spill to the stack, so the bound is checked last.
 */
static __always_inline bool send(void *ring, void *record, __u32 bytes, const __u32 most)
{
	__u64 flags = wakeup_of(ring, bytes);

	barrier_var(bytes);
	return bytes <= most && bpf_ringbuf_output(ring, record, bytes, flags) == 0;
}

/*
 * The set of a hash, and below, whether it contains the hash in this epoch. An entry is valid while its epoch is the current
 * one: the epoch is read first, and written last. A torn entry, written by two CPUs at once, equals neither hash.
 */
static __always_inline struct sw_known_set *known_set(const struct sw_hash *hash)
{
	__u32 number = (__u32)hash->lo & known_mask;

	return bpf_map_lookup_elem(&known_stacks, &number);
}

static __always_inline bool is_known(struct sw_known_set *set, const struct sw_hash *hash, __u32 epoch)
{
#pragma unroll
	for (int i = 0; i < SW_KNOWN_WAYS; i++)
		if (smp_load_acquire(&set->ways[i].epoch) == epoch && READ_ONCE(set->ways[i].lo) == hash->lo &&
		    READ_ONCE(set->ways[i].hi) == (__u32)hash->hi)
			return true;
	return false;
}

/* Adds a hash to its set. Replaces an entry of an older epoch, otherwise one that the hash selects. */
static __always_inline void remember(struct sw_known_set *set, const struct sw_hash *hash, __u32 epoch)
{
	__u32 way = (hash->hi >> 32) & (SW_KNOWN_WAYS - 1);

#pragma unroll
	for (__u32 i = 0; i < SW_KNOWN_WAYS; i++)
		if (READ_ONCE(set->ways[i].epoch) != epoch)
			way = i;
	way &= SW_KNOWN_WAYS - 1;
	WRITE_ONCE(set->ways[way].epoch, 0);
	smp_wmb();
	WRITE_ONCE(set->ways[way].lo, hash->lo);
	WRITE_ONCE(set->ways[way].hi, hash->hi);
	smp_store_release(&set->ways[way].epoch, epoch);
}

/*
 * Sends the body in the slot unless it is known, and adds it to the known stacks only after sending it: so if a sample's
 * stack is known, its body was sent before. The body is `count` entries of 16 bytes, frames or hashes.
 */
static __noinline int send_body(struct sw_slot *slot, __u32 type)
{
	struct sw_known_set *set = known_set(&slot->hash);
	struct sw_cpu *cpu = this_cpu();
	__u32 epoch, count = slot->count;
	void *ring;

	if (!set || !cpu)
		return 0;
	epoch = READ_ONCE(cpu->epoch);
	if (is_known(set, &slot->hash, epoch)) {
		slot->head.stacks_known++;
		return 1;
	}
	ring = this_ring();
	if (!ring)
		return 0;
	slot->body.type = type;
	slot->body.count = count;
	slot->body.epoch = epoch;
	slot->body.hash = slot->hash;
	if (!send(ring, &slot->body, sizeof(slot->body) + count * sizeof(struct sw_frame),
		  sizeof(slot->body) + sizeof(slot->frames)))
		return 0;
	remember(set, &slot->hash, epoch);
	slot->head.stacks_sent++;
	return 1;
}

static __always_inline void start_stack(struct sw_slot *slot)
{
	slot->count = 0;
	slot->chunks = 0;
	slot->depth = 0;
	slot->hash = hash_seed(SW_RECORD_STACK);
}

/*
 * Ends the current chunk and appends its hash to the chain. Not static: the verifier checks it once, and not for each place that
 * pushes a frame.
 */
__noinline int end_chunk(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u32 chunk;

	if (!slot)
		return 0;
	chunk = slot->chunks;
	if (chunk >= SW_CHAIN_CHUNKS || !send_body(slot, SW_RECORD_STACK))
		return 0;
	slot->chain[chunk & (SW_CHAIN_CHUNKS - 1)] = slot->hash;
	slot->chunks = chunk + 1;
	slot->count = 0;
	slot->hash = hash_seed(SW_RECORD_STACK);
	return 1;
}

/* Writes a frame into the current chunk and adds it to a hash. */
static __always_inline void put_frame(struct sw_slot *slot, struct sw_hash *hash, __u32 at, __u64 head, __u64 address)
{
	slot->frames[at & (SW_CHUNK_FRAMES - 1)].head = head;
	slot->frames[at & (SW_CHUNK_FRAMES - 1)].address = address;
	absorb(hash, head, address);
}

/* Appends the next frame towards the root. False: the chain or the ring has no room for the chunk that is full. */
static __always_inline bool push_frame(struct sw_slot *slot, __u64 head, __u64 address)
{
	__u32 at = slot->count;

	if (at >= SW_CHUNK_FRAMES) {
		if (!end_chunk(slot->number))
			return false;
		at = 0;
	}
	put_frame(slot, &slot->hash, at, head, address);
	slot->count = at + 1;
	slot->depth++;
	return true;
}

/* Ends the stack: slot->hash is then its hash, which covers the outcome, and its bodies are sent. */
static __always_inline bool end_stack(struct sw_slot *slot, __u32 outcome)
{
	absorb(&slot->hash, outcome, slot->depth);
	if (slot->chunks == 0)
		return send_body(slot, SW_RECORD_STACK);
	if (!end_chunk(slot->number))
		return false;

	slot->hash = hash_seed(SW_RECORD_CHAIN);
	for (__u32 i = 0; i < SW_CHAIN_CHUNKS; i++) {
		if (i >= slot->chunks)
			break;
		slot->frames[i].head = slot->chain[i].lo;
		slot->frames[i].address = slot->chain[i].hi;
		absorb(&slot->hash, slot->chain[i].lo, slot->chain[i].hi);
	}
	slot->count = slot->chunks;
	return send_body(slot, SW_RECORD_CHAIN);
}

#endif
