/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* x86-64: the functions that arch.bpf.h lists. */
#ifndef SIDEWINDER_ARCH_X86_64_BPF_H
#define SIDEWINDER_ARCH_X86_64_BPF_H

#include "../task.bpf.h"
#include <linux/bpf_perf_event.h>

/* ---- Registers ----------------------------------------------------------------------------------------- */

/* The code segment selector. */
typedef __u64 sw_abi;

#define SW_ABI_NONE 0
#define SW_ABI_NATIVE 0x33 /* __USER_CS */
#define SW_ABI_FOREIGN 0x23 /* __USER32_CS */

static __always_inline bool interrupted_user_mode(struct bpf_perf_event_data *ctx)
{
	return ctx->regs.cs & 3;
}

/* Field names differ between the registers of an interrupt (UAPI) and of a task (kernel-internal). */
#define SW_COPY_REGISTERS(to, from, AX, DX, CX, BX, SI, DI, BP, SP, IP)                                       \
	do {                                                                                                  \
		(to)[0] = (from)->AX;                                                                         \
		(to)[1] = (from)->DX;                                                                         \
		(to)[2] = (from)->CX;                                                                         \
		(to)[3] = (from)->BX;                                                                         \
		(to)[4] = (from)->SI;                                                                         \
		(to)[5] = (from)->DI;                                                                         \
		(to)[6] = (from)->BP;                                                                         \
		(to)[7] = (from)->SP;                                                                         \
		(to)[8] = (from)->r8;                                                                         \
		(to)[9] = (from)->r9;                                                                         \
		(to)[10] = (from)->r10;                                                                       \
		(to)[11] = (from)->r11;                                                                       \
		(to)[12] = (from)->r12;                                                                       \
		(to)[13] = (from)->r13;                                                                       \
		(to)[14] = (from)->r14;                                                                       \
		(to)[15] = (from)->r15;                                                                       \
		(to)[16] = (from)->IP;                                                                        \
	} while (0)

static __always_inline sw_abi registers_of_interrupt(__u64 *to, bpf_user_pt_regs_t *regs)
{
	SW_COPY_REGISTERS(to, regs, rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, rip);
	return regs->cs;
}

/*
 * The barrier keeps compilers from merging these loads with the ones in registers_of_interrupt into loads through a pointer to
 * either, which the verifier refuses.
 */
static __always_inline sw_abi registers_by_helper(struct sw_slot *slot)
{
	struct pt_regs___kernel *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	sw_abi abi = regs->cs & 0xffff;

	SW_COPY_REGISTERS(slot->registers, regs, ax, dx, cx, bx, si, di, bp, sp, ip);
	barrier();
	return abi;
}

/* Where the user registers of a task are while it is in the kernel, before Linux 5.15, which has a helper. */
static __always_inline struct pt_regs___kernel *registers_at_stack_top(struct task_struct *task)
{
	__u64 stack = (__u64)BPF_CORE_READ(task, stack);

	return (void *)(stack + SW_KERNEL_STACK_BYTES - bpf_core_type_size(struct pt_regs___kernel));
}

/* Likewise, with any kernel, of a task that is not necessarily the current one. */
static __always_inline struct pt_regs___kernel *registers_address(struct task_struct *task)
{
	if (sw_has_helper(task_pt_regs))
		return (void *)bpf_task_pt_regs(task);
	return registers_at_stack_top(task);
}

/* Reads the registers from the top of the task's kernel stack, using the window as a buffer. */
static __noinline sw_abi registers_on_kernel_stack(struct sw_slot *slot)
{
	struct pt_regs___kernel *regs = (void *)slot->window;
	struct task_struct *task = (void *)bpf_get_current_task();
	__u32 bytes = bpf_core_type_size(struct pt_regs___kernel);

	if (bytes > SW_STACK_WINDOW_BYTES || bpf_probe_read_kernel(slot->window, bytes, registers_at_stack_top(task)))
		return SW_ABI_NONE;
	SW_COPY_REGISTERS(slot->registers, regs, ax, dx, cx, bx, si, di, bp, sp, ip);
	return regs->cs & 0xffff;
}

/*
 * The user registers of a task that waits, with `scratch` as a buffer; false if they could not be read, or belong to a
 * 32-bit program.
 */
static __always_inline bool registers_of_waiting(__u64 *to, struct task_struct *task, void *scratch,
						 __u32 scratch_bytes)
{
	struct pt_regs___kernel *regs = scratch;
	__u32 bytes = bpf_core_type_size(struct pt_regs___kernel);

	if (bytes > scratch_bytes || bpf_probe_read_kernel(scratch, bytes, registers_address(task)))
		return false;
	SW_COPY_REGISTERS(to, regs, ax, dx, cx, bx, si, di, bp, sp, ip);
	return (regs->cs & 0xffff) == SW_ABI_NATIVE;
}

/* The user registers of the current task, which is in the kernel. */
static __always_inline sw_abi registers_of_task(struct sw_slot *slot)
{
	return sw_has_helper(task_pt_regs) ? registers_by_helper(slot) : registers_on_kernel_stack(slot);
}

/* The address of the thread's control block; 0 if unknown. */
static __always_inline __u64 thread_pointer(void)
{
	struct task_struct *task = current_task();

	if (!sw_has_thread_pointer())
		return 0;
	return sw_task(task, thread.fsbase);
}

static __always_inline bool is_pthread_of(__u64 thread, __u64 address)
{
	return thread == address;
}

/* ---- Contexts ------------------------------------------------------------------------------------------ */

/*
 * A variable of each CPU, or a member of one (Linux 6.2 to 6.14). Programs can only refer to variables that the kernel has the
 * address of, for which it needs CONFIG_KALLSYMS_ALL; so it is found from the run queue of the CPU.
 */
static __always_inline bool read_preempt_count(__u32 *count)
{
	const struct task_struct *task = (void *)bpf_get_current_task();
	__u64 address = (__u64)BPF_CORE_READ(task, se.cfs_rq, rq) + preempt_count_from_rq;

	if (bpf_core_field_exists(struct pcpu_hot, preempt_count))
		address += bpf_core_field_offset(struct pcpu_hot, preempt_count);
	return !bpf_probe_read_kernel(count, sizeof(*count), (void *)address);
}

/* ---- System calls -------------------------------------------------------------------------------------- */

/* The kernel stores the number there when a system call begins, and -1 at interrupts and exceptions. */
static __always_inline __s64 system_call_number(void)
{
	struct pt_regs___kernel *regs;

	if (sw_has_helper(task_pt_regs)) {
		regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
		return regs->orig_ax;
	}
	regs = registers_at_stack_top((void *)bpf_get_current_task());
	return BPF_CORE_READ(regs, orig_ax);
}

/* As system_call_number, of a task that waits. */
static __always_inline __s64 system_call_of(struct task_struct *task)
{
	return BPF_CORE_READ(registers_address(task), orig_ax);
}

#define SW_FUTEX_CALL 202

/* futex_wake and futex_requeue, since Linux 6.7. */
static __always_inline bool is_futex_wake_call(__s64 number)
{
	return number == 454 || number == 456;
}

static __always_inline void read_futex_arguments(struct pt_regs___kernel *regs, __u64 *address, __u32 *operation,
						 __u32 *value)
{
	*address = BPF_CORE_READ(regs, di);
	*operation = BPF_CORE_READ(regs, si);
	*value = BPF_CORE_READ(regs, dx);
}

/* Whether the current task is in futex(2); then sets the first three arguments of the call. */
static __always_inline bool futex_arguments(__u64 *address, __u32 *operation, __u32 *value)
{
	struct pt_regs___kernel *regs;

	if (system_call_number() != SW_FUTEX_CALL)
		return false;
	if (sw_has_helper(task_pt_regs)) {
		regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
		*address = regs->di;
		*operation = regs->si;
		*value = regs->dx;
		return true;
	}
	read_futex_arguments(registers_at_stack_top((void *)bpf_get_current_task()), address, operation, value);
	return true;
}

/* As futex_arguments, of a task that waits. */
static __always_inline bool futex_arguments_of(struct task_struct *task, __u64 *address, __u32 *operation,
					       __u32 *value)
{
	if (system_call_of(task) != SW_FUTEX_CALL)
		return false;
	read_futex_arguments(registers_address(task), address, operation, value);
	return true;
}

#define SW_SYSTEM_CALLS 512 /* a power of two; numbers are below it */

/* By the numbers of arch/x86/entry/syscalls/syscall_64.tbl. */
static const __u8 wait_causes[SW_SYSTEM_CALLS] = {
	[0] = SW_CAUSE_READ, /* read */
	[1] = SW_CAUSE_WRITE, /* write */
	[2] = SW_CAUSE_OPEN, /* open */
	[7] = SW_CAUSE_POLL, /* poll */
	[17] = SW_CAUSE_READ, /* pread64 */
	[18] = SW_CAUSE_WRITE, /* pwrite64 */
	[19] = SW_CAUSE_READ, /* readv */
	[20] = SW_CAUSE_WRITE, /* writev */
	[23] = SW_CAUSE_POLL, /* select */
	[34] = SW_CAUSE_SIGNAL, /* pause */
	[35] = SW_CAUSE_SLEEP, /* nanosleep */
	[40] = SW_CAUSE_WRITE, /* sendfile */
	[42] = SW_CAUSE_CONNECT, /* connect */
	[43] = SW_CAUSE_ACCEPT, /* accept */
	[44] = SW_CAUSE_SEND, /* sendto */
	[45] = SW_CAUSE_RECEIVE, /* recvfrom */
	[46] = SW_CAUSE_SEND, /* sendmsg */
	[47] = SW_CAUSE_RECEIVE, /* recvmsg */
	[61] = SW_CAUSE_CHILD, /* wait4 */
	[65] = SW_CAUSE_IPC, /* semop */
	[69] = SW_CAUSE_IPC, /* msgsnd */
	[70] = SW_CAUSE_IPC, /* msgrcv */
	[72] = SW_CAUSE_FILE_LOCK, /* fcntl */
	[73] = SW_CAUSE_FILE_LOCK, /* flock */
	[74] = SW_CAUSE_SYNC, /* fsync */
	[75] = SW_CAUSE_SYNC, /* fdatasync */
	[128] = SW_CAUSE_SIGNAL, /* rt_sigtimedwait */
	[130] = SW_CAUSE_SIGNAL, /* rt_sigsuspend */
	[162] = SW_CAUSE_SYNC, /* sync */
	[202] = SW_CAUSE_FUTEX, /* futex */
	[208] = SW_CAUSE_ASYNC_IO, /* io_getevents */
	[220] = SW_CAUSE_IPC, /* semtimedop */
	[230] = SW_CAUSE_SLEEP, /* clock_nanosleep */
	[232] = SW_CAUSE_POLL, /* epoll_wait */
	[247] = SW_CAUSE_CHILD, /* waitid */
	[257] = SW_CAUSE_OPEN, /* openat */
	[270] = SW_CAUSE_POLL, /* pselect6 */
	[271] = SW_CAUSE_POLL, /* ppoll */
	[277] = SW_CAUSE_SYNC, /* sync_file_range */
	[281] = SW_CAUSE_POLL, /* epoll_pwait */
	[288] = SW_CAUSE_ACCEPT, /* accept4 */
	[295] = SW_CAUSE_READ, /* preadv */
	[296] = SW_CAUSE_WRITE, /* pwritev */
	[299] = SW_CAUSE_RECEIVE, /* recvmmsg */
	[306] = SW_CAUSE_SYNC, /* syncfs */
	[307] = SW_CAUSE_SEND, /* sendmmsg */
	[327] = SW_CAUSE_READ, /* preadv2 */
	[328] = SW_CAUSE_WRITE, /* pwritev2 */
	[333] = SW_CAUSE_ASYNC_IO, /* io_pgetevents */
	[426] = SW_CAUSE_ASYNC_IO, /* io_uring_enter */
	[437] = SW_CAUSE_OPEN, /* openat2 */
	[441] = SW_CAUSE_POLL, /* epoll_pwait2 */
	[449] = SW_CAUSE_FUTEX, /* futex_waitv */
	[455] = SW_CAUSE_FUTEX, /* futex_wait */
};

/* Addresses have no signatures. */
#define code_address(address) (address)
/* Nor tags: the kernel doesn't let programs have the CPU ignore any bits unless they ask for it. */
#define data_address(address) (address)

/* ---- Calls --------------------------------------------------------------------------------------------- */

#define SW_CALL_BYTES 8 /* bytes to read: the longest call without prefixes, FF /2 with SIB and disp32, has 7 */
#define SW_CALL_REL32_BYTES 5 /* E8 rel32 */

/* The byte at `distance` (1 to SW_CALL_BYTES) before the return address, from the SW_CALL_BYTES bytes in `code`. */
static __always_inline __u8 byte_before(__u64 code, __u32 distance)
{
	return code >> (8 * (SW_CALL_BYTES - distance));
}

/* The length of an indirect call (FF /2); 0 if it isn't one. Intel SDM, volume 2, section 2.1.5. */
static __always_inline __u32 indirect_call_bytes(__u8 modrm, __u8 sib)
{
	__u32 mod = modrm >> 6, rm = modrm & 7, with_sib = rm == 4;

	if ((modrm & 0x38) != 0x10)
		return 0;
	if (mod == 3)
		return 2;
	if (mod == 2)
		return 6 + with_sib;
	if (mod == 1)
		return 3 + with_sib;
	if (rm == 5 || (with_sib && (sib & 7) == 5))
		return 6 + with_sib;
	return 2 + with_sib;
}

static __always_inline bool is_indirect_call(__u64 code)
{
	bool found = byte_before(code, 2) == 0xff && indirect_call_bytes(byte_before(code, 1), 0) == 2;

#pragma unroll
	for (__u32 bytes = 3; bytes < SW_CALL_BYTES; bytes++)
		found |= byte_before(code, bytes) == 0xff &&
			 indirect_call_bytes(byte_before(code, bytes - 1), byte_before(code, bytes - 2)) == bytes;
	return found;
}

/*
 * Whether a call instruction ends at an address, in front of which are these SW_CALL_BYTES bytes. *target is the call's target, or 0
 * if the instruction doesn't contain it, or can be decoded in two ways.
 */
static __always_inline int is_call(__u64 code, __u64 address, __u64 *target)
{
	*target = 0;
	if (is_indirect_call(code))
		return 1;
	if (byte_before(code, SW_CALL_REL32_BYTES) != 0xe8)
		return 0;
	*target = address + (__s32)(code >> 32);
	return 1;
}

/* The same of an address of the process. Code that can't be read counts as no call. */
static __noinline int is_after_call(__u64 address, __u64 *target)
{
	__u64 code;

	*target = 0;
	if (bpf_probe_read_user(&code, sizeof(code), (void *)(address - SW_CALL_BYTES)))
		return 0;
	return is_call(code, address, target);
}

#endif
