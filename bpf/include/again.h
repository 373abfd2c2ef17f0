/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A kernel does not run a program on a CPU on which it is running (bpf_prog->active), and
 * it may preempt one: PREEMPT_RT within a function's entry, since Linux 7.0 any kernel within
 * a tracepoint. What the other threads of that CPU do there is missed until it runs on. When threads of a process end together, that
 * can be the end of the process. So a program that must not miss anything is attached
 * several times there (bpf/internal/again), each a program of its own: one runs while
 * others are preempted. An event is lost only where all are, on one CPU.
 */
#ifndef TRACECORE_AGAIN_H
#define TRACECORE_AGAIN_H

#include "bpf.h"

/* From user space before load: how often the programs that ask are attached. */
volatile const __u32 copies = 1;

#define AGAIN_HOOKS 4

struct handled {
	__u64 event;
	__u64 left; /* how many of the programs have yet to be told that it is handled */
};

/* hook → what one of its programs has handled last on this CPU. Nobody deletes; it
 * cannot fill. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, AGAIN_HOOKS);
	__type(key, __u32);
	__type(value, struct handled);
} handled SEC(".maps");

/*
 * Whether another of the programs has handled this event. Its name is any number that two
 * events of one CPU seldom share, as its task, and not 0. An event that comes between two
 * programs of another takes its place, and that one is handled again: who asks must not
 * mind. What was left of an event that some programs missed is used up by the first
 * programs of the next one of that name, and the program after them handles it.
 */
static __always_inline bool handled_already(__u32 hook, __u64 event)
{
	struct handled *last;

	if (copies == 1)
		return false;
	last = bpf_map_lookup_elem(&handled, &hook);
	if (!last)
		return false;
	if (last->event == event && last->left) {
		last->left--;
		return true;
	}
	last->event = event;
	last->left = copies - 1;
	return false;
}

#endif
