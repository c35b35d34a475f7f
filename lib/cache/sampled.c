/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks beside which there is nothing: an arena in which each of them has slots of its own, a slot before them and one
 * behind them that are never mapped, and ends with its last slot or begins with its first, by turns. So whatever
 * reaches past that end meets no memory. When one is freed its mappings go, as soon as the work on it has finished,
 * and its addresses are given again when there are no others. With guard.mode=full nothing that is queued behind the
 * free finds them (gate.c).
 *
 * In all else it is the arena of a tag that is of no tag.
 */
#include "cache/sampled.h"

#include "base/error.h"
#include "base/thread.h"
#include "cache/arena/request.h"

#include <errno.h>

/* Addresses that are reserved at a time, and of which the bound is a multiple. */
#define STEP (UINT64_C(64) << 30)
#define MOST (UINT64_C(1) << 40)

static uint64_t whole_slots(const struct glk_map *map, uint64_t bytes)
{
	return (bytes + glk_slot_bytes(map) - 1) & ~(glk_slot_bytes(map) - 1);
}

/* Addresses that were never used; as many as `need`. */
static bool have_new(struct glk_sampled *s, uint64_t need)
{
	struct glk_map *map = &s->tag.arena.map;
	unsigned ranges = map->ranges;

	if (s->next + need > map->end && !glk_map_extend(map, need) &&
		map->ranges > ranges)
		s->next = map->range[map->ranges - 1].offset;
	return s->next + need <= map->end;
}

static int place(
	struct glk_arena *arena, struct glk_request *request, uint32_t *ret_extent)
{
	struct glk_sampled *s = glk_sampled_of(arena);
	struct glk_map *map = &arena->map;
	uint64_t slot = glk_slot_bytes(map), whole = whole_slots(map, request->rounded);
	uint64_t lead = slot + (s->ends ? whole - request->rounded : 0);
	struct glk_want want = {.size = whole + 2 * slot, .kind = GLK_FIT_WHOLE};
	struct glk_fit fit;
	uint32_t first;
	int err;

	if (have_new(s, want.size)) {
		err = glk_extent_carve(
			map, 0, s->next + lead, request->rounded, ret_extent);
		if (!err)
			s->next += whole + slot;
		return err;
	}
	err = glk_place_seek(arena, request, &want, &fit);
	if (err)
		return err;
	first = glk_slot_of(map, fit.offset);
	if (glk_bits_any(
		    map->mapped, first, glk_slot_of(map, fit.offset + want.size - 1)))
		return glk_error(-ENOMEM, GLAKE_ERROR_ADDRESS,
			"all addresses of sampled blocks are in use");
	return glk_extent_carve(
		map, fit.from, fit.offset + lead, request->rounded, ret_extent);
}

static struct glk_sampled *make(struct glk_cache *cache)
{
	struct glk_sampled *s = glk_region_new(sizeof(*s));

	if (!s)
		return NULL;
	s->ops = glk_arena_tag;
	s->ops.place = place;
	if (glk_arena_init(&s->tag.arena, cache, &s->ops, &cache->space,
		    (struct glk_map_size){.step = STEP, .most = MOST})) {
		glk_region_free(s, sizeof(*s));
		return NULL;
	}
	s->next = s->tag.arena.map.range[0].offset;
	/* pairs with: glk_sampled */
	glk_store_release(&cache->sampled, s);
	return s;
}

int glk_sampled_serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, enum glk_sampling how, uint64_t *ret_addr)
{
	struct glk_sampled *s = glk_sampled(cache);

	if (!s)
		s = make(cache);
	if (!s)
		return -ENOMEM;
	s->ends = how == GLK_SAMPLING_ENDS || !s->ends;
	return glk_arena_serve(&s->tag.arena, request, seat, NULL, ret_addr);
}

/* Waits for the work on a block that was freed; not 0 where that cannot be, as in a capture. */
static int clear_now(
	struct glk_cache *cache, struct glk_sampled *s, struct glk_stretch run)
{
	struct glake_error why = glk_thread_current->error;
	int err;

	glk_plan_enter(cache);
	err = glk_arena_clear(&s->tag.arena, run.first, run.last);
	glk_plan_leave(cache);
	glk_error_back(&why);
	return err;
}

/* Those of the GPU, made at the first time; NULL: it has none. */
static struct glk_gates *gates(struct glk_cache *cache, struct glk_sampled *s)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_gates *made;

	if (s->asked)
		return s->gates;
	s->asked = true;
	glk_lock_pause(&cache->lock);
	made = glk_gates_new(cache);
	glk_lock_resume(&cache->lock);
	glk_error_back(&why);
	s->gates = made;
	return made;
}

/* Behind a gate, so that nobody waits. */
static bool clear_later(struct glk_cache *cache, struct glk_sampled *s,
	struct glk_stretch run, const struct glk_use *use)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_gates *g = gates(cache, s);
	bool later = g && glk_gate_put(g, &s->tag.arena, run, use);

	glk_error_back(&why);
	return later;
}

void glk_sampled_freed(
	struct glk_cache *cache, struct glk_stretch run, const struct glk_use *use)
{
	struct glk_sampled *s = glk_sampled(cache);

	if (glk_guard_ops(cache)->at_once(cache) &&
		(clear_later(cache, s, run, use) || !clear_now(cache, s, run)))
		return;
	/* what finds no room is unmapped as any other idle memory */
	if (s->left < GLK_SAMPLED_LEFT)
		s->leave[s->left++] = run;
}

void glk_sampled_settle(struct glk_cache *cache)
{
	struct glk_sampled *s = glk_sampled(cache);
	struct glake_error why = glk_thread_current->error;
	uint32_t kept = 0, left = s ? s->left : 0;

	if (!left || s->settles)
		return;
	/* the lock is given up meanwhile, and others may add some */
	s->settles = true;
	glk_event_poll(&cache->streams);
	for (uint32_t i = 0; i < left; i++) {
		struct glk_stretch run = s->leave[i];

		if (glk_arena_clear_ready(&s->tag.arena, run.first, run.last))
			s->leave[kept++] = run;
	}
	for (uint32_t i = left; i < s->left; i++)
		s->leave[kept++] = s->leave[i];
	s->left = kept;
	s->settles = false;
	glk_error_back(&why);
}

struct glk_arena *glk_cache_sampled(const struct glk_cache *cache)
{
	struct glk_sampled *s = glk_sampled(cache);

	return s ? &s->tag.arena : NULL;
}

void glk_sampled_still(struct glk_cache *cache)
{
	struct glk_sampled *s = glk_sampled(cache);

	if (s)
		glk_gates_end(s->gates);
}

void glk_sampled_fini(struct glk_cache *cache)
{
	struct glk_sampled *s = glk_sampled(cache);

	if (s)
		glk_region_free(s, sizeof(*s));
	glk_store_relaxed(&cache->sampled, NULL);
}
