//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Notes what begins on a FUSE file system, and strikes out what ends, so that what
 * is left is what hangs.
 *
 * A request begins when the kernel queues it for the daemon and ends in
 * fuse_request_end, answered or aborted. Since Linux 6.12 (396b209e405a) both are
 * tracepoints; before, queue_request_and_unlock, which every request passes, and
 * fuse_request_end are probed.
 *
 * A page fault begins in filemap_fault (tracepoint mm_filemap_fault, 6.12, or the
 * function). Where it ends there is no hook that may be relied on: a return probe
 * has a limited number of instances, which a thousand waiters use up, and the
 * retry after the wait maps the page without filemap_fault. So the beginning
 * notes how many faults the thread has completed (maj_flt + min_flt, counted when
 * a fault succeeds: mm_account_fault), and an iterator over the threads looks at
 * that number again, at the thread's state and at its kernel stack. The kernel's
 * own event of a completed major fault strikes it out and gives its duration.
 *
 * Reading the precise clock is the dearest thing one can do here, so a request's
 * age is kept in jiffies, and one request in sixteen is timed.
 *
 * Cost: two lookups in a hash per request, a third for one that is timed or in the
 * background; a fault on another file system, one comparison. README.md has the figures.
 */
#include "again.h"
#include "dropped.h"
#include "fuse.h"
#include "kernel.h"
#include "registers.h"

/* Tables of room.h. */
#define REQUESTS 0
#define FAULTS 1
#define MOUNTS 2
#define ROOM_TABLES 3
#include "room.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define COMM_BYTES 16
#define STACK_FRAMES 32 /* a fault waits some fifteen frames below handle_mm_fault's caller */
#define BUCKETS 28      /* the last boundary is 2^26 us, 67 s; event.go knows the number */

#define ECONNABORTED 103
#define ENOTCONN 107

/* From user space before load: where FUSE's structures have their fields. */
volatile const __u32 request_flags_at = 0;  /* struct fuse_req: flags */
volatile const __u32 request_header_at = 0; /* in.h */
volatile const __u32 request_error_at = 0;  /* out.h.error */
volatile const __u32 request_queue_at = 0;  /* waitq.head: who waits for the answer */
volatile const __u32 request_mount_at = 0;  /* fm */
volatile const __u32 request_mount_or_at = 0; /* where fm is if it is not there; 0: known */
volatile const __u32 mount_connection_at = 0; /* struct fuse_mount: fc */
volatile const __u32 mount_super_at = 0;      /* sb */
volatile const __u32 request_channel_at = 0;  /* struct fuse_req: chan, which took the place of fm; 0: has fm */
volatile const __u32 channel_connection_at = 0; /* struct fuse_chan: conn */
volatile const __u32 connection_device_at = 0;  /* struct fuse_conn: dev */
volatile const __u32 connection_channel_at = 0; /* chan */
volatile const __u32 device_connection_at = 0; /* struct fuse_dev: fc, or chan */
volatile const __u32 device_rdev = 0;          /* of /dev/fuse */
volatile const __u64 tick_ns = 0;              /* a jiffy */
/* Where handle_mm_fault lies, from and to, in pieces; zeroes: not known. */
#define CODE_PIECES 4
volatile const __u64 fault_code[CODE_PIECES][2] = {};

/* The boot clock when jiffies were zero, as set_clock last found it. */
__u64 jiffies_zero_ns = 0;

struct request {
	__u64 start_ns; /* boot clock, to a jiffy */
	__u64 ended_ns; /* the same; 0: in flight */
	__u64 timed_ns; /* its start to the nanosecond, where it has a weight */
	__u64 answered; /* how many requests of this device the structure was, and had an answer */
	__u64 node_id;
	__u64 connection; /* struct fuse_conn or fuse_chan, as a name only */
	__u32 device;
	__u32 opcode;
	__u32 tid; /* in the initial pid namespace; 0: nobody's */
	__u32 pid;
	__u32 background;
	__u32 weight; /* how many requests it stands for in the histogram; 0: it is not timed; or */
#define UNMEASURED (~0U) /* its start is not known */
	struct owner owner;
};

/*
 * struct fuse_req → what it is. The kernel uses the same few structures again and
 * again, so an entry is not deleted when its request ends but marked: that, and its
 * next use, take no lock. User space lets forget_request delete what was not used
 * again for long. A request that a fatal signal takes out of the queue ends nowhere:
 * user space strikes it out when its thread is gone. One whose owner has no room
 * (room.h) is counted in dropped.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct request);
} requests SEC(".maps");

struct fault {
	__u64 start_ns;
	__u64 completed; /* faults that the thread had completed */
	__u64 inode;
	__u64 index; /* page of the file; or */
#define LATE (~0ULL) /* it was found while its thread waited: its start is not known */
	__u32 device;
	__u32 pid;
	struct owner owner;
};

/*
 * thread → its latest fault on a FUSE file. Deleted when a major fault is
 * complete; user space lets forget_fault delete those of threads that are gone and
 * those that ended a while ago. A fault whose owner has no room (room.h) is counted
 * in dropped.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct fault);
} faults SEC(".maps");

struct mount {
	__u64 connection; /* what each answer touches comes first: it shares the key's cache line */
	__u32 daemon;     /* who answered last */
	__u32 pad;
	__u64 answered; /* requests, beside what their own entries still count */
	__u64 aborted;
	__u64 requests_sum_ns;
	__u64 requests[BUCKETS];
	__u64 faults_sum_ns;
	__u64 faults[BUCKETS];
	char comm[COMM_BYTES];
	__u64 used_ns; /* boot clock, to a jiffy: when something was last counted here */
	struct owner owner; /* who first used it: its daemon, or who waited before that answered */
};

/*
 * device → what its file system has completed. When half of it is in use, user space
 * lets forget_mount delete those that were quiet for long. What is completed on one whose
 * owner has no room (room.h) is counted in dropped.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, struct mount);
} mounts SEC(".maps");

/* PID_MAX_LIMIT, include/linux/threads.h */
#define MAX_TID (4 * 1024 * 1024)
#define BPF_F_MMAPABLE (1U << 10) /* include/uapi/linux/bpf.h; since 5.5 */

/* thread → a bit: user space wants to know about it. User space sets and clears the bits in
 * mapped memory around a run of the iterator; all_requests says why not by bpf(2). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_TID / 64);
	__type(key, __u32);
	__type(value, __u64);
} asked SEC(".maps");

/* A copy of one field of FUSE's: through the kernel's type where it is known
 * (direct), else by a helper. */
#define at(dst, base, offset, direct)                                               \
	do {                                                                        \
		if (direct)                                                         \
			*(dst) = *(typeof(dst))((void *)(base) + (offset));         \
		else if (bpf_probe_read_kernel((dst), sizeof(*(dst)), (void *)(base) + (offset))) \
			__builtin_memset((dst), 0, sizeof(*(dst)));                 \
	} while (0)

static __always_inline struct super_block___fuse *super_of(void *mount, bool direct)
{
	struct super_block___fuse *super;

	at(&super, mount, mount_super_at, direct);
	return super;
}

static __always_inline bool is_fuse(struct super_block___fuse *super, bool direct)
{
	return (direct ? super->s_magic : core_get(super->s_magic)) == FUSE_SUPER_MAGIC;
}

static __always_inline void *mount_of(void *req, bool direct)
{
	void *mount;

	at(&mount, req, request_mount_at, direct);
	if (direct || !request_mount_or_at || is_fuse(super_of(mount, false), false))
		return mount;
	at(&mount, req, request_mount_or_at, false);
	return mount;
}

/* Whose background request this is. One that waited for a free slot is sent when an
 * answer makes room, by the daemon's thread: that is nobody's. */
static __always_inline bool sent_by_daemon(const struct request *r)
{
	const struct mount *m = bpf_map_lookup_elem(&mounts, &r->device);

	return m && m->daemon == r->pid;
}

/* On which file system: device stays 0 for CUSE, which has none. */
static __always_inline void fill_device(struct request *r, void *req, bool direct)
{
	struct super_block___fuse *super;
	void *mount, *channel, *connection;

	if (request_channel_at) {
		at(&channel, req, request_channel_at, direct);
		at(&connection, channel, channel_connection_at, direct);
		at(&r->device, connection, connection_device_at, direct);
		r->connection = (__u64)channel;
		return;
	}
	mount = mount_of(req, direct);
	super = super_of(mount, direct);
	if (!direct && !is_fuse(super, false))
		return;
	r->device = direct ? super->s_dev : core_get(super->s_dev);
	at(&r->connection, mount, mount_connection_at, direct);
}

/* The least i, at most the last bucket, with duration < 2^i us. */
static __always_inline __u64 bucket(__u64 duration_ns)
{
	__u64 us = duration_ns / 1000, i = 0;

	if (us >= 1ULL << (BUCKETS - 2))
		return BUCKETS - 1;
	if (us >> 16) {
		us >>= 16;
		i += 16;
	}
	if (us >> 8) {
		us >>= 8;
		i += 8;
	}
	if (us >> 4) {
		us >>= 4;
		i += 4;
	}
	if (us >> 2) {
		us >>= 2;
		i += 2;
	}
	if (us >> 1) {
		us >>= 1;
		i += 1;
	}
	return i + us;
}

static __always_inline void count_duration(__u64 *buckets, __u64 *sum_ns, __u64 duration_ns, __u32 weight)
{
	__u64 i = bucket(duration_ns);

	/* The verifier must see the comparison on the value that is used. */
	asm volatile("" : "+r"(i));
	if (i >= BUCKETS)
		return;
	__sync_fetch_and_add(&buckets[i], weight);
	__sync_fetch_and_add(sum_ns, duration_ns * weight);
}

/* bpf_jiffies64 is a load that the verifier inlines, where the precise clock is a
 * call that on some virtual machines takes longer than all else here. The coarse
 * clock's helper is not for tracing (5e0bc3082e2e). */
static __always_inline __u64 coarse_now(void)
{
	return jiffies_zero_ns + bpf_jiffies64() * tick_ns;
}

/* Makes the entry of a file system, if its owner has room; two CPUs may want to. */
static __always_inline struct mount *make_mount(__u32 device)
{
	static const struct mount fresh;
	struct task_struct *task = (void *)bpf_get_current_task();
	struct owner owner = {};
	struct mount *m;

	begin_owner(&owner, task);
	find_slots(&owner, task, device);
	if (!has_room(MOUNTS, &owner))
		return NULL;
	if (bpf_map_update_elem(&mounts, &device, &fresh, BPF_NOEXIST))
		return bpf_map_lookup_elem(&mounts, &device);
	m = bpf_map_lookup_elem(&mounts, &device);
	if (!m)
		return NULL;
	m->owner = owner;
	count_held(MOUNTS, &owner, 1);
	return m;
}

/* The entry of a file system on which something is completed, NULL where there is no
 * room. */
static __always_inline struct mount *mount_entry(__u32 device)
{
	struct mount *m = bpf_map_lookup_elem(&mounts, &device);

	if (!m)
		m = make_mount(device);
	if (m)
		m->used_ns = coarse_now();
	else
		count_dropped();
	return m;
}

/* User space runs it by BPF_PROG_TEST_RUN before each look: the boot clock goes on
 * while the machine is suspended, and jiffies do not. A jiffy is added, for a page
 * fault must not look younger than the request that it makes. */
SEC("raw_tp")
int set_clock(void *ctx)
{
	jiffies_zero_ns = bpf_ktime_get_boot_ns() - (bpf_jiffies64() - 1) * tick_ns;
	return 0;
}

#define TIMED_BITS 4 /* one request in 16 is timed */

/*
 * Whether the next request of a structure is timed, by how many it was: the n-th
 * multiple of the golden ratio falls into the first sixteenth of the circle. So it
 * is one in sixteen of each structure's, and also of every second, third … of
 * them: what asks for the same few things in turn gets each of them timed. (A
 * random number, bpf_get_prandom_u32, costs 0.06 us.)
 */
static __always_inline bool is_timed(__u64 n)
{
	return n * 0x9e3779b97f4a7c15ULL >> (64 - TIMED_BITS) == 0;
}

/* Keeps what the structure has counted: with it, or where it was on another device there. */
static __always_inline void keep_answered(struct request *r, const struct request *known)
{
	struct mount *m;

	if (!known || !known->answered)
		return;
	if (known->device == r->device) {
		r->answered = known->answered;
		return;
	}
	m = mount_entry(known->device);
	if (m)
		__sync_fetch_and_add(&m->answered, known->answered);
}

/* Decides who is timed: the first request of a structure on a device, which stands
 * for itself, and then some that stand for sixteen. */
static __always_inline void choose(struct request *r, const struct request *known)
{
	r->weight = 1;
	if (known && known->device == r->device)
		r->weight = is_timed(known->answered) ? 1 << TIMED_BITS : 0;
	if (r->weight)
		r->timed_ns = bpf_ktime_get_boot_ns();
}

/*
 * Whose entry it is from now on. The kernel uses a structure again for anybody, so the
 * entry of one may become that of another, who needs room for it. An entry that its
 * owner may not have stays what it was: ended.
 */
static __always_inline bool take(struct request *r, struct request *known, struct task_struct *task)
{
	begin_owner(&r->owner, task);
	if (known && known->device == r->device && same_owner(&known->owner, &r->owner)) {
		r->owner = known->owner;
		return true;
	}
	find_slots(&r->owner, task, r->device);
	if (!has_room(REQUESTS, &r->owner)) {
		if (known && !known->ended_ns)
			known->ended_ns = coarse_now();
		return false;
	}
	if (known) {
		count_held(REQUESTS, &known->owner, -1);
		count_held(REQUESTS, &r->owner, 1);
	}
	return true;
}

/* What a request asks for, and its flags. */
static __always_inline __u64 fill_header(struct request *r, void *req, bool direct)
{
	__u64 flags;

	at(&flags, req, request_flags_at, direct);
	at(&r->opcode, req, request_header_at + __builtin_offsetof(struct fuse_in_header, opcode), direct);
	at(&r->node_id, req, request_header_at + __builtin_offsetof(struct fuse_in_header, nodeid), direct);
	return flags;
}

/* Makes the entry of a request, or puts it into that which its structure had. */
static __always_inline bool put(__u64 key, struct request *r, struct request *known)
{
	keep_answered(r, known);
	if (known) {
		r->ended_ns = known->ended_ns;
		*known = *r;
		asm volatile("" ::: "memory");
		known->ended_ns = 0; /* last: a reader must not take the old fields for the new */
		return true;
	}
	if (bpf_map_update_elem(&requests, &key, r, BPF_NOEXIST))
		return false;
	count_held(REQUESTS, &r->owner, 1);
	return true;
}

static __always_inline int request_begins(void *req, bool direct)
{
	__u64 key = (__u64)req, flags, thread = bpf_get_current_pid_tgid();
	struct request r = {}, *known;

	fill_device(&r, req, direct);
	if (!r.device)
		return 0;
	flags = fill_header(&r, req, direct);
	r.tid = thread;
	r.pid = thread >> 32;
	r.background = flags >> FR_BACKGROUND & 1 || r.opcode == FUSE_NOTIFY_REPLY;
	if (r.background && sent_by_daemon(&r))
		r.tid = r.pid = 0;
	r.start_ns = coarse_now();
	known = bpf_map_lookup_elem(&requests, &key);
	if (!take(&r, known, (void *)bpf_get_current_task())) {
		count_dropped();
		return 0;
	}
	choose(&r, known);
	if (!put(key, &r, known))
		count_dropped();
	return 0;
}

/* Puts an answer into the histogram, if it has a weight, and takes note of who gave it. */
static __always_inline void count_answer(const struct request *r, __u64 duration_ns, __u32 weight)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct mount *m = mount_entry(r->device);
	struct task_struct *task;

	if (!m)
		return;
	count_duration(m->requests, &m->requests_sum_ns, duration_ns, weight);
	if (m->daemon == pid && m->connection == r->connection)
		return;
	m->connection = r->connection;
	task = (void *)bpf_get_current_task();
	/* Virtio's answers come in kernel threads, which have no memory of their own. */
	if (!core_get(task->mm))
		return;
	m->daemon = pid;
	task = core_get(task->group_leader); /* a process has its first thread's name */
	core_read(&m->comm, task->comm);
}

/* From here on jiffies are exact enough for a duration, and each request is counted:
 * a boundary between buckets, 2^16 us. */
#define LONG_NS ((1 << 16) * 1000ULL)

static __always_inline void answered(struct request *r, __u64 now)
{
	__u64 duration_ns = now > r->start_ns ? now - r->start_ns : 0;
	__u32 weight = r->weight;

	r->answered++;
	if (weight == UNMEASURED)
		weight = duration_ns = 0;
	else if (weight)
		duration_ns = bpf_ktime_get_boot_ns() - r->timed_ns;
	else if (duration_ns < LONG_NS)
		return;
	if (duration_ns >= LONG_NS)
		weight = 1;
	count_answer(r, duration_ns, weight);
}

/* Ended by the kernel and answered by nobody: fuse_abort_conn, and what is sent after it. */
static __always_inline void aborted(const struct request *r)
{
	struct mount *m = mount_entry(r->device);

	if (m)
		__sync_fetch_and_add(&m->aborted, 1);
}

static __always_inline int request_ends(void *req, bool direct)
{
	__u64 key = (__u64)req, now;
	struct request *r = bpf_map_lookup_elem(&requests, &key);
	__s32 error;

	if (!r || r->ended_ns)
		return 0;
	at(&error, req, request_error_at, direct);
	now = coarse_now();
	if (error == -ECONNABORTED || error == -ENOTCONN)
		aborted(r);
	else
		answered(r, now);
	r->ended_ns = now;
	return 0;
}

static __always_inline __u64 completed_faults(struct task_struct___waiting *task)
{
	return core_get(task->maj_flt) + core_get(task->min_flt);
}

/* Of a thread, by its number and that of its process. */
static __always_inline int note_fault(struct task_struct___waiting *task, __u64 thread, __u32 device, __u64 inode, __u64 index)
{
	struct fault fresh = {}, *known;
	__u32 tid = thread;

	fresh.completed = completed_faults(task);
	known = bpf_map_lookup_elem(&faults, &tid);
	/* The kernel's second attempt at the same fault, or it waits still: it goes on. */
	if (known && known->completed == fresh.completed && known->inode == inode &&
	    (known->index == index || known->index == LATE || index == LATE) && known->device == device)
		return 0;
	fresh.start_ns = bpf_ktime_get_boot_ns();
	fresh.inode = inode;
	fresh.index = index;
	fresh.device = device;
	fresh.pid = thread >> 32;
	if (known) {
		fresh.owner = known->owner;
		if (!bpf_map_update_elem(&faults, &tid, &fresh, BPF_EXIST))
			return 0; /* else user space has just forgotten it */
	}
	begin_owner(&fresh.owner, (void *)task);
	find_slots(&fresh.owner, (void *)task, device);
	if (has_room(FAULTS, &fresh.owner) && !bpf_map_update_elem(&faults, &tid, &fresh, BPF_NOEXIST))
		count_held(FAULTS, &fresh.owner, 1);
	else if (index != LATE)
		count_dropped();
	return 0;
}

static __always_inline int fault_begins(__u32 device, __u64 inode, __u64 index)
{
	return note_fault((void *)bpf_get_current_task(), bpf_get_current_pid_tgid(), device, inode, index);
}

static __always_inline void delete_fault(__u32 tid, const struct fault *f)
{
	struct owner owner = f->owner;

	if (!bpf_map_delete_elem(&faults, &tid))
		count_held(FAULTS, &owner, -1);
}

/* Of again.h. To note the same beginning twice changes nothing; a missed end is found by
 * request_lasts. */
enum { HOOK_SEND, HOOK_FAULT };

/* TP_PROTO(const struct fuse_req *req), include/trace/events/fuse.h */
SEC("tp_btf/fuse_request_send")
int request_send_tracepoint(__u64 *args)
{
	if (handled_already(HOOK_SEND, args[0]))
		return 0;
	return request_begins((void *)args[0], true);
}

SEC("tp_btf/fuse_request_end")
int request_end_tracepoint(__u64 *args)
{
	return request_ends((void *)args[0], true);
}

/* TP_PROTO(struct address_space *mapping, pgoff_t index) */
SEC("tp_btf/mm_filemap_fault")
int fault_tracepoint(__u64 *args)
{
	struct address_space___fuse *mapping = (void *)args[0];
	struct inode___fuse *inode = mapping->host;

	if (!is_fuse(inode->i_sb, true) || handled_already(HOOK_FAULT, bpf_get_current_task()))
		return 0;
	return fault_begins(inode->i_sb->s_dev, inode->i_ino, args[1]);
}

/* static void queue_request_and_unlock(struct fuse_iqueue *fiq, struct fuse_req *req),
 * fs/fuse/dev.c, until 6.11 */
SEC("fentry/queue_request_and_unlock")
int request_queue_fentry(__u64 *args)
{
	if (handled_already(HOOK_SEND, args[1]))
		return 0;
	return request_begins((void *)args[1], true);
}

/* void fuse_request_end(struct fuse_req *req) */
SEC("fentry/fuse_request_end")
int request_end_fentry(__u64 *args)
{
	return request_ends((void *)args[0], true);
}

/* vm_fault_t filemap_fault(struct vm_fault *vmf), mm/filemap.c */
SEC("fentry/filemap_fault")
int fault_fentry(__u64 *args)
{
	struct vm_fault___fuse *vmf = (void *)args[0];
	struct inode___fuse *inode = vmf->vma->vm_file->f_inode;

	if (!is_fuse(inode->i_sb, true) || handled_already(HOOK_FAULT, bpf_get_current_task()))
		return 0;
	return fault_begins(inode->i_sb->s_dev, inode->i_ino, vmf->pgoff);
}

SEC("kprobe/queue_request_and_unlock")
int request_queue_kprobe(struct pt_regs *regs)
{
	return request_begins((void *)second_argument(regs), false);
}

SEC("kprobe/fuse_request_end")
int request_end_kprobe(struct pt_regs *regs)
{
	return request_ends((void *)first_argument(regs), false);
}

SEC("kprobe/filemap_fault")
int fault_kprobe(struct pt_regs *regs)
{
	struct vm_fault___fuse *vmf = (void *)first_argument(regs);
	struct inode___fuse *inode = core_get(core_get(core_get(vmf->vma)->vm_file)->f_inode);
	struct super_block___fuse *super = core_get(inode->i_sb);

	if (!is_fuse(super, false))
		return 0;
	return fault_begins(core_get(super->s_dev), core_get(inode->i_ino), core_get(vmf->pgoff));
}

/*
 * Whether a request that was noted is still in flight, for user space to ask by
 * BPF_PROG_TEST_RUN (raw tracepoints: 5.10). The kernel does not run a program
 * on a CPU on which it is running, so an end can be missed where tracepoints may be
 * preempted (7.0). An ended request is finished; memory that was freed and used
 * again is not likely to be the same request of the same node.
 */
SEC("raw_tp")
int request_lasts(__u64 *args)
{
	__u64 key = args[0], flags, node_id;
	void *req = (void *)key;
	struct request *r = bpf_map_lookup_elem(&requests, &key);
	__u32 opcode;

	if (!r || r->ended_ns)
		return 0;
	at(&flags, req, request_flags_at, false);
	at(&opcode, req, request_header_at + __builtin_offsetof(struct fuse_in_header, opcode), false);
	at(&node_id, req, request_header_at + __builtin_offsetof(struct fuse_in_header, nodeid), false);
	return flags && !(flags >> FR_FINISHED & 1) && opcode == r->opcode && node_id == r->node_id;
}

/*
 * PERF_COUNT_SW_PAGE_FAULTS_MAJ, in the thread, when its fault is complete and
 * counted: mm_account_fault, mm/memory.c.
 */
SEC("perf_event")
int fault_ends(void *ctx)
{
	struct task_struct___waiting *task = (void *)bpf_get_current_task();
	__u32 tid = bpf_get_current_pid_tgid();
	struct fault *f = bpf_map_lookup_elem(&faults, &tid);
	struct mount *m;

	if (!f)
		return 0;
	m = mount_entry(f->device);
	if (m && f->index != LATE && completed_faults(task) == f->completed + 1)
		count_duration(m->faults, &m->faults_sum_ns, bpf_ktime_get_boot_ns() - f->start_ns, 1);
	delete_fault(tid, f);
	return 0;
}

/*
 * User space takes an entry out by BPF_PROG_TEST_RUN: a key, and the start of what it
 * knows under it, for the kernel may have used the key again. Returns 1 when it did.
 */
SEC("raw_tp")
int forget_request(__u64 *args)
{
	__u64 key = args[0];
	struct request *r = bpf_map_lookup_elem(&requests, &key);
	struct owner owner;

	if (!r || r->start_ns != args[1])
		return 0;
	owner = r->owner;
	if (bpf_map_delete_elem(&requests, &key))
		return 0;
	count_held(REQUESTS, &owner, -1);
	return 1;
}

SEC("raw_tp")
int forget_fault(__u64 *args)
{
	__u32 tid = args[0];
	struct fault *f = bpf_map_lookup_elem(&faults, &tid);

	if (!f || f->start_ns != args[1])
		return 0;
	delete_fault(tid, f);
	return 1;
}

SEC("raw_tp")
int forget_mount(__u64 *args)
{
	__u32 device = args[0];
	struct mount *m = bpf_map_lookup_elem(&mounts, &device);
	struct owner owner;

	if (!m || m->used_ns != args[1])
		return 0;
	owner = m->owner;
	if (bpf_map_delete_elem(&mounts, &device))
		return 0;
	count_held(MOUNTS, &owner, -1);
	return 1;
}

/* include/linux/sched.h: also set in TASK_KILLABLE. */
#define TASK_UNINTERRUPTIBLE 2

/* What a thread does now. */
struct thread {
	__u64 start_ns;
	__u64 completed; /* faults */
	__u64 switches;
	__u64 stack[STACK_FRAMES]; /* return addresses, innermost first; zeroes behind */
	__u32 tid;
	__u32 pid;
	__u32 state;
	__u32 asked;
	char comm[COMM_BYTES];
};

const struct thread *thread_type __attribute__((unused));

static __always_inline __u32 state_of(struct task_struct___waiting *task)
{
	if (core_field_exists(task->__state))
		return task->__state;
	return ((struct task_struct___state *)task)->state;
}

static __always_inline bool is_asked(__u32 tid)
{
	__u32 word = tid / 64;
	const __u64 *bits = bpf_map_lookup_elem(&asked, &word);

	return bits && *bits >> (tid % 64) & 1;
}

/* Tells of each thread that was asked about and of each that sleeps
 * uninterruptibly: that is how one waits for a page that another's request fills. */
SEC("iter/task")
int threads(struct bpf_iter__task___fuse *ctx)
{
	struct task_struct___waiting *task = (void *)ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	struct thread t;

	if (!task)
		return 0;
	zero(&t);
	t.tid = task->pid;
	t.state = state_of(task);
	t.asked = is_asked(t.tid);
	if (!t.asked && !(t.state & TASK_UNINTERRUPTIBLE))
		return 0;
	t.pid = task->tgid;
	t.start_ns = task->start_boottime;
	t.completed = task->maj_flt + task->min_flt;
	t.switches = task->nvcsw + task->nivcsw;
	core_read(&t.comm, task->comm);
	get_task_stack((struct task_struct *)task, t.stack, sizeof(t.stack), 0);
	seq_write(seq, &t, sizeof(t));
	return 0;
}

#define TASK_INTERRUPTIBLE 1

/* The stack of a thread that sleeps, from its end: some twenty words of the scheduler, then
 * those of who sleeps. Read in pieces, for behind the last word of a stack there is nothing. */
#define WORDS 128
#define PIECE 32
__u64 words[WORDS];

static __always_inline void read_stack(__u64 from)
{
	__u32 i;

	for (i = 0; i < WORDS; i += PIECE)
		bpf_probe_read_kernel(&words[i], PIECE * sizeof(__u64), (void *)(from + i * sizeof(__u64)));
}

/* struct wait_queue_entry, include/linux/wait.h, so since 4.13: flags, private (the thread),
 * func, entry.next, entry.prev. In words from private. */
#define NEXT 2
#define PREV 3

/*
 * The request for whose answer a thread sleeps, by its entry in that request's wait queue
 * (request_wait_answer, fs/fuse/dev.c). The entry lies on the thread's stack. Nobody else
 * is in such a queue: both ways lead to its head, and the head leads back. What was left on
 * the stack by an earlier wait does not.
 */
static __always_inline void *awaited_request(struct task_struct___waiting *task, __u64 stack)
{
	__u64 head, back;
	__u32 i;

	for (i = 0; i < WORDS - PREV; i++) {
		if (words[i] != (__u64)task)
			continue;
		head = words[i + NEXT];
		if (head != words[i + PREV] || bpf_probe_read_kernel(&back, sizeof(back), (void *)head))
			continue;
		if (back == stack + (i + NEXT) * sizeof(__u64) && back != head)
			return (void *)(head - request_queue_at);
	}
	return NULL;
}

/*
 * The page for which a thread sleeps: struct wait_page_queue, include/linux/pagemap.h, has it
 * two words before the thread's entry in a wait queue, flags not counted. Others wait in that
 * queue; the next of them leads back.
 */
static __always_inline void *awaited_page(struct task_struct___waiting *task, __u64 stack)
{
	__u64 next, back, mine;
	__u32 i;

	for (i = 3; i < WORDS - PREV; i++) {
		if (words[i] != (__u64)task)
			continue;
		next = words[i + NEXT];
		mine = stack + (i + NEXT) * sizeof(__u64);
		if (next == mine || bpf_probe_read_kernel(&back, sizeof(back), (void *)(next + sizeof(__u64))))
			continue;
		if (back == mine)
			return (void *)words[i - 3];
	}
	return NULL;
}

/* Whether memory is a request of FUSE's: its mount has FUSE's number, which fill_device
 * asks, or its channel's connection leads back to the channel. */
static __always_inline bool is_request(void *req)
{
	void *channel, *connection, *back;

	if (!request_channel_at)
		return true;
	at(&channel, req, request_channel_at, false);
	at(&connection, channel, channel_connection_at, false);
	at(&back, connection, connection_channel_at, false);
	return channel && back == channel;
}

/* The request begins now, as far as is known, and its duration is not measured. */
static __always_inline void note_late_request(struct task_struct___waiting *task, void *req)
{
	struct request r = {}, *known;
	__u64 key = (__u64)req, flags;

	fill_device(&r, req, false);
	if (!r.device)
		return;
	flags = fill_header(&r, req, false);
	if (flags >> FR_FINISHED & 1 || flags >> FR_BACKGROUND & 1)
		return;
	r.tid = task->pid;
	r.pid = task->tgid;
	known = bpf_map_lookup_elem(&requests, &key);
	if (known && !known->ended_ns && known->tid == r.tid)
		return;
	r.start_ns = coarse_now();
	r.weight = UNMEASURED;
	if (take(&r, known, (struct task_struct *)task))
		put(key, &r, known);
}

__u64 frames[STACK_FRAMES]; /* no room for it on a program's own stack */

static __always_inline bool in_fault(struct task_struct___waiting *task)
{
	__u32 i, piece;

	zero(&frames);
	get_task_stack((struct task_struct *)task, frames, sizeof(frames), 0);
	for (i = 0; i < STACK_FRAMES; i++)
		for (piece = 0; piece < CODE_PIECES; piece++)
			if (frames[i] > fault_code[piece][0] && frames[i] <= fault_code[piece][1])
				return true;
	return false;
}

static __always_inline void note_late_fault(struct task_struct___waiting *task, void *page)
{
	struct address_space___fuse *mapping;
	struct super_block___fuse *super;
	struct inode___fuse *inode;
	__u64 thread;

	if (core_field_exists(((struct folio___fuse *)page)->mapping))
		mapping = core_get(((struct folio___fuse *)page)->mapping);
	else
		mapping = core_get(((struct page___fuse *)page)->mapping);
	inode = core_get(mapping->host);
	super = core_get(inode->i_sb);
	thread = (__u64)task->tgid << 32 | (__u32)task->pid;
	if (is_fuse(super, false) && in_fault(task))
		note_fault(task, thread, core_get(super->s_dev), core_get(inode->i_ino), LATE);
}

/*
 * Notes that a thread waits for a request, or in a fault for a page that the request of
 * another reads, where no program was told of the beginning: the thread waited before
 * the probe was opened, or the kernel left the program out (all_requests, again.h). What
 * has no room stays out: it was counted when it began, or waited before. A request that
 * ends while it is noted looks in flight until user space sees that its thread does not
 * wait for it.
 */
SEC("iter/task")
int overlooked(struct bpf_iter__task___fuse *ctx)
{
	struct task_struct___waiting *task = (void *)ctx->task;
	__u64 stack;
	__u32 state;
	void *found;

	if (!task)
		return 0;
	state = state_of(task);
	if (!(state & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE)))
		return 0;
	stack = stack_pointer(task);
	read_stack(stack);
	found = awaited_request(task, stack);
	if (found) {
		if (is_request(found))
			note_late_request(task, found);
		return 0;
	}
	if (!(state & TASK_UNINTERRUPTIBLE))
		return 0;
	found = awaited_page(task, stack);
	if (found)
		note_late_fault(task, found);
	return 0;
}

/* A process that holds /dev/fuse open for a connection. */
struct holder {
	__u64 connection;
	__u64 start_ns;
	__u32 pid;
	__u32 pad;
	char comm[COMM_BYTES];
};

const struct holder *holder_type __attribute__((unused));

SEC("iter/task_file")
int holders(struct bpf_iter__task_file___fuse *ctx)
{
	struct task_struct___waiting *task = (void *)ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	struct file___fuse *file = ctx->file;
	struct holder h;
	__u64 device;

	if (!task || !file || file->f_inode->i_rdev != device_rdev)
		return 0;
	zero(&h);
	/* 6.18 keeps a flag in the lowest bit while the first answer is missing
	 * (FUSE_DEV_SYNC_INIT, fs/fuse/fuse_dev_i.h). */
	device = (__u64)file->private_data & ~1ULL;
	bpf_probe_read_kernel(&h.connection, sizeof(h.connection), (void *)device + device_connection_at);
	if (!h.connection)
		return 0;
	h.pid = task->tgid;
	h.start_ns = task->group_leader->start_boottime;
	core_read(&h.comm, task->group_leader->comm);
	seq_write(seq, &h, sizeof(h));
	return 0;
}

/*
 * Copy an entry for user space. bpf(2) could: but while it copies from a map or into one, the
 * kernel runs no program of a kprobe on that CPU, and nobody counts those that it left
 * out (bpf_prog_active, kernel/bpf/syscall.c, kernel/trace/bpf_trace.c). Where a reader
 * is preempted meanwhile, others on its CPU begin to wait unseen. With a reader that never
 * paused, 3 of 90 pairs of threads did (6.1-rt, 2 emulated CPUs, 2026-11-23).
 */
static __always_inline int copy(struct bpf_iter__bpf_map_elem___fuse *ctx, __u32 key, __u32 value)
{
	struct seq_file *seq = ctx->meta->seq;
	void *from_key = ctx->key, *from_value = ctx->value;

	if (!from_key || !from_value) /* behind the last */
		return 0;
	seq_write(seq, from_key, key);
	seq_write(seq, from_value, value);
	return 0;
}

SEC("iter/bpf_map_elem")
int all_requests(struct bpf_iter__bpf_map_elem___fuse *ctx)
{
	return copy(ctx, sizeof(__u64), sizeof(struct request));
}

SEC("iter/bpf_map_elem")
int all_faults(struct bpf_iter__bpf_map_elem___fuse *ctx)
{
	return copy(ctx, sizeof(__u32), sizeof(struct fault));
}

SEC("iter/bpf_map_elem")
int all_mounts(struct bpf_iter__bpf_map_elem___fuse *ctx)
{
	return copy(ctx, sizeof(__u32), sizeof(struct mount));
}
