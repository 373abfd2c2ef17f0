//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Processes killed by the kernel for want of memory.
 *
 * mark_victim (tracepoint, Linux 4.15) is where every OOM kill passes, of a
 * cgroup's limit or of the whole node, with the victim's memory still there:
 * the caller holds task_lock(victim). It is read as a raw tracepoint, because its
 * argument is the victim or only its pid (6.9, 72ba14deb40a, and its backports):
 * user space finds in BTF which, and sets argument_is_task.
 *
 * Whose limit it was, the tracepoint does not say. oom_kill_process, a little
 * earlier in the same thread, has the answer in its oom_control. Where no
 * program may sit on it, user space looks for mem_cgroup_out_of_memory on the
 * kernel stack, and the limit reported is the nearest one above the victim.
 *
 * One event: about 3 KiB of ring per kill (README.md has measured times). A host
 * without OOM kills pays nothing, but on kernels with the pid alone: there each
 * signal sent on the host costs one comparison, because the victim is known only
 * from the SIGKILL that precedes mark_victim.
 */
#include "core_fixes.h"

#define ROOM_TABLES 0 /* the ring alone is shared */
#include "ring.h"
#include "registers.h"

char dual_license[] SEC("license") = "Dual BSD/GPL";

#define SIGKILL 9
#define COMM_BYTES 16  /* TASK_COMM_LEN */
#define NAME_BYTES 256 /* NAME_MAX and its end */
#define PATH_FULL 1024 /* no further name once the path is longer */
#define PATH_BYTES (PATH_FULL + NAME_BYTES)
#define PATH_DEPTH 24 /* Kubernetes needs 5, systemd user sessions 6 */
#define MEMCG_DEPTH 24
#define STACK_FRAMES 32 /* mem_cgroup_out_of_memory is about the tenth */

/* From user space before load. */
volatile const bool argument_is_task = true;    /* mark_victim has the victim, else its pid */
volatile const bool victim_from_signal = false; /* take the victim from the SIGKILL before it */

volatile const __u32 page_bytes = 4096;

enum path_state {
	PATH_NONE, /* no such cgroup */
	PATH_WHOLE,
	PATH_TRUNCATED, /* the names next to the root are missing */
};

/* A memory cgroup by its names from the leaf to the root, each ended by NUL. */
struct path {
	__u32 length_bytes;
	enum path_state state;
	char names[PATH_BYTES];
};

struct event {
	__u64 time_ns; /* boot clock */
	__u64 total_vm_bytes;
	__u64 anon_rss_bytes;
	__u64 file_rss_bytes;
	__u64 shmem_rss_bytes;
	__u64 page_tables_bytes;
	__u64 swap_bytes;
	__u64 limit_bytes; /* of limit_cgroup, 0 when it has none */
	__u64 usage_bytes;
	__u64 failure_count;
	__u64 stack[STACK_FRAMES];
	__s32 stack_bytes; /* negative: no stack */
	__u32 pid;
	__u32 parent_pid;
	__u32 uid;
	__u32 trigger_pid;
	char comm[COMM_BYTES];
	char trigger_comm[COMM_BYTES];
	__s16 oom_score_adj;
	__u8 exact;        /* limit_cgroup comes from oom_control */
	__u8 exact_cgroup; /* and a cgroup's limit was hit, not the node's */
	struct path cgroup;
	struct path limit_cgroup;
};

/* Keeps the type for bpf2go: a ring names none. */
const struct event *event_type __attribute__((unused));

/* What the thread that is about to mark a victim has shown of it. */
struct kill {
	__u64 victim; /* struct task_struct, 0 when not seen */
	__u64 memcg;  /* struct mem_cgroup, 0 when the node is out of memory */
	__u64 exact;  /* oom_kill_process was seen */
};

/* events, shared between the tenants and users of the victims; a full ring refuses the
 * record and counts it. User space sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/*
 * thread id → what it has shown. Nobody deletes: an OOM kill takes microseconds,
 * so the least recently used entry that gives way is an old one.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct kill);
} kills SEC(".maps");

static __always_inline struct mem_cgroup *memcg_of_css(struct cgroup_subsys_state *css)
{
	if (!css)
		return NULL;
	return (void *)css - core_field_offset(((struct mem_cgroup *)0)->css);
}

/* The memory cgroup of a task; NULL on a kernel without them. */
static __always_inline struct mem_cgroup *memcg_of_task(struct task_struct *task)
{
	return memcg_of_css(memory_css(task));
}

static __always_inline void copy_path(struct path *path, struct mem_cgroup *memcg)
{
	struct kernfs_node *node = core_get(core_get(memcg->css.cgroup)->kn);
	struct kernfs_node *parent;
	__u64 length = 0;
	long copied;

	path->state = PATH_TRUNCATED;
	for (int depth = 0; depth < PATH_DEPTH && length <= PATH_FULL; depth++) {
		parent = kernfs_parent(node);
		if (!parent) { /* the root, which has no name */
			path->state = PATH_WHOLE;
			break;
		}
		copied = bpf_probe_read_kernel_str(path->names + length, NAME_BYTES, core_get(node->name));
		if (copied <= 0)
			break;
		length += copied;
		node = parent;
	}
	path->length_bytes = length;
}

/*
 * The memory cgroup above a task with the least room below its limit. An OOM
 * kill of a cgroup leaves it less room than one charge (64 pages), so on the
 * kill's path this is the cgroup whose limit was hit.
 */
static __always_inline struct mem_cgroup *nearest_limit(struct mem_cgroup *memcg)
{
	/* PAGE_COUNTER_MAX, include/linux/page_counter.h: no limit */
	const __u64 unlimited = (~0ULL >> 1) / page_bytes;
	struct mem_cgroup *nearest = NULL;
	__s64 least = 0;

	for (int depth = 0; depth < MEMCG_DEPTH && memcg; depth++) {
		__u64 max = core_get(memcg->memory.max);
		__s64 room = max - core_get(memcg->memory.usage.counter);

		if (max < unlimited && (!nearest || room < least)) {
			nearest = memcg;
			least = room;
		}
		memcg = memcg_of_css(core_get(memcg->css.parent));
	}
	return nearest;
}

/*
 * How often the limit was hit: page_counter's own count, which v2 does not keep
 * since 6.13 (page_counter.track_failcnt), or the cgroup's event count.
 */
static __always_inline __u64 failure_count(struct mem_cgroup *memcg)
{
	__u64 count = 0;
	__u64 failures = core_get(memcg->memory.failcnt);

	if (failures)
		return failures;
	bpf_probe_read_kernel(&count, sizeof(count),
			      (void *)memcg + core_field_offset(memcg->memory_events) +
				      core_enum_value(enum memcg_memory_event, MEMCG_MAX) * sizeof(count));
	return count;
}

static __always_inline void fill_limit(struct event *event, struct mem_cgroup *memcg)
{
	const __u64 unlimited = (~0ULL >> 1) / page_bytes;
	__u64 max = core_get(memcg->memory.max);

	event->limit_bytes = max < unlimited ? max * page_bytes : 0;
	event->usage_bytes = core_get(memcg->memory.usage.counter) * page_bytes;
	event->failure_count = failure_count(memcg);
	copy_path(&event->limit_cgroup, memcg);
}

static __always_inline void fill_victim(struct event *event, struct task_struct *victim)
{
	struct task_struct *leader = core_get(victim->group_leader);
	struct mm_struct *mm = core_get(victim->mm);

	event->pid = core_get(victim->tgid);
	event->parent_pid = core_get(core_get(victim->real_parent)->tgid);
	event->uid = core_get(core_get(victim->real_cred)->uid.val);
	event->oom_score_adj = core_get(core_get(victim->signal)->oom_score_adj);
	core_read(&event->comm, leader->comm);
	event->total_vm_bytes = core_get(mm->total_vm) * page_bytes;
	event->page_tables_bytes = core_get(mm->pgtables_bytes.counter);
	event->anon_rss_bytes = mm_pages(mm, MM_ANONPAGES) * page_bytes;
	event->file_rss_bytes = mm_pages(mm, MM_FILEPAGES) * page_bytes;
	event->shmem_rss_bytes = mm_pages(mm, MM_SHMEMPAGES) * page_bytes;
	event->swap_bytes = mm_pages(mm, MM_SWAPENTS) * page_bytes;
}

static __always_inline void fill_cgroups(struct event *event, struct task_struct *victim, const struct kill *kill)
{
	struct mem_cgroup *memcg = memcg_of_task(victim);
	struct mem_cgroup *limit;

	if (!memcg)
		return;
	copy_path(&event->cgroup, memcg);
	event->exact = kill && kill->exact;
	event->exact_cgroup = event->exact && kill->memcg;
	limit = event->exact ? (struct mem_cgroup *)kill->memcg : nearest_limit(memcg);
	if (limit)
		fill_limit(event, limit);
}

/* Zeroes all but the two arrays of names, which are read up to their length. */
static __always_inline void clear(struct event *event)
{
	__builtin_memset(event, 0, __builtin_offsetof(struct event, cgroup));
	event->cgroup.length_bytes = 0;
	event->cgroup.state = PATH_NONE;
	event->limit_cgroup.length_bytes = 0;
	event->limit_cgroup.state = PATH_NONE;
}

/* mark_victim(struct task_struct *victim, uid_t uid) or mark_victim(int pid) */
SEC("raw_tp/mark_victim")
int mark_victim(__u64 *args)
{
	__u64 current = bpf_get_current_pid_tgid();
	struct task_struct *victim = (void *)args[0];
	__u32 thread = current, pid = args[0];
	const struct kill *kill = bpf_map_lookup_elem(&kills, &thread);
	struct event *event = NULL;
	struct owner owner;

	if (argument_is_task)
		pid = core_get(victim->pid);
	if (victim_from_signal) {
		victim = kill ? (void *)kill->victim : NULL;
		/* Not the process that this thread has just killed: one that was dying anyway. */
		if (!victim || (__u32)core_get(victim->pid) != pid)
			return 0;
	}
	begin_task(&owner, victim);
	if (ring_has_room_for(&events, &owner))
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count_lost(&events, &owner);
		return 0;
	}
	clear(event);
	event->time_ns = bpf_ktime_get_boot_ns();
	event->trigger_pid = current >> 32;
	bpf_get_current_comm(event->trigger_comm, sizeof(event->trigger_comm));
	event->stack_bytes = bpf_get_stack(args, event->stack, sizeof(event->stack), 0);
	fill_victim(event, victim);
	fill_cgroups(event, victim, kill);
	count_in_ring(&events, &owner, sizeof(*event));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/*
 * signal_generate(int sig, struct kernel_siginfo *info, struct task_struct *task,
 * int group, int result): __oom_kill_process sends SIGKILL to the victim and then
 * marks the same task.
 */
SEC("raw_tp/signal_generate")
int kill_signal(__u64 *args)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct kill fresh = {}, *kill;

	if ((int)args[0] != SIGKILL)
		return 0;
	kill = bpf_map_lookup_elem(&kills, &thread);
	if (kill) {
		kill->victim = args[2];
		return 0;
	}
	fresh.victim = args[2];
	bpf_map_update_elem(&kills, &thread, &fresh, BPF_ANY);
	return 0;
}

static __always_inline int oom_kill(struct oom_control *control)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct kill kill = {
		.memcg = (__u64)core_get(control->memcg),
		.exact = 1,
	};

	bpf_map_update_elem(&kills, &thread, &kill, BPF_ANY);
	return 0;
}

/* oom_kill_process(struct oom_control *oc, const char *message), mm/oom_kill.c */
SEC("fentry/oom_kill_process")
int oom_kill_fentry(__u64 *args)
{
	return oom_kill((struct oom_control *)args[0]);
}

SEC("kprobe/oom_kill_process")
int oom_kill_kprobe(struct pt_regs *regs)
{
	return oom_kill((struct oom_control *)first_argument(regs));
}
