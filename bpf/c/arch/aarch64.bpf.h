/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * arm64: the functions that arch.bpf.h lists. They need Linux 5.17: before, walks are continued by tail calls, which the
 * kernel's JIT compiler for arm64 doesn't allow in programs with functions.
 */
#ifndef SIDEWINDER_ARCH_AARCH64_BPF_H
#define SIDEWINDER_ARCH_AARCH64_BPF_H

#include "../task.bpf.h"
#include <linux/bpf_perf_event.h>

/* ---- Registers ----------------------------------------------------------------------------------------- */

/* Bits of the saved program status (arch/arm64/include/uapi/asm/ptrace.h). */
#define SW_PSTATE_MODE 0xf /* 0: user mode */
#define SW_PSTATE_MODE32 0x10

typedef __u64 sw_abi;

#define SW_ABI_NONE 0
#define SW_ABI_NATIVE 1
#define SW_ABI_FOREIGN 2 /* a 32-bit program */

static __always_inline sw_abi abi_of_pstate(__u64 pstate)
{
	if (pstate & SW_PSTATE_MODE)
		return SW_ABI_NONE;
	return pstate & SW_PSTATE_MODE32 ? SW_ABI_FOREIGN : SW_ABI_NATIVE;
}

static __always_inline bool interrupted_user_mode(struct bpf_perf_event_data *ctx)
{
	return !(ctx->regs.pstate & SW_PSTATE_MODE);
}

/* A macro: the registers of an interrupt (UAPI) and of a task (kernel-internal) have different types. */
#define SW_COPY_REGISTERS(to, from)                                                                           \
	do {                                                                                                  \
		_Pragma("unroll") for (__u32 number = 0; number < SW_REG_SP; number++)(to)[number] =          \
			(from)->regs[number];                                                                 \
		(to)[SW_REG_SP] = (from)->sp;                                                                 \
		(to)[SW_REG_PC] = (from)->pc;                                                                 \
	} while (0)

static __always_inline sw_abi registers_of_interrupt(__u64 *to, bpf_user_pt_regs_t *regs)
{
	SW_COPY_REGISTERS(to, regs);
	return abi_of_pstate(regs->pstate);
}

/* From the stack pointer to the registers that a signal frame saves: see KERNEL_SIGNAL_FRAME in bpf/unwind-table. */
#define SW_SIGNAL_FRAME_REGISTERS_AT 312
#define SW_FIRST_CALLEE_SAVED 19 /* x19 (AAPCS64, section 6.1.1) */

/* A part of struct sigcontext, up to its first record, which has the floating-point registers. */
struct sw_signal_frame {
	__u64 callee_saved[SW_REG_FP - SW_FIRST_CALLEE_SAVED];
	__u64 fp, link, sp, pc;
	__u64 pstate, padding;
	__u32 magic;
};

#define SW_FPSIMD_MAGIC 0x46508001 /* arch/arm64/include/uapi/asm/sigcontext.h */

/*
 * To have a thread call a signal handler, the kernel writes a frame with all user registers, and then overwrites some of
 * these, one after the other: the stack pointer and the pc first, the link register last (setup_return in
 * arch/arm64/kernel/signal.c). In between, they belong to no frame: if there is such a frame at the stack pointer, and the
 * link register is still as it was, takes them from there. Its magic number tells it from the zeros and strings above the first
 * stack pointer of a program, whose other registers are zero.
 */
static __always_inline void undo_signal(struct sw_slot *slot)
{
	__u64 *registers = slot->registers;
	struct sw_signal_frame *frame = (void *)slot->window;
	__u64 at = registers[SW_REG_SP] + SW_SIGNAL_FRAME_REGISTERS_AT + SW_FIRST_CALLEE_SAVED * sizeof(__u64);

	if (registers[SW_REG_SP] % SW_STACK_ALIGNMENT_BYTES || bpf_probe_read_user(frame, sizeof(*frame), (void *)at) ||
	    frame->magic != SW_FPSIMD_MAGIC || frame->link != registers[SW_REG_LINK] || frame->sp == registers[SW_REG_SP])
		return;
	_Pragma("unroll") for (__u32 i = 0; i < SW_REG_FP - SW_FIRST_CALLEE_SAVED; i++)
		if (frame->callee_saved[i] != registers[SW_FIRST_CALLEE_SAVED + i])
			return;
	registers[SW_REG_FP] = frame->fp;
	registers[SW_REG_SP] = frame->sp;
	registers[SW_REG_PC] = frame->pc;
}

/*
 * The user registers of the current task, which is in the kernel. The barrier keeps compilers from merging these loads with
 * the ones in registers_of_interrupt into loads through a pointer to either, which the verifier refuses. Overwrites the window.
 */
static __always_inline sw_abi registers_of_task(struct sw_slot *slot)
{
	struct pt_regs___kernel *regs;
	sw_abi abi;

	if (!sw_has_helper(task_pt_regs))
		return SW_ABI_NONE;
	regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	abi = abi_of_pstate(regs->pstate);
	SW_COPY_REGISTERS(slot->registers, regs);
	barrier();
	if (abi == SW_ABI_NATIVE)
		undo_signal(slot);
	return abi;
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

	if (!sw_has_helper(task_pt_regs) || bytes > scratch_bytes ||
	    bpf_probe_read_kernel(scratch, bytes, (void *)bpf_task_pt_regs(task)))
		return false;
	SW_COPY_REGISTERS(to, regs);
	return abi_of_pstate(regs->pstate) == SW_ABI_NATIVE;
}

/* The thread pointer, as of when the thread last left a CPU; 0 if unknown. */
static __always_inline __u64 thread_pointer(void)
{
	struct task_struct *task = current_task();

	if (!sw_has_thread_pointer())
		return 0;
	return sw_task(task, thread.uw.tp_value);
}

/* The structure ends at the thread pointer. Its size depends on the C library: 2 KiB in glibc, 200 bytes in musl. */
#define SW_PTHREAD_BYTES_MAX 4096

static __always_inline bool is_pthread_of(__u64 thread, __u64 address)
{
	return thread - address - 1 < SW_PTHREAD_BYTES_MAX;
}

/*
 * The bits of a return address that may hold a signature (pointer authentication), which depend on how the kernel divides
 * addresses: set before load. The default is for 48-bit addresses.
 */
const volatile __u64 signature_mask = 0x007f000000000000;

/* An address of code in user space, without a signature. */
static __always_inline __u64 code_address(__u64 signed_address)
{
	return signed_address & ~signature_mask;
}

/*
 * An address of data in user space, without the tag that programs may keep in its highest byte: CPUs ignore that, and the
 * kernel's helpers refuse it. Memory that a program has the CPU check for its tag can't be read either way.
 */
static __always_inline __u64 data_address(__u64 tagged)
{
	return tagged << 8 >> 8;
}

/* ---- Contexts ------------------------------------------------------------------------------------------ */

static __always_inline bool read_preempt_count(__u32 *count)
{
	const struct task_struct___arm64 *task = (void *)bpf_get_current_task();

	return !BPF_CORE_READ_INTO(count, task, thread_info.preempt.count);
}

/* ---- System calls -------------------------------------------------------------------------------------- */

/* The kernel stores the number there when a system call begins, and -1 at interrupts and exceptions. */
static __always_inline __s64 system_call_number(void)
{
	struct pt_regs___kernel *regs;

	if (!sw_has_helper(task_pt_regs))
		return -1;
	regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	return regs->syscallno;
}

/* As system_call_number, of a task that waits. */
static __always_inline __s64 system_call_of(struct task_struct *task)
{
	struct pt_regs___kernel *regs;

	if (!sw_has_helper(task_pt_regs))
		return -1;
	regs = (void *)bpf_task_pt_regs(task);
	return BPF_CORE_READ(regs, syscallno);
}

#define SW_FUTEX_CALL 98

/* futex_wake and futex_requeue, since Linux 6.7. */
static __always_inline bool is_futex_wake_call(__s64 number)
{
	return number == 454 || number == 456;
}

/* Whether the current task is in futex(2); then sets the first three arguments of the call. */
static __always_inline bool futex_arguments(__u64 *address, __u32 *operation, __u32 *value)
{
	struct pt_regs___kernel *regs;

	if (system_call_number() != SW_FUTEX_CALL)
		return false;
	regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	*address = regs->orig_x0;
	*operation = regs->regs[1];
	*value = regs->regs[2];
	return true;
}

/* As futex_arguments, of a task that waits. */
static __always_inline bool futex_arguments_of(struct task_struct *task, __u64 *address, __u32 *operation,
					       __u32 *value)
{
	struct pt_regs___kernel *regs;

	if (system_call_of(task) != SW_FUTEX_CALL)
		return false;
	regs = (void *)bpf_task_pt_regs(task);
	*address = BPF_CORE_READ(regs, orig_x0);
	*operation = BPF_CORE_READ(regs, regs[1]);
	*value = BPF_CORE_READ(regs, regs[2]);
	return true;
}

#define SW_SYSTEM_CALLS 512 /* a power of two; numbers are below it */

/* By the numbers of include/uapi/asm-generic/unistd.h. */
static const __u8 wait_causes[SW_SYSTEM_CALLS] = {
	[4] = SW_CAUSE_ASYNC_IO, /* io_getevents */
	[22] = SW_CAUSE_POLL, /* epoll_pwait */
	[25] = SW_CAUSE_FILE_LOCK, /* fcntl */
	[32] = SW_CAUSE_FILE_LOCK, /* flock */
	[56] = SW_CAUSE_OPEN, /* openat */
	[63] = SW_CAUSE_READ, /* read */
	[64] = SW_CAUSE_WRITE, /* write */
	[65] = SW_CAUSE_READ, /* readv */
	[66] = SW_CAUSE_WRITE, /* writev */
	[67] = SW_CAUSE_READ, /* pread64 */
	[68] = SW_CAUSE_WRITE, /* pwrite64 */
	[69] = SW_CAUSE_READ, /* preadv */
	[70] = SW_CAUSE_WRITE, /* pwritev */
	[71] = SW_CAUSE_WRITE, /* sendfile */
	[72] = SW_CAUSE_POLL, /* pselect6 */
	[73] = SW_CAUSE_POLL, /* ppoll */
	[81] = SW_CAUSE_SYNC, /* sync */
	[82] = SW_CAUSE_SYNC, /* fsync */
	[83] = SW_CAUSE_SYNC, /* fdatasync */
	[84] = SW_CAUSE_SYNC, /* sync_file_range */
	[95] = SW_CAUSE_CHILD, /* waitid */
	[98] = SW_CAUSE_FUTEX, /* futex */
	[101] = SW_CAUSE_SLEEP, /* nanosleep */
	[115] = SW_CAUSE_SLEEP, /* clock_nanosleep */
	[133] = SW_CAUSE_SIGNAL, /* rt_sigsuspend */
	[137] = SW_CAUSE_SIGNAL, /* rt_sigtimedwait */
	[188] = SW_CAUSE_IPC, /* msgrcv */
	[189] = SW_CAUSE_IPC, /* msgsnd */
	[192] = SW_CAUSE_IPC, /* semtimedop */
	[193] = SW_CAUSE_IPC, /* semop */
	[202] = SW_CAUSE_ACCEPT, /* accept */
	[203] = SW_CAUSE_CONNECT, /* connect */
	[206] = SW_CAUSE_SEND, /* sendto */
	[207] = SW_CAUSE_RECEIVE, /* recvfrom */
	[211] = SW_CAUSE_SEND, /* sendmsg */
	[212] = SW_CAUSE_RECEIVE, /* recvmsg */
	[242] = SW_CAUSE_ACCEPT, /* accept4 */
	[243] = SW_CAUSE_RECEIVE, /* recvmmsg */
	[260] = SW_CAUSE_CHILD, /* wait4 */
	[267] = SW_CAUSE_SYNC, /* syncfs */
	[269] = SW_CAUSE_SEND, /* sendmmsg */
	[286] = SW_CAUSE_READ, /* preadv2 */
	[287] = SW_CAUSE_WRITE, /* pwritev2 */
	[292] = SW_CAUSE_ASYNC_IO, /* io_pgetevents */
	[426] = SW_CAUSE_ASYNC_IO, /* io_uring_enter */
	[437] = SW_CAUSE_OPEN, /* openat2 */
	[441] = SW_CAUSE_POLL, /* epoll_pwait2 */
	[449] = SW_CAUSE_FUTEX, /* futex_waitv */
	[455] = SW_CAUSE_FUTEX, /* futex_wait */
};

/* ---- Calls --------------------------------------------------------------------------------------------- */

#define SW_INSTRUCTION_BYTES 4

#define SW_CALL_BYTES SW_INSTRUCTION_BYTES

/*
 * Whether a call instruction ends at an address, in front of which is this one, in the lowest bits of `code`. *target is the call's
 * target, or 0 if the instruction doesn't contain it. Arm Architecture Reference Manual for A-profile, sections C6.2.38 (BL),
 * C6.2.39 (BLR) and C6.2.40 (BLRAA and the like).
 */
static __always_inline int is_call(__u64 code, __u64 address, __u64 *target)
{
	__u32 call = code;

	*target = 0;
	if ((call & 0xfefff000) == 0xd63f0000)
		return 1;
	if (call >> 26 != 0x25)
		return 0;
	/* A signed number of instructions in the lowest 26 bits. */
	*target = address - SW_CALL_BYTES + ((__s64)((__u64)call << 38) >> 36);
	return 1;
}

/* The same of an address of the process. Code that can't be read counts as no call. */
static __noinline int is_after_call(__u64 address, __u64 *target)
{
	__u32 call;

	*target = 0;
	if (bpf_probe_read_user(&call, sizeof(call), (void *)(address - SW_CALL_BYTES)))
		return 0;
	return is_call(call, address, target);
}

#endif
