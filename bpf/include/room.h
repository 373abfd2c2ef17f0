/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Shares the room of maps between those for whom their entries are, so that nobody fills
 * them alone: a user can hang as many threads on a FUSE mount of his own, make as many
 * communicators and have as many processes signalled as he likes.
 *
 * A program says how many tables share their room (ROOM_TABLES), each with its own
 * numbers, before it includes this; bpf/internal/room sets how much each holds. One that
 * shares its ring alone (ring.h) has 0.
 *
 * An owner is a tenant, by the memory cgroup at most three levels below the root
 * (a pod, a job of Slurm, the session of a user), and in it a user. Deeper ones are
 * no tenants of their own: a user may make as many as he likes below his session.
 * A kernel thread works for anybody: it is the tenant "kernel", and each file system
 * is a user of that.
 *
 * Each tenant may hold four times what is free (dynamic thresholds, Choudhury and
 * Hahne 1998), and each of its users as much as the tenant may still take. So one
 * tenant with one user gets two thirds of a map, n tenants that take what they can
 * leave at least 1/(4n+1) of it to those who come later, and nobody needs to know n.
 *
 * Tenants and users are counted in slots that a salted hash finds (stochastic
 * fairness, McKenney 1990): these counters need no room of their own that could be
 * filled. Two that share a slot share their room.
 */
#ifndef TRACECORE_ROOM_H
#define TRACECORE_ROOM_H

#include "core_fixes.h"

#ifndef ROOM_TABLES
#error "room.h: say how many tables share their room"
#endif

#define SLOT_BITS 12
#define SLOTS (1 << SLOT_BITS)
#define GREED 4 /* what a tenant may hold is so many times what is free */
#define TENANT_LEVEL 3

/* From user space before load. */
volatile const __u64 salt = 0;
#if ROOM_TABLES > 0
volatile const __u32 capacity[ROOM_TABLES] = {}; /* of each table */
#endif

struct owner {
	__u64 cgroups; /* struct css_set, as a name only: who has the same is the same tenant */
	__u32 user;
	__u16 tenant_slot;
	__u16 user_slot;
};

#if ROOM_TABLES > 0
/*
 * Of each table: how many entries there are, then how many each slot of tenants holds,
 * then each of users. An entry is counted when it is made and when it is deleted; entries
 * that ended and wait for their next use count too. Nobody deletes; it cannot fill.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ROOM_TABLES * (1 + 2 * SLOTS));
	__type(key, __u32);
	__type(value, __s32);
} held SEC(".maps");

static __always_inline __s32 *held_at(__u32 table, __u32 index)
{
	index += table * (1 + 2 * SLOTS);
	return bpf_map_lookup_elem(&held, &index);
}

static __always_inline __s32 *held_in_all(__u32 table)
{
	return held_at(table, 0);
}

static __always_inline __s32 *held_by_tenant(__u32 table, const struct owner *o)
{
	return held_at(table, 1 + o->tenant_slot);
}

static __always_inline __s32 *held_by_user(__u32 table, const struct owner *o)
{
	return held_at(table, 1 + SLOTS + o->user_slot);
}
#endif

static __always_inline __u64 salted(__u64 x)
{
	x = (x ^ salt) * 0x9e3779b97f4a7c15ULL;
	return x ^ x >> 32;
}

static __always_inline __u16 slot_of(__u64 hash)
{
	return hash * 0xbf58476d1ce4e5b9ULL >> (64 - SLOT_BITS);
}

/* What is cheap to ask of a task, and enough to see that somebody is the same as before. */
static __always_inline void begin_owner(struct owner *o, struct task_struct *task)
{
	o->cgroups = (__u64)core_get(task->cgroups);
	o->user = core_get(core_get(task->real_cred)->uid.val);
}

static __always_inline bool same_owner(const struct owner *a, const struct owner *b)
{
	return a->cgroups == b->cgroups && a->user == b->user;
}

/* The cgroup that is the tenant, as a name; 0: a kernel without memory cgroups, where
 * users alone are told apart. */
static __always_inline __u64 tenant_of(struct task_struct *task)
{
	struct cgroup_subsys_state *css = memory_css(task);
	struct cgroup *cgroup;
	__u32 level;

	if (!css)
		return 0;
	cgroup = core_get(css->cgroup);
	level = core_get(cgroup->level);
	return cgroup_ancestor(cgroup, level < TENANT_LEVEL ? level : TENANT_LEVEL);
}

#define KERNEL 1

/* Device: which file system a kernel thread works for. */
static __always_inline void find_slots(struct owner *o, struct task_struct *task, __u32 device)
{
	__u64 tenant = KERNEL;
	__u32 user = device;

	if (core_get(task->mm)) {
		tenant = tenant_of(task);
		user = o->user;
	}
	tenant = salted(tenant);
	o->tenant_slot = slot_of(tenant);
	o->user_slot = slot_of(salted(tenant + user));
}

#if ROOM_TABLES > 0
/* Whether the owner may have one more entry. Two CPUs that ask at once may both get
 * the last. */
static __always_inline bool has_room(__u32 table, const struct owner *o)
{
	__s32 *all = held_in_all(table), *tenant = held_by_tenant(table, o), *user = held_by_user(table, o);
	__s64 left;

	if (!all || !tenant || !user)
		return false;
	left = GREED * ((__s64)capacity[table] - *all) - *tenant;
	return *user < left;
}

static __always_inline void count_held(__u32 table, const struct owner *o, __s32 n)
{
	__s32 *all = held_in_all(table), *tenant = held_by_tenant(table, o), *user = held_by_user(table, o);

	if (!all || !tenant || !user)
		return;
	__sync_fetch_and_add(all, n);
	__sync_fetch_and_add(tenant, n);
	__sync_fetch_and_add(user, n);
}
#endif

#endif
