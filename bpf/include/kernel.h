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
	unsigned int flags; /* PF_... */
	char comm[16];
	int exit_code;
	__u64 start_boottime; /* named so since Linux 5.5, cf25e24db61c */
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid; /* the thread's number in each pid namespace; since 4.19, 2c4704756cab */
	struct mm_struct *mm;
	struct signal_struct *signal;
	struct cred *real_cred;
	struct css_set *cgroups;
};

/* include/linux/sched/signal.h: what the threads of one process share. */
struct signal_struct {
	atomic_t live; /* threads that have not begun to exit */
	int group_exit_code;
	unsigned int flags;
	struct mm_struct *oom_mm; /* set by mark_oom_victim(), mm/oom_kill.c; kept until the end */
	short oom_score_adj;
};

/* include/linux/pid.h: numbers[level] is that of the innermost namespace. */
struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

/* include/linux/signal_types.h, named so since 4.20 (ae7795bc6187) */
struct kernel_siginfo {
	int si_code;
};

/* include/linux/cred.h, include/linux/uidgid_types.h */
typedef struct {
	unsigned int val;
} kuid_t;

struct cred {
	kuid_t uid;
};

/* include/linux/percpu_counter.h: count is without what each CPU still holds back. */
struct percpu_counter {
	long long count;
};

/* include/linux/mm_types.h. Pages, but for pgtables_bytes. */
struct mm_struct {
	unsigned long env_start; /* where execve(2) put the environment strings */
	unsigned long env_end;
	unsigned long total_vm;
	atomic_long_t pgtables_bytes;
	struct percpu_counter rss_stat[4];
};

/* include/linux/kernfs.h */
struct kernfs_node {
	struct kernfs_node *__parent;
	const char *name;
};

/* include/linux/cgroup-defs.h. memory_cgrp_id has another value in each
 * configuration: read it by core_enum_value. */
enum cgroup_subsys_id {
	memory_cgrp_id = 0,
};

struct cgroup {
	int level; /* the root's is 0 */
	struct kernfs_node *kn;
	struct cgroup *ancestors[1]; /* by level, itself the last; 6.1, see core_fixes.h */
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
};

/* include/linux/page_counter.h, include/linux/memcontrol.h. Pages. */
struct page_counter {
	atomic_long_t usage;
	unsigned long max;
	unsigned long failcnt;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
	atomic_long_t memory_events[1];
};

enum memcg_memory_event {
	MEMCG_MAX = 2,
};

/* include/linux/oom.h */
struct oom_control {
	struct mem_cgroup *memcg;
};

/*
 * The printk ring, kernel/printk/printk_ringbuffer.h; this shape since 5.10
 * (cfe2790b163a moved the infos out of the descriptors).
 */
struct printk_info {
	__u16 text_len;
	__u8 facility;
	__u32 caller_id;
};

struct prb_data_blk_lpos {
	unsigned long begin;
	unsigned long next;
};

struct prb_desc {
	struct prb_data_blk_lpos text_blk_lpos;
};

struct prb_desc_ring {
	unsigned int count_bits;
	struct prb_desc *descs;
	struct printk_info *infos;
};

struct prb_data_ring {
	unsigned int size_bits;
	char *data;
};

struct printk_ringbuffer {
	struct prb_desc_ring desc_ring;
	struct prb_data_ring text_data_ring;
};

struct prb_reserved_entry {
	struct printk_ringbuffer *rb;
	unsigned long id;
};

/* include/linux/fs.h, include/uapi/linux/magic.h */
struct super_block {
	unsigned long s_magic;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
	void *private_data; /* of a socket: struct socket */
};

/* include/linux/net.h, include/net/sock.h: a socket and its inode are one allocation. */
struct socket {
	struct sock *sk;
};

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

/* include/linux/ns_common.h, include/net/net_namespace.h */
struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	__u8 bytes[16];
};

/* include/linux/rbtree_types.h */
struct rb_node {
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

/* include/linux/skbuff.h; on 64-bit machines end is an offset from head. */
struct sk_buff {
	struct sk_buff *next;
	struct rb_node rbnode;
	char cb[48]; /* TCP: struct tcp_skb_cb, include/net/tcp.h, whose first field is seq */
	unsigned int len;
	unsigned int data_len; /* of len, what is in pages */
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
};

struct sk_buff_head {
	struct sk_buff *next;
};

struct skb_frag { /* named so since 6.10, see core_fixes.h */
	unsigned long netmem;
	unsigned int len;
	unsigned int offset;
};

struct skb_shared_info {
	struct skb_frag frags[1];
};

/* include/linux/bvec.h: what a fragment was before 6.10. */
struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};

/* include/linux/mm_types.h; only its size is asked for. */
struct page {
	unsigned long flags;
};

/* include/net/sock.h. Ports are in network order. */
struct sock_common {
	__u16 skc_family;
	__u8 skc_state;
	__u16 skc_dport;
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	possible_net_t skc_net;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	struct sk_buff_head sk_write_queue; /* TCP: not sent yet */
	struct rb_root tcp_rtx_queue;       /* sent and not acknowledged, by sequence number */
	__u16 sk_protocol; /* a whole field since 5.6, bf9765145b85 */
	__u16 sk_type;
	int sk_err;
	struct socket *sk_socket;
};

/* include/net/inet_sock.h, include/net/inet_connection_sock.h, include/linux/tcp.h */
struct inet_sock {
	struct sock sk;
	__u16 inet_sport; /* stays when a closed socket has given its port back */
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u8 icsk_retransmits;
	__u8 icsk_pending;
	__u8 icsk_probes_out;
	struct {
		__u32 lrcvtime; /* jiffies */
	} icsk_ack;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 write_seq;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 snd_wnd;
	__u32 lsndtime; /* jiffies */
	__u32 srtt_us;  /* eight times the smoothed round-trip time */
	__u32 total_retrans;
	__u64 bytes_received;
	__u64 bytes_sent;
	__u64 bytes_retrans;
};

#pragma clang attribute pop
#pragma clang diagnostic pop

#endif
