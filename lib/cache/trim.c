/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the program has given back: all that lies idle, of all arenas. */
#include "base/error.h"
#include "base/probe.h"
#include "base/thread.h"
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"
#include "cache/exchange.h"
#include "cache/graph/graph.h"
#include "cache/managed/managed.h"
#include "cache/sampled.h"

/* Of GPUs that had them for a copy, which may be under way: an exchange could not wait for it. */
static void settle_rights(struct glk_cache *cache)
{
	struct glk_streams *streams = &cache->streams;
	const struct glk_mover *mover = &cache->mover;
	uint64_t set = glk_stream_mask(glk_stream_enter(streams, mover->out)) |
		glk_stream_mask(glk_stream_enter(streams, mover->back));

	glk_plan_close(cache);
	if (!glk_clock_sync(streams, set))
		glk_peer_settle(cache);
	glk_plan_open(cache);
}

int glk_cache_trim(
	struct glk_cache *cache, uint64_t keep, bool lent, uint64_t *ret_released)
{
	struct glk_limbo limbo = GLK_LIMBO(&cache->streams);
	uint64_t before, after;
	int err = 0, failed;

	*ret_released = 0;
	if (!glk_load_acquire(&cache->started)) /* pairs with: glk_cache_start */
		return 0;
	glk_graph_refresh(cache);
	if (glk_guard_ops(cache))
		glk_guard_ops(cache)->yield(cache);
	glk_lock(&cache->lock);
	glk_ahead_rest(cache);
	glk_fill_settle(cache);
	before = glk_load_relaxed(&cache->node->held);
	if (cache->rights_left)
		settle_rights(cache);
	glk_plan_enter(cache);
	glk_plan_begin(cache);
	if (glk_graphs(cache) && glk_graphs(cache)->leaving)
		err = glk_graph_reap(cache);
	glk_quick_flush(cache);
	glk_event_poll_whole(&cache->streams, true);
	glk_sampled_settle(cache);
	/* what others have made is theirs, whatever may be held here */
	glk_limbo_reap(&limbo, &cache->arena.map);
	failed = glk_trim_node(cache, cache->node, keep);
	err = err ? err : failed;
	failed = glk_trim_host(cache, lent);
	err = err ? err : failed;
	failed = glk_managed_trim(cache);
	if (glk_load_relaxed(&cache->moves)) {
		if (lent)
			glk_mover_give(&cache->mover);
		else
			glk_mover_trim_all(&cache->mover);
	}
	glk_plan_end(cache);
	glk_plan_leave(cache);
	after = glk_load_relaxed(&cache->node->held);
	/* others may have made more than this gave back */
	*ret_released = before > after ? before - after : 0;
	glk_unlock(&cache->lock);
	if (!lent)
		glk_hostpool_trim(&cache->hostpool);
	GLK_PROBE3(trim, cache->device, keep, *ret_released);
	return err ? err : failed;
}

/*
 * What a process gives for another one, which asks by a broker: first what lies idle; where that is too little, what
 * the program frees when it is asked; and then what it has called cold.
 */

static bool has_given(struct glk_cache *cache, uint64_t keep, uint64_t *ret_lack)
{
	uint64_t held;

	glk_cache_trim(cache, keep, true, &held);
	held = glk_load_relaxed(&cache->node->held);
	*ret_lack = held > keep ? held - keep : 0;
	return !*ret_lack;
}

/* What was freed, and with `bytes` what of cold blocks is sent away, until the GPU has done with it. */
static void settle(struct glk_cache *cache, uint64_t bytes)
{
	struct glake_error why = glk_thread_current->error;

	glk_lock(&cache->lock);
	if (!glk_plan_ask(cache)) {
		if (!bytes || glk_victim_yield(cache, bytes))
			glk_clock_sync(&cache->streams, ~UINT64_C(0));
		glk_plan_leave(cache);
	}
	glk_unlock(&cache->lock);
	glk_error_back(&why);
}

void glk_cache_give(struct glk_cache *cache, uint64_t bytes, int64_t until)
{
	uint64_t held = glk_load_relaxed(&cache->node->held), lack;
	uint64_t keep = held > bytes ? held - bytes : 0;
	const struct glk_thread *thread = glk_thread_self();

	if (has_given(cache, keep, &lack) || glk_clock_ns() >= until || !thread ||
		thread->asked || thread->told)
		return;
	glk_shortage_ask(cache, lack, NULL, until);
	settle(cache, 0);
	if (has_given(cache, keep, &lack) || glk_clock_ns() >= until)
		return;
	settle(cache, lack);
	has_given(cache, keep, &lack);
}
