//go:build ignore
// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Where one thread is: its kernel stack and the registers that it left user space
 * with. An iterator over tasks (iter/task, Linux 5.8): user space reads it for one
 * thread, it runs in that reader alone, and the thread is not stopped.
 *
 * /proc/TID/stack and /proc/TID/syscall need CAP_SYS_ADMIN, and of the registers they
 * tell two. ptrace tells all of them and stops the thread, which one in D does not do.
 *
 * Since 6.1 (f0d74c4da1f0) the iterator can be bound to one thread; before, it walks
 * the threads of the host. bpf_task_pt_regs exists since 5.15 (dd6e10fbd9fb); before,
 * the registers are read where the kernel keeps them: at the end of the thread's stack.
 */
#include "kernel.h"
#include "registers.h"

char dual_license[] SEC("license") = "Dual BSD/GPL";

#define KERNEL_FRAMES 48 /* the deepest measured wait has 25: ext4 below NFS */
#define REGISTERS (sizeof(struct pt_regs) / 8)

/* Bytes of a thread's kernel stack (THREAD_SIZE), for kernels before 5.15. */
volatile const __u32 thread_bytes = 16384;

/* The thread that is wanted, from user space before each read; 0 where the iterator is
 * bound to it. There is one read at a time. */
__u32 wanted = 0;

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded"
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* What this probe alone reads of a task, include/linux/sched.h. */
struct task_struct___sleeper {
	void *stack; /* where its kernel stack begins */
	unsigned int flags;
	unsigned int __state;
	int on_cpu; /* with CONFIG_SMP */
	int exit_state;
	unsigned long nvcsw; /* switches to others: of its own will, */
	unsigned long nivcsw; /* and not */
};

/* 5.14 (2f064a59a11f) renamed state to __state and made it an int. */
struct task_struct___old {
	long state; /* volatile in the kernel */
};

enum bpf_func_id {
	BPF_FUNC_task_pt_regs = 175,
};

#pragma clang attribute pop
#pragma clang diagnostic pop

struct record {
	__u64 registers[REGISTERS]; /* struct pt_regs */
	__u64 switches; /* of the thread to others, since it began */
	__u32 tid;
	__u32 tgid;
	__u32 state; /* TASK_*, include/linux/sched.h */
	__u32 flags; /* PF_* */
	__u32 kernel_frames; /* lines of text that follow, one a frame */
	__u8 still; /* it was on no CPU before and after, and did not run between */
	__u8 exiting;
	__u8 pad[2];
};

/* What is being read. In memory of its own: it is more than a program's stack takes. */
struct record found = {};
__u64 frames[KERNEL_FRAMES] = {};

/* %pB is a return address as its function: name+offset/size [module]. It needs neither
 * /proc/kallsyms nor CAP_SYSLOG. In bpf_seq_printf since 5.9 (2df6bb5493f2). */
static const char frame_format[] = "%pB\n";

/* The context of iter/task, kernel/bpf/task_iter.c: pointers are its ABI. */
struct iterator_meta {
	void *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct iterator_task {
	struct iterator_meta *meta;
	struct task_struct *task;
};

static __always_inline __u64 switches(struct task_struct___sleeper *task)
{
	return core_get(task->nvcsw) + core_get(task->nivcsw);
}

/* An int; a byte on 7.3, with other flags behind it. */
static __always_inline bool runs(struct task_struct___sleeper *task)
{
	__u32 on_cpu = 0;

	if (!core_field_exists(task->on_cpu))
		return false;
	if (core_field_size(task->on_cpu) == 1)
		bpf_probe_read_kernel(&on_cpu, 1, &task->on_cpu);
	else
		bpf_probe_read_kernel(&on_cpu, sizeof(on_cpu), &task->on_cpu);
	return on_cpu;
}

static __always_inline __u32 state_of(struct task_struct___sleeper *task)
{
	if (core_field_exists(task->__state))
		return core_get(task->__state);
	return core_get(((struct task_struct___old *)task)->state);
}

static __always_inline void copy_registers(struct task_struct *task)
{
	void *registers;

	if (core_enum_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		registers = bpf_task_pt_regs(task);
	else
		registers = core_get(((struct task_struct___sleeper *)task)->stack) + thread_bytes -
			    core_type_size(struct pt_regs);
	if (bpf_probe_read_kernel(found.registers, sizeof(found.registers), registers))
		zero(&found.registers);
}

SEC("iter/task")
int look(struct iterator_task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_struct___sleeper *sleeper = (void *)task;
	void *seq = ctx->meta->seq;
	bool ran;
	long got;

	if (!task || (wanted && (__u32)core_get(task->pid) != wanted))
		return 0;
	found.switches = switches(sleeper);
	ran = runs(sleeper);
	found.tid = core_get(task->pid);
	found.tgid = core_get(task->tgid);
	found.state = state_of(sleeper);
	found.flags = core_get(sleeper->flags);
	found.exiting = core_get(sleeper->exit_state) != 0;
	copy_registers(task);
	got = bpf_get_task_stack(task, frames, sizeof(frames), 0);
	found.kernel_frames = got > 0 ? got / 8 : 0;
	found.still = !ran && !runs(sleeper) && switches(sleeper) == found.switches;
	bpf_seq_write(seq, &found, sizeof(found));
	for (__u32 i = 0; i < KERNEL_FRAMES && i < found.kernel_frames; i++)
		bpf_seq_printf(seq, frame_format, sizeof(frame_format), &frames[i], 8);
	return 0;
}
