/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * When a node has no room for what a request still needs: memory that nobody uses is given back
 * to the driver until there is room, for the whole of it at once. The rungs, each counted:
 *
 *	limbo	pools of graphs that were released, and could not end then: that waits for the GPU
 *	recut	blocks in bins merge; free and idle pages, whatever their size
 *	sync	the same once more after waiting for the work that was in the way of it
 *
 * and then -ENOMEM, with a record that says what was asked for and what there is.
 */
#include "base/conf.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"
#include "cache/graph/graph.h"
#include "cache/reserve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Bytes to give back so that `size` more fit: the excess over the budget, or all of `size`
 * where the driver is the limit. */
static uint64_t shortage(const struct glk_node *node, uint64_t size)
{
	uint64_t held = glk_load_relaxed(&node->held);
	uint64_t budget = glk_load_relaxed(&node->budget);

	return glk_node_has_room(node, size) ? size : held + size - budget;
}

/* Pages that stay since work on them is under way: so much of it as makes room, when it is done. What
 * many streams were in is left for when there is nothing else. */
struct glk_late {
	struct glk_work work;
	uint64_t bytes;
	bool many, left;
};

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

static enum glk_idle_answer release_one(struct glk_map *map, uint32_t id, void *arg)
{
	const struct glk_page *page = glk_map_page(map, id);
	struct glk_release *r = arg;
	uint64_t size = page->size;
	int err;

	if ((r->lent && !page->lent) || (r->of && !lies_in(r->of, page)))
		return GLK_IDLE_NEXT;
	err = glk_limbo_release(&r->limbo, map, id);
	if (!err)
		r->left -= size < r->left ? size : r->left;
	else if (err != -EAGAIN)
		r->err = r->err ? r->err : err;
	else if (r->late && r->late->bytes < r->left)
		add_late(map, page, r->late);
	return r->left ? GLK_IDLE_NEXT : GLK_IDLE_STOP;
}

void glk_ladder_idle(struct glk_arena *home, const struct glk_node *node, uint32_t groups,
	struct glk_release *r)
{
	struct glk_idle_walk walk = {.of = glk_node_of(node), .groups = groups};

	if (r->left)
		glk_idle_each(&home->map, &walk, release_one, r);
}

uint64_t glk_ladder_drain(struct glk_cache *gpu, struct glk_node *node, uint64_t bytes)
{
	uint64_t given = 0;

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
		(node->gpu ? 0 : space->unsealed_bytes);
}

uint64_t glk_cache_most(const struct glk_cache *cache)
{
	uint64_t budget = glk_load_relaxed(&cache->node->budget);

	return budget < cache->memory ? budget : cache->memory;
}

uint64_t glk_cache_room(const struct glk_cache *cache)
{
	uint64_t held = glk_load_relaxed(&cache->node->held);
	uint64_t most = glk_cache_most(cache);

	return (most > held ? most - held : 0) +
		glk_arena_idle(&cache->arena, cache->node);
}

static uint64_t release(struct glk_arena *home, struct glk_node *node, uint64_t bytes,
	uint32_t groups, struct glk_late *late)
{
	struct glk_limbo limbo = glk_request_limbo(home);
	uint64_t given;
	struct glk_release r;

	glk_limbo_reap(&limbo, &home->map);
	given = glk_ladder_drain(home->gpu, node, bytes);
	r = (struct glk_release){.limbo = glk_request_limbo(home),
		.left = bytes > given ? bytes - given : 0,
		.late = late};

	bytes = r.left;
	glk_ladder_idle(home, node, groups, &r);
	given += bytes - r.left;
	if (given)
		glk_cache_climbed(home->gpu, GLAKE_RUNG_RECUT);
	return given;
}

uint64_t glk_ladder_release(
	struct glk_arena *home, struct glk_node *node, uint64_t bytes, uint32_t groups)
{
	return release(home, node, bytes, groups, NULL);
}

/* Times that work is waited for, which others may have queued more of meanwhile. */
#define WAITS 5

/* Whether anything that nobody uses stays mapped. */
static bool stays(const struct glk_arena *home, const struct glk_node *node)
{
	return glk_arena_idle(home, node) > glk_node_free(node);
}

/* The GPU is waited for, while others go in and out: what has been given back is not for them. */
struct wait {
	struct glk_cache *gpu;
	struct glk_node *node;
	bool climbs;
	uint64_t claimed;
};

static void begin_wait(struct wait *w, uint64_t given)
{
	w->claimed = w->climbs && !glk_node_claim(w->node, given) ? given : 0;
	if (w->climbs)
		glk_plan_park(w->gpu, true);
}

static void end_wait(struct wait *w)
{
	if (w->climbs)
		glk_plan_unpark(w->gpu, true);
	glk_node_unclaim(w->node, w->claimed);
}

/* All that can go, and what the work of streams is in the way of, when that is done. All streams are
 * waited for where that was not enough: pages lie among other addresses, and what is in their way is not
 * known; or they were waited for in vain, as a capture or a plan is, and others may do. */
static uint64_t release_late(struct glk_arena *home, struct wait *w, uint64_t bytes)
{
	struct glk_streams *streams = &home->gpu->streams;
	struct glk_late late = {.left = true};
	uint64_t given = 0;

	for (int i = 0; i < WAITS && given < bytes && (late.bytes || late.left); i++) {
		bool many = i && !late.bytes;

		/* a capture may be in the way of some of it */
		if (late.bytes) {
			begin_wait(w, given);
			glk_work_sync(streams, &late.work);
			end_wait(w);
		}
		late = (struct glk_late){.many = many};
		given += release(home, w->node, bytes - given, UINT32_MAX, &late);
	}
	if (given < bytes && stays(home, w->node)) {
		begin_wait(w, given);
		glk_clock_sync(streams, ~UINT64_C(0));
		end_wait(w);
		given += glk_ladder_release(home, w->node, bytes - given, UINT32_MAX);
	}
	return given;
}

/* Pools of graphs whose end is due: their blocks were live then, or a graph was captured. */
static void reap(struct glk_cache *gpu, struct wait *w)
{
	uint64_t held = glk_load_relaxed(&gpu->node->held);

	if (!glk_graphs(gpu) || !glk_graphs(gpu)->leaving)
		return;
	begin_wait(w, 0);
	glk_graph_reap(gpu);
	end_wait(w);
	if (glk_load_relaxed(&gpu->node->held) < held)
		glk_cache_climbed(gpu, GLAKE_RUNG_LIMBO);
}

bool glk_ladder_climb(struct glk_arena *home, const struct glk_request *request,
	struct glk_node *node, uint64_t bytes)
{
	struct glk_cache *gpu = home->gpu;
	struct wait w = {.gpu = gpu, .node = node, .climbs = request->climbs};
	uint64_t want, given;

	if (node == gpu->node)
		reap(gpu, &w);
	/* what can go then must not depend on how far the GPU is */
	if (!gpu->conf->stream_opportunistic) {
		begin_wait(&w, 0);
		glk_clock_sync(&gpu->streams, ~UINT64_C(0));
		end_wait(&w);
	}
	glk_event_poll(&gpu->streams);
	/* memory that contents were kept in, or are to be, counts against the same budget */
	if (node->gpu && glk_load_relaxed(&gpu->moves)) {
		glk_reserve_yield(gpu);
		glk_mover_yield(&gpu->mover, shortage(node, bytes));
	}
	if (node == gpu->node)
		glk_quick_flush(gpu);
	want = shortage(node, bytes);
	given = release_late(home, &w, want);
	/* where the driver is the limit, what it has left may be enough with less */
	return given >= want || glk_node_has_room(node, bytes);
}

static int refuse_host(const struct glk_node *host, uint64_t size)
{
	struct glk_said asked = glk_say_bytes(size);
	char why[sizeof(((struct glake_error *)NULL)->text)];

	/* the driver, or the machine, has said why */
	if (glk_node_has_room(host, size)) {
		snprintf(why, sizeof(why), "%s", glk_thread_current->error.text);
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"GPU %d has no room for %s of pages more, and on the host: %s",
			host->gpu->place.id, asked.text, why);
	}
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
		"neither GPU %d nor the memory of the host near it has room for %s of pages "
		"more: %s of the host are held, of the %s that tier.host allows",
		host->gpu->place.id, asked.text,
		glk_say_bytes(glk_load_relaxed(&host->held)).text,
		glk_say_bytes(glk_load_relaxed(&host->budget)).text);
}

struct sentence {
	char text[GLAKE_ERROR_TEXT_MAX];
	size_t used;
};

static __attribute__((format(printf, 2, 3))) void add(
	struct sentence *s, const char *format, ...)
{
	size_t room = sizeof(s->text) - s->used;
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(s->text + s->used, room, format, args);
	va_end(args);
	/* as a whole, or not at all, which a length below zero is too */
	if ((size_t)length >= room)
		s->text[s->used] = '\0';
	else
		s->used += (size_t)length;
}

static void add_bytes(struct sentence *s, uint64_t bytes, const char *what)
{
	if (bytes)
		add(s, ", %s %s", glk_say_bytes(bytes).text, what);
}

/* Where the memory is that is held: with live blocks, with others, or in motion. */
static void add_held(struct sentence *s, struct glk_cache *gpu)
{
	const struct glk_map *map = &gpu->arena.map;
	uint64_t nests = (uint64_t)glk_load_relaxed(&map->nests.live) << map->shift;
	uint64_t born = 0;
	struct glk_seats sum;

	glk_seats_sum(gpu, &sum);
	for (uint32_t i = 1; i <= gpu->last_row; i++)
		born += gpu->rows[i].bytes;
	add(s, ", %s in live blocks", glk_say_bytes(sum.live).text);
	add_bytes(s,
		(map->space->of[GLK_OF_NODE].stranded << map->shift) + nests -
			map->nested_taken,
		"beside them in their pages");
	add_bytes(s, born > sum.given ? born - sum.given : 0, "in bins");
	add_bytes(s, glk_cache_in_flight(gpu), "in plans");
	add(s, ", %s idle", glk_say_bytes(glk_arena_idle(&gpu->arena, gpu->node)).text);
	add_bytes(s, glk_graph_held(gpu), "in pools of graphs");
}

int glk_ladder_refuse(struct glk_arena *home, struct glk_node *node, uint64_t size)
{
	struct glk_cache *gpu = home->gpu;
	uint64_t budget = glk_load_relaxed(&node->budget);
	const struct glk_slab *pages = &gpu->pool->pages;
	const struct glk_map *map = &gpu->arena.map;
	struct sentence s = {.used = 0};

	gpu->lacked = size;
	if (glk_node_has_room(node, size) && glk_load_relaxed(&pages->live) >= pages->max)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"GPU %d needs one page more than the %" PRIu32
			" that pool.pages allows",
			gpu->device, pages->max);
	if (node != gpu->node)
		return refuse_host(node, size);
	add(&s, "GPU %d has no room for %s of pages more: %s held with ", gpu->device,
		glk_say_bytes(size).text,
		glk_say_bytes(glk_load_relaxed(&node->held)).text);
	if (budget != UINT64_MAX)
		add(&s, "a budget of %s", glk_say_bytes(budget).text);
	else
		add(&s, "no budget set");
	add_held(&s, gpu);
	add(&s, ", largest hole %s",
		glk_say_bytes(glk_tree_largest(map, &map->common)).text);
	add(&s, "; a larger budget or fewer live blocks would help");
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE, "%s", s.text);
}
