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
#include "cache/graph.h"
#include "cache/quick.h"

#include <errno.h>
#include <inttypes.h>

/* Of the count: the block was freed. */
#define HELD	  (UINT32_C(1) << 31)
#define PINS_MOST (HELD - 1)

static uint32_t pins_of(const struct glk_extent *e)
{
	if (glk_load_relaxed(&e->bin) != GLK_BIN_PINNED)
		return 0;
	return glk_load_relaxed(&e->quick.next);
}

static void set_pins(struct glk_extent *e, uint32_t pins)
{
	glk_store_relaxed(&e->quick.next, pins);
}

static void set_marks(struct glk_extent *e, uint64_t streams)
{
	e->left = (uint32_t)streams;
	e->right = (uint32_t)(streams >> 32);
}

/* The block or what is left of it around an address; NULL for none. Under the lock. */
static struct glk_extent *find(
	struct glk_cache *cache, uint64_t addr, struct glk_cache **ret_at)
{
	struct glk_cache *at = glk_graph_cache(cache, addr);
	uint32_t extent = at ? glk_span_lookup(glk_map_span(&at->map, addr), addr) : 0;

	*ret_at = at;
	return extent ? glk_extent_at(&at->map, extent) : NULL;
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
	set_marks(e, marks);
	set_pins(e, pins + 1);
	glk_store_relaxed(&e->bin, GLK_BIN_PINNED);
	return 0;
}

static struct glk_pin pin_of(struct glk_cache *at, const struct glk_extent *e)
{
	struct glk_pin pin = {.at = at,
		.span = &at->map.span[e->kind],
		.base = glk_load_relaxed(&e->addr),
		.size = glk_extent_asked(e)};

	pin.first = glk_slot_of(pin.span, e->offset);
	pin.count = e->kind == GLK_KIND_SINGLE
		? 1
		: glk_slot_of(pin.span, e->offset + pin.size - 1) - pin.first + 1;
	return pin;
}

int glk_cache_pin(
	struct glk_cache *cache, uint64_t addr, bool inside, struct glk_pin *ret_pin)
{
	struct glk_extent *e;
	struct glk_cache *at;
	int err = -EINVAL;

	glk_lock(cache->lock);
	e = find(cache, addr, &at);
	if (e && inside)
		addr = glk_load_relaxed(&e->addr);
	/* not live meanwhile, so that a free at the same time is refused and loses nothing */
	e = e ? glk_lookup_claim(&at->map.span[e->kind], addr) : NULL;
	if (e) {
		err = pin(e);
		glk_extent_set(e, GLK_EXTENT_LIVE);
		if (!err)
			*ret_pin = pin_of(at, e);
	}
	glk_unlock(cache->lock);
	return e ? err : glk_block_refuse(cache, addr);
}

struct glk_share_page glk_pin_page(const void *of, size_t i)
{
	const struct glk_pin *pin = of;
	const struct glk_span *span = pin->span;
	uint32_t slot = pin->first + (uint32_t)i;
	uint64_t begin = span->base + ((uint64_t)slot << span->shift);
	const struct glk_page *page = glk_map_page(&pin->at->map, span->slot[slot].page);
	struct glk_share_page p = {
		.handle = page->handle, .size = page->size, .able = page->able};
	uint64_t end = pin->base + pin->size;

	if (pin->base > begin)
		p.offset = pin->base - begin;
	p.length = (end - begin < p.size ? end - begin : p.size) - p.offset;
	return p;
}

/* The last pin of a block that was freed: it goes back behind its streams. */
static void put_back(struct glk_cache *cache, struct glk_cache *at, struct glk_extent *e)
{
	struct glk_use use = {.streams = glk_block_marks(e)};

	use.tick = glk_clock_tick(cache->streams, NULL);
	glk_clock_join(cache->streams, use.streams, use.tick);
	at->held--;
	glk_block_put_back(at, e, &use);
	if (at != cache && glk_graph_of(at)->state == GLK_GRAPH_LEAVING)
		glk_graph_reap(cache);
}

/*
 * A free at the same time may have claimed the extent already and wait for the lock. It counts
 * the pins then, so one that gives up the last of them has nothing more to do.
 */
int glk_cache_unpin(struct glk_cache *cache, uint64_t addr)
{
	struct glk_extent *e;
	struct glk_cache *at;
	uint32_t pins;
	int err = 0;

	glk_lock(cache->lock);
	e = find(cache, addr, &at);
	pins = e ? pins_of(e) : 0;
	if (!(pins & PINS_MOST)) {
		err = glk_error(-EINVAL, e ? GLAKE_ERROR_INVAL : GLAKE_ERROR_NOT_MINE,
			e ? "the block at 0x%" PRIx64 " is not out"
			  : "no block holds 0x%" PRIx64,
			addr);
	} else {
		set_pins(e, pins - 1);
		if (pins - 1 == HELD)
			put_back(cache, at, e);
	}
	glk_unlock(cache->lock);
	return err;
}

bool glk_pin_hold(struct glk_cache *cache, struct glk_extent *e, uint64_t streams)
{
	uint32_t pins = pins_of(e);

	if (!pins)
		return false;
	set_marks(e, glk_block_marks(e) | streams);
	set_pins(e, pins | HELD);
	cache->held++;
	return true;
}

void glk_pin_describe(struct glk_cache *cache, const struct glk_span *span,
	const struct glk_extent *e, struct glake_block *block)
{
	uint32_t able = GLK_PAGE_EXPORT_FD | GLK_PAGE_FABRIC | GLK_PAGE_RDMA;
	struct glk_pin pin = pin_of(cache, e);

	for (uint32_t i = 0; i < pin.count; i++)
		able &= glk_pin_page(&pin, i).able;
	block->can |= able & GLK_PAGE_EXPORT_FD ? GLAKE_CAN_EXPORT : 0;
	block->can |= able & GLK_PAGE_FABRIC ? GLAKE_CAN_FABRIC : 0;
	block->can |= able & GLK_PAGE_RDMA ? GLAKE_CAN_RDMA : 0;
	block->can |= cache->node->caps & GLAKE_CAP_DMABUF ? GLAKE_CAN_DMABUF : 0;
	block->can |= span->kind == GLK_KIND_SINGLE ? GLAKE_CAN_CONTIGUOUS : 0;
	block->exports = pins_of(e);
	block->peers = glk_load_relaxed(&cache->node->peers);
}
