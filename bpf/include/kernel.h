/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few kernel types and fields that tracecore's programs read. A declaration
 * holds only the fields read, in any order: clang records each access by name
 * and the loader relocates it to the running kernel (CO-RE). Where a field
 * moved or changed its type between kernels, the older or newer form stands in
 * core_fixes.h with the commit that moved it.
 */
#ifndef TRACECORE_KERNEL_H
#define TRACECORE_KERNEL_H

#include "bpf.h"

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded"
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef int pid_t;

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	long counter;
} atomic_long_t;

/* include/linux/sched.h. Shared by probes: add a field, never remove one. */
struct task_struct {
	pid_t pid;
	pid_t tgid;
	char comm[16];
	int exit_code;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
};

#pragma clang attribute pop
#pragma clang diagnostic pop

#endif
