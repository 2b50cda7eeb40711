/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * The architecture-dependent functions of the programs. Those for code that a runtime generates are in arch/hotspot.bpf.h and
 * arch/v8.bpf.h. Each architecture's file in arch/ defines all of these:
 *
 *   interrupted_user_mode        whether an interrupt found the CPU in user mode
 *   registers_of_interrupt       copies the registers of an interrupt, by DWARF number, and the pc
 *   registers_of_task            copies the user registers of the current task, which is in the kernel
 *   registers_of_waiting         copies the user registers of a task that waits; false: they could not be read
 *   read_preempt_count           the contexts that this CPU is in, one in the other: include/linux/preempt.h
 *   system_call_number           the number of the system call that the current task is in; negative: it is in none
 *   system_call_of               likewise, of any task that waits
 *   is_futex_wake_call           whether the system call with this number wakes waiters of a futex, and is not futex(2)
 *   futex_arguments              the address, the operation and the value of the futex call that the current task is in
 *   futex_arguments_of           likewise, of any task that waits
 *   wait_causes                  what a thread in a system call waits for, by the number of the call
 *   thread_pointer               the address of the current thread's control block
 *   is_pthread_of                whether the C library's structure of the thread with this thread pointer is at an address
 *   code_address                 an address of code without the signature that it may have
 *   data_address                 an address of data without what programs may keep in its highest bits
 *   is_after_call                whether a call instruction ends at an address, and the call's target
 *
 * The two functions that copy registers return the ABI of the task: SW_ABI_NATIVE, SW_ABI_FOREIGN, or SW_ABI_NONE if they
 * aren't registers of user mode.
 */
#ifndef SIDEWINDER_ARCH_BPF_H
#define SIDEWINDER_ARCH_BPF_H

#if defined(__TARGET_ARCH_x86)
#include "arch/x86_64.bpf.h"
#elif defined(__TARGET_ARCH_arm64)
#include "arch/aarch64.bpf.h"
#else
#error "no registers of this architecture: see arch/x86_64.bpf.h"
#endif

#endif
