/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks and ranges of them go away: see part.h. All that a call sends is copied before the block leaves the first
 * slot, so that a call which fails has changed nothing.
 */
#include "base/error.h"
#include "move/advice.h"
#include "move/outcome.h"
#include "move/part.h"
#include "move/plan.h"
#include "move/seal.h"
#include "move/told.h"

#include <errno.h>
#include <inttypes.h>

/* ---- Whether one may ---- */

static int is_away(const struct glk_extent *e)
{
	return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
		"the block at 0x%" PRIx64 " is away", glk_load_relaxed(&e->addr));
}

int glk_spill_keeps(const struct glk_arena *arena, const struct glk_extent *e)
{
	uint64_t addr = glk_load_relaxed(&e->addr);

	if (glk_part_is_out(arena, e))
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64
			" is out: others have its memory until they say they do not",
			addr);
	if (glk_advice_stays(arena, e))
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " is pinned: it stays where it is",
			addr);
	return 0;
}

int glk_spill_may(const struct glk_arena *arena, const struct glk_extent *e)
{
	uint64_t addr = glk_load_relaxed(&e->addr), placed;
	int err;

	if (glk_extent_away(e))
		return is_away(e);
	placed = arena->ops->fixed ? 0 : glk_beside_placed(&arena->map, e);
	if (placed && placed == glk_part_here(arena, e))
		return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " lies in memory of the host", addr);
	if (e->nested)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block at 0x%" PRIx64
			" is too small to move: it shares its page with others",
			addr);
	err = glk_spill_keeps(arena, e);
	if (err)
		return err;
	if (arena->ops->stays)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " %s", addr, arena->ops->stays);
	return 0;
}

/* ---- It goes ---- */

struct leaving {
	struct glk_arena *arena;
	struct glk_extent *e;
	struct glk_stretch s;
	const struct glk_part_way *way;
	struct glk_use use;
	uint64_t bytes;
};

/* Of a stretch that is here what goes or stays at once: a sealed page, or all that is not sealed. */
static struct glk_stretch at_once(const struct leaving *l, struct glk_stretch s)
{
	const struct glk_map *map = &l->arena->map;

	s = glk_part_alike(map, s);
	if (s.first <= s.last && glk_is_sealed(map, s.first))
		s.last = glk_mapping_at(map, s.first).last;
	return s;
}

/* Sealed pages go for a suspension only or by themselves, and as a whole. */
static bool stays(const struct leaving *l, struct glk_stretch s)
{
	const struct glk_map *map = &l->arena->map;

	if (!glk_is_sealed(map, s.first))
		return l->way->sealed;
	return (!l->way->why && !l->way->sealed) || !glk_bit_get(map->head, s.first) ||
		s.last > l->s.last;
}

/* The next stretch that is here, from a slot on, and goes. */
static struct glk_stretch next_here(const struct leaving *l, uint32_t slot)
{
	const struct glk_map *map = &l->arena->map;
	struct glk_stretch s = glk_part_next(map, l->e, slot, l->s.last, false);

	/* the last of them may have gone */
	if (!glk_part_at(l->arena->gpu, l->e)->sealed)
		return l->way->sealed ? (struct glk_stretch){1, 0} : s;
	for (s = at_once(l, s); s.first <= s.last && stays(l, s);)
		s = at_once(l, glk_part_next(map, l->e, s.last + 1, l->s.last, false));
	return s;
}

static int copy_out(struct leaving *l, struct glk_stretch s, uint32_t *ret_run)
{
	struct glk_cache *cache = l->arena->gpu;
	uint64_t addr, bytes = glk_part_span(&l->arena->map, l->e, s, &addr);

	l->bytes += bytes;
	*ret_run = 0;
	/* what nobody asked for is not copied */
	if (!bytes && l->use.streams)
		return 0;
	l->use = glk_block_use(cache, l->e, l->way->on);
	if (glk_is_sealed(&l->arena->map, s.first))
		return glk_seal_keep(l->arena, l->e, s.first, l->way, &l->use, ret_run);
	return bytes && !l->way->drop
		? glk_move_out(&cache->mover, addr, bytes, &l->use, ret_run)
		: 0;
}

/* What was copied of the stretches before a slot is nobody's. */
static void forget(const struct leaving *l, uint32_t slot)
{
	struct glk_stretch s = next_here(l, l->s.first);

	for (; s.first <= s.last && s.first < slot; s = next_here(l, s.last + 1)) {
		uint32_t word = *glk_part_word(l->arena, l->e, s.first);

		if (word & GLK_KEPT_SEALED)
			glk_seal_unref(l->arena->gpu, word, 0);
		else
			glk_store_put(
				&l->arena->gpu->mover.store, word & GLK_KEPT_RUN, 0);
	}
}

static int copy_all(struct leaving *l)
{
	struct glk_stretch s = next_here(l, l->s.first);
	uint32_t run;
	int err;

	for (; s.first <= s.last; s = next_here(l, s.last + 1)) {
		err = copy_out(l, s, &run);
		if (err) {
			forget(l, s.first);
			return err;
		}
		*glk_part_word(l->arena, l->e, s.first) = run | l->way->why;
	}
	return 0;
}

static void depart_all(struct leaving *l)
{
	struct glk_stretch s = next_here(l, l->s.first);

	glk_beside_count(l->arena, l->e, false);
	for (; s.first <= s.last; s = next_here(l, s.last + 1))
		glk_part_depart(l->arena, l->e, s,
			*glk_part_word(l->arena, l->e, s.first), &l->use);
	glk_beside_count(l->arena, l->e, true);
}

static void count(struct leaving *l)
{
	struct glk_cache *cache = l->arena->gpu;

	if (l->way->drop) {
		cache->discards++;
		cache->discarded += l->bytes;
	} else {
		cache->spills++;
		cache->spilled += l->bytes;
	}
	GLK_PROBE3(spill, cache->device, glk_load_relaxed(&l->e->addr), l->bytes);
}

static int leave(struct leaving *l)
{
	struct glk_cache *cache = l->arena->gpu;
	int err;

	/* who finds no room meanwhile waits for this block's */
	glk_plan_begin(cache);
	cache->sending++;
	err = copy_all(l);
	cache->sending--;
	if (!err)
		depart_all(l);
	glk_plan_end(cache);
	return err;
}

int glk_spill_range(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s,
	const struct glk_part_way *way)
{
	struct leaving l = {.arena = arena, .e = e, .s = s, .way = way};
	struct glk_cache *cache = arena->gpu;
	int64_t since = glk_clock_ticks();
	struct glk_telling telling = {0};
	struct glk_stretch here;
	int err;

	err = glk_part_open(arena, e);
	if (err)
		return err;
	here = next_here(&l, s.first);
	err = here.first > here.last
		? is_away(e)
		: glk_tell_before(arena, e, GLAKE_MOVE_AWAY, &telling);
	if (err) {
		glk_part_settle(arena, e, way->on, err);
		return err;
	}
	err = leave(&l);
	glk_part_settle(arena, e, way->on, err);
	if (!err) {
		glk_prefetch_gone(cache, e);
		glk_part_hash(arena, e, s);
		count(&l);
	}
	glk_tell_after(arena, e, GLAKE_MOVE_AWAY, &telling, err);
	if (!err && !way->drop)
		glk_times_since(&cache->times[GLK_TIMED_SPILL], since);
	return err;
}

int glk_spill(
	struct glk_arena *arena, struct glk_extent *e, const struct glk_part_way *way)
{
	int err = glk_spill_may(arena, e);

	return err ? err : glk_spill_range(arena, e, glk_part_all(&arena->map, e), way);
}

/* ---- Bytes that a program names, and the slots that go or come ---- */

int glk_portion_check(const struct glk_extent *e, const struct glk_portion *p)
{
	uint64_t asked = glk_extent_asked(e);

	if (p->bytes && p->offset < asked && p->bytes <= asked - p->offset)
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"%" PRIu64 " bytes at %" PRIu64 " are no range of a block of %" PRIu64
		" bytes",
		p->bytes, p->offset, asked);
}

struct glk_stretch glk_portion_slots(const struct glk_map *map,
	const struct glk_extent *e, const struct glk_portion *p, bool any)
{
	struct glk_stretch s = glk_part_all(map, e);
	uint64_t begin = e->offset + p->offset, end = begin + p->bytes;

	if (p->offset)
		s.first = glk_slot_of(map, any ? begin : begin + glk_slot_bytes(map) - 1);
	/* those behind the last byte that was asked for go with it */
	if (p->offset + p->bytes < glk_extent_asked(e))
		s.last = any ? glk_slot_of(map, end - 1) : glk_slot_of(map, end) - 1;
	return s;
}

static int is_placed(const struct glk_extent *e)
{
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"the block at 0x%" PRIx64
		" lies in memory of the host in part, and goes away as a whole",
		glk_load_relaxed(&e->addr));
}

static int holds_no_slot(const struct glk_map *map, const struct glk_portion *p)
{
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"%" PRIu64 " bytes at %" PRIu64 " hold no page of %" PRIu64 " bytes",
		p->bytes, p->offset, glk_slot_bytes(map));
}

int glk_portion_send(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_portion *p)
{
	const struct glk_map *map = &arena->map;
	struct glk_stretch s, all = glk_part_all(map, e);
	struct glk_part_way way = {.on = on};
	int err;

	err = glk_portion_check(e, p);
	if (!err)
		err = glk_spill_may(arena, e);
	if (err)
		return err;
	s = glk_portion_slots(map, e, p, false);
	if (s.first + 1 > s.last + 1)
		return holds_no_slot(map, p);
	if (s.first == all.first && s.last == all.last)
		return glk_spill(arena, e, &way);
	if (glk_load_relaxed(&e->whole))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block at 0x%" PRIx64 " is contiguous, and moves as a whole",
			glk_load_relaxed(&e->addr));
	if (!arena->ops->fixed && glk_beside_placed(map, e))
		return is_placed(e);
	return glk_spill_range(arena, e, s, &way);
}

int glk_portion_leave(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_part_way *way, const struct glk_portion *p)
{
	const struct glk_map *map = &arena->map;
	struct glk_stretch s = glk_portion_slots(map, e, p, false);
	int err = glk_portion_check(e, p);

	/* other ranges of it may be out */
	if (!err && glk_advice_stays(arena, e))
		err = glk_spill_keeps(arena, e);
	if (err || glk_extent_away(e))
		return err;
	if (s.first + 1 > s.last + 1)
		return holds_no_slot(map, p);
	if (!arena->ops->fixed && glk_beside_placed(map, e))
		return is_placed(e);
	err = glk_spill_range(arena, e, s, way);
	return err == -EALREADY ? 0 : err;
}

/* ---- A victim ---- */

/* Without its contents where that was said, and it is not wanted again at once. */
int glk_spill_victim(struct glk_arena *arena, struct glk_extent *e)
{
	struct glk_part_way way = {0};
	struct glk_moving m;
	int err;

	if (!glk_away_take(arena->gpu, e, &m))
		return -EAGAIN;
	/* others may have had the lock meanwhile */
	if (!glk_advice_is(arena, e, GLAKE_ADVICE_COLD)) {
		err = -EAGAIN;
	} else {
		way.drop = !glk_prefetch_cold(arena->gpu, e) &&
			glk_advice_is(arena, e, GLAKE_ADVICE_DISCARDABLE);
		err = glk_spill(arena, e, &way);
	}
	glk_away_let_go(arena->gpu, e, &m);
	return err;
}
