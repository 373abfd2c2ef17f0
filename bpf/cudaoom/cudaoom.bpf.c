//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Allocations of GPU memory that the CUDA driver refuses for want of it.
 *
 * The kernel is not told of an allocation that fails: what the driver library
 * asks of its kernel module are pages, ioctls of an unpublished format. So the
 * probe sits where every framework passes, on the exported functions of
 * libcuda.so.1: the CUDA runtime that PyTorch and JAX use ends there, however it
 * found the address (dlsym, cuGetProcAddress), because a uprobe is at the code
 * and not at the call. An entry keeps the size, a return compares one number.
 * Uprobes have no other alternative here: USDT marks do not exist in libcuda.
 *
 * Since Linux 4.17 (uprobes as perf events, 33ea4b24277b); ring buffers make it 5.8.
 * A call costs two breakpoints, some microseconds (README.md has measured times);
 * frameworks cache, so a job at work makes none for minutes. A record leaves the
 * kernel for a refusal, and for the first success after one in the same thread.
 */
#include "bpf.h"

/* The table of room.h. */
#define THREADS 0
#define ROOM_TABLES 1
#include "ring.h"
#include "registers.h"

char dual_license[] SEC("license") = "Dual BSD/GPL";

#define COMM_BYTES 16 /* TASK_COMM_LEN */

/* cuda.h, enum cudaError_enum (CUresult): unchanged since CUDA 1. */
#define CUDA_SUCCESS 0
#define CUDA_ERROR_OUT_OF_MEMORY 2

/* cuda.h, enum CUmemLocationType_enum */
#define CU_MEM_LOCATION_TYPE_DEVICE 1

#define DEVICE_UNKNOWN (-1)

enum function {
	FUNCTION_UNKNOWN, /* of a thread: it is in no call */
	FUNCTION_MEM_ALLOC,
	FUNCTION_MEM_ALLOC_PITCH,
	FUNCTION_MEM_ALLOC_MANAGED,
	FUNCTION_MEM_ALLOC_ASYNC,
	FUNCTION_MEM_ALLOC_FROM_POOL_ASYNC,
	FUNCTION_MEM_CREATE,
	FUNCTIONS,
};

enum outcome {
	OUTCOME_REFUSED,   /* CUDA_ERROR_OUT_OF_MEMORY */
	OUTCOME_SUCCEEDED, /* the first success of that thread after a refusal */
};

/* cuda.h, struct CUmemAllocationProp_st: the two words before location are type
 * and requestedHandleTypes; the same since cuMemCreate came (CUDA 10.2). */
struct allocation_prop {
	__u32 type;
	__u32 requested_handle_types;
	__u32 location_type;
	__s32 location_id;
};

struct event {
	__u64 time_ns; /* boot clock */
	__u64 size_bytes;
	__u32 pid;
	__u32 thread;
	__s32 device; /* ordinal among the devices that the process sees, or DEVICE_UNKNOWN */
	__u16 function;
	__u16 outcome;
	char comm[COMM_BYTES]; /* of the thread */
};

/* Keeps the type for bpf2go: a ring names none. */
const struct event *event_type __attribute__((unused));
const enum function *function_type __attribute__((unused));
const enum outcome *outcome_type __attribute__((unused));

/* A thread that is in a call, or whose last refusal no success has taken back. */
struct thread {
	__u64 began_ns; /* when this was first so; boot clock */
	__u64 size_bytes; /* of the call it is in, or was in last */
	__u64 refused_bytes; /* last refused */
	__u32 pid;
	__s32 device;
	__u16 function;
	__u16 refused; /* whether something was, and no success took it back */
	__u32 pad;
	struct owner owner;
};

/* events, shared between users and their processes; a full ring refuses the record and
 * counts it. User space sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} events SEC(".maps");

/*
 * thread id → it. The return of the call deletes, or a later success where it was refused;
 * when half of it is in use user space lets forget_thread delete threads that have ended.
 * Users and their processes share its room (room.h): a call that finds none is not judged
 * and counts in dropped. User space sets its size. A return without its call says nothing:
 * one of two functions that share their code, or a call that began before the probe.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline int forget(__u32 id, const struct thread *known)
{
	struct owner owner = known->owner;

	if (bpf_map_delete_elem(&threads, &id))
		return 0;
	count_held(THREADS, &owner, -1);
	return 1;
}

/* The entry of the current thread, made when there is none; NULL when its owner has no
 * room. */
static __always_inline struct thread *current_thread(void)
{
	__u64 current = bpf_get_current_pid_tgid();
	__u32 id = current, pid = current >> 32;
	struct thread *known = bpf_map_lookup_elem(&threads, &id);
	struct thread fresh;

	if (known && known->pid == pid)
		return known;
	if (known) /* of another thread that had the number */
		forget(id, known);
	zero(&fresh);
	fresh.pid = pid;
	fresh.began_ns = bpf_ktime_get_boot_ns();
	begin_process(&fresh.owner);
	if (!has_room(THREADS, &fresh.owner) || bpf_map_update_elem(&threads, &id, &fresh, BPF_NOEXIST)) {
		count_crowded(&fresh.owner);
		return NULL;
	}
	count_held(THREADS, &fresh.owner, 1);
	return bpf_map_lookup_elem(&threads, &id);
}

/* User space takes an entry out by BPF_PROG_TEST_RUN: thread, and when it began. Returns 1
 * when it did. */
SEC("raw_tp")
int forget_thread(__u64 *args)
{
	__u32 id = args[0];
	struct thread *known = bpf_map_lookup_elem(&threads, &id);

	if (!known || known->began_ns != args[1])
		return 0;
	return forget(id, known);
}

static __always_inline int enter(__u32 function, __u64 size_bytes, __s32 device)
{
	struct thread *thread = current_thread();

	if (!thread)
		return 0;
	thread->size_bytes = size_bytes;
	thread->device = device;
	thread->function = function;
	return 0;
}

static __always_inline void tell(const struct thread *thread, __u32 outcome)
{
	__u64 current = bpf_get_current_pid_tgid();
	struct owner owner = thread->owner;
	struct event *event = NULL;

	if (ring_has_room_for(&events, &owner))
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count_lost(&events, &owner);
		return;
	}
	zero(event);
	event->time_ns = bpf_ktime_get_boot_ns();
	event->size_bytes = thread->size_bytes;
	event->pid = current >> 32;
	event->thread = current;
	event->device = thread->device;
	event->function = thread->function;
	event->outcome = outcome;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	count_in_ring(&events, &owner, sizeof(*event));
	bpf_ringbuf_submit(event, 0);
}

/*
 * Whether a success takes a refusal back: the same allocation, tried again after
 * caches were freed (PyTorch), or a little less of it (XLA and TensorFlow ask for a
 * tenth less each time, BFCAllocator::Extend). Anything below half is another
 * allocation.
 */
static __always_inline bool takes_back(__u64 size_bytes, __u64 refused_bytes)
{
	return size_bytes >= refused_bytes / 2;
}

/* The return of each function: CUresult is an int. */
SEC("uretprobe/allocation")
int allocation_return(struct pt_regs *regs)
{
	__u32 id = bpf_get_current_pid_tgid(), result = return_value(regs);
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);

	if (!thread || thread->function == FUNCTION_UNKNOWN)
		return 0;
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		thread->refused = true;
		thread->refused_bytes = thread->size_bytes;
		tell(thread, OUTCOME_REFUSED);
	} else if (result == CUDA_SUCCESS && thread->refused && takes_back(thread->size_bytes, thread->refused_bytes)) {
		thread->refused = false;
		tell(thread, OUTCOME_SUCCEEDED);
	}
	thread->function = FUNCTION_UNKNOWN;
	if (!thread->refused)
		forget(id, thread);
	return 0;
}

/* (CUdeviceptr *dptr, size_t bytesize) */
SEC("uprobe/cuMemAlloc_v2")
int mem_alloc(struct pt_regs *regs)
{
	return enter(FUNCTION_MEM_ALLOC, second_argument(regs), DEVICE_UNKNOWN);
}

/* (CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes) */
SEC("uprobe/cuMemAllocPitch_v2")
int mem_alloc_pitch(struct pt_regs *regs)
{
	return enter(FUNCTION_MEM_ALLOC_PITCH, third_argument(regs) * fourth_argument(regs), DEVICE_UNKNOWN);
}

/* (CUdeviceptr *dptr, size_t bytesize, unsigned int flags) */
SEC("uprobe/cuMemAllocManaged")
int mem_alloc_managed(struct pt_regs *regs)
{
	return enter(FUNCTION_MEM_ALLOC_MANAGED, second_argument(regs), DEVICE_UNKNOWN);
}

/* (CUdeviceptr *dptr, size_t bytesize, CUstream hStream) */
SEC("uprobe/cuMemAllocAsync")
int mem_alloc_async(struct pt_regs *regs)
{
	return enter(FUNCTION_MEM_ALLOC_ASYNC, second_argument(regs), DEVICE_UNKNOWN);
}

/* (CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) */
SEC("uprobe/cuMemAllocFromPoolAsync")
int mem_alloc_from_pool_async(struct pt_regs *regs)
{
	return enter(FUNCTION_MEM_ALLOC_FROM_POOL_ASYNC, second_argument(regs), DEVICE_UNKNOWN);
}

/* (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags) */
SEC("uprobe/cuMemCreate")
int mem_create(struct pt_regs *regs)
{
	struct allocation_prop prop = {};
	__s32 device = DEVICE_UNKNOWN;

	if (!bpf_probe_read_user(&prop, sizeof(prop), (void *)third_argument(regs)) &&
	    prop.location_type == CU_MEM_LOCATION_TYPE_DEVICE)
		device = prop.location_id;
	return enter(FUNCTION_MEM_CREATE, second_argument(regs), device);
}
