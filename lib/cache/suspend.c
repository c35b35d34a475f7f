/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A GPU whose memory is given back to the driver for a while, with all addresses kept: requests are
 * refused, bins are closed and emptied, each block goes away, and the pages go. What fails half way
 * is gone on with by a second call, or undone by a resume.
 */
#include "base/error.h"
#include "cache/ahead.h"
#include "cache/away.h"
#include "cache/bin/quick.h"
#include "cache/graph/graph.h"
#include "cache/plan.h"

#include <errno.h>
#include <inttypes.h>

static bool has_open_pool(const struct glk_cache *cache)
{
	const struct glk_graphs *graphs = glk_graphs(cache);

	return graphs && graphs->open;
}

/* From here on no request is served, and none is under way. */
static void shut(struct glk_cache *cache)
{
	glk_store_relaxed(&cache->suspended, true);
	glk_quick_divert(cache, true);
	glk_plan_close(cache);
	glk_plan_open(cache);
	glk_ahead_rest(cache);
}

static void admit(struct glk_cache *cache)
{
	glk_store_relaxed(&cache->suspended, false);
	glk_quick_divert(cache, has_open_pool(cache));
}

/* What may not go stays where it is. */
static int send(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	struct glake_suspended *did = arg;
	int err = glk_away_send(arena, e, 0);

	if (!err) {
		glk_away_suspend(arena->gpu, e);
		did->moved += glk_extent_asked(e);
		did->moved_blocks++;
	}
	if (err == -EBUSY) {
		did->stayed += glk_extent_asked(e);
		did->stayed_blocks++;
	}
	return err == -EBUSY || err == -EALREADY ? 0 : err;
}

static int have(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	struct glake_suspended *did = arg;
	int err;

	if (!glk_away_suspended(arena->gpu, e))
		return 0;
	err = glk_away_have(arena, e, 0);
	if (!err) {
		did->moved += glk_extent_asked(e);
		did->moved_blocks++;
	}
	return err;
}

/* Waits for the copies of one way. */
static int settle(struct glk_cache *cache, uint32_t stream)
{
	struct glk_stream *s = glk_stream_enter(&cache->streams, stream);

	return glk_clock_sync(&cache->streams, glk_stream_mask(s));
}

static int send_all(struct glk_cache *cache, struct glake_suspended *did)
{
	int err;

	if (has_open_pool(cache))
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"GPU %d cannot be suspended while a pool of graphs is open",
			cache->device);
	shut(cache);
	glk_quick_flush(cache);
	err = glk_away_each(&cache->arena, send, did);
	/* who was about to free a block into a bin has done so by now */
	glk_quick_flush(cache);
	return err ? err : settle(cache, cache->mover.out);
}

int glk_cache_suspend(struct glk_cache *cache, struct glake_suspended *ret)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	uint64_t released = 0;
	int err, failed;

	err = glk_away_start(cache);
	if (err)
		return err;
	glk_lock(&cache->lock);
	err = send_all(cache, &did);
	glk_unlock(&cache->lock);
	failed = err ? 0 : glk_cache_trim(cache, 0, &released);
	did.released = released;
	*ret = did;
	return err ? err : failed;
}

int glk_cache_resume(struct glk_cache *cache, struct glake_suspended *ret)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	int err;

	if (!glk_load_relaxed(&cache->suspended))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "GPU %d is not suspended",
			cache->device);
	glk_lock(&cache->lock);
	glk_plan_enter(cache);
	err = glk_away_each(&cache->arena, have, &did);
	glk_plan_leave(cache);
	if (!err)
		err = settle(cache, cache->mover.back);
	if (!err)
		admit(cache);
	glk_unlock(&cache->lock);
	*ret = did;
	return err;
}
