// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Finds the name of a kernel function, as the kernel's own messages print it. Reading the list of all names takes about 50
 * ms; this takes a few microseconds per name. Run by BPF_PROG_TEST_RUN, by one thread at a time.
 */
#include "intf.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

__u64 kernel_address;
char kernel_symbol[SW_KERNEL_SYMBOL_BYTES];

SEC("raw_tp")
int name_kernel_address(void *ctx)
{
	static const char format[] = "%pS";
	__u64 address = kernel_address;

	/* since Linux 5.13 */
	bpf_snprintf(kernel_symbol, sizeof(kernel_symbol), format, &address, sizeof(address));
	return 0;
}
