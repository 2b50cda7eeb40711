/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Reads the span that the interrupted thread publishes: a thread-local variable points to a record, or is null (OTEP 4947,
 * "Thread Context"). The thread doesn't run while it is read, so a record is either complete or marked as invalid. It takes
 * two reads of user memory if the variable is at an offset from the thread pointer, four through the dynamic thread vector,
 * and one more if the record crosses a page boundary.
 */
#ifndef SIDEWINDER_CONTEXT_BPF_H
#define SIDEWINDER_CONTEXT_BPF_H

#include "arch.bpf.h"
#include "labels.bpf.h"
#include "slot.bpf.h"
#include "table.bpf.h"
#include "tls.bpf.h"

_Static_assert(sizeof(struct sw_context) == SW_CONTEXT_BYTES, "as in the record");
_Static_assert(__builtin_offsetof(struct sw_context, attributes) == SW_CONTEXT_HEAD_BYTES, "as in the record");

/* Copies a record into the slot, with its attributes if they are read. */
static __always_inline bool copy_record(struct sw_slot *slot, __u64 record)
{
	__u32 wanted = reads_attributes ? SW_CONTEXT_BYTES : SW_CONTEXT_HEAD_BYTES;
	__u32 to_page_end = SW_PAGE_BYTES - (record & (SW_PAGE_BYTES - 1));
	__u32 attributes_bytes;

	if (to_page_end >= wanted)
		return !bpf_probe_read_user(&slot->context, wanted, (void *)record);
	if (bpf_probe_read_user(&slot->context, SW_CONTEXT_HEAD_BYTES, (void *)record))
		return false;
	attributes_bytes = slot->context.attributes_bytes;
	if (!reads_attributes || !attributes_bytes)
		return true;
	if (attributes_bytes > sizeof(slot->context.attributes))
		attributes_bytes = sizeof(slot->context.attributes);
	barrier_var(attributes_bytes);
	if (attributes_bytes > sizeof(slot->context.attributes))
		return true;
	/* The IDs are valid without the attributes. */
	if (bpf_probe_read_user(slot->context.attributes, attributes_bytes, (void *)(record + SW_CONTEXT_HEAD_BYTES)))
		slot->context.attributes_bytes = 0;
	return true;
}

/* How many bytes of the record in the slot to send; 0 if it names no span. */
static __always_inline __u32 context_bytes(struct sw_context *context)
{
	const __u64 *ids = (void *)context;
	__u32 attributes_bytes = reads_attributes ? context->attributes_bytes : 0;

	if (!(ids[0] | ids[1]) || !ids[2])
		return 0;
	if (attributes_bytes > sizeof(context->attributes))
		attributes_bytes = sizeof(context->attributes);
	return SW_CONTEXT_HEAD_BYTES + attributes_bytes;
}

/* Reads what a variable points to. True if it is the last variable to try: its pointer isn't null. */
static __always_inline bool read_variable(struct sw_slot *slot, __u32 number,
					  struct sw_tls_variable *variable)
{
	bool failed = false;
	__u64 address, record = 0;

	if (variable->model == SW_TLS_GO_SLICE || variable->model == SW_TLS_GO_MAP) {
		record = goroutine_labels(slot, variable);
	} else {
		address = variable_address(slot, variable, &failed);
		if (address)
			failed = bpf_probe_read_user(&record, sizeof(record), (void *)address);
	}
	if (!failed && !record)
		return false;
	record = data_address(record);
	if (!failed && variable->model >= SW_TLS_GO_SLICE) {
		read_labels(slot, number, record, variable->model);
		return true;
	}
	if (failed || !copy_record(slot, record)) {
		slot->head.thread_contexts_unreadable++;
		return record;
	}
	if (slot->context.valid != 1) {
		slot->head.thread_contexts_changing++;
		return true;
	}
	slot->context_flag = SW_SAMPLE_HAS_CONTEXT;
	slot->context_bytes = context_bytes(&slot->context);
	if (slot->context_bytes)
		slot->head.thread_contexts_read++;
	return true;
}

/*
 * Puts what the thread publishes into the slot of the sample. Overwrites the window. The verifier checks a non-static
 * function once, independently of its callers; before Linux 5.12 such functions only take integers, so the slot is looked
 * up again.
 */
__noinline int read_context(__u32 kind)
{
	__u32 number;
	struct sw_slot *slot = claimed_slot(kind, &number);
	__u8 *chunk;

	if (!slot)
		return 0;
	chunk = arena_chunk(location_chunk(slot->ranges));
	if (!chunk)
		return 0;
	for (__u32 i = 0; i < SW_TLS_VARIABLES_MAX; i++) {
		__u32 at = slot->variables_offset + i * sizeof(struct sw_tls_variable);

		if (i >= slot->variable_count ||
		    read_variable(slot, number, sw_at(struct sw_tls_variable, chunk, at, 8)))
			break;
	}
	return 0;
}

#endif
