/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ranges of an elastic block have the pages of other ranges of it: see seal.h. */
#include "base/error.h"
#include "cache/plan.h"
#include "cache/seal.h"

#include <errno.h>
#include <inttypes.h>

/* Pages that are mapped between two looks at the tables. */
#define BATCH 64

struct share {
	struct glk_arena *arena;
	struct glk_extent *e;
	const struct glk_shares *all;
	struct CUstream_st *stream;
	uint64_t done; /* pages, from the first range on */
};

static uint32_t first_of(const struct share *s, uint64_t offset)
{
	return glk_slot_of(&s->arena->map, s->e->offset + offset);
}

static uint64_t pages_of(const struct share *s, const struct glk_sharing *r)
{
	return r->bytes >> s->arena->map.shift;
}

static int is_not_free(const struct share *s, uint64_t offset)
{
	return glk_error(-EEXIST, GLAKE_ERROR_BUSY,
		"the block at 0x%" PRIx64 " has memory at %" PRIu64 " already",
		glk_load_relaxed(&s->e->addr), offset);
}

static int is_away(void)
{
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"what is to be shared is away, or not committed");
}

/* Of a range that was checked: another one of the call may have come to lie there since. */
static bool is_free(const struct share *s, uint32_t first, uint32_t last)
{
	struct glk_stretch bare = glk_part_bare(&s->arena->map, first, last);

	return bare.first == first && bare.last == last;
}

static bool is_here(const struct share *s, uint64_t offset, uint64_t bytes)
{
	uint32_t last = first_of(s, offset + bytes - 1);
	struct glk_stretch gone =
		glk_part_next(&s->arena->map, s->e, first_of(s, offset), last, true);

	return gone.first > gone.last;
}

/* A page of the GPU, of one slot, on which the block stands. */
static int check_from(const struct share *s, uint32_t slot)
{
	const struct glk_map *map = &s->arena->map;

	if (glk_part_gone(map, s->e, slot))
		return is_away();
	if (glk_bit_get(map->wide, slot) || glk_map_is_host(map, map->page[slot]))
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"only pages of one slot of the GPU are shared");
	return 0;
}

static int check_range(const struct share *s, const struct glk_sharing *r)
{
	uint64_t part = glk_slot_bytes(&s->arena->map) - 1;
	uint64_t asked = glk_extent_asked(s->e);
	int err = 0;

	if (!r->bytes || (r->from | r->to | r->bytes) & part)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%" PRIu64 " bytes at %" PRIu64 " and %" PRIu64
			" are no whole pages",
			r->bytes, r->from, r->to);
	if (r->from >= asked || r->bytes > asked - r->from || r->to >= asked ||
		r->bytes > asked - r->to)
		return glk_error(-ERANGE, GLAKE_ERROR_INVAL,
			"%" PRIu64 " bytes at %" PRIu64 " and %" PRIu64
			" reach past an elastic block of %" PRIu64 " bytes",
			r->bytes, r->from, r->to, asked);
	for (uint64_t i = 0; i < pages_of(s, r) && !err; i++) {
		uint32_t to = first_of(s, r->to) + (uint32_t)i;

		err = check_from(s, first_of(s, r->from) + (uint32_t)i);
		if (!err && !glk_bit_get(s->arena->map.bare, to))
			err = is_not_free(s, r->to + (i << s->arena->map.shift));
		glk_plan_step(s->arena->gpu);
	}
	return err;
}

static int check(const struct share *s)
{
	int err = 0;

	if (!glk_part_is_elastic(s->arena->gpu, s->e))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block at 0x%" PRIx64 " is not elastic",
			glk_load_relaxed(&s->e->addr));
	for (size_t i = 0; i < s->all->count && !err; i++)
		err = check_range(s, &s->all->pages[i]);
	return err;
}

static int check_copies(const struct share *s)
{
	for (size_t i = 0; i < s->all->copied; i++) {
		const struct glk_sharing *c = &s->all->copies[i];

		if (!is_here(s, c->from, c->bytes) || !is_here(s, c->to, c->bytes))
			return is_away();
	}
	return 0;
}

/* The pages of a run, sealed. Whether some were not yet. */
static bool seal(struct share *s, uint32_t slot, uint32_t count, uint32_t *pages)
{
	const struct glk_map *map = &s->arena->map;
	bool some = false;

	for (uint32_t i = 0; i < count; i++) {
		pages[i] = map->page[slot + i];
		some |= glk_seal_page(s->arena, s->e, slot + i);
	}
	return some;
}

static int share_range(struct share *s, const struct glk_sharing *r)
{
	uint32_t from = first_of(s, r->from), to = first_of(s, r->to);
	uint32_t left = (uint32_t)pages_of(s, r), pages[BATCH], none[2] = {0, 0};
	int err = 0;

	while (left && !err) {
		uint32_t n = left < BATCH ? left : BATCH;

		if (!is_free(s, to, to + n - 1))
			return is_not_free(s, r->to);
		if (seal(s, from, n, pages))
			glk_seal_promise(s->arena, from, n);
		err = glk_seal_stand(s->arena, s->e, to, pages, n);
		if (err)
			break;
		glk_part_arrive(
			s->arena, s->e, (struct glk_stretch){to, to + n - 1}, 0, none);
		glk_seal_count(s->arena, s->e, (uint64_t)n << s->arena->map.shift);
		s->done += n;
		from += n;
		to += n;
		left -= n;
		glk_plan_step(s->arena->gpu);
	}
	return err;
}

/* What was done goes again: nothing has used it. */
static void undo(struct share *s)
{
	struct glk_use never = {0};

	for (size_t i = 0; s->done; i++) {
		const struct glk_sharing *r = &s->all->pages[i];
		uint64_t n = pages_of(s, r) < s->done ? pages_of(s, r) : s->done;
		uint32_t to = first_of(s, r->to);
		struct glk_stretch here = {to, to + (uint32_t)n - 1};

		glk_part_depart(s->arena, s->e, here, GLK_KEPT_BARE, &never);
		glk_seal_count(s->arena, s->e, -(n << s->arena->map.shift));
		s->done -= n;
	}
}

static int copy_all(const struct share *s)
{
	uint64_t base = glk_load_relaxed(&s->e->addr);
	struct glk_drv *drv = s->arena->gpu->drv;
	int err = 0;

	glk_lock_pause(&s->arena->gpu->lock);
	for (size_t i = 0; i < s->all->copied && !err; i++) {
		const struct glk_sharing *c = &s->all->copies[i];

		err = drv->ops->copy(
			drv, base + c->to, base + c->from, c->bytes, s->stream);
	}
	glk_lock_resume(&s->arena->gpu->lock);
	return err;
}

static int share(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct share *s = how->arg;
	int err;

	s->arena = arena;
	s->e = e;
	err = check(s);
	if (!err && s->all->owned)
		err = glk_elastic_come(
			arena, e, on, s->all->own, s->all->owned, s->all->ret_wants);
	if (err)
		return err;
	err = check_copies(s);
	for (size_t i = 0; i < s->all->count && !err; i++)
		err = share_range(s, &s->all->pages[i]);
	if (!err)
		err = copy_all(s);
	/* some of the copies may be queued there also where one was refused */
	glk_away_mark(arena->gpu, e, on);
	if (err) {
		undo(s);
		glk_elastic_go(arena, e, on, s->all->own, s->all->owned);
	}
	glk_part_settle(arena, e, on, err);
	return err;
}

int glk_cache_share(struct glk_cache *cache, uint64_t addr,
	const struct glk_shares *shares, struct CUstream_st *stream)
{
	struct share s = {.all = shares, .stream = stream};
	struct glk_asking how = {.fn = share, .takes = true, .arg = &s};

	return glk_asked(cache, addr, stream, &how);
}

/* ---- Whether it is ---- */

/* The page of a slot and the record of what is kept of it, 0 for none. */
static void whose(
	const struct share *s, uint32_t slot, uint32_t *ret_page, uint32_t *ret_id)
{
	const struct glk_map *map = &s->arena->map;
	struct glk_piece p;

	*ret_page = *ret_id = 0;
	if (!glk_part_gone(map, s->e, slot)) {
		*ret_page = map->page[slot];
		*ret_id = glk_map_page(map, *ret_page)->kept_as;
	} else if (!glk_bit_get(map->bare, slot)) {
		p = glk_part_piece(s->arena, s->e, slot);
		*ret_id = p.word & GLK_KEPT_SEALED ? p.word & GLK_KEPT_RUN : 0;
	}
}

static bool is_same(const struct share *s, uint32_t one, uint32_t other)
{
	uint32_t page[2], id[2];

	whose(s, one, &page[0], &id[0]);
	whose(s, other, &page[1], &id[1]);
	return (page[0] && page[0] == page[1]) || (id[0] && id[0] == id[1]);
}

static int look(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct share *s = how->arg;

	(void)on;
	s->arena = arena;
	s->e = e;
	for (size_t i = 0; i < s->all->count && !s->done; i++) {
		const struct glk_sharing *r = &s->all->pages[i];

		for (uint64_t n = 0; n < pages_of(s, r) && !s->done; n++)
			s->done = is_same(s, first_of(s, r->from) + (uint32_t)n,
				first_of(s, r->to) + (uint32_t)n);
		glk_plan_step(arena->gpu);
	}
	return 0;
}

int glk_cache_is_shared(struct glk_cache *cache, uint64_t addr,
	const struct glk_sharing *ranges, size_t count, bool *ret_is)
{
	const struct glk_shares all = {.pages = ranges, .count = count};
	struct share s = {.all = &all};
	const struct glk_asking how = {.fn = look, .arg = &s};
	int err = glk_asked(cache, addr, NULL, &how);

	if (!err)
		*ret_is = s.done;
	return err;
}
