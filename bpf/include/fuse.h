/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The kernel types that the fusefault probe reads, beside kernel.h. FUSE's own
 * (struct fuse_req, struct fuse_mount, struct fuse_dev) are not among them: FUSE
 * is often a module, and its types then stand in BTF of its own or, before Linux
 * 5.11, in none. User space finds their offsets and sets them before load.
 *
 * All are flavours (CO-RE ignores what follows the three underscores), so that
 * this header stands beside kernel.h whatever that declares.
 */
#ifndef TRACECORE_FUSE_H
#define TRACECORE_FUSE_H

#include "bpf.h"

#define FUSE_SUPER_MAGIC 0x65735546 /* include/uapi/linux/magic.h */

/* include/uapi/linux/fuse.h: answers a NOTIFY_RETRIEVE, sent by the daemon's thread. */
#define FUSE_NOTIFY_REPLY 41

/* include/uapi/linux/fuse.h: what every request begins with; UAPI, never changed. */
struct fuse_in_header {
	__u32 len;
	__u32 opcode;
	__u64 unique;
	__u64 nodeid;
};

/* enum fuse_req_flag, fs/fuse/fuse_i.h: the number of a bit. In this place since
 * 4.8 (it was inserted with FR_FORCE in 4.2, 825d6d3395e8). */
#define FR_BACKGROUND 2
#define FR_FINISHED 9

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded"
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block___fuse {
	__u32 s_dev; /* major << 20 | minor, include/linux/kdev_t.h */
	unsigned long s_magic;
};

struct inode___fuse {
	struct super_block___fuse *i_sb;
	unsigned long i_ino;
	__u32 i_rdev;
};

struct address_space___fuse {
	struct inode___fuse *host;
};

/* include/linux/mm_types.h; since 5.16 (7b230db3b8d3). Before, struct page. */
struct folio___fuse {
	struct address_space___fuse *mapping;
};

struct page___fuse {
	struct address_space___fuse *mapping;
};

struct file___fuse {
	struct inode___fuse *f_inode;
	void *private_data;
};

struct vm_area_struct___fuse {
	struct file___fuse *vm_file;
};

/* 5.11 (742d33729a0d) put vma and pgoff into an anonymous struct: the same names. */
struct vm_fault___fuse {
	struct vm_area_struct___fuse *vma;
	unsigned long pgoff;
};

/* Where a thread that sleeps left its stack: arch/x86/include/asm/processor.h, and
 * arch/arm64/include/asm/processor.h. */
#if defined(__TARGET_ARCH_x86)
struct thread_struct___asleep {
	unsigned long sp;
};
#define stack_pointer(task) ((task)->thread.sp)
#elif defined(__TARGET_ARCH_arm64)
struct cpu_context___asleep {
	unsigned long sp;
};

struct thread_struct___asleep {
	struct cpu_context___asleep cpu_context;
};
#define stack_pointer(task) ((task)->thread.cpu_context.sp)
#endif

/* A thread: what says whether it still waits. */
struct task_struct___waiting {
	struct thread_struct___asleep thread;
	int pid;
	int tgid;
	char comm[16];
	unsigned int __state;
	__u64 start_boottime;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned long min_flt;
	unsigned long maj_flt;
	struct task_struct___waiting *group_leader;
};

/* Before 5.14 (2f064a59a11f). */
struct task_struct___state {
	long state;
};

struct seq_file;

/* include/linux/bpf.h and kernel/bpf/task_iter.c */
struct bpf_iter_meta___fuse {
	struct seq_file *seq;
};

struct bpf_iter__task___fuse {
	struct bpf_iter_meta___fuse *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file___fuse {
	struct bpf_iter_meta___fuse *meta;
	struct task_struct *task;
	__u32 fd;
	struct file___fuse *file;
};

/* kernel/bpf/map_iter.c */
struct bpf_iter__bpf_map_elem___fuse {
	struct bpf_iter_meta___fuse *meta;
	struct bpf_map *map;
	void *key;
	void *value;
};

#pragma clang attribute pop
#pragma clang diagnostic pop

/* Helpers, by names of their own for the same reason. */
static long (*seq_write)(struct seq_file *seq, const void *data, __u32 bytes) = (void *)127; /* 5.8 */
static long (*get_task_stack)(struct task_struct *task, void *buf, __u32 bytes, __u64 flags) = (void *)141; /* 5.9 */

#endif
