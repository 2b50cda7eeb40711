// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Reads the memory of another process, for a receiver that may not by ptrace(2). This is the same power: so each run is for
 * one process, identified by its id and start time, which is in the receiver's pod, if that has one.
 *
 * The programs are iterators. The receiver writes a batch, and runs a program on its own thread by reading from an iterator
 * over one task, or over the mappings of one task (since Linux 6.1). Absent pages are faulted in; the thread sleeps meanwhile.
 *
 * While a sleepable program waits, the kernel neither frees such programs nor removes uprobes, of anyone. So it must not wait
 * for a file system that may never answer: memory of those is left to the system call. A process that changes the mapping
 * after the check can still cause such a wait, if it has such a file system.
 */
#include "atomic.bpf.h"
#include "identity.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SW_READ_BATCHES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sw_read_batch);
} read_batches SEC(".maps");

typedef __u8 sw_read_data[SW_READ_DATA_BYTES];

/* By number of the batch. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SW_READ_BATCHES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, sw_read_data);
} read_data SEC(".maps");

/* What the kernel passes to this kind of iterator: bpf_iter__task_vma. */
struct sw_iter_task_vma {
	void *meta;
	struct task_struct *task; /* NULL at the end, as is the mapping */
	struct vm_area_struct *vma;
};

#define EINVAL 22
#define EREMOTE 66
#define VM_EXEC 4 /* include/linux/mm.h */

/* The batch of the thread that runs this, and its number. */
static __always_inline struct sw_read_batch *own_batch(__u32 *found)
{
	__u32 reader = thread_id((void *)bpf_get_current_task_btf());

	for (__u32 i = 0; i < SW_READ_BATCHES; i++) {
		__u32 number = i;
		struct sw_read_batch *batch = bpf_map_lookup_elem(&read_batches, &number);

		if (batch && READ_ONCE(batch->reader) == reader) {
			*found = i;
			return batch;
		}
	}
	return NULL;
}

/* Whether the task belongs to the process that the batch is for. */
static __always_inline bool is_wanted(struct task_struct *task, struct sw_read_batch *batch)
{
	return process_id(task) == batch->pid && is_start_time(process_start_ns(task), batch->start_ns) &&
	       is_task_in_pod(task);
}

/* <linux/magic.h>; the superblocks of btrfs, bcachefs and ZFS name no block device. */
static __always_inline bool is_local(const struct super_block *sb)
{
	__u64 magic = (__u32)BPF_CORE_READ(sb, s_magic);

	switch (magic) {
	case 0x65735546: /* FUSE, which may have a block device */
		return false;
	case 0x01021994: /* tmpfs, and memory without a name that is shared */
	case 0x858458f6: /* ramfs */
	case 0x958458f6: /* hugetlbfs */
	case 0x9123683e: /* btrfs */
	case 0xca451a4e: /* bcachefs */
	case 0x2fc12fc1: /* ZFS */
		return true;
	default:
		return BPF_CORE_READ(sb, s_bdev) != NULL;
	}
}

static long check_backing(struct task_struct *task, struct vm_area_struct *vma, void *is_remote)
{
	if (vma->vm_file && !is_local(BPF_CORE_READ(vma, vm_file, f_inode, i_sb)))
		*(bool *)is_remote = true;
	return 0;
}

/*
 * 0 if reading up to one page from here waits for no file system that may never answer, nor for a process that is changing its
 * mappings; else an error.
 */
static __always_inline long check_wait(struct task_struct *task, __u64 address, __u32 bytes)
{
	bool is_remote = false;
	long error;

	/* since Linux 5.17 */
	error = bpf_find_vma(task, address, check_backing, &is_remote, 0);
	/* It may begin in one mapping and end in another. */
	if (!error && bytes > 1)
		error = bpf_find_vma(task, address + bytes - 1, check_backing, &is_remote, 0);
	if (error)
		return error;
	return is_remote ? -EREMOTE : 0;
}

SEC("iter.s/task")
int read_memory(struct sw_iter_task *ctx)
{
	struct task_struct *task = ctx->task;
	__u32 number = 0;
	struct sw_read_batch *batch = task ? own_batch(&number) : NULL;
	__u8 *data = batch ? bpf_map_lookup_elem(&read_data, &number) : NULL;

	if (!task || !batch || !data || !is_wanted(task, batch))
		return 0;
	batch->error = 0;
	for (__u32 i = 0; i < SW_READS_MAX && i < batch->count; i++) {
		struct sw_read *read = &batch->reads[i];
		__u32 bytes = READ_ONCE(read->bytes);

		if (bytes > SW_READ_BYTES_MAX) {
			read->error = -EINVAL;
			continue;
		}
		read->error = check_wait(task, read->address, bytes);
		if (read->error)
			continue;
		/* since Linux 5.18 */
		read->error = bpf_copy_from_user_task(data + i * SW_READ_BYTES_MAX, bytes,
						      (void *)read->address, task, 0);
	}
	return 0;
}

/* Whether a mapping has a name that "Process Context" (OTEP 4719) defines, and is not executable. */
static __always_inline bool is_context(struct vm_area_struct *vma)
{
	static const char anonymous[] = "OTEL_CTX", file[] = "memfd:OTEL_CTX";
	const char *kernel_name = NULL;
	char name[sizeof(file) + 1] = {}; /* so that a longer name differs */

	if (vma->vm_flags & VM_EXEC)
		return false;
	if (vma->vm_file) {
		kernel_name = (void *)BPF_CORE_READ(vma, vm_file, f_path.dentry, d_name.name);
		if (bpf_probe_read_kernel_str(name, sizeof(name), kernel_name) == sizeof(file) &&
		    !bpf_strncmp(name, sizeof(name), file))
			return true;
	}
	if (!bpf_core_field_exists(struct vm_area_struct, anon_name))
		return false;
	kernel_name = (void *)BPF_CORE_READ(vma, anon_name);
	if (!kernel_name)
		return false;
	kernel_name += bpf_core_field_offset(struct anon_vma_name, name);
	return bpf_probe_read_kernel_str(name, sizeof(name), kernel_name) == sizeof(anonymous) &&
	       !bpf_strncmp(name, sizeof(name), anonymous);
}

SEC("iter/task_vma")
int find_contexts(struct sw_iter_task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	__u32 number, count;
	struct sw_read_batch *batch = task && vma ? own_batch(&number) : NULL;

	if (!task || !vma || !batch || !is_wanted(task, batch))
		return 0;
	batch->error = 0;
	count = READ_ONCE(batch->count);
	if (count < SW_CONTEXTS_MAX && is_context(vma)) {
		batch->contexts[count] = vma->vm_start;
		batch->count = count + 1;
	}
	return 0;
}
