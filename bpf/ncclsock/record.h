/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a snapshot tells of one socket, and how it is read. */
#ifndef TRACECORE_NCCLSOCK_RECORD_H
#define TRACECORE_NCCLSOCK_RECORD_H

#include "handshake.h"

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define SOCK_STREAM 1

/* include/net/tcp_states.h */
enum {
	TCP_SYN_SENT = 2,
	TCP_CLOSE = 7,
	TCP_LISTEN = 10,
};

/* Of the helpers' numbers only one that came with 5.12, and with it
 * bpf_get_socket_cookie for tracing programs (c5dbb89fc2ac). By then
 * bpf_sock_from_file is there too (5.11), so that the verifier knows the socket's
 * type and lets its fields be loaded, where core_get copies each. */
enum bpf_func_id {
	BPF_FUNC_check_mtu = 163,
};

static __always_inline bool is_typed(void)
{
	return core_enum_exists(enum bpf_func_id, BPF_FUNC_check_mtu);
}

/* A field of struct sock as a tracepoint gives it, or of the socket of tcp_of_file. */
#define field(f) (is_typed() ? (f) : core_get(f))

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

#endif
