/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How far contents on their way are: the GPU is asked by events on the two streams that carry them, so
 * nothing is done for a ticket that nobody asks about. A wait with a limit asks again and again, less
 * often the longer it has waited, since the driver knows none.
 */
#include "base/error.h"
#include "cache/asked.h"
#include "cache/cache.h"

#include <errno.h>
#include <time.h>

#define SHORTEST 20000	 /* ns between two looks */
#define LONGEST	 1000000 /* likewise */

/* What was queued on a stream so far. */
static uint64_t queued_on(struct glk_cache *cache, uint32_t stream)
{
	return glk_stream_enter(&cache->streams, stream)->freed;
}

void glk_told_before(struct glk_arena *arena, const struct glk_extent *e, uint32_t on,
	bool to_gpu, struct glk_told *told)
{
	struct glk_cache *cache = arena->gpu;

	*told = (struct glk_told){.bytes = glk_extent_asked(e)};
	if (arena->ops->move)
		return; /* the order of the stream is all there is */
	told->way = to_gpu ? cache->mover.back : cache->mover.out;
	told->behind = queued_on(cache, told->way);
	if (to_gpu && glk_extent_lacks(e))
		told->before = glk_stream_use(
			glk_stream_enter(&cache->streams, cache->mover.out),
			queued_on(cache, cache->mover.out));
	else if (!glk_extent_away(e))
		told->before = glk_block_use(cache, e, on);
}

void glk_told_after(
	struct glk_arena *arena, uint32_t on, bool to_gpu, struct glk_told *told)
{
	struct glk_cache *cache = arena->gpu;
	uint32_t way = arena->ops->move ? on
		: to_gpu		? cache->mover.back
					: cache->mover.out;
	struct glk_stream *s = glk_stream_enter(&cache->streams, way);

	told->after = glk_stream_use(s,
		arena->ops->move ? glk_clock_tick(&cache->streams, s)
				 : queued_on(cache, way));
}

static bool has_finished(struct glk_cache *cache, const struct glk_use *use)
{
	return !use->streams || glk_clock_finished(&cache->streams, use);
}

/* Nothing is in front of it any more. */
static bool has_begun(struct glk_cache *cache, const struct glk_told *told)
{
	const struct glk_stream *way =
		told->way ? glk_stream_enter(&cache->streams, told->way) : NULL;

	return has_finished(cache, &told->before) && (!way || way->done >= told->behind);
}

/* An event tells of what the stream of a copy had to do so far, if one can be had. */
static int cover(struct glk_cache *cache, const struct glk_told *told)
{
	struct glk_stream *s;
	unsigned slot;
	int err;

	if (!told->way) {
		glk_event_poll(&cache->streams);
		return 0;
	}
	s = glk_stream_enter(&cache->streams, told->way);
	err = glk_event_cover(&cache->streams, s, &slot);
	if (!err)
		glk_event_ask(&cache->streams);
	return err == -EAGAIN ? 0 : err;
}

/* Nothing is under way for it yet. */
static bool is_hint(const struct glk_ticket *t)
{
	return t->kind == GLAKE_TICKET_PREFETCH && t->state == GLAKE_TICKET_QUEUED;
}

static int look(struct glk_cache *cache, struct glk_ticket *t)
{
	int err;

	glk_prefetch_land(cache);
	err = glk_ticket_read(t->number, t);
	if (err || glk_ticket_has_ended(t) || is_hint(t))
		return err;
	if (!has_finished(cache, &t->told.after)) {
		err = cover(cache, &t->told);
		if (err)
			return err;
	}
	if (has_finished(cache, &t->told.after)) {
		t->state = GLAKE_TICKET_DONE;
		t->ended = glk_clock_ns();
		t->begun = t->begun ? t->begun : t->ended;
	} else if (t->state == GLAKE_TICKET_QUEUED && has_begun(cache, &t->told)) {
		t->state = GLAKE_TICKET_COPYING;
		t->begun = glk_clock_ns();
	} else {
		return 0;
	}
	glk_ticket_write(t);
	return 0;
}

int glk_cache_ticket_look(struct glk_cache *cache, struct glk_ticket *t)
{
	int err;

	glk_lock(&cache->lock);
	err = look(cache, t);
	glk_unlock(&cache->lock);
	return err;
}

static int tell(const struct glk_ticket *t)
{
	if (t->state == GLAKE_TICKET_DONE)
		return 0;
	if (t->state == GLAKE_TICKET_CANCELLED)
		return glk_error(
			-ECANCELED, GLAKE_ERROR_AGAIN, "the prefetch was cancelled");
	return glk_error(t->error, GLAKE_ERROR_DRIVER,
		"the prefetch failed with error %d", -t->error);
}

/* For as long as is left, no longer than is good between two looks. */
static void rest(int64_t *step, int64_t left)
{
	struct timespec ts;

	if (left >= 0 && left < *step)
		*step = left;
	ts.tv_sec = 0;
	ts.tv_nsec = *step;
	nanosleep(&ts, NULL);
	*step = *step * 2 > LONGEST ? LONGEST : *step * 2;
}

/* Behind the copy, by the driver's wait. */
static int finish(struct glk_cache *cache, const struct glk_ticket *t)
{
	int err;

	glk_lock(&cache->lock);
	err = glk_clock_sync_use(&cache->streams, &t->told.after);
	glk_unlock(&cache->lock);
	return err;
}

int glk_cache_ticket_wait(struct glk_cache *cache, struct glk_ticket *t, int64_t ns)
{
	int64_t until = 0, now, step = SHORTEST;
	bool synced = false;
	int err;

	if (ns > 0 && __builtin_add_overflow(glk_clock_ns(), ns, &until))
		until = INT64_MAX;
	for (;;) {
		glk_prefetch_pump(cache);
		err = glk_cache_ticket_look(cache, t);
		if (err)
			return err;
		if (glk_ticket_has_ended(t))
			return tell(t);
		if (ns >= 0 && (!ns || (now = glk_clock_ns()) >= until))
			return glk_error(-ETIMEDOUT, GLAKE_ERROR_AGAIN,
				"the contents are still on their way");
		/* a capture may be in the way of the driver's wait, and then it is asked */
		if (ns < 0 && !synced && !is_hint(t)) {
			synced = true;
			err = finish(cache, t);
			if (err && err != -EBUSY)
				return err;
		} else {
			rest(&step, ns < 0 ? -1 : until - now);
		}
	}
}
