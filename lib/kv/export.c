/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of sequences that other processes have. A sequence counts how often it is out: it may grow and be forked then,
 * and nothing of it goes, so that an importer never reads what has come to be another's.
 */
#include "kv/kv.h"

#include "base/error.h"
#include "share/share.h"

#include <errno.h>
#include <inttypes.h>

int glk_kv_out(const struct glake_kv *kv, uint32_t slot)
{
	if (!kv->sequence[slot].outs)
		return 0;
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"the sequence in slot %" PRIu32
		" is out: others have its memory until glake_kv_export_end",
		slot);
}

/* Where so many tokens of a sequence lie, all of which it has memory for. */
static int range_of(const struct glake_kv *kv, uint32_t slot, uint32_t group,
	uint32_t first, uint32_t tokens, struct glk_portion *ret_portion)
{
	const struct glk_kv_group *g = &kv->shape.group[group];
	struct glk_kv_run run = *glk_kv_run_at(kv, slot, group);
	uint32_t most = g->rule == GLAKE_KV_STATE ? 1 : kv->shape.tokens;
	uint64_t begin = first * g->row, end = begin + tokens * g->row;

	/* which with more tokens than there are may be anything */
	if (!tokens || first >= most || tokens > most - first ||
		end > run.end * kv->shape.page || begin < run.first * kv->shape.page)
		return glk_error(-ERANGE, GLAKE_ERROR_INVAL,
			"the sequence in slot %" PRIu32 " has no memory for %" PRIu32
			" tokens from %" PRIu32 " on",
			slot, tokens, first);
	ret_portion->offset = g->offset + slot * g->slot + begin;
	ret_portion->bytes = end - begin;
	return 0;
}

static int pin(struct glake_kv *kv, uint32_t group, const struct glk_portion *portion,
	struct glk_pin *ret_pin)
{
	int err;

	/* one that is a block is pinned as such */
	if (!kv->shape.single)
		return glk_cache_pin_portion(kv->cache, kv->base, portion, NULL, ret_pin);
	err = glk_cache_pin(
		kv->cache, kv->base + kv->shape.group[group].offset, false, ret_pin);
	ret_pin->base = kv->base + portion->offset;
	ret_pin->size = portion->bytes;
	return err;
}

static void unpin(struct glake_kv *kv, uint32_t group)
{
	if (kv->shape.single)
		glk_cache_unpin(kv->cache, kv->base + kv->shape.group[group].offset);
	else
		glk_cache_unpin_portion(kv->cache, kv->base);
}

static int give(struct glake_kv *kv, struct glk_pin *p, bool reads,
	struct glake_piece *ret_pieces, size_t max)
{
	int err;

	if (p->count > max)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the range has %" PRIu32 " pieces, and the list room for %zu",
			p->count, max);
	err = glk_share_export(kv->cache->drv, glk_pin_page, p, p->count, ret_pieces);
	if (err)
		return err;
	glk_pin_mark(p);
	for (uint32_t i = 0; i < p->count; i++)
		ret_pieces[i].flags = reads ? GLAKE_PIECE_READ : 0;
	return 0;
}

int glk_kv_export(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t first,
	uint32_t tokens, bool reads, struct glake_piece *ret_pieces, size_t max,
	size_t *ret_count)
{
	uint32_t group = kv->shape.lane_group[lane];
	struct glk_portion portion;
	struct glk_pin p;
	int err;

	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, slot < kv->shape.slots ? slot : GLK_KV_ALL);
	err = glk_kv_check(kv, slot, 0);
	if (!err)
		err = glk_kv_away(kv, slot);
	if (!err)
		err = range_of(kv, slot, group, first, tokens, &portion);
	if (!err) {
		glk_unlock(&kv->lock);
		err = pin(kv, group, &portion, &p);
		if (!err) {
			/* what others share nobody writes */
			reads |= first * kv->shape.group[group].row / kv->shape.page <
				glk_kv_run_at(kv, slot, group)->sealed;
			err = give(kv, &p, reads, ret_pieces, max);
			if (err)
				unpin(kv, group);
		}
		glk_lock(&kv->lock);
	}
	if (!err) {
		glk_kv_run_at(kv, slot, group)->outs++;
		kv->sequence[slot].outs++;
		kv->outs++;
		*ret_count = p.count;
	}
	glk_kv_change_end(kv);
	glk_unlock(&kv->lock);
	return err;
}

int glk_kv_export_end(struct glake_kv *kv, uint32_t slot, uint32_t lane)
{
	uint32_t group = kv->shape.lane_group[lane];
	struct glk_kv_run *run;
	int err;

	glk_lock(&kv->lock);
	err = glk_kv_check(kv, slot, 0);
	run = err ? NULL : glk_kv_run_at(kv, slot, group);
	if (!err && !run->outs)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"lane %" PRIu32 " of the sequence in slot %" PRIu32 " is not out",
			lane, slot);
	if (!err) {
		run->outs--;
		kv->sequence[slot].outs--;
		kv->outs--;
	}
	glk_unlock(&kv->lock);
	if (!err)
		unpin(kv, group);
	return err;
}
