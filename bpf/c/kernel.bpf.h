/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Kernel-internal types, with only the fields that the programs read. CO-RE relocates each access to the field's offset in
 * the running kernel; the suffix after ___ is not part of a type's name.
 */
#ifndef SIDEWINDER_KERNEL_BPF_H
#define SIDEWINDER_KERNEL_BPF_H

#include <linux/perf_event.h>
#include <linux/types.h>
#include <stdbool.h>

#if defined(__TARGET_ARCH_x86)
#include "arch/x86_64.kernel.bpf.h"
#elif defined(__TARGET_ARCH_arm64)
#include "arch/aarch64.kernel.bpf.h"
#else
#error "no kernel types of this architecture: see arch/x86_64.kernel.bpf.h"
#endif

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct kernfs_node {
	__u64 id;
};

/* A cgroup and its ancestors, by level: pointers, before Linux 6.1 ids. */
struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[1];
};

struct cgroup___ids {
	__u64 ancestor_ids[1];
};

struct css_set {
	struct cgroup *dfl_cgrp; /* of version 2 */
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct vfsmount;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct block_device;

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
	struct block_device *s_bdev;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
};

/* The name that prctl(PR_SET_VMA) gives a mapping, with CONFIG_ANON_VMA_NAME. */
struct anon_vma_name {
	char name[1];
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_flags;
	struct file *vm_file;
	struct anon_vma_name *anon_name;
};

struct linux_binprm;

struct mm_struct {
	struct file *exe_file;
	unsigned long start_code;
	unsigned long start_stack;
};

struct rq;

struct cfs_rq {
	struct rq *rq; /* of the CPU */
};

struct sched_entity {
	__u64 sum_exec_runtime; /* time on CPUs, in nanoseconds */
	struct cfs_rq *cfs_rq; /* with CONFIG_FAIR_GROUP_SCHED */
};

struct sched_info {
	unsigned long pcount; /* how often it was given a CPU */
	unsigned long long run_delay; /* time spent waiting for a CPU, in nanoseconds */
};

struct task_struct {
	unsigned int flags;
	unsigned int __state;
	unsigned int on_cpu; /* unsigned: a smaller integer in newer kernels */
	unsigned int wake_cpu; /* where it last ran, if it waits */
	struct sched_entity se;
	struct sched_info sched_info;
	int pid;
	int tgid;
	unsigned in_execve : 1;
	void *stack;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct pid *thread_pid;
	struct css_set *cgroups;
	__u64 start_time; /* CLOCK_MONOTONIC */
	__u64 start_boottime;
	char comm[16];
	struct thread_struct thread;
};

/* Before Linux 5.14. */
struct task_struct___state {
	long state;
};

struct seq_file;

/* The output of an iterator. */
struct bpf_iter_meta {
	struct seq_file *seq;
};

struct perf_event {
	struct perf_event_attr attr;
};

struct perf_sample_data;

/* The context of a program of a perf event. */
struct bpf_perf_event_data_kern {
	void *regs;
	struct perf_sample_data *data;
	struct perf_event *event;
};

struct kernel_clone_args {
	__u32 user_worker : 1;
};

#pragma clang attribute pop

/* include/linux/sched.h */
#define PF_IDLE 0x00000002
#define PF_IO_WORKER 0x00000010
#define PF_FORKNOEXEC 0x00000040
#define PF_USER_WORKER 0x00004000 /* since Linux 6.4: see sw_has_user_workers */
#define PF_KTHREAD 0x00200000

/* States of tasks: 0 is runnable, others wait. */
#define TASK_INTERRUPTIBLE 0x00000001
#define TASK_UNINTERRUPTIBLE 0x00000002
#define TASK_DEAD 0x00000080 /* leaves its CPU for the last time */
#define TASK_WAKING 0x00000200
#define TASK_NEW 0x00000800

/* include/linux/preempt.h: in soft interrupts, in interrupts of devices, and in those that can't be masked. */
#define SOFTIRQ_OFFSET 0x00000100
#define HARDIRQ_MASK 0x000f0000
#define NMI_MASK 0x00f00000

#endif
