/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks that are out: other processes have their pages, or devices their dma-bufs. Nobody can
 * take the memory away from them, and nobody here is told when they are done, so it must serve
 * nobody else until the program says so.
 *
 * A block that is out counts its pins where a block in a bin has its link, and goes to no bin.
 * Who pins it holds it meanwhile, without a lock, beside others who pin or mark it. Once it is
 * pinned it keeps its pages, so they are gone through without the lock too; the bits that say
 * where they begin lie in words that others write, but say the same all the time.
 *
 * Freed while it is out, it stays as it lies: an extent that is no block any more and that no
 * search can have, with the streams that used it as its marks. The last pin gives it back,
 * behind all work of those streams so far.
 *
 * An elastic block is not out itself, but ranges of it are: its record counts them, see elastic.c.
 *
 * Guarantees	no page of it is stolen, released or mapped elsewhere, and no other block gets
 *		its addresses. That holds in pools of graphs, which do not end before
 */
#include "base/error.h"
#include "cache/arena/request.h"
#include "cache/block.h"
#include "cache/cache.h"

#include <errno.h>
#include <inttypes.h>

/* Of the count: the block was freed. */
#define HELD (UINT32_C(1) << 31)
/* It is a count, and not the link of a block that was in a bin: no extent has such a number. */
#define COUNTED (UINT32_C(1) << 30)

_Static_assert(GLK_PINS_MOST < COUNTED, "a count is told from what it is");
_Static_assert(GLK_ID_MAX < COUNTED, "a link is told from a count");

/* The block or what is left of it around an address; NULL for none. Under the lock. */
static struct glk_extent *find(
	struct glk_cache *cache, uint64_t addr, struct glk_range **ret_range)
{
	struct glk_range *range = glk_cache_range(cache, addr);
	uint32_t id = range ? glk_lookup_around(range, addr) : 0;

	*ret_range = range;
	return id ? glk_extent_at(range->map, id) : NULL;
}

static int is_not_out(const struct glk_extent *e, uint64_t addr)
{
	return glk_error(-EINVAL, e ? GLAKE_ERROR_INVAL : GLAKE_ERROR_NOT_MINE,
		e ? "the block at 0x%" PRIx64 " is not out" : "no block holds 0x%" PRIx64,
		addr);
}

/* Makes it one that is out, if it is not: its marks stay. Its holders may do this at once. Whether
 * it could be counted. */
static bool pin(struct glk_extent *e)
{
	uint32_t old = glk_load_relaxed(&e->pins), next;

	do {
		next = old & COUNTED ? old + 1 : COUNTED + 1;
		if ((old & COUNTED) && (old & GLK_PINS_MOST) == GLK_PINS_MOST)
			return false;
	} while (!glk_cas_weak_relaxed(&e->pins, &old, next));
	glk_store_release(&e->bin, GLK_BIN_PINNED); /* pairs with: glk_pin_count() */
	return true;
}

/* For a block that is held. */
static struct glk_pin pin_of(const struct glk_range *range, const struct glk_extent *e)
{
	uint64_t base = glk_load_relaxed(&e->addr);
	uint64_t offset = base - range->base + range->offset;
	struct glk_pin pin = {.range = range,
		.base = base,
		.size = glk_extent_asked(e),
		.first = glk_slot_of(range->map, offset)};

	pin.last = glk_slot_of(range->map, offset + pin.size - 1);
	return pin;
}

/* For one that is pinned. */
static uint32_t count_pages(const struct glk_pin *pin)
{
	uint32_t count = 0;

	for (uint32_t slot = pin->first; slot <= pin->last; count++)
		slot = glk_mapping_at(pin->range->map, slot).last + 1;
	return count;
}

int glk_cache_pin(
	struct glk_cache *cache, uint64_t addr, bool inside, struct glk_pin *ret_pin)
{
	struct glk_look look = glk_look_begin(cache);
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_extent *e = NULL;
	struct glk_live live;
	struct glk_pin made;
	bool done = false, away = false, sampled = false;

	if (range && inside && glk_lookup_live(range, addr, &live))
		addr = live.addr;
	/* held meanwhile, so that a free at the same time is refused and loses nothing */
	if (range)
		e = glk_lookup_hold(range, addr);
	if (e) {
		away = glk_extent_lacks(e);
		sampled = glk_arena_of(range)->ops->place;
		done = !away && !sampled && pin(e);
		made = pin_of(range, e);
		glk_word_let_go(&e->word);
	}
	if (done) {
		made.count = count_pages(&made);
		*ret_pin = made;
	}
	glk_look_end(cache, &look);
	if (done)
		return 0;
	if (away)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64
			" is away, or a part of it: it has no pages there",
			addr);
	if (sampled)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64
			" is sampled (guard.mode): nothing may be mapped beside it, so it is not for "
			"others; one that is asked for as contiguous never is",
			addr);
	if (!e && glk_away_settled(cache, addr, inside))
		return glk_cache_pin(cache, addr, inside, ret_pin);
	return e ? glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			   "the block is out %" PRIu32 " times, the most there can be",
			   GLK_PINS_MOST)
		 : glk_block_refuse(cache, addr);
}

/* That of page number `i`. */
static struct glk_mapping mapping_of(struct glk_pin *pin, size_t i)
{
	const struct glk_map *map = pin->range->map;
	bool on = pin->behind && i == (size_t)pin->asked + 1;
	struct glk_mapping m = glk_mapping_at(map, on ? pin->behind : pin->first);

	for (size_t left = on ? 0 : i; left; left--)
		m = glk_mapping_at(map, m.last + 1);
	pin->asked = (uint32_t)i;
	pin->behind = m.last + 1;
	return m;
}

struct glk_share_page glk_pin_page(void *of, size_t i)
{
	struct glk_pin *pin = of;
	const struct glk_range *range = pin->range;
	const struct glk_map *map = range->map;
	struct glk_mapping m = mapping_of(pin, i);
	const struct glk_page *page =
		glk_map_page(map, glk_load_relaxed(&map->page[m.first]));
	uint64_t end = pin->base + pin->size;
	uint64_t begin = range->base + ((uint64_t)m.first << map->shift) - range->offset;
	struct glk_share_page p = {.handle = page->handle,
		.number = glk_page_generation(page) << 32 |
			glk_load_relaxed(&map->page[m.first]),
		.size = page->size,
		.able = page->able};

	if (pin->base > begin)
		p.offset = pin->base - begin;
	p.length = (end - begin < p.size ? end - begin : p.size) - p.offset;
	return p;
}

int glk_cache_pinned(struct glk_cache *cache, uint64_t addr, struct glk_pin *ret_pin)
{
	struct glk_range *range;
	struct glk_extent *e;
	bool out;

	glk_lock(&cache->lock);
	e = find(cache, addr, &range);
	out = e && glk_pin_count(e);
	if (out)
		*ret_pin = pin_of(range, e);
	glk_unlock(&cache->lock);
	if (!out)
		return is_not_out(e, addr);
	ret_pin->count = count_pages(ret_pin);
	return 0;
}

void glk_pin_mark(struct glk_pin *pin)
{
	const struct glk_map *map = pin->range->map;

	for (uint32_t slot = pin->first; slot <= pin->last;) {
		struct glk_mapping m = glk_mapping_at(map, slot);
		struct glk_page *page =
			glk_map_page(map, glk_load_relaxed(&map->page[m.first]));

		glk_store_relaxed(&page->out, true);
		slot = m.last + 1;
	}
}

/* The last pin of a block that was freed: it goes back behind its streams. */
static void put_back(struct glk_arena *arena, struct glk_extent *e)
{
	struct glk_streams *streams = &arena->gpu->streams;
	struct glk_use use = glk_marks_use(streams, e, glk_clock_tick(streams, NULL));

	glk_store_relaxed(&e->pins, COUNTED);
	arena->held--;
	glk_arena_merge(arena, glk_extent_id(&arena->map, e), &use);
}

/*
 * A free at the same time may have claimed the extent already and wait for the lock. It counts
 * the pins then, so one that gives up the last of them has nothing more to do. Others may pin it
 * meanwhile, as long as it is live.
 */
static bool unpin(struct glk_arena *arena, struct glk_extent *e)
{
	uint32_t old = glk_load_relaxed(&e->pins);

	if (glk_load_relaxed(&e->bin) != GLK_BIN_PINNED)
		return false;
	do {
		if (!(old & GLK_PINS_MOST))
			return false;
	} while (!glk_cas_weak_relaxed(&e->pins, &old, old - 1));
	if (old & HELD && (old & GLK_PINS_MOST) == 1)
		put_back(arena, e);
	return true;
}

int glk_cache_unpin(struct glk_cache *cache, uint64_t addr)
{
	struct glk_range *range;
	struct glk_extent *e;
	bool done;

	glk_lock(&cache->lock);
	e = find(cache, addr, &range);
	done = e && unpin(glk_arena_of(range), e);
	glk_unlock(&cache->lock);
	return done ? 0 : is_not_out(e, addr);
}

bool glk_pin_hold(
	struct glk_arena *arena, struct glk_extent *e, const struct glk_use *use)
{
	uint32_t pins = glk_pin_count(e);

	if (!pins)
		return false;
	glk_marks_add_use(&arena->gpu->streams, e, use);
	glk_store_relaxed(&e->pins, pins | COUNTED | HELD);
	arena->held++;
	return true;
}

void glk_pin_describe(const struct glk_arena *arena, const struct glk_extent *e,
	uint32_t able, struct glake_block *block)
{
	const struct glk_node *node = arena->gpu->node;

	block->can |= able & GLK_PAGE_EXPORT_FD ? GLAKE_CAN_EXPORT : 0;
	block->can |= able & GLK_PAGE_FABRIC ? GLAKE_CAN_FABRIC : 0;
	block->can |= able & GLK_PAGE_RDMA ? GLAKE_CAN_RDMA : 0;
	if (!block->away && !block->placed && !block->managed) {
		block->can |= node->caps & GLAKE_CAP_DMABUF ? GLAKE_CAN_DMABUF : 0;
		block->can |=
			block->flags & GLAKE_ALLOC_CONTIGUOUS ? GLAKE_CAN_CONTIGUOUS : 0;
	}
	block->exports = glk_pin_count(e);
	block->peers = glk_load_relaxed(&node->peers);
}
