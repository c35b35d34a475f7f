/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Exchanges one after the other: see exchange.h. */
#include "cache/advice.h"
#include "cache/arena/request.h"
#include "cache/block.h"
#include "cache/exchange.h"

#include <errno.h>

/* One that is away leaves nothing here that could have to stay. Of one that is so in part the rest goes, and
 * what is away stays so. */
static bool claim(const struct glk_arena *arena, struct glk_extent *e)
{
	if (!glk_word_claim(&e->word, &e->addr, glk_load_relaxed(&e->addr)))
		return false;
	if (glk_extent_away(e) || (!glk_pin_is_out(e) && !glk_advice_stays(arena, e)))
		return true;
	glk_extent_set(e, GLK_EXTENT_LIVE);
	return false;
}

/* Whether a part of the line has claimed an extent: it has all that touch its run. */
static bool has(const struct glk_line_part *part, const struct glk_extent *e)
{
	return part && glk_extent_state(e) == GLK_EXTENT_QUICK &&
		glk_exchange_touches(part->x.map, e, &part->x.run);
}

/* Lets go of the extents of a run before one of them, NULL: of all; but for those that another part has. */
static void let_go(const struct glk_exchange *x, const struct glk_line_part *other,
	const struct glk_extent *before)
{
	struct glk_extent *e = glk_exchange_first(x->map, x->e, &x->run);

	for (; e && e != before; e = glk_exchange_after(x->map, e, &x->run)) {
		if (!has(other, e))
			glk_extent_set(e, GLK_EXTENT_LIVE);
	}
}

/* All or none. Somebody frees one, or looks at it, or it is out or pinned: then the run stays where it is. */
static bool claim_all(const struct glk_exchange *x, const struct glk_line_part *other)
{
	struct glk_extent *e = glk_exchange_first(x->map, x->e, &x->run);

	for (; e; e = glk_exchange_after(x->map, e, &x->run)) {
		if (!has(other, e) && !claim(x->arena, e)) {
			let_go(x, other, e);
			return false;
		}
	}
	return true;
}

static enum glake_move_way way_of(enum glk_way way)
{
	return way == GLK_TO_HOST ? GLAKE_MOVE_OUT : GLAKE_MOVE_IN;
}

/* Those of a run before one of them; NULL: all. One that is away is moved by nobody here. */
static void tell_after(
	const struct glk_line_part *part, const struct glk_extent *before, int err)
{
	const struct glk_exchange *x = &part->x;
	struct glk_extent *e = glk_exchange_first(x->map, x->e, &x->run);

	for (; e && e != before; e = glk_exchange_after(x->map, e, &x->run)) {
		if (!glk_extent_away(e))
			glk_tell_after(x->arena, e, way_of(x->way), &part->telling, err);
	}
}

/* One that has to stay keeps all. */
static int tell_before(struct glk_line_part *part)
{
	const struct glk_exchange *x = &part->x;
	struct glk_extent *e = glk_exchange_first(x->map, x->e, &x->run);

	for (; e; e = glk_exchange_after(x->map, e, &x->run)) {
		if (!glk_extent_away(e) &&
			glk_tell_before(x->arena, e, way_of(x->way), &part->telling)) {
			tell_after(part, e, -EBUSY);
			return -EAGAIN;
		}
	}
	return 0;
}

/* What lies on the host goes to no bin: others would find it there. */
static void leave_bins(const struct glk_exchange *x)
{
	struct glk_extent *e = glk_exchange_first(x->map, x->e, &x->run);

	for (; e; e = glk_exchange_after(x->map, e, &x->run))
		glk_block_to_no_bin(e);
}

/* From the beginning of the first extent to the end of the last: who names one of them waits. */
static struct glk_moving moving_of(const struct glk_exchange *x)
{
	const struct glk_extent *last = glk_exchange_first(x->map, x->e, &x->run);
	uint64_t addr = glk_slot_addr(x->map, x->run.first), begin = last->offset;
	uint64_t offset = (uint64_t)x->run.first << x->map->shift, end = begin;

	for (struct glk_extent *e = (struct glk_extent *)last; e;
		e = glk_exchange_after(x->map, e, &x->run))
		end = e->offset + e->size;
	return (struct glk_moving){.addr = addr - offset + begin, .size = end - begin};
}

static int begin(struct glk_line *line, struct glk_line_part *part, struct glk_extent *e,
	const struct glk_run *run)
{
	struct glk_arena *arena = line->arena;
	int err;

	*part = (struct glk_line_part){.x = {.arena = arena,
					       .map = &arena->map,
					       .e = e,
					       .run = *run,
					       .way = line->way}};
	if (!claim_all(&part->x, line->under_way))
		return -EAGAIN;
	part->m = moving_of(&part->x);
	glk_away_announce(arena->gpu, &part->m);
	/* thousands of small ones take as long as others may wait */
	glk_lock_yield(&arena->gpu->lock);
	err = tell_before(part);
	if (!err) {
		err = glk_exchange_prepare(&part->x);
		if (!err)
			return 0;
		tell_after(part, NULL, err);
	}
	let_go(&part->x, line->under_way, NULL);
	glk_away_done(arena->gpu, &part->m);
	return err;
}

/* Pages of the GPU that are free go back to the driver while it is suspended, and contents of others are on
 * the link. */
static void release(struct glk_cache *cache)
{
	if (glk_load_relaxed(&cache->suspended))
		glk_trim_drain(cache, cache->node, UINT64_MAX);
}

/* `other`: what else is under way. */
static void finish(
	struct glk_line *line, struct glk_line_part *part, struct glk_line_part *other)
{
	int err = glk_exchange_finish(&part->x);

	/* the plan is closed: nothing new comes to lie there */
	glk_lock_yield(&line->arena->gpu->lock);
	if (!err && line->way == GLK_TO_HOST)
		leave_bins(&part->x);
	tell_after(part, NULL, err);
	let_go(&part->x, other, NULL);
	glk_away_done(line->arena->gpu, &part->m);
	line->err = line->err ? line->err : err;
	if (line->way == GLK_TO_HOST)
		release(line->arena->gpu);
}

bool glk_line_has(const struct glk_line *line, const struct glk_extent *e)
{
	return has(line->under_way, e);
}

int glk_line_end(struct glk_line *line)
{
	struct glk_line_part *part = line->under_way;

	if (part) {
		glk_exchange_await(&part->x);
		line->under_way = NULL;
		finish(line, part, NULL);
	}
	return line->err;
}

int glk_line_add(struct glk_line *line, struct glk_extent *e, const struct glk_run *run)
{
	struct glk_line_part *before = line->under_way;
	struct glk_line_part *part = &line->part[before == &line->part[0]];
	int err;

	if (line->err)
		return line->err;
	err = begin(line, part, e, run);
	/* it may lack what the one before has in its hands */
	if (err && before) {
		if (glk_line_end(line))
			return line->err;
		before = NULL;
		/* the lock was given up: it may have been freed */
		err = glk_extent_state(e) == GLK_EXTENT_LIVE ? begin(line, part, e, run)
							     : -EAGAIN;
	}
	if (err)
		return err;
	if (before)
		glk_exchange_await(&before->x);
	glk_exchange_launch(&part->x);
	line->under_way = part;
	if (before)
		finish(line, before, part);
	/* functions of the program are told of one move after the other */
	return line->err || line->arena->gpu->hearing ? glk_line_end(line) : 0;
}
