//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Exceptions that end a Python program, as the interpreter displays them.
 *
 * The kernel sees how a process ends and not why: an exception that nobody catches is
 * "exit status 1". Every CPython displays it by the exported function PyErr_Display,
 * which sys.excepthook calls, once for each (README.md has what was tried). So the
 * probe is a breakpoint there, and reads type, message and traceback while the thread
 * stands in it: what is read is what is displayed. PyErr_PrintEx, which calls
 * sys.excepthook, is no better place: the compilers of some interpreters put its code
 * where it is called.
 *
 * Memory is read by bpf_probe_read_user, which takes no page fault: a page that is not
 * there is told as absent, and the process is never held up by its own storage.
 *
 * Since Linux 4.17 (uprobes as perf events, 33ea4b24277b); ring buffers make it 5.8.
 * Nothing runs until an exception is displayed; README.md has what one costs.
 */
#include "bpf.h"

#define ROOM_TABLES 0 /* the ring alone is shared */
#include "ring.h"
#include "registers.h"

char dual_license[] SEC("license") = "Dual BSD/GPL";

#define COMM_BYTES 16 /* TASK_COMM_LEN */
#define TYPE_BYTES 128
#define MESSAGE_BYTES 1024
/* Of a longer message its end, too: an exception that quotes the traceback of another process
 * ends with what was raised there. */
#define TAIL_BYTES 3072
#define DETAIL_BYTES 256
#define FILE_BYTES 256
#define NAME_BYTES 128
#define TABLE_BYTES 3072
#define EXCEPTIONS 3
/* Frames of the exception that is displayed: of those farther out, of files that are no
 * library's, the outermost and the two innermost; and the innermost. */
#define OWN 3
#define INNERMOST 8
/* Of the others the innermost of such a file, and the innermost. */
#define OWN_OF_OTHERS 1
#define INNERMOST_OF_OTHERS 2
#define FRAMES (OWN + INNERMOST + (EXCEPTIONS - 1) * (OWN_OF_OTHERS + INNERMOST_OF_OTHERS))
#define NO_LEVEL 0xffffffffU
/* Levels of a traceback that are followed: Python's limit is 1,000 unless it is set. */
#define LEVELS 1100
#define LEVELS_OF_OTHERS 200
#define BROKEN (1ULL << 32)

/* What all versions from 3.8 to 3.14 share. */
#define OBJECT_TYPE 8 /* Include/object.h: ob_type, ob_size */
#define OBJECT_SIZE 16
#define TYPE_NAME 24 /* Include/cpython/object.h: tp_name, tp_flags, tp_base */
#define TYPE_FLAGS 168
#define TYPE_BASE 256
#define EXCEPTION_ARGUMENTS 24 /* Include/cpython/pyerrors.h */
#define TRACEBACK_NEXT 16      /* Include/cpython/traceback.h */
#define TRACEBACK_FRAME 24
#define TRACEBACK_INSTRUCTION 32
#define TRACEBACK_LINE 36

/* A dict, and its keys, behind which its entries are: hash, key and value each, or key and
 * value where all keys are texts (Include/cpython/dictobject.h,
 * Objects/dict-common.h, from 3.11 on Include/internal/pycore_dict.h). */
#define DICT_KEYS 32
#define DICT_VALUES 40 /* of a table that it shares with others of its class */
#define KEYS_SIZE 8    /* before 3.11 */
#define KEYS_ENTRIES 40
#define KEYS_LOG2_BYTES 9 /* of the index, from 3.11 on */
#define KEYS_KIND 10
#define KEYS_INDEX 32

/* Bits of tp_flags (Include/object.h). */
#define FLAG_NUMBER (1ULL << 24)
#define FLAG_LIST (1ULL << 25)
#define FLAG_TUPLE (1ULL << 26)
#define FLAG_TEXT (1ULL << 28)
#define FLAG_DICT (1ULL << 29)
#define FLAG_EXCEPTION (1ULL << 30)

/* Bits of the state of a text: kind 3, compact 1, ascii 1 (Include/cpython/unicodeobject.h). */
#define STATE_KIND 2
#define STATE_COMPACT 5
#define STATE_ASCII 6

/* Where the interpreter of one file keeps what is read, in bytes from the beginning of
 * each structure. User space sets it before it loads the programs for that file. */
struct layout {
	__u32 minor; /* of CPython 3 */
	__u32 pad;
	__u32 text_length, text_state, text_ascii, text_compact;
	__u32 bytes_size, bytes_content;
	__u32 code_file, code_name, code_first_line, code_lines;
	__u32 frame_inner; /* the frame that an object stands for; 0: the object is it */
	__u32 frame_code;
	__u32 exception_traceback, exception_context, exception_cause, exception_suppress;
	__u32 exception_members; /* of a group; 0: there are none */
	__u32 error_file;        /* filename of an OSError */
	__u32 tuple_items;
	__u32 number_tagged; /* from 3.12 on sign and digits are counted in another way */
};

volatile const struct layout layout;
/* Whether messages are read. */
volatile const __u32 messages = 1;

enum relation {
	RELATION_DISPLAYED,
	RELATION_CAUSE,   /* __cause__ of the one before */
	RELATION_CONTEXT, /* its __context__ */
	RELATION_MEMBER,  /* the first of those that the one before holds */
	RELATIONS,
};

enum value {
	VALUE_NONE,
	VALUE_ABSENT, /* its memory was not there */
	VALUE_TEXT,
	VALUE_NUMBER,
	VALUE_LIST,  /* number is its length */
	VALUE_OTHER, /* neither of these */
	VALUES,
};

struct text {
	__u64 length; /* in characters, as the object says */
	__u32 size;   /* bytes that were read */
	__u32 width;  /* bytes of a character; 0: it was not read */
};

struct argument {
	__s64 number;
	struct text text;
	__u32 value;
	__u32 pad;
};

struct frame {
	__s32 line;        /* -1: by the table */
	__s32 instruction; /* in bytes from the beginning of the code */
	__s32 first_line;
	__u32 table_size; /* bytes of the table that were read */
	__u64 table_length;
	__u32 level; /* of its traceback, from the outermost, 0, on; NO_LEVEL: this is no frame */
	__u32 pad;
	struct text file; /* its end, where it is longer */
	struct text name;
	char file_bytes[FILE_BYTES];
	char name_bytes[NAME_BYTES];
	char table[TABLE_BYTES];
};

struct exception {
	__u64 address;
	__u32 relation;
	__u32 frames; /* the innermost that were read, outermost first, behind those of OWN */
	__u32 levels; /* of the traceback; LEVELS: or more */
	__u32 broken; /* the rest of its traceback was not there */
	__u32 arguments;
	__u32 os_error;
	__u32 tail_size; /* bytes that were read of what comes behind message_bytes, characters of the same width */
	__u32 pad;
	struct argument message; /* the first argument */
	struct argument detail;  /* the second */
	struct argument file;    /* of an OSError */
	char type[TYPE_BYTES];
	char message_bytes[MESSAGE_BYTES];
	char tail_bytes[TAIL_BYTES];
	char detail_bytes[DETAIL_BYTES];
	char file_bytes[FILE_BYTES];
};

struct event {
	__u64 time_ns; /* boot clock */
	__u32 pid;
	__u32 thread;
	__u32 minor; /* of CPython 3: whose tables these are */
	__u32 pad;
	__u32 exceptions;
	__u32 more; /* exceptions of the chain that were not read: 1 or none */
	char comm[COMM_BYTES]; /* of the thread */
	struct exception exception[EXCEPTIONS];
	struct frame frame[FRAMES]; /* of all exceptions, in their order */
};

/* Keeps the type for bpf2go: a ring names none. */
const struct event *event_type __attribute__((unused));
const enum relation *relation_type __attribute__((unused));
const enum value *value_type __attribute__((unused));

/* events, shared between users and their processes; a full ring refuses the record and
 * counts it. User space sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1024 * 1024);
} events SEC(".maps");

#define read_at(into, address) bpf_probe_read_user((into), sizeof(*(into)), (const void *)(address))

static __always_inline __u64 pointer_at(__u64 address)
{
	__u64 value = 0;

	read_at(&value, address);
	return value;
}

/*
 * Functions that are not static are verified once, whoever calls them: the verifier does
 * not walk a traceback again for each length of the one before.
 */
#define verified_once __attribute__((noinline))

/* What an object is; 0 where its memory is not there. */
verified_once __u64 flags_of(__u64 object)
{
	return pointer_at(pointer_at(object + OBJECT_TYPE) + TYPE_FLAGS);
}

/* Where the characters of a str are, how many, and how wide; 0 for none. */
static __always_inline __u64 characters_of(__u64 object, __u64 *length, __u32 *width)
{
	__u32 state = 0;

	if (!(flags_of(object) & FLAG_TEXT))
		return 0;
	if (read_at(length, object + layout.text_length) || read_at(&state, object + layout.text_state))
		return 0;
	*width = state >> STATE_KIND & 7;
	if (*width != 1 && *width != 2 && *width != 4)
		return 0;
	if (!(state >> STATE_COMPACT & 1))
		return pointer_at(object + layout.text_compact); /* of a class of its own */
	return object + (state >> STATE_ASCII & 1 ? layout.text_ascii : layout.text_compact);
}

/* Reads a str, its end where end is set and it is longer than most bytes. */
static __always_inline void read_text(struct text *text, char *into, __u32 most, __u64 object, bool end)
{
	__u64 length = 0, skip = 0, fit, at;
	__u32 width = 0, size;

	at = characters_of(object, &length, &width);
	if (!at)
		return;
	fit = width == 1 ? most : width == 2 ? most / 2 : most / 4;
	if (length <= fit)
		fit = length;
	else if (end)
		skip = (length - fit) * width;
	size = fit * width;
	if (size > most)
		size = most;
	if (bpf_probe_read_user(into, size, (const void *)(at + skip)))
		return;
	text->length = length;
	text->size = size;
	text->width = width;
}

/* An int of one digit (Include/cpython/longintrepr.h): an error number, an exit status. */
static __always_inline void read_number(struct argument *argument, __u64 object)
{
	__s64 head = 0;
	__u32 digit = 0;
	bool negative;

	argument->value = VALUE_OTHER;
	if (read_at(&head, object + OBJECT_SIZE) || read_at(&digit, object + OBJECT_SIZE + 8))
		return;
	if (layout.number_tagged) {
		negative = (head & 3) == 2;
		head = (head & 3) == 1 ? 0 : head >> 3;
	} else {
		negative = head < 0;
		head = negative ? -head : head;
	}
	if (head > 1)
		return;
	argument->number = head ? digit : 0;
	if (negative)
		argument->number = -argument->number;
	argument->value = VALUE_NUMBER;
}

static __always_inline void read_argument(struct argument *argument, char *into, __u32 most, __u64 object)
{
	__u64 flags;

	argument->value = VALUE_ABSENT;
	if (!object)
		return;
	flags = flags_of(object);
	if (!flags)
		return;
	if (flags & FLAG_TEXT) {
		read_text(&argument->text, into, most, object, false);
		if (argument->text.width)
			argument->value = VALUE_TEXT;
	} else if (flags & FLAG_NUMBER) {
		read_number(argument, object);
	} else if (flags & (FLAG_LIST | FLAG_TUPLE)) {
		argument->number = pointer_at(object + OBJECT_SIZE);
		argument->value = VALUE_LIST;
	} else {
		argument->value = VALUE_OTHER;
	}
}

/* Reads the end of a message that was read, where it has more. */
static __always_inline void read_tail(struct exception *exception, __u64 object)
{
	const struct text *text = &exception->message.text;
	__u64 length = 0, rest, fit, at;
	__u32 width = 0, size;

	if (exception->message.value != VALUE_TEXT)
		return;
	at = characters_of(object, &length, &width);
	if (!at || width != text->width || length != text->length)
		return; /* another thread made it another one meanwhile */
	fit = width == 1 ? MESSAGE_BYTES : width == 2 ? MESSAGE_BYTES / 2 : MESSAGE_BYTES / 4;
	if (length <= fit)
		return;
	rest = length - fit;
	fit = width == 1 ? TAIL_BYTES : width == 2 ? TAIL_BYTES / 2 : TAIL_BYTES / 4;
	if (fit > rest)
		fit = rest;
	size = fit * width;
	if (size > TAIL_BYTES)
		size = TAIL_BYTES;
	if (!bpf_probe_read_user(exception->tail_bytes, size, (const void *)(at + (length - fit) * width)))
		exception->tail_size = size;
}

/* Reads what an exception was made with first. */
static __attribute__((noinline)) int read_message(struct exception *exception, __u64 object)
{
	read_argument(&exception->message, exception->message_bytes, MESSAGE_BYTES, object);
	read_tail(exception, object);
	return 0;
}

/* Whether a type comes from OSError, which keeps its file beside its arguments. */
verified_once int from_os_error(__u64 type)
{
	char name[8] = {};

#pragma clang loop unroll(disable)
	for (int i = 0; i < 6 && type; i++) {
		if (bpf_probe_read_user_str(name, sizeof(name), (const void *)pointer_at(type + TYPE_NAME)) == sizeof("OSError") &&
		    name[0] == 'O' && name[1] == 'S' && name[2] == 'E' && name[3] == 'r' && name[4] == 'r' && name[5] == 'o' && name[6] == 'r')
			return 1;
		type = pointer_at(type + TYPE_BASE);
	}
	return 0;
}

/* Characters as a number, the first in its highest byte. */
#define FOUR(s) ((__u64)(s)[0] << 24 | (__u64)(s)[1] << 16 | (__u64)(s)[2] << 8 | (__u64)(s)[3])
#define SIX(s) ((__u64)(s)[0] << 40 | (__u64)(s)[1] << 32 | FOUR((s) + 2))
#define SEVEN(s) ((__u64)(s)[0] << 48 | SIX((s) + 1))
#define EIGHT(s) (FOUR(s) << 32 | FOUR((s) + 4))
#define LAST(bytes, number) ((number) << (64 - 8 * (bytes)) >> (64 - 8 * (bytes)))

/* Whether 16 characters end with the name of a folder of libraries, or of what a compiler wrote. */
verified_once int ends_as_library(__u64 before, __u64 late)
{
	if (late == EIGHT("ackages/"))
		return LAST(7, before) == SEVEN("/site-p") || LAST(7, before) == SEVEN("/dist-p");
	if (late == EIGHT("/python3"))
		return LAST(4, before) == FOUR("/lib") || LAST(6, before) == SIX("/lib64") || LAST(6, before) == SIX("/lib32");
	if (late == EIGHT("nductor_"))
		return LAST(7, before) == SEVEN("/torchi");
	return late == EIGHT("n/cache/") && LAST(7, before) == SEVEN("/.trito");
}

/*
 * Whether a file is of Python itself, of a package that was installed, or what a compiler
 * wrote: as Library of internal/pystack, which has the last word, but for the files of
 * TorchInductor in folders of other names. What cannot be read is.
 */
verified_once int of_library(__u64 object)
{
	__u64 length = 0, at, word = 0, before = 0, late = 0, size, some;
	__u32 width = 0, found = 0;

	at = characters_of(object, &length, &width);
	if (!at || read_at(&word, at))
		return 1;
	size = length * width;
	if ((word & 0xff) == '<' && width == 1) {
		word = __builtin_bswap64(word);
		return !(length == 8 && word == EIGHT("<string>")) && !(length == 7 && word >> 8 == SEVEN("<stdin>"));
	}
	if (length == 8 && __builtin_bswap64(word) == EIGHT("__init__"))
		return 1;
	if (size > FILE_BYTES)
		at += (size - FILE_BYTES) & ~7ULL;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i <= FILE_BYTES / 8; i++) {
		/* Eight at a time, at an address that is a multiple of it, lie in one page. */
		if (i * 8 >= size || read_at(&word, at + i * 8))
			break;
#pragma clang loop unroll(disable)
		for (int k = 0; k < 8; k++, word >>= 8) {
			/* Zeros are of wide characters. No branches here: the verifier walks each. */
			some = ((word & 0xff) + 0xff) >> 8;
			before = before << (8 * some) | (late >> 56) * some;
			late = late << (8 * some) | (word & 0xff);
			found |= ends_as_library(before, late);
		}
	}
	return found;
}

/* The code of a level of a traceback. */
verified_once __u64 code_of(__u64 traceback)
{
	__u64 frame = pointer_at(traceback + TRACEBACK_FRAME);

	if (layout.frame_inner)
		frame = pointer_at(frame + layout.frame_inner);
	/* From 3.14 on the lowest bits of a reference are its own. */
	return pointer_at(frame + layout.frame_code) & ~7ULL;
}

static __attribute__((noinline)) int read_frame(struct frame *frame, __u64 traceback, __u32 level)
{
	__u64 code, table, length = 0;
	__u32 size;

	__builtin_memset(frame, 0, __builtin_offsetof(struct frame, file_bytes));
	frame->line = -1;
	read_at(&frame->instruction, traceback + TRACEBACK_INSTRUCTION);
	read_at(&frame->line, traceback + TRACEBACK_LINE);
	frame->level = level;
	code = code_of(traceback);
	read_text(&frame->file, frame->file_bytes, FILE_BYTES, pointer_at(code + layout.code_file), true);
	read_text(&frame->name, frame->name_bytes, NAME_BYTES, pointer_at(code + layout.code_name), false);
	if (frame->line >= 0)
		return 0;
	read_at(&frame->first_line, code + layout.code_first_line);
	table = pointer_at(code + layout.code_lines);
	if (read_at(&length, table + layout.bytes_size))
		return 0;
	size = length > TABLE_BYTES ? TABLE_BYTES : length;
	if (bpf_probe_read_user(frame->table, size, (const void *)(table + layout.bytes_content)))
		return 0;
	frame->table_size = size;
	frame->table_length = length;
	return 0;
}

/* How many levels a traceback has, and whether the rest of it was not there. */
verified_once __u64 levels_of(__u64 traceback, __u32 most)
{
	__u64 next;
	__u32 i;

#pragma clang loop unroll(disable)
	for (i = 0; i < LEVELS; i++) {
		if (i >= most || !traceback)
			break;
		if (read_at(&next, traceback + TRACEBACK_NEXT))
			return i | BROKEN;
		traceback = next;
	}
	return i;
}

/* The level of a traceback that lies so many below. */
verified_once __u64 below(__u64 traceback, __u32 levels)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LEVELS; i++) {
		if (i >= levels)
			break;
		traceback = pointer_at(traceback + TRACEBACK_NEXT);
	}
	return traceback;
}

/* What own_level returns. */
#define LEVEL_SHIFT 52 /* beyond the addresses of user space */
#define LEVEL_OF(own) ((own) >> LEVEL_SHIFT)
#define TRACEBACK_OF(own) ((own) & ((1ULL << LEVEL_SHIFT) - 1))

/* The file of a level of a traceback, and in its lowest bit whether it is no library's. It
 * may be that of the level before. */
verified_once __u64 file_of(__u64 traceback, __u64 before)
{
	__u64 file = pointer_at(code_of(traceback) + layout.code_file) & ~1ULL;

	if (file == (before & ~1ULL))
		return before;
	return of_library(file) ? file : file | 1;
}

/* Of so many levels of a traceback the innermost whose file is no library's, or the outermost;
 * 0 for none. */
verified_once __u64 own_level(__u64 traceback, __u32 levels, __u32 outermost)
{
	__u64 file = 0, found = 0, own;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LEVELS; i++) {
		if (i >= levels || !traceback)
			break;
		file = file_of(traceback, file);
		own = -(file & 1);
		/* Without a branch: the verifier walks each. */
		asm volatile("" : "+r"(own));
		found = (found & ~own) | (((__u64)i << LEVEL_SHIFT | TRACEBACK_OF(traceback)) & own);
		if (outermost && found)
			break;
		traceback = pointer_at(traceback + TRACEBACK_NEXT);
	}
	return found;
}

static __always_inline void read_own(struct frame *frame, __u64 own)
{
	frame->level = NO_LEVEL;
	if (own)
		read_frame(frame, TRACEBACK_OF(own), LEVEL_OF(own));
}

/* Reads frames of a traceback into event from the one at first on: of own and of most there
 * are as many as above. */
static __always_inline void read_frames(struct event *event, struct exception *exception, __u32 first, __u32 own, __u32 most, __u32 levels, __u64 traceback)
{
	__u64 counted = levels_of(traceback, levels), nearest = 0, next = 0, outermost = 0;
	__u32 count = counted, n, out = 0;

	exception->broken = counted >> 32;
	exception->levels = count;
	if (count > most) {
		out = count - most;
		nearest = own_level(traceback, out, 0);
	}
	if (own == OWN) {
		if (nearest)
			next = own_level(traceback, LEVEL_OF(nearest), 0);
		if (next)
			outermost = own_level(traceback, LEVEL_OF(next), 1);
		read_own(&event->frame[first], outermost);
		read_own(&event->frame[first + 1], next);
	}
	read_own(&event->frame[first + own - 1], nearest);
	if (out)
		traceback = below(traceback, out);
#pragma clang loop unroll(disable)
	for (n = 0; n < most; n++) {
		if (n >= count || !traceback)
			break;
		read_frame(&event->frame[first + own + n], traceback, out + n);
		traceback = pointer_at(traceback + TRACEBACK_NEXT);
	}
	exception->frames = n;
}

/* Reads what an exception says of itself. */
static __attribute__((noinline)) int read_exception(struct exception *exception, __u64 value, __u64 type)
{
	__u64 arguments, length = 0;

	__builtin_memset(exception, 0, __builtin_offsetof(struct exception, type));
	exception->type[0] = 0;
	exception->address = value;
	bpf_probe_read_user_str(exception->type, TYPE_BYTES, (const void *)pointer_at(type + TYPE_NAME));
	if (!messages)
		return 0;
	if (!(flags_of(value) & FLAG_EXCEPTION)) { /* before 3.12 it can be the argument of one */
		read_message(exception, value);
		exception->arguments = 1;
		return 0;
	}
	arguments = pointer_at(value + EXCEPTION_ARGUMENTS);
	if (read_at(&length, arguments + OBJECT_SIZE)) {
		exception->message.value = VALUE_ABSENT;
		return 0;
	}
	exception->arguments = length;
	if (length > 0)
		read_message(exception, pointer_at(arguments + layout.tuple_items));
	if (length > 1)
		read_argument(&exception->detail, exception->detail_bytes, DETAIL_BYTES, pointer_at(arguments + layout.tuple_items + 8));
	if (from_os_error(type)) {
		exception->os_error = 1;
		arguments = pointer_at(value + layout.error_file);
		if (arguments)
			read_argument(&exception->file, exception->file_bytes, FILE_BYTES, arguments);
	}
	return 0;
}

/* The first value of a dict. */
static __always_inline __u64 first_value(__u64 dict)
{
	__u64 keys = pointer_at(dict + DICT_KEYS), size = 0;
	__u8 log2 = 0, kind = 0;

	if (pointer_at(dict + DICT_VALUES))
		return 0;
	if (layout.minor < 11) {
		size = pointer_at(keys + KEYS_SIZE);
		return pointer_at(keys + KEYS_ENTRIES + size * (size <= 0xff ? 1 : size <= 0xffff ? 2 : 4) + 16);
	}
	read_at(&log2, keys + KEYS_LOG2_BYTES);
	read_at(&kind, keys + KEYS_KIND);
	return pointer_at(keys + KEYS_INDEX + (1ULL << (log2 & 31)) + (kind ? 8 : 16));
}

/*
 * The first of the exceptions that one has as its second argument, by rank, each with its
 * stack: torch.distributed.checkpoint's CheckpointException.
 */
verified_once __u64 failure_of(__u64 value)
{
	__u64 arguments = pointer_at(value + EXCEPTION_ARGUMENTS), one;

	if (pointer_at(arguments + OBJECT_SIZE) != 2)
		return 0;
	one = pointer_at(arguments + layout.tuple_items + 8);
	if (!(flags_of(one) & FLAG_DICT))
		return 0;
	one = first_value(one);
	if (flags_of(one) & FLAG_TUPLE)
		one = pointer_at(one + layout.tuple_items);
	return flags_of(one) & FLAG_EXCEPTION ? one : 0;
}

/*
 * The exception that one came from, as Python shows it, and in its lowest bits, which are
 * no part of an address, the relation.
 */
verified_once __u64 origin(__u64 value)
{
	__u64 next, members;
	__u8 suppress = 0;

	if (!(flags_of(value) & FLAG_EXCEPTION))
		return 0;
	next = pointer_at(value + layout.exception_cause);
	if (next)
		return next | RELATION_CAUSE;
	read_at(&suppress, value + layout.exception_suppress);
	next = pointer_at(value + layout.exception_context);
	if (next && !suppress)
		return next | RELATION_CONTEXT;
	next = failure_of(value);
	if (next)
		return next | RELATION_MEMBER;
	if (!layout.exception_members)
		return 0;
	/* Of what is no group, there is something else that is no tuple of exceptions. */
	members = pointer_at(value + layout.exception_members);
	if (!members || !(flags_of(members) & FLAG_TUPLE) || !pointer_at(members + OBJECT_SIZE))
		return 0;
	next = pointer_at(members + layout.tuple_items);
	return flags_of(next) & FLAG_EXCEPTION ? next | RELATION_MEMBER : 0;
}

/* (PyObject *type, PyObject *value, PyObject *traceback); from 3.12 on the first is not used. */
SEC("uprobe/PyErr_Display")
int display(struct pt_regs *regs)
{
	__u64 current = bpf_get_current_pid_tgid();
	__u64 value = second_argument(regs), traceback = third_argument(regs), type, next;
	struct event *event = NULL;
	struct owner owner;
	__u32 n;

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
	event->minor = layout.minor;
	event->pad = 0;
	event->more = 0;
	bpf_get_current_comm(event->comm, sizeof(event->comm));

	type = flags_of(value) & FLAG_EXCEPTION ? pointer_at(value + OBJECT_TYPE) : first_argument(regs);
	read_exception(&event->exception[0], value, type);
	if (!traceback) /* then it is the exception's own */
		traceback = pointer_at(value + layout.exception_traceback);
	read_frames(event, &event->exception[0], 0, OWN, INNERMOST, LEVELS, traceback);

#pragma clang loop unroll(disable)
	for (n = 1; n < EXCEPTIONS; n++) {
		next = origin(value);
		value = next & ~7ULL;
		if (!value)
			break;
		read_exception(&event->exception[n], value, pointer_at(value + OBJECT_TYPE));
		event->exception[n].relation = next & 7;
		read_frames(event, &event->exception[n], OWN + INNERMOST + (n - 1) * (OWN_OF_OTHERS + INNERMOST_OF_OTHERS), OWN_OF_OTHERS, INNERMOST_OF_OTHERS, LEVELS_OF_OTHERS,
			    pointer_at(value + layout.exception_traceback));
	}
	event->exceptions = n;
	if (value && origin(value))
		event->more = 1;
	count_in_ring(&events, &owner, sizeof(*event));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

#include "terminate.h"
