/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Kernel drift: one flavour structure and one accessor for each field that
 * moved, with the commit that moved it. A flavour is the kernel's name followed
 * by ___ and a word of ours; CO-RE ignores what follows the three underscores.
 */
#ifndef TRACECORE_CORE_FIXES_H
#define TRACECORE_CORE_FIXES_H

#include "kernel.h"

/* Declare flavours as kernel.h does: -Wpadded off, preserve_access_index on. */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded"
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_rss_stat {
	atomic_long_t count[4];
};

struct mm_struct___atomic {
	struct mm_rss_stat rss_stat;
};

struct kernfs_node___plain {
	struct kernfs_node *parent;
};

struct cgroup___ids {
	__u64 ancestor_ids[1];
};

#pragma clang attribute pop
#pragma clang diagnostic pop

/* The counters of rss_stat, include/linux/mm_types_task.h, in this order since
 * 4.5 (eca56ff906bd). An anonymous enum, so CO-RE cannot look them up. */
enum {
	MM_FILEPAGES = 0,
	MM_ANONPAGES = 1,
	MM_SWAPENTS = 2,
	MM_SHMEMPAGES = 3,
};

/*
 * Pages of one kind. 6.2 (f1a7941243c1) made the atomic counters of rss_stat
 * per-CPU counters, whose count lags by up to a batch for each CPU and can be
 * below zero: the kernel's own OOM report reads it the same way. The kernel's
 * percpu_counter is larger than ours, so the step from one to the next is asked for.
 */
static __always_inline __u64 mm_pages(struct mm_struct *mm, int kind)
{
	struct percpu_counter *counter;
	long long pages;

	if (core_type_exists(struct mm_rss_stat)) {
		pages = core_get(((struct mm_struct___atomic *)mm)->rss_stat.count[kind].counter);
	} else {
		counter = (void *)mm + core_field_offset(mm->rss_stat) + kind * core_type_size(struct percpu_counter);
		pages = core_get(counter->count);
	}
	return pages > 0 ? pages : 0;
}

/* 6.15 (633488947ef6) renamed parent to __parent and put it under RCU. */
static __always_inline struct kernfs_node *kernfs_parent(struct kernfs_node *node)
{
	if (core_field_exists(((struct kernfs_node___plain *)0)->parent))
		return core_get(((struct kernfs_node___plain *)node)->parent);
	return core_get(node->__parent);
}

/* Where the memory controller has put a task: on a host with cgroup v1, too. NULL on a
 * kernel without memory cgroups. */
static __always_inline struct cgroup_subsys_state *memory_css(struct task_struct *task)
{
	struct cgroup_subsys_state *css = NULL;
	struct css_set *set;

	if (!core_type_exists(struct mem_cgroup))
		return NULL;
	set = core_get(task->cgroups);
	bpf_probe_read_kernel(&css, sizeof(css),
			      (void *)set + core_field_offset(set->subsys) +
				      core_enum_value(enum cgroup_subsys_id, memory_cgrp_id) * sizeof(css));
	return css;
}

/* A name of the ancestor at that level, at most the cgroup's own; 0: not known. 6.1
 * (7f203bc89eb6) put pointers where ids were. */
static __always_inline __u64 cgroup_ancestor(struct cgroup *cgroup, __u32 level)
{
	__u64 name = 0;
	__u32 at;

	if (core_field_exists(cgroup->ancestors))
		at = core_field_offset(cgroup->ancestors);
	else if (core_field_exists(((struct cgroup___ids *)0)->ancestor_ids))
		at = core_field_offset(((struct cgroup___ids *)0)->ancestor_ids);
	else
		return 0;
	bpf_probe_read_kernel(&name, sizeof(name), (void *)cgroup + at + level * sizeof(name));
	return name;
}

/* A piece of a packet that lies in a page. */
struct skb_piece {
	__u64 page; /* struct page, or with bit 0 set memory of a device */
	__u32 offset_bytes;
	__u32 length_bytes;
};

/* 6.10 (21d2e6737c97) made a fragment its own structure; from 5.4 on it was a
 * bio_vec (8842d285bafa). */
static __always_inline void skb_piece(struct skb_piece *piece, void *frag)
{
	if (core_field_exists(((struct skb_frag *)0)->netmem)) {
		piece->page = core_get(((struct skb_frag *)frag)->netmem);
		piece->offset_bytes = core_get(((struct skb_frag *)frag)->offset);
		piece->length_bytes = core_get(((struct skb_frag *)frag)->len);
	} else {
		piece->page = (__u64)core_get(((struct bio_vec *)frag)->bv_page);
		piece->offset_bytes = core_get(((struct bio_vec *)frag)->bv_offset);
		piece->length_bytes = core_get(((struct bio_vec *)frag)->bv_len);
	}
}

#endif
