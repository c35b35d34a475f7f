/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Gives memory that no live block uses back to the driver, the cheapest to miss first: pages
 * mapped nowhere, then idle pages in the order in which requests would take them. What the GPU
 * may still use stays.
 */
#include "base/conf.h"
#include "base/probe.h"
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"
#include "cache/graph/graph.h"

#include <errno.h>

/* Streams of which work is left for when there is nothing else. */
#define MANY 4

static bool has_many(const struct glk_use *use)
{
	uint32_t streams = glk_bits_of(use->streams & ~GLK_USE_CROWD);

	for (uint64_t left = use->named; left; left = glk_use_rest(left))
		streams++;
	return glk_use_crowded(use) || streams > MANY;
}

/* All mappings of a page have to go with it. */
static void add_late(
	const struct glk_map *map, const struct glk_page *page, struct glk_late *late)
{
	uint32_t first = page->first_alias, slots = glk_page_slots(map, page);
	struct glk_use all = {0};

	for (unsigned left = page->aliases; left; left--) {
		struct glk_use use = glk_use_sum(map, first, first + slots - 1);

		glk_use_add(&all, &use);
		if (left > 1)
			first = map->alias[first];
	}
	if (has_many(&all) && !late->many) {
		late->left = true;
		return;
	}
	glk_work_add(&late->work, &all);
	late->bytes += page->size;
}

/* Pages that were sealed and that are looked at: each has a step for each of its mappings. */
#define SEALED 64

/* Those that wait for the work on them, oldest first, as many as would do. */
static void add_sealed(const struct glk_map *map, uint64_t left, struct glk_late *late)
{
	uint32_t id = map->space->unsealed;

	for (int i = 0; i < SEALED && id && late->bytes < left; i++) {
		add_late(map, glk_map_page(map, id), late);
		id = glk_page_next(map, id);
	}
	late->left |= id > 0;
}

/* Whether a page has a mapping in a map. */
static bool lies_in(const struct glk_map *map, const struct glk_page *page)
{
	uint32_t slot = page->first_alias;

	for (unsigned left = page->aliases; left; left--) {
		if (glk_slot_map(map, slot) == map)
			return true;
		slot = map->alias[slot];
	}
	return false;
}

/* Idle pages that go, as long as some are left to be given back. */
struct release {
	struct glk_cache *gpu;
	struct glk_limbo limbo;
	uint64_t left; /* bytes */
	const struct glk_map
		*of; /* pages without a mapping there stay; NULL: all may go */
	const struct glk_node *node; /* and pages of others; NULL: likewise */
	struct glk_late *late;
	int err; /* the first of the driver */
};

static enum glk_idle_answer release_one(struct glk_map *map, uint32_t id, void *arg)
{
	const struct glk_page *page = glk_map_page(map, id);
	struct release *r = arg;
	uint64_t size = page->size;
	int err;

	if ((r->node && page->node != r->node->index) || (r->of && !lies_in(r->of, page)))
		return GLK_IDLE_NEXT;
	err = glk_limbo_release(&r->limbo, map, id);
	if (!err)
		r->left -= size < r->left ? size : r->left;
	else if (err != -EAGAIN)
		r->err = r->err ? r->err : err;
	else if (r->late && r->late->bytes < r->left)
		add_late(map, page, r->late);
	glk_plan_step(r->gpu);
	return r->left ? GLK_IDLE_NEXT : GLK_IDLE_STOP;
}

static void release_idle(struct glk_arena *home, const struct glk_node *node,
	uint32_t groups, struct release *r)
{
	struct glk_idle_walk walk = {.of = glk_node_of(node), .groups = groups};

	r->gpu = home->gpu;
	if (r->left)
		glk_idle_each(&home->map, &walk, release_one, r);
}

uint64_t glk_trim_drain(struct glk_cache *gpu, struct glk_node *node, uint64_t bytes)
{
	struct glk_limbo limbo = GLK_LIMBO(&gpu->streams);
	uint64_t given = 0;

	/* what was sealed is free now, if the work on it has finished */
	if (bytes && node == gpu->node)
		glk_limbo_reap(&limbo, &gpu->arena.map);
	if (!bytes || !glk_node_free(node))
		return 0;
	glk_lock_pause(&gpu->lock);
	for (int c = GLK_CLASS_COUNT - 1; c >= 0 && given < bytes; c--)
		given += glk_node_drain(node, (enum glk_class)c, bytes - given);
	glk_lock_resume(&gpu->lock);
	return given;
}

uint64_t glk_arena_idle(const struct glk_arena *home, const struct glk_node *node)
{
	const struct glk_space *space = home->map.space;
	const struct glk_stock *stock = &space->of[glk_node_of(node)];

	return (stock->idle_slots << home->map.shift) + glk_node_free(node) +
		(node->gpu ? 0 : space->unsealed_bytes - space->unsealed_foreign);
}

uint64_t glk_cache_most(const struct glk_cache *cache)
{
	uint64_t budget = glk_node_most(cache->node);

	return budget < cache->memory ? budget : cache->memory;
}

uint64_t glk_cache_room(const struct glk_cache *cache)
{
	uint64_t held = glk_load_relaxed(&cache->node->held);
	uint64_t most = glk_cache_most(cache);

	return (most > held ? most - held : 0) +
		glk_arena_idle(&cache->arena, cache->node);
}

uint64_t glk_trim_release(struct glk_arena *home, struct glk_node *node, uint64_t bytes,
	uint32_t groups, struct glk_late *late)
{
	uint64_t given = glk_trim_drain(home->gpu, node, bytes);
	struct release r = {.limbo = glk_request_limbo(home),
		.left = bytes > given ? bytes - given : 0,
		.late = late};

	bytes = r.left;
	if (late && r.left && !node->gpu)
		add_sealed(&home->map, r.left, late);
	release_idle(home, node, groups, &r);
	given += bytes - r.left;
	if (given)
		glk_cache_climbed(home->gpu, GLAKE_RUNG_RECUT);
	return given;
}

static uint64_t excess(const struct glk_node *node, uint64_t keep)
{
	uint64_t held = glk_load_relaxed(&node->held);

	return held > keep ? held - keep : 0;
}

/* Idle pages of a node in the space of an arena. */
static int give_idle(
	struct glk_arena *arena, const struct glk_node *node, struct release r)
{
	r.limbo = (struct glk_limbo)GLK_LIMBO(&arena->gpu->streams);
	release_idle(arena, node, UINT32_MAX, &r);
	return r.err;
}

int glk_trim_node(struct glk_cache *cache, struct glk_node *node, uint64_t keep)
{
	glk_trim_drain(cache, node, excess(node, keep));
	return give_idle(&cache->arena, node,
		(struct release){.left = excess(node, keep), .node = node});
}

int glk_trim_host(struct glk_cache *cache, bool lent)
{
	uint64_t keep = cache->conf->tier_place_reserve;
	int err;

	if (!cache->host)
		return 0;
	err = glk_trim_node(cache, cache->host->peer, 0);
	if (lent || err)
		return err;
	/* what is no page is none of those */
	if (glk_load_relaxed(&cache->moves))
		keep += cache->mover.store.held + cache->mover.store.packs;
	return glk_trim_node(cache, cache->host, keep);
}

int glk_trim_ready(struct glk_arena *arena)
{
	struct glk_cache *cache = arena->gpu;
	int err;

	glk_plan_enter(cache);
	glk_plan_begin(cache);
	glk_event_poll(&cache->streams);
	err = arena == &cache->arena
		? glk_trim_node(cache, cache->node, 0)
		: give_idle(arena, cache->node,
			  (struct release){.left = UINT64_MAX, .of = &arena->map});
	glk_plan_end(cache);
	glk_plan_leave(cache);
	return err;
}
