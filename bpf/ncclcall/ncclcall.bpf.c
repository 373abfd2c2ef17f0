//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which rank called which collective of NCCL or RCCL, and how often.
 *
 * A collective over NVLink or InfiniBand passes no system call and no socket. All
 * that a job does passes the exported functions of the library, so there sit entry
 * uprobes. There is no return probe: rank, world size and identity of a communicator
 * lie in struct ncclComm, at a place that user space finds in the library's own code
 * (layout.go) and hands over by the cookie of the probe. So communicators are known
 * that are older than the probe, or that a split made.
 *
 * Since Linux 5.8 (ring buffer, bpf_ktime_get_boot_ns); cookies are of 5.15
 * (7adfc6c9b315). A call costs one breakpoint on a push, which the kernel emulates:
 * README.md has measured times. No record leaves the kernel for a call: user space
 * reads the counters. One record leaves it for a communicator that is made or ended.
 */
#include "bpf.h"
#include "dropped.h"
#include "registers.h"

/* Tables of room.h. */
#define COMMUNICATORS 0
#define GRAPHS 1
#define ROOM_TABLES 2
#include "room.h"
#include "ring.h"

char dual_license[] SEC("license") = "Dual BSD/GPL";

/* nccl.h, NCCL_UNIQUE_ID_BYTES */
#define ID_BYTES 128

/* Calls of a communicator of which arrival and signature are kept. */
#define RECENT 32

/*
 * Calls of a communicator of which arrival is kept for longer, to compare ranks by: the
 * same numbers on each of them, two to four a second, however often it is called. 16 are
 * four seconds at least, four scans.
 */
#define SAMPLES 16
#define SAMPLES_NS (4ULL * 1000 * 1000 * 1000)
#define SPARSE_NS (2ULL * 1000 * 1000 * 1000)
#define MAX_SPACING 16 /* one call of 65,536 */

/*
 * What of struct ncclComm is kept at a sample, from rank on: in it NCCL counts its own
 * launches (opCount), about 330 bytes behind rank in 2.29. User space finds which word
 * it is (launches.go).
 */
#define WINDOW 64

/* Communicators: 8 ranks with 20 each are 160. A value has 1,776 bytes. */
#define MAX_COMMUNICATORS 2048

#define LIBRARIES 65 /* slots: 0, and one for each library with a cookie */

/* More ranks than any job has: what says more was not read from a communicator. */
#define MAX_RANKS (1 << 20)

enum operation {
	OPERATION_UNKNOWN,
	OPERATION_ALL_REDUCE,
	OPERATION_BROADCAST,
	OPERATION_REDUCE,
	OPERATION_ALL_GATHER,
	OPERATION_REDUCE_SCATTER,
	OPERATION_ALL_TO_ALL,
	OPERATION_GATHER,
	OPERATION_SCATTER,
	OPERATION_SEND, /* from here on: between two ranks */
	OPERATION_RECV,
	OPERATIONS,
};

enum kind {
	KIND_UNKNOWN,
	KIND_INIT_RANK,
	KIND_INIT_RANK_CONFIG,
	KIND_INIT_RANK_SCALABLE,
	KIND_INIT_ALL,
	KIND_SPLIT,
	KIND_SHRINK,
	KIND_GROW,
	KIND_FINALIZE,
	KIND_REVOKE,
	KIND_DESTROY,
	KIND_ABORT,
	KIND_DEVICE,
	KINDS,
};

/* What is known of a communicator. */
enum identity {
	IDENTITY_NO_LAYOUT, /* where to read is not known */
	IDENTITY_UNREAD,    /* the page was not resident, or says what cannot be */
	IDENTITY_READ,
	IDENTITY_READ_WITHOUT_HASH, /* NCCL before 2.18 has no commHash there */
};

/* One file of the library. User space writes it. */
struct library {
	__u64 rank_offset; /* of rank in struct ncclComm; 0: not known */
	__u32 enabled;     /* set after the last attach, so that all counters begin together */
	__u32 has_hash;
	__u32 epoch; /* another one after each gap in which the end of a group may go unseen */
	__u32 pad;
};

/*
 * struct ncclComm from commHash on, src/include/comm.h: these fields in this order
 * from NCCL 2.18.3 to 2.30.7. 2.18.1 has no nvml_device; user space sees that by the
 * compute capabilities.
 */
struct layout {
	__u64 hash;
	__s32 rank;
	__s32 nranks;
	__s32 device; /* ordinal among the GPUs that the process sees */
	__s32 nvml_device;
	__s32 capability;
	__s32 min_capability;
	__s32 max_capability;
	__s32 pad;
	__s64 bus_id; /* PCI address, src/misc/utils.cc: its hexadecimal digits without the signs between */
};

/* One collective, by what all ranks must agree on. */
struct recent {
	__u64 time_ns; /* boot clock */
	__u64 count;
	__u8 operation;
	__u8 type;
	__u16 sequence; /* the low bits of its number: an older call has others */
	__s32 root;     /* or -1 */
};

/* When a call was made whose number all ranks of the communicator choose. */
struct sample {
	__u64 time_ns;  /* boot clock */
	__u32 number;   /* the low bits of it */
	__u32 pause_us; /* the longest between two calls on it since the sample before */
};

struct communicator_key {
	__u32 pid;
	__u32 pad;
	__u64 address;
};

struct communicator {
	struct layout layout;
	__u64 first_ns; /* boot clock */
	__u64 last_ns;
	__u64 last_count;
	__u64 collectives; /* the number of the next one, from 0 */
	__u64 calls[OPERATIONS];
	__u32 identity;
	__u32 last_operation;
	__u32 last_type;
	__s32 last_root; /* or peer, or -1 */
	__u32 group_thread; /* in whose group the last call was made; 0: in none */
	__u32 spacing; /* a call is sampled where so many low bits of its mixed number are 0 */
	__u64 pause_ns; /* the longest since the last sample */
	__u64 sampled; /* how many */
	__u64 refused_ns; /* boot clock: when calls of its owner last found no room before it was met; 0: never */
	struct owner owner;
	__u32 slot; /* of its library */
	__u32 pad;
	__u64 window_number; /* of the call at whose begin window was read, plus one; 0: none was */
	__u64 window[WINDOW];
	struct sample samples[SAMPLES];
	struct recent recent[RECENT];
};

/* A communicator is made or ended. */
struct event {
	__u64 time_ns; /* boot clock */
	__u64 address; /* of the communicator it is about; of the parent for a split */
	__u64 hash;    /* of that */
	__u64 collectives;
	__u64 calls[OPERATIONS];
	__u32 kind;
	__u32 pid;
	__u32 thread;
	__s32 rank; /* or -1 */
	__s32 nranks;
	__s32 color;
	__s32 key;
	__s32 ids; /* unique ids of an init; 0: none, or not readable */
	struct owner owner;
	__u32 slot; /* of its library */
	__u32 pad;
	__u8 id[ID_BYTES];
};

/* Keep the types for bpf2go: a ring names none. */
const struct event *event_type __attribute__((unused));
const enum operation *operation_type __attribute__((unused));
const enum kind *kind_type __attribute__((unused));
const enum identity *identity_type __attribute__((unused));

/* Whether the kernel has bpf_get_attach_cookie; without, all libraries are slot 0. */
volatile const __u32 cookies = 1;

/* events; a full ring refuses the record and counts it. User space sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* slot → library. User space writes; it cannot fill. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LIBRARIES);
	__type(key, __u32);
	__type(value, struct library);
} libraries SEC(".maps");

/*
 * process and address → communicator. Destroy and abort delete it, and user space lets
 * forget_communicator do so when the process has ended. Calls of a communicator whose owner
 * has no room (room.h) are counted in refused.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_COMMUNICATORS);
	__type(key, struct communicator_key);
	__type(value, struct communicator);
} communicators SEC(".maps");

/* 0 → what a new communicator begins as. Nobody writes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct communicator);
} blank SEC(".maps");

/* How much of the calls of a process is left uncounted. */
enum spared {
	SPARED_NONE,
	SPARED_POINT_TO_POINT,
	SPARED_CALLS,
};
const enum spared *spared_type __attribute__((unused));

/* process → enum spared: one that calls too often. User space writes and deletes; it has
 * room for each process that has a communicator. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_COMMUNICATORS);
	__type(key, __u32);
	__type(value, __u32);
} spared SEC(".maps");

/* 0 → calls that found no room in communicators, per CPU. It cannot fill. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} refused SEC(".maps");

/* slot of users (room.h) → boot clock when a call last found no room. Nobody deletes; it
 * cannot fill. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} refused_at SEC(".maps");

struct group {
	__u32 depth;
	__u32 epoch; /* of the library */
};

/* Process and thread → its group. Its end deletes it; the least recently used gives way, and its
 * thread then counts as in no group. NCCL launches the calls in a group when its outermost ends. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct group);
} groups SEC(".maps");

struct launches {
	__u64 count;
	__u64 last_ns; /* boot clock */
	struct owner owner;
};

/* process → launches of CUDA graphs. User space lets forget_launches delete it when the
 * process has ended. Launches of a process whose owner has no room (room.h) are counted in
 * refused. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct launches);
} graphs SEC(".maps");

static __always_inline __u32 slot_of_library(struct pt_regs *regs)
{
	return cookies ? bpf_get_attach_cookie(regs) : 0;
}

/* The library in a slot, once all of it is attached. */
static __always_inline struct library *library_in(__u32 slot)
{
	struct library *library = bpf_map_lookup_elem(&libraries, &slot);

	return library && library->enabled ? library : NULL;
}

static __always_inline bool is_spared(__u32 pid, __u32 operation)
{
	__u32 *how = bpf_map_lookup_elem(&spared, &pid);

	return how && (*how == SPARED_CALLS || (*how == SPARED_POINT_TO_POINT && operation >= OPERATION_SEND));
}

static __always_inline bool possible(const struct layout *layout)
{
	return layout->rank >= 0 && layout->rank < layout->nranks && layout->nranks <= MAX_RANKS;
}

/* Reads rank, world size and hash. Memory that is not resident is not faulted in: then
 * the next call tries again. */
static __always_inline void identify(struct communicator *c, const struct library *library, __u64 address)
{
	if (!library->rank_offset) {
		c->identity = IDENTITY_NO_LAYOUT;
		return;
	}
	c->identity = IDENTITY_UNREAD;
	if (bpf_probe_read_user(&c->layout, sizeof(c->layout),
				(void *)(address + library->rank_offset - __builtin_offsetof(struct layout, rank))))
		return;
	if (possible(&c->layout))
		c->identity = library->has_hash ? IDENTITY_READ : IDENTITY_READ_WITHOUT_HASH;
}

static __always_inline void count_refused(void)
{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&refused, &first);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* The current process, as an owner. */
static __always_inline void find_owner(struct owner *o)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	begin_owner(o, task);
	find_slots(o, task, 0);
}

static __always_inline struct communicator *meet(const struct communicator_key *key, __u64 now_ns, __u32 library)
{
	struct owner owner = {};
	__u32 first = 0, slot;
	void *fresh = bpf_map_lookup_elem(&blank, &first);
	struct communicator *c;
	__u64 *at;

	find_owner(&owner);
	slot = owner.user_slot;
	at = bpf_map_lookup_elem(&refused_at, &slot);
	if (!fresh || !at)
		return NULL;
	if (!has_room(COMMUNICATORS, &owner) || bpf_map_update_elem(&communicators, key, fresh, BPF_NOEXIST)) {
		c = bpf_map_lookup_elem(&communicators, key); /* another thread may have met it meanwhile */
		if (!c) {
			*at = now_ns;
			count_refused();
		}
		return c;
	}
	c = bpf_map_lookup_elem(&communicators, key);
	if (!c)
		return NULL;
	c->owner = owner;
	c->slot = library;
	c->refused_ns = *at;
	c->first_ns = now_ns;
	count_held(COMMUNICATORS, &owner, 1);
	return c;
}

/* Spreads numbers, so that samples do not fall in step with what a job does every 2^n calls.
 * The finalizer of MurmurHash3 (Austin Appleby, public domain). decode.go has it, too. */
static __always_inline __u32 mix(__u32 number)
{
	number ^= number >> 16;
	number *= 0x85ebca6b;
	number ^= number >> 13;
	number *= 0xc2b2ae35;
	return number ^ number >> 16;
}

/*
 * Keeps the arrival of some calls. Which ones, their numbers say, so ranks that never
 * heard of each other choose the same: what is sampled at a wider spacing is sampled at
 * each narrower one. Two threads at a time may lose a sample.
 */
static __always_inline void sample(struct communicator *c, const struct library *library, __u64 address, __u64 now_ns, __u64 number)
{
	struct sample *oldest = &c->samples[c->sampled % SAMPLES];
	struct sample *newest = &c->samples[(c->sampled - 1) % SAMPLES];
	__u64 pause_us = c->pause_ns / 1000;

	if (mix(number) & ((1u << (c->spacing % 32)) - 1))
		return;
	if (oldest->time_ns && now_ns - oldest->time_ns < SAMPLES_NS && c->spacing < MAX_SPACING)
		c->spacing++;
	else if (c->spacing && now_ns - newest->time_ns > SPARSE_NS)
		c->spacing--;
	oldest->time_ns = now_ns;
	oldest->number = number;
	oldest->pause_us = pause_us < (__u32)-1 ? pause_us : (__u32)-1;
	c->pause_ns = 0;
	c->sampled++;
	c->window_number = 0;
	if (library->rank_offset && !bpf_probe_read_user(c->window, sizeof(c->window), (void *)(address + library->rank_offset)))
		c->window_number = number + 1;
}

/*
 * Keeps a collective for comparison. Two threads of a process (PyTorch's main and
 * autograd) may call on one communicator at a time: the counter stays exact, and one
 * of the two entries may be lost, which its sequence shows.
 */
static __always_inline void keep(struct communicator *c, const struct library *library, __u64 address, __u64 now_ns, __u32 operation,
				 __u64 count, __u32 type, __s32 root)
{
	__u64 number = c->collectives;
	struct recent *recent = &c->recent[number % RECENT];

	recent->time_ns = now_ns;
	recent->count = count;
	recent->operation = operation;
	recent->type = type;
	recent->sequence = number;
	recent->root = root;
	__sync_fetch_and_add(&c->collectives, 1);
	sample(c, library, address, now_ns, number);
}

static __always_inline int call(struct pt_regs *regs, __u32 operation, __u64 address, __u64 count, __u32 type, __s32 root)
{
	__u64 current = bpf_get_current_pid_tgid();
	struct communicator_key key = {.pid = current >> 32, .address = address};
	__u32 slot = slot_of_library(regs);
	struct library *library = library_in(slot);
	struct communicator *c;
	struct group *group;
	__u64 now_ns;

	if (!library || !address || is_spared(key.pid, operation))
		return 0;
	now_ns = bpf_ktime_get_boot_ns();
	c = bpf_map_lookup_elem(&communicators, &key);
	if (!c)
		c = meet(&key, now_ns, slot);
	if (!c)
		return 0;
	if (c->identity < IDENTITY_READ)
		identify(c, library, address);
	group = bpf_map_lookup_elem(&groups, &current);
	c->group_thread = group && group->epoch == library->epoch ? current : 0;
	if (c->last_ns && now_ns > c->last_ns && now_ns - c->last_ns > c->pause_ns)
		c->pause_ns = now_ns - c->last_ns;
	c->last_ns = now_ns;
	c->last_count = count;
	c->last_operation = operation;
	c->last_type = type;
	c->last_root = root;
	__sync_fetch_and_add(&c->calls[operation], 1);
	if (operation < OPERATION_SEND)
		keep(c, library, address, now_ns, operation, count, type, root);
	return 0;
}

/* (const void *send, void *recv, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) */
SEC("uprobe/ncclAllReduce")
int all_reduce(struct pt_regs *regs)
{
	return call(regs, OPERATION_ALL_REDUCE, sixth_argument(regs), third_argument(regs), fourth_argument(regs), -1);
}

/* as ncclAllReduce; count is of what each rank receives */
SEC("uprobe/ncclReduceScatter")
int reduce_scatter(struct pt_regs *regs)
{
	return call(regs, OPERATION_REDUCE_SCATTER, sixth_argument(regs), third_argument(regs), fourth_argument(regs), -1);
}

/* (send, recv, count, type, int root, comm, stream) */
SEC("uprobe/ncclBroadcast")
int broadcast(struct pt_regs *regs)
{
	return call(regs, OPERATION_BROADCAST, sixth_argument(regs), third_argument(regs), fourth_argument(regs), fifth_argument(regs));
}

/* as ncclBroadcast, since NCCL 2.28 */
SEC("uprobe/ncclGather")
int gather(struct pt_regs *regs)
{
	return call(regs, OPERATION_GATHER, sixth_argument(regs), third_argument(regs), fourth_argument(regs), fifth_argument(regs));
}

/* as ncclBroadcast, since NCCL 2.28 */
SEC("uprobe/ncclScatter")
int scatter(struct pt_regs *regs)
{
	return call(regs, OPERATION_SCATTER, sixth_argument(regs), third_argument(regs), fourth_argument(regs), fifth_argument(regs));
}

/* (send, recv, count, type, op, int root, comm, stream): comm is the seventh */
SEC("uprobe/ncclReduce")
int reduce(struct pt_regs *regs)
{
	__u64 address = 0;

#if defined(__TARGET_ARCH_x86)
	bpf_probe_read_user(&address, sizeof(address), (void *)stack_argument(regs, 0));
#else
	address = seventh_argument(regs);
#endif
	return call(regs, OPERATION_REDUCE, address, third_argument(regs), fourth_argument(regs), sixth_argument(regs));
}

/* (send, recv, count, type, comm, stream); count is of what each rank sends */
SEC("uprobe/ncclAllGather")
int all_gather(struct pt_regs *regs)
{
	return call(regs, OPERATION_ALL_GATHER, fifth_argument(regs), third_argument(regs), fourth_argument(regs), -1);
}

/* as ncclAllGather, since NCCL 2.28 */
SEC("uprobe/ncclAlltoAll")
int all_to_all(struct pt_regs *regs)
{
	return call(regs, OPERATION_ALL_TO_ALL, fifth_argument(regs), third_argument(regs), fourth_argument(regs), -1);
}

/* (buffer, size_t count, type, int peer, comm, stream) */
SEC("uprobe/ncclSend")
int send(struct pt_regs *regs)
{
	return call(regs, OPERATION_SEND, fifth_argument(regs), second_argument(regs), third_argument(regs), fourth_argument(regs));
}

/* as ncclSend */
SEC("uprobe/ncclRecv")
int recv(struct pt_regs *regs)
{
	return call(regs, OPERATION_RECV, fifth_argument(regs), second_argument(regs), third_argument(regs), fourth_argument(regs));
}

SEC("uprobe/ncclGroupStart")
int group_start(struct pt_regs *regs)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct library *library = library_in(slot_of_library(regs));
	struct group *group = bpf_map_lookup_elem(&groups, &thread), first = {.depth = 1};

	if (!library)
		return 0;
	first.epoch = library->epoch;
	if (group && group->epoch == first.epoch)
		group->depth += 1;
	else
		bpf_map_update_elem(&groups, &thread, &first, BPF_ANY);
	return 0;
}

SEC("uprobe/ncclGroupEnd")
int group_end(struct pt_regs *regs)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct group *group = bpf_map_lookup_elem(&groups, &thread);

	if (group && group->depth > 1)
		group->depth -= 1;
	else
		bpf_map_delete_elem(&groups, &thread);
	return 0;
}

/*
 * A record for user space, NULL where its owner has no room in the ring. A caller looks at
 * the result of reserve once and at no copy of it: the verifier of 5.10 does not know a
 * reserved record that was looked at as one.
 */
static __always_inline struct event *reserve(struct owner *owner)
{
	find_owner(owner);
	if (!ring_has_room_for(&events, owner))
		return NULL;
	return bpf_ringbuf_reserve(&events, sizeof(struct event), 0);
}

static __always_inline int lost(const struct owner *owner)
{
	count_lost(&events, owner);
	return 0;
}

static __always_inline void begin(struct event *event, __u32 kind, const struct owner *owner, __u32 slot)
{
	__u64 current = bpf_get_current_pid_tgid();

	zero(event);
	event->time_ns = bpf_ktime_get_boot_ns();
	event->kind = kind;
	event->pid = current >> 32;
	event->thread = current;
	event->rank = -1;
	event->owner = *owner;
	event->slot = slot;
}

static __always_inline void submit(struct event *event, const struct owner *owner)
{
	count_in_ring(&events, owner, sizeof(*event));
	bpf_ringbuf_submit(event, 0);
}

/* Tells nothing until all of the library is attached: whoever is told of an init knows
 * that no call of its communicator was missed. */
static __always_inline int init(struct pt_regs *regs, __u32 kind, __s32 nranks, __s32 rank, __u64 id, __s32 ids)
{
	__u32 slot = slot_of_library(regs);
	struct owner owner = {};
	struct event *event;

	if (!library_in(slot))
		return 0;
	event = reserve(&owner);
	if (!event)
		return lost(&owner);
	begin(event, kind, &owner, slot);
	event->nranks = nranks;
	event->rank = rank;
	if (id && !bpf_probe_read_user(event->id, sizeof(event->id), (void *)id))
		event->ids = ids;
	submit(event, &owner);
	return 0;
}

/*
 * (ncclComm_t *, int nranks, ncclUniqueId, int rank). The id is a structure of 128
 * bytes by value: on the stack of x86-64, so that rank is the third register, and by
 * pointer to a copy on arm64 (AAPCS64).
 */
#if defined(__TARGET_ARCH_x86)
#define id_by_value(regs) stack_argument(regs, 0)
#define rank_behind_id(regs) third_argument(regs)
#else
#define id_by_value(regs) third_argument(regs)
#define rank_behind_id(regs) fourth_argument(regs)
#endif

SEC("uprobe/ncclCommInitRank")
int init_rank(struct pt_regs *regs)
{
	return init(regs, KIND_INIT_RANK, second_argument(regs), rank_behind_id(regs), id_by_value(regs), 1);
}

/* as ncclCommInitRank, and a configuration */
SEC("uprobe/ncclCommInitRankConfig")
int init_rank_config(struct pt_regs *regs)
{
	return init(regs, KIND_INIT_RANK_CONFIG, second_argument(regs), rank_behind_id(regs), id_by_value(regs), 1);
}

/* (ncclComm_t *, int nranks, int rank, int ids, ncclUniqueId *, config) */
SEC("uprobe/ncclCommInitRankScalable")
int init_rank_scalable(struct pt_regs *regs)
{
	return init(regs, KIND_INIT_RANK_SCALABLE, second_argument(regs), third_argument(regs), fifth_argument(regs), fourth_argument(regs));
}

/* (ncclComm_t *, int devices, const int *) */
SEC("uprobe/ncclCommInitAll")
int init_all(struct pt_regs *regs)
{
	return init(regs, KIND_INIT_ALL, second_argument(regs), -1, 0, 0);
}

/* Says of a record which communicator it is about. */
static __always_inline struct communicator *about(struct event *event, __u64 address)
{
	struct communicator_key key = {.pid = bpf_get_current_pid_tgid() >> 32, .address = address};
	struct communicator *c = bpf_map_lookup_elem(&communicators, &key);

	event->address = address;
	if (!c)
		return NULL;
	if (c->identity == IDENTITY_READ)
		event->hash = c->layout.hash;
	event->collectives = c->collectives;
	__builtin_memcpy(event->calls, c->calls, sizeof(event->calls));
	return c;
}

/* (ncclComm_t, int color, int key, ncclComm_t *, config) */
SEC("uprobe/ncclCommSplit")
int split(struct pt_regs *regs)
{
	__u32 slot = slot_of_library(regs);
	struct library *library = library_in(slot);
	struct owner owner = {};
	struct event *event;

	if (!library)
		return 0;
	event = reserve(&owner);
	if (!event)
		return lost(&owner);
	begin(event, KIND_SPLIT, &owner, slot);
	event->color = second_argument(regs);
	event->key = third_argument(regs);
	if (!about(event, first_argument(regs)) && library->rank_offset && library->has_hash) /* it has made no call yet */
		bpf_probe_read_user(&event->hash, sizeof(event->hash),
				    (void *)(event->address + library->rank_offset - __builtin_offsetof(struct layout, rank)));
	submit(event, &owner);
	return 0;
}

/* (ncclComm_t, int *exclude, int excluded, ncclComm_t *, config, flags), since NCCL 2.27 */
SEC("uprobe/ncclCommShrink")
int shrink(struct pt_regs *regs)
{
	__u32 slot = slot_of_library(regs);
	struct owner owner = {};
	struct event *event;

	if (!library_in(slot))
		return 0;
	event = reserve(&owner);
	if (!event)
		return lost(&owner);
	begin(event, KIND_SHRINK, &owner, slot);
	about(event, first_argument(regs));
	event->nranks = third_argument(regs);
	submit(event, &owner);
	return 0;
}

/* (ncclComm_t, int nranks, const ncclUniqueId *, int rank, ncclComm_t *, config), since NCCL 2.29 */
SEC("uprobe/ncclCommGrow")
int grow(struct pt_regs *regs)
{
	__u32 slot = slot_of_library(regs);
	struct owner owner = {};
	struct event *event;

	if (!library_in(slot))
		return 0;
	event = reserve(&owner);
	if (!event)
		return lost(&owner);
	begin(event, KIND_GROW, &owner, slot);
	about(event, first_argument(regs));
	event->nranks = second_argument(regs);
	event->rank = fourth_argument(regs);
	submit(event, &owner);
	return 0;
}

/* (ncclComm_t) */
static __always_inline int end(struct pt_regs *regs, __u32 kind)
{
	__u32 slot = slot_of_library(regs);
	struct owner owner = {};
	struct event *event;

	if (!library_in(slot))
		return 0;
	event = reserve(&owner);
	if (!event)
		return lost(&owner);
	begin(event, kind, &owner, slot);
	about(event, first_argument(regs));
	submit(event, &owner);
	return 0;
}

static __always_inline int delete_communicator(const struct communicator_key *key)
{
	struct communicator *c = bpf_map_lookup_elem(&communicators, key);
	struct owner owner;

	if (!c)
		return 0;
	owner = c->owner;
	if (bpf_map_delete_elem(&communicators, key))
		return 0;
	count_held(COMMUNICATORS, &owner, -1);
	return 1;
}

/* User space takes entries of a process that has ended out by BPF_PROG_TEST_RUN: its number
 * and the address. */
SEC("raw_tp")
int forget_communicator(__u64 *args)
{
	struct communicator_key key = {.pid = args[0], .address = args[1]};

	return delete_communicator(&key);
}

SEC("raw_tp")
int forget_launches(__u64 *args)
{
	__u32 pid = args[0];
	struct launches *l = bpf_map_lookup_elem(&graphs, &pid);
	struct owner owner;

	if (!l)
		return 0;
	owner = l->owner;
	if (bpf_map_delete_elem(&graphs, &pid))
		return 0;
	count_held(GRAPHS, &owner, -1);
	return 1;
}

/* What is destroyed is forgotten, told or not: its address may be used again at once. */
static __always_inline int forget(struct pt_regs *regs)
{
	struct communicator_key key = {.pid = bpf_get_current_pid_tgid() >> 32, .address = first_argument(regs)};

	delete_communicator(&key);
	return 0;
}

SEC("uprobe/ncclCommFinalize")
int finalize(struct pt_regs *regs)
{
	return end(regs, KIND_FINALIZE);
}

SEC("uprobe/ncclCommRevoke")
int revoke(struct pt_regs *regs)
{
	return end(regs, KIND_REVOKE);
}

SEC("uprobe/ncclCommDestroy")
int destroy(struct pt_regs *regs)
{
	end(regs, KIND_DESTROY);
	return forget(regs);
}

SEC("uprobe/ncclCommAbort")
int abort_communicator(struct pt_regs *regs)
{
	end(regs, KIND_ABORT);
	return forget(regs);
}

/* (ncclComm_t, …), since NCCL 2.28: from now on kernels of the program may communicate by
 * themselves, and what they do makes no call. */
SEC("uprobe/ncclDevCommCreate")
int device(struct pt_regs *regs)
{
	return end(regs, KIND_DEVICE);
}

/* libcuda's cuGraphLaunch(CUgraphExec, CUstream): the collectives that a graph replays
 * make no call. */
SEC("uprobe/cuGraphLaunch")
int graph_launch(struct pt_regs *regs)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct launches *known = bpf_map_lookup_elem(&graphs, &pid), fresh = {.count = 1};

	fresh.last_ns = bpf_ktime_get_boot_ns();
	if (known) {
		__sync_fetch_and_add(&known->count, 1);
		known->last_ns = fresh.last_ns;
		return 0;
	}
	find_owner(&fresh.owner);
	if (!has_room(GRAPHS, &fresh.owner))
		count_refused();
	else if (!bpf_map_update_elem(&graphs, &pid, &fresh, BPF_NOEXIST))
		count_held(GRAPHS, &fresh.owner, 1);
	return 0;
}
