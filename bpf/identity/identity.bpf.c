//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Sees every process start a program, with its environment, and every process
 * end, with how it ended.
 *
 * Hooks: the tracepoints sched:sched_process_exec and sched:sched_process_exit.
 * exec, not fork: the environment that names a rank is set by execve(2), and
 * forks are many. The environment is copied here and not only read from /proc
 * later, because a process may be dead before anybody wakes up, and because
 * setproctitle(3) overwrites what /proc/<pid>/environ shows. exit of the last
 * thread, not wait(2): the parent may never wait.
 *
 * Since Linux 5.8 (ring buffer, boot clock helper). Without BTF only exec_notice
 * loads: it reads no kernel memory.
 *
 * Cost: one record per exec (the environment's size, see ENVIRON_SMALL) and one
 * of 64 bytes per process exit; a thread's exit costs one comparison. README.md
 * has the figures.
 */
#include "bpf.h"
#include "dropped.h"
#include "kernel.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define COMM_BYTES 16

/* Room for the environment. bpf_ringbuf_reserve takes constants only, hence two
 * sizes: 4 KiB with the header, which holds most environments, and 32 KiB. Of a
 * longer one the end is copied, where launchers append what they add. */
#define ENVIRON_SMALL (4096 - 64)
#define ENVIRON_LARGE (32768 - 64)

/* include/linux/sched/signal.h; the value has not changed since 2.6. */
#define SIGNAL_GROUP_EXIT 0x00000004

/* Kind, as in event.go. */
#define KIND_EXEC 1 /* all fields, environment follows */
#define KIND_EXEC_NOTICE 2 /* pid, comm and time only */
#define KIND_EXIT 3 /* all fields */

struct event {
	__u64 time_ns; /* boot clock */
	__u64 start_ns; /* of the process, boot clock */
	__u32 kind;
	__u32 pid; /* thread group ids in the initial pid namespace */
	__u32 parent_pid;
	__u32 status; /* as wait(2) gives it */
	__u32 oom_victim;
	__u32 environ_bytes; /* how long it is */
	__u32 environ_copied; /* how much of its end follows this header */
	__u32 pad;
	__u8 comm[COMM_BYTES];
};

/* Starts and ends of processes. Filled here, drained by the Tracker; a full ring
 * counts in dropped, and the Tracker then looks at /proc. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
	__type(value, struct event);
} events SEC(".maps");

/* Half of the ring: when so much waits, the reader is woken for any record. */
#define WAKE_BYTES (1 << 20)

/*
 * Waking the reader costs more than all else here, and most processes are no
 * rank and end well. So it comes by itself ten times a second, and is woken only
 * for an end that is not a success and for a ring that fills.
 */
static __always_inline void submit(struct event *e, bool urgent)
{
	if (urgent || bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > WAKE_BYTES)
		bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP);
	else
		bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* Both tp_btf programs get the task as a typed pointer, so its fields are read
 * without a helper, and a null pointer on the way reads as zero. */
static __always_inline void describe(struct event *e, struct task_struct *task, __u32 kind)
{
	struct task_struct *leader = task->group_leader;

	zero(e);
	e->time_ns = bpf_ktime_get_boot_ns();
	e->start_ns = leader->start_boottime;
	e->kind = kind;
	e->pid = task->tgid;
	e->parent_pid = leader->real_parent->tgid;
	bpf_probe_read_kernel_str(e->comm, sizeof(e->comm), leader->comm);
}

static __always_inline int send_exec(struct task_struct *task, __u64 end, __u64 bytes, const __u64 room)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e) + room, 0);

	if (!e) {
		count_dropped();
		return 0;
	}
	describe(e, task, KIND_EXEC);
	e->environ_bytes = bytes;
	/* The verifier must see the comparison here, on the value that is passed:
	 * older ones forget the bounds of what was spilled to the stack. So
	 * clang must not know that one of the callers has compared. */
	asm volatile("" : "+r"(bytes));
	if (bytes > room)
		bytes = room;
	/* The pages were written by this execve, so they are there: the read, which
	 * may not fault, fails only under reclaim. Then copied stays 0. */
	if (bpf_probe_read_user(e + 1, bytes, (void *)(end - bytes)) == 0)
		e->environ_copied = bytes;
	submit(e, false);
	return 0;
}

/* TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm) */
SEC("tp_btf/sched_process_exec")
int exec_environ(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct mm_struct *mm = task->mm;
	__u64 start, end;

	if (!mm)
		return 0;
	start = mm->env_start;
	end = mm->env_end;
	if (end < start)
		return 0;
	if (end - start <= ENVIRON_SMALL)
		return send_exec(task, end, end - start, ENVIRON_SMALL);
	return send_exec(task, end, end - start, ENVIRON_LARGE);
}

SEC("raw_tp/sched_process_exec")
int exec_notice(void *ctx)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		count_dropped();
		return 0;
	}
	zero(e);
	e->time_ns = bpf_ktime_get_boot_ns();
	e->kind = KIND_EXEC_NOTICE;
	e->pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
	bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP); /* /proc must be read while it lives */
	return 0;
}

/*
 * TP_PROTO(struct task_struct *p), and since 6.16 a second argument that says
 * whether the group is dead. The count of living threads says it everywhere; but
 * when the last two threads exit together both may read zero, so an exit can be
 * reported twice: the Tracker takes the first.
 */
SEC("tp_btf/sched_process_exit")
int exit_status(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct signal_struct *signal = task->signal;
	struct event *e;

	if (signal->live.counter != 0)
		return 0;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count_dropped();
		return 0;
	}
	describe(e, task, KIND_EXIT);
	/* What wait(2) would give: wait_task_zombie(), kernel/exit.c. */
	if (signal->flags & SIGNAL_GROUP_EXIT)
		e->status = signal->group_exit_code;
	else
		e->status = task->group_leader->exit_code;
	e->oom_victim = signal->oom_mm != NULL;
	submit(e, e->status != 0);
	return 0;
}
