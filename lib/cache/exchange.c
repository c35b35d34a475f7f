/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages of the GPU take the place of pages of the host behind blocks, at the same addresses, or pages of
 * the host that of the GPU's (exchange_out.c). The driver cannot change what is behind an address in one
 * step, and a write that comes during the copy would be lost, so nothing may use the blocks meanwhile: this
 * is done where the program says so, by glk_cache_fetch() and glk_cache_quiet(), and while the GPU is
 * suspended, and behind all work that is known to use them. To the GPU:
 *
 *	prepare	new pages are had as for any request, and mapped in a window (exchange_window.c)
 *	launch	the contents go there, behind all uses, over links that are lent too (exchange_open.c)
 *	await	which is waited for
 *	finish	the pages leave the window, the old ones their addresses, and the new ones come there
 *
 * Until the finish all is as it was. Where the driver refuses a step of it, the old pages come back.
 * Meanwhile the slots are claimed, so that no request gets a place there. Between these steps of one
 * exchange there may be steps of another: while the contents of one are on the link, the driver maps and
 * unmaps for the next (line.c).
 */
#include "cache/exchange.h"

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/part.h"
#include "cache/plan.h"

#include <errno.h>
#include <inttypes.h>

/* Whether what lies at a slot may go, and is not about to. */
static bool goes(const struct glk_map *map, uint32_t slot, enum glk_way way)
{
	return map->page[slot] && glk_bit_get(map->usable, slot) &&
		!glk_is_sealed(map, slot) && !glk_is_claimed(map, slot, slot) &&
		glk_map_is_host(map, map->page[slot]) == (way == GLK_TO_GPU);
}

struct glk_run glk_exchange_next(const struct glk_map *map, uint32_t slot, uint32_t last,
	uint32_t most, enum glk_way way)
{
	struct glk_run run = {1, 0};

	while (slot <= last && !goes(map, slot, way))
		slot++;
	while (slot <= last && goes(map, slot, way)) {
		struct glk_mapping m = glk_mapping_at(map, slot);

		if (run.first > run.last)
			run.first = m.first;
		else if (m.last - run.first >= most)
			break;
		run.last = m.last;
		slot = m.last + 1;
	}
	return run;
}

struct glk_stretch glk_exchange_here(
	const struct glk_map *map, const struct glk_extent *e, uint32_t slot)
{
	uint32_t first = glk_extent_first(map, e);
	struct glk_stretch s = {slot, glk_extent_last(map, e)};

	/* a mapping that it touches may begin before it, where others are */
	s.first = s.first < first ? first : s.first;
	return glk_extent_part(e) ? glk_part_next(map, e, s.first, s.last, false) : s;
}

bool glk_exchange_touches(
	const struct glk_map *map, const struct glk_extent *e, const struct glk_run *run)
{
	return glk_extent_first(map, e) <= run->last &&
		glk_extent_last(map, e) >= run->first;
}

struct glk_extent *glk_exchange_after(
	const struct glk_map *map, struct glk_extent *e, const struct glk_run *run)
{
	while (e->next) {
		e = glk_extent_at(map, e->next);
		if (!glk_exchange_touches(map, e, run))
			break;
		if (glk_extent_state(e) != GLK_EXTENT_FREE)
			return e;
	}
	return NULL;
}

struct glk_extent *glk_exchange_first(
	const struct glk_map *map, struct glk_extent *e, const struct glk_run *run)
{
	while (e->prev && glk_exchange_touches(map, glk_extent_at(map, e->prev), run))
		e = glk_extent_at(map, e->prev);
	return glk_extent_state(e) == GLK_EXTENT_FREE ? glk_exchange_after(map, e, run)
						      : e;
}

static uint64_t mix(uint64_t print, uint64_t value)
{
	return (print ^ value) * UINT64_C(0x9e3779b97f4a7c15) + (print >> 29);
}

/* Of what lies in the run: pages, how many blocks use each slot, and which extents touch it in which
 * state. While the lock was given up blocks may have come back there, or gone. */
static uint64_t take_print(const struct glk_exchange *x)
{
	struct glk_extent *e = glk_exchange_first(x->map, x->e, &x->run);
	uint64_t print = x->run.first;

	for (uint32_t slot = x->run.first; slot <= x->run.last; slot++) {
		print = mix(print, x->map->count[slot]);
		print = mix(print, glk_bit_get(x->map->busy, slot));
		print = mix(print, goes(x->map, slot, x->way));
		if (glk_bit_get(x->map->mapped, slot))
			print = mix(print, glk_mapping_at(x->map, slot).first);
	}
	for (; e; e = glk_exchange_after(x->map, e, &x->run)) {
		print = mix(print, glk_extent_id(x->map, e));
		print = mix(print, glk_extent_state(e));
		print = mix(print, glk_extent_away(e));
		print = mix(print, glk_load_relaxed(&e->addr));
	}
	return print;
}

/* All work that touches what is mapped in the run. */
void glk_exchange_gather(struct glk_exchange *x)
{
	struct glk_extent *e = glk_exchange_first(x->map, x->e, &x->run);

	/* what was freed between them may be in use still */
	x->use = glk_use_sum(x->map, x->run.first, x->run.last);
	for (; e; e = glk_exchange_after(x->map, e, &x->run)) {
		struct glk_use use =
			glk_block_use(x->arena->gpu, e, e == x->e ? x->on : 0);

		glk_use_add(&x->use, &use);
	}
}

/* What the blocks in the run have on the host leaves the figures, or comes to them. */
void glk_exchange_tally(const struct glk_exchange *x, bool more)
{
	struct glk_extent *e = glk_exchange_first(x->map, x->e, &x->run);
	struct glk_cache *cache = x->arena->gpu;
	uint64_t sum = 0, blocks = 0, lent = 0;

	for (; e; e = glk_exchange_after(x->map, e, &x->run)) {
		uint64_t bytes = glk_beside_placed(x->map, e);

		sum += bytes;
		lent += bytes && x->arena->gpu->host->lender ? glk_beside_lent(x->map, e)
							     : 0;
		blocks += bytes > 0;
	}
	cache->placed += more ? sum : -sum;
	cache->placed_blocks += more ? blocks : -blocks;
	cache->placed_peer += more ? lent : -lent;
	if (cache->most_placed < cache->placed)
		cache->most_placed = cache->placed;
	if (x->way == GLK_TO_HOST) {
		cache->lowered += more ? sum : -sum;
		cache->lowered_blocks += more ? blocks : -blocks;
		return;
	}
	cache->returned += more ? -sum : sum;
	cache->returned_blocks += more ? -blocks : blocks;
}

struct glk_stream *glk_exchange_carrier(const struct glk_exchange *x)
{
	const struct glk_mover *mover = &x->arena->gpu->mover;

	return glk_stream_enter(&x->arena->gpu->streams,
		x->way == GLK_TO_HOST ? mover->out : mover->back);
}

static bool changed(const struct glk_exchange *x)
{
	const struct glk_run *run = &x->run;
	struct glk_run again =
		glk_exchange_next(x->map, run->first, run->last, UINT32_MAX, x->way);

	return take_print(x) != x->print || again.first != run->first ||
		again.last != run->last || glk_is_claimed(x->map, run->first, run->last);
}

static void claim(struct glk_exchange *x)
{
	glk_bits_set(x->map->claimed, x->run.first, x->run.last);
	x->map->space->claims++;
}

void glk_exchange_used(const struct glk_exchange *x)
{
	glk_use_set(x->map, x->busy.first, x->busy.last, &x->use);
	for (uint32_t slot = x->busy.first; slot <= x->busy.last; slot++) {
		uint32_t id = x->map->page[slot];

		if (id && glk_bit_get(x->map->shared, slot))
			glk_use_add(&glk_map_page(x->map, id)->use, &x->use);
	}
}

/* Pages of the host are cut by blocks, so that one may come back without those beside it. */
static void cut(
	const struct glk_exchange *x, uint32_t slots, uint32_t *lead, uint32_t *tail)
{
	uint64_t part = glk_slot_bytes(x->map) - 1;
	uint64_t own = glk_slot_of(x->map, x->e->offset + part);
	uint64_t behind = glk_slot_of(x->map, x->e->offset + x->e->size);

	*lead = own > x->busy.first ? (uint32_t)(own - x->busy.first) : 0;
	*tail = behind <= x->busy.last ? (uint32_t)(x->busy.last + 1 - behind) : 0;
	/* of a block with no slot of its own the two are all of them */
	if (*lead > slots || glk_part_is_single(x->arena->gpu, x->e))
		*lead = slots;
	if (*tail > slots - *lead)
		*tail = slots - *lead;
}

/* New ones for the busy part. */
static int get_pages(struct glk_exchange *x)
{
	uint32_t slots = x->busy.last - x->busy.first + 1;
	struct glk_cache *cache = x->arena->gpu;
	struct glk_request request = {.size = (uint64_t)slots << x->map->shift,
		.rounded = (uint64_t)slots << x->map->shift,
		.node = cache->node,
		.stream = glk_exchange_carrier(x),
		.patient = x->patient,
		.alone = !x->patient,
		.single = glk_part_is_single(cache, x->e)};

	if (x->way == GLK_TO_GPU)
		return glk_arena_pages(x->arena, &request, &x->pages);
	request.node = cache->host;
	cut(x, slots, &request.lead, &request.tail);
	return glk_supply_chain(x->arena, &request, &x->pages);
}

/* Pages of the GPU lie in a window, or are none any more. */
static int fill(struct glk_exchange *x)
{
	uint64_t bytes = (uint64_t)(x->busy.last - x->busy.first + 1) << x->map->shift;
	int err = glk_window_open(x, bytes);

	if (err)
		return err;
	err = glk_window_fill(x, x->pages);
	if (err && x->window->kept) {
		glk_window_lose(x, x->pages);
		x->pages = 0;
	}
	return err;
}

int glk_exchange_prepare(struct glk_exchange *x)
{
	const uint64_t *busy = x->map->busy;
	int err;

	x->busy = (struct glk_run){glk_bits_first(busy, x->run.first, x->run.last),
		glk_bits_last(busy, x->run.first, x->run.last)};
	x->idle = true;
	x->print = take_print(x);
	err = get_pages(x);
	if (err)
		return err;
	if (changed(x)) {
		glk_swap_put_back(x->map, x->pages);
		return -EAGAIN;
	}
	claim(x);
	/* as one plan: others may be looking for a place here */
	glk_plan_begin(x->arena->gpu);
	err = x->way == GLK_TO_HOST ? glk_exchange_lower(x) : fill(x);
	if (err) {
		glk_swap_put_back(x->map, x->pages);
		glk_unclaim(x->map, x->run.first, x->run.last);
	}
	glk_plan_end(x->arena->gpu);
	return err;
}

/* Where the contents of the busy part lie, and where they are to be. */
static uint64_t source_of(const struct glk_exchange *x)
{
	return x->way == GLK_TO_HOST ? x->window->addr +
			((uint64_t)(x->busy.first - x->run.first) << x->map->shift)
				     : glk_slot_addr(x->map, x->busy.first);
}

static uint64_t target_of(const struct glk_exchange *x)
{
	return x->way == GLK_TO_HOST ? glk_slot_addr(x->map, x->busy.first)
				     : x->window->addr;
}

void glk_exchange_launch(struct glk_exchange *x)
{
	uint64_t bytes = (uint64_t)(x->busy.last - x->busy.first + 1) << x->map->shift;

	/* the lock is given up for that: what is to be waited for is gathered behind it */
	glk_exchange_open(x);
	if (x->way == GLK_TO_GPU)
		glk_exchange_gather(x);
	x->err = glk_move_across(&x->arena->gpu->mover, target_of(x), source_of(x), bytes,
		x->way == GLK_TO_HOST, x->relays, &x->use);
}

void glk_exchange_await(struct glk_exchange *x)
{
	struct glk_streams *streams = &x->arena->gpu->streams;
	struct glk_use use = glk_stream_use(glk_exchange_carrier(x), streams->tick);

	if (x->err)
		return;
	x->err = glk_clock_sync_use(streams, &use);
	/* it may be the waiting that failed, and not the copy */
	x->idle = !x->err || !glk_clock_sync_use(streams, &use);
}

/* Times that a page is tried to be mapped where it was: what it holds is lost otherwise. */
#define PUTS 8

static int put_page(struct glk_map *map, uint32_t slot, uint32_t id)
{
	int err = -EIO;

	for (int i = 0; i < PUTS && err; i++) {
		if (glk_page_state(glk_map_page(map, id)) != GLK_PAGE_OWNED ||
			glk_bit_get(map->mapped, slot))
			break;
		err = glk_mapping_make(map, slot, &id, 1);
	}
	return err;
}

/* The old pages are mapped where they were. */
void glk_exchange_put_old(struct glk_exchange *x, uint32_t pages)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_map *map = x->map;
	uint32_t slot = x->run.first, lost = 0;

	for (uint32_t next; pages; pages = next) {
		uint32_t slots = glk_page_slots(map, glk_map_page(map, pages));

		next = glk_page_next(map, pages);
		if (put_page(map, slot, pages)) {
			lost += slots;
			glk_swap_lose(map, slot, slot + slots - 1);
			if (glk_page_state(glk_map_page(map, pages)) == GLK_PAGE_OWNED)
				glk_page_put_back(map, pages);
		}
		slot += slots;
	}
	if (lost)
		glk_warn("GPU %d: the driver maps nothing at %" PRIu32
			 " slots from 0x%" PRIx64 " on any more: what lay there is lost",
			x->arena->gpu->device, lost, glk_slot_addr(map, x->run.first));
	glk_error_back(&why);
}

int glk_exchange_swap(struct glk_exchange *x, uint32_t old)
{
	struct glk_map *map = x->map;
	int err = glk_swap_unmap(map, x->run.first, x->run.last);

	if (!err) {
		err = glk_swap_map(map, x->busy.first, &x->pages);
		if (err)
			glk_exchange_put_old(x, old);
	}
	if (err) {
		glk_swap_settle(map, x->run.first, x->run.last);
		return err;
	}
	x->pages = 0;
	x->arena->gpu->streams.unmapped += (uint64_t)(x->run.last - x->run.first + 1)
		<< map->shift;
	return 0;
}

static int swap(struct glk_exchange *x)
{
	uint32_t old = glk_swap_take(x->map, x->run.first, x->run.last);
	int err = glk_exchange_swap(x, old);

	if (!err)
		glk_swap_put_back(x->map, old);
	return err;
}

static int raised(struct glk_exchange *x)
{
	int err = x->err, failed = -EIO;

	if (x->idle)
		failed = glk_window_close(x);
	else
		glk_window_abandon(x);
	if (failed)
		glk_window_lose(x, x->pages);
	err = err ? err : failed;
	if (!err) {
		glk_exchange_tally(x, false);
		err = swap(x);
		glk_exchange_tally(x, true);
	}
	/* the old pages may be where they were */
	if (err)
		glk_exchange_shut(x);
	else
		glk_exchange_used(x);
	if (!failed)
		glk_swap_put_back(x->map, x->pages);
	return err;
}

int glk_exchange_finish(struct glk_exchange *x)
{
	int err;

	glk_plan_begin(x->arena->gpu);
	err = x->way == GLK_TO_HOST ? glk_exchange_lowered(x) : raised(x);
	glk_unclaim(x->map, x->run.first, x->run.last);
	glk_plan_end(x->arena->gpu);
	return err;
}

int glk_exchange(struct glk_arena *arena, struct glk_extent *e, const struct glk_run *run,
	uint32_t on)
{
	struct glk_exchange x = {.arena = arena,
		.map = &arena->map,
		.e = e,
		.run = *run,
		.way = GLK_TO_GPU,
		.on = on,
		.patient = true};
	int err = glk_exchange_prepare(&x);

	if (err)
		return err;
	/* as one plan: others may be looking for a place here */
	glk_plan_begin(arena->gpu);
	glk_exchange_launch(&x);
	glk_plan_park(arena->gpu, false);
	glk_exchange_await(&x);
	glk_plan_unpark(arena->gpu, false);
	err = glk_exchange_finish(&x);
	glk_plan_end(arena->gpu);
	return err;
}
