// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Finds the cgroups that the receiver is in. A cgroup namespace hides those above its container, including the pod's, from
 * user space. Run once, by BPF_PROG_TEST_RUN, on the receiver's own thread.
 */
#include "intf.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* IDs, from the root down; 0 after the last. On cgroup v1 there is only the root. */
__u64 own_cgroups[SW_CGROUP_LEVELS];

SEC("raw_tp")
int read_own_cgroups(void *ctx)
{
	for (int level = 0; level < SW_CGROUP_LEVELS; level++)
		own_cgroups[level] = bpf_get_current_ancestor_cgroup_id(level);
	return 0;
}
