//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Sees every process start a program, with its environment, and every process
 * end, with how it ended and who had sent it a signal to end.
 *
 * Hooks: the tracepoints sched:sched_process_exec, sched:sched_process_exit and
 * signal:signal_generate.
 * exec, not fork: the environment that names a rank is set by execve(2), and
 * forks are many. The environment is copied here and not only read from /proc
 * later, because a process may be dead before anybody wakes up, and because
 * setproctitle(3) overwrites what /proc/<pid>/environ shows. exit of the last
 * thread, not wait(2): the parent may never wait.
 *
 * signal_generate, not kill(2): it also sees what the kernel sends by itself, and a
 * sender cannot choose what it says. A signal is noted in a map and leaves the kernel
 * with the end of the process: however many signals a stranger sends, the ring is
 * no fuller.
 *
 * Since Linux 5.8 (ring buffer, boot clock helper). Without BTF only exec_notice
 * loads: it reads no kernel memory.
 *
 * Cost: one record per exec (the environment's size, see ENVIRON_SMALL) and one
 * of 64 bytes per process exit; a thread's exit costs one comparison. README.md
 * has the figures.
 */
#include "bpf.h"
#include "kernel.h"
#include "again.h"

/* The table of room.h. */
#define SIGNALS 0
#define ROOM_TABLES 1

/* The kinds of records of ring.h. */
#define ENDS 0
#define STARTS 1
#define RING_KINDS 2
#include "ring.h"

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
#define KIND_EXIT_SIGNALLED 4 /* all fields, struct signals follows */

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

#define RING_BYTES (2 << 20)

/* Starts and ends of processes. Filled here, drained by the Tracker; a full ring
 * counts in dropped, and the Tracker then looks at /proc. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
	__type(value, struct event);
} events SEC(".maps");

/*
 * While nobody reads, as when the agent is away, the ring fills. Then what is worth
 * less makes room for what is worth more: starts, of some KiB, leave a quarter of it
 * to ends, and ends that are a success an eighth to those that are not. /proc makes
 * good for starts of what still lives; nothing makes good for ends. Tenants and users
 * share each of these parts: a loop of programs hides neither the start nor the end of
 * another's rank, and what its owner starts takes no room from how it ends.
 */
#define ROOM_FOR_STARTS 6 /* eighths of the ring */
#define ROOM_FOR_SUCCESS 7
#define ROOM_FOR_FAILURE 8
#define WAKE_AT 4 /* when so much waits, the reader is woken for any record */

static __always_inline bool ring_has_room(__u64 eighths)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) < bpf_ringbuf_query(&events, BPF_RB_RING_SIZE) / 8 * eighths;
}

/*
 * Waking the reader costs more than all else here, and most processes are no
 * rank and end well. So it comes by itself ten times a second, and is woken only
 * for an end that is not a success and for a ring that fills.
 */
static __always_inline void submit(struct event *e, bool urgent)
{
	if (urgent || !ring_has_room(WAKE_AT))
		bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP);
	else
		bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* The programs of starts and ends get the task as a typed pointer, so its fields are read
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

/* include/uapi/asm-generic/signal.h: the same on amd64 and arm64. */
#define BIT(signal) (1u << (signal))
#define SIGKILL 9
#define SIGCONT 18
/* What ends a process that does not handle it, and is sent to end it: HUP, INT,
 * QUIT, ILL, TRAP, ABRT, BUS, FPE, KILL, USR1, SEGV, USR2, TERM, XCPU, XFSZ, SYS. */
#define ENDING                                                                               \
	(BIT(1) | BIT(2) | BIT(3) | BIT(4) | BIT(5) | BIT(6) | BIT(7) | BIT(8) | BIT(SIGKILL) | \
	 BIT(10) | BIT(11) | BIT(12) | BIT(15) | BIT(24) | BIT(25) | BIT(31))
/* STOP, TSTP, TTIN, TTOU */
#define STOPPING (BIT(19) | BIT(20) | BIT(21) | BIT(22))

/* include/trace/events/signal.h: the other results say that it changes nothing. */
#define TRACE_SIGNAL_DELIVERED 0
#define TRACE_SIGNAL_LOSE_INFO 4

/* include/linux/sched/signal.h: instead of a siginfo */
#define SEND_SIG_PRIV 1 /* from the kernel */

/* include/uapi/asm-generic/siginfo.h: positive codes are the kernel's, and so are
 * these, which name no sender. A sender can pretend to be one of these. */
#define SI_TIMER -2
#define SI_MESGQ -3
#define SI_ASYNCIO -4
#define SI_SIGIO -5
#define SI_KERNEL 0x80

#define PF_EXITING 0x00000004 /* include/linux/sched.h; the value has not changed since 2.6 */

/* Flags of struct sent, as in signal.go. */
#define SENT_BY_KERNEL 1
#define SENT_FROM_OUTSIDE 2 /* the sender's pid namespace is an ancestor of the target's */
#define SENT_BY_INIT 4 /* the sender is the first process of the target's pid namespace */
#define SENT_TO_INIT 8 /* the target is the first process of its pid namespace, not of the machine */
#define SENT_IN_EXIT 16 /* the sender was ending itself */
#define SENT_FROM_HOST 32 /* the sender is in the initial pid namespace */
#define SENT_ACROSS_USERS 64 /* the sender is of another user than the target */

/* One signal, and who sent it: the process that ran, whatever its siginfo says. */
struct sent {
	__u64 time_ns; /* boot clock */
	__u64 sender_start_ns;
	__u32 sender_pid;
	__u32 sender_parent_pid;
	__u32 sender_uid;
	__s32 code;
	__u32 signal; /* 0: none */
	__u32 flags;
	__u8 sender_comm[COMM_BYTES];
};

/* As stopping in signal.go: what was asked longer ago explains no end. */
#define ASKING_NS (120ULL * 1000 * 1000 * 1000)

/* The last signals of each kind to one process. */
struct signals {
	__u64 target_start_ns;
	/* Who asked it first to end, of those that have without a rest of ASKING_NS. */
	__u64 first_ns;
	__u64 first_start_ns;
	__u32 first_pid;
	__u32 reserved;
	struct sent asked; /* to end, by another process or the kernel; the last of them */
	struct sent own; /* to end, by itself or by the kernel for what it did */
	struct sent stopped; /* to stop; no signal once it was continued */
	struct owner owner; /* whose process it is */
};

/* Process → signals to it. signal_sent fills it, the end of the process deletes, and when
 * half of it is in use user space lets forget_signals delete what explains no end any
 * more. Signals to processes whose owner has no room (room.h) are counted in unnoted, and
 * their senders stay unknown. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct signals);
} signals SEC(".maps");

/* 0 → signals that found no room in signals, per CPU. Nobody deletes; it cannot fill. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} unnoted SEC(".maps");

static __always_inline int number_in(struct pid *pid, __u32 level)
{
	int nr = 0;

	/* The kernel's struct upid is larger than ours: the step is asked for. */
	bpf_probe_read_kernel(&nr, sizeof(nr),
			      (void *)pid + core_field_offset(pid->numbers) + level * core_type_size(struct upid) +
				      core_field_offset(((struct upid *)0)->nr));
	return nr;
}

/* How the sender stands to the target, by pid namespaces, which only the kernel gives. */
static __always_inline __u32 namespaces(struct task_struct *sender, struct task_struct *target)
{
	struct pid *from = core_get(core_get(sender->group_leader)->thread_pid);
	struct pid *to = core_get(core_get(target->group_leader)->thread_pid);
	__u32 outer = core_get(from->level), inner = core_get(to->level), flags = 0;

	if (outer == 0)
		flags |= SENT_FROM_HOST;
	if (outer < inner)
		flags |= SENT_FROM_OUTSIDE;
	if (inner > 0 && number_in(to, inner) == 1)
		flags |= SENT_TO_INIT;
	if (outer > 0 && outer <= inner && number_in(from, outer) == 1)
		flags |= SENT_BY_INIT;
	return flags;
}

static __always_inline void describe_signal(struct sent *s, int signal, struct kernel_siginfo *info,
					    struct task_struct *sender, struct task_struct *target)
{
	struct task_struct *leader = core_get(sender->group_leader);

	s->time_ns = bpf_ktime_get_boot_ns();
	s->signal = signal;
	s->flags = namespaces(sender, target);
	if ((__u64)info == SEND_SIG_PRIV)
		s->code = SI_KERNEL;
	else if ((__u64)info > SEND_SIG_PRIV)
		s->code = core_get(info->si_code);
	else
		s->code = 0; /* SI_USER */
	if (s->code > 0 || (s->code <= SI_TIMER && s->code >= SI_SIGIO))
		s->flags |= SENT_BY_KERNEL;
	if (core_get(sender->flags) & PF_EXITING)
		s->flags |= SENT_IN_EXIT;
	s->sender_pid = core_get(sender->tgid);
	s->sender_start_ns = core_get(leader->start_boottime);
	s->sender_parent_pid = core_get(core_get(leader->real_parent)->tgid);
	s->sender_uid = core_get(core_get(sender->real_cred)->uid.val);
	if (s->sender_uid != core_get(core_get(target->real_cred)->uid.val))
		s->flags |= SENT_ACROSS_USERS;
	bpf_probe_read_kernel_str(s->sender_comm, sizeof(s->sender_comm), leader->comm);
}

/* A process that is ending already of something else ends of no signal any more. */
static __always_inline bool ends_otherwise(struct task_struct *target, int signal)
{
	struct signal_struct *group = core_get(target->signal);

	return (core_get(group->flags) & SIGNAL_GROUP_EXIT) && (core_get(group->group_exit_code) & 0x7f) != signal;
}

static __always_inline int delete_signals(__u32 pid, const struct signals *known)
{
	struct owner owner = known->owner;

	if (bpf_map_delete_elem(&signals, &pid))
		return 0;
	count_held(SIGNALS, &owner, -1);
	return 1;
}

static __always_inline struct signals *count_unnoted(void)
{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&unnoted, &first);

	if (count)
		__sync_fetch_and_add(count, 1);
	return NULL;
}

/* The entry of a process, made when there is none; NULL when its owner has no room. */
static __always_inline struct signals *signals_of(struct task_struct *target, __u32 pid, __u64 start_ns)
{
	struct signals *known = bpf_map_lookup_elem(&signals, &pid);
	struct signals fresh;

	if (known && known->target_start_ns == start_ns)
		return known;
	if (known) /* of another process that had the number */
		delete_signals(pid, known);
	zero(&fresh);
	fresh.target_start_ns = start_ns;
	begin_owner(&fresh.owner, target);
	find_slots(&fresh.owner, target, fresh.owner.user);
	if (!has_room(SIGNALS, &fresh.owner) || bpf_map_update_elem(&signals, &pid, &fresh, BPF_NOEXIST))
		return count_unnoted();
	count_held(SIGNALS, &fresh.owner, 1);
	return bpf_map_lookup_elem(&signals, &pid);
}

/* User space takes an entry out by BPF_PROG_TEST_RUN: process and start. Returns 1 when it
 * did. */
SEC("raw_tp")
int forget_signals(__u64 *args)
{
	__u32 pid = args[0];
	struct signals *known = bpf_map_lookup_elem(&signals, &pid);

	if (!known || known->target_start_ns != args[1])
		return 0;
	return delete_signals(pid, known);
}

static __always_inline void keep(struct signals *to, struct sent *s, bool own)
{
	if (BIT(s->signal) & STOPPING)
		to->stopped = *s;
	else if (to->asked.signal == SIGKILL || to->own.signal == SIGKILL)
		return; /* the first SIGKILL ends it */
	else if (own)
		to->own = *s;
	else {
		/* Who ends a job is soon followed by its launcher, which ends what is left. */
		if (!to->asked.signal || s->time_ns > to->asked.time_ns + ASKING_NS) {
			to->first_ns = s->time_ns;
			to->first_start_ns = s->sender_start_ns;
			to->first_pid = s->sender_pid;
		}
		to->asked = *s;
	}
}

/*
 * TP_PROTO(int sig, struct kernel_siginfo *info, struct task_struct *task, int group,
 * int result). The kernel holds the lock of the target's signals: two do not come at once.
 */
SEC("tp_btf/signal_generate")
int signal_sent(__u64 *ctx)
{
	int number = ctx[0], result = ctx[4];
	struct task_struct *target, *sender;
	struct signals *to;
	struct sent s;
	__u32 pid;

	if (number < 1 || number > 31 || !(BIT(number) & (ENDING | STOPPING | BIT(SIGCONT))))
		return 0;
	target = (void *)ctx[2];
	pid = target->tgid;
	if (number == SIGCONT) { /* it continues what it is ignored by, too: prepare_signal(), kernel/signal.c */
		to = bpf_map_lookup_elem(&signals, &pid);
		if (to)
			to->stopped.signal = 0;
		return 0;
	}
	if (result != TRACE_SIGNAL_DELIVERED && result != TRACE_SIGNAL_LOSE_INFO)
		return 0;
	if (ends_otherwise(target, number))
		return 0;
	to = signals_of(target, pid, target->group_leader->start_boottime);
	if (!to)
		return 0;
	zero(&s);
	sender = (void *)bpf_get_current_task();
	describe_signal(&s, number, (void *)ctx[1], sender, target);
	keep(to, &s, s.sender_pid == pid && s.sender_start_ns == to->target_start_ns);
	return 0;
}

static __always_inline int send_exec(struct task_struct *task, const struct owner *owner, __u64 end, __u64 bytes, const __u64 room)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e) + room, 0);

	if (!e) {
		count_dropped();
		return 0;
	}
	count_kind_in_ring(&events, owner, STARTS, sizeof(*e) + room);
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

/* Of again.h. A process that begins or ends twice is known to the Tracker. */
enum { HOOK_EXEC, HOOK_EXIT };

/* TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm) */
SEC("tp_btf/sched_process_exec")
int exec_environ(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct mm_struct *mm = task->mm;
	struct owner owner;
	__u64 start, end;

	if (!mm || handled_already(HOOK_EXEC, (__u64)task))
		return 0;
	start = mm->env_start;
	end = mm->env_end;
	if (end < start)
		return 0;
	begin_task(&owner, task);
	if (!ring_has_room_for_kind(&events, &owner, STARTS, ROOM_FOR_STARTS)) {
		count_dropped();
		return 0;
	}
	if (end - start <= ENVIRON_SMALL)
		return send_exec(task, &owner, end, end - start, ENVIRON_SMALL);
	return send_exec(task, &owner, end, end - start, ENVIRON_LARGE);
}

SEC("raw_tp/sched_process_exec")
int exec_notice(void *ctx)
{
	struct event *e = NULL;
	struct owner owner;

	begin_process(&owner);
	if (ring_has_room_for(&events, &owner))
		e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count_dropped();
		return 0;
	}
	zero(e);
	count_in_ring(&events, &owner, sizeof(*e));
	e->time_ns = bpf_ktime_get_boot_ns();
	e->kind = KIND_EXEC_NOTICE;
	e->pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
	bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP); /* /proc must be read while it lives */
	return 0;
}

static __always_inline void describe_exit(struct event *e, struct task_struct *task, __u32 kind, __u32 status)
{
	describe(e, task, kind);
	e->status = status;
	e->oom_victim = task->signal->oom_mm != NULL;
}

/* The end of a process that was sent signals. They are forgotten even if the ring is full. */
static __always_inline int send_signalled_exit(struct task_struct *task, __u32 status, struct signals *sent, const struct owner *owner)
{
	struct event *e = NULL;

	if (ring_has_room_for(&events, owner))
		e = bpf_ringbuf_reserve(&events, sizeof(*e) + sizeof(*sent), 0);
	if (e) {
		describe_exit(e, task, KIND_EXIT_SIGNALLED, status);
		__builtin_memcpy(e + 1, sent, sizeof(*sent));
		count_in_ring(&events, owner, sizeof(*e) + sizeof(*sent));
		submit(e, status != 0);
	} else {
		count_lost(&events, owner);
	}
	delete_signals(task->tgid, sent);
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
	struct signals *sent;
	struct event *e = NULL;
	struct owner owner;
	__u32 status, pid;

	if (signal->live.counter != 0 || handled_already(HOOK_EXIT, (__u64)task))
		return 0;
	/* What wait(2) would give: wait_task_zombie(), kernel/exit.c. */
	if (signal->flags & SIGNAL_GROUP_EXIT)
		status = signal->group_exit_code;
	else
		status = task->group_leader->exit_code;
	begin_task(&owner, task);
	pid = task->tgid;
	sent = bpf_map_lookup_elem(&signals, &pid);
	if (sent && sent->target_start_ns == task->group_leader->start_boottime)
		return send_signalled_exit(task, status, sent, &owner);
	if (ring_has_room_for_kind(&events, &owner, ENDS, status != 0 ? ROOM_FOR_FAILURE : ROOM_FOR_SUCCESS))
		e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count_lost(&events, &owner);
		return 0;
	}
	describe_exit(e, task, KIND_EXIT, status);
	count_in_ring(&events, &owner, sizeof(*e));
	submit(e, e->status != 0);
	return 0;
}
