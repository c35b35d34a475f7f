/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * States of a pool of graphs: its live blocks, and how they are brought back. Mappings of a pool stay
 * as long as it does, so memory is behind each place that a block ever had; what is to be found out is
 * whether the place is free, and whether no other block of the state has the same page elsewhere.
 *
 *	place, match	which blocks stay, go and come; where those that come lie
 *	shape		those among small blocks, and those among all others
 *	check		who else is in their places
 *	claim, swap	those that go are nobody's, and all slots have the users of the new state.
 *			Until here each step can be undone
 *	free, make	descriptors, tables and figures follow, which cannot fail: it was counted before
 *			how many there will be
 *
 * All of it is one turn with the lock, so nobody sees a part of it.
 *
 * Cost		n log n for a list that is not sorted, a step for each descriptor of the pool, and
 *		about 0.2 us for each block that goes or comes
 */
#include "base/clock.h"
#include "base/error.h"
#include "cache/bin/hit.h"
#include "cache/block.h"
#include "cache/cache.h"
#include "cache/graph/graph.h"
#include "map/map.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

/* ---- The extents of a map in the order of their addresses ---- */

struct walk {
	uint32_t first[GLK_RANGES_MAX]; /* extent of each range, the lowest range first */
	unsigned count, row;
	uint32_t next;
};

static struct walk walk_of(const struct glk_map *map)
{
	uint32_t used = glk_load_relaxed(&map->extents.used);
	struct walk walk = {.count = 0};

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);
		unsigned i = walk.count;

		if (e->prev || glk_extent_state(e) == GLK_EXTENT_NONE)
			continue;
		for (; i &&
			glk_load_relaxed(&glk_extent_at(map, walk.first[i - 1])->addr) >
				glk_load_relaxed(&e->addr);
			i--)
			walk.first[i] = walk.first[i - 1];
		walk.first[i] = id;
		walk.count++;
	}
	return walk;
}

static struct glk_extent *next_extent(const struct glk_map *map, struct walk *walk)
{
	struct glk_extent *e;

	if (!walk->next) {
		if (walk->row == walk->count)
			return NULL;
		walk->next = walk->first[walk->row++];
	}
	e = glk_extent_at(map, walk->next);
	walk->next = e->next;
	return e;
}

static inline bool is_live(const struct glk_extent *e)
{
	enum glk_extent_state state = glk_extent_state(e);

	return state == GLK_EXTENT_LIVE || state == GLK_EXTENT_HELD;
}

static struct CUstream_st *stream_of(
	const struct glk_cache *cache, const struct glk_extent *e)
{
	return glk_stream_at(&cache->streams, glk_load_relaxed(&e->stream))->handle;
}

/* How many blocks are live; the first `room` of them go to `ret_blocks`. */
static size_t tell_live(
	const struct glk_graph *graph, struct glake_pool_block *ret_blocks, size_t room)
{
	const struct glk_map *map = &graph->arena.map;
	struct walk walk = walk_of(map);
	const struct glk_extent *e;
	size_t count = 0;

	while ((e = next_extent(map, &walk))) {
		if (!is_live(e))
			continue;
		if (count < room)
			ret_blocks[count] = (struct glake_pool_block){
				.ptr = (void *)(uintptr_t)glk_load_relaxed(&e->addr),
				.size = glk_extent_asked(e),
				.stream = stream_of(graph->arena.gpu, e)};
		count++;
	}
	return count;
}

int glk_graph_blocks(struct glk_cache *cache, struct glake_pool_id id,
	struct glake_pool_block *ret_blocks, size_t room, size_t *ret_count)
{
	struct glk_graph *graph;
	int err;

	glk_lock(&cache->lock);
	err = glk_graph_find(cache, id, &graph);
	if (!err)
		*ret_count = tell_live(graph, ret_blocks, room);
	glk_unlock(&cache->lock);
	return err;
}

/* ---- A state that is to be ---- */

enum shape {
	SMALL = 1, /* in a slot of small blocks */
	COMMON,
	WHOLE, /* common, and all of a page that no plain block could be alone on */
};

/* A block of the state. */
struct want {
	uint64_t addr, size; /* size as asked for */
	struct CUstream_st *stream;
	uint64_t offset, given; /* in the map; bytes */
	uint32_t id;		/* of the stream; 0: it is not known */
	enum shape shape;
	bool kept; /* it is live already */
};

/* A live block that is none of it. */
struct gone {
	uint64_t addr;
	struct CUstream_st *stream;
	uint32_t extent;
	bool out; /* others have it, see cache/pin.c */
};

struct restore {
	struct glk_cache *cache;
	struct glk_graph *graph;
	struct glk_map *map;
	struct want *want;
	struct gone *gone;
	size_t count, gones;
	/* Extents and slots of small blocks of the state, and those that are in the hands of others. */
	uint64_t extents, nests, others;
	int64_t begun, done; /* times of the frees, and of the rest, for a trace */
};

static int refuse(
	int err, enum glake_error_class class, const struct want *w, const char *why)
{
	return glk_error(err, class,
		"the block of %" PRIu64 " bytes at 0x%" PRIx64 " of a state %s", w->size,
		w->addr, why);
}

static uint64_t end_of(const struct want *w)
{
	return w->addr + w->given;
}

static uint32_t first_slot(const struct glk_map *map, const struct want *w)
{
	return glk_slot_of(map, w->offset);
}

static uint32_t last_slot(const struct glk_map *map, const struct want *w)
{
	return glk_slot_of(map, w->offset + w->given - 1);
}

/* Sorts a heap from one of its elements down. */
static void sift(struct want *want, size_t at, size_t count)
{
	struct want w = want[at];

	for (size_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && want[child].addr < want[child + 1].addr)
			child++;
		if (want[child].addr <= w.addr)
			break;
		want[at] = want[child];
	}
	want[at] = w;
}

static void sort(struct want *want, size_t count)
{
	size_t i = 1;

	while (i < count && want[i - 1].addr <= want[i].addr)
		i++;
	if (i >= count)
		return;
	for (i = count / 2; i--;)
		sift(want, i, count);
	for (i = count - 1; i; i--) {
		struct want last = want[i];

		want[i] = want[0];
		want[0] = last;
		sift(want, 0, i);
	}
}

static int place(struct restore *r)
{
	for (size_t i = 0; i < r->count; i++) {
		struct want *w = &r->want[i];
		const struct glk_range *range = glk_cache_range(r->cache, w->addr);

		if (!range || range->map != r->map)
			return refuse(-EINVAL, GLAKE_ERROR_INVAL, w,
				"does not lie among the addresses of the pool");
		if (w->addr % GLAKE_GRAIN)
			return refuse(-EINVAL, GLAKE_ERROR_INVAL, w,
				"begins at no multiple of 512 bytes");
		w->offset = w->addr - range->base + range->offset;
		if (!w->size || w->size > range->base + range->size - w->addr)
			return refuse(-EINVAL, GLAKE_ERROR_INVAL, w,
				"has no size that it can have there");
		w->given = glk_quick_grains(w->size) << GLK_GRAIN_SHIFT;
	}
	return 0;
}

/* Which live blocks are of the state, and which are not. */
static int match(struct restore *r)
{
	struct walk walk = walk_of(r->map);
	struct glk_extent *e;
	size_t i = 0;

	r->gones = r->others = 0;
	while ((e = next_extent(r->map, &walk))) {
		struct want *w;
		uint64_t addr = glk_load_relaxed(&e->addr);

		r->others += glk_extent_state(e) == GLK_EXTENT_QUICK;
		if (!is_live(e))
			continue;
		while (i < r->count && r->want[i].addr < addr)
			i++;
		w = i < r->count && r->want[i].addr == addr ? &r->want[i] : NULL;
		if (w && glk_extent_asked(e) == w->size &&
			stream_of(r->cache, e) == w->stream) {
			w->kept = true;
			w->given = e->size;
			w->shape = e->nested ? SMALL : COMMON;
			continue;
		}
		r->gone[r->gones++] = (struct gone){.addr = addr,
			.stream = stream_of(r->cache, e),
			.extent = glk_extent_id(r->map, e)};
	}
	return 0;
}

static int know_streams(struct restore *r)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct want *w = &r->want[i];

		/* it may have ended since it was looked up, and its number be another's */
		if (!w->kept &&
			(!w->id ||
				glk_load_relaxed(
					&glk_stream_at(&r->cache->streams, w->id)->key) !=
					glk_stream_key(w->stream)))
			return refuse(-EINVAL, GLAKE_ERROR_INVAL, w,
				"is of a stream that is not known, or has ended");
	}
	return 0;
}

/* Whether it may lie in a slot of small blocks. */
static bool is_small(const struct restore *r, const struct want *w)
{
	uint64_t part = w->addr & (glk_slot_bytes(r->map) - 1);

	if (w->kept)
		return w->shape == SMALL;
	return w->given <= r->cache->small_most &&
		part + w->given <= glk_slot_bytes(r->map);
}

/* A contiguous block keeps its page to itself, if that is of a size that no other block's pages have. */
static void make_whole(const struct restore *r, struct want *w)
{
	const struct glk_map *map = r->map;
	uint64_t part = glk_slot_bytes(map) - 1, given = (w->given + part) & ~part;
	const struct want *next = w + 1;
	uint32_t slot = first_slot(map, w);
	const struct glk_page *page;

	if ((w->offset & part) || !glk_bit_get(map->head, slot) || !map->page[slot])
		return;
	page = glk_map_page(map, map->page[slot]);
	if (page->class == GLK_CLASS_SMALL || page->class == GLK_CLASS_LARGE ||
		page->size != given ||
		(next < r->want + r->count && next->addr < w->addr + given))
		return;
	w->given = given;
	w->shape = WHOLE;
}

/* Whether the slot of a block reaches above the high-water mark, so that it never was one of small blocks. */
static bool is_cut(const struct glk_map *map, const struct want *w)
{
	uint64_t end = (w->offset | (glk_slot_bytes(map) - 1)) + 1;

	return w->offset >= map->range[map->ranges - 1].offset && end > map->high;
}

/*
 * A slot is one of small blocks, or others are in it. So all blocks that begin in one are looked at
 * together, and `behind` is the end of what is common before them. Where the slots that small blocks may
 * have were used up some got the size of the least that lie among all others.
 */
static int shape(struct restore *r)
{
	uint64_t bytes = glk_slot_bytes(r->map), behind = 0;

	for (size_t i = 0, j; i < r->count; i = j) {
		uint64_t slot = r->want[i].addr & ~(bytes - 1);
		bool common = behind > slot || is_cut(r->map, &r->want[i]);

		for (j = i; j < r->count && r->want[j].addr < slot + bytes; j++)
			common |= !is_small(r, &r->want[j]);
		for (size_t k = i; k < j; k++) {
			struct want *w = &r->want[k];

			if (w->kept && w->shape == SMALL && common)
				return refuse(-EINVAL, GLAKE_ERROR_INVAL, w,
					"lies among small blocks, where others do not");
			if (!w->kept && common && w->given <= r->cache->small_most)
				w->given = r->cache->small_most + GLAKE_GRAIN;
			if (!w->kept)
				w->shape = common ? COMMON : SMALL;
			if (!w->kept && w->shape == COMMON)
				make_whole(r, w);
			if (w->shape != SMALL && end_of(w) > behind)
				behind = end_of(w);
		}
	}
	return 0;
}

/* Whether they lie beside each other, and how many extents they are: one for each block, for each hole, and
 * no more than one on both sides of a slot of small blocks. */
static int count(struct restore *r)
{
	uint64_t slot = UINT64_MAX, bytes = glk_slot_bytes(r->map);

	r->extents = r->map->ranges;
	r->nests = 0;
	for (size_t i = 0; i < r->count; i++) {
		const struct want *w = &r->want[i];
		bool last = i + 1 == r->count;
		const struct glk_range *range = glk_map_range(r->map, w->offset);

		if (w->offset + w->given > range->offset + range->size)
			return refuse(-EINVAL, GLAKE_ERROR_INVAL, w,
				"has no size that it can have there");
		if (!last && end_of(w) > w[1].addr)
			return refuse(-EINVAL, GLAKE_ERROR_INVAL, &w[1],
				"overlaps another one");
		r->extents += last || end_of(w) < w[1].addr ? 2 : 1;
		if (w->shape != SMALL || (w->addr & ~(bytes - 1)) == slot)
			continue;
		slot = w->addr & ~(bytes - 1);
		r->nests++;
	}
	r->extents += 2 * r->nests;
	return 0;
}

/* The first block that ends above an address. */
static size_t first_above(const struct restore *r, uint64_t addr)
{
	size_t low = 0, high = r->count;

	while (low < high) {
		size_t at = low + (high - low) / 2;

		if (end_of(&r->want[at]) > addr)
			high = at;
		else
			low = at + 1;
	}
	return low;
}

/* The block that is to come where an extent is and stays, or into its slot though it is of the other kind;
 * NULL: none is. */
static const struct want *met_by(const struct restore *r, const struct glk_extent *e)
{
	uint64_t begin = glk_load_relaxed(&e->addr), end = begin + e->size;
	uint64_t part = glk_slot_bytes(r->map) - 1;

	for (size_t i = first_above(r, begin & ~part);
		i < r->count && r->want[i].addr < ((end + part) & ~part); i++) {
		const struct want *w = &r->want[i];

		if (!w->kept &&
			((w->shape == SMALL) != e->nested ||
				(w->addr < end && end_of(w) > begin)))
			return w;
	}
	return NULL;
}

/* Whether a slot of small blocks would have to be made where the extent that ends its range ends: nobody
 * had one there. */
static const struct want *cut_by(const struct restore *r, const struct glk_extent *e)
{
	uint64_t end = glk_load_relaxed(&e->addr) + e->size;
	uint64_t slot = end & ~(glk_slot_bytes(r->map) - 1);

	if (e->next || e->nested || slot == end)
		return NULL;
	for (size_t i = first_above(r, slot); i < r->count && r->want[i].addr < end; i++)
		if (!r->want[i].kept && r->want[i].shape == SMALL)
			return &r->want[i];
	return NULL;
}

static int meets(const struct want *w)
{
	return refuse(-EBUSY, GLAKE_ERROR_BUSY, w,
		"lies where another one is out or in the hands of a thread");
}

#define NEVER "lies where the pool never gave a block"

/* The places were given before, and nobody who stays is there. */
static int check(const struct restore *r)
{
	uint64_t at = r->count ? r->want[0].addr : 0; /* what comes before is there */
	struct walk walk = walk_of(r->map);
	const struct glk_extent *e;
	size_t i = 0;

	while ((e = next_extent(r->map, &walk))) {
		uint64_t begin = glk_load_relaxed(&e->addr), end = begin + e->size;
		const struct want *w = NULL;

		if (glk_extent_state(e) == GLK_EXTENT_QUICK)
			w = met_by(r, e);
		if (w)
			return meets(w);
		w = cut_by(r, e);
		if (w)
			return refuse(-EINVAL, GLAKE_ERROR_INVAL, w, NEVER);
		while (i < r->count && at >= begin && at < end) {
			at = end;
			if (end_of(&r->want[i]) > end)
				break;
			i++;
			at = i < r->count ? r->want[i].addr : 0;
		}
	}
	return i < r->count ? refuse(-EINVAL, GLAKE_ERROR_INVAL, &r->want[i], NEVER) : 0;
}

static void let_go(const struct restore *r, size_t claimed)
{
	for (size_t i = 0; i < claimed; i++)
		glk_extent_set(glk_extent_at(r->map, r->gone[i].extent), GLK_EXTENT_LIVE);
}

/* Blocks that go are in our hands: nobody frees or holds them meanwhile. */
static int claim(struct restore *r)
{
	for (size_t i = 0; i < r->gones; i++) {
		struct glk_extent *e = glk_extent_at(r->map, r->gone[i].extent);
		const struct want *w = NULL;

		if (!glk_word_claim(&e->word, &e->addr, r->gone[i].addr)) {
			let_go(r, i);
			return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
				"another thread uses the block at 0x%" PRIx64
				", which is none of the state, in a call",
				r->gone[i].addr);
		}
		r->gone[i].out = glk_pin_is_out(e);
		r->others += r->gone[i].out;
		if (r->gone[i].out)
			w = met_by(r, e);
		if (w) {
			let_go(r, i + 1);
			return meets(w);
		}
	}
	return 0;
}

/* With what others have in their hands, each with holes on both sides. */
static int fits(const struct restore *r)
{
	if (r->extents + 4 * r->others <= r->map->extents.max &&
		r->nests + r->others <= r->map->nests.max)
		return 0;
	let_go(r, r->gones);
	return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"a state needs more slots of small blocks than there may be, or more "
		"extents than the %" PRIu32 " that map.extents allows",
		r->map->extents.max);
}

/* Slots of blocks that go have them no longer, or again. */
static void swap_gone(const struct restore *r, bool back)
{
	const struct glk_use never = {0};

	for (size_t i = 0; i < r->gones; i++) {
		const struct glk_extent *e = glk_extent_at(r->map, r->gone[i].extent);
		uint32_t first = glk_extent_first(r->map, e);
		uint32_t last = glk_extent_last(r->map, e);

		if (r->gone[i].out)
			continue;
		if (back)
			glk_slots_enter(r->map, first, last);
		else
			glk_slots_leave(r->map, first, last, &never);
	}
}

/* Those that come are on their slots: all have memory there that is nobody else's. */
static int swap(const struct restore *r)
{
	const struct glk_use never = {0};
	struct glk_map *map = r->map;
	size_t i;

	swap_gone(r, false);
	for (i = 0; i < r->count; i++) {
		const struct want *w = &r->want[i];
		uint32_t first, last;

		if (w->kept)
			continue;
		first = first_slot(map, w);
		last = last_slot(map, w);
		if (!glk_bits_all(map->usable, first, last) ||
			glk_is_claimed(map, first, last))
			break;
		glk_slots_enter(map, first, last);
	}
	if (i == r->count)
		return 0;
	refuse(-EBUSY, GLAKE_ERROR_BUSY, &r->want[i],
		"has no memory of its own behind it: another one of the pool has it");
	while (i--) {
		const struct want *w = &r->want[i];

		if (!w->kept)
			glk_slots_leave(
				map, first_slot(map, w), last_slot(map, w), &never);
	}
	swap_gone(r, true);
	return -EBUSY;
}

/* What was used by the block alone is as if nobody ever had: the order of work is the caller's affair. */
static void forget_use(struct glk_map *map, const struct glk_extent *e)
{
	uint64_t part = glk_slot_bytes(map) - 1;
	const struct glk_use never = {0};
	uint32_t first = glk_slot_of(map, e->offset + part);
	uint32_t behind = glk_slot_of(map, e->offset + e->size);

	if (e->nested || first >= behind)
		return;
	glk_use_set(map, first, behind - 1, &never);
	for (uint32_t slot = first; slot < behind; slot++) {
		struct glk_mapping m;

		slot = glk_bits_first(map->shared, slot, behind - 1);
		if (slot == GLK_BITS_NONE)
			return;
		m = glk_mapping_at(map, slot);
		if (m.first >= first && m.last < behind)
			glk_map_page(map, map->page[slot])->use = never;
		slot = m.last;
	}
}

static void free_all(const struct restore *r, struct glk_seat *seat)
{
	struct glk_arena *arena = &r->graph->arena;
	const struct glk_use never = {0};

	for (size_t i = 0; i < r->gones; i++) {
		uint32_t id = r->gone[i].extent;
		struct glk_extent *e = glk_extent_at(r->map, id);

		glk_seat_free(seat, glk_extent_asked(e), e->size);
		glk_arena_count(arena, e, false);
		glk_advice_end(arena, e);
		glk_prefetch_gone(r->cache, e);
		glk_quick_gone(r->cache, e);
		if (glk_pin_hold(arena, e, &never))
			continue;
		forget_use(r->map, e);
		glk_lookup_leave(r->map, id);
		glk_extent_give_back(r->map, id);
	}
}

/* A slot of small blocks, in a free extent that is none. */
static uint32_t open_slot(struct glk_map *map, uint32_t from, const struct want *w)
{
	uint64_t offset = w->offset & ~(glk_slot_bytes(map) - 1);
	uint32_t extent;
	int err = glk_extent_carve(map, from, offset, glk_slot_bytes(map), &extent);

	err = err ? err : glk_nest_open(map, extent);
	assert(!err);
	return err ? 0 : extent;
}

static void give_out(const struct restore *r, const struct want *w, uint32_t extent,
	struct glk_seat *seat)
{
	struct glk_extent *e = glk_extent_at(r->map, extent);
	struct glk_cache *cache = r->cache;

	glk_store_relaxed(&e->whole, w->shape == WHOLE);
	glk_store_relaxed(&e->slack, (uint32_t)(e->size - w->size));
	glk_store_relaxed(&e->stream, (uint16_t)w->id);
	glk_store_relaxed(&e->bin, 0);
	glk_stream_enter(&cache->streams, w->id);
	glk_quick_born(glk_quick_row(cache, w->id, glk_stream_name(w->stream)), e->size);
	glk_lookup_enter(r->map, extent);
	glk_seat_alloc(seat, w->size, e->size);
	glk_arena_count(&r->graph->arena, e, true);
	cache->served++;
}

static void make_all(const struct restore *r, struct glk_seat *seat)
{
	struct walk walk = walk_of(r->map);
	struct glk_extent *e = next_extent(r->map, &walk);

	for (size_t i = 0; i < r->count; i++) {
		const struct want *w = &r->want[i];
		uint32_t id;
		int err;

		if (w->kept)
			continue;
		while (glk_load_relaxed(&e->addr) + e->size <= w->addr)
			e = next_extent(r->map, &walk);
		id = glk_extent_id(r->map, e);
		if (w->shape == SMALL && !e->nested)
			id = open_slot(r->map, id, w);
		err = glk_extent_carve(r->map, id, w->offset, w->given, &id);
		assert(!err);
		(void)err;
		e = glk_extent_at(r->map, id);
		walk.next = e->next;
		give_out(r, w, id, seat);
	}
}

/* Under the lock, in a plan. */
static int restore(struct restore *r)
{
	struct glk_seat *seat = glk_hit_seat(r->cache);
	int err = place(r);

	if (!seat)
		seat = glk_slab_at(&r->cache->seats, 0);
	err = err ? err : match(r);
	err = err ? err : know_streams(r);
	err = err ? err : shape(r);
	err = err ? err : count(r);
	err = err ? err : check(r);
	err = err ? err : claim(r);
	err = err ? err : fits(r);
	if (err)
		return err;
	r->begun = glk_clock_ns();
	err = swap(r);
	if (err) {
		let_go(r, r->gones);
		return err;
	}
	if (r->cache->ended != r->cache->streams.ended)
		glk_quick_sweep(r->cache);
	free_all(r, seat);
	make_all(r, seat);
	glk_seats_sum(r->cache, &r->cache->sum);
	glk_seats_note_peak(r->cache, r->cache->sum.live);
	r->done = glk_clock_ns();
	return 0;
}

static void tell(const struct restore *r, glk_state_fn fn, void *arg)
{
	for (size_t i = 0; i < r->gones; i++)
		fn(&(struct glk_state_change){.ns = r->begun,
			   .addr = r->gone[i].addr,
			   .stream = r->gone[i].stream},
			arg);
	for (size_t i = 0; i < r->count; i++) {
		if (r->want[i].kept)
			continue;
		fn(&(struct glk_state_change){.ns = r->done,
			   .addr = r->want[i].addr,
			   .size = r->want[i].size,
			   .stream = r->want[i].stream},
			arg);
	}
}

static void copy(struct restore *r, const struct glake_pool_block *blocks)
{
	struct CUstream_st *stream = NULL;
	uint32_t id = 0;

	for (size_t i = 0; i < r->count; i++) {
		if (!id || blocks[i].stream != stream)
			id = glk_stream_find(&r->cache->streams, blocks[i].stream);
		stream = blocks[i].stream;
		r->want[i] = (struct want){.addr = (uint64_t)(uintptr_t)blocks[i].ptr,
			.size = blocks[i].size,
			.stream = stream,
			.id = id};
	}
	sort(r->want, r->count);
}

/* With room for so many live blocks that are none of the state; -EAGAIN: there are more. */
static int restore_with(struct restore *r, struct glake_pool_id id,
	const struct glake_pool_block *blocks, uint64_t room)
{
	struct glk_cache *cache = r->cache;
	int err;

	copy(r, blocks);
	glk_lock(&cache->lock);
	err = glk_plan_ask(cache);
	if (err)
		goto unlock;
	err = glk_graph_find(cache, id, &r->graph);
	if (!err) {
		r->map = &r->graph->arena.map;
		err = r->graph->blocks > room ? -ENOSPC : restore(r);
	}
	glk_plan_leave(cache);
unlock:
	glk_unlock(&cache->lock);
	return err;
}

int glk_graph_restore(struct glk_cache *cache, struct glake_pool_id id,
	const struct glake_pool_block *blocks, size_t count, glk_state_fn fn, void *arg)
{
	struct restore r = {.cache = cache, .count = count};
	struct glk_graph *graph;
	size_t wants, bytes;
	uint64_t room = 0;
	void *region;
	int err;

	do {
		glk_lock(&cache->lock);
		err = glk_graph_find(cache, id, &graph);
		if (!err)
			room = graph->blocks;
		glk_unlock(&cache->lock);
		if (err)
			return err;
		if (__builtin_mul_overflow(count, sizeof(struct want), &wants) ||
			__builtin_add_overflow(
				wants, (room + 1) * sizeof(struct gone), &bytes))
			return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
				"a state of %zu blocks", count);
		region = glk_region_new(bytes);
		if (!region)
			return -ENOMEM;
		r.want = region;
		r.gone = (void *)((char *)region + wants);
		err = restore_with(&r, id, blocks, room);
		if (!err && fn)
			tell(&r, fn, arg);
		glk_region_free(region, bytes);
		/* others had blocks of it meanwhile */
	} while (err == -ENOSPC);
	return err;
}
