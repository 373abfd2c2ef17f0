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
 * Cost: every printk pays for a copy of its text and one table step for each of
 * its first 256 bytes; only a record that matches enters the ring (README.md has
 * the figures).
 */
#include "bpf.h"
#include "dropped.h"
#include "kernel.h"
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

struct event {
	__u64 time_ns; /* boot clock */
	__u32 cpu;
	__u32 pid; /* thread group id, 0 in interrupt context where that is known */
	__u32 text_bytes; /* of the text; more than MAX_TEXT when it was cut */
	__u32 stack_bytes;
	__u8 writer;
	__u8 pad[7];
	char comm[COMM_BYTES];
	__u64 stack[MAX_FRAMES]; /* return addresses, innermost first */
	char text[MAX_TEXT];
};

#define HEADER_BYTES (sizeof(struct event) - MAX_TEXT)

/* Records that match. Filled here, drained by Read; a full ring counts in
 * dropped. max_entries is set before load. */
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

struct scratch {
	__u32 busy;
	__u32 pad;
	struct event event;
};

/* 0 → where the record under examination is put together. An event does not fit
 * on the BPF stack. */
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

struct writer {
	__u8 kind;
	bool in_interrupt;
};

static __always_inline void deliver(void *ctx, struct event *e, __u32 copied, struct writer writer)
{
	long bytes;

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
	if (writer.kind == WRITER_UNKNOWN) {
		/* User space knows which addresses are devkmsg_write's. */
		bytes = bpf_get_stack(ctx, e->stack, sizeof(e->stack), 0);
		if (bytes > 0)
			e->stack_bytes = bytes;
	}
	opaque(copied);
	if (copied > MAX_TEXT)
		copied = MAX_TEXT;
	if (bpf_ringbuf_output(&events, e, HEADER_BYTES + copied, 0))
		count_dropped();
}

static __always_inline void examine(void *ctx, struct event *e, const char *text, __u32 bytes, struct writer writer)
{
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
	deliver(ctx, e, copied, writer);
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
	examine(ctx, &s->event, text, bytes, writer);
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
