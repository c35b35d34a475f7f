/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks that were freed and are kept, in the order of their frees. A kernel looks at some hundred of them at a time,
 * behind the stream that they were freed on. A block that was used on that stream alone serves again there, when one
 * of its size is asked for: so nothing is to be written, and an overrun is found by the look at whoever has it later.
 * One that was filled serves again when it was looked at. When more is kept than may be, the oldest go back.
 *
 * A kernel is queued on a stream of the program in a call that names the stream, since only then it is known to be
 * there; on the stream of guard itself, put behind all others that used the block, in any other call.
 */
#include "guard/guarded.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/thread.h"

static uint64_t bytes_of(const struct glk_guard_gone *k)
{
	return k->was.asked + glk_load_relaxed(&k->was.canary);
}

static enum glk_guard_kept kept_as(bool filled, uint64_t asked)
{
	return !filled && asked <= GLK_GUARD_KEPT_SMALL ? GLK_GUARD_SMALL
							: GLK_GUARD_LARGE;
}

/* What may be kept, but of small ones, which is asked for now and then. Canaries are for jobs that go on: a part of what is live, so that it
 * is little beside that, and enough for small jobs. What was filled is kept for as long as there is memory. */
static uint64_t most_bytes(struct glk_guard *g)
{
	uint64_t most = g->cache->memory / GLK_GUARD_KEPT_PART, may;
	struct glk_seats sum;

	if (glk_load_relaxed(&g->mode) >= GLK_GUARD_POISON)
		return most;
	if (g->freed >= g->most_until) {
		glk_seats_sum(g->cache, &sum);
		may = GLK_GUARD_KEPT_LEAST + sum.live / GLK_GUARD_KEPT_PART;
		g->most = may < most ? may : most;
		g->most_until = g->freed + GLK_GUARD_KEPT_ASK;
	}
	return g->most;
}

/* ---- Those that may serve again ---- */

static uint64_t *bucket_of(struct glk_guard *g, uint64_t size, uint32_t on)
{
	uint64_t hash = (size + ((uint64_t)on << 48)) * UINT64_C(0x9e3779b97f4a7c15);

	return &g->bucket[hash >> 32 & (GLK_GUARD_BUCKETS - 1)];
}

static void offer(struct glk_guard *g, uint64_t number)
{
	struct glk_guard_gone *k = glk_guard_gone(g, number);
	uint64_t *bucket = bucket_of(g, k->was.asked, k->on);

	k->older = *bucket;
	*bucket = number + 1;
}

/* Blocks that are passed by before a request is served elsewhere, under the lock. */
#define STEPS 64

struct glk_extent *glk_guard_take(struct glk_guard *g, uint64_t size, uint32_t on)
{
	bool filled = glk_load_relaxed(&g->mode) >= GLK_GUARD_POISON;
	uint64_t *link = bucket_of(g, size, on);

	for (unsigned steps = 0; *link > g->kept_first && steps < STEPS; steps++) {
		struct glk_guard_gone *k = glk_guard_gone(g, *link - 1);
		struct glk_guard_record *record = k->record;
		struct glk_extent *e = k->e;

		/* what serves nobody any more is met once */
		if (!e || k->serial != glk_guard_serial(g, k->on) ||
			(filled && !k->filled) || glk_load_relaxed(&record->said)) {
			*link = k->older;
			continue;
		}
		if (k->on != on || k->was.asked != size) {
			link = &k->older;
			continue;
		}
		*link = k->older;
		g->kept[kept_as(k->filled, size)].bytes -= bytes_of(k);
		k->e = NULL;
		g->again++;
		return e;
	}
	return NULL;
}

/* ---- Looks ---- */

/* What is looked at by one kernel. */
enum kind { CANARIES, SMALL, LARGE, KINDS };

static enum kind kind_of(const struct glk_guard_gone *k)
{
	if (!k->filled)
		return CANARIES;
	return k->was.asked > GLK_GUARD_PART ? LARGE : SMALL;
}

/* Which of them: of a stream, by its number, or, with 0, all; those that were put behind the stream of guard alone, or
 * `again`, those that were looked at too: their work has ended then, and none of them is any riper for it. */
struct which {
	uint32_t on;
	bool again;
};

static bool is_for(
	struct glk_guard *g, const struct glk_guard_gone *k, struct which which)
{
	if (!k->e || glk_load_relaxed(&k->record->said))
		return false;
	if (which.again)
		return true;
	if (!which.on)
		return !k->looked && k->ordered;
	return !k->looked && k->on == which.on &&
		k->serial == glk_guard_serial(g, which.on);
}

/* One kernel looks at some of a kind from a number on, which is moved behind them. False: it does not. */
static bool look_at_some(struct glk_guard *g, enum kind kind, struct which which,
	uint64_t *from, uint64_t to, struct CUstream_st *stream)
{
	uint64_t begin = *from, first = g->look_end, i;

	for (i = begin; i < to && g->look_end - first < GLK_GUARD_BATCH_MOST; i++) {
		const struct glk_guard_gone *k = glk_guard_gone(g, i);

		if (is_for(g, k, which) && kind_of(k) == kind &&
			!glk_guard_look_note(g, i, false))
			break;
	}
	if (g->look_end == first) {
		*from = i;
		return i == to;
	}
	if (!glk_guard_look_queue(g, first, stream))
		return false;
	*from = i;
	for (i = begin; i < *from; i++) {
		struct glk_guard_gone *k = glk_guard_gone(g, i);

		if (k->looked || !is_for(g, k, which) || kind_of(k) != kind ||
			(which.again && k->filled))
			continue;
		k->looked = true;
		if (k->filled && k->serves)
			offer(g, i);
	}
	return true;
}

void glk_guard_look_at(struct glk_guard *g, uint32_t on, struct CUstream_st *stream)
{
	struct glake_error why = glk_thread_current->error;
	uint64_t half = g->look_from + (g->freed - g->look_from + 1) / 2;
	const struct which which = {.on = on};

	g->unlooked = 0;
	g->unlooked_bytes = 0;
	if (!glk_guard_may_queue(g->cache, stream)) {
		glk_error_back(&why);
		return;
	}
	for (enum kind kind = CANARIES; kind < KINDS; kind++) {
		uint64_t from = g->look_from;

		/* what was filled stays longer, so that what is written late is found */
		look_at_some(g, kind, which, &from, kind ? half : g->freed, stream);
	}
	while (g->look_from < g->freed &&
		(!glk_guard_gone(g, g->look_from)->e ||
			glk_guard_gone(g, g->look_from)->looked))
		g->look_from++;
	glk_error_back(&why);
}

/* Behind the stream of guard, those before a number; 0, or the driver's error. */
static int look_at_each(struct glk_guard *g, struct which which, uint64_t to)
{
	struct glk_drv *drv = g->cache->drv;
	int err = glk_guard_stream(g);

	for (enum kind kind = CANARIES; kind < KINDS; kind++) {
		uint64_t from = g->kept_first;

		while (!err && from < to &&
			look_at_some(g, kind, which, &from, to, g->work.stream)) {
			if (from == to)
				break;
			err = drv->ops->stream_sync(
				drv, g->cache->device, g->work.stream);
			glk_guard_poll(g);
		}
	}
	if (!err)
		err = drv->ops->stream_sync(drv, g->cache->device, g->work.stream);
	glk_guard_poll(g);
	return err;
}

int glk_guard_look_at_all(struct glk_guard *g, uint64_t to)
{
	if (!g->work.ready)
		return 0;
	glk_guard_poll(g);
	return g->kept_first < to ? look_at_each(g, (struct which){.again = true}, to)
				  : 0;
}

/* ---- To and fro ---- */

/* Puts the stream of guard behind all that used it. */
static void order(struct glk_guard *g, struct glk_guard_gone *k)
{
	struct glk_cache *cache = g->cache;
	struct glake_error why = glk_thread_current->error;
	int err = glk_guard_stream(g);

	if (!err && !g->behind)
		err = glk_stream_get(&cache->streams, g->work.stream, NULL, &g->behind);
	if (!err)
		err = glk_guarded_order(cache, k->e, k->on, k->serial, g->behind);
	k->ordered = !err;
	glk_error_back(&why);
}

static void release(struct glk_guard *g, struct glk_guard_gone *k)
{
	if (!k->looked && !glk_load_relaxed(&k->record->said)) {
		g->looked--;
		g->unchecked++;
	}
	if (k->ordered)
		glk_guarded_release(
			g->cache, k->e, g->behind, glk_guard_serial(g, g->behind));
	else
		glk_guarded_release(g->cache, k->e, k->on, k->serial);
	g->kept[kept_as(k->filled, k->was.asked)].bytes -= bytes_of(k);
	k->e = NULL;
}

/* Passes by those that are not kept any more. */
static void pass(struct glk_guard *g)
{
	g->kept_first = g->freed;
	for (unsigned kind = 0; kind < GLK_GUARD_KEPT_KINDS; kind++) {
		uint64_t first = g->kept[kind].first;

		for (; first < g->freed; first++) {
			const struct glk_guard_gone *k = glk_guard_gone(g, first);

			if (k->e && kept_as(k->filled, k->was.asked) == kind)
				break;
		}
		g->kept[kind].first = first;
		if (g->kept_first > first)
			g->kept_first = first;
	}
	if (g->look_from < g->kept_first)
		g->look_from = g->kept_first;
}

/* One of them goes back, by its number, in a call that names a stream. */
static void let_go(
	struct glk_guard *g, uint64_t number, uint32_t on, struct CUstream_st *stream)
{
	struct glk_guard_gone *k = glk_guard_gone(g, number);
	uint64_t first = g->look_end;

	if (k->e && !k->looked && k->on == on)
		glk_guard_look_at(g, on, stream);
	if (k->e && !k->looked) {
		order(g, k);
		if (k->ordered && glk_guard_look_note(g, number, false))
			k->looked = glk_guard_look_queue(g, first, g->work.stream);
	}
	if (k->e)
		release(g, k);
	pass(g);
}

bool glk_guard_let_all_go(struct glk_guard *g)
{
	bool any = false;

	for (uint64_t i = g->kept_first; i < g->freed; i++) {
		struct glk_guard_gone *k = glk_guard_gone(g, i);

		any |= k->e != NULL;
		if (k->e && !k->looked)
			order(g, k);
	}
	if (any)
		look_at_each(g, (struct which){.on = 0}, g->freed);
	for (uint64_t i = g->kept_first; i < g->freed; i++)
		if (glk_guard_gone(g, i)->e)
			release(g, glk_guard_gone(g, i));
	pass(g);
	g->look_from = g->freed;
	return any;
}

bool glk_guard_make_place(struct glk_guard *g, uint32_t on, struct CUstream_st *stream)
{
	if (g->freed - g->kept_first == GLK_GUARD_GONE)
		let_go(g, g->kept_first, on, stream);
	return g->look_first == g->look_end ||
		g->freed - g->look[g->look_first % GLK_GUARD_LOOKS].gone < GLK_GUARD_GONE;
}

/* What a block that is filled asks for: that the stream is behind all that used it, and the kernel. */
static bool fill(
	struct glk_guard *g, const struct glk_guard_gone *k, struct glk_extent *e)
{
	struct glake_error why = glk_thread_current->error;
	bool filled = glk_guard_may_queue(g->cache, k->stream) &&
		!glk_guarded_order(g->cache, e, k->on, k->serial, k->on) &&
		!glk_guard_write(g, k->was.addr, k->was.asked, 0, 0, k->stream);

	glk_error_back(&why);
	return filled;
}

bool glk_guard_keep(struct glk_guard *g, struct glk_extent *e)
{
	bool filled = glk_load_relaxed(&g->mode) >= GLK_GUARD_POISON;
	struct glk_guard_gone *k = glk_guard_gone(g, g->freed - 1);
	/* asked for once: the mode may change meanwhile */
	enum glk_guard_kept kind = kept_as(filled, k->was.asked);
	uint64_t bytes = bytes_of(k),
		 most = kind == GLK_GUARD_SMALL ? GLK_GUARD_KEPT_LEAST : most_bytes(g);

	k->serves = glk_guarded_only_on(e, k->on) &&
		(k->serial || !glk_stream_key(k->stream));
	/* others may have the memory of one that is out until they let it go */
	if (bytes > most || glk_load_relaxed(&e->bin) != GLK_BIN_MARKED ||
		(filled ? !fill(g, k, e) : !k->serves))
		return false;
	while (g->kept[kind].bytes + bytes > most) {
		pass(g);
		let_go(g, g->kept[kind].first, k->on, k->stream);
	}
	glk_guarded_keep(g->cache, e);
	k->filled = filled;
	k->e = e;
	/* others were let go meanwhile */
	if (g->look_from == g->freed)
		g->look_from--;
	if (g->kept[kind].first == g->freed)
		g->kept[kind].first--;
	if (g->kept_first == g->freed)
		g->kept_first--;
	if (!filled)
		offer(g, g->freed - 1);
	g->kept[kind].bytes += bytes;
	g->filled += filled;
	g->unlooked++;
	g->unlooked_bytes += filled ? bytes : 0;
	if (g->unlooked >= GLK_GUARD_BATCH || g->unlooked_bytes > most / 4)
		glk_guard_look_at(g, k->on, k->stream);
	return true;
}
