/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ranges of an elastic block have the pages of other ranges of it: see seal.h. */
#include "base/error.h"
#include "cache/asked.h"
#include "cache/cache.h"
#include "cache/sealed.h"

#include <errno.h>
#include <inttypes.h>

/* Pages that are mapped between two looks at the tables. */
#define BATCH 64

struct share {
	struct glk_arena *arena;
	struct glk_extent *e;
	const struct glk_shares *all;
	struct CUstream_st *stream;
	uint64_t done; /* slots, from the first range on */
};

static uint32_t first_of(const struct share *s, uint64_t offset)
{
	return glk_slot_of(&s->arena->map, s->e->offset + offset);
}

static uint32_t slots_of(const struct share *s, const struct glk_sharing *r)
{
	return (uint32_t)(r->bytes >> s->arena->map.shift);
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

/* Also of a range that was checked: another one of the call may have come to lie there since. */
static bool is_free(const struct share *s, uint32_t first, uint32_t slots)
{
	uint32_t last = first + slots - 1;
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

/* Of a range, from a slot on: a page of the GPU on which the block stands, whole. */
static int check_from(const struct share *s, struct glk_stretch left, uint32_t *ret_slots)
{
	const struct glk_map *map = &s->arena->map;
	struct glk_mapping m;

	if (glk_part_gone(map, s->e, left.first))
		return is_away();
	if (glk_map_is_host(map, map->page[left.first]))
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"only pages of the GPU are shared");
	m = glk_mapping_at(map, left.first);
	if (m.first < left.first || m.last > left.last)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"a page of %" PRIu64 " bytes is shared as a whole",
			(uint64_t)(m.last - m.first + 1) << map->shift);
	*ret_slots = m.last - m.first + 1;
	return 0;
}

static int check_range(const struct share *s, const struct glk_sharing *r)
{
	uint64_t part = glk_slot_bytes(&s->arena->map) - 1;
	uint64_t asked = glk_extent_asked(s->e);
	struct glk_stretch left;
	uint32_t slots = 0;
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
	left = (struct glk_stretch){
		first_of(s, r->from), first_of(s, r->from) + slots_of(s, r) - 1};
	for (uint32_t to = first_of(s, r->to); left.first <= left.last && !err;
		to += slots) {
		err = check_from(s, left, &slots);
		if (!err && !is_free(s, to, slots))
			err = is_not_free(s, r->to);
		left.first += slots;
		glk_plan_step(s->arena->gpu);
	}
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

/* The pages of a run, at most a batch of them, which are sealed. The slots that they have. */
static uint32_t seal(struct share *s, struct glk_stretch run, uint32_t pages[BATCH],
	uint32_t *ret_count)
{
	const struct glk_map *map = &s->arena->map;
	uint32_t slot = run.first, count = 0;
	bool some = false;

	while (slot <= run.last && count < BATCH) {
		pages[count++] = map->page[slot];
		some |= glk_seal_page(s->arena, s->e, slot);
		slot = glk_mapping_at(map, slot).last + 1;
	}
	if (some)
		glk_seal_promise(s->arena, run.first, slot - run.first);
	*ret_count = count;
	return slot - run.first;
}

static int share_range(struct share *s, const struct glk_sharing *r)
{
	uint32_t from = first_of(s, r->from), to = first_of(s, r->to);
	uint32_t left = slots_of(s, r), pages[BATCH], none[2] = {0, 0};
	int err = 0;

	while (left && !err) {
		uint32_t count, n;

		if (!is_free(s, to, left))
			return is_not_free(s, r->to);
		n = seal(s, (struct glk_stretch){from, from + left - 1}, pages, &count);
		err = glk_seal_stand(s->arena, s->e, to, pages, count);
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
		uint64_t n = slots_of(s, r) < s->done ? slots_of(s, r) : s->done;
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
	err = glk_part_check_elastic(arena, e);
	for (size_t i = 0; i < s->all->count && !err; i++)
		err = check_range(s, &s->all->pages[i]);
	if (!err && s->all->owned)
		err = glk_elastic_come(arena, e, on, s->all->own, s->all->owned,
			s->all->how, s->all->ret_wants);
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

		for (uint32_t n = 0; n < slots_of(s, r) && !s->done; n++)
			s->done = is_same(
				s, first_of(s, r->from) + n, first_of(s, r->to) + n);
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

/* ---- What of a range may be ---- */

struct whole {
	struct glk_portion *portion;
	size_t count;
};

/* What lies at a slot that goes or comes as one. */
static struct glk_stretch unit_of(
	const struct glk_arena *arena, const struct glk_extent *e, uint32_t slot)
{
	const struct glk_map *map = &arena->map;
	struct glk_stretch one = {slot, slot};
	struct glk_mapping m;
	struct glk_piece p;

	if (!glk_part_gone(map, e, slot)) {
		m = glk_mapping_at(map, slot);
		return (struct glk_stretch){m.first, m.last};
	}
	if (glk_bit_get(map->bare, slot))
		return one;
	p = glk_part_piece(arena, e, slot);
	return p.word & GLK_KEPT_SEALED ? p.s : one;
}

static int cut(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	const struct glk_map *map = &arena->map;
	const struct whole *w = how->arg;

	(void)on;
	for (size_t i = 0; i < w->count; i++) {
		struct glk_portion *p = &w->portion[i];
		struct glk_stretch s = glk_portion_slots(map, e, p, false), last;

		last = unit_of(arena, e, s.last);
		if (last.last > s.last)
			p->bytes = last.first < s.first
				? 0
				: (uint64_t)(last.first - s.first) << map->shift;
	}
	return 0;
}

int glk_cache_whole(struct glk_cache *cache, uint64_t addr, struct glk_portion *portions,
	size_t count)
{
	struct whole w = {.portion = portions, .count = count};
	const struct glk_asking how = {.fn = cut, .arg = &w};

	return glk_asked(cache, addr, NULL, &how);
}
