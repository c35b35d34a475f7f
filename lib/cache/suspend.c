/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A GPU whose memory is given back to the driver for a while, with all addresses kept: requests are
 * refused, bins are closed and emptied, each block goes away, and the pages go. What fails half way
 * is gone on with by a second call, or undone by a resume.
 */
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/thread.h"
#include "cache/asked.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"
#include "cache/exchange.h"
#include "cache/graph/graph.h"
#include "cache/managed/managed.h"
#include "cache/sending.h"
#include "cache/tag/tag.h"

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
	glk_lend_shut(cache->node, true);
	glk_quick_divert(cache, GLK_DIVERT_SUSPEND, true);
	glk_plan_close(cache);
	glk_plan_open(cache);
}

static void admit(struct glk_cache *cache)
{
	glk_lend_shut(cache->node, false);
	glk_store_relaxed(&cache->suspended, false);
	glk_quick_divert(cache, GLK_DIVERT_SUSPEND, false);
}

struct sending {
	struct glk_sending all;
	bool whole; /* contiguous ones, and with a tag: the others lie on the host in place */
};

/* What was to go to the host in place has gone, or stays. Blocks with a tag go away. */
static bool lies_there(const struct sending *s, const struct glk_arena *arena,
	const struct glk_extent *e)
{
	return s->whole && !glk_load_relaxed(&e->whole) && !arena->ops->leaves;
}

static int count(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	struct sending *s = arg;

	if (!lies_there(s, arena, e) && !glk_sending_may(arena, e))
		s->all.left += glk_part_here(arena, e);
	return 0;
}

/* What may not go stays where it is. */
static int send(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	struct sending *s = arg;

	return lies_there(s, arena, e)
		? 0
		: glk_sending_send(&s->all, arena, e,
			  glk_advice_is(arena, e, GLAKE_ADVICE_DISCARDABLE));
}

int glk_away_release(struct glk_arena *arena)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_stream *out = glk_stream_enter(&cache->streams, cache->mover.out);
	int err = 0;

	for (unsigned n = out->count; n && out->count && !err; n--) {
		err = glk_event_await(&cache->streams, out->ring[out->head].event, false);
		if (!err)
			err = glk_trim_ready(arena);
	}
	return err;
}

static int have(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	return glk_sending_have(arena, e, GLK_KEPT_SUSPENDED, arg);
}

static int is_open(const struct glk_cache *cache)
{
	return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
		"GPU %d cannot be suspended while a pool of graphs is open",
		cache->device);
}

/* A driver that will not have memory of the host at addresses of the GPU; without it blocks go away. */
static bool refuses(const struct glk_cache *cache, int err)
{
	if (err != -EINVAL && err != -EPERM && err != -EACCES && err != -EOPNOTSUPP)
		return false;
	glk_warn(
		"GPU %d: nothing can lie in memory of the host in place, so that blocks go "
		"away: %s",
		cache->device, glk_thread_current->error.text);
	return true;
}

/* To the host in place, if that can be: *ret_away says it can not. */
static int lower(struct glk_cache *cache, struct glake_suspended *did, bool *ret_away)
{
	uint64_t bytes = cache->lowered, blocks = cache->lowered_blocks;
	int err;

	glk_plan_close(cache);
	if (cache->rights_left)
		glk_peer_settle(cache);
	err = glk_lower_all(cache);
	*ret_away = cache->lowered == bytes && refuses(cache, err);
	if (*ret_away)
		err = 0;
	else
		glk_lower_left(cache, &did->stayed, &did->stayed_blocks);
	glk_plan_open(cache);
	did->moved += cache->lowered - bytes;
	did->moved_blocks += cache->lowered_blocks - blocks;
	return err;
}

static int send_all(struct glk_cache *cache, bool in_place, struct glake_suspended *did)
{
	struct sending sending = {.all = {.did = did, .why = GLK_KEPT_SUSPENDED}};
	/* nothing plain stays on the host */
	bool away = !in_place || glk_load_relaxed(&cache->encrypts);
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
	if (!away)
		err = lower(cache, did, &away);
	sending.whole = !away;
	glk_away_everywhere(cache, count, &sending);
	glk_sending_begin(&sending.all, sending.all.left);
	if (!err)
		err = glk_away_everywhere(cache, send, &sending);
	if (!err)
		err = glk_small_send(cache, NULL, false, did);
	/* what threads that were about to free a block have put into bins since */
	glk_quick_flush(cache);
	failed = glk_away_release(&cache->arena);
	err = err ? err : failed;
	failed = glk_managed_send(cache, &did->managed);
	err = err ? err : failed;
	failed = glk_clock_sync(&cache->streams, ~UINT64_C(0));
	return err ? err : failed;
}

/* From the host in place. */
static int bring(struct glk_cache *cache, struct glake_suspended *did)
{
	uint64_t bytes = cache->returned, blocks = cache->returned_blocks;
	struct glake_error why;
	int err;

	/* it may have been used where it is */
	err = glk_clock_sync_all(&cache->streams);
	if (err)
		return err;
	glk_plan_close(cache);
	if (cache->rights_left)
		glk_peer_settle(cache);
	err = glk_raise_all(cache);
	glk_plan_open(cache);
	did->moved += cache->returned - bytes;
	did->moved_blocks += cache->returned_blocks - blocks;
	if (err != -ENOMEM)
		return err;
	/* what is in place could stay there */
	why = glk_thread_current->error;
	return glk_error(err, (enum glake_error_class)why.error_class,
		"glake_resume_lazy would leave blocks on the host: %s", why.text);
}

/* Whether plain blocks lie on the host in place. */
static bool is_hosted(const struct glk_cache *cache)
{
	for (const struct glk_arena *a = &cache->arena; a; a = a->next)
		if (a->binned && a->map.hosted)
			return true;
	return false;
}

static int have_pass(struct glk_cache *cache, void *did)
{
	int err = glk_away_everywhere(cache, have, did);

	return err ? err : glk_small_have(cache, NULL, did);
}

int glk_cache_suspend(struct glk_cache *cache, bool in_place, struct glake_suspended *ret)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	uint64_t before, after, trimmed;
	int err, failed;

	err = glk_away_start(cache);
	if (err)
		return err;
	glk_turn_begin(cache);
	before = glk_load_relaxed(&cache->node->held);
	err = send_all(cache, in_place, &did);
	failed = 0;
	if (glk_load_relaxed(&cache->suspended)) {
		glk_unlock(&cache->lock);
		failed = glk_cache_trim(cache, 0, true, &trimmed);
		glk_lock(&cache->lock);
	}
	after = glk_load_relaxed(&cache->node->held);
	/* what others have, in blocks that are none of this GPU, and what graphs may replay over */
	if (glk_load_relaxed(&cache->suspended))
		did.stayed += glk_lend_lent(cache->node) + glk_graph_held(cache);
	glk_turn_end(cache);
	did.released = before > after ? before - after : 0;
	GLK_PROBE3(suspend, cache->device, did.moved, did.released);
	*ret = did;
	return err ? err : failed;
}

int glk_cache_resume(struct glk_cache *cache, bool lazy, struct glake_suspended *ret)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	int err;

	glk_turn_begin(cache);
	err = glk_load_relaxed(&cache->suspended)
		? 0
		: glk_error(-EINVAL, GLAKE_ERROR_INVAL, "GPU %d is not suspended",
			  cache->device);
	/* first what cannot lie elsewhere: what is on the host in place may stay there for good */
	if (!err)
		err = glk_sending_all(
			cache, &cache->suspended_blocks, false, have_pass, &did);
	if (!err && !lazy && (cache->in_place || is_hosted(cache)))
		err = bring(cache, &did);
	if (!err) {
		admit(cache);
		cache->in_place = false;
	}
	did.stayed = cache->placed;
	did.stayed_blocks = cache->placed_blocks;
	glk_turn_end(cache);
	GLK_PROBE3(resume, cache->device, did.moved, err);
	*ret = did;
	return err;
}

/*
 * A GPU that lends memory for contents that are away wants it back, since it is about to be suspended: what
 * the others have there goes to the host, block by block, over their own streams and under their own locks.
 * None of it waits for the lender, whose lock nobody here has.
 */

/* What the host has no room for stays, as what is not what it was does, and another one may go. */
static int move(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	int *short_of = arg, err;

	if (!glk_extent_lacks(e))
		return 0;
	err = glk_part_home(arena, e);
	if (err != -ENOMEM && err != -EIO)
		return err;
	*short_of = err;
	return 0;
}

static int move_pass(struct glk_cache *cache, void *arg)
{
	int short_of = 0, err = glk_away_everywhere(cache, move, &short_of);

	(void)arg;
	if (!err)
		err = glk_small_home(cache);
	return err ? err : short_of;
}

int glk_cache_vacate(struct glk_cache *cache)
{
	int err;

	/* pairs with: the release in glk_away_start */
	if (!glk_load_acquire(&cache->moves))
		return 0;
	glk_turn_begin(cache);
	/* one that is in the hands of another call is looked for again */
	err = glk_sending_all(
		cache, &cache->mover.store.lent_used, true, move_pass, NULL);
	glk_mover_give(&cache->mover);
	glk_turn_end(cache);
	return err;
}

void glk_cache_lend(struct glk_cache *cache, bool on)
{
	glk_lock(&cache->lock);
	glk_lend_shut(cache->node, !on || glk_load_relaxed(&cache->suspended));
	glk_unlock(&cache->lock);
}
