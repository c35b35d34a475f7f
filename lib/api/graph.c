/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of pools of graphs: see glake/graph.h. */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"

#include <errno.h>

#include <glake/graph.h>

static void record(struct glk_context *context, unsigned kind, int device,
	struct glake_pool_id id, const struct CUstream_st *stream)
{
	glk_context_record(
		context, kind, device, id.low, id.high & GLAKE_TRACE_SIZE_MAX, stream);
}

static int begin(struct glake *ctx, int device, const struct glk_graph_begin *begin)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_graph_begin(cache, begin);
	if (!err)
		record(context, GLAKE_TRACE_POOL_BEGIN, device, begin->id, begin->stream);
	glk_cancel_restore(cancel);
	return err;
}

int glake_pool_begin(struct glake *ctx, int device, struct glake_pool_id id,
	struct CUstream_st *stream)
{
	return begin(ctx, device, &(struct glk_graph_begin){.id = id, .stream = stream});
}

int glake_pool_begin_for(struct glake *ctx, int device, struct glake_pool_id id,
	glake_pool_filter_fn filter, void *arg)
{
	if (!filter)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no filter");
	return begin(ctx, device,
		&(struct glk_graph_begin){.id = id, .filter = filter, .arg = arg});
}

int glake_pool_end(struct glake *ctx, int device, struct glake_pool_id id)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_graph_end(cache, id);
	if (!err)
		record(context, GLAKE_TRACE_POOL_END, device, id, NULL);
	glk_cancel_restore(cancel);
	return err;
}

int glake_pool_release(struct glake *ctx, int device, struct glake_pool_id id)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_graph_release(cache, id);
	if (!err)
		record(context, GLAKE_TRACE_POOL_RELEASE, device, id, NULL);
	glk_cancel_restore(cancel);
	return err;
}

int glake_pool_get(struct glake *ctx, int device, struct glake_pool_id id,
	struct glake_pool *ret_pool)
{
	struct glk_context *context;
	struct glk_cache *cache;
	struct glake_pool pool;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_graph_get(cache, id, &pool);
	glk_cancel_restore(cancel);
	return err ? err : glk_sized_out(ret_pool, &pool, sizeof(pool));
}

int glake_pool_limit_set(
	struct glake *ctx, int device, struct glake_pool_id id, uint64_t bytes)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_graph_limit(cache, id, bytes);
	glk_cancel_restore(cancel);
	return err;
}

int glake_pool_hold(struct glake *ctx, int device, struct glake_pool_id id)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_graph_hold(cache, id);
	glk_cancel_restore(cancel);
	return err;
}

int glake_pool_blocks(struct glake *ctx, int device, struct glake_pool_id id,
	struct glake_pool_block *ret_blocks, size_t room, size_t *ret_count)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if ((room && !ret_blocks) || !ret_count)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "no place for the blocks of a pool");
	cancel = glk_cancel_off();
	err = glk_graph_blocks(cache, id, ret_blocks, room, ret_count);
	glk_cancel_restore(cancel);
	return err;
}

struct recorded {
	struct glk_trace *trace;
	int device;
};

static void record_change(const struct glk_state_change *change, void *arg)
{
	const struct recorded *r = arg;
	unsigned kind = change->size ? GLAKE_TRACE_ALLOC : GLAKE_TRACE_FREE;

	glk_trace_put(r->trace, change->ns,
		glake_trace_what(kind, (unsigned)r->device, change->size), change->addr,
		(uintptr_t)change->stream);
}

int glake_pool_restore(struct glake *ctx, int device, struct glake_pool_id id,
	const struct glake_pool_block *blocks, size_t count)
{
	struct recorded recorded = {.device = device};
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (count && !blocks)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no list of blocks");
	/* pairs with: the release in begin (recording.c) */
	recorded.trace = glk_load_acquire(&context->trace);
	cancel = glk_cancel_off();
	err = glk_graph_restore(cache, id, blocks, count,
		recorded.trace ? record_change : NULL, &recorded);
	glk_cancel_restore(cancel);
	return err;
}
