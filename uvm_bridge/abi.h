/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UVM_ABI_H
#define GLK_UVM_ABI_H

/*
 * Numbers and layouts of nvidia-uvm that this folder uses; the only place that has them. They are
 * declared anew from what NVIDIA's open kernel modules 515.43.04 to 595.45.04 do, on 64-bit
 * systems; t/abi/uvm.c compares them with NVIDIA's headers where it is given some.
 *
 * A number says nothing of the size of its structure: the module copies as many bytes as its own
 * has, in and out. So every call passes a buffer of GLK_UVM_BUFFER bytes, zero where nothing is
 * meant, and what the module's structure has beyond ours lies inside it. A number that the module
 * does not know makes it write a line to the log of the kernel: none is ever tried.
 *
 * The tools interface has four generations, which the version of the module tells apart:
 *
 *	A	515.43.04 to 550.40.07
 *	B	550.40.53 to 555: structures grew, and a version is asked for and granted
 *	C	560: a version is passed
 *	D	565.57.01 and later: as A, and beside it calls of a second version, whose records of
 *		events name NUMA nodes
 */
#include <stddef.h>
#include <stdint.h>

#define GLK_UVM_BUFFER 16384 /* the largest structure of any of them has 9264 bytes */

enum glk_uvm_number {
	GLK_UVM_PAGEABLE_MEM_ACCESS = 39,
	GLK_UVM_TOOLS_INIT_EVENT_TRACKER = 56,
	GLK_UVM_TOOLS_EVENT_QUEUE_ENABLE = 58,
	GLK_UVM_TOOLS_EVENT_QUEUE_DISABLE = 59,
	GLK_UVM_TOOLS_ENABLE_COUNTERS = 60,
	GLK_UVM_TOOLS_DISABLE_COUNTERS = 61,
	GLK_UVM_TOOLS_UUID_TABLE = 64,
	GLK_UVM_TOOLS_FLUSH_EVENTS = 67,
	GLK_UVM_VALIDATE_VA_RANGE = 72,
	GLK_UVM_TOOLS_INIT_EVENT_TRACKER_V2 = 76, /* D */
	GLK_UVM_TOOLS_UUID_TABLE_V2 = 77,	  /* D */
};

/* What the module answers in the status of a structure. */
#define GLK_UVM_OK		 0x0u
#define GLK_UVM_BUSY_RETRY	 0x3u
#define GLK_UVM_ILLEGAL_ACTION	 0x16u
#define GLK_UVM_NO_PERMISSION	 0x1bu
#define GLK_UVM_INVALID_ADDRESS	 0x1eu
#define GLK_UVM_INVALID_ARGUMENT 0x1fu
#define GLK_UVM_NO_MEMORY	 0x51u
#define GLK_UVM_NOT_SUPPORTED	 0x56u
#define GLK_UVM_WARNING		 0x10000u /* this bit: done, with a remark */

#define GLK_UVM_UUID	 16  /* bytes */
#define GLK_UVM_INDEX_V1 33  /* processors, the host is number 0 */
#define GLK_UVM_INDEX_V2 257 /* beside GPUs also their parts */
#define GLK_UVM_COUNTERS 10

/* Counters that ever move. */
enum glk_uvm_counter {
	GLK_UVM_BYTES_TO_GPU = 0,
	GLK_UVM_BYTES_TO_HOST = 1,
	GLK_UVM_CPU_FAULTS = 2,
	GLK_UVM_GPU_FAULTS = 9,
};

/* Events, by number; an event is asked for by the bit of that number. */
enum glk_uvm_kind {
	GLK_UVM_MIGRATION = 2,
	GLK_UVM_FATAL_FAULT = 6,
	GLK_UVM_THRASHING = 10,
	GLK_UVM_THROTTLING = 11,
	GLK_UVM_MAP_REMOTE = 13,
	GLK_UVM_KINDS = 64,
};

struct glk_uvm_pageable {
	uint8_t is_pageable;
	uint32_t status;
};

struct glk_uvm_range {
	uint64_t base, length;
	uint32_t status;
};

struct glk_uvm_flags {
	uint64_t flags;
	uint32_t status;
};

struct glk_uvm_flush {
	uint32_t status;
};

/*
 * A tracker: of events where it has a queue, else of counters. The last three words differ:
 *
 *	A, D	status
 *	B	status, version asked for, version granted
 *	C	version asked for, status
 */
struct glk_uvm_tracker {
	uint64_t queue, entries,
		control; /* addresses, and how many entries the queue has */
	uint8_t processor[GLK_UVM_UUID];
	uint32_t all_processors;
	int32_t uvm_fd;
	uint32_t word48, word52, word56;
};

#define GLK_UVM_TRACKER_SIZE   56
#define GLK_UVM_TRACKER_SIZE_B 64

/*
 * The table of processors. From word 8 on:
 *
 *	A	count given back, status
 *	B	count, status, version granted
 *	C	version asked for, status
 *	D	status
 */
struct glk_uvm_table {
	uint64_t table;
	uint32_t word8, word12, word16;
};

#define GLK_UVM_TABLE_SIZE   16
#define GLK_UVM_TABLE_SIZE_B 24

/* What the module and a reader share beside the queue. Indices wrap at the number of entries. */
struct glk_uvm_control {
	uint32_t get_ahead, get_behind;
	uint32_t put_ahead, put_behind;
	uint64_t dropped[GLK_UVM_KINDS];
};

/* Records of events. Those of V1 in all generations, those of V2 in D. */
#define GLK_UVM_ENTRY_V1 64
#define GLK_UVM_ENTRY_V2 72

struct glk_uvm_migration_v1 {
	uint8_t kind, cause, from, to;
	uint64_t address, bytes, begin, end, group, gpu_begin, gpu_end;
};

struct glk_uvm_migration_v2 {
	uint8_t kind, cause;
	uint16_t unused, from, to;
	int32_t from_node, to_node;
	uint64_t address, bytes, begin, end, group, gpu_begin, gpu_end;
};

struct glk_uvm_fatal_v1 {
	uint8_t kind, fault, access, processor, reason;
	uint64_t address, time;
};

struct glk_uvm_fatal_v2 {
	uint8_t kind, fault, access, reason;
	uint16_t processor;
	uint64_t address, time;
};

struct glk_uvm_thrashing_v1 {
	uint8_t kind;
	uint64_t processors, address, bytes, time;
};

struct glk_uvm_thrashing_v2 {
	uint8_t kind;
	uint64_t address, bytes, time, processors[5];
};

struct glk_uvm_throttling_v1 {
	uint8_t kind, processor;
	uint64_t address, time;
};

struct glk_uvm_throttling_v2 {
	uint8_t kind;
	uint16_t processor;
	uint64_t address, time;
};

struct glk_uvm_remote_v1 {
	uint8_t kind, from, to, cause;
	uint64_t address, bytes, time, gpu_time;
};

struct glk_uvm_remote_v2 {
	uint8_t kind, cause;
	uint16_t unused, from, to;
	uint64_t address, bytes, time, gpu_time;
};

/* Causes of a migration; between nodes of the host the module writes another list. */
#define GLK_UVM_CAUSE_USER	1
#define GLK_UVM_CAUSE_COHERENCE 2
#define GLK_UVM_CAUSE_PREFETCH	3
#define GLK_UVM_CAUSE_EVICTION	4
#define GLK_UVM_CAUSE_COUNTERS	5
/* Causes of a remote map. */
#define GLK_UVM_REMOTE_COHERENCE     1
#define GLK_UVM_REMOTE_THRASHING     2
#define GLK_UVM_REMOTE_POLICY	     3
#define GLK_UVM_REMOTE_OUT_OF_MEMORY 4
#define GLK_UVM_REMOTE_EVICTION	     5

#define GLK_UVM_AT(type, field, offset)                                                  \
	_Static_assert(offsetof(struct type, field) == (offset), #type "." #field)
#define GLK_UVM_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)

GLK_UVM_SIZE(glk_uvm_pageable, 8);
GLK_UVM_AT(glk_uvm_pageable, status, 4);
GLK_UVM_SIZE(glk_uvm_range, 24);
GLK_UVM_AT(glk_uvm_range, status, 16);
GLK_UVM_SIZE(glk_uvm_flags, 16);
GLK_UVM_AT(glk_uvm_flags, status, 8);
GLK_UVM_SIZE(glk_uvm_flush, 4);
GLK_UVM_SIZE(glk_uvm_tracker, GLK_UVM_TRACKER_SIZE_B);
GLK_UVM_AT(glk_uvm_tracker, entries, 8);
GLK_UVM_AT(glk_uvm_tracker, control, 16);
GLK_UVM_AT(glk_uvm_tracker, processor, 24);
GLK_UVM_AT(glk_uvm_tracker, all_processors, 40);
GLK_UVM_AT(glk_uvm_tracker, uvm_fd, 44);
GLK_UVM_AT(glk_uvm_tracker, word48, 48);
GLK_UVM_AT(glk_uvm_tracker, word52, 52);
GLK_UVM_AT(glk_uvm_tracker, word56, 56);
GLK_UVM_SIZE(glk_uvm_table, GLK_UVM_TABLE_SIZE_B);
GLK_UVM_AT(glk_uvm_table, word8, 8);
GLK_UVM_AT(glk_uvm_table, word12, 12);
GLK_UVM_AT(glk_uvm_table, word16, 16);
GLK_UVM_SIZE(glk_uvm_control, 528);
GLK_UVM_AT(glk_uvm_control, get_behind, 4);
GLK_UVM_AT(glk_uvm_control, put_ahead, 8);
GLK_UVM_AT(glk_uvm_control, put_behind, 12);
GLK_UVM_AT(glk_uvm_control, dropped, 16);
GLK_UVM_SIZE(glk_uvm_migration_v1, GLK_UVM_ENTRY_V1);
GLK_UVM_AT(glk_uvm_migration_v1, from, 2);
GLK_UVM_AT(glk_uvm_migration_v1, address, 8);
GLK_UVM_AT(glk_uvm_migration_v1, end, 32);
GLK_UVM_SIZE(glk_uvm_migration_v2, GLK_UVM_ENTRY_V2);
GLK_UVM_AT(glk_uvm_migration_v2, from, 4);
GLK_UVM_AT(glk_uvm_migration_v2, to, 6);
GLK_UVM_AT(glk_uvm_migration_v2, from_node, 8);
GLK_UVM_AT(glk_uvm_migration_v2, to_node, 12);
GLK_UVM_AT(glk_uvm_migration_v2, address, 16);
GLK_UVM_AT(glk_uvm_migration_v2, end, 40);
GLK_UVM_SIZE(glk_uvm_fatal_v1, 24);
GLK_UVM_AT(glk_uvm_fatal_v1, processor, 3);
GLK_UVM_AT(glk_uvm_fatal_v1, reason, 4);
GLK_UVM_AT(glk_uvm_fatal_v1, address, 8);
GLK_UVM_SIZE(glk_uvm_fatal_v2, 24);
GLK_UVM_AT(glk_uvm_fatal_v2, reason, 3);
GLK_UVM_AT(glk_uvm_fatal_v2, processor, 4);
GLK_UVM_AT(glk_uvm_fatal_v2, address, 8);
GLK_UVM_SIZE(glk_uvm_thrashing_v1, 40);
GLK_UVM_AT(glk_uvm_thrashing_v1, processors, 8);
GLK_UVM_AT(glk_uvm_thrashing_v1, time, 32);
GLK_UVM_SIZE(glk_uvm_thrashing_v2, 72);
GLK_UVM_AT(glk_uvm_thrashing_v2, address, 8);
GLK_UVM_AT(glk_uvm_thrashing_v2, time, 24);
GLK_UVM_AT(glk_uvm_thrashing_v2, processors, 32);
GLK_UVM_SIZE(glk_uvm_throttling_v1, 24);
GLK_UVM_AT(glk_uvm_throttling_v1, processor, 1);
GLK_UVM_AT(glk_uvm_throttling_v1, address, 8);
GLK_UVM_SIZE(glk_uvm_throttling_v2, 24);
GLK_UVM_AT(glk_uvm_throttling_v2, processor, 2);
GLK_UVM_AT(glk_uvm_throttling_v2, address, 8);
GLK_UVM_SIZE(glk_uvm_remote_v1, 40);
GLK_UVM_AT(glk_uvm_remote_v1, cause, 3);
GLK_UVM_AT(glk_uvm_remote_v1, address, 8);
GLK_UVM_AT(glk_uvm_remote_v1, time, 24);
GLK_UVM_SIZE(glk_uvm_remote_v2, 40);
GLK_UVM_AT(glk_uvm_remote_v2, cause, 1);
GLK_UVM_AT(glk_uvm_remote_v2, from, 4);
GLK_UVM_AT(glk_uvm_remote_v2, to, 6);
GLK_UVM_AT(glk_uvm_remote_v2, address, 8);
GLK_UVM_AT(glk_uvm_remote_v2, time, 24);

#endif
