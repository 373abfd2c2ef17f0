/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What every BPF program of tracecore needs of the BPF interface itself: types,
 * map declarations, helpers, CO-RE reads. Numbers are UAPI
 * (include/uapi/linux/bpf.h) and never change. Nothing here reads kernel
 * memory layout: that is kernel.h.
 */
#ifndef TRACECORE_BPF_H
#define TRACECORE_BPF_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef signed short __s16;
typedef unsigned int __u32;
typedef signed int __s32;
typedef unsigned long long __u64;
typedef signed long long __s64;
typedef _Bool bool;
typedef unsigned long size_t;

#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))

/* Map declarations, read from BTF by the loader. */
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27, /* Linux 5.8 */
	BPF_MAP_TYPE_TASK_STORAGE = 29, /* Linux 5.11 */
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
};

/* For bpf_ringbuf_submit. Without a flag the reader is woken when it had read
 * everything before this record, so after a BPF_RB_NO_WAKEUP only
 * BPF_RB_FORCE_WAKEUP wakes it. */
enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
};

/* For bpf_ringbuf_query. */
enum {
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
	BPF_RB_CONS_POS = 2,
	BPF_RB_PROD_POS = 3,
};

/* Helpers. The number is the call; a comment says since which kernel when that
 * is after 5.4. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static __u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static __u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static __u64 (*bpf_get_current_uid_gid)(void) = (void *)15;
static long (*bpf_get_current_comm)(void *buf, __u32 size) = (void *)16;
static __u64 (*bpf_get_current_task)(void) = (void *)35;
static long (*bpf_get_stack)(void *ctx, void *buf, __u32 size, __u64 flags) = (void *)67;
static __u64 (*bpf_get_current_cgroup_id)(void) = (void *)80;
static __u64 (*bpf_get_socket_cookie)(void *socket) = (void *)46; /* in tracing programs 5.12 */
static long (*bpf_probe_read_user)(void *dst, __u32 size, const void *src) = (void *)112; /* 5.5 */
static long (*bpf_probe_read_kernel)(void *dst, __u32 size, const void *src) = (void *)113; /* 5.5 */
static long (*bpf_probe_read_user_str)(void *dst, __u32 size, const void *src) = (void *)114; /* 5.5 */
static long (*bpf_probe_read_kernel_str)(void *dst, __u32 size, const void *src) = (void *)115; /* 5.5 */
static __u64 (*bpf_jiffies64)(void) = (void *)118; /* 5.6 */
static __u64 (*bpf_ktime_get_boot_ns)(void) = (void *)125; /* 5.8 */
static long (*bpf_seq_printf)(void *seq, const char *fmt, __u32 fmt_size, const void *data, __u32 data_len) = (void *)126; /* 5.7 */
static long (*bpf_seq_write)(void *seq, const void *data, __u32 len) = (void *)127; /* 5.7 */
static long (*bpf_ringbuf_output)(void *ringbuf, void *data, __u64 size, __u64 flags) = (void *)130; /* 5.8 */
static void *(*bpf_ringbuf_reserve)(void *ringbuf, __u64 size, __u64 flags) = (void *)131; /* 5.8 */
static void (*bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132; /* 5.8 */
static void (*bpf_ringbuf_discard)(void *data, __u64 flags) = (void *)133; /* 5.8 */
static __u64 (*bpf_ringbuf_query)(void *ringbuf, __u64 flags) = (void *)134; /* 5.8 */
static struct tcp_sock *(*bpf_skc_to_tcp_sock)(void *sk) = (void *)137; /* 5.9 */
static long (*bpf_get_task_stack)(void *task, void *buf, __u32 size, __u64 flags) = (void *)141; /* 5.9 */
static struct socket *(*bpf_sock_from_file)(void *file) = (void *)162; /* 5.11 */
static __u64 (*bpf_get_attach_cookie)(void *ctx) = (void *)174; /* 5.15 */
static long (*bpf_snprintf)(char *str, __u32 str_size, const char *fmt, __u64 *data, __u32 data_len) = (void *)165; /* 5.13 */
static void *(*bpf_task_pt_regs)(void *task) = (void *)175; /* 5.15 */

/* The memory functions that clang turns into plain instructions. Sizes must be
 * constants; large ones become long code, so zero at most some hundred bytes. */
#define zero(ptr) __builtin_memset((ptr), 0, sizeof(*(ptr)))

/*
 * CO-RE. core_read copies one field of a kernel structure (kernel.h declares it
 * with preserve_access_index, so its offset is relocated) and is 0 on success;
 * core_get is its value, zero when it cannot be read, and may be nested:
 * core_get(core_get(task->real_parent)->tgid). Read a number or a pointer, never a
 * kernel structure: an access to the copy would be relocated too. Neither fits a bit-field.
 * core_field_exists and core_type_exists are constants at load time: the
 * verifier drops the branch not taken.
 */
#define core_read(dst, field) \
	bpf_probe_read_kernel((dst), sizeof(*(dst)), &(field))
#define core_get(field)                                  \
	({                                               \
		typeof(field) __value;                   \
		__builtin_memset(&__value, 0, sizeof(__value)); \
		core_read(&__value, field);              \
		__value;                                 \
	})
#define core_field_exists(field) __builtin_preserve_field_info(field, 2)
#define core_field_size(field) __builtin_preserve_field_info(field, 1)
#define core_field_offset(field) __builtin_preserve_field_info(field, 0)
#define core_type_exists(type) __builtin_preserve_type_info(*(type *)0, 0)
#define core_type_size(type) __builtin_preserve_type_info(*(type *)0, 1)
#define core_enum_exists(type, name) __builtin_preserve_enum_value(*(typeof(type) *)name, 0)
#define core_enum_value(type, name) __builtin_preserve_enum_value(*(typeof(type) *)name, 1)

#endif
