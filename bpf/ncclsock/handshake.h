/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The first bytes of a connection, where they still lie in a queue of the socket:
 * a receiver that has read nothing yet, or a sender of whom nothing is
 * acknowledged. The queues are read without their lock, so what was copied counts
 * only when the same packet is at the front afterwards.
 *
 * Network drivers copy a packet this small into the packet's own memory. What a
 * process sends, and what it receives over loopback or veth, stays in pages,
 * whose address is only known on x86-64 with the two variables below.
 */
#ifndef TRACECORE_NCCLSOCK_HANDSHAKE_H
#define TRACECORE_NCCLSOCK_HANDSHAKE_H

#include "core_fixes.h"

#define HANDSHAKE_BYTES 13 /* NCCL, src/misc/socket.cc: 8 of magic, 4 of type, 1 of index */
#define RTX_DEPTH 24       /* of the tree of unacknowledged packets: 2^12 packets at least */

/* From user space before load: where the kernel keeps vmemmap_base and
 * page_offset_base (arch/x86/mm/kaslr.c); 0 when it does not say. */
volatile const __u64 vmemmap_base_address = 0;
volatile const __u64 page_offset_base_address = 0;

static __always_inline __u32 sequence_of(struct sk_buff *skb)
{
	return core_get(*(__u32 *)skb->cb);
}

/* page_to_virt() of x86-64 with 4 KiB pages; 0 for what has no address. */
static __always_inline __u64 address_of(const struct skb_piece *piece)
{
	__u64 vmemmap_base = 0, page_offset_base = 0;

	if (!vmemmap_base_address || !page_offset_base_address || piece->page & 1)
		return 0;
	bpf_probe_read_kernel(&vmemmap_base, sizeof(vmemmap_base), (void *)vmemmap_base_address);
	bpf_probe_read_kernel(&page_offset_base, sizeof(page_offset_base), (void *)page_offset_base_address);
	if (piece->page < vmemmap_base)
		return 0;
	return page_offset_base + ((piece->page - vmemmap_base) / core_type_size(struct page) << 12) + piece->offset_bytes;
}

/* Copies up to HANDSHAKE_BYTES from the front of a packet and returns how many. */
static __always_inline __u32 copy_front(__u8 *to, struct sk_buff *skb)
{
	struct skb_piece piece = {};
	__u64 from = (__u64)core_get(skb->data);
	__u32 length = core_get(skb->len) - core_get(skb->data_len);

	if (!length) {
		skb_piece(&piece, (void *)core_get(skb->head) + core_get(skb->end) +
					  core_field_offset(((struct skb_shared_info *)0)->frags));
		from = address_of(&piece);
		length = core_get(skb->data_len) ? piece.length_bytes : 0;
	}
	if (!from || !length)
		return 0;
	if (length > HANDSHAKE_BYTES)
		length = HANDSHAKE_BYTES;
	return bpf_probe_read_kernel(to, length & 0xf, (void *)from) ? 0 : length;
}

static __always_inline struct sk_buff *first_of(struct sk_buff_head *queue)
{
	struct sk_buff *skb = core_get(queue->next);

	return skb == (struct sk_buff *)queue ? NULL : skb;
}

static __always_inline struct sk_buff *first_unacknowledged(struct sock *sk)
{
	struct rb_node *node = core_get(sk->tcp_rtx_queue.rb_node), *left;

	for (int depth = 0; depth < RTX_DEPTH && node; depth++) {
		left = core_get(node->rb_left);
		if (!left)
			return (void *)node - core_field_offset(((struct sk_buff *)0)->rbnode);
		node = left;
	}
	return NULL;
}

/* The queue that can still hold the first byte of the connection. */
enum front {
	FRONT_NONE,
	FRONT_RECEIVED,
	FRONT_UNACKNOWLEDGED,
	FRONT_UNSENT,
};

static __always_inline struct sk_buff *front_of(struct sock *sk, enum front front)
{
	switch (front) {
	case FRONT_RECEIVED:
		return first_of(&sk->sk_receive_queue);
	case FRONT_UNACKNOWLEDGED:
		return first_unacknowledged(sk);
	case FRONT_UNSENT:
		return first_of(&sk->sk_write_queue);
	default:
		return NULL;
	}
}

static __always_inline __u32 copy_handshake(__u8 *to, struct sock *sk, enum front front, __u32 sequence)
{
	struct sk_buff *skb = front_of(sk, front);
	__u32 length;

	if (!skb || sequence_of(skb) != sequence)
		return 0;
	length = copy_front(to, skb);
	return front_of(sk, front) == skb && sequence_of(skb) == sequence ? length : 0;
}

#endif
