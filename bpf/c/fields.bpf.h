/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Fields of the kernel's types that a kernel may lack. Each answer is a constant by the time that the verifier looks, so what
 * depends on a field that isn't there is removed. `sw_kernel_field` in intf.h names what is lost without each. The field of
 * sw_has_thread_pointer is the architecture's.
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

/*
 * Whether PF_USER_WORKER means that: the field came with the flag in Linux 6.4 ("fork/vm: Move common PF_IO_WORKER behavior
 * to new flag"). The bit meant PF_USED_ASYNC up to 5.16.
 */
#define sw_has_user_workers() bpf_core_field_exists(struct kernel_clone_args, user_worker)

#endif
