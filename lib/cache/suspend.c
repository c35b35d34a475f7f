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

int glk_suspended(const struct glk_cache *cache)
{
	if (!glk_load_relaxed(&cache->suspended))
		return 0;
	return glk_error(
		-EAGAIN, GLAKE_ERROR_AGAIN, "GPU %d is suspended", cache->device);
}

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

/* One suspension or resumption at a time. Others wait for it. */
static void begin(struct glk_cache *cache)
{
	glk_lock(&cache->lock);
	while (cache->turning)
		glk_lock_wait(&cache->lock, &cache->moved);
	cache->turning = true;
}

static void end(struct glk_cache *cache)
{
	cache->turning = false;
	pthread_cond_broadcast(&cache->moved);
	glk_unlock(&cache->lock);
}

/* What may not go stays where it is. */
static int send(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	struct glake_suspended *did = arg;
	int err = glk_away_may(arena, e);

	if (err == -EBUSY) {
		did->stayed += glk_extent_asked(e);
		did->stayed_blocks++;
	}
	if (err)
		return err == -EBUSY || err == -EALREADY ? 0 : err;
	err = glk_away_send(arena, e, 0);
	if (err)
		return err;
	glk_away_suspend(arena->gpu, e);
	did->moved += glk_extent_asked(e);
	did->moved_blocks++;
	return 0;
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

static int is_open(const struct glk_cache *cache)
{
	return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
		"GPU %d cannot be suspended while a pool of graphs is open",
		cache->device);
}

static int send_all(struct glk_cache *cache, struct glake_suspended *did)
{
	int err, failed;

	if (has_open_pool(cache))
		return is_open(cache);
	/* all work that was queued, on streams that nobody told of too */
	err = glk_clock_sync_all(&cache->streams);
	if (!err && has_open_pool(cache))
		err = is_open(cache);
	if (err)
		return err;
	shut(cache);
	glk_quick_flush(cache);
	err = glk_away_each(&cache->arena, send, did);
	/* what threads that were about to free a block have put into bins since */
	glk_quick_flush(cache);
	failed = glk_clock_sync(&cache->streams, ~UINT64_C(0));
	return err ? err : failed;
}

/* Until none is left: one may be in the hands of a free that fails. */
static int have_all(struct glk_cache *cache, struct glake_suspended *did)
{
	int err = 0, failed;

	glk_plan_enter(cache);
	while (!err && cache->suspended_blocks) {
		err = glk_away_each(&cache->arena, have, did);
		glk_lock_pause(&cache->lock);
		glk_lock_resume(&cache->lock);
	}
	glk_plan_leave(cache);
	failed = glk_clock_sync(&cache->streams,
		glk_stream_mask(glk_stream_enter(&cache->streams, cache->mover.back)));
	return err ? err : failed;
}

int glk_cache_suspend(struct glk_cache *cache, struct glake_suspended *ret)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	uint64_t released = 0;
	int err, failed;

	err = glk_away_start(cache);
	if (err)
		return err;
	begin(cache);
	err = send_all(cache, &did);
	failed = 0;
	if (glk_load_relaxed(&cache->suspended)) {
		glk_unlock(&cache->lock);
		failed = glk_cache_trim(cache, 0, &released);
		glk_lock(&cache->lock);
	}
	end(cache);
	did.released = released;
	*ret = did;
	return err ? err : failed;
}

int glk_cache_resume(struct glk_cache *cache, struct glake_suspended *ret)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	int err;

	begin(cache);
	err = glk_load_relaxed(&cache->suspended)
		? have_all(cache, &did)
		: glk_error(-EINVAL, GLAKE_ERROR_INVAL, "GPU %d is not suspended",
			  cache->device);
	if (!err)
		admit(cache);
	end(cache);
	*ret = did;
	return err;
}
