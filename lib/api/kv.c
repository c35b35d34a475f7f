/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of KV caches: see glake/kv.h. */
#include "kv/kv.h"
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"

#include <errno.h>
#include <inttypes.h>

static int options_of(
	const struct glake_kv_options *given, struct glake_kv_options *ret_options)
{
	*ret_options = (struct glake_kv_options){.sz = sizeof(*ret_options)};
	if (!given)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "a KV cache without its shape");
	return glk_sized_in(given, ret_options, sizeof(*ret_options));
}

/* What is asked of the cache alone: in a forked child its lock may be somebody's. */
static int look(const struct glake_kv *kv)
{
	struct glk_context *context;
	int err;

	if (!kv)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no KV cache");
	err = glk_context_get(kv->ctx, &context);
	return err == -ENODEV ? err : 0;
}

/* A cache whose context is open; leave() is called in any case. */
static int enter(const struct glake_kv *kv, int *ret_cancel)
{
	struct glk_context *context;

	*ret_cancel = glk_cancel_off();
	if (!kv)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no KV cache");
	return glk_context_get(kv->ctx, &context);
}

/* What was served stands in a trace. */
static void record(const struct glake_kv *kv, unsigned kind, uint64_t slot,
	uint64_t tokens, const struct CUstream_st *stream)
{
	struct glk_context *context = glk_context_recorded(kv->ctx);

	if (context)
		glk_context_record(context, kind, kv->cache->device, kv->base,
			slot << 32 | tokens, stream);
}

static int leave(int cancel, int err)
{
	glk_cancel_restore(cancel);
	return err;
}

int glake_kv_bytes(
	const struct glake_kv_options *options, uint32_t tokens, uint64_t *ret_bytes)
{
	struct glake_kv_options o;
	struct glk_kv_shape shape;
	uint64_t bytes = 0;
	int err = options_of(options, &o);

	if (!err && (!ret_bytes || tokens > o.tokens))
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			ret_bytes ? "a sequence of %" PRIu32
				    " tokens in a KV cache of %" PRIu32
				  : "no place for the bytes",
			tokens, o.tokens);
	if (!err)
		err = glk_kv_shape_init(&shape, &o, (size_t)2 << 20);
	if (err)
		return err == -ENOMEM ? glk_error(-EINVAL, GLAKE_ERROR_INVAL,
						"there are not so many addresses")
				      : err;
	for (uint32_t i = 0; i < shape.groups; i++) {
		struct glk_kv_run run = glk_kv_pages(&shape, i, tokens);

		bytes += (run.end - run.first) * shape.page;
	}
	glk_kv_shape_fini(&shape);
	*ret_bytes = bytes;
	return 0;
}

int glake_kv_open(struct glake *ctx, int device, const struct glake_kv_options *options,
	struct CUstream_st *stream, struct glake_kv **ret_kv)
{
	struct glk_context *context;
	struct glake_kv_options o;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (!err)
		err = options_of(options, &o);
	if (!err && !ret_kv)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the KV cache");
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_kv_open(cache, &o, stream, ret_kv);
	glk_cancel_restore(cancel);
	if (err)
		return err;
	(*ret_kv)->ctx = ctx;
	record(*ret_kv, GLAKE_TRACE_KV_OPEN, 0, (*ret_kv)->shape.size, stream);
	return 0;
}

int glake_kv_close(struct glake_kv *kv, struct CUstream_st *stream)
{
	struct glk_context *context, *recorded = NULL;
	int err, cancel, device = 0;
	uint64_t base;
	bool open;

	if (!kv)
		return 0;
	err = glk_context_get(kv->ctx, &context);
	/* a child: it is the parent's */
	if (err == -ENODEV)
		return 0;
	/* one that is closed has taken the block with it */
	open = !err;
	cancel = glk_cancel_off();
	base = kv->base;
	if (open) {
		recorded = glk_context_recorded(kv->ctx);
		device = kv->cache->device;
	}
	err = glk_kv_close(kv, stream, open);
	glk_cancel_restore(cancel);
	if (!err && recorded)
		glk_context_record(
			recorded, GLAKE_TRACE_KV_CLOSE, device, base, 0, stream);
	return err;
}

int glake_kv_place_get(
	const struct glake_kv *kv, uint32_t lane, struct glake_kv_place *ret_place)
{
	struct glake_kv_place place = {.sz = sizeof(place)};
	const struct glk_kv_group *g;

	if (!kv || lane >= kv->shape.lanes || !ret_place)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"there is no lane %" PRIu32 ", or no place for where it lies",
			lane);
	g = &kv->shape.group[kv->shape.lane_group[lane]];
	place.base =
		(void *)(uintptr_t)(kv->base + g->offset + kv->shape.lane_offset[lane]);
	place.slot = g->slot;
	place.token = g->rule == GLAKE_KV_STATE ? 0 : g->row;
	place.bytes = kv->shape.lane_bytes[lane];
	return glk_sized_out(ret_place, &place, sizeof(place));
}

int glake_kv_figures_get(struct glake_kv *kv, struct glake_kv_figures *ret_figures)
{
	struct glake_kv_figures figures;
	int err = look(kv);

	if (!err && !ret_figures)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the figures");
	if (err)
		return err;
	glk_kv_figures(kv, &figures);
	return glk_sized_out(ret_figures, &figures, sizeof(figures));
}

int glake_kv_sequence_get(
	struct glake_kv *kv, uint32_t slot, struct glake_kv_sequence *ret_sequence)
{
	struct glake_kv_sequence sequence;
	int err = look(kv);

	if (!err && !ret_sequence)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the sequence");
	if (err)
		return err;
	err = glk_kv_sequence_get(kv, slot, &sequence);
	return err ? err : glk_sized_out(ret_sequence, &sequence, sizeof(sequence));
}

int glake_kv_limit_set(struct glake_kv *kv, uint64_t bytes)
{
	int err = look(kv);

	if (err)
		return err;
	glk_lock(&kv->lock);
	kv->limit = bytes;
	glk_unlock(&kv->lock);
	return 0;
}

int glake_kv_new(struct glake_kv *kv, uint32_t tokens, struct CUstream_st *stream,
	uint32_t *ret_slot)
{
	return glake_kv_new_in(kv, tokens, 0, stream, ret_slot);
}

int glake_kv_new_in(struct glake_kv *kv, uint32_t tokens, uint64_t domain,
	struct CUstream_st *stream, uint32_t *ret_slot)
{
	int cancel, err = enter(kv, &cancel);

	if (!err && !ret_slot)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the slot");
	if (!err)
		err = glk_kv_new(kv, tokens, domain, stream, ret_slot);
	if (!err)
		record(kv, GLAKE_TRACE_KV_NEW, *ret_slot, tokens, stream);
	return leave(cancel, err);
}

int glake_kv_grow(
	struct glake_kv *kv, uint32_t slot, uint32_t tokens, struct CUstream_st *stream)
{
	int cancel, err = enter(kv, &cancel);

	if (!err)
		err = glk_kv_grow(kv, slot, tokens, stream);
	if (!err)
		record(kv, GLAKE_TRACE_KV_GROW, slot, tokens, stream);
	return leave(cancel, err);
}

static void record_step(const struct glake_kv *kv, const uint32_t *lengths,
	const struct CUstream_st *stream)
{
	uint64_t tokens = 0, sequences = 0;

	if (!glk_context_recorded(kv->ctx))
		return;
	for (uint32_t i = 0; i < kv->shape.slots; i++) {
		tokens += lengths[i];
		sequences += lengths[i] > 0;
	}
	record(kv, GLAKE_TRACE_KV_STEP, sequences < 0xffff ? sequences : 0xffff,
		tokens < UINT32_MAX ? tokens : UINT32_MAX, stream);
}

int glake_kv_step(
	struct glake_kv *kv, const uint32_t *lengths, struct CUstream_st *stream)
{
	int cancel, err = enter(kv, &cancel);

	if (!err && !lengths)
		err = glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "no lengths of the sequences");
	if (!err)
		err = glk_kv_step(kv, lengths, stream);
	if (!err)
		record_step(kv, lengths, stream);
	return leave(cancel, err);
}

static int shorten(struct glake_kv *kv, uint32_t slot, uint32_t tokens,
	struct CUstream_st *stream, bool ends)
{
	int cancel, err = enter(kv, &cancel);

	if (!err)
		err = glk_kv_trim(kv, slot, tokens, stream, ends);
	if (!err)
		record(kv, ends ? GLAKE_TRACE_KV_FREE : GLAKE_TRACE_KV_TRIM, slot, tokens,
			stream);
	return leave(cancel, err);
}

int glake_kv_trim(
	struct glake_kv *kv, uint32_t slot, uint32_t tokens, struct CUstream_st *stream)
{
	return shorten(kv, slot, tokens, stream, false);
}

int glake_kv_free(struct glake_kv *kv, uint32_t slot, struct CUstream_st *stream)
{
	return shorten(kv, slot, 0, stream, true);
}

int glake_kv_fork(struct glake_kv *kv, uint32_t slot, uint32_t tokens, uint32_t most,
	struct CUstream_st *stream, uint32_t *ret_slot)
{
	int cancel, err = enter(kv, &cancel);

	if (!err && !ret_slot)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the slot");
	if (!err)
		err = glk_kv_fork(kv, slot, tokens, most, stream, ret_slot);
	if (!err)
		record(kv, GLAKE_TRACE_KV_FORK, *ret_slot, tokens, stream);
	return leave(cancel, err);
}

int glake_kv_publish(struct glake_kv *kv, uint32_t slot, uint32_t tokens, const void *key,
	size_t size, struct CUstream_st *stream)
{
	int cancel, err = enter(kv, &cancel);

	if (!err)
		err = glk_kv_publish(kv, slot, tokens, key, size, stream);
	if (!err)
		record(kv, GLAKE_TRACE_KV_PUBLISH, 0, tokens, stream);
	return leave(cancel, err);
}

int glake_kv_adopt(struct glake_kv *kv, uint32_t slot, const void *key, size_t size,
	struct CUstream_st *stream, uint32_t *ret_tokens)
{
	int cancel, err = enter(kv, &cancel);

	if (!err && !ret_tokens)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the tokens");
	if (!err)
		err = glk_kv_adopt(kv, slot, key, size, stream, ret_tokens);
	if (!err)
		record(kv, GLAKE_TRACE_KV_ADOPT, slot, *ret_tokens, stream);
	return leave(cancel, err);
}

int glake_kv_withdraw(struct glake_kv *kv, uint64_t domain, const void *key, size_t size,
	struct CUstream_st *stream)
{
	int cancel, err = enter(kv, &cancel);

	if (!err)
		err = glk_kv_withdraw(kv, domain, key, size, stream);
	if (!err)
		record(kv, GLAKE_TRACE_KV_WITHDRAW, 0, 0, stream);
	return leave(cancel, err);
}

static int move(
	struct glake_kv *kv, uint32_t slot, struct CUstream_st *stream, bool to_gpu)
{
	int cancel, err = enter(kv, &cancel);

	if (!err)
		err = glk_kv_move(kv, slot, stream, to_gpu);
	if (!err)
		record(kv, to_gpu ? GLAKE_TRACE_KV_FETCH : GLAKE_TRACE_KV_SPILL, slot, 0,
			stream);
	return leave(cancel, err);
}

static int move_prefix(struct glake_kv *kv, uint64_t domain, const void *key, size_t size,
	struct CUstream_st *stream, bool to_gpu)
{
	int cancel, err = enter(kv, &cancel);

	if (!err)
		err = glk_kv_prefix_move(kv, domain, key, size, stream, to_gpu);
	if (!err)
		record(kv,
			to_gpu ? GLAKE_TRACE_KV_PREFIX_FETCH
			       : GLAKE_TRACE_KV_PREFIX_SPILL,
			0, 0, stream);
	return leave(cancel, err);
}

int glake_kv_prefix_spill(struct glake_kv *kv, uint64_t domain, const void *key,
	size_t size, struct CUstream_st *stream)
{
	return move_prefix(kv, domain, key, size, stream, false);
}

int glake_kv_prefix_fetch(struct glake_kv *kv, uint64_t domain, const void *key,
	size_t size, struct CUstream_st *stream)
{
	return move_prefix(kv, domain, key, size, stream, true);
}

int glake_kv_export(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t first,
	uint32_t tokens, int reads, struct glake_piece *ret_pieces, size_t max,
	size_t *ret_count)
{
	int cancel, err = enter(kv, &cancel);

	if (!err && (lane >= kv->shape.lanes || !ret_pieces || !ret_count))
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"there is no lane %" PRIu32 ", or no place for the pieces", lane);
	if (!err)
		err = glk_kv_export(
			kv, slot, lane, first, tokens, reads, ret_pieces, max, ret_count);
	return leave(cancel, err);
}

int glake_kv_export_end(struct glake_kv *kv, uint32_t slot, uint32_t lane)
{
	struct glk_context *context;
	int err;

	if (!kv)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no KV cache");
	err = glk_context_get(kv->ctx, &context);
	if (err) /* a forked child: the memory is the parent's */
		return err == -ENODEV ? 0 : err;
	return lane < kv->shape.lanes ? glk_kv_export_end(kv, slot, lane)
				      : glk_error(-EINVAL, GLAKE_ERROR_INVAL,
						"there is no lane %" PRIu32, lane);
}

int glake_kv_spill(struct glake_kv *kv, uint32_t slot, struct CUstream_st *stream)
{
	return move(kv, slot, stream, false);
}

int glake_kv_fetch(struct glake_kv *kv, uint32_t slot, struct CUstream_st *stream)
{
	return move(kv, slot, stream, true);
}

int glake_kv_layer_grow(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	uint32_t tokens, struct CUstream_st *stream)
{
	int cancel, err = enter(kv, &cancel);

	if (!err)
		err = glk_kv_layer_grow(kv, slot, lane, lanes, tokens, stream);
	if (!err)
		record(kv, GLAKE_TRACE_KV_LAYER_GROW, slot, tokens, stream);
	return leave(cancel, err);
}

static int move_layer(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	struct CUstream_st *stream, bool to_gpu)
{
	int cancel, err = enter(kv, &cancel);

	if (!err)
		err = glk_kv_layer_move(kv, slot, lane, lanes, stream, to_gpu);
	if (!err)
		record(kv, to_gpu ? GLAKE_TRACE_KV_LAYER_WAIT : GLAKE_TRACE_KV_LAYER_DONE,
			slot, lane, stream);
	return leave(cancel, err);
}

int glake_kv_layer_done(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	struct CUstream_st *stream)
{
	return move_layer(kv, slot, lane, lanes, stream, false);
}

int glake_kv_layer_wait(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	struct CUstream_st *stream)
{
	return move_layer(kv, slot, lane, lanes, stream, true);
}

int glake_kv_gather(struct glake_kv *kv, uint32_t slot, uint32_t lane,
	const uint32_t *indices, uint32_t count, void *to, struct CUstream_st *stream)
{
	int cancel, err = enter(kv, &cancel);

	if (!err && (lane >= kv->shape.lanes || !indices || !to))
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"no such lane, or no indices, or no place for the rows");
	if (!err)
		err = glk_kv_gather(kv, slot, lane, indices, count, to, stream);
	return leave(cancel, err);
}
