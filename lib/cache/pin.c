/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks that are out: other processes have their pages, or devices their dma-bufs. Nobody can
 * take the memory away from them, and nobody here is told when they are done, so it must serve
 * nobody else until the program says so.
 *
 * A block that is out counts its pins where a block in a bin has its link, and goes to no bin.
 * Freed while it is out, it stays as it lies: an extent that is no block any more and that no
 * search can have, with the streams that used it as its marks. The last pin gives it back,
 * behind all work of those streams so far.
 *
 * Guarantees	no page of it is stolen, released or mapped elsewhere, and no other block gets
 *		its addresses. That holds in pools of graphs, which do not end before
 */
#include "base/error.h"
#include "cache/arena/request.h"
#include "cache/block.h"

#include <errno.h>
#include <inttypes.h>

/* Of the count: the block was freed. */
#define HELD	  (UINT32_C(1) << 31)
#define PINS_MOST (HELD - 1)

static uint32_t pins_of(const struct glk_extent *e)
{
	if (glk_load_relaxed(&e->bin) != GLK_BIN_PINNED)
		return 0;
	return glk_load_relaxed(&e->pins);
}

static void set_pins(struct glk_extent *e, uint32_t pins)
{
	glk_store_relaxed(&e->pins, pins);
}

/* The block or what is left of it around an address; NULL for none. Under the lock. */
static struct glk_extent *find(
	struct glk_cache *cache, uint64_t addr, struct glk_range **ret_range)
{
	struct glk_range *range = glk_cache_range(cache, addr);
	uint32_t id = range ? glk_lookup_around(range, addr) : 0;

	*ret_range = range;
	return id ? glk_extent_at(range->map, id) : NULL;
}

/* Makes it one that is out, if it is not: its marks stay. The caller has claimed it. */
static int pin(struct glk_extent *e)
{
	uint64_t marks = glk_block_marks(e);
	uint32_t pins = pins_of(e);

	if (pins == PINS_MOST)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"the block is out %" PRIu32 " times, the most there can be",
			pins);
	e->marks = marks;
	set_pins(e, pins + 1);
	glk_store_relaxed(&e->bin, GLK_BIN_PINNED);
	return 0;
}

static struct glk_pin pin_of(struct glk_arena *arena, const struct glk_extent *e)
{
	const struct glk_map *map = &arena->map;
	struct glk_pin pin = {.arena = arena,
		.base = glk_load_relaxed(&e->addr),
		.size = glk_extent_asked(e),
		.first = glk_extent_first(map, e)};

	pin.last = glk_slot_of(map, e->offset + pin.size - 1);
	for (uint32_t slot = pin.first; slot <= pin.last; pin.count++)
		slot = glk_mapping_at(map, slot).last + 1;
	return pin;
}

int glk_cache_pin(
	struct glk_cache *cache, uint64_t addr, bool inside, struct glk_pin *ret_pin)
{
	struct glk_range *range;
	struct glk_extent *e;
	int err = -EINVAL;

	glk_lock(&cache->lock);
	e = find(cache, addr, &range);
	if (e && inside)
		addr = glk_load_relaxed(&e->addr);
	/* not live meanwhile, so that a free at the same time is refused and loses nothing */
	e = e ? glk_lookup_claim(range, addr) : NULL;
	if (e) {
		err = pin(e);
		glk_extent_set(e, GLK_EXTENT_LIVE);
		if (!err)
			*ret_pin = pin_of(glk_arena_of(range), e);
	}
	glk_unlock(&cache->lock);
	return e ? err : glk_block_refuse(cache, addr);
}

/* Under the lock: that of page number `i`. */
static struct glk_mapping mapping_of(struct glk_pin *pin, size_t i)
{
	const struct glk_map *map = &pin->arena->map;
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
	const struct glk_map *map = &pin->arena->map;
	struct glk_mapping m;
	struct glk_share_page p;
	const struct glk_page *page;
	uint64_t begin, end = pin->base + pin->size;

	/* what is said of its slots lies in words with what is said of others */
	glk_lock(&pin->arena->gpu->lock);
	m = mapping_of(pin, i);
	begin = glk_slot_addr(map, m.first);
	page = glk_map_page(map, map->page[m.first]);
	p = (struct glk_share_page){
		.handle = page->handle, .size = page->size, .able = page->able};
	glk_unlock(&pin->arena->gpu->lock);
	if (pin->base > begin)
		p.offset = pin->base - begin;
	p.length = (end - begin < p.size ? end - begin : p.size) - p.offset;
	return p;
}

/* The last pin of a block that was freed: it goes back behind its streams. */
static void put_back(struct glk_arena *arena, struct glk_extent *e)
{
	struct glk_streams *streams = &arena->gpu->streams;
	struct glk_use use = {.streams = glk_block_marks(e)};

	use.tick = glk_clock_tick(streams, NULL);
	glk_clock_join(streams, use.streams, use.tick);
	arena->held--;
	glk_arena_merge(arena, glk_extent_id(&arena->map, e), &use);
}

/*
 * A free at the same time may have claimed the extent already and wait for the lock. It counts
 * the pins then, so one that gives up the last of them has nothing more to do.
 */
int glk_cache_unpin(struct glk_cache *cache, uint64_t addr)
{
	struct glk_range *range;
	struct glk_extent *e;
	uint32_t pins;

	glk_lock(&cache->lock);
	e = find(cache, addr, &range);
	pins = e ? pins_of(e) : 0;
	if (pins & PINS_MOST) {
		set_pins(e, pins - 1);
		if (pins - 1 == HELD)
			put_back(glk_arena_of(range), e);
	}
	glk_unlock(&cache->lock);
	if (pins & PINS_MOST)
		return 0;
	return glk_error(-EINVAL, e ? GLAKE_ERROR_INVAL : GLAKE_ERROR_NOT_MINE,
		e ? "the block at 0x%" PRIx64 " is not out" : "no block holds 0x%" PRIx64,
		addr);
}

bool glk_pin_hold(struct glk_arena *arena, struct glk_extent *e, uint64_t streams)
{
	uint32_t pins = pins_of(e);

	if (!pins)
		return false;
	e->marks = glk_block_marks(e) | streams;
	set_pins(e, pins | HELD);
	arena->held++;
	return true;
}

void glk_pin_describe(
	struct glk_arena *arena, const struct glk_extent *e, struct glake_block *block)
{
	const struct glk_node *node = arena->gpu->node;
	const struct glk_map *map = &arena->map;
	uint32_t able = GLK_PAGE_EXPORT_FD | GLK_PAGE_FABRIC | GLK_PAGE_RDMA;
	struct glk_pin pin = pin_of(arena, e);

	for (uint32_t slot = pin.first; slot <= pin.last;) {
		able &= glk_map_page(map, map->page[slot])->able;
		slot = glk_mapping_at(map, slot).last + 1;
	}
	block->can |= able & GLK_PAGE_EXPORT_FD ? GLAKE_CAN_EXPORT : 0;
	block->can |= able & GLK_PAGE_FABRIC ? GLAKE_CAN_FABRIC : 0;
	block->can |= able & GLK_PAGE_RDMA ? GLAKE_CAN_RDMA : 0;
	block->can |= node->caps & GLAKE_CAP_DMABUF ? GLAKE_CAN_DMABUF : 0;
	block->can |= e->whole ? GLAKE_CAN_CONTIGUOUS : 0;
	block->exports = pins_of(e);
	block->peers = glk_load_relaxed(&node->peers);
}
