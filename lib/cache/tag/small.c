/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Small blocks of a tag go slot by slot: what lies between them goes with them, since a copy of 2 MiB
 * costs less than a few of some kilobytes, and host memory is had in larger parts. All blocks of a slot
 * are claimed meanwhile. One of them that was said to stay, or is out, keeps all of its slot.
 */
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/cache.h"
#include "cache/tag/tag.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>

/* Times that a block is waited for which somebody holds or frees: a thread that was cancelled there has
 * taken it along. */
#define TRIES 100

struct slot {
	struct glk_arena *arena;
	uint32_t slot, nest;
	bool drop;    /* what goes is not kept */
	uint32_t why; /* GLK_KEPT_...: what goes because of it, or comes */
	bool gone;    /* blocks that are here are nobody's business */
	struct glk_moving moving;
};

/* The next live block of a slot from a grain on; NULL: none. */
static struct glk_extent *next(const struct slot *s, uint32_t *grain)
{
	const struct glk_map *map = &s->arena->map;
	uint32_t at;

	if (*grain > map->grains)
		return NULL;
	at = glk_bits_first(glk_nest_begins(map, s->nest), *grain, map->grains);
	if (at == GLK_BITS_NONE)
		return NULL;
	*grain = at + 1;
	return glk_extent_at(map, glk_load_relaxed(&glk_nest_entries(map, s->nest)[at]));
}

/* The same where they are claimed, or this one is, so that the slot stays one of small blocks while others have the
 * lock: there may be thousands. */
static struct glk_extent *next_claimed(const struct slot *s, uint32_t *grain)
{
	glk_plan_step(s->arena->gpu);
	return next(s, grain);
}

/* Lets go of those before a grain. */
static void let_go(const struct slot *s, uint32_t end)
{
	uint32_t grain = 0;
	struct glk_extent *e = next(s, &grain);

	while (e && grain <= end) {
		struct glk_extent *was = e;

		e = next_claimed(s, &grain);
		glk_extent_set(was, GLK_EXTENT_LIVE);
	}
}

/* All or none. */
static bool claim(const struct slot *s)
{
	uint32_t grain = 0;
	struct glk_extent *e = next(s, &grain);

	for (; e; e = next_claimed(s, &grain)) {
		if (glk_word_claim(&e->word, &e->addr, glk_load_relaxed(&e->addr)))
			continue;
		let_go(s, grain - 1);
		return false;
	}
	return true;
}

/* The slot may be none of small blocks any more when others had the lock. */
static bool find_nest(struct slot *s)
{
	const struct glk_map *map = &s->arena->map;
	uint32_t name = glk_load_relaxed(&map->start[s->slot << GLK_EIGHTH_SHIFT]);

	s->nest = name & ~GLK_START_NEST;
	return name & GLK_START_NEST;
}

/* Has all blocks of the slot in its hands. 0; -ENOENT: there is none; -EBUSY: one cannot be had. Without a
 * record. */
static int take(struct slot *s)
{
	struct glk_cache *cache = s->arena->gpu;
	const struct glk_map *map = &s->arena->map;

	for (int i = 0; i < TRIES; i++) {
		uint32_t grain = 0;

		if (!find_nest(s) || !next(s, &grain))
			return -ENOENT;
		s->moving = (struct glk_moving){
			.addr = glk_slot_addr(map, s->slot), .size = glk_slot_bytes(map)};
		glk_away_announce(cache, &s->moving);
		if (claim(s))
			return 0;
		glk_away_done(cache, &s->moving);
		glk_lock_pause(&cache->lock);
		sched_yield();
		glk_lock_resume(&cache->lock);
	}
	return -EBUSY;
}

/* Live blocks of a slot that could not be taken stay, if they are here. */
static void count_stayed(const struct slot *s, struct glake_suspended *did)
{
	struct glk_extent *e;
	uint32_t grain = 0;

	while ((e = next(s, &grain))) {
		if (glk_extent_state(e) != GLK_EXTENT_LIVE || glk_extent_away(e))
			continue;
		did->stayed += glk_extent_asked(e);
		did->stayed_blocks++;
	}
}

/* Whether there are small blocks in it that may be meant. They are here, or away, together. */
static bool is_meant(struct slot *s)
{
	const struct glk_extent *e;
	uint32_t grain = 0;

	if (!find_nest(s))
		return false;
	e = s->gone ? next(s, &grain) : NULL;
	return !s->gone || (e && glk_extent_away(e));
}

typedef int (*slot_fn)(struct slot *s, struct glake_suspended *did);

static int one(
	const struct slot *what, uint32_t slot, slot_fn fn, struct glake_suspended *did)
{
	struct slot s = *what;
	int err;

	glk_plan_step(what->arena->gpu);
	glk_plan_enter(what->arena->gpu);
	s.slot = slot;
	err = is_meant(&s) ? take(&s) : -ENOENT;
	if (!err) {
		err = fn(&s, did);
		let_go(&s, UINT32_MAX);
		glk_away_done(what->arena->gpu, &s.moving);
	} else {
		if (err == -EBUSY && did)
			count_stayed(&s, did);
		err = 0;
	}
	glk_plan_leave(what->arena->gpu);
	return err;
}

static int each(const struct slot *what, slot_fn fn, struct glake_suspended *did)
{
	const struct glk_map *map = &what->arena->map;
	int err = 0;

	for (unsigned r = 0; r < map->ranges && !err; r++) {
		struct glk_stretch slots = glk_map_slots(map, r);

		for (uint32_t slot = slots.first; slot <= slots.last && !err; slot++)
			err = one(what, slot, fn, did);
	}
	return err;
}

/* Of an arena, or with the GPU of all tags. */
static int walk(struct glk_cache *cache, const struct slot *what, slot_fn fn,
	struct glake_suspended *did)
{
	struct slot s = *what;
	int err = 0;

	s.why = what->arena ? GLK_KEPT_TAGGED : GLK_KEPT_SUSPENDED;
	if (what->arena)
		return each(&s, fn, did);
	for (s.arena = &cache->arena; s.arena && !err; s.arena = s.arena->next) {
		if (s.arena->ops->kind == GLAKE_ARENA_TAG)
			err = each(&s, fn, did);
	}
	return err;
}

/* ---- There ---- */

/* What its blocks are: all of them here, and none that has to stay; nor does the slot lie on the host. */
struct found {
	struct glk_use use;
	uint64_t blocks, bytes;
	bool away, stays, placed;
};

static struct found look(const struct slot *s)
{
	struct glk_cache *cache = s->arena->gpu;
	struct found f = {.use = glk_use_of_page(&s->arena->map, s->slot)};
	struct glk_extent *e;
	uint32_t grain = 0;

	while ((e = next_claimed(s, &grain))) {
		struct glk_use use = glk_block_use(cache, e, 0);

		glk_use_add(&f.use, &use);
		f.blocks++;
		f.bytes += glk_extent_asked(e);
		f.away |= glk_extent_away(e);
		f.placed |= glk_beside_placed(&s->arena->map, e) > 0;
		f.stays |= glk_pin_is_out(e) || glk_advice_stays(s->arena, e);
	}
	return f;
}

static void tell_after(const struct slot *s, enum glake_move_way way,
	const struct glk_telling *t, const struct glk_extent *before, int err)
{
	struct glk_extent *e;
	uint32_t grain = 0;

	while ((e = next_claimed(s, &grain)) && e != before)
		glk_tell_after(s->arena, e, way, t, err);
}

/* One of them that has to stay keeps all. */
static int tell_before(
	const struct slot *s, enum glake_move_way way, struct glk_telling *t)
{
	struct glk_extent *e;
	uint32_t grain = 0;
	int err;

	while ((e = next_claimed(s, &grain))) {
		err = glk_tell_before(s->arena, e, way, t);
		if (err) {
			tell_after(s, way, t, e, err);
			return err;
		}
	}
	return 0;
}

static int send(struct slot *s, struct glake_suspended *did)
{
	struct found f = look(s);
	struct glk_telling telling = {0};
	struct glk_extent *e;
	uint32_t run = 0, grain = 0;
	int err = 0;

	if (f.away || f.placed)
		return 0;
	if (f.stays || tell_before(s, GLAKE_MOVE_AWAY, &telling)) {
		did->stayed += f.bytes;
		did->stayed_blocks += f.blocks;
		return 0;
	}
	if (!s->drop)
		err = glk_move_out(&s->arena->gpu->mover, s->moving.addr, s->moving.size,
			&f.use, &run);
	if (err) {
		tell_after(s, GLAKE_MOVE_AWAY, &telling, NULL, err);
		return err;
	}
	while ((e = next_claimed(s, &grain)))
		glk_kept_depart(s->arena, e, &f.use, run, s->why);
	if (run && s->arena->gpu->conf->tier_verify)
		glk_verify_keep(&s->arena->gpu->mover, run);
	did->moved += s->drop ? 0 : f.bytes;
	did->moved_blocks += s->drop ? 0 : f.blocks;
	did->dropped += s->drop ? f.bytes : 0;
	did->dropped_blocks += s->drop ? f.blocks : 0;
	tell_after(s, GLAKE_MOVE_AWAY, &telling, NULL, 0);
	return 0;
}

int glk_small_send(struct glk_cache *cache, struct glk_arena *arena, bool drop,
	struct glake_suspended *did)
{
	return walk(cache, &(struct slot){.arena = arena, .drop = drop}, send, did);
}

/* ---- And back ---- */

/* They leave the slot again, up to one of them; NULL: all. */
static void leave(const struct slot *s, const struct glk_extent *before)
{
	struct glk_use never = {0};
	struct glk_extent *e;
	uint32_t grain = 0;

	while ((e = next_claimed(s, &grain)) && e != before)
		glk_slots_leave(&s->arena->map, s->slot, s->slot, &never);
}

/* Each counts itself on the slot; the first has a page mapped there. */
static int back(const struct slot *s)
{
	struct glk_cache *cache = s->arena->gpu;
	struct glk_extent *e;
	uint32_t grain = 0;
	int err;

	while ((e = next_claimed(s, &grain))) {
		struct glk_request request = {.size = glk_extent_asked(e),
			.rounded = e->size,
			.patient = true,
			.stream = glk_stream_enter(&cache->streams,
				glk_mover_entry(&cache->mover, false, s->moving.size))};

		err = glk_arena_back(
			s->arena, &request, glk_extent_id(&s->arena->map, e));
		if (err) {
			leave(s, e);
			return err;
		}
	}
	return 0;
}

/* Their contents, on the stream `back`. */
static int fill(const struct slot *s, uint32_t run, struct glk_use *ret_use)
{
	struct glk_cache *cache = s->arena->gpu;
	struct glk_stream *back = glk_stream_enter(&cache->streams, cache->mover.back);
	int err;

	if (run)
		return glk_move_back(
			&cache->mover, run, 0, s->moving.size, s->moving.addr, ret_use);
	err = glk_mover_enter_back(&cache->mover, s->moving.size);
	if (err)
		return err;
	*ret_use = glk_stream_use(back, glk_clock_tick(&cache->streams, back));
	return 0;
}

static int come(const struct slot *s, struct glake_suspended *did)
{
	struct glk_cache *cache = s->arena->gpu;
	uint32_t grain = 0;
	struct glk_extent *e = next(s, &grain);
	uint32_t run = glk_kept_run(e);
	struct glk_use use = {0};
	int err = run ? glk_verify_check(&cache->mover, run) : 0;

	/* what is kept of them is not what was sent */
	if (err)
		glk_warn("GPU %d: the small blocks at 0x%" PRIx64 " stay away: %s",
			cache->device, s->moving.addr, glk_thread_current->error.text);
	if (!err)
		err = back(s);
	if (err)
		return err;
	err = fill(s, run, &use);
	if (err) {
		leave(s, NULL);
		return err;
	}
	for (grain = 0; (e = next_claimed(s, &grain));) {
		glk_kept_arrive(s->arena, e, use.tick);
		did->moved += glk_extent_asked(e);
		did->moved_blocks++;
	}
	return 0;
}

static int have(struct slot *s, struct glake_suspended *did)
{
	struct glk_telling telling = {0};
	uint32_t grain = 0;
	const struct glk_extent *e = next(s, &grain);
	int err;

	if (!glk_part_went(e, s->why))
		return 0;
	err = tell_before(s, GLAKE_MOVE_BACK, &telling);
	if (err)
		return err;
	err = come(s, did);
	tell_after(s, GLAKE_MOVE_BACK, &telling, NULL, err);
	return err;
}

int glk_small_have(
	struct glk_cache *cache, struct glk_arena *arena, struct glake_suspended *did)
{
	return walk(cache, &(struct slot){.arena = arena}, have, did);
}

/* ---- To the host ---- */

static int home(struct slot *s, struct glake_suspended *did)
{
	uint32_t grain = 0;
	const struct glk_extent *e = next(s, &grain);

	(void)did;
	return glk_extent_away(e) ? glk_away_home(s->arena->gpu, glk_kept_run(e)) : 0;
}

int glk_small_home(struct glk_cache *cache)
{
	return walk(cache, &(struct slot){.gone = true}, home, NULL);
}
