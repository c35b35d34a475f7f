/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What becomes of hints: see outcome.h. */
#include "move/outcome.h"

#include "base/error.h"
#include "move/marks.h"
#include "move/ticket.h"

#include <errno.h>

void glk_prefetch_tell(const struct glk_hint *h, int state, int error)
{
	if (h->ticket)
		glk_ticket_end(h->ticket, state, error);
}

/* ---- Early or late ---- */

static void judge(struct glk_cache *cache, struct glk_hint *h, int64_t due, int64_t there)
{
	if (h->judged)
		return;
	h->judged = true;
	if (there <= due) {
		cache->prefetch.early++;
		glk_times_add(&cache->times[GLK_TIMED_EARLY], (uint64_t)(due - there));
	} else {
		cache->prefetch.late++;
		glk_times_add(&cache->times[GLK_TIMED_LATE], (uint64_t)(there - due));
	}
}

void glk_prefetch_land(struct glk_cache *cache)
{
	struct glk_hints *hints = cache->hints;
	struct glk_hint *h = hints ? glk_hint_flying(hints) : NULL;
	unsigned slot, left = GLK_PREFETCH_LANDS;

	if (!h)
		return;
	if (!glk_event_cover(&cache->streams,
		    glk_stream_enter(&cache->streams, cache->mover.back), &slot))
		glk_event_ask(&cache->streams);
	for (; h && left-- && glk_clock_finished(&cache->streams, &h->use);
		h = glk_hint_flying(hints)) {
		glk_hint_land(hints);
		h->ended = glk_clock_ns();
		glk_prefetch_tell(h, GLAKE_TICKET_DONE, 0);
		if (h->deadline != GLK_HINT_NEVER && !h->dropped)
			judge(cache, h, h->deadline, h->ended);
		if (h->fetched || h->dropped)
			glk_hint_end(hints, h);
	}
}

/* ---- Ends ---- */

void glk_prefetch_end(struct glk_hints *hints, struct glk_hint *h, int error)
{
	glk_hint_unqueue(hints, h);
	glk_prefetch_tell(h, GLAKE_TICKET_CANCELLED, error);
	glk_hint_end(hints, h);
}

/* One that is under way ends by itself, for nobody: its block may have another one. */
static void leave(struct glk_hints *hints, struct glk_hint *h)
{
	h->dropped = true;
	glk_hint_hide(hints, h);
}

void glk_prefetch_drop(struct glk_cache *cache, uint64_t addr)
{
	struct glk_hints *hints = cache->hints;
	struct glk_hint *h = glk_hint_find(hints, addr);

	if (!h)
		return;
	cache->prefetch.useless++;
	if (h->state == GLK_HINT_QUEUED) {
		glk_prefetch_end(hints, h, -ENOENT);
	} else if (h->state == GLK_HINT_LANDED) {
		glk_hint_end(hints, h);
	} else {
		leave(hints, h);
	}
}

static struct glk_hint *of(struct glk_cache *cache, const struct glk_extent *e)
{
	return cache->hints ? glk_hint_find(cache->hints, glk_load_relaxed(&e->addr))
			    : NULL;
}

void glk_prefetch_back(struct glk_cache *cache, const struct glk_extent *e)
{
	struct glk_hint *h = of(cache, e);

	if (!h || h->state != GLK_HINT_QUEUED)
		return;
	cache->prefetch.useless++;
	glk_prefetch_end(cache->hints, h, -EALREADY);
}

void glk_prefetch_hold(struct glk_cache *cache, const struct glk_extent *e)
{
	struct glk_hint *h = of(cache, e);

	if (!h || h->state != GLK_HINT_QUEUED)
		return;
	glk_hint_unqueue(cache->hints, h);
	h->state = GLK_HINT_HELD;
}

void glk_prefetch_let_go(
	struct glk_cache *cache, const struct glk_extent *e, bool fetched)
{
	struct glk_hint *h = of(cache, e);
	int64_t now = glk_clock_ns();

	if (!h || (!fetched && h->state != GLK_HINT_HELD))
		return;
	if (!fetched) {
		glk_hint_queue(cache->hints, h);
		return;
	}
	/* the program was faster */
	if (h->deadline == GLK_HINT_NEVER || h->deadline < now)
		judge(cache, h, h->deadline < now ? h->deadline : now - 1, now);
	else
		cache->prefetch.useless++;
	if (h->state == GLK_HINT_HELD) {
		glk_prefetch_tell(h, GLAKE_TICKET_CANCELLED, -EALREADY);
		glk_hint_end(cache->hints, h);
	} else {
		leave(cache->hints, h);
	}
}

bool glk_prefetch_cold(struct glk_cache *cache, const struct glk_extent *e)
{
	const struct glk_hint *h = of(cache, e);

	return h && h->cold;
}

void glk_prefetch_advised(struct glk_cache *cache, const struct glk_extent *e)
{
	struct glk_hint *h = of(cache, e);

	if (h)
		h->cold = false;
}

bool glk_prefetch_meet(
	struct glk_arena *arena, struct glk_extent *e, uint32_t on, int *ret_err)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_hints *hints = cache->hints;
	struct glk_hint *h = of(cache, e);
	int64_t now = glk_clock_ns();
	struct glk_stream *s;
	struct glk_use use;
	int err;

	if (!h)
		return false;
	/* something else brought it back; the one that is BEGUN finds out */
	if (h->state == GLK_HINT_QUEUED) {
		glk_prefetch_back(cache, e);
		return false;
	}
	if (h->state == GLK_HINT_BEGUN)
		return false;
	glk_prefetch_land(cache);
	s = glk_stream_enter(&cache->streams, on);
	use = h->use;
	err = glk_stream_silent(s) ? -EAGAIN : glk_clock_order(&cache->streams, &use, s);
	*ret_err = err == -EAGAIN
		? glk_error(-EBUSY, GLAKE_ERROR_CAPTURE, "the stream captures a graph")
		: err;
	if (err)
		return true;
	glk_marks_add(&cache->streams, e, on);
	h->fetched = true;
	if (h->deadline == GLK_HINT_NEVER)
		h->deadline = now;
	if (h->state == GLK_HINT_COPYING) {
		glk_hint_hide(hints, h);
	} else {
		judge(cache, h, h->deadline, h->ended);
		glk_hint_end(hints, h);
	}
	return true;
}
