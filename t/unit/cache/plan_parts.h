/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_PLAN_PARTS_H
#define GLK_UNIT_CACHE_PLAN_PARTS_H

/* What the tests of plans share: blocks that are written from end to end, so that two of them that
 * share memory tell, and the calls of the driver that a plan makes. */
#include "gate.h"

#include <errno.h>
#include <unistd.h>

static const struct plan_op {
	const char *name;
	int op;
} plan_ops[] = {{"create", GLK_OP_create}, {"map", GLK_OP_map},
	{"set_access", GLK_OP_set_access}, {"unmap", GLK_OP_unmap},
	{"release", GLK_OP_release}};

#define PLAN_OPS (sizeof(plan_ops) / sizeof(*plan_ops))

struct held {
	uint64_t addr;
	size_t size;
	uint64_t mark;
};

/* A word in each 32 KiB, or each 256 KiB of a block of many pages, and the last one; none in a block that has no
 * room for one. */
static inline size_t mark_step(const struct held *h)
{
	return (size_t)(h->size < 4 * MIB ? 32 : 256) << 10;
}

static inline void write_marks(const struct held *h)
{
	size_t last = (h->size - 8) & ~(size_t)7;

	if (h->size < 8)
		return;
	for (size_t at = 0; at <= last; at += mark_step(h))
		*(uint64_t *)(h->addr + at) = h->mark + at;
	*(uint64_t *)(h->addr + last) = h->mark + last;
}

static inline bool has_marks(const struct held *h)
{
	size_t last = (h->size - 8) & ~(size_t)7;
	bool same;

	if (h->size < 8)
		return true;
	same = *(uint64_t *)(h->addr + last) == h->mark + last;
	for (size_t at = 0; at <= last && same; at += mark_step(h))
		same = *(uint64_t *)(h->addr + at) == h->mark + at;
	return same;
}

/* A block, written; or the error, and none. */
static inline int plan_take(
	struct rig *rig, struct held *h, size_t size, struct CUstream_st *stream)
{
	static glk_atomic(uint64_t) marks;
	int err;

	h->size = size;
	h->mark = (glk_add_relaxed(&marks, 1) + 1) << 40;
	h->addr = 0;
	err = rig_try(rig, size, stream, 0, &h->addr);
	if (!err)
		write_marks(h);
	return err;
}

/* Frees it, if it is there; false if somebody else wrote to it. */
static inline bool plan_drop(struct rig *rig, struct held *h, struct CUstream_st *stream)
{
	bool same = !h->addr || has_marks(h);

	if (h->addr && rig_free(rig, h->addr, stream))
		same = false;
	h->addr = 0;
	return same;
}

/* What an errand has got, written as well. */
static inline struct held plan_got(const struct errand *e)
{
	struct held h = {e->addr, e->size, UINT64_C(0xA) << 56};

	if (h.addr)
		write_marks(&h);
	return h;
}

static inline bool plan_overlap(const struct held *a, const struct held *b)
{
	return a->addr && b->addr && a->addr < b->addr + b->size &&
		b->addr < a->addr + a->size;
}

#endif
