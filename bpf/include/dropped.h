/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The counter that every ring has. */
#ifndef TRACECORE_DROPPED_H
#define TRACECORE_DROPPED_H

#include "bpf.h"

/* 0 → records that found the ring full, per CPU. Nobody deletes; it cannot fill. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

/*
 * The counter belongs to one CPU, but an interrupt may come between load and
 * store, so the addition is atomic.
 */
static __always_inline void count_dropped(void)
{
	__u32 zero_key = 0;
	__u64 *count = bpf_map_lookup_elem(&dropped, &zero_key);

	if (count)
		__sync_fetch_and_add(count, 1);
}

#endif
