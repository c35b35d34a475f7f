/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FAKE_UVM_EVENT_H
#define GLK_FAKE_UVM_EVENT_H

/* What the model of nvidia_uvm is made of, and what it counts and writes when something happens. */
#include "uvm_bridge/abi.h"
#include "uvm_bridge/ops.h"

#include <glake/uvm.h>

#include <stdbool.h>
#include <string.h>

#define FAKE_MAJOR   238
#define FAKE_FDS     128
#define FAKE_PENDING 16
#define UNUSED_FN    __attribute__((unused))

enum fake_kind {
	FAKE_NONE,
	FAKE_SPACE, /* /dev/nvidia-uvm with an address space */
	FAKE_MM,    /* /dev/nvidia-uvm that holds an mm */
	FAKE_TOOLS, /* /dev/nvidia-uvm-tools */
	FAKE_OTHER,
};

struct fake_event {
	uint8_t kind, cause;
	int from, to; /* index of V1: 0 the host, then GPUs */
	int from_node, to_node;
	uint64_t address, bytes, begin, end, processors;
};

struct fake_file {
	enum fake_kind kind;
	int refs;
	uint64_t managed, managed_size; /* of a space */
	/* of tools */
	bool begun, is_v2;
	struct fake_file *space;
	char *queue;
	uint32_t entries;
	struct glk_uvm_control *control;
	uint64_t *counters;
	uint64_t enabled;
};

struct fake {
	char generation;
	struct fake_file files[FAKE_FDS];
	int used; /* of them, so far */
	struct fake_file *fds[FAKE_FDS];
	uint8_t uuid[8][16]; /* of GPUs, by index of V1 less 1 */
	int open_errno, dup_errno, each_errno, ioctl_errno;
	uint32_t sticky; /* the status of every call */
	bool no_map;	 /* there is no memory */
	bool no_same;	 /* the system does not tell which files are one */
	bool late;	 /* migrations are written when they are flushed */
	struct fake_event pending[FAKE_PENDING];
	int pending_count;
	int dirty, unknown; /* calls with a buffer not zero behind, or of no number */
	int maps, calls;
	struct glk_uvm_ops ops;
};

/* GPU n of V1 has eight indices of V2, the first for itself. */
static int fake_index(int index, bool is_v2)
{
	return index && is_v2 ? 1 + 8 * (index - 1) : index;
}

static void fake_encode(const struct fake_event *e, bool is_v2, void *to)
{
	int from = fake_index(e->from, is_v2), at = fake_index(e->to, is_v2);
	struct glk_uvm_migration_v1 m1 = {e->kind, e->cause, (uint8_t)from, (uint8_t)at,
		e->address, e->bytes, e->begin, e->end, 0, 7, 8};
	struct glk_uvm_migration_v2 m2 = {e->kind, e->cause, 0, (uint16_t)from,
		(uint16_t)at, e->from_node, e->to_node, e->address, e->bytes, e->begin,
		e->end, 0, 7, 8};
	struct glk_uvm_fatal_v1 f1 = {
		e->kind, 5, 1, (uint8_t)at, e->cause, e->address, e->end};
	struct glk_uvm_fatal_v2 f2 = {
		e->kind, 5, 1, e->cause, (uint16_t)at, e->address, e->end};
	struct glk_uvm_thrashing_v1 t1 = {
		e->kind, e->processors, e->address, e->bytes, e->end};
	struct glk_uvm_thrashing_v2 t2 = {
		e->kind, e->address, e->bytes, e->end, {e->processors}};
	struct glk_uvm_throttling_v1 h1 = {e->kind, (uint8_t)at, e->address, e->end};
	struct glk_uvm_throttling_v2 h2 = {e->kind, (uint16_t)at, e->address, e->end};
	struct glk_uvm_remote_v1 r1 = {e->kind, (uint8_t)from, (uint8_t)at, e->cause,
		e->address, e->bytes, e->end, 9};
	struct glk_uvm_remote_v2 r2 = {e->kind, e->cause, 0, (uint16_t)from, (uint16_t)at,
		e->address, e->bytes, e->end, 9};

	memset(to, 0xee, is_v2 ? GLK_UVM_ENTRY_V2 : GLK_UVM_ENTRY_V1);
	*(uint8_t *)to = e->kind;
#define PUT(one, two)                                                                    \
	(is_v2 ? memcpy(to, &(two), sizeof(two)) : memcpy(to, &(one), sizeof(one)))
	switch (e->kind) {
	case GLK_UVM_MIGRATION:
		PUT(m1, m2);
		break;
	case GLK_UVM_FATAL_FAULT:
		PUT(f1, f2);
		break;
	case GLK_UVM_THRASHING:
		PUT(t1, t2);
		break;
	case GLK_UVM_THROTTLING:
		PUT(h1, h2);
		break;
	case GLK_UVM_MAP_REMOTE:
		PUT(r1, r2);
		break;
	}
#undef PUT
}

/* uvm_tools.c:448-499: one entry stays free, and what does not fit is counted. */
static void fake_enqueue(struct fake_file *tools, const struct fake_event *e)
{
	struct glk_uvm_control *c = tools->control;
	uint32_t mask = tools->entries - 1;
	uint32_t put = c->put_behind & mask, next = (put + 1) & mask;
	size_t size = tools->is_v2 ? GLK_UVM_ENTRY_V2 : GLK_UVM_ENTRY_V1;

	if (((tools->entries + c->get_behind - put) & mask) == 1) {
		c->dropped[e->kind]++;
		return;
	}
	fake_encode(e, tools->is_v2, tools->queue + put * size);
	c->put_ahead = next;
	__atomic_store_n(&c->put_behind, next, __ATOMIC_RELEASE);
}

static void fake_write(struct fake *fake, const struct fake_event *e)
{
	for (int i = 0; i < fake->used; i++) {
		struct fake_file *tools = &fake->files[i];

		if (tools->begun && tools->queue && tools->enabled >> e->kind & 1)
			fake_enqueue(tools, e);
	}
}

static UNUSED_FN void fake_count(struct fake *fake, int counter, uint64_t add)
{
	for (int i = 0; i < fake->used; i++) {
		struct fake_file *tools = &fake->files[i];

		if (tools->begun && tools->counters && tools->enabled >> counter & 1)
			tools->counters[counter] += add;
	}
}

/* Something happens to managed memory. */
static UNUSED_FN void fake_happens(struct fake *fake, const struct fake_event *e)
{
	if (e->kind == GLK_UVM_MIGRATION && !e->from && e->to)
		fake_count(fake, GLK_UVM_BYTES_TO_GPU, e->bytes);
	if (e->kind == GLK_UVM_MIGRATION && e->from && !e->to)
		fake_count(fake, GLK_UVM_BYTES_TO_HOST, e->bytes);
	if (fake->late && fake->pending_count < FAKE_PENDING)
		fake->pending[fake->pending_count++] = *e;
	else
		fake_write(fake, e);
}

#endif
