/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages of the GPU take the place of pages of the host behind blocks, at the same addresses, or the reverse.
 * The driver cannot change what is behind an address in one step, and a write that comes during the copy would be
 * lost, so nothing may use the blocks meanwhile: this is done where the program says so, by glake_fetch() and
 * glake_quiet(), and while the GPU is suspended, and behind all work that is known to use them.
 *
 *	prepare	new pages are had as for any request. Those of the GPU are mapped in a window (exchange_window.c)
 *	launch	the contents go there, behind all uses, over links that are lent too
 *	await	which is waited for
 *	finish	the pages leave the window, the old ones their addresses, and the new ones come there
 *
 * Pages of the host are the ones that cost: 12 ms a GiB to map and 5 to unmap, in pages of 8 MiB, against 3 and 2 for
 * pages of the GPU. So on the way to the host it is again the pages of the GPU that lie in the window, from where the
 * contents are copied, and the new ones come to the addresses of the blocks with the preparation: the plan is closed
 * then, and the work that is known has finished. Where the GPU cannot be waited for, the blocks have the new pages,
 * behind the copy, and the old ones stay in the window, out of use.
 *
 * Until the finish all is as it was, or the contents are in the pages of the GPU. Where the driver refuses a step, or
 * the copy fails, the old pages come back. Meanwhile the slots are claimed, so that no request gets a place there.
 * Between these steps of one exchange there may be steps of another, of a line: while the contents of one are on the
 * link, the driver maps and unmaps for the next.
 *
 * Links that other GPUs lend (tier/io/io.h): those GPUs have to read pages of the host, or write them, which are mapped
 * for their own GPU alone. So they are given rights there by one call of the driver, and lose them when all has
 * arrived, unless the pages go anyway. On memory of the GPU they have none: that is between it and their staging
 * memory. Who changes the rights of all that is mapped closes the plans first, and no exchange is under way then.
 */
#include "cache/exchange.h"

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/block.h"
#include "cache/cache.h"
#include "tier/io/io.h"

#include <errno.h>
#include <inttypes.h>

/* ---- Runs, and who touches them ---- */

/* Whether what lies at a slot may go, and is not about to. */
static bool goes(const struct glk_map *map, uint32_t slot, enum glk_way way)
{
	return map->page[slot] && glk_bit_get(map->usable, slot) &&
		!glk_is_sealed(map, slot) && !glk_is_claimed(map, slot, slot) &&
		glk_map_is_host(map, map->page[slot]) == (way == GLK_TO_GPU);
}

struct glk_stretch glk_exchange_next(const struct glk_map *map, uint32_t slot,
	uint32_t last, uint32_t most, enum glk_way way)
{
	struct glk_stretch run = {1, 0};

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

static bool touches(const struct glk_exchange *x, const struct glk_extent *e)
{
	return glk_extent_first(x->map, e) <= x->run.last &&
		glk_extent_last(x->map, e) >= x->run.first;
}

/*
 * The first or the next extent that touches the run and is not free; NULL: there is none. They are linked by address.
 * A slot may hold thousands. In a closed plan all up to this one are claimed, or all from this one on, so that it stays
 * where it is when others have the lock. The block of a patient exchange has the run to itself: what else touches it is
 * away there, belongs to others, who may move or free it at any time, and is none of its business.
 */
static struct glk_extent *next_of(const struct glk_exchange *x, struct glk_extent *e)
{
	if (x->patient)
		return NULL;
	glk_plan_step(x->arena->gpu);
	while (e->next) {
		e = glk_extent_at(x->map, e->next);
		if (!touches(x, e))
			break;
		if (glk_extent_state(e) != GLK_EXTENT_FREE)
			return e;
	}
	return NULL;
}

static struct glk_extent *find_first(const struct glk_exchange *x)
{
	struct glk_extent *first = x->e;

	for (struct glk_extent *e = first; e->prev;) {
		e = glk_extent_at(x->map, e->prev);
		if (!touches(x, e))
			break;
		first = glk_extent_state(e) == GLK_EXTENT_FREE ? first : e;
	}
	return first;
}

static uint64_t mix(uint64_t print, uint64_t value)
{
	return (print ^ value) * UINT64_C(0x9e3779b97f4a7c15) + (print >> 29);
}

/* Of what lies in the run: pages, and how many blocks use each slot. While the lock was given up blocks may have come
 * back there, or gone, beside those that are claimed. */
static uint64_t take_print(const struct glk_exchange *x)
{
	uint64_t print = x->run.first;

	for (uint32_t slot = x->run.first; slot <= x->run.last; slot++) {
		print = mix(print, x->map->count[slot]);
		print = mix(print, glk_bit_get(x->map->busy, slot));
		print = mix(print, goes(x->map, slot, x->way));
		if (glk_bit_get(x->map->mapped, slot))
			print = mix(print, glk_mapping_at(x->map, slot).first);
	}
	return print;
}

static bool changed(const struct glk_exchange *x)
{
	const struct glk_stretch *run = &x->run;
	struct glk_stretch again =
		glk_exchange_next(x->map, run->first, run->last, UINT32_MAX, x->way);

	return take_print(x) != x->print || again.first != run->first ||
		again.last != run->last || glk_is_claimed(x->map, run->first, run->last);
}

/* All work that touches what is mapped in the run. */
static void gather(struct glk_exchange *x)
{
	/* what was freed between them may be in use still */
	x->use = glk_use_sum(x->map, x->run.first, x->run.last);
	for (struct glk_extent *e = x->first; e; e = next_of(x, e)) {
		struct glk_use use =
			glk_block_use(x->arena->gpu, e, e == x->e ? x->on : 0);

		glk_use_add(&x->use, &use);
	}
}

/* What the blocks in the run have on the host leaves the figures, or comes to them. */
static void tally(const struct glk_exchange *x, bool more)
{
	struct glk_cache *cache = x->arena->gpu;
	uint64_t sum = 0, blocks = 0, lent = 0;

	for (struct glk_extent *e = x->first; e; e = next_of(x, e)) {
		uint64_t bytes = glk_beside_placed(x->map, e);

		sum += bytes;
		lent += bytes && cache->host->peer->lender ? glk_beside_lent(x->map, e)
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
	} else {
		cache->returned += more ? -sum : sum;
		cache->returned_blocks += more ? -blocks : blocks;
	}
}

/* ---- Pages that come ---- */

/* The stream that copies. */
static struct glk_stream *carrier(const struct glk_exchange *x)
{
	const struct glk_mover *mover = &x->arena->gpu->mover;

	return glk_stream_enter(&x->arena->gpu->streams,
		x->way == GLK_TO_HOST ? mover->out : mover->back);
}

static uint64_t bytes_of(const struct glk_exchange *x, const struct glk_stretch *run)
{
	return (uint64_t)(run->last - run->first + 1) << x->map->shift;
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
	struct glk_cache *cache = x->arena->gpu;
	struct glk_request request = {.size = bytes_of(x, &x->busy),
		.rounded = bytes_of(x, &x->busy),
		.node = cache->node,
		.stream = carrier(x),
		.patient = x->patient,
		.alone = !x->patient,
		.single = glk_part_is_single(cache, x->e)};

	if (x->way == GLK_TO_GPU)
		return glk_arena_pages(x->arena, &request, &x->pages);
	request.node = cache->host;
	cut(x, x->busy.last - x->busy.first + 1, &request.lead, &request.tail);
	return glk_supply_chain(x->arena, &request, &x->pages);
}

/* They were used by the copy. */
static void note_used(const struct glk_exchange *x)
{
	glk_use_set(x->map, x->busy.first, x->busy.last, &x->use);
	for (uint32_t slot = x->busy.first; slot <= x->busy.last; slot++) {
		uint32_t id = x->map->page[slot];

		if (id && glk_bit_get(x->map->shared, slot))
			glk_use_add(&glk_map_page(x->map, id)->use, &x->use);
	}
}

/* ---- Links that others lend ---- */

/* Tries to take rights back. */
#define SHUTS 4

/* Whether the part that is copied is memory of the host throughout, and none that a GPU lends. */
static bool is_of_host(const struct glk_exchange *x)
{
	uint32_t slot = x->busy.first;

	while (slot <= x->busy.last) {
		if (glk_map_node(x->map, x->map->page[slot]) != x->arena->gpu->host)
			return false;
		slot = glk_mapping_at(x->map, slot).last + 1;
	}
	return true;
}

static int set_rights(struct glk_exchange *x, uint64_t gpus, enum glk_access access)
{
	struct glk_drv *drv = x->map->pool->drv;
	struct glk_grant grants[GLK_IO_GPUS];
	size_t count = 0;
	int err;

	for (; gpus; gpus &= gpus - 1)
		grants[count++] = (struct glk_grant){
			.who = {GLK_PLACE_GPU, __builtin_ctzll(gpus)}, .access = access};
	glk_map_pause(x->map);
	err = drv->ops->set_access(drv, glk_slot_addr(x->map, x->open.first),
		bytes_of(x, &x->open), grants, count);
	glk_map_resume(x->map);
	return err;
}

static void shut_links(struct glk_exchange *x)
{
	/* while some of the copy may be under way they are left as they are */
	for (int i = 0; i < SHUTS && x->idle && x->opened; i++)
		if (!set_rights(x, x->opened, GLK_ACCESS_NONE))
			x->opened = 0;
	if (x->opened)
		glk_peer_stays(x->arena->gpu, x->opened);
	x->opened = 0;
}

/* What can carry it, if it is worth that. */
static void open_links(struct glk_exchange *x)
{
	struct glk_cache *cache = x->arena->gpu;
	uint64_t peers = glk_load_relaxed(&cache->node->peers);
	uint64_t gpus =
		glk_io_relays(cache->mover.io, cache->device, bytes_of(x, &x->busy));

	if (!gpus || !is_of_host(x))
		return;
	x->opened = gpus & ~peers;
	/* rights are those of whole pages */
	x->open = (struct glk_stretch){glk_mapping_at(x->map, x->busy.first).first,
		glk_mapping_at(x->map, x->busy.last).last};
	if (x->opened && set_rights(x, x->opened, GLK_ACCESS_WRITE)) {
		/* the driver may have given some */
		shut_links(x);
		gpus &= peers;
	}
	x->relays = gpus;
}

/* ---- Pages change places ---- */

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
static void put_old(struct glk_exchange *x, uint32_t pages)
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

/* Pages of the run that were taken leave it, and the new ones come there, or with an error the old ones. */
static int swap(struct glk_exchange *x, uint32_t old)
{
	struct glk_map *map = x->map;
	int err = glk_swap_unmap(map, x->run.first, x->run.last);

	if (!err) {
		err = glk_swap_map(map, x->busy.first, &x->pages);
		if (err)
			put_old(x, old);
	}
	if (err) {
		glk_swap_settle(map, x->run.first, x->run.last);
		return err;
	}
	x->pages = 0;
	x->arena->gpu->streams.unmapped += bytes_of(x, &x->run);
	return 0;
}

/* ---- To the GPU ---- */

/* Pages of the GPU lie in a window, or are none any more. */
static int lift(struct glk_exchange *x)
{
	int err = glk_window_open(x, bytes_of(x, &x->busy));

	if (err)
		return err;
	err = glk_window_fill(x, x->pages);
	if (err && x->window->kept) {
		glk_window_lose(x, x->pages);
		x->pages = 0;
	}
	return err;
}

static int lifted(struct glk_exchange *x)
{
	int err = x->err, failed = -EIO;
	uint32_t old;

	if (x->idle)
		failed = glk_window_close(x);
	else
		glk_window_abandon(x);
	if (failed)
		glk_window_lose(x, x->pages);
	err = err ? err : failed;
	if (!err) {
		tally(x, false);
		old = glk_swap_take(x->map, x->run.first, x->run.last);
		err = swap(x, old);
		if (!err)
			glk_swap_put_back(x->map, old);
		tally(x, true);
	}
	/* the old pages may be where they were */
	if (err)
		shut_links(x);
	else
		note_used(x);
	if (!failed)
		glk_swap_put_back(x->map, x->pages);
	return err;
}

/* ---- To the host ---- */

/* Pages in use that the driver has mapped elsewhere, too. */
static void keep(const struct glk_exchange *x)
{
	for (uint32_t slot = x->run.first; slot <= x->run.last;) {
		uint32_t id = x->map->page[slot];

		if (id)
			glk_map_page(x->map, id)->kept = true;
		slot += id ? glk_page_slots(x->map, glk_map_page(x->map, id)) : 1;
	}
}

/* The old pages come into the window, leave the run, and the new ones come there. */
static int turn(struct glk_exchange *x)
{
	uint32_t old = glk_swap_take(x->map, x->run.first, x->run.last);
	int err = glk_window_fill(x, old);

	if (err) {
		glk_swap_settle(x->map, x->run.first, x->run.last);
	} else {
		err = swap(x, old);
		if (err)
			glk_window_close(x);
	}
	if (!err)
		x->old = old;
	else if (x->window->kept)
		keep(x);
	return err;
}

static int lower(struct glk_exchange *x)
{
	struct glk_streams *streams = &x->arena->gpu->streams;
	int err = 0;

	gather(x);
	if (!glk_clock_finished(streams, &x->use))
		err = glk_clock_sync_use(streams, &x->use);
	if (!err)
		err = glk_window_open(x, bytes_of(x, &x->run));
	if (err)
		return err;
	tally(x, false);
	err = turn(x);
	tally(x, true);
	return err;
}

/* Times that pages are tried to be unmapped that are in the way of the contents. */
#define UNMAPS 8

/* The copy has failed, and nothing is under way: the old pages come back. */
static void undo(struct glk_exchange *x)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_map *map = x->map;
	uint32_t new;
	int err = -EIO;

	tally(x, false);
	new = glk_swap_take(map, x->busy.first, x->busy.last);
	for (int i = 0; i < UNMAPS && err; i++)
		err = glk_swap_unmap(map, x->busy.first, x->busy.last);
	if (!err) {
		put_old(x, x->old);
		glk_swap_put_back(map, new);
		x->old = 0;
	} else {
		glk_warn("GPU %d: what lay at 0x%" PRIx64
			 " is lost: it was not copied, and "
			 "the driver unmaps nothing there",
			x->arena->gpu->device, glk_slot_addr(map, x->busy.first));
	}
	glk_swap_settle(map, x->run.first, x->run.last);
	tally(x, true);
	glk_error_back(&why);
}

static int lowered(struct glk_exchange *x)
{
	int err = x->err, failed;

	note_used(x);
	shut_links(x);
	if (!x->idle) {
		glk_window_abandon(x);
		glk_window_lose(x, x->old);
		return err;
	}
	if (err)
		undo(x);
	failed = glk_window_close(x);
	if (failed && !x->old)
		keep(x);
	if (failed)
		glk_window_lose(x, x->old);
	else
		glk_swap_put_back(x->map, x->old);
	return err ? err : failed;
}

/* ---- The steps ---- */

/*
 * In this order; the last three come after a preparation that has succeeded. To the host in a closed plan alone. Of two
 * exchanges at once the steps may mix.
 *
 * 0; -EAGAIN without a record where others have been given a part of the run meanwhile; -ENOMEM, -EBUSY, -EIO, with
 * everything as it was.
 */
static int prepare(struct glk_exchange *x)
{
	const uint64_t *busy = x->map->busy;
	int err;

	x->busy = (struct glk_stretch){glk_bits_first(busy, x->run.first, x->run.last),
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
	glk_bits_set(x->map->claimed, x->run.first, x->run.last);
	x->map->space->claims++;
	/* as one plan: others may be looking for a place here */
	glk_plan_begin(x->arena->gpu);
	err = x->way == GLK_TO_HOST ? lower(x) : lift(x);
	if (err) {
		glk_swap_put_back(x->map, x->pages);
		glk_unclaim(x->map, x->run.first, x->run.last);
	}
	glk_plan_end(x->arena->gpu);
	return err;
}

static void launch(struct glk_exchange *x)
{
	uint64_t here = glk_slot_addr(x->map, x->busy.first), there = x->window->addr;

	/* the lock is given up for that: what is to be waited for is gathered behind it */
	open_links(x);
	if (x->way == GLK_TO_GPU)
		gather(x);
	else
		there += (uint64_t)(x->busy.first - x->run.first) << x->map->shift;
	x->err = glk_move_across(&x->arena->gpu->mover,
		x->way == GLK_TO_HOST ? here : there,
		x->way == GLK_TO_HOST ? there : here, bytes_of(x, &x->busy),
		x->way == GLK_TO_HOST, x->relays, &x->use);
}

static void await(struct glk_exchange *x)
{
	struct glk_streams *streams = &x->arena->gpu->streams;
	struct glk_use use = glk_stream_use(carrier(x), streams->tick);

	if (x->err)
		return;
	x->err = glk_clock_sync_use(streams, &use);
	/* it may be the waiting that failed, and not the copy */
	x->idle = !x->err || !glk_clock_sync_use(streams, &use);
}

/* 0, or the error of any step, with everything as it was, or, where pages of the host had come and those of the GPU were
 * not taken out of use, as it was to be. */
static int finish(struct glk_exchange *x)
{
	int err;

	glk_plan_begin(x->arena->gpu);
	err = x->way == GLK_TO_HOST ? lowered(x) : lifted(x);
	glk_unclaim(x->map, x->run.first, x->run.last);
	glk_plan_end(x->arena->gpu);
	return err;
}

/* ---- One after the other ---- */

/* One that is away leaves nothing here that could have to stay. Of one that is so in part the rest goes, and
 * what is away stays so. */
static bool claim(const struct glk_arena *arena, struct glk_extent *e)
{
	if (!glk_word_claim(&e->word, &e->addr, glk_load_relaxed(&e->addr)))
		return false;
	if (glk_extent_away(e) || (!glk_pin_is_out(e) && !glk_advice_stays(arena, e)))
		return true;
	glk_extent_set(e, GLK_EXTENT_LIVE);
	return false;
}

/* Whether a part of the line has claimed an extent: it has all that touch its run. */
static bool has(const struct glk_line_part *part, const struct glk_extent *e)
{
	return part && glk_extent_state(e) == GLK_EXTENT_QUICK && touches(&part->x, e);
}

/* Lets go of the extents of a run that it has claimed, but for those that another part has. */
static void let_go(struct glk_line_part *part, const struct glk_line_part *other)
{
	struct glk_extent *e = part->x.first;

	for (struct glk_extent *next; part->extents; e = next) {
		next = --part->extents ? next_of(&part->x, e) : NULL;
		if (!has(other, e))
			glk_extent_set(e, GLK_EXTENT_LIVE);
	}
}

/* Whether a claimed extent stands on each mapping of the run: one may have been freed before its turn came. */
static bool is_whole(const struct glk_exchange *x)
{
	uint32_t slot = x->run.first;

	while (slot <= x->run.last && goes(x->map, slot, x->way)) {
		struct glk_mapping m = glk_mapping_at(x->map, slot);

		if (!glk_bits_any(x->map->busy, m.first, m.last))
			return false;
		slot = m.last + 1;
	}
	return slot > x->run.last && glk_extent_state(x->e) == GLK_EXTENT_QUICK;
}

/* All or none. Somebody frees one, or looks at it, or it is out or pinned: then the run stays where it is. Who names one
 * of them waits, from the beginning of the first to the end of the last. */
static bool claim_all(struct glk_line_part *part, const struct glk_line_part *other)
{
	struct glk_exchange *x = &part->x;

	x->first = find_first(x);
	part->m.addr = glk_load_relaxed(&x->first->addr);
	for (struct glk_extent *e = x->first; e; e = next_of(x, e)) {
		if (!has(other, e) && !claim(x->arena, e))
			return false;
		part->extents++;
		part->m.size = e->offset + e->size - x->first->offset;
	}
	return is_whole(x);
}

/* Those of a run before one of them; NULL: all. One that is away is moved by nobody here. */
static void tell_after(
	const struct glk_line_part *part, const struct glk_extent *before, int err)
{
	const struct glk_exchange *x = &part->x;
	struct glk_extent *e = part->telling.last ? x->first : NULL;

	for (; e && e != before; e = next_of(x, e)) {
		if (!glk_extent_away(e))
			glk_tell_after(x->arena, e, part->way, &part->telling, err);
	}
}

/* One that has to stay keeps all. */
static int tell_before(struct glk_line_part *part)
{
	const struct glk_exchange *x = &part->x;
	struct glk_extent *e = x->arena->gpu->hearing ? x->first : NULL;

	for (; e; e = next_of(x, e)) {
		if (!glk_extent_away(e) &&
			glk_tell_before(x->arena, e, part->way, &part->telling)) {
			tell_after(part, e, -EBUSY);
			return -EAGAIN;
		}
	}
	return 0;
}

static int begin(struct glk_line *line, struct glk_line_part *part, struct glk_extent *e,
	const struct glk_stretch *run)
{
	struct glk_arena *arena = line->arena;
	int err;

	*part = (struct glk_line_part){.x = {.arena = arena,
					       .map = &arena->map,
					       .e = e,
					       .run = *run,
					       .way = line->way},
		.way = line->way == GLK_TO_HOST ? GLAKE_MOVE_OUT : GLAKE_MOVE_IN};
	glk_away_announce(arena->gpu, &part->m);
	err = claim_all(part, line->under_way) ? tell_before(part) : -EAGAIN;
	if (!err) {
		err = prepare(&part->x);
		if (!err)
			return 0;
		tell_after(part, NULL, err);
	}
	let_go(part, line->under_way);
	glk_away_done(arena->gpu, &part->m);
	return err;
}

/* `other`: what else is under way. */
static void end(
	struct glk_line *line, struct glk_line_part *part, struct glk_line_part *other)
{
	struct glk_cache *cache = line->arena->gpu;
	const struct glk_exchange *x = &part->x;
	int err = finish(&part->x);

	/* what lies on the host goes to no bin: others would find it there */
	for (struct glk_extent *e = x->first; e && !err && line->way == GLK_TO_HOST;
		e = next_of(x, e))
		glk_block_to_no_bin(e);
	tell_after(part, NULL, err);
	let_go(part, other);
	glk_away_done(cache, &part->m);
	line->err = line->err ? line->err : err;
	/* free pages go back to the driver while the GPU is suspended, and contents of others are on the link */
	if (line->way == GLK_TO_HOST && glk_load_relaxed(&cache->suspended))
		glk_trim_drain(cache, cache->node, UINT64_MAX);
}

bool glk_line_has(const struct glk_line *line, const struct glk_extent *e)
{
	return has(line->under_way, e);
}

int glk_line_end(struct glk_line *line)
{
	struct glk_line_part *part = line->under_way;

	if (part) {
		await(&part->x);
		line->under_way = NULL;
		end(line, part, NULL);
	}
	return line->err;
}

int glk_line_add(
	struct glk_line *line, struct glk_extent *e, const struct glk_stretch *run)
{
	struct glk_line_part *before = line->under_way;
	struct glk_line_part *part = &line->part[before == &line->part[0]];
	int err;

	if (line->err)
		return line->err;
	err = begin(line, part, e, run);
	/* it may lack what the one before has in its hands */
	if (err && before) {
		if (glk_line_end(line))
			return line->err;
		before = NULL;
		/* the lock was given up: it may have been freed */
		err = glk_extent_state(e) == GLK_EXTENT_LIVE ? begin(line, part, e, run)
							     : -EAGAIN;
	}
	if (err)
		return err;
	if (before)
		await(&before->x);
	launch(&part->x);
	line->under_way = part;
	if (before)
		end(line, before, part);
	/* functions of the program are told of one move after the other */
	return line->err || line->arena->gpu->hearing ? glk_line_end(line) : 0;
}

/* ---- For a fetch ---- */

/* All steps, to the GPU, behind all work of the extents there and of one more stream. */
static int exchange(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_stretch *run, uint32_t on)
{
	struct glk_exchange x = {.arena = arena,
		.map = &arena->map,
		.e = e,
		.run = *run,
		.way = GLK_TO_GPU,
		.on = on,
		.patient = true,
		.first = e};
	int err = prepare(&x);

	if (err)
		return err;
	/* as one plan: others may be looking for a place here */
	glk_plan_begin(arena->gpu);
	launch(&x);
	glk_plan_park(arena->gpu, false);
	await(&x);
	glk_plan_unpark(arena->gpu, false);
	err = finish(&x);
	glk_plan_end(arena->gpu);
	return err;
}

/* Whether nothing but a block touches a mapping, nor a block that is about to come. */
static bool is_alone(
	const struct glk_map *map, const struct glk_extent *e, struct glk_mapping m)
{
	uint32_t first = glk_extent_first(map, e), last = glk_extent_last(map, e);

	for (uint32_t slot = m.first; slot <= m.last; slot++) {
		bool inside = slot >= first && slot <= last;

		if (inside ? map->count[slot] > 1 : glk_bit_get(map->busy, slot))
			return false;
	}
	return !glk_is_claimed(map, m.first, m.last);
}

/* The next run from a slot on that a block has to itself: others touch mappings at its ends alone. */
static struct glk_stretch next_own(
	const struct glk_map *map, const struct glk_extent *e, uint32_t slot)
{
	uint32_t last = glk_extent_last(map, e), begun;
	struct glk_mapping m;
	struct glk_stretch run;

	do {
		begun = slot;
		run = glk_exchange_next(map, slot, last, UINT32_MAX, GLK_TO_GPU);
		slot = run.first > run.last ? begun : run.last + 1;
		while (run.first <= run.last &&
			!is_alone(map, e, m = glk_mapping_at(map, run.first)))
			run.first = m.last + 1;
		while (run.first <= run.last &&
			!is_alone(map, e, m = glk_mapping_at(map, run.last)))
			run.last = m.first - 1;
	} while (run.first > run.last && slot > begun && slot <= last);
	return run;
}

/* Times that a run is looked for, which others have taken a part of meanwhile. */
#define TRIES 8

int glk_exchange_have(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_map *map = &arena->map;
	uint32_t slot = glk_extent_first(map, e);
	bool done = false;
	struct glk_stretch run;
	int err = -EAGAIN;

	for (int i = 0; i < TRIES; i += err == -EAGAIN) {
		run = next_own(map, e, slot);
		if (run.first > run.last)
			break;
		err = exchange(arena, e, &run, on);
		if (err && err != -EAGAIN)
			return err;
		/* there may be another one, behind pages that came before */
		if (!err)
			slot = run.last + 1;
		done |= !err;
	}
	return done ? 0
		    : glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			      "the block at 0x%" PRIx64
			      " shares its pages of the host with others: glake_quiet "
			      "moves them all",
			      glk_load_relaxed(&e->addr));
}
