/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Checks for fields of the kernel's types that may be missing. Each check is a constant when the verifier runs, so it
 * removes code that depends on a missing field. `sw_kernel_field` in intf/cpu.h lists the fields; src/fields.rs says what is
 * lost without each. The field that sw_has_thread_pointer checks depends on the architecture.
 */
#ifndef SIDEWINDER_FIELDS_BPF_H
#define SIDEWINDER_FIELDS_BPF_H

#include "intf.h"
#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define sw_has_in_execve() bpf_core_field_exists(struct task_struct, in_execve)
#define sw_has_start_stack() bpf_core_field_exists(struct mm_struct, start_stack)
#define sw_has_start_code() bpf_core_field_exists(struct mm_struct, start_code)
#define sw_has_exe_file() bpf_core_field_exists(struct mm_struct, exe_file)
#define sw_has_run_delay() bpf_core_field_exists(struct task_struct, sched_info.run_delay)

/*
 * Whether the bit PF_USER_WORKER has this meaning: the field was added with the flag in Linux 6.4 ("fork/vm: Move common
 * PF_IO_WORKER behavior to new flag"). Up to 5.16, the bit was PF_USED_ASYNC.
 */
#define sw_has_user_workers() bpf_core_field_exists(struct kernel_clone_args, user_worker)

#endif
