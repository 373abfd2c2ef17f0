//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Sees the text of kernel-log records that contain one of a few words, at the
 * moment it is stored, whatever the console log level.
 *
 * Hooks: the tracepoint printk:console, which since Linux 5.19 (701850dc0c31)
 * fires in printk_sprint for every text stored; before that it fires when a
 * console is flushed, only for what passes the log level, so there the commit of
 * the record in the printk ring is probed instead. printk itself is no hook: the
 * NVIDIA driver calls vprintk, and at its entry there is no text yet.
 *
 * The call stack of the write says who wrote it. The kernel itself names the
 * functions (bpf_snprintf with %ps), which needs neither /proc/kallsyms nor
 * CAP_SYSLOG and works with kernel.kptr_restrict=2.
 *
 * Cost: every printk pays for a copy of its text and one table step for each of
 * its first 256 bytes; only a record that matches enters the ring, and a function
 * is named once a second on each CPU (README.md has the figures).
 */
#include "bpf.h"
#include "kernel.h"

#define ROOM_TABLES 0 /* the ring alone is shared */
#include "ring.h"
#include "registers.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* One record is at most 1024 bytes: LOG_LINE_MAX, PRINTKRB_RECORD_MAX. */
#define MAX_TEXT 1024
/* How far into a text a word of interest may end. The words stand behind a
 * device name or a process name, never far into a line. */
#define MATCH_BYTES 256
#define MAX_FRAMES 32
#define COMM_BYTES 16

/* States of the automaton, columns of its table: powers of two, so that a mask
 * is the bounds check. automaton.go builds it and knows both numbers. */
#define STATES 1024
#define CLASSES 64
#define ACCEPT 0xffff

/* Writer, as in event.go. */
#define WRITER_UNKNOWN 0
#define WRITER_KERNEL 1
#define WRITER_USERSPACE 2

/* caller_id of a record written in interrupt context: printk_caller_id(),
 * kernel/printk/printk.c. */
#define CALLER_IS_CPU 0x80000000

/* Kinds of records in the ring, as in decode.go. */
#define KIND_TEXT 1
#define KIND_NAMES 2

struct event {
	__u32 kind; /* KIND_TEXT */
	__u32 cpu;
	__u64 time_ns; /* boot clock */
	__u32 pid; /* thread group id, 0 in interrupt context where that is known */
	__u32 text_bytes; /* of the text; more than MAX_TEXT when it was cut */
	__u32 stack_bytes;
	__u8 writer;
	__u8 pad[3];
	char comm[COMM_BYTES];
	__u64 stack[MAX_FRAMES]; /* return addresses, innermost first */
	char text[MAX_TEXT];
};

#define HEADER_BYTES (sizeof(struct event) - MAX_TEXT)

#define NAME_BYTES 68

/* A return address and the kernel's name for it: "function", or "function [module]". */
struct name {
	__u64 address;
	__u32 text_bytes; /* with the NUL; more than NAME_BYTES when it was cut */
	char text[NAME_BYTES];
};

/* Comes before the event whose stack has these addresses. */
struct names {
	__u32 kind; /* KIND_NAMES */
	__u32 count;
	struct name list[MAX_FRAMES];
};

/* Set before load: this kernel has bpf_snprintf (helper 165, Linux 5.13,
 * 7b15523a989b). Where it has not, the verifier never sees the call. */
volatile const bool kernel_names;

/* Records that match, and names. Filled here, drained by Read; a full ring counts
 * in dropped. max_entries is set before load. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
	__type(value, struct event);
} events SEC(".maps");

struct automaton {
	__u8 class[256]; /* byte → column */
	__u16 next[STATES * CLASSES]; /* state, column → state, or ACCEPT */
};

/* 0 → the words of interest as an Aho-Corasick automaton. Written once before
 * the programs are attached. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct automaton);
} words SEC(".maps");

/* Return addresses whose names were sent: 256 sets of two. An entry holds for one
 * epoch of about a second, so that a reader that lost a name, or a module that
 * took the place of another, is wrong for no longer. */
#define NAME_SETS 256
#define EPOCH_SHIFT 30

struct scratch {
	__u32 busy;
	__u32 lost; /* times that names found the ring full: begins a new epoch */
	__u64 sent[NAME_SETS][2]; /* address, its upper 16 bits mixed with the epoch */
	struct names names;
	struct event event;
};

/* 0 → where the record under examination is put together, and what its CPU has
 * named. Neither fits on the BPF stack. Nobody deletes; an address that finds its
 * set full takes the place of the older. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

#define COMMITS 64

struct commit {
	__u64 id;
	__u32 text_len;
	__u32 pad;
};

/*
 * Descriptor id modulo 64 → how much of that record's text was seen. Only the
 * newest record can be reopened by KERN_CONT (prb_reserve_in_last), so few slots
 * do; one that is overwritten shows as a repeated beginning of a text.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COMMITS);
	__type(key, __u32);
	__type(value, struct commit);
} commits SEC(".maps");

/* Keeps the compiler from proving a bound that the verifier then cannot see. */
#define opaque(x) asm volatile("" : "+r"(x))

/* The mask comes last, as an offset in bytes: the verifier of 5.10 does not see
 * the bounds of an index that was masked before it was shifted. */
static __always_inline __u64 step(struct automaton *a, __u64 state, __u8 byte)
{
	__u64 cell = (state * CLASSES + a->class[byte]) * sizeof(a->next[0]);

	opaque(cell);
	cell &= sizeof(a->next) - sizeof(a->next[0]);
	return *(__u16 *)((void *)a->next + cell);
}

static __always_inline bool has_word(struct automaton *a, const char *text, __u32 bytes)
{
	__u64 state = 0;

	for (__u32 i = 0; i < MATCH_BYTES; i++) {
		if (i >= bytes)
			return false;
		state = step(a, state, text[i]);
		if (state == ACCEPT)
			return true;
	}
	return false;
}

static __always_inline bool was_sent(struct scratch *s, __u64 address, __u64 epoch)
{
	__u64 key = address ^ epoch << 48;
	__u64 *set = s->sent[address * 0x9e3779b97f4a7c15ULL >> 56];

	if (set[0] == key || set[1] == key)
		return true;
	set[1] = set[0];
	set[0] = key;
	return false;
}

/* Whether names and their event fit. If not, the event has the better chance alone. */
static __always_inline bool room_for_names(void)
{
	__u64 free = bpf_ringbuf_query(&events, BPF_RB_RING_SIZE) - bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);

	return free >= sizeof(struct names) + sizeof(struct event);
}

/*
 * Names the functions of a stack that were not named yet. One byte is taken off
 * an address: a call that ends a function returns to the next one.
 */
static __always_inline void send_names(struct scratch *s, __u32 frames)
{
	static const char format[] = "%ps";
	__u64 epoch = (bpf_ktime_get_boot_ns() >> EPOCH_SHIFT) + s->lost;
	/* Kept in memory: to the verifier each way through the loop is then the same. */
	volatile __u32 *count = &s->names.count;
	__u32 bytes;

	*count = 0;
	for (__u32 i = 0; i < MAX_FRAMES; i++) {
		__u64 address, call;
		struct name *n;

		if (i >= frames)
			break;
		address = s->event.stack[i];
		if (was_sent(s, address, epoch))
			continue;
		n = &s->names.list[*count & (MAX_FRAMES - 1)];
		call = address - 1;
		n->address = address;
		n->text_bytes = bpf_snprintf(n->text, sizeof(n->text), format, &call, sizeof(call));
		++*count;
	}
	if (!*count)
		return;
	s->names.kind = KIND_NAMES;
	bytes = sizeof(s->names) - (MAX_FRAMES - *count) * sizeof(struct name);
	opaque(bytes);
	if (bytes > sizeof(s->names))
		return;
	if (bpf_ringbuf_output(&events, &s->names, bytes, 0)) {
		s->lost++;
		count_dropped();
	}
}

/* How many of the innermost return addresses tell one piece of code from another: those of
 * printk and of dev_printk are up to twelve. */
#define CODE_FRAMES 16

/*
 * Whose share of the ring a record takes: the code that wrote it, and the user whom it ran
 * for. Who has the kernel quote him without end loses such records first, and none of a
 * driver, also where the driver speaks in an interrupt of his process. bpf_get_stack has
 * filled with zeros what the stack does not need.
 */
static __always_inline void find_owner(struct owner *o, const struct event *e)
{
	__u64 code = 0;

	for (__u32 i = 0; i < CODE_FRAMES; i++)
		code = salted(code + e->stack[i]);
	o->cgroups = 0;
	o->user = bpf_get_current_uid_gid();
	o->tenant_slot = slot_of(code);
	o->user_slot = slot_of(salted(code + o->user));
}

struct writer {
	__u8 kind;
	bool in_interrupt;
};

static __always_inline void deliver(void *ctx, struct scratch *s, __u32 copied, struct writer writer)
{
	struct event *e = &s->event;
	struct owner owner;
	long bytes;

	e->kind = KIND_TEXT;
	e->time_ns = bpf_ktime_get_boot_ns();
	e->cpu = bpf_get_smp_processor_id();
	e->writer = writer.kind;
	e->stack_bytes = 0;
	e->pid = 0;
	__builtin_memset(e->comm, 0, sizeof(e->comm));
	if (!writer.in_interrupt) {
		e->pid = bpf_get_current_pid_tgid() >> 32;
		bpf_get_current_comm(e->comm, sizeof(e->comm));
	}
	bytes = bpf_get_stack(ctx, e->stack, sizeof(e->stack), 0);
	find_owner(&owner, e);
	if (!ring_has_room_for(&events, &owner)) {
		count_lost(&events, &owner);
		return;
	}
	if (bytes > 0) {
		e->stack_bytes = bytes;
		if (kernel_names && room_for_names())
			send_names(s, e->stack_bytes / sizeof(e->stack[0]));
	}
	opaque(copied);
	if (copied > MAX_TEXT)
		copied = MAX_TEXT;
	if (bpf_ringbuf_output(&events, e, HEADER_BYTES + copied, 0))
		count_lost(&events, &owner);
	else
		count_in_ring(&events, &owner, HEADER_BYTES + copied);
}

static __always_inline void examine(void *ctx, struct scratch *s, const char *text, __u32 bytes, struct writer writer)
{
	struct event *e = &s->event;
	__u32 zero_key = 0, copied = bytes;
	struct automaton *a = bpf_map_lookup_elem(&words, &zero_key);

	if (!a)
		return;
	opaque(copied);
	if (copied > MAX_TEXT)
		copied = MAX_TEXT;
	if (bpf_probe_read_kernel(e->text, copied, text))
		return;
	if (!has_word(a, e->text, copied))
		return;
	e->text_bytes = bytes;
	deliver(ctx, s, copied, writer);
}

/*
 * Interrupts are off around the hooks (printk_enter_irqsave, logbuf_lock), so
 * only an NMI that prints can come between. It would overwrite the scratch: it
 * is turned away and counted.
 */
static __always_inline int on_text(void *ctx, const char *text, __u32 bytes, struct writer writer)
{
	__u32 zero_key = 0;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &zero_key);

	if (!s)
		return 0;
	if (*(volatile __u32 *)&s->busy) {
		count_dropped();
		return 0;
	}
	*(volatile __u32 *)&s->busy = 1;
	examine(ctx, s, text, bytes, writer);
	*(volatile __u32 *)&s->busy = 0;
	return 0;
}

/* TP_PROTO(const char *text, size_t len), include/trace/events/printk.h. */
static __always_inline int on_console(__u64 *ctx)
{
	struct writer writer = { WRITER_UNKNOWN, false };

	return on_text(ctx, (const char *)ctx[0], ctx[1], writer);
}

SEC("tp_btf/console")
int console_btf(__u64 *ctx)
{
	return on_console(ctx);
}

SEC("raw_tp/console")
int console_raw(__u64 *ctx)
{
	return on_console(ctx);
}

/*
 * Where a record's text lies: get_data(), kernel/printk/printk_ringbuffer.c. A
 * block that would cross the end of the ring lies at its beginning. One that
 * would end exactly there crosses on some kernels and not on others; where it
 * does not, its next position is 0 within the ring.
 */
static __always_inline const char *text_of(struct prb_data_ring *ring, struct prb_desc *desc)
{
	unsigned long begin = core_get(desc->text_blk_lpos.begin);
	unsigned long next = core_get(desc->text_blk_lpos.next);
	unsigned int bits = core_get(ring->size_bits) & 63;
	unsigned long mask = (1UL << bits) - 1;

	if (begin & 1) /* no text: LPOS_DATALESS */
		return NULL;
	if ((begin >> bits) != (next >> bits) && (next & mask))
		begin = 0;
	/* The text follows the id of its descriptor (struct prb_data_block). */
	return core_get(ring->data) + (begin & mask) + sizeof(unsigned long);
}

/*
 * How much of this record was handed on at an earlier commit. A record without a
 * newline is committed, reopened for each KERN_CONT and committed again with all
 * its text; like the tracepoint, hand on each fragment once.
 */
static __always_inline __u32 seen_before(__u64 id, __u32 text_len)
{
	__u32 slot = id & (COMMITS - 1), seen = 0;
	struct commit *c = bpf_map_lookup_elem(&commits, &slot);

	if (!c)
		return 0;
	if (c->id == id && c->text_len <= text_len)
		seen = c->text_len;
	c->id = id;
	c->text_len = text_len;
	return seen;
}

/* void prb_commit(struct prb_reserved_entry *e), and prb_final_commit alike. */
SEC("kprobe/prb_commit")
int record_commit(struct pt_regs *ctx)
{
	struct prb_reserved_entry *e = (void *)first_argument(ctx);
	struct printk_ringbuffer *rb = core_get(e->rb);
	__u64 id = core_get(e->id);
	unsigned int bits = core_get(rb->desc_ring.count_bits) & 63;
	__u64 index = id & ((1UL << bits) - 1);
	struct printk_info *info = (void *)core_get(rb->desc_ring.infos) + index * core_type_size(struct printk_info);
	struct prb_desc *desc = (void *)core_get(rb->desc_ring.descs) + index * core_type_size(struct prb_desc);
	__u32 text_len = core_get(info->text_len);
	const char *text = text_of(&rb->text_data_ring, desc);
	__u32 seen = seen_before(id, text_len);
	/* Only devkmsg_write stores another facility than kernel, and it never
	 * stores that one (kernel/printk/printk.c). */
	struct writer writer = {
		core_get(info->facility) ? WRITER_USERSPACE : WRITER_KERNEL,
		core_get(info->caller_id) & CALLER_IS_CPU,
	};

	if (!text || text_len <= seen)
		return 0;
	return on_text(ctx, text + seen, text_len - seen, writer);
}
