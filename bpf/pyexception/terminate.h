/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * C++ exceptions that end their process: nobody catches them, so std::terminate is called.
 * The watchdog of NCCL ends its process so, and what a thread of PyTorch meets.
 *
 * libstdc++ then displays what was thrown, in __gnu_cxx::__verbose_terminate_handler: it throws it
 * again to ask it for its words (libstdc++-v3/libsupc++/vterminate.cc). So the unwinder is given
 * the exception, in _Unwind_Resume_or_Rethrow of libgcc, by the thread that stands in that handler.
 * No other function has it as an argument, and what a healthy program throws and catches reaches
 * neither, unless it throws it again.
 *
 * Headers are ABI (Itanium C++ ABI: Exception Handling; libstdc++-v3/libsupc++/unwind-cxx.h), the
 * same on amd64 and arm64. What an exception says is a matter of its class: a pointer to its words
 * is its second word in std::runtime_error, std::logic_error and c10::Error, and its fifth in
 * gloo::EnforceNotMet.
 */
#ifndef TRACECORE_TERMINATE_H
#define TRACECORE_TERMINATE_H

#define TERMINATED_TYPE_BYTES 256
#define TERMINATED_WORDS_BYTES 2048

/* struct _Unwind_Exception, and what lies before it. */
#define UNWIND_BYTES 32
#define UNWIND_TYPE (-80) /* exceptionType, or what primaryException points to */
#define HEADER_BYTES 112  /* from exceptionType to the exception itself */
#define UNWIND_LANGUAGE 0x474e5543432b2b00ULL /* GNUCC++ and a byte: 1 for one that others hold, too */
#define UNWIND_DEPENDENT 1
#define TYPE_INFO_NAME 8

struct terminated {
	__u64 time_ns; /* boot clock */
	__u32 pid;
	__u32 thread;
	char comm[COMM_BYTES];
	char type[TERMINATED_TYPE_BYTES];   /* as compilers write it; "" where its memory was not there */
	char second[TERMINATED_WORDS_BYTES]; /* what its second word points to */
	char fifth[TERMINATED_WORDS_BYTES];
};

const struct terminated *terminated_type __attribute__((unused));

/* A thread may end in the handler, and its number be another's: of that one the kernel's structure is another, too. What the
 * handler writes before it throws again may wait for a reader. */
#define TERMINATING_NS (60ULL * 1000 * 1000 * 1000)

struct mark {
	__u64 task; /* where the kernel has it, which is not read */
	__u64 since_ns;
};

/* Number of a thread → which one, while it is in the handler. Its process ends; the oldest gives way. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct mark);
} terminating SEC(".maps");

SEC("uprobe/__verbose_terminate_handler")
int terminate(struct pt_regs *regs)
{
	struct mark now = { bpf_get_current_task(), bpf_ktime_get_boot_ns() };
	__u64 current = bpf_get_current_pid_tgid();

	bpf_map_update_elem(&terminating, &current, &now, BPF_ANY);
	return 0;
}

static __always_inline void read_words(char *into, __u32 size, __u64 address)
{
	if (bpf_probe_read_user_str(into, size, (const void *)pointer_at(address)) <= 0)
		into[0] = 0;
}

/* (struct _Unwind_Exception *exception) */
SEC("uprobe/_Unwind_Resume_or_Rethrow")
int rethrow(struct pt_regs *regs)
{
	__u64 current = bpf_get_current_pid_tgid();
	__u64 header = first_argument(regs), language, type, thrown;
	struct terminated *event = NULL;
	const struct mark *mark;
	struct owner owner;
	bool here;

	mark = bpf_map_lookup_elem(&terminating, &current);
	if (!mark)
		return 0;
	here = mark->task == bpf_get_current_task() && bpf_ktime_get_boot_ns() - mark->since_ns < TERMINATING_NS;
	bpf_map_delete_elem(&terminating, &current);
	if (!here)
		return 0;
	language = pointer_at(header);
	if ((language & ~0xffULL) != UNWIND_LANGUAGE)
		return 0; /* another language's */
	type = pointer_at(header + UNWIND_TYPE);
	thrown = header + UNWIND_BYTES;
	if ((language & 0xff) == UNWIND_DEPENDENT) {
		thrown = type;
		type = pointer_at(thrown - HEADER_BYTES);
	}

	begin_process(&owner);
	if (ring_has_room_for(&events, &owner))
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count_lost(&events, &owner);
		return 0;
	}
	event->time_ns = bpf_ktime_get_boot_ns();
	event->pid = current >> 32;
	event->thread = current;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	read_words(event->type, TERMINATED_TYPE_BYTES, type + TYPE_INFO_NAME);
	event->second[0] = 0;
	event->fifth[0] = 0;
	if (messages) {
		read_words(event->second, TERMINATED_WORDS_BYTES, thrown + 8);
		read_words(event->fifth, TERMINATED_WORDS_BYTES, thrown + 32);
	}
	count_in_ring(&events, &owner, sizeof(*event));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

#endif
