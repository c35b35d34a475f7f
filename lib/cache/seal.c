/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pages of an elastic block that are in several places of it: see seal.h. */
#include "cache/seal.h"

#include "base/error.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/plan.h"

#include <errno.h>
#include <inttypes.h>

/* ---- What is kept ---- */

struct glk_kept_seal *glk_seal_at(const struct glk_cache *cache, uint32_t word)
{
	return glk_slab_at(&cache->seals, word & GLK_KEPT_RUN);
}

uint32_t glk_seal_run(const struct glk_cache *cache, uint32_t word)
{
	return word & GLK_KEPT_SEALED ? glk_seal_at(cache, word)->run
				      : word & GLK_KEPT_RUN;
}

/* A record for a page, with its contents. */
static int keep(struct glk_arena *arena, struct glk_extent *e, uint32_t slot,
	const struct glk_part_way *way, struct glk_use *use, uint32_t *ret_id)
{
	struct glk_cache *cache = arena->gpu;
	uint32_t page = arena->map.page[slot], run = 0, id = glk_slab_get(&cache->seals);
	uint64_t addr, bytes;
	int err = 0;

	if (!id)
		return -ENOMEM;
	bytes = glk_part_span(&arena->map, e, (struct glk_stretch){slot, slot}, &addr);
	if (!way->drop)
		err = glk_move_out(&cache->mover, addr, bytes, use, &run);
	if (err) {
		glk_slab_put(&cache->seals, id);
		return err;
	}
	*(struct glk_kept_seal *)glk_slab_at(&cache->seals, id) =
		(struct glk_kept_seal){.page = page, .run = run};
	glk_map_page(&arena->map, page)->kept_as = id;
	*ret_id = id;
	return 0;
}

int glk_seal_keep(struct glk_arena *arena, struct glk_extent *e, uint32_t slot,
	const struct glk_part_way *way, struct glk_use *use, uint32_t *ret_word)
{
	uint32_t id = glk_map_page(&arena->map, arena->map.page[slot])->kept_as;
	int err = id ? 0 : keep(arena, e, slot, way, use, &id);

	if (err)
		return err;
	*ret_word = id | GLK_KEPT_SEALED | way->why;
	glk_seal_at(arena->gpu, id)->refs++;
	return 0;
}

void glk_seal_left(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s)
{
	for (uint32_t slot = s.first; slot <= s.last; slot++) {
		struct glk_page *page = glk_map_page(&arena->map, arena->map.page[slot]);

		if (page->sealers || !page->kept_as)
			continue;
		glk_seal_at(arena->gpu, page->kept_as)->page = 0;
		page->kept_as = 0;
	}
	glk_part_at(arena->gpu, e)->sealed -= s.last - s.first + 1;
}

void glk_seal_unref(struct glk_cache *cache, uint32_t word, uint64_t read)
{
	struct glk_kept_seal *k = glk_seal_at(cache, word);

	/* they may still be on their way to the page of a piece that came before */
	k->read = k->read < read ? read : k->read;
	if (--k->refs)
		return;
	if (k->page)
		glk_map_page(&cache->arena.map, k->page)->kept_as = 0;
	if (k->run)
		glk_store_put(&cache->mover.store, k->run, k->read);
	glk_slab_put(&cache->seals, word & GLK_KEPT_RUN);
}

bool glk_seal_is_here(const struct glk_cache *cache, uint32_t word)
{
	return word & GLK_KEPT_SEALED && glk_seal_at(cache, word)->page;
}

bool glk_seal_stays(const struct glk_arena *arena, uint32_t slot, uint32_t word)
{
	const struct glk_page *page = NULL;
	uint32_t id, others;

	if (word) {
		id = word & GLK_KEPT_RUN;
		others = glk_seal_at(arena->gpu, word)->refs - 1;
		if (glk_seal_at(arena->gpu, word)->page)
			page = glk_map_page(
				&arena->map, glk_seal_at(arena->gpu, word)->page);
		return others + (page ? page->sealers : 0) > 0;
	}
	page = glk_map_page(&arena->map, arena->map.page[slot]);
	id = page->kept_as;
	others = id ? glk_seal_at(arena->gpu, id)->refs : 0;
	return others + page->sealers > 1;
}

/* The block does not write a run of slots any more, while it is claimed. */
static void promise(const struct glk_arena *arena, uint32_t slot, uint32_t count)
{
	const struct glk_map *map = &arena->map;
	struct glk_drv *drv = map->pool->drv;

	glk_map_pause(map);
	drv->ops->promise(drv, glk_slot_addr(map, slot), (size_t)count << map->shift);
	glk_map_resume(map);
}

void glk_seal_came(
	struct glk_arena *arena, struct glk_extent *e, uint32_t slot, uint32_t word)
{
	struct glk_kept_seal *k = glk_seal_at(arena->gpu, word);

	k->page = arena->map.page[slot];
	glk_map_page(&arena->map, k->page)->kept_as = word & GLK_KEPT_RUN;
	glk_seal_begin(&arena->map, (struct glk_mapping){slot, slot});
	glk_part_at(arena->gpu, e)->sealed++;
	promise(arena, slot, 1);
}

/* ---- Mapped at one more place ---- */

/* Pages that are mapped between two looks at the tables. */
#define BATCH 64

/* A sealed page that is mapped there already, from an earlier time, needs nothing. */
static bool lies_there(const struct glk_map *map, uint32_t slot, uint32_t page)
{
	return map->page[slot] == page && !glk_is_claimed(map, slot, slot);
}

static int map_there(
	struct glk_arena *arena, uint32_t slot, const uint32_t *pages, uint32_t count)
{
	struct glk_map *map = &arena->map;
	uint32_t last = slot + count - 1;
	int err = glk_arena_clear(arena, slot, last);

	if (err)
		return err;
	glk_claim(map, slot, last);
	glk_plan_begin(arena->gpu);
	err = glk_mapping_make_sealed(map, slot, pages, count);
	glk_unclaim(map, slot, last);
	glk_plan_end(arena->gpu);
	return err;
}

/* The block stands on a run of slots, with pages that are sealed. */
static int stand(struct glk_arena *arena, struct glk_extent *e, uint32_t slot,
	const uint32_t *pages, uint32_t count)
{
	struct glk_map *map = &arena->map;
	uint32_t there = 0;
	int err = 0;

	while (there < count && lies_there(map, slot + there, pages[there]))
		there++;
	if (there < count)
		err = map_there(arena, slot + there, pages + there, count - there);
	if (err)
		return err;
	if (there)
		glk_bits_set(map->usable, slot, slot + there - 1);
	glk_seal_enter(map, slot, slot + count - 1);
	glk_part_at(arena->gpu, e)->sealed += count;
	/* a mapping from before the page was sealed may be written by rights */
	if (there)
		promise(arena, slot, there);
	return 0;
}

int glk_seal_come(struct glk_arena *arena, struct glk_extent *e, uint32_t slot)
{
	uint32_t word = *glk_part_word(arena, e, slot);

	return stand(arena, e, slot, &glk_seal_at(arena->gpu, word)->page, 1);
}

/* ---- Shared ---- */

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

/* So many bytes more of it are committed and exist already, or fewer. */
static void count(struct share *s, uint64_t bytes)
{
	struct glk_part *part = glk_part_at(s->arena->gpu, s->e);

	part->shared += bytes;
	s->arena->gpu->shared += bytes;
	s->arena->gpu->bare -= bytes;
}

/* The pages of a run, sealed. Whether some were not yet. */
static bool seal(struct share *s, uint32_t slot, uint32_t count, uint32_t *pages)
{
	struct glk_map *map = &s->arena->map;
	bool some = false;

	for (uint32_t i = 0; i < count; i++) {
		pages[i] = map->page[slot + i];
		if (glk_is_sealed(map, slot + i))
			continue;
		glk_seal_begin(map, (struct glk_mapping){slot + i, slot + i});
		glk_part_at(s->arena->gpu, s->e)->sealed++;
		some = true;
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
			promise(s->arena, from, n);
		err = stand(s->arena, s->e, to, pages, n);
		if (err)
			break;
		glk_part_arrive(
			s->arena, s->e, (struct glk_stretch){to, to + n - 1}, 0, none);
		count(s, (uint64_t)n << s->arena->map.shift);
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
		count(s, -(n << s->arena->map.shift));
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
