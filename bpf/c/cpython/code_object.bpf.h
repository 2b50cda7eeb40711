/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Sends code objects of young processes to the receiver: such a process may be gone when its memory is read for names.
 */
#ifndef SIDEWINDER_CPYTHON_CODE_OBJECT_BPF_H
#define SIDEWINDER_CPYTHON_CODE_OBJECT_BPF_H

#include "../maps.bpf.h"
#include "../stack.bpf.h"
#include "../vm_memory.bpf.h"
#include "cookie.bpf.h"

static __always_inline bool is_young(const struct sw_slot *slot)
{
	return slot->time_ns - slot->started_ns < SW_YOUNG_NS;
}

/* The hash by which a code object of a process counts as sent. */
static __always_inline struct sw_hash hash_of_code(const struct sw_slot *slot, __u64 code, __u32 cookie)
{
	struct sw_hash hash = hash_seed(SW_RECORD_OBJECT);

	absorb(&hash, code, (__u64)slot->pid << 32 | cookie);
	absorb(&hash, slot->started_ns, 0);
	return hash;
}

/*
 * Sends the code object whose identity was read last, unless it was sent in this epoch. Returns whether it was: not if the
 * ring is half full, which leaves room for stacks, or if this sample has sent enough. Not static: the verifier checks it once.
 */
__noinline int send_code(__u32 number, __u64 code, __u32 cookie)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_CPYTHON) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	struct sw_cpu *cpu = this_cpu();
	const struct sw_cpython *cpython;
	struct sw_known_set *set;
	struct sw_object *object;
	struct sw_hash hash;
	void *ring = this_ring();
	__u64 wakeup_flags;
	__u32 epoch;

	if (!slot || !runtime || !scratch || !cpu || !ring)
		return 0;
	cpython = &runtime->cpython;
	hash = hash_of_code(slot, code, cookie);
	set = known_set(&hash);
	if (!set)
		return 0;
	epoch = READ_ONCE(cpu->epoch);
	if (is_known(set, &hash, epoch))
		return 1;
	if (slot->cpython.objects >= SW_OBJECTS_PER_SAMPLE)
		return 0;
	slot->cpython.objects++;
	object = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > ring_bytes / 2 ?
			 0 :
			 bpf_ringbuf_reserve(ring, sizeof(*object), 0);
	if (!object) {
		slot->head.vm_function_copies_dropped++;
		return 0;
	}
	wakeup_flags = wakeup_of(ring, sizeof(*object));
	object->type = SW_RECORD_OBJECT;
	object->pid = slot->pid;
	object->cookie = cookie;
	object->time_ns = slot->time_ns;
	object->address = code;
	if (bpf_probe_read_user(object->head, sizeof(object->head), (void *)code))
		__builtin_memset(object->head, 0, sizeof(object->head));
	__builtin_memcpy(object->identity, scratch->cpython.identity, sizeof(object->identity));
	object->name_bytes = read_object(object->name, sizeof(object->name), identity_word(scratch, cpython, cpython->name));
	object->path_bytes = read_object(object->path, sizeof(object->path), identity_word(scratch, cpython, cpython->path));
	object->lines_bytes =
		read_object(object->lines, sizeof(object->lines), identity_word(scratch, cpython, cpython->lines));
	bpf_ringbuf_submit(object, wakeup_flags);
	remember(set, &hash, epoch);
	slot->head.vm_function_copies_sent++;
	return 1;
}

#endif
