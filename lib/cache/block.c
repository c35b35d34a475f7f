/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A free that is no hit, and what may be asked about a block. */
#include "cache/block.h"
#include "base/error.h"
#include "base/thread.h"
#include "cache/bin/hit.h"
#include "cache/cache.h"
#include "cache/sampled.h"
#include "cache/sealed.h"
#include "cache/straight.h"
#include "cache/tag/tag.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <time.h>

/*
 * Marks a live block with a stream. It is held meanwhile, so that a free at the same time is
 * refused and loses nothing; whoever frees it afterwards sees the mark, since the claim follows
 * the holder's last move. `note` is given under the lock alone; without it nothing is done to
 * blocks of an arena that wants to know.
 */
struct mark {
	uint32_t stream;
	const struct glk_stream *note;
	uint64_t capture;
};

static bool mark_at(struct glk_cache *cache, uint64_t addr, const struct mark *m)
{
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_arena *arena = range ? glk_arena_of(range) : NULL;
	struct glk_extent *e;

	if (!arena || (arena->ops->note && !m->note))
		return false;
	e = glk_lookup_hold(range, addr);
	if (!e)
		return false;
	if (glk_load_relaxed(&e->stream) != m->stream) {
		glk_marks_add(&arena->gpu->streams, e, m->stream);
		glk_block_to_no_bin(e);
	}
	if (arena->ops->note)
		arena->ops->note(arena, m->note, m->capture);
	glk_word_let_go(&e->word);
	return true;
}

/* The lock is for a stream that has no bit yet, and for what an arena notes. */
int glk_cache_use(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	struct glk_stream_facts facts = {0};
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct mark m = {0};
	struct glk_look look;
	bool noted, done;
	int err;

	noted = range && glk_arena_of(range)->ops->note;
	/* what it captures is asked for where that matters */
	err = glk_stream_get(&cache->streams, stream, noted ? &facts : NULL, &m.stream);
	if (err)
		return err;
	if (!noted && glk_stream_known_mask(glk_stream_at(&cache->streams, m.stream))) {
		look = glk_look_begin(cache);
		done = mark_at(cache, addr, &m);
		glk_look_end(cache, &look);
	} else {
		glk_lock(&cache->lock);
		m.note = glk_stream_enter(&cache->streams, m.stream);
		m.capture = facts.capture;
		done = mark_at(cache, addr, &m);
		glk_unlock(&cache->lock);
	}
	if (done)
		return 0;
	return glk_away_settled(cache, addr, false) ? glk_cache_use(cache, addr, stream)
						    : glk_block_refuse(cache, addr);
}

/* Under the lock: takes an extent back that the caller has claimed. */
static void take_back(struct glk_arena *arena, struct glk_seat *seat,
	struct glk_extent *e, struct glk_use use)
{
	bool elastic = glk_part_is_elastic(arena->gpu, e);
	uint64_t stay;

	if (!elastic) {
		glk_seat_free(seat, glk_extent_asked(e), e->size);
		glk_arena_count(arena, e, false);
	}
	glk_advice_end(arena, e);
	glk_prefetch_gone(arena->gpu, e);
	if (!elastic)
		glk_quick_gone(arena->gpu, e);
	if (glk_part_is(e)) {
		stay = glk_part_empty(arena, e, &use);
		if (elastic)
			glk_elastic_end(arena, e, stay);
		glk_part_drop(arena, e);
	} else if (glk_extent_away(e)) {
		glk_kept_drop(arena, e);
	} else if (!glk_pin_hold(arena, e, &use)) {
		const struct glk_stretch run = {glk_extent_first(&arena->map, e),
			glk_extent_last(&arena->map, e)};

		if (arena->binned)
			glk_quick_beside(arena, e);
		glk_arena_merge(arena, glk_extent_id(&arena->map, e), &use);
		if (arena->ops->place)
			glk_sampled_freed(arena->gpu, run, &use);
	}
}

static struct glk_seat *seat_of(struct glk_cache *cache)
{
	struct glk_seat *seat = glk_hit_seat(cache);

	return seat ? seat : glk_slab_at(&cache->seats, 0);
}

/* A stream of a number, if it is the one it was. */
static uint32_t still(struct glk_cache *cache, uint32_t on, uint64_t serial)
{
	const struct glk_stream *s = glk_stream_at(&cache->streams, on);

	return s->state == GLK_STREAM_LIVE && glk_load_relaxed(&s->serial) == serial ? on
										     : 0;
}

void glk_guarded_keep(struct glk_cache *cache, struct glk_extent *e)
{
	struct glk_seat *seat = seat_of(cache);

	glk_lock(&cache->lock);
	glk_seat_free(seat, glk_extent_asked(e), e->size);
	glk_arena_count(&cache->arena, e, false);
	glk_advice_end(&cache->arena, e);
	glk_prefetch_gone(cache, e);
	glk_unlock(&cache->lock);
}

bool glk_guarded_only_on(const struct glk_extent *e, uint32_t stream)
{
	return glk_load_relaxed(&e->stream) == stream && !glk_marks_any(e);
}

bool glk_guarded_again(struct glk_cache *cache, struct glk_extent *e)
{
	struct glk_seat *seat = seat_of(cache);
	bool may;

	glk_lock(&cache->lock);
	may = !glk_load_relaxed(&cache->suspended);
	if (may) {
		glk_seat_alloc(seat, glk_extent_asked(e), e->size);
		glk_arena_count(&cache->arena, e, true);
		glk_word_revive(&e->word);
	}
	glk_unlock(&cache->lock);
	return may;
}

int glk_guarded_order(struct glk_cache *cache, struct glk_extent *e, uint32_t freed_on,
	uint64_t serial, uint32_t behind)
{
	struct glk_use use;
	int err;

	glk_lock(&cache->lock);
	use = glk_block_use(cache, e, freed_on ? still(cache, freed_on, serial) : 0);
	err = glk_clock_order(
		&cache->streams, &use, glk_stream_enter(&cache->streams, behind));
	glk_unlock(&cache->lock);
	return err;
}

void glk_guarded_release(
	struct glk_cache *cache, struct glk_extent *e, uint32_t on, uint64_t serial)
{
	struct glk_use use;

	glk_lock(&cache->lock);
	use = glk_block_use(cache, e, on ? still(cache, on, serial) : 0);
	glk_quick_gone(cache, e);
	glk_arena_merge(&cache->arena, glk_extent_id(&cache->arena.map, e), &use);
	glk_unlock(&cache->lock);
}

/* The stream of a free, or 0 for one without: the memory is nobody's then. */
static GLK_COLD int ask_stream(struct glk_cache *cache, struct CUstream_st *stream,
	struct glk_stream_facts *facts, uint32_t *ret_stream)
{
	int err = glk_stream_get(&cache->streams, stream, facts, ret_stream);

	if (err == -ENODEV)
		return 0; /* the GPU is lost, with all of its work */
	/* a new stream that cannot be remembered: nothing of its work may be left then */
	if (err == -ENOMEM)
		err = cache->drv->ops->stream_sync(cache->drv, cache->device, stream);
	return err;
}

int glk_hit_put_turn(
	struct glk_arena *arena, struct glk_extent *e, struct CUstream_st *stream)
{
	struct glk_cache *cache = arena->gpu;
	const struct glk_thread_seat *place = glk_hit_place(cache);

	if (!glk_hit_seated(cache, place))
		return glk_block_give_back(arena, e, stream);
	glk_seat_free(place->seat, glk_extent_asked(e), e->size);
	return glk_hit_push(cache, e);
}

int glk_block_ask(struct glk_cache *cache, struct glk_extent *e,
	struct CUstream_st *stream, uint32_t *ret_stream)
{
	int err = ask_stream(cache, stream, NULL, ret_stream);

	if (err)
		glk_extent_set(e, GLK_EXTENT_LIVE);
	return err;
}

int glk_block_give_late(struct glk_arena *arena, struct glk_seat *seat,
	struct glk_extent *e, uint32_t stream, struct CUstream_st *handle, int64_t since)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_times *times = &cache->times[GLK_TIMED_FREE];
	struct glk_stream *on = glk_stream_at(&cache->streams, stream);
	uint64_t size = e->size;
	uint32_t behind = stream;
	bool kept = false;

	glk_lock_lengthen(&cache->lock);
	since = since ? since : glk_clock_ticks();
	if (glk_guard_ops(cache)) {
		glk_lock_pause(&cache->lock);
		kept = glk_guard_ops(cache)->freed(cache, e, stream, handle, &behind);
		glk_lock_resume(&cache->lock);
	}
	if (!kept) {
		take_back(arena, seat, e, glk_block_use(cache, e, behind));
		glk_stream_own(&cache->streams, on, size);
	}
	glk_unlock_since(&cache->lock, since, times);
	return 0;
}

/* How a live block at an address stands, in a look; NONE: there is none. */
static enum glk_extent_state state_at(struct glk_cache *cache, uint64_t addr)
{
	struct glk_look look = glk_look_begin(cache);
	const struct glk_range *range = glk_cache_range(cache, addr);
	enum glk_extent_state state = GLK_EXTENT_NONE;
	struct glk_live live;

	if (range && glk_lookup_live(range, addr, &live) && live.addr == addr)
		state = glk_extent_state(live.e);
	glk_look_end(cache, &look);
	return state;
}

/* Whether a claim that failed is tried again: that of a block which was being moved, or which other
 * threads held in their calls. Waits until neither is so. */
static bool try_again(struct glk_cache *cache, uint64_t addr)
{
	const struct timespec soon = {.tv_nsec = 20000};
	enum glk_extent_state state;
	bool settled = glk_away_settled(cache, addr, false);

	for (int i = 0; (state = state_at(cache, addr)) == GLK_EXTENT_HELD; i++) {
		if (i < 100)
			sched_yield();
		else /* a holder of a lower priority gets its turn */
			nanosleep(&soon, NULL);
	}
	return settled || state == GLK_EXTENT_LIVE;
}

int glk_block_late(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	while (try_again(cache, addr)) {
		const struct glk_range *range = glk_cache_range(cache, addr);
		struct glk_extent *e = glk_lookup_claim(range, addr);

		if (e)
			return glk_block_give_back(glk_arena_of(range), e, stream);
	}
	return glk_block_refuse(cache, addr);
}

/* Frees a block of an arena without bins. */
/* Whether guard is to see what is freed there. */
static bool is_guarded(const struct glk_arena *arena)
{
	return arena->ops == &glk_arena_tag || arena->ops->place ||
		arena->ops->kind == GLAKE_ARENA_MANAGED;
}

static GLK_COLD int free_unbinned(
	struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	struct glk_seat *seat = seat_of(cache);
	int64_t since = glk_clock_ticks();
	struct glk_stream_facts facts = {0};
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_arena *arena;
	struct glk_extent *e;
	uint32_t id = 0, behind;
	bool noted;
	int err;

	/* what the stream captures is asked for where that matters */
	noted = range && glk_arena_of(range)->ops->note;
	if (!noted)
		id = glk_hit_stream(cache, glk_hit_seat(cache), stream);
	err = id ? 0 : ask_stream(cache, stream, noted ? &facts : NULL, &id);
	if (err)
		return err;
	glk_lock(&cache->lock);
	range = glk_cache_range(cache, addr);
	arena = range ? glk_arena_of(range) : NULL;
	e = range ? glk_lookup_claim(range, addr) : NULL;
	behind = id;
	if (e && is_guarded(arena) && glk_guard_ops(cache)) {
		glk_lock_pause(&cache->lock);
		glk_guard_ops(cache)->freed(cache, e, id, stream, &behind);
		glk_lock_resume(&cache->lock);
	}
	if (e && facts.capture && arena->ops->inherit)
		arena->ops->inherit(arena, facts.capture);
	if (e && id && arena->ops->note)
		arena->ops->note(
			arena, glk_stream_enter(&cache->streams, id), facts.capture);
	if (e) {
		uint64_t size = e->size;

		take_back(arena, seat, e, glk_block_use(cache, e, behind));
		glk_stream_own(&cache->streams, glk_stream_at(&cache->streams, id), size);
	}
	glk_unlock_since(&cache->lock, since, &cache->times[GLK_TIMED_FREE]);
	/* it may just be moved */
	if (!e && try_again(cache, addr))
		return free_unbinned(cache, addr, stream);
	return e ? 0 : glk_block_refuse(cache, addr);
}

int glk_cache_free(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_arena *arena;

	if (!range)
		return glk_block_refuse(cache, addr);
	arena = glk_arena_of(range);
	return arena->binned ? glk_hit_free(arena, range, addr, stream)
			     : free_unbinned(cache, addr, stream);
}

static void put_behind(struct glk_cache *cache, struct glk_arena *arena,
	struct glk_extent *e, uint32_t collector)
{
	struct glk_seat *seat = seat_of(cache);
	int64_t since = glk_clock_ticks();
	struct glk_stream *s = NULL;
	struct glk_use use;
	uint64_t tick;

	if ((arena->binned || is_guarded(arena)) && glk_guard_ops(cache))
		glk_guard_ops(cache)->freed(cache, e, 0, NULL, &collector);
	glk_lock(&cache->lock);
	if (collector)
		s = glk_stream_enter(&cache->streams, collector);
	tick = glk_clock_tick(&cache->streams, s);
	use = s ? glk_stream_use(s, tick) : glk_use_of(0, tick);
	take_back(arena, seat, e, use);
	glk_unlock_since(&cache->lock, since, &cache->times[GLK_TIMED_FREE]);
}

int glk_cache_free_after(struct glk_cache *cache, uint64_t addr,
	struct CUevent_st *const *events, size_t count)
{
	const struct glk_range *range;
	struct glk_extent *e;
	uint32_t id = 0;
	int err = 0;

	glk_lock(&cache->lock);
	range = glk_cache_range(cache, addr);
	/* a block that is claimed keeps its pool */
	e = range ? glk_lookup_claim(range, addr) : NULL;
	glk_unlock(&cache->lock);
	if (!e && try_again(cache, addr))
		return glk_cache_free_after(cache, addr, events, count);
	if (!e)
		return glk_block_refuse(cache, addr);
	if (count)
		err = glk_collect(&cache->streams, events, count, &id);
	if (err) {
		glk_extent_set(e, GLK_EXTENT_LIVE);
		return err;
	}
	put_behind(cache, glk_arena_of(range), e, id);
	return 0;
}

int glk_hit_alloc_turn(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr)
{
	const struct glk_thread_seat *place = glk_hit_place(cache);

	if (!glk_hit_seated(cache, place))
		return glk_hit_not(cache, size, stream, ret_ptr);
	glk_seat_turn(place->seat);
	return glk_hit_alloc_at(cache, place->seat, size, stream, ret_ptr);
}

int glk_hit_push(struct glk_cache *cache, struct glk_extent *e)
{
	struct glk_extent *base = glk_quick_base(&cache->arena.map);
	const struct glk_seat *seat = glk_hit_place(cache)->seat;
	uint32_t name = glk_load_relaxed(&e->bin);

	if (glk_quick_push(glk_quick_row_of(cache, name), glk_quick_index(name), base,
		    (uint32_t)(e - base), seat->id))
		glk_quick_crowd(cache, glk_quick_bin_of(cache, name));
	return 0;
}

/* The pages behind a live block, in a look. What it says is wrong, and harmless, where the block was
 * freed meanwhile. */
struct pages {
	uint32_t count;
	uint32_t able;	 /* of those that have bytes that were asked for */
	size_t first;	 /* bytes of the first one */
	uint64_t placed; /* bytes that were asked for, in pages of the host */
};

static uint64_t part_of(const struct glk_map *map, uint32_t slot, uint64_t offset,
	const struct glk_live *live)
{
	return glk_slot_part(map, slot, offset, offset + live->asked);
}

static struct pages pages_of(const struct glk_range *range, const struct glk_live *live)
{
	const struct glk_map *map = range->map;
	uint64_t offset = live->addr - range->base + range->offset;
	uint32_t first = glk_slot_of(map, offset), before = 0;
	uint32_t last = glk_slot_of(map, offset + live->size - 1);
	uint32_t asked = glk_slot_of(map, offset + live->asked - 1);
	uint8_t gpu = glk_arena_of(range)->gpu->node->index;
	struct pages pages = {.able = UINT32_MAX};
	bool host = false, part = glk_extent_part(live->e);

	/* a page is in use through one mapping, or is sealed: no other one of it lies beside it under the block */
	for (uint32_t slot = first; slot <= last; slot++) {
		/* pairs with: the store of who maps a page there, for another block */
		uint32_t id = glk_load_acquire(&map->page[slot]);
		const struct glk_page *page = glk_map_page(map, id);

		if (part && glk_part_gone(map, live->e, slot))
			continue;
		if (id == before) {
			pages.placed += host ? part_of(map, slot, offset, live) : 0;
			continue;
		}
		before = id;
		/* pairs with: the releases in glk_node_grow */
		if (!pages.count++)
			pages.first = glk_peek_acquire(&page->size);
		if (slot <= asked)
			pages.able &= glk_peek_acquire(&page->able);
		host = glk_peek_acquire(&page->node) != gpu;
		pages.placed += host ? part_of(map, slot, offset, live) : 0;
	}
	return pages;
}

static void describe(const struct glk_range *range, const struct glk_live *live,
	struct glake_block *ret_block)
{
	const struct glk_arena *arena = glk_arena_of(range);
	const struct glk_extent *e = live->e;
	bool away = glk_extent_away(e);
	struct pages pages = away ? (struct pages){0} : pages_of(range, live);
	/* pairs with: the stores before a life begins */
	uint16_t stream = glk_load_acquire(&e->stream);
	bool whole = glk_load_acquire(&e->whole);

	*ret_block = (struct glake_block){
		.sz = sizeof(*ret_block),
		.base = (void *)(uintptr_t)live->addr,
		.size = live->asked,
		.committed = live->asked,
		.given = live->size,
		.device = arena->gpu->device,
		.flags = whole ? GLAKE_ALLOC_CONTIGUOUS : 0,
		.page_size = pages.first,
		.pages = pages.count,
		.placed = pages.placed,
		.advice = glk_advice_of(arena, e),
		.pins = glk_advice_pins(arena, e),
		.stream = glk_peek_relaxed(
			&glk_stream_at(&arena->gpu->streams, stream)->handle),
	};
	if (glk_extent_lacks(e))
		glk_part_describe(arena, e, ret_block);
	if (arena->ops->describe)
		arena->ops->describe(arena, ret_block);
	glk_pin_describe(arena, e, pages.able, ret_block);
}

int glk_cache_query(struct glk_cache *cache, uint64_t addr, struct glake_block *ret_block)
{
	struct glk_look look = glk_look_begin(cache);
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glake_block block;
	struct glk_live live;
	bool found = range && glk_lookup_live(range, addr, &live);

	if (found) {
		describe(range, &live, &block);
		found = glk_live_is_still(&live);
	}
	glk_look_end(cache, &look);
	if (!found && glk_away_settled(cache, addr, true))
		return glk_cache_query(cache, addr, ret_block);
	if (!found)
		return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
			"no live block holds 0x%" PRIx64, addr);
	*ret_block = block;
	return 0;
}
