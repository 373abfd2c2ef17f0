//go:build ignore
// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The TCP sockets of the processes that user space names, in every network
 * namespace, and the rare events of those sockets.
 *
 * The snapshot is an iterator over the open files of tasks (iter/task_file, Linux
 * 5.8): user space reads it once a second and it runs in that reader alone. It
 * sees a socket together with who holds it, whatever network namespace either is
 * in, where iter/tcp and sock_diag see one namespace and no owner. Since 6.1 the
 * iterator can be bound to one process; before, each open file of the host costs
 * one lookup of its owner.
 *
 * Changes come from three tracepoints that no byte of a healthy connection
 * passes: inet_sock_set_state, tcp_retransmit_skb and tcp_destroy_sock. For a
 * socket of anyone else each costs one lookup. Nothing hooks send or receive.
 */
#define ROOM_TABLES 0 /* the ring alone is shared */
#include "ring.h"
#include "record.h"

char dual_license[] SEC("license") = "Dual BSD/GPL";

#define SOCKFS_MAGIC 0x534F434B
#define RETRANSMIT_INTERVAL_NS 1000000000ULL /* one change a second and socket tells it all */

enum change_kind {
	CHANGE_STATE,
	CHANGE_RETRANSMIT,
};

/* From user space before each snapshot; there is one at a time. */
__u64 snapshot = 0; /* its number, from 1 */

struct change {
	__u64 time_ns; /* boot clock */
	__u64 cookie;
	__u64 netns;
	struct endpoints endpoints;
	__u32 pid;   /* process that held it first */
	__s32 error; /* sk_err */
	__u8 kind;
	__u8 old_state;
	__u8 new_state;
	__u8 pad[5];
};

/* Keeps the types for bpf2go: neither the ring nor the iterator names one. */
const struct socket_record *socket_record_type __attribute__((unused));
const struct change *change_type __attribute__((unused));

/* What is remembered of a socket. */
struct known {
	__u64 cookie;
	__u64 inode;    /* another one: another socket at the same address */
	__u64 snapshot; /* the last that holds it */
	__u64 began_ns; /* boot clock; 0: not seen */
	__u64 retransmit_ns; /* of the last change told */
	struct owner owner; /* of the process that held it first */
	__u32 pid;          /* of that process */
	__u32 pad;
};

/* events, shared between those whose sockets they are of; a full ring refuses the record
 * and counts it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* A process's part of a snapshot. */
struct part {
	__u32 room; /* sockets of it that may still come */
	__u32 over; /* sockets that had no room */
};

/* pid → its part: the processes whose sockets are wanted. User space writes and
 * deletes; it holds as many as user space allows itself. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct part);
} owners SEC(".maps");

/*
 * struct sock → what is remembered of it. tcp_destroy_sock deletes; when full the
 * least recently used gives way, whose changes are told again after the next
 * snapshot. User space makes it twice as large as a snapshot.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, __u64);
	__type(value, struct known);
} sockets SEC(".maps");

/* The context of iter/task_file, kernel/bpf/task_iter.c: pointers and pad are its ABI. */
struct iterator_meta {
	void *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct iterator_task_file {
	struct iterator_meta *meta;
	struct task_struct *task;
	__u32 fd;
	__u32 pad;
	struct file *file;
};

/* Where the kernel has no cookie for us, the inode names the socket as long. */
static __always_inline __u64 cookie_of_inode(__u64 inode)
{
	return 1ULL << 63 | inode;
}

/*
 * The TCP socket of an open file, NULL when the file is none. The iterator holds the
 * file, and the file the socket.
 */
static __always_inline struct tcp_sock *tcp_of_file(struct file *file)
{
	struct socket *socket;
	struct sock *sk;

	if (file->f_inode->i_sb->s_magic != SOCKFS_MAGIC)
		return NULL;
	if (!is_typed()) {
		sk = core_get(((struct socket *)core_get(file->private_data))->sk);
		return sk && is_tcp(sk) ? (struct tcp_sock *)sk : NULL;
	}
	socket = bpf_sock_from_file(file);
	sk = socket ? socket->sk : NULL;
	return sk && is_tcp(sk) ? bpf_skc_to_tcp_sock(sk) : NULL;
}

/* Asks the kernel, which numbers the socket if nobody has asked before. */
static __always_inline __u64 cookie_of(void *sk, __u64 inode)
{
	return is_typed() ? bpf_get_socket_cookie(sk) : cookie_of_inode(inode);
}

/* Marks the socket as being in this snapshot. */
static __always_inline void remember(__u64 key, struct known *known, const struct socket_record *r, struct task_struct *task)
{
	struct known fresh = { .cookie = r->cookie, .inode = r->inode, .snapshot = snapshot, .pid = r->pid };

	if (known && known->inode == r->inode) {
		known->snapshot = snapshot;
		return;
	}
	begin_task(&fresh.owner, task);
	bpf_map_update_elem(&sockets, &key, &fresh, BPF_ANY);
}

static __always_inline void copy_socket(struct socket_record *r, struct tcp_sock *tp, const struct known *known)
{
	struct sock *sk = (struct sock *)tp;

	r->netns = netns_of(sk);
	if (known && known->inode == r->inode && known->began_ns)
		r->age_ns = bpf_ktime_get_boot_ns() - known->began_ns;
	r->state = field(sk->__sk_common.skc_state);
	copy_endpoints(&r->endpoints, sk);
	copy_queues(r, tp);
	if (field(sk->__sk_common.skc_state) == TCP_CLOSE) /* tcp_disconnect() sets it, then moves write_seq */
		r->state = TCP_CLOSE;
	copy_progress(r, tp);
	if (r->state != TCP_LISTEN)
		copy_first_bytes(r, tp);
}

SEC("iter/task_file")
int open_file(struct iterator_task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket_record record;
	struct known *known;
	struct part *part;
	struct tcp_sock *tp;
	__u32 pid;
	__u64 key;

	if (!task || !file)
		return 0;
	pid = task->tgid;
	part = bpf_map_lookup_elem(&owners, &pid);
	if (!part)
		return 0;
	tp = tcp_of_file(file);
	if (!tp)
		return 0;
	zero(&record);
	record.pid = pid;
	record.inode = file->f_inode->i_ino;
	key = (__u64)tp;
	known = bpf_map_lookup_elem(&sockets, &key);
	if (known && known->inode == record.inode && known->snapshot == snapshot)
		return 0; /* another descriptor of it, or another process */
	record.cookie = cookie_of(tp, record.inode);
	if (part->room) {
		copy_socket(&record, tp, known);
		/* A full buffer makes the kernel run this again for the same file. */
		if (bpf_seq_write(ctx->meta->seq, &record, sizeof(record)))
			return 0;
		part->room--;
	} else {
		part->over++;
	}
	remember(key, known, &record, task);
	return 0;
}

static __always_inline void tell(struct sock *sk, const struct known *known, __u8 kind, __u8 old_state, __u8 new_state)
{
	struct owner owner = known->owner;
	struct change *change = NULL;

	if (ring_has_room_for(&events, &owner))
		change = bpf_ringbuf_reserve(&events, sizeof(*change), 0);
	if (!change) {
		count_lost(&events, &owner);
		return;
	}
	zero(change);
	change->time_ns = bpf_ktime_get_boot_ns();
	change->cookie = known->cookie;
	change->netns = netns_of(sk);
	change->pid = known->pid;
	change->kind = kind;
	change->old_state = old_state;
	change->new_state = new_state;
	change->error = core_get(sk->sk_err);
	copy_endpoints(&change->endpoints, sk);
	count_in_ring(&events, &owner, sizeof(*change));
	bpf_ringbuf_submit(change, 0);
}

static __always_inline __u64 inode_of(struct sock *sk)
{
	struct socket *socket = core_get(sk->sk_socket);

	if (!socket)
		return 0;
	return core_get(((struct socket_alloc *)((void *)socket - core_field_offset(((struct socket_alloc *)0)->socket)))->vfs_inode.i_ino);
}

/*
 * A socket that its owner has just begun to connect or to listen on: the only
 * state changes made by the process itself before a snapshot can know the socket.
 */
static __always_inline struct known *begin(struct sock *sk, __u64 key)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct known fresh = { .pid = pid };

	if (!bpf_map_lookup_elem(&owners, &pid) || !is_tcp(sk))
		return NULL;
	fresh.inode = inode_of(sk);
	fresh.cookie = cookie_of(sk, fresh.inode);
	fresh.began_ns = bpf_ktime_get_boot_ns();
	begin_task(&fresh.owner, (struct task_struct *)bpf_get_current_task());
	bpf_map_update_elem(&sockets, &key, &fresh, BPF_ANY);
	return bpf_map_lookup_elem(&sockets, &key);
}

/*
 * inet_sock_set_state(const struct sock *sk, const int oldstate, const int
 * newstate), before the state is stored. TCP writes sk_err before it closes
 * (tcp_reset, tcp_write_err, tcp_v4_err), so the error is here too and
 * inet_sk_error_report (5.14) is not needed.
 */
SEC("tp_btf/inet_sock_set_state")
int set_state(__u64 *args)
{
	struct sock *sk = (struct sock *)args[0];
	int old_state = args[1], new_state = args[2];
	__u64 key = (__u64)sk;
	struct known *known;

	if (new_state == TCP_SYN_SENT || (new_state == TCP_LISTEN && old_state == TCP_CLOSE))
		known = begin(sk, key);
	else
		known = bpf_map_lookup_elem(&sockets, &key);
	if (known)
		tell(sk, known, CHANGE_STATE, old_state, new_state);
	return 0;
}

/* tcp_retransmit_skb(const struct sock *sk, const struct sk_buff *skb, ...) */
SEC("tp_btf/tcp_retransmit_skb")
int retransmit(__u64 *args)
{
	struct sock *sk = (struct sock *)args[0];
	__u64 now = bpf_ktime_get_boot_ns(), key = (__u64)sk;
	struct known *known = bpf_map_lookup_elem(&sockets, &key);
	__u8 state;

	if (!known || now - known->retransmit_ns < RETRANSMIT_INTERVAL_NS)
		return 0;
	known->retransmit_ns = now;
	state = core_get(sk->__sk_common.skc_state);
	tell(sk, known, CHANGE_RETRANSMIT, state, state);
	return 0;
}

/* tcp_destroy_sock(struct sock *sk): the address may soon be another socket's. */
SEC("tp_btf/tcp_destroy_sock")
int destroy(__u64 *args)
{
	__u64 key = args[0];

	bpf_map_delete_elem(&sockets, &key);
	return 0;
}
