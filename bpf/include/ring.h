/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Shares a ring between the owners of room.h, so that who floods it loses his own records
 * first: one owner gets two thirds of what is free, as of a map.
 *
 * What an owner has in the ring is what it wrote since the reader last had all of it, and
 * never more than waits there. The reader need tell nobody what it has read: positions of
 * the ring say so (bpf_ringbuf_query).
 */
#ifndef TRACECORE_RING_H
#define TRACECORE_RING_H

#include "dropped.h"
#include "room.h"

#define RECORD_HEADER 8 /* BPF_RINGBUF_HDR_SZ, include/uapi/linux/bpf.h */

/* Kinds of records that are counted apart, so that those which are worth less take no room
 * from an owner's others. */
#ifndef RING_KINDS
#define RING_KINDS 1
#endif

struct in_ring {
	__u64 until; /* position behind its last record */
	__u64 bytes; /* since the reader had all of them */
};

/* Of each kind: slot of tenants, then of users → what it has in the ring. Nobody deletes;
 * it cannot fill. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RING_KINDS * 2 * SLOTS);
	__type(key, __u32);
	__type(value, struct in_ring);
} in_ring SEC(".maps");

/* How many records were refused to owners who had more than their share of the ring, and
 * the user of the last. */
struct crowded {
	__u64 records;
	__u32 user;
	__u32 pad;
};

/* 0 → it, per CPU. Nobody deletes; it cannot fill. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct crowded);
} crowded SEC(".maps");

/* The owner of a record about a task, also of one that has left its memory: its tenant, and
 * its user. */
static __always_inline void begin_task(struct owner *o, struct task_struct *task)
{
	__u64 tenant;

	begin_owner(o, task);
	tenant = salted(tenant_of(task));
	o->tenant_slot = slot_of(tenant);
	o->user_slot = slot_of(salted(tenant + o->user));
}

/* The current process as an owner, where no memory of the kernel is read: its user is the
 * tenant, whose processes share. */
static __always_inline void begin_process(struct owner *o)
{
	__u64 tenant;

	o->cgroups = 0;
	o->user = bpf_get_current_uid_gid();
	tenant = salted(o->user);
	o->tenant_slot = slot_of(tenant);
	o->user_slot = slot_of(salted(tenant + (bpf_get_current_pid_tgid() >> 32)));
}

static __always_inline struct in_ring *in_ring_at(__u32 kind, __u32 index)
{
	index += kind * 2 * SLOTS;
	return bpf_map_lookup_elem(&in_ring, &index);
}

static __always_inline __u64 bytes_in_ring(const struct in_ring *r, __u64 waits, __u64 read)
{
	if ((__s64)(read - r->until) >= 0)
		return 0;
	return r->bytes < waits ? r->bytes : waits;
}

/* Whether the owner may write one more record of a kind, which may fill so many eighths of
 * the ring: it then has its share of that part, and the rest waits for what is worth more. */
static __always_inline bool ring_has_room_for_kind(void *ring, const struct owner *o, __u32 kind, __u64 eighths)
{
	__u64 waits = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA), read = bpf_ringbuf_query(ring, BPF_RB_CONS_POS);
	__u64 size = bpf_ringbuf_query(ring, BPF_RB_RING_SIZE) / 8 * eighths;
	struct in_ring *tenant = in_ring_at(kind, o->tenant_slot), *user = in_ring_at(kind, SLOTS + o->user_slot);
	__s64 left;

	if (!tenant || !user || waits > size)
		return false;
	left = GREED * (__s64)(size - waits) - (__s64)bytes_in_ring(tenant, waits, read);
	return (__s64)bytes_in_ring(user, waits, read) < left;
}

/* Whether the owner may write one more record, of the first kind. */
static __always_inline bool ring_has_room_for(void *ring, const struct owner *o)
{
	return ring_has_room_for_kind(ring, o, 0, 8);
}

static __always_inline void add_in_ring(struct in_ring *r, __u64 bytes, __u64 written, __u64 read)
{
	if (!r)
		return;
	if ((__s64)(read - r->until) >= 0)
		r->bytes = 0;
	r->until = written;
	__sync_fetch_and_add(&r->bytes, bytes);
}

/* Counts a record that was reserved. */
static __always_inline void count_kind_in_ring(void *ring, const struct owner *o, __u32 kind, __u64 bytes)
{
	__u64 written = bpf_ringbuf_query(ring, BPF_RB_PROD_POS), read = bpf_ringbuf_query(ring, BPF_RB_CONS_POS);

	bytes = (bytes + RECORD_HEADER + 7) & ~7ULL;
	add_in_ring(in_ring_at(kind, o->tenant_slot), bytes, written, read);
	add_in_ring(in_ring_at(kind, SLOTS + o->user_slot), bytes, written, read);
}

/* Counts a record of the first kind that was reserved. */
static __always_inline void count_in_ring(void *ring, const struct owner *o, __u64 bytes)
{
	count_kind_in_ring(ring, o, 0, bytes);
}

/* Counts what is lost by the owner's own doing: it had more than its share. */
static __always_inline void count_crowded(const struct owner *o)
{
	__u32 first = 0;
	struct crowded *c = bpf_map_lookup_elem(&crowded, &first);

	count_dropped();
	if (!c)
		return;
	__sync_fetch_and_add(&c->records, 1);
	c->user = o->user;
}

/* Counts a record that could not be reserved: lost it is, and the owner's own doing where
 * it had more than its share. */
static __always_inline void count_lost(void *ring, const struct owner *o)
{
	if (ring_has_room_for(ring, o))
		count_dropped();
	else
		count_crowded(o);
}

#endif
