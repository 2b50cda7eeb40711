/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * What the programs need of the architecture that they run on. A file of arch/ gives each of these:
 *
 *   interrupted_user_mode        whether an interrupt found the CPU in user mode
 *   registers_of_interrupt       the registers of an interrupt, by DWARF number, and the pc
 *   registers_of_task            the user registers of the current task, which is in the kernel
 *   thread_pointer               where the current thread's control block is
 *   is_after_call                whether a call lies before an address, and where it leads
 *
 * The two of registers return the ABI of the task: SW_ABI_NATIVE, SW_ABI_FOREIGN, or SW_ABI_NONE where these are no
 * registers of a user.
 */
#ifndef SIDEWINDER_ARCH_BPF_H
#define SIDEWINDER_ARCH_BPF_H

#if defined(__TARGET_ARCH_x86)
#include "arch/x86_64.bpf.h"
#else
#error "no registers of this architecture: see arch/x86_64.bpf.h"
#endif

#endif
