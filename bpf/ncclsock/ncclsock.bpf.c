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
#include "dropped.h"
#include "handshake.h"

char dual_license[] SEC("license") = "Dual BSD/GPL";

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define SOCK_STREAM 1
#define SOCKFS_MAGIC 0x534F434B
#define RETRANSMIT_INTERVAL_NS 1000000000ULL /* one change a second and socket tells it all */

/* include/net/tcp_states.h */
enum {
	TCP_SYN_SENT = 2,
	TCP_CLOSE = 7,
	TCP_LISTEN = 10,
};

/* Of the helpers' numbers only one that came with 5.12, and with it
 * bpf_get_socket_cookie for tracing programs (c5dbb89fc2ac). By then
 * bpf_sock_from_file is there too (5.11), so that the verifier knows the socket's
 * type and lets its fields be loaded: an eighth of the cost of core_get. */
enum bpf_func_id {
	BPF_FUNC_check_mtu = 163,
};

static __always_inline bool is_typed(void)
{
	return core_enum_exists(enum bpf_func_id, BPF_FUNC_check_mtu);
}

/* A field of struct sock as a tracepoint gives it, or of the socket of tcp_of_file. */
#define field(f) (is_typed() ? (f) : core_get(f))

enum change_kind {
	CHANGE_STATE,
	CHANGE_RETRANSMIT,
};

/* From user space before load. */
volatile const __u32 max_sockets = 16384; /* in one snapshot */

/* From user space before each snapshot; there is one at a time. */
__u64 snapshot = 0; /* its number, from 1 */
__u32 written = 0;  /* sockets in it */
__u32 over = 0;     /* sockets that max_sockets left out */

/* Addresses as in the kernel: 4 or 16 bytes, ports in network order. */
struct endpoints {
	__u8 local[16];
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
	__u16 family;
	__u16 pad;
};

/* One socket of a snapshot. Sequence numbers are given as differences. */
struct socket_record {
	__u64 cookie;
	__u64 inode;
	__u64 netns;
	__u64 age_ns; /* 0: not seen to begin */
	__u64 bytes_received;
	__u64 bytes_sent; /* with those sent again */
	__u64 bytes_retransmitted;
	__u32 pid;
	__u32 unread;  /* rcv_nxt - copied_seq */
	__u32 unsent;  /* write_seq - snd_nxt */
	__u32 unacked; /* snd_nxt - snd_una */
	__u32 send_window;
	__u32 retransmits;
	__u32 srtt_us; /* eight times the round-trip time */
	__u32 sent_age_jiffies;
	__u32 received_age_jiffies;
	struct endpoints endpoints;
	__u8 state;
	__u8 timeouts; /* icsk_retransmits */
	__u8 probes;   /* icsk_probes_out */
	__u8 pending;  /* icsk_pending */
	__u8 handshake[15];
	__u8 handshake_bytes;
};

struct change {
	__u64 time_ns; /* boot clock */
	__u64 cookie;
	__u64 netns;
	struct endpoints endpoints;
	__s32 error; /* sk_err */
	__u8 kind;
	__u8 old_state;
	__u8 new_state;
	__u8 pad;
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
};

/* events; a full ring refuses the record and counts it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* pid → nothing: the processes whose sockets are wanted. User space writes and
 * deletes; it holds as many as user space allows itself. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u8);
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

static __always_inline bool is_tcp(struct sock *sk)
{
	__u16 family = field(sk->__sk_common.skc_family);

	return (family == AF_INET || family == AF_INET6) && field(sk->sk_protocol) == IPPROTO_TCP &&
	       field(sk->sk_type) == SOCK_STREAM; /* else a raw socket of TCP packets */
}

static __always_inline __u64 netns_of(struct sock *sk)
{
	return field(field(sk->__sk_common.skc_net.net)->ns.inum);
}

static __always_inline void copy_endpoints(struct endpoints *e, struct sock *sk)
{
	e->family = field(sk->__sk_common.skc_family);
	e->local_port = core_get(((struct inet_sock *)sk)->inet_sport);
	e->remote_port = field(sk->__sk_common.skc_dport);
	if (e->family == AF_INET6) {
		core_read((struct in6_addr *)e->local, sk->__sk_common.skc_v6_rcv_saddr);
		core_read((struct in6_addr *)e->remote, sk->__sk_common.skc_v6_daddr);
	} else {
		*(__u32 *)e->local = field(sk->__sk_common.skc_rcv_saddr);
		*(__u32 *)e->remote = field(sk->__sk_common.skc_daddr);
	}
}

/* Where the kernel has no cookie for us, the inode names the socket as long. */
static __always_inline __u64 cookie_of_inode(__u64 inode)
{
	return 1ULL << 63 | inode;
}

static __always_inline void copy_queues(struct socket_record *r, struct tcp_sock *tp)
{
	r->unread = field(tp->copied_seq);
	r->unread = field(tp->rcv_nxt) - r->unread;
	r->unacked = field(tp->snd_una);
	r->unsent = field(tp->snd_nxt);
	r->unacked = r->unsent - r->unacked;
	r->unsent = field(tp->write_seq) - r->unsent;
	r->send_window = field(tp->snd_wnd);
}

static __always_inline void copy_progress(struct socket_record *r, struct tcp_sock *tp)
{
	__u32 sent = field(tp->lsndtime);
	__u32 received = field(tp->inet_conn.icsk_ack.lrcvtime);
	__u32 now = bpf_jiffies64();

	r->sent_age_jiffies = now - sent;
	r->received_age_jiffies = now - received;
	r->bytes_received = field(tp->bytes_received);
	r->bytes_sent = field(tp->bytes_sent);
	r->bytes_retransmitted = field(tp->bytes_retrans);
	r->retransmits = field(tp->total_retrans);
	r->srtt_us = field(tp->srtt_us);
	r->timeouts = field(tp->inet_conn.icsk_retransmits);
	r->probes = field(tp->inet_conn.icsk_probes_out);
	r->pending = field(tp->inet_conn.icsk_pending);
}

/* Nothing read yet, or nothing acknowledged: then the first bytes are still there. */
static __always_inline void copy_first_bytes(struct socket_record *r, struct tcp_sock *tp)
{
	__u64 sent = r->bytes_sent - r->bytes_retransmitted;
	enum front front = FRONT_NONE;
	__u32 sequence = 0;

	if (r->unread && r->bytes_received && r->bytes_received <= r->unread) {
		front = FRONT_RECEIVED;
		sequence = core_get(tp->copied_seq);
	} else if (r->unacked && sent && sent <= r->unacked) {
		front = FRONT_UNACKNOWLEDGED;
		sequence = core_get(tp->snd_una);
	} else if (r->unsent && !sent) {
		front = FRONT_UNSENT;
		sequence = core_get(tp->snd_nxt);
	}
	if (front != FRONT_NONE)
		r->handshake_bytes = copy_handshake(r->handshake, (struct sock *)tp, front, sequence);
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
static __always_inline void remember(__u64 key, struct known *known, const struct socket_record *r)
{
	struct known fresh = { .cookie = r->cookie, .inode = r->inode, .snapshot = snapshot };

	if (known && known->inode == r->inode)
		known->snapshot = snapshot;
	else
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
	struct tcp_sock *tp;
	__u32 pid;
	__u64 key;

	if (!task || !file)
		return 0;
	pid = task->tgid;
	if (!bpf_map_lookup_elem(&owners, &pid))
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
	if (written < max_sockets) {
		copy_socket(&record, tp, known);
		/* A full buffer makes the kernel run this again for the same file. */
		if (bpf_seq_write(ctx->meta->seq, &record, sizeof(record)))
			return 0;
		written++;
	} else {
		over++;
	}
	remember(key, known, &record);
	return 0;
}

static __always_inline void tell(struct sock *sk, const struct known *known, __u8 kind, __u8 old_state, __u8 new_state)
{
	struct change *change = bpf_ringbuf_reserve(&events, sizeof(*change), 0);

	if (!change) {
		count_dropped();
		return;
	}
	zero(change);
	change->time_ns = bpf_ktime_get_boot_ns();
	change->cookie = known->cookie;
	change->netns = netns_of(sk);
	change->kind = kind;
	change->old_state = old_state;
	change->new_state = new_state;
	change->error = core_get(sk->sk_err);
	copy_endpoints(&change->endpoints, sk);
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
	struct known fresh = {};

	if (!bpf_map_lookup_elem(&owners, &pid) || !is_tcp(sk))
		return NULL;
	fresh.inode = inode_of(sk);
	fresh.cookie = cookie_of(sk, fresh.inode);
	fresh.began_ns = bpf_ktime_get_boot_ns();
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
