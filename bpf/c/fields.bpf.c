// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Finds which fields are missing from this kernel, as the programs see it. Run once, by BPF_PROG_TEST_RUN. */
#include "fields.bpf.h"
#include <linux/bpf.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

__u32 missing_fields; /* one bit for each sw_kernel_field */

SEC("raw_tp")
int find_missing_fields(void *ctx)
{
	__u32 missing = 0;

	if (!sw_has_in_execve())
		missing |= 1u << SW_FIELD_IN_EXECVE;
	if (!sw_has_start_stack())
		missing |= 1u << SW_FIELD_START_STACK;
	if (!sw_has_start_code())
		missing |= 1u << SW_FIELD_START_CODE;
	if (!sw_has_exe_file())
		missing |= 1u << SW_FIELD_EXE_FILE;
	if (!sw_has_thread_pointer())
		missing |= 1u << SW_FIELD_THREAD_POINTER;
	if (!sw_has_run_delay())
		missing |= 1u << SW_FIELD_RUN_DELAY;
	missing_fields = missing;
	return 0;
}
