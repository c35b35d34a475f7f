/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Equal pages exist once. A block is sealed, which says that nobody writes it any more, and each of its pages that is
 * equal to one of a block which was sealed before, or to one before it in the block, leaves for the other: the block
 * stands on the page of that from then on, as ranges do that share (seal.h), at the same address.
 *
 *	hash	all pages of sealed blocks have numbers (share/alike.h), of which a kernel makes 4.5 TB/s, or as many as the
 *		caller allows. Each block is claimed while it is read
 *	compare	pages of equal numbers, byte for byte, while both blocks are claimed
 *	exchange	the page goes as one that is decommitted, and the other comes. Where the driver does not map that, a
 *		new page comes with the contents of the other
 *
 * Blocks that were sealed before are read and get mappings more, but nothing that lies at their addresses changes, so
 * that kernels may go on reading them. What leaves another way than by its own decommit or free is nothing.
 *
 * Unsealed, a block has pages of its own again: a block beside it holds those that others have as well while it changes,
 * and their contents are copied from there. A page that nobody else has any more stays, once its other mappings have
 * gone, which could only be read.
 */
#include "base/error.h"
#include "base/thread.h"
#include "cache/asked.h"
#include "cache/cache.h"
#include "cache/sealed.h"
#include "cache/tag/tag.h"
#include "share/publish.h"

#include <errno.h>
#include <inttypes.h>

#define BATCH GLK_LIKENESS_PAGES

struct dedup {
	struct glk_cache *cache;
	struct glk_likeness *look;
	struct glk_arena *arena; /* of the block */
	struct glk_extent *e;
	uint64_t addr, size;
	uint32_t on; /* the stream */
	struct CUstream_st *stream;
	uint64_t parts, part; /* of all that is looked at; bytes of one */
	bool every;	      /* not blocks that are sealed alone */
	uint64_t *
		source; /* of each slot of the block an address with the same number; 0: none */
	uint32_t *own; /* and the part of the look that has its number, from 1; 0: none */
	/* A block beside it, which has pages meanwhile: its address; and while it is claimed. */
	uint64_t beside;
	struct glk_extent *t;
	struct glk_moving moving;
	struct glake_sealed did;
};

static uint64_t slot_bytes(const struct dedup *d)
{
	return glk_slot_bytes(&d->arena->map);
}

static uint32_t slot_at(
	const struct glk_map *map, const struct glk_extent *e, uint64_t addr)
{
	return glk_slot_of(map, e->offset + (addr - glk_load_relaxed(&e->addr)));
}

static bool is_final(const struct glk_cache *cache, const struct glk_extent *e)
{
	return glk_part_is_elastic(cache, e) && glk_part_at(cache, e)->final;
}

/* Without the lock, nor in a plan, from the one to the other. */
static void step_out(struct glk_cache *cache)
{
	glk_plan_park(cache, false);
	glk_lock_pause(&cache->lock);
}

static void step_in(struct glk_cache *cache)
{
	glk_lock_resume(&cache->lock);
	glk_plan_unpark(cache, false);
}

/* ---- What is looked at ---- */

/* Runs of pages of a block that is claimed; without a look they are counted. */
static int look_at_pages(
	struct dedup *d, struct glk_arena *arena, struct glk_extent *e, bool own)
{
	const struct glk_map *map = &arena->map;
	struct glk_stretch all = glk_part_all(map, e), s = {1, 0};
	int err = 0;

	for (uint32_t slot = all.first; slot <= all.last + 1 && !err; slot++) {
		bool takes = slot <= all.last && glk_seal_is_page(map, e, slot) &&
			(own || !glk_seal_is_again(map, slot));

		if (takes && s.first > s.last)
			s.first = slot;
		if (takes)
			s.last = slot;
		if (takes || s.first > s.last)
			continue;
		if (d->look)
			err = glk_sums_hash(d->cache, d->look,
				glk_slot_addr(map, s.first),
				(uint64_t)(s.last - s.first + 1) << map->shift);
		else
			d->parts += ((uint64_t)(s.last - s.first + 1) << map->shift) /
				d->part;
		s = (struct glk_stretch){1, 0};
		glk_plan_step(arena->gpu);
	}
	return err;
}

static int look_at(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	struct dedup *d = arg;

	if (e == d->e || arena->ops->move)
		return 0;
	if (glk_part_is_elastic(d->cache, e) ? d->every || is_final(d->cache, e) : false)
		return look_at_pages(d, arena, e, false);
	if (!d->every || glk_extent_lacks(e) || glk_beside_placed(&arena->map, e))
		return 0;
	if (d->look)
		return glk_sums_hash(d->cache, d->look, glk_load_relaxed(&e->addr),
			glk_extent_asked(e));
	d->parts += glk_extent_asked(e) / d->part;
	return 0;
}

/* ---- The seal ---- */

static int refuse(const struct glk_arena *arena, const struct glk_extent *e)
{
	int err = glk_part_check_elastic(arena, e);

	if (!err && glk_part_is_out(arena, e))
		err = glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"other processes have pages of the block at 0x%" PRIx64,
			glk_load_relaxed(&e->addr));
	return err;
}

static int begin(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct glk_stretch all = glk_part_all(&arena->map, e);
	struct dedup *d = how->arg;
	int err = refuse(arena, e);

	(void)on;
	if (err)
		return err;
	d->arena = arena;
	d->e = e;
	d->size = glk_extent_asked(e);
	d->part = glk_slot_bytes(&arena->map);
	glk_part_at(arena->gpu, e)->final = true;
	glk_sums_forget(arena->gpu, all.first, all.last - all.first + 1);
	for (uint32_t slot = all.first; slot <= all.last; slot++) {
		const struct glk_page *page =
			glk_map_page(&arena->map, arena->map.page[slot]);

		if (glk_is_sealed(&arena->map, slot) &&
			(page->sealers > 1 || page->foreign))
			d->did.shared += d->part;
	}
	return look_at_pages(d, arena, e, true);
}

/* It may be another one, where a program frees what it seals, and one that somebody writes. */
static int check_again(const struct dedup *d, const struct glk_extent *e)
{
	if (e == d->e && is_final(d->cache, e))
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"the block at 0x%" PRIx64 " was freed meanwhile", d->addr);
}

static int look_at_own(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct dedup *d = how->arg;
	int err = check_again(d, e);

	(void)on;
	return err ? err : look_at_pages(d, arena, e, true);
}

static int each_of_arena(struct dedup *d)
{
	int err;

	glk_lock(&d->cache->lock);
	err = glk_away_each(d->arena, look_at, d);
	glk_unlock(&d->cache->lock);
	return err;
}

/* The block in which an address lies, if pages of it may stand for others; claimed unless it is the block itself. */
static struct glk_extent *take_source(
	struct dedup *d, uint64_t addr, struct glk_moving *m)
{
	const struct glk_range *range;
	struct glk_live live;

	if (addr - d->addr < d->size)
		return d->e;
	range = glk_cache_range(d->cache, addr);
	if (!range || glk_arena_of(range) != d->arena ||
		!glk_lookup_live(range, addr, &live))
		return NULL;
	/* who moves it has it: it is another time's */
	if (!is_final(d->cache, live.e) || !glk_away_take(d->cache, live.e, m))
		return NULL;
	if (is_final(d->cache, live.e))
		return live.e;
	/* the lock may have been given up, and another block have come to lie there */
	glk_away_let_go(d->cache, live.e, m);
	return NULL;
}

/* Whether the block stands on that page already. */
static bool is_same(const struct dedup *d, const struct glk_extent *from, uint64_t source,
	uint32_t to)
{
	const struct glk_map *map = &d->arena->map;
	uint32_t slot = slot_at(map, from, source);

	return glk_seal_is_page(map, from, slot) && glk_seal_is_page(map, d->e, to) &&
		map->page[slot] == map->page[to];
}

static bool may_pair(const struct dedup *d, const struct glk_extent *from,
	uint64_t source, uint32_t to)
{
	const struct glk_map *map = &d->arena->map;
	uint32_t slot = slot_at(map, from, source);

	return glk_seal_is_page(map, from, slot) && glk_seal_is_page(map, d->e, to) &&
		map->page[slot] != map->page[to] &&
		glk_map_page(map, map->page[slot])->aliases < GLK_SEALERS_MAX - BATCH;
}

static int compare(struct dedup *d, struct glk_alike_pair *pairs, uint32_t count)
{
	int err;

	step_out(d->cache);
	err = glk_likeness_compare(d->look, pairs, count, slot_bytes(d));
	step_in(d->cache);
	return err;
}

static int copy(struct dedup *d, uint64_t to, uint64_t from, uint64_t bytes)
{
	struct glk_drv *drv = d->cache->drv;
	int err;

	glk_lock_pause(&d->cache->lock);
	err = drv->ops->copy(drv, to, from, bytes, d->stream);
	glk_lock_resume(&d->cache->lock);
	return err;
}

static struct glk_portion portion_of(
	const struct dedup *d, const struct glk_extent *e, uint32_t slot, uint32_t count)
{
	return (struct glk_portion){((uint64_t)slot << d->arena->map.shift) - e->offset,
		(uint64_t)count << d->arena->map.shift};
}

/* The block stands on sealed pages from a slot on, in the place of none. */
static int stand(struct dedup *d, struct glk_extent *e, uint32_t slot,
	const uint32_t *pages, uint32_t count)
{
	const struct glk_map *map = &d->arena->map;
	uint32_t none[2] = {0, 0}, slots = 0;
	int err = glk_seal_stand(d->arena, e, slot, pages, count);

	if (err)
		return err;
	for (uint32_t i = 0; i < count; i++)
		slots += glk_page_slots(map, glk_map_page(map, pages[i]));
	glk_part_arrive(
		d->arena, e, (struct glk_stretch){slot, slot + slots - 1}, 0, none);
	glk_seal_count(d->arena, e, (uint64_t)slots << map->shift);
	return 0;
}

/* New pages with the contents of others. */
static int refill(struct dedup *d, struct glk_extent *from, uint32_t slot,
	const struct glk_alike_pair *pairs, uint32_t count)
{
	struct glk_portion portion = portion_of(d, d->e, slot, count);
	uint64_t wants;
	int err = glk_elastic_come(
		d->arena, d->e, d->on, &portion, 1, GLK_COMMIT_INSISTS, &wants);

	for (uint32_t i = 0; i < count && !err; i++)
		err = copy(d, pairs[i].b, pairs[i].a, slot_bytes(d));
	/* who frees it comes behind the copies */
	glk_away_mark(d->cache, from, d->on);
	if (err)
		glk_error(-EIO, GLAKE_ERROR_DRIVER,
			"the driver maps neither page at 0x%" PRIx64
			" on any more: what lay there is lost",
			pairs[0].b);
	return err ? -EIO : 0;
}

/* Pages of a run are equal to others, of one block. */
static int exchange(struct dedup *d, struct glk_extent *from,
	const struct glk_alike_pair *pairs, uint32_t count)
{
	const struct glk_map *map = &d->arena->map;
	uint32_t to = slot_at(map, d->e, pairs[0].b), pages[BATCH];
	struct glk_portion portion = portion_of(d, d->e, to, count);
	uint64_t freed;
	int err;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t slot = slot_at(map, from, pairs[i].a);

		pages[i] = map->page[slot];
		if (glk_seal_page(d->arena, from, slot))
			glk_seal_promise(d->arena, slot, 1);
	}
	freed = glk_elastic_go(d->arena, d->e, d->on, &portion, 1);
	err = stand(d, d->e, to, pages, count);
	if (err)
		return refill(d, from, to, pairs, count) ? -EIO : err;
	d->did.saved += freed;
	d->did.left -= (uint64_t)count << map->shift;
	return 0;
}

/* Runs of pairs that are next to each other in the block, and of which every byte is equal. */
static int exchange_equal(struct dedup *d, struct glk_extent *from,
	const struct glk_alike_pair *pairs, uint32_t count)
{
	uint32_t first = 0;
	int err = 0;

	for (uint32_t i = 0; i <= count && !err; i++) {
		if (i < count && !pairs[i].differ)
			continue;
		d->did.differ += i < count;
		if (i > first)
			err = exchange(d, from, pairs + first, i - first);
		first = i + 1;
	}
	return err;
}

/* From a slot of the block on, as many as have their sources in one block; how far it came. */
static int exchange_some(struct dedup *d, uint64_t i, uint64_t slots, uint64_t *ret_next)
{
	uint32_t first = slot_at(&d->arena->map, d->e, d->addr), count = 0;
	uint64_t base, size, bytes = slot_bytes(d);
	struct glk_alike_pair pairs[BATCH];
	struct glk_extent *from;
	struct glk_moving m;
	int err;

	*ret_next = i + 1;
	from = take_source(d, d->source[i], &m);
	if (!from) {
		d->did.left += bytes;
		return 0;
	}
	base = glk_load_relaxed(&from->addr);
	size = glk_extent_asked(from);
	while (i < slots && count < BATCH && d->source[i] - base < size &&
		may_pair(d, from, d->source[i], first + (uint32_t)i)) {
		pairs[count++] =
			(struct glk_alike_pair){d->source[i], d->addr + i * bytes, 0};
		i++;
	}
	if (count)
		*ret_next = i;
	else if (!is_same(d, from, d->source[i], first + (uint32_t)i))
		d->did.left += bytes;
	d->did.left += count * bytes;
	err = count ? compare(d, pairs, count) : 0;
	if (!err)
		err = exchange_equal(d, from, pairs, count);
	if (from != d->e)
		glk_away_let_go(d->cache, from, &m);
	return err;
}

static int exchange_all(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct dedup *d = how->arg;
	uint64_t slots = d->size / slot_bytes(d);
	int err = check_again(d, e);

	if (err)
		return err;
	d->on = on;
	for (uint64_t i = 0, next; i < slots && !err; i = next) {
		next = i + 1;
		if (d->source[i])
			err = exchange_some(d, i, slots, &next);
		glk_plan_step(arena->gpu);
	}
	glk_away_mark(arena->gpu, e, on);
	glk_part_settle(arena, e, on, err);
	return err;
}

static int pair(struct dedup *d)
{
	uint64_t slots = d->size / slot_bytes(d);
	const struct glk_alike_pair *pairs;
	uint64_t count = glk_likeness_pair(d->look, &pairs), addr;

	d->did.looked = glk_likeness_looked(d->look);
	if (!slots)
		return 0;
	d->source = glk_region_new(slots * (sizeof(*d->source) + sizeof(*d->own)));
	if (!d->source)
		return -ENOMEM;
	d->own = (uint32_t *)(d->source + slots);
	for (uint64_t i = 0; i < d->did.looked / d->part; i++) {
		glk_likeness_number(d->look, i, &addr);
		if (addr - d->addr < slots * slot_bytes(d))
			d->own[(addr - d->addr) / slot_bytes(d)] = (uint32_t)i + 1;
	}
	for (uint64_t i = 0; i < count; i++) {
		if (pairs[i].b - d->addr < slots * slot_bytes(d))
			d->source[(pairs[i].b - d->addr) / slot_bytes(d)] = pairs[i].a;
	}
	return 0;
}

/* ---- Pages of other processes ---- */

/*
 * What is the block's alone is looked for at the broker, a batch of pages at a time. What others have stands in a block
 * beside it while it is compared, and is exchanged as above; what nobody has is offered to them.
 */
struct across {
	struct dedup *d;
	struct glk_lessee *lessee;
	uint64_t turn;
	uint32_t count;
	uint32_t slot[GLK_COMMONS_MOST];
	struct glk_common common[GLK_COMMONS_MOST];
};

static bool is_alone(const struct across *a, uint32_t slot)
{
	const struct dedup *d = a->d;
	const struct glk_map *map = &d->arena->map;
	const struct glk_page *page = glk_map_page(map, map->page[slot]);

	return glk_seal_is_page(map, d->e, slot) &&
		d->own[slot - slot_at(map, d->e, d->addr)] && !page->foreign &&
		!glk_commons_has(a->turn, page) && page->able & GLK_PAGE_EXPORT_FD &&
		(!glk_is_sealed(map, slot) || (page->sealers == 1 && !page->kept_as));
}

/* A batch from a slot on; the one behind. */
static uint32_t gather_alone(struct across *a, uint32_t slot, uint32_t end)
{
	uint32_t first = slot_at(&a->d->arena->map, a->d->e, a->d->addr);
	uint64_t addr;

	for (a->count = 0; slot < end && a->count < GLK_COMMONS_MOST; slot++) {
		if (!is_alone(a, slot))
			continue;
		a->slot[a->count] = slot;
		a->common[a->count++].number = *glk_likeness_number(
			a->d->look, a->d->own[slot - first] - 1, &addr);
	}
	return slot;
}

/* What the broker and the driver are asked, without the lock. */
static int ask_across(struct across *a,
	int (*ask)(struct glk_lessee *lessee, struct glk_node *node, uint64_t bytes,
		struct glk_common *commons, uint32_t count))
{
	struct glk_cache *cache = a->d->cache;
	int err;

	step_out(cache);
	err = ask(a->lessee, cache->node, slot_bytes(a->d), a->common, a->count);
	step_in(cache);
	return err;
}

/* Pages of others on which nothing can stand go again. */
static void turn_away(struct dedup *d, const uint32_t *pages, uint32_t count)
{
	const struct glk_map *map = &d->arena->map;

	glk_lock_pause(&d->cache->lock);
	for (uint32_t i = 0; i < count; i++) {
		struct glk_page *page = glk_map_page(map, pages[i]);

		page->sealed = false;
		if (glk_page_state(page) == GLK_PAGE_OWNED)
			glk_node_release(d->cache->node, pages[i]);
	}
	glk_lock_resume(&d->cache->lock);
}

/* Pages that stand beside are compared with those of the block, and exchanged run by run. */
static int exchange_beside(struct across *a, struct glk_alike_pair *pairs, uint32_t count)
{
	struct dedup *d = a->d;
	uint64_t bytes = slot_bytes(d);
	uint32_t first = 0;
	int err = compare(d, pairs, count);

	d->did.left += count * bytes;
	for (uint32_t i = 1; i <= count && !err; i++) {
		if (i < count && pairs[i].b == pairs[i - 1].b + bytes)
			continue;
		err = exchange_equal(d, a->d->t, pairs + first, i - first);
		first = i;
	}
	return err;
}

/* Those that were found; those that were not stay in the batch. */
static int take_found(struct across *a)
{
	struct dedup *d = a->d;
	const struct glk_map *map = &d->arena->map;
	uint32_t at = glk_extent_first(map, d->t), pages[GLK_COMMONS_MOST], count = 0,
		 rest = 0;
	struct glk_alike_pair pairs[GLK_COMMONS_MOST];
	struct glk_portion all;
	int err;

	for (uint32_t i = 0; i < a->count; i++) {
		if (!a->common[i].known) {
			a->slot[rest] = a->slot[i];
			a->common[rest++] = a->common[i];
			continue;
		}
		pairs[count] = (struct glk_alike_pair){glk_slot_addr(map, at + count),
			glk_slot_addr(map, a->slot[i]), 0};
		glk_map_page(map, a->common[i].page)->sealed = true;
		pages[count++] = a->common[i].page;
	}
	a->count = rest;
	if (!count)
		return 0;
	if (stand(d, a->d->t, at, pages, count)) {
		turn_away(d, pages, count);
		return 0;
	}
	err = exchange_beside(a, pairs, count);
	all = portion_of(d, a->d->t, at, count);
	glk_elastic_go(d->arena, a->d->t, d->on, &all, 1);
	return err;
}

/* Those that nobody had; those that somebody has by now stay in the batch. */
static int offer(struct across *a)
{
	const struct glk_map *map = &a->d->arena->map;
	uint32_t rest = 0;
	int err;

	for (uint32_t i = 0; i < a->count; i++) {
		if (glk_seal_page(a->d->arena, a->d->e, a->slot[i]))
			glk_seal_promise(a->d->arena, a->slot[i], 1);
		a->common[i].page = map->page[a->slot[i]];
	}
	err = a->count ? ask_across(a, glk_commons_offer) : 0;
	for (uint32_t i = 0; i < a->count; i++) {
		if (a->common[i].known)
			continue;
		a->slot[rest] = a->slot[i];
		a->common[rest++] = a->common[i];
	}
	a->count = rest;
	return err;
}

/* What others have made and the block has left is with them again, so that it may be had once more. */
static void let_go(struct glk_cache *cache, const struct glk_extent *e, uint32_t on)
{
	struct glk_limbo limbo = GLK_LIMBO(&cache->streams);
	struct glk_use use = glk_block_use(cache, e, on);

	glk_plan_park(cache, false);
	glk_clock_sync_use(&cache->streams, &use);
	glk_plan_unpark(cache, false);
	glk_plan_begin(cache);
	glk_limbo_reap(&limbo, &cache->arena.map);
	glk_plan_end(cache);
}

/* Both blocks are in the hands of the caller, from the one to the other. */
static int take_both(struct dedup *d, struct glk_extent *e, uint32_t on)
{
	struct glk_arena *same;
	int err = check_again(d, e);

	if (err)
		return err;
	d->t = glk_away_find(d->cache, d->beside, &same);
	if (!d->t || !glk_away_take(d->cache, d->t, &d->moving))
		return -EBUSY;
	d->on = on;
	return 0;
}

static void let_both_go(struct dedup *d, int err)
{
	glk_away_mark(d->cache, d->e, d->on);
	glk_away_mark(d->cache, d->t, d->on);
	glk_part_settle(d->arena, d->t, d->on, err);
	glk_part_settle(d->arena, d->e, d->on, err);
	glk_away_let_go(d->cache, d->t, &d->moving);
}

static int exchange_across(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct across *a = how->arg;
	uint32_t first = slot_at(&arena->map, e, a->d->addr),
		 end = first + (uint32_t)(a->d->size / slot_bytes(a->d));
	struct glake_error why = glk_thread_current->error;
	int err = take_both(a->d, e, on), away = 0;

	if (err)
		return err;
	let_go(arena->gpu, e, on);
	for (uint32_t slot = first; slot < end && !err && !away;) {
		slot = gather_alone(a, slot, end);
		/* who offers the same meanwhile has been first, which is seen the second time */
		for (int round = 0; round < 2 && a->count && !err && !away; round++) {
			away = ask_across(a, glk_commons_seek);
			err = away ? 0 : take_found(a);
			if (!err && !away)
				away = offer(a);
		}
		glk_plan_step(arena->gpu);
	}
	/* a broker that has gone, or a driver that hands nothing out, is no fault of the seal */
	if (away)
		glk_error_back(&why);
	let_both_go(a->d, err);
	return err;
}

static int begin_across(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct across *a = how->arg;
	int err = check_again(a->d, e);

	return err ? err
		   : glk_elastic_beside(
			     arena, on, a->d->stream, GLK_COMMONS_MOST, &a->d->beside);
}

static int seal_across(struct dedup *d, struct glk_lessee *lessee)
{
	struct across a = {.d = d, .lessee = lessee};
	struct glk_asking how = {.fn = begin_across, .takes = true, .arg = &a};
	uint64_t saved = d->did.saved;
	int err, failed;

	a.turn = glk_commons_turn(lessee, d->cache->device);
	if (!a.turn)
		return 0;
	err = glk_asked(d->cache, d->addr, d->stream, &how);
	if (err)
		return err;
	how.fn = exchange_across;
	err = glk_asked(d->cache, d->addr, d->stream, &how);
	failed = glk_cache_free(d->cache, d->beside, d->stream);
	/* it is for others to have */
	if (d->did.saved > saved)
		glk_cache_give(d->cache, d->did.saved - saved, 0);
	return err ? err : failed;
}

int glk_cache_seal(struct glk_cache *cache, struct glk_lessee *lessee, uint64_t addr,
	struct CUstream_st *stream, uint64_t rate, struct glake_sealed *ret)
{
	struct dedup d = {.cache = cache, .addr = addr, .stream = stream, .did = *ret};
	struct glk_asking how = {.fn = begin, .takes = true, .arg = &d};
	int err = glk_asked(cache, addr, stream, &how);
	struct glake_error why;
	uint64_t sums = 0;

	/* what writes it has finished before it is read on another stream */
	if (!err)
		err = cache->drv->ops->stream_sync(cache->drv, cache->device, stream);
	if (!err)
		err = each_of_arena(&d);
	if (!err && d.parts)
		err = glk_likeness_new(
			cache->drv, cache->device, d.parts, d.part, rate, &d.look);
	if (err || !d.look)
		return err;
	err = each_of_arena(&d);
	how.fn = look_at_own;
	if (!err)
		err = glk_asked(cache, addr, stream, &how);
	if (!err)
		err = pair(&d);
	how.fn = exchange_all;
	if (!err && d.source)
		err = glk_asked(cache, addr, stream, &how);
	if (!err && d.source)
		err = seal_across(&d, lessee);
	if (d.source)
		glk_region_free(d.source,
			d.size / slot_bytes(&d) * (sizeof(*d.source) + sizeof(*d.own)));
	glk_likeness_free(d.look);
	why = glk_thread_current->error;
	/* what it finds is told by a check */
	if (!err && glk_cache_check_sealed(cache, false, &sums))
		glk_error_back(&why);
	*ret = d.did;
	return err;
}

/* ---- Pages of its own ---- */

/* The first slot that is none of a sealed page's any more. */
static uint32_t behind(const struct glk_map *map, uint32_t slot)
{
	return glk_mapping_at(map, slot).last + 1;
}

/* Slots that go at once: as many as there are in the largest of the pages. */
static uint32_t most_at_once(const struct glk_arena *arena, const struct glk_extent *e)
{
	const struct glk_map *map = &arena->map;
	struct glk_stretch all = glk_part_all(map, e);
	uint32_t most = BATCH;

	for (uint32_t slot = all.first, end; slot <= all.last; slot = end) {
		end = glk_is_sealed(map, slot) ? behind(map, slot) : slot + 1;
		most = end - slot > most ? end - slot : most;
	}
	return most;
}

/* Whether nobody else has the page of a sealed slot, here or away, nor any mapping of it, or not any more. */
static bool is_last(struct dedup *d, uint32_t slot)
{
	struct glk_limbo limbo = GLK_LIMBO(&d->cache->streams);
	struct glk_map *map = &d->arena->map;
	const struct glk_page *page = glk_map_page(map, map->page[slot]);

	/* other processes may, and those ask nobody */
	if (page->common)
		return false;
	while (page->sealers == 1 && !page->kept_as && page->aliases > 1) {
		struct glk_mapping other = glk_mapping_at(map,
			page->first_alias == slot ? map->alias[slot] : page->first_alias);
		struct glk_limbo_run run = {GLK_NO_SLOT, 0};

		if (glk_is_claimed(map, other.first, other.last) ||
			glk_limbo_detach(&limbo, map, other.first, other.last, &run))
			return false;
		/* what the driver keeps of it is out of use */
		glk_limbo_finish(&limbo, map, &run);
	}
	return page->sealers == 1 && !page->kept_as;
}

/* Such a run may be written where it lies. */
static int keep_run(struct dedup *d, uint32_t first, uint32_t last)
{
	int err = glk_mapping_open(&d->arena->map, first, last);

	if (err)
		return err;
	glk_seal_end(&d->arena->map, first, last);
	glk_part_at(d->cache, d->e)->sealed -= last - first + 1;
	return 0;
}

static int own_run(struct dedup *d, struct glk_extent *t, uint32_t slot, uint32_t slots)
{
	const struct glk_map *map = &d->arena->map;
	struct glk_portion portion = portion_of(d, d->e, slot, slots), all = {0};
	uint32_t pages[BATCH], at = glk_extent_first(map, t), count = 0;
	uint64_t wants;
	int err;

	for (uint32_t i = slot; i < slot + slots; i = behind(map, i))
		pages[count++] = map->page[i];
	err = stand(d, t, at, pages, count);
	if (err)
		return err;
	glk_elastic_go(d->arena, d->e, d->on, &portion, 1);
	err = glk_elastic_come(
		d->arena, d->e, d->on, &portion, 1, GLK_COMMIT_INSISTS, &wants);
	if (!err) {
		err = copy(d, glk_slot_addr(map, slot), glk_slot_addr(map, at),
			(uint64_t)slots << map->shift);
		if (err)
			glk_elastic_go(d->arena, d->e, d->on, &portion, 1);
	}
	if (err && stand(d, d->e, slot, pages, count))
		err = glk_error(-EIO, GLAKE_ERROR_DRIVER,
			"the driver maps neither page at 0x%" PRIx64
			" on any more: what lay there is lost",
			glk_slot_addr(map, slot));
	all = portion_of(d, t, at, slots);
	glk_elastic_go(d->arena, t, d->on, &all, 1);
	return err;
}

static int own(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct dedup *d = how->arg;
	const struct glk_map *map = &arena->map;
	struct glk_stretch all = glk_part_all(map, e);
	int err = take_both(d, e, on);

	if (err)
		return err;
	for (uint32_t slot = all.first, end; slot <= all.last && !err; slot = end) {
		bool stays;

		end = slot + 1;
		if (!glk_is_sealed(map, slot))
			continue;
		end = behind(map, slot);
		stays = is_last(d, slot);
		while (end <= all.last && glk_is_sealed(map, end) &&
			behind(map, end) - slot <= BATCH && is_last(d, end) == stays)
			end = behind(map, end);
		err = stays ? keep_run(d, slot, end - 1)
			    : own_run(d, d->t, slot, end - slot);
		glk_plan_step(arena->gpu);
	}
	let_both_go(d, err);
	if (!err)
		glk_part_at(arena->gpu, e)->final = false;
	return err;
}

static int begin_own(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct dedup *d = how->arg;
	int err = refuse(arena, e);

	(void)on;
	if (err)
		return err;
	if (!is_final(arena->gpu, e))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block at 0x%" PRIx64 " is not sealed", d->addr);
	if (glk_extent_lacks(e) && glk_part_at(arena->gpu, e)->away)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " is away, or a part of it", d->addr);
	d->arena = arena;
	d->e = e;
	return glk_elastic_beside(
		arena, on, d->stream, most_at_once(arena, e), &d->beside);
}

int glk_cache_unseal(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	struct dedup d = {.cache = cache, .addr = addr, .stream = stream};
	struct glk_asking how = {.fn = begin_own, .takes = true, .arg = &d};
	int err = glk_asked(cache, addr, stream, &how), failed;

	if (err)
		return err;
	/* rights do not change while what was queued reads it */
	err = cache->drv->ops->stream_sync(cache->drv, cache->device, stream);
	how.fn = own;
	if (!err)
		err = glk_asked(cache, addr, stream, &how);
	failed = glk_cache_free(cache, d.beside, stream);
	return err ? err : failed;
}

/* ---- A report ---- */

/* Without a look it is counted what there is to see. */
static int look_everywhere(struct dedup *d)
{
	int err;

	glk_turn_begin(d->cache);
	err = glk_suspended(d->cache);
	if (!err)
		err = glk_away_everywhere(d->cache, look_at, d);
	glk_turn_end(d->cache);
	return err;
}

int glk_cache_likeness(
	struct glk_cache *cache, size_t grain, uint64_t rate, struct glake_likeness *ret)
{
	struct dedup d = {.cache = cache, .part = grain, .every = true};
	const struct glk_alike_pair *pairs;
	int err;

	ret->looked = ret->equal = ret->differ = 0;
	err = glk_away_start(cache);
	if (err)
		return err;
	err = look_everywhere(&d);
	if (!err && d.parts)
		err = glk_likeness_new(
			cache->drv, cache->device, d.parts, grain, rate, &d.look);
	if (err || !d.look)
		return err;
	err = look_everywhere(&d);
	if (!err) {
		ret->looked = glk_likeness_looked(d.look);
		ret->equal = glk_likeness_pair(d.look, &pairs) * grain;
	}
	glk_likeness_free(d.look);
	return err;
}
