/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The blocks of a tag leave a GPU and come back: as cache/suspend.c does for all of a GPU, and
 * while that goes on for everybody else. Requests of the tag are refused from the moment on at which the
 * first block goes, until the last is back. What fails half way is gone on with by a second call, or undone
 * by a resumption.
 */
#include "base/error.h"
#include "base/probe.h"
#include "cache/asked.h"
#include "cache/cache.h"
#include "cache/sending.h"
#include "cache/tag/tag.h"

#include <errno.h>

struct sending {
	struct glk_sending all;
	bool drop;
};

/* What may not go stays where it is, and one that is away is so already. What lies on the host, in part too,
 * is counted when all are through. */
static int send(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	struct sending *s = arg;

	if (glk_beside_placed(&arena->map, e))
		return 0;
	return glk_sending_send(&s->all, arena, e,
		s->drop || glk_advice_is(arena, e, GLAKE_ADVICE_DISCARDABLE));
}

/* Blocks that lie on the host in place, in part too. */
static void count_placed(struct glk_arena *arena, struct glake_suspended *did)
{
	const struct glk_map *map = &arena->map;
	uint32_t used;

	if (!map->pool || !map->hosted)
		return;
	used = glk_load_relaxed(&map->extents.used);
	glk_plan_enter(arena->gpu);
	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);

		glk_plan_step(arena->gpu);
		if (glk_extent_state(e) != GLK_EXTENT_LIVE || !glk_beside_placed(map, e))
			continue;
		did->stayed += glk_extent_asked(e);
		did->stayed_blocks++;
	}
	glk_plan_leave(arena->gpu);
}

/* From here on no request is served from it, and none is under way. */
static void shut(struct glk_cache *cache, struct glk_arena *arena)
{
	arena->shut = true;
	glk_plan_close(cache);
	glk_plan_open(cache);
}

static int send_all(struct glk_cache *cache, struct glk_tag *tag, bool drop,
	struct glake_suspended *did)
{
	struct glk_arena *arena = &tag->arena;
	struct sending s = {.all = {.did = did, .why = GLK_KEPT_TAGGED}, .drop = drop};
	uint64_t before = glk_tag_held(tag), after;
	int err, failed;

	shut(cache, arena);
	if (!arena->map.pool)
		return 0;
	glk_sending_begin(&s.all, tag->live);
	err = glk_away_each(arena, send, &s);
	if (!err)
		err = glk_small_send(cache, arena, drop, did);
	glk_mover_mark(&cache->mover);
	failed = glk_away_release(arena);
	err = err ? err : failed;
	failed = glk_clock_sync(&cache->streams, ~UINT64_C(0));
	err = err ? err : failed;
	failed = glk_trim_ready(arena);
	after = glk_tag_held(tag);
	if (before > after)
		did->released = before - after;
	count_placed(arena, did);
	return err ? err : failed;
}

int glk_cache_tag_suspend(
	struct glk_cache *cache, uint32_t id, uint32_t flags, struct glake_suspended *ret)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glk_tag *tag;
	int err;

	err = glk_away_start(cache);
	if (err)
		return err;
	glk_turn_begin(cache);
	err = glk_tag_find(cache, id) ? glk_suspended(cache) : -ESTALE;
	/* all work that was queued, on streams that nobody told of too */
	if (!err)
		err = glk_clock_sync_all(&cache->streams);
	/* it may have been closed meanwhile */
	tag = err ? NULL : glk_tag_find(cache, id);
	if (!err)
		err = tag ? send_all(cache, tag, flags & GLAKE_TAG_DROP, &did) : -ESTALE;
	glk_turn_end(cache);
	GLK_PROBE3(suspend, cache->device, did.moved, did.released);
	*ret = did;
	return err;
}

/* What is to come back to an arena. */
struct coming {
	struct glk_arena *arena;
	struct glake_suspended *did;
};

static int have(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	return glk_sending_have(arena, e, GLK_KEPT_TAGGED, arg);
}

static int have_pass(struct glk_cache *cache, void *arg)
{
	const struct coming *c = arg;
	int err = glk_away_each(c->arena, have, c->did);

	return err ? err : glk_small_have(cache, c->arena, c->did);
}

int glk_cache_tag_resume(
	struct glk_cache *cache, uint32_t id, struct glake_suspended *ret)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glk_tag *tag;
	int err;

	glk_turn_begin(cache);
	tag = glk_tag_find(cache, id);
	err = tag ? glk_suspended(cache) : -ESTALE;
	if (tag && !tag->arena.shut)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the tag is not suspended on GPU %d", cache->device);
	/* until none is left: one may be in the hands of a free that fails */
	if (!err && tag->arena.map.pool)
		err = glk_sending_all(cache, &tag->arena.suspended_blocks, false,
			have_pass, &(struct coming){&tag->arena, &did});
	if (!err) {
		tag->arena.shut = false;
		count_placed(&tag->arena, &did);
	}
	glk_turn_end(cache);
	GLK_PROBE3(resume, cache->device, did.moved, err);
	*ret = did;
	return err;
}
