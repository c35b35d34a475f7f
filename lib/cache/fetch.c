/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks and ranges of them come back: see part.h. What comes back comes stretch by stretch, each with pages of its
 * own measure, whatever pieces it went in. A mapping waits for the copies to the GPU that were queued before it, so
 * stretches are mapped first, many of them, and then their copies are queued.
 */
#include "cache/fetch.h"

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/cache.h"
#include "cache/sealed.h"

#include <errno.h>
#include <inttypes.h>

struct coming {
	struct glk_arena *arena;
	struct glk_extent *e;
	struct glk_stretch s; /* that comes at once */
	uint32_t on;
	bool forgets; /* its contents are wanted by nobody */
	bool large;   /* see struct glk_part_way */
	bool one;     /* it is a page of several slots, which several ranges have */
	uint32_t spare
		[2]; /* runs of the store, for what is left of the pieces at its ends */
	struct glk_use use;
};

/* The part of a piece that lies in the stretch. */
static struct glk_stretch part_of(const struct coming *c, const struct glk_piece *p)
{
	return (struct glk_stretch){p->s.first < c->s.first ? c->s.first : p->s.first,
		p->s.last > c->s.last ? c->s.last : p->s.last};
}

/* What is kept of a piece is what was sent. 0, or -EIO with a warning. */
static int check(struct coming *c, const struct glk_piece *p)
{
	struct glk_cache *cache = c->arena->gpu;
	int err = glk_verify_check(&cache->mover, glk_seal_run(cache, p->word));

	if (err)
		glk_warn("GPU %d: the block at 0x%" PRIx64 " stays away: %s",
			cache->device, glk_load_relaxed(&c->e->addr),
			glk_thread_current->error.text);
	return err;
}

/* Before anything moves: all pieces are sound, and there are runs for what stays of them. */
static int prepare(struct coming *c)
{
	struct glk_stretch in;

	for (uint32_t slot = c->s.first; slot <= c->s.last; slot = in.last + 1) {
		struct glk_piece p = glk_part_piece(c->arena, c->e, slot);
		bool before = p.s.first < c->s.first,
		     cut = before || p.s.last > c->s.last;
		bool checked = glk_seal_run(c->arena->gpu, p.word) && !c->forgets;
		int err = checked ? check(c, &p) : 0;

		in = part_of(c, &p);
		if (err)
			return err;
		if (!cut || !(p.word & GLK_KEPT_RUN))
			continue;
		err = glk_pack_loosen(&c->arena->gpu->mover, p.word & GLK_KEPT_RUN);
		if (err)
			return err;
		c->spare[!before] = glk_slab_get(&c->arena->gpu->mover.store.runs);
		if (!c->spare[!before])
			return -ENOMEM;
	}
	return 0;
}

static void give_spares(struct coming *c)
{
	for (int i = 0; i < 2; i++) {
		if (c->spare[i])
			glk_slab_put(&c->arena->gpu->mover.store.runs, c->spare[i]);
	}
}

int glk_fetch_nothing(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s)
{
	struct coming c = {.arena = arena, .e = e, .s = s, .forgets = true};
	int err = prepare(&c);

	if (err)
		give_spares(&c);
	else
		glk_part_strip(arena, e, s, c.spare);
	return err;
}

static int copy_back(struct coming *c, const struct glk_piece *p, struct glk_stretch s)
{
	const struct glk_map *map = &c->arena->map;
	struct glk_cache *cache = c->arena->gpu;
	uint32_t run = glk_seal_run(cache, p->word);
	uint64_t at, addr, bytes = glk_part_span(map, c->e, s, &addr);

	if (!run || !bytes)
		return 0;
	glk_part_span(map, c->e, p->s, &at);
	return glk_move_back(&cache->mover, run, addr - at, bytes, addr, &c->use);
}

/* All contents of the stretch, and the stream behind them. */
static int fill(struct coming *c)
{
	struct glk_streams *streams = &c->arena->gpu->streams;
	struct glk_stream *back = glk_stream_enter(streams, c->arena->gpu->mover.back);
	struct glk_stream *on = c->on ? glk_stream_enter(streams, c->on) : NULL;
	struct glk_stretch in;
	uint64_t addr, bytes = glk_part_span(&c->arena->map, c->e, c->s, &addr);
	int err = glk_mover_enter_back(&c->arena->gpu->mover, bytes);
	struct glk_use use;

	c->use = glk_stream_use(back, glk_clock_tick(streams, back));
	for (uint32_t slot = c->s.first; slot <= c->s.last && !err; slot = in.last + 1) {
		struct glk_piece p = glk_part_piece(c->arena, c->e, slot);

		in = part_of(c, &p);
		err = copy_back(c, &p, in);
	}
	use = c->use;
	/* it may have been announced for a capture meanwhile */
	if (!err && on)
		err = glk_stream_silent(on) ? -EAGAIN
					    : glk_clock_order(streams, &use, on);
	return err == -EAGAIN
		? glk_error(-EBUSY, GLAKE_ERROR_CAPTURE, "the stream captures a graph")
		: err;
}

/* Pages. */
static int back(struct coming *c)
{
	struct glk_cache *cache = c->arena->gpu;
	struct glk_map *map = &c->arena->map;
	struct glk_request request = {.patient = true,
		.run = &c->s,
		.single = glk_part_is_single(cache, c->e) && !c->large,
		.one = c->one,
		.trim = c->large};
	uint64_t addr;
	int err;

	request.size = glk_part_span(map, c->e, c->s, &addr);
	request.rounded = (uint64_t)(c->s.last - c->s.first + 1) << map->shift;
	request.stream = glk_stream_enter(
		&cache->streams, glk_mover_entry(&cache->mover, false, request.size));
	/* it went from the GPU, at least in part, and comes back there */
	request.node = cache->node;
	/* whatever lies there idle is not that page */
	err = c->one ? glk_arena_clear(c->arena, c->s.first, c->s.last) : 0;
	if (err)
		return err;
	return glk_arena_back(c->arena, &request, glk_extent_id(map, c->e));
}

static int fill_backed(struct coming *c)
{
	int err = fill(c);

	if (err)
		glk_slots_leave(&c->arena->map, c->s.first, c->s.last, &c->use);
	return err;
}

/* A piece that was sealed: with the page that another one of it has, or with one of its own that others will
 * have. */
static int come_sealed(struct coming *c)
{
	uint32_t word = *glk_part_word(c->arena, c->e, c->s.first);
	int err;

	if (glk_seal_is_here(c->arena->gpu, word))
		return glk_seal_come(c->arena, c->e, c->s.first);
	c->one = c->s.first < c->s.last;
	err = back(c);
	if (!err)
		err = fill_backed(c);
	if (!err)
		glk_seal_came(c->arena, c->e, c->s.first, word);
	return err;
}

static bool is_sealed(const struct coming *c)
{
	return glk_part_piece(c->arena, c->e, c->s.first).word & GLK_KEPT_SEALED;
}

/* The pieces at its ends, of which something stays. */
static void keep_ends(struct coming *c)
{
	struct glk_stretch all = glk_part_all(&c->arena->map, c->e);

	if (c->s.first > all.first)
		glk_part_hash(c->arena, c->e,
			(struct glk_stretch){c->s.first - 1, c->s.first - 1});
	if (c->s.last < all.last)
		glk_part_hash(c->arena, c->e,
			(struct glk_stretch){c->s.last + 1, c->s.last + 1});
}

/* Stretches of a block that come together. */
#define TOGETHER 64

struct fetching {
	struct glk_arena *arena;
	struct glk_extent *e;
	uint32_t on, count;
	bool large;
	struct coming coming[TOGETHER]; /* that have pages */
};

/* A piece that was sealed may come with the page that the one before it has: not until that has come. */
static int begin(struct coming *c)
{
	int err = prepare(c);

	if (!err && !is_sealed(c))
		err = back(c);
	if (err)
		give_spares(c);
	return err;
}

static int end(struct coming *c)
{
	struct glk_arena *arena = c->arena;
	struct glk_cache *cache = arena->gpu;
	struct glk_extent *e = c->e;
	uint64_t addr;
	int err = is_sealed(c) ? come_sealed(c) : fill_backed(c);

	if (err) {
		give_spares(c);
		return err;
	}
	glk_beside_count(arena, e, false);
	glk_part_arrive(arena, e, c->s, c->use.tick, c->spare);
	/* what is said of the slots of one that is away counts no slots */
	glk_store_release(&e->bin, GLK_EXTENT_PART); /* pairs with: glk_extent_part */
	glk_beside_count(arena, e, true);
	glk_away_mark(cache, e, c->on ? c->on : cache->mover.back);
	keep_ends(c);
	cache->fetched += glk_part_span(&arena->map, e, c->s, &addr);
	GLK_PROBE3(fetch, cache->device, glk_load_relaxed(&e->addr),
		glk_part_span(&arena->map, e, c->s, &addr));
	return 0;
}

/* Those that have pages come, each whatever becomes of the others. */
static int end_all(struct fetching *f)
{
	int err = 0;

	for (uint32_t i = 0; i < f->count; i++) {
		int failed = end(&f->coming[i]);

		err = err ? err : failed;
	}
	f->count = 0;
	return err;
}

/* Of a piece that was cut another stretch may be the next one to come. */
static int come(struct fetching *f, struct glk_stretch s)
{
	struct coming *c = &f->coming[f->count];
	int err;

	*c = (struct coming){
		.arena = f->arena, .e = f->e, .s = s, .on = f->on, .large = f->large};
	err = begin(c);
	if (err)
		return err;
	f->count++;
	return f->count == TOGETHER || c->spare[0] || c->spare[1] ? end_all(f) : 0;
}

/* Whether a piece is to come: with flags one that has any of them. */
static bool comes(const struct glk_piece *p, uint32_t flags)
{
	return !flags || p->word & flags;
}

/* The next stretch that is to come, from a slot on, of pieces side by side. */
static struct glk_stretch next_gone(const struct glk_arena *arena,
	const struct glk_extent *e, uint32_t slot, uint32_t last, uint32_t flags)
{
	struct glk_stretch all = glk_part_kept(&arena->map, e, slot, last), s = {1, 0};
	bool some = flags || glk_part_at(arena->gpu, e)->elastic;
	struct glk_piece p;

	while (some && all.first <= all.last) {
		p = glk_part_piece(arena, e, all.first);
		if (p.word & GLK_KEPT_SEALED && comes(&p, flags))
			return s.first <= s.last ? s : p.s;
		if (comes(&p, flags)) {
			s.first = s.first > s.last ? all.first : s.first;
			s.last = p.s.last < last ? p.s.last : last;
		} else if (s.first <= s.last) {
			return s;
		}
		all = glk_part_kept(&arena->map, e, p.s.last + 1, last);
		if (s.first <= s.last && all.first != s.last + 1)
			return s;
	}
	return some ? s : all;
}

static bool is_any_gone(const struct glk_arena *arena, const struct glk_extent *e,
	const struct glk_portion *portions, size_t count, uint32_t flags)
{
	for (size_t i = 0; i < count; i++) {
		struct glk_stretch s =
			glk_portion_slots(&arena->map, e, &portions[i], true);

		s = next_gone(arena, e, s.first, s.last, flags);
		if (s.first <= s.last)
			return true;
	}
	return false;
}

static int come_all(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_portion *portions, size_t count, const struct glk_part_way *way)
{
	struct fetching f;
	int err = 0, failed;

	f.arena = arena;
	f.e = e;
	f.on = way->on;
	f.large = way->large;
	f.count = 0;
	for (size_t i = 0; i < count && !err; i++) {
		struct glk_stretch s =
			glk_portion_slots(&arena->map, e, &portions[i], true);
		struct glk_stretch in = next_gone(arena, e, s.first, s.last, way->why);

		for (; !err && in.first <= in.last;
			in = next_gone(arena, e, in.last + 1, s.last, way->why))
			err = come(&f, in);
	}
	failed = end_all(&f);
	return err ? err : failed;
}

int glk_fetch_portions(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_portion *portions, size_t count, const struct glk_part_way *way)
{
	const struct glk_portion all = {0, glk_extent_asked(e)};
	int64_t since = glk_clock_ticks();
	struct glk_telling telling = {0};
	int err;

	if (glk_load_relaxed(&e->whole)) {
		portions = &all;
		count = 1;
	}
	if (!glk_part_is(e) || !is_any_gone(arena, e, portions, count, way->why))
		return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " is here as far as it was asked for",
			glk_load_relaxed(&e->addr));
	err = glk_tell_before(arena, e, GLAKE_MOVE_BACK, &telling);
	if (err)
		return err;
	err = come_all(arena, e, portions, count, way);
	glk_part_settle(arena, e, way->on, err);
	if (!err) {
		arena->gpu->fetches++;
		glk_times_since(&arena->gpu->times[GLK_TIMED_FETCH], since);
	}
	if (!err && !glk_extent_lacks(e))
		glk_prefetch_back(arena->gpu, e);
	glk_tell_after(arena, e, GLAKE_MOVE_BACK, &telling, err);
	return err;
}

int glk_fetch(
	struct glk_arena *arena, struct glk_extent *e, const struct glk_part_way *way)
{
	const struct glk_portion all = {0, glk_extent_asked(e)};

	return glk_fetch_portions(arena, e, &all, 1, way);
}
