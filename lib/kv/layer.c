/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lanes of a sequence by themselves: memory for one layer of a prompt while the others have none, and layers that go to
 * the host and come back. A sequence of which lanes are away is away as a whole to all other calls; each run says
 * whether it is.
 */
#include "kv/kv.h"

#include "base/error.h"

#include <inttypes.h>

/* Under the lock, by who changes what is committed: whether these lanes may be had by themselves. */
static int check(const struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	uint32_t tokens)
{
	int err = glk_kv_check(kv, slot, tokens);

	if (!err && (!lanes || lane >= kv->shape.lanes || lanes > kv->shape.lanes - lane))
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%" PRIu32 " lanes from lane %" PRIu32
			" on: the KV cache has %" PRIu32,
			lanes, lane, kv->shape.lanes);
	if (!err && (kv->shape.single || kv->shape.groups < kv->shape.lanes))
		err = glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"lanes that lie beside each other, or are blocks of one handle, have no "
			"memory by themselves");
	return err ? err : glk_kv_out(kv, slot);
}

static struct glk_kv_run *run_of(const struct glake_kv *kv, uint32_t slot, uint32_t lane)
{
	return glk_kv_run_at(kv, slot, kv->shape.lane_group[lane]);
}

static bool is_any_away(const struct glake_kv *kv, uint32_t slot)
{
	for (uint32_t i = 0; i < kv->shape.lanes; i++)
		if (run_of(kv, slot, i)->away)
			return true;
	return false;
}

static int is_away(uint32_t lane)
{
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"lane %" PRIu32
		" of the sequence is on the host: glake_kv_layer_wait first",
		lane);
}

/* Where all of it was sent at once, all of it comes back so. */
static int is_away_whole(const struct glake_kv *kv, uint32_t slot)
{
	return kv->sequence[slot].away && !is_any_away(kv, slot) ? glk_kv_away(kv, slot)
								 : 0;
}

static int grow(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	uint32_t tokens, struct CUstream_st *stream)
{
	bool large = glk_kv_is_large(kv, lane, lanes);
	size_t count = 0;
	int err = is_away_whole(kv, slot);

	for (uint32_t i = lane; i < lane + lanes && !err; i++) {
		if (run_of(kv, slot, i)->away)
			err = is_away(i);
		else
			count = glk_kv_add_missing_of(
				kv, slot, kv->shape.lane_group[i], tokens, count);
	}
	if (!err && count)
		err = glk_kv_commit(kv, count, stream,
			GLK_COMMIT_INSISTS | (large ? GLK_COMMIT_LARGE : 0));
	for (uint32_t i = lane; i < lane + lanes && !err; i++)
		glk_kv_note_missing_of(kv, slot, kv->shape.lane_group[i], tokens, large);
	if (!err)
		glk_kv_settle(kv, slot);
	return err;
}

static int try_grow(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	uint32_t tokens, struct CUstream_st *stream, uint64_t *ret_wants)
{
	int err = glk_kv_name(kv, stream);

	if (err)
		return err;
	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, slot < kv->shape.slots ? slot : GLK_KV_ALL);
	err = check(kv, slot, lane, lanes, tokens);
	if (!err)
		err = grow(kv, slot, lane, lanes, tokens, stream);
	glk_kv_change_end(kv);
	*ret_wants = glk_kv_refused(kv, err);
	glk_unlock(&kv->lock);
	return err;
}

int glk_kv_layer_grow(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	uint32_t tokens, struct CUstream_st *stream)
{
	uint64_t wants = 0;
	int err = try_grow(kv, slot, lane, lanes, tokens, stream, &wants);

	if (glk_kv_asks(kv, err, wants, stream))
		err = try_grow(kv, slot, lane, lanes, tokens, stream, &wants);
	return err;
}

/* Lanes that are there already are. */
static int move(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	struct CUstream_st *stream, bool to_gpu)
{
	bool large = to_gpu && glk_kv_is_large(kv, lane, lanes);
	size_t count = 0;
	int err = is_away_whole(kv, slot);

	for (uint32_t i = lane; i < lane + lanes && !err; i++) {
		struct glk_kv_run *run = run_of(kv, slot, i);

		if (run->away != to_gpu || run->first == run->end)
			continue;
		kv->portion[count++] =
			glk_kv_portion(kv, slot, kv->shape.lane_group[i], *run);
		run->away = true;
		if (large)
			glk_kv_note_large(kv, run, run->end - run->first);
	}
	if (err || !count)
		return err;
	kv->sequence[slot].away = true;
	glk_kv_settle(kv, slot);
	err = to_gpu ? glk_kv_have(kv, count, stream, large)
		     : glk_kv_send(kv, count, false, stream);
	for (uint32_t i = lane; i < lane + lanes && !err && to_gpu; i++)
		run_of(kv, slot, i)->away = false;
	kv->sequence[slot].away = is_any_away(kv, slot);
	glk_kv_settle(kv, slot);
	return err;
}

int glk_kv_layer_move(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	struct CUstream_st *stream, bool to_gpu)
{
	int err = glk_kv_name(kv, stream);

	if (err)
		return err;
	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, slot < kv->shape.slots ? slot : GLK_KV_ALL);
	err = check(kv, slot, lane, lanes, 0);
	if (!err)
		err = move(kv, slot, lane, lanes, stream, to_gpu);
	glk_kv_change_end(kv);
	glk_unlock(&kv->lock);
	return err;
}
