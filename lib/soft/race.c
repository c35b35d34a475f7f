/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds memory that is given to a second stream too early: an operation that touches bytes
 * which unfinished work of another stream touches too, one of them writing, with no event
 * between the two. A GPU would mostly hide such a mistake.
 *
 * Bytes are those of pages, so aliases are seen through. Order is read from the queues: as
 * long as the earlier operation is unfinished, so is every record behind it and every wait for
 * such a record; therefore what stands in the queues is enough to know what is ordered before
 * the end of a stream. Nothing is kept for it but a count at each page.
 *
 * Cost		nothing while no work is queued; one count a page if no queued work names it;
 *		else a walk over all queues
 */
#include "soft/managed.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

/* One range that an operation touches. */
struct touch {
	uint64_t addr;
	size_t size;
	bool write;
};

static unsigned touches_of(const struct soft_op *op, struct touch touches[2])
{
	unsigned count = 0;

	/* who uses memory that is on its way finds it where it goes */
	if (op->kind == SOFT_PREFETCH)
		return 0;
	if (op->dst && op->size)
		touches[count++] = (struct touch){op->dst, op->size, !soft_op_reads(op)};
	if (op->src && op->size)
		touches[count++] = (struct touch){op->src, op->size, false};
	return count;
}

/* The part of a touch that lies in the mapping over `at`, as bytes of its page. */
struct part {
	uint32_t page;
	size_t first, end;
	uint64_t next; /* address behind it */
};

static bool part_at(const struct soft *soft, const struct touch *touch, uint64_t at,
	struct part *ret_part)
{
	const struct glk_mapping *mapping = glk_book_find(&soft->book, at);
	uint64_t end = touch->addr + touch->size;
	int piece;

	if (!mapping) {
		piece = glk_soft_managed_find(soft, at);
		if (piece < 0)
			return false; /* the host's own memory */
		*ret_part = (struct part){.page = SOFT_MANAGED_PAGE | (uint32_t)piece,
			.first = at - soft->managed->piece[piece].addr,
			.end = end - soft->managed->piece[piece].addr,
			.next = end};
		return true;
	}
	ret_part->page = mapping->page;
	ret_part->next = mapping->addr + mapping->size;
	ret_part->first = at - mapping->addr;
	ret_part->end = (end < ret_part->next ? end : ret_part->next) - mapping->addr;
	return true;
}

static bool meet(const struct soft *soft, const struct touch *a, const struct touch *b)
{
	struct part x, y;

	if (!a->write && !b->write)
		return false;
	for (uint64_t i = a->addr; i < a->addr + a->size; i = x.next) {
		if (!part_at(soft, a, i, &x))
			return false;
		for (uint64_t j = b->addr; j < b->addr + b->size; j = y.next) {
			if (!part_at(soft, b, j, &y))
				break;
			if (x.page == y.page && x.first < y.end && y.first < x.end)
				return true;
		}
	}
	return false;
}

bool glk_soft_race_collide(
	const struct soft *soft, const struct soft_op *a, const struct soft_op *b)
{
	struct touch of_a[2], of_b[2];
	unsigned na = touches_of(a, of_a), nb = touches_of(b, of_b);

	for (unsigned i = 0; i < na; i++)
		for (unsigned k = 0; k < nb; k++)
			if (meet(soft, &of_a[i], &of_b[k]))
				return true;
	return false;
}

/* Whether queued work names any of the pages that an operation touches. */
static bool is_named(const struct soft *soft, const struct soft_op *op)
{
	struct touch touches[2];
	unsigned count = touches_of(op, touches);
	struct part part;

	for (unsigned i = 0; i < count; i++) {
		const struct touch *touch = &touches[i];
		uint64_t at = touch->addr;

		for (; at < touch->addr + touch->size; at = part.next) {
			if (!part_at(soft, touch, at, &part))
				break;
			if (part.page & SOFT_MANAGED_PAGE
					? soft->managed
						  ->piece[part.page & ~SOFT_MANAGED_PAGE]
						  .queued
					: soft_page_at(soft, part.page)->queued)
				return true;
		}
	}
	return false;
}

/* Follows the waits in the queues back to their records. */
void glk_soft_race_reach(
	struct soft *soft, uint32_t stream, uint32_t behind, uint64_t behind_serial)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used);
	bool moved = true;

	memset(soft->reach, 0, (used + 1) * sizeof(*soft->reach));
	soft->reach[stream] = UINT64_MAX;
	if (!glk_soft_queue_is_done(soft, behind, behind_serial) &&
		soft_op_at(soft, behind)->stream != stream)
		soft->reach[soft_op_at(soft, behind)->stream] = behind_serial;
	while (moved) {
		moved = false;
		for (uint32_t id = 1; id <= used; id++) {
			uint32_t slot =
				soft->reach[id] ? soft_stream_at(soft, id)->head : 0;

			for (; slot; slot = soft_op_at(soft, slot)->next) {
				const struct soft_op *op = soft_op_at(soft, slot);
				uint64_t *reach;

				if (op->serial > soft->reach[id])
					break;
				if (op->kind != SOFT_WAIT ||
					glk_soft_queue_is_done(
						soft, op->target, op->target_serial))
					continue;
				reach = &soft->reach[soft_op_at(soft, op->target)
							     ->stream];
				if (*reach < op->target_serial) {
					*reach = op->target_serial;
					moved = true;
				}
			}
		}
	}
}

static int report(const struct soft *soft, uint32_t stream, const struct soft_op *op,
	const struct soft_op *other)
{
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"stream order rule: a %s of %zu bytes at %#lx on stream %u touches what a queued "
		"%s of %zu bytes at %#lx (operation %lu on stream %u) does, and no event orders "
		"them",
		glk_soft_kind_name(op->kind), op->size,
		(unsigned long)(op->dst ? op->dst : op->src), stream,
		glk_soft_kind_name(other->kind), other->size,
		(unsigned long)(other->dst ? other->dst : other->src),
		(unsigned long)other->serial, other->stream);
}

int glk_soft_race_judge(struct soft *soft, uint32_t stream, const struct soft_op *op)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used);

	if (!soft->pending || !is_named(soft, op))
		return 0;
	for (uint32_t id = 1; id <= used; id++) {
		uint32_t slot = id == stream ? 0 : soft_stream_at(soft, id)->head;

		for (; slot; slot = soft_op_at(soft, slot)->next) {
			const struct soft_op *other = soft_op_at(soft, slot);

			if (other->serial > soft->reach[id] &&
				glk_soft_race_collide(soft, op, other))
				return report(soft, stream, op, other);
		}
	}
	return 0;
}

/* 0, or -EINVAL and a record when the operation would race with queued work of another stream. */
static int refuse(struct soft *soft, uint32_t stream, const struct soft_op *op)
{
	if (!soft->pending || !is_named(soft, op))
		return 0;
	glk_soft_race_reach(soft, stream, 0, 0);
	return glk_soft_race_judge(soft, stream, op);
}

int glk_soft_race_add(
	struct soft *soft, uint32_t stream, const struct soft_op *op, uint32_t *ret_op)
{
	int err;

	err = refuse(soft, stream, op);
	if (!err)
		err = glk_soft_queue_room(soft, 1);
	if (!err)
		*ret_op = glk_soft_queue_put(soft, stream, op);
	return err;
}
