/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages of the host take the place of pages of the GPU: see exchange.h. They are the ones that cost: 12
 * ms a GiB to map and 5 to unmap, in pages of 8 MiB, against 3 and 2 for pages of the GPU. So each is
 * mapped once, where it stays, and it is the pages of the GPU that are mapped a second time, in a window,
 * from where the contents are copied:
 *
 *	prepare	pages of the host are had, mapped nowhere; the pages of the GPU come into a window, leave
 *		the addresses of the blocks, and the new ones come there. Nothing uses the blocks: the
 *		plan is closed, and the work that is known has finished
 *	finish	the window is empty again, and the pages of the GPU are free
 *
 * Until the finish the contents are in the pages of the GPU, which come back where the driver refuses a
 * step, or the copy fails. Where the GPU cannot be waited for, the blocks have the new pages, behind the
 * copy, and the old ones stay in the window, out of use.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/exchange.h"
#include "cache/part.h"
#include "cache/plan.h"

#include <errno.h>
#include <inttypes.h>

/* Pages that are mapped between two looks at the tables. */
#define BATCH 64

/* Times that pages are tried to be unmapped that are in the way of the contents. */
#define TRIES 8

struct chain {
	struct glk_arena *home;
	uint32_t first, last;
};

static void add(struct chain *c, uint32_t *list, uint32_t count)
{
	for (; count; count--) {
		uint32_t id = glk_supply_pop(c->home, list);

		glk_page_link(&c->home->map, id, 0);
		if (c->last)
			glk_page_link(&c->home->map, c->last, id);
		else
			c->first = id;
		c->last = id;
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
	if (own >= behind || *lead > slots || *tail > slots ||
		glk_part_is_single(x->arena->gpu, x->e))
		*lead = slots;
	if (*tail > slots - *lead)
		*tail = slots - *lead;
}

/* For the busy part, linked in the order of addresses. */
static int get_pages(struct glk_exchange *x)
{
	struct glk_arena *home = &x->arena->gpu->host_stage;
	uint32_t slots = x->busy.last - x->busy.first + 1, lead, tail, large = 0;
	uint64_t size = (uint64_t)slots << x->map->shift;
	struct glk_request request = {
		.size = size, .rounded = size, .stream = glk_exchange_carrier(x)};
	struct chain chain = {.home = home};
	struct glk_supply supply;
	struct glk_need need;
	int err = glk_exchange_start(x->arena->gpu, GLK_TO_HOST);

	if (err)
		return err;
	cut(x, slots, &lead, &tail);
	if (home->map.large > 1)
		large = (slots - lead - tail) / home->map.large;
	need = (struct glk_need){
		.small = slots - large * home->map.large, .large = large};
	glk_plan_begin(x->arena->gpu);
	err = glk_supply_get(home, &request, &need, &supply);
	glk_plan_end(x->arena->gpu);
	if (err)
		return err;
	add(&chain, &supply.small, lead);
	for (uint32_t i = 0; i < large; i++) {
		if (supply.large)
			add(&chain, &supply.large, 1);
		else
			add(&chain, &supply.small, home->map.large);
	}
	add(&chain, &supply.small, slots - lead - large * home->map.large);
	x->pages = chain.first;
	glk_supply_put_back(home, &supply);
	return 0;
}

static uint64_t run_bytes(const struct glk_exchange *x)
{
	return (uint64_t)(x->run.last - x->run.first + 1) << x->map->shift;
}

static int no_window(const struct glk_cache *cache)
{
	return glk_error(-EIO, GLAKE_ERROR_DRIVER,
		"GPU %d: the driver keeps what was mapped in all of the %d windows through which "
		"pages go to the host",
		cache->device, GLK_WINDOWS);
}

/* Addresses for all of a run, which nobody else has. */
static int open_window(struct glk_exchange *x)
{
	struct glk_cache *cache = x->arena->gpu;
	uint64_t size = run_bytes(x),
		 least = (uint64_t)GLK_EXCHANGE_PART << x->map->shift;
	struct glk_window *w = cache->windows;
	int err = 0;

	while (w < cache->windows + GLK_WINDOWS && w->taken)
		w++;
	if (w == cache->windows + GLK_WINDOWS)
		return no_window(cache);
	x->window = w;
	w->taken = true;
	if (w->size >= size)
		return 0;
	size = size < least ? least : size;
	glk_map_pause(x->map);
	if (w->size)
		cache->drv->ops->unreserve(cache->drv, w->addr, w->size);
	w->size = 0;
	err = cache->drv->ops->reserve(
		cache->drv, size, glk_slot_bytes(x->map), &w->addr);
	glk_map_resume(x->map);
	w->size = err ? 0 : size;
	w->taken = !err;
	return err;
}

/* Nothing is under way any more, so what was kept is tried once more. */
int glk_windows_fini(struct glk_cache *cache)
{
	struct glk_drv *drv = cache->drv;
	int err = 0, failed;

	for (int i = 0; i < GLK_WINDOWS; i++) {
		struct glk_window *w = &cache->windows[i];

		failed = w->kept ? drv->ops->unmap(drv, w->addr, w->kept) : 0;
		if (!failed && w->size)
			failed = drv->ops->unreserve(drv, w->addr, w->size);
		err = err ? err : failed;
	}
	return err;
}

/* The driver has mappings there that it keeps: nobody else has it. */
static void abandon(struct glk_exchange *x, uint64_t bytes)
{
	glk_warn("GPU %d: 0x%" PRIx64 " could not be unmapped and stays out of use",
		x->arena->gpu->device, x->window->addr);
	x->window->kept = bytes;
}

/* 0, or the driver's error, with the window abandoned: what lies there is for the caller to book. */
static int close_window(struct glk_exchange *x)
{
	struct glk_drv *drv = x->map->pool->drv;
	int err;

	glk_map_pause(x->map);
	err = drv->ops->unmap(drv, x->window->addr, run_bytes(x));
	glk_map_resume(x->map);
	if (err)
		abandon(x, run_bytes(x));
	else
		x->window->taken = false;
	return err;
}

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

static void lose(struct glk_exchange *x)
{
	for (uint32_t id = x->old, next; id; id = next) {
		next = glk_page_next(x->map, id);
		glk_map_page(x->map, id)->kept = true;
		glk_node_lose(glk_map_node(x->map, id), id);
	}
	x->old = 0;
}

/* The pages of the run, at addresses of the window too. */
static int fill_window(struct glk_exchange *x)
{
	const struct glk_grant grant = {
		.who = x->arena->gpu->node->place, .access = GLK_ACCESS_WRITE};
	struct glk_drv *drv = x->map->pool->drv;
	uint64_t addr = x->window->addr, at = addr;
	uint32_t slot = x->run.first;
	bool kept = false;
	int err = 0;

	while (slot <= x->run.last && !err) {
		uint64_t handle[BATCH], size[BATCH];
		unsigned count = 0;

		for (; slot <= x->run.last && count < BATCH; count++) {
			const struct glk_page *page =
				glk_map_page(x->map, x->map->page[slot]);

			handle[count] = page->handle;
			size[count] = page->size;
			slot += glk_page_slots(x->map, page);
		}
		glk_map_pause(x->map);
		for (unsigned i = 0; i < count && !err; i++) {
			err = drv->ops->map(drv, at, size[i], handle[i]);
			at += err ? 0 : size[i];
		}
		glk_map_resume(x->map);
	}
	glk_map_pause(x->map);
	if (!err)
		err = drv->ops->set_access(drv, addr, at - addr, &grant, 1);
	if (err && at > addr)
		kept = drv->ops->unmap(drv, addr, at - addr) != 0;
	glk_map_resume(x->map);
	if (kept) {
		abandon(x, at - addr);
		keep(x);
	} else if (err) {
		x->window->taken = false;
	}
	return err;
}

/* The new pages come where the old ones were. */
static int turn(struct glk_exchange *x)
{
	struct glk_map *map = x->map;
	uint32_t old;
	int err;

	glk_exchange_tally(x, false);
	old = glk_swap_take(map, x->run.first, x->run.last);
	err = glk_swap_unmap(map, x->run.first, x->run.last);
	if (!err) {
		err = glk_swap_map(map, x->busy.first, &x->pages);
		if (err)
			glk_exchange_put_old(x, old);
	}
	if (err) {
		glk_swap_settle(map, x->run.first, x->run.last);
	} else {
		x->old = old;
		x->pages = 0;
		x->arena->gpu->streams.unmapped += run_bytes(x);
	}
	glk_exchange_tally(x, true);
	return err;
}

static int prepare(struct glk_exchange *x)
{
	struct glk_streams *streams = &x->arena->gpu->streams;
	int err = 0;

	glk_exchange_gather(x);
	if (!glk_clock_finished(streams, &x->use))
		err = glk_clock_sync_use(streams, &x->use);
	if (!err)
		err = open_window(x);
	if (!err)
		err = fill_window(x);
	if (err)
		return err;
	err = turn(x);
	if (err && close_window(x))
		keep(x);
	return err;
}

int glk_exchange_lower(struct glk_exchange *x)
{
	int err = get_pages(x);

	if (err)
		return err;
	if (glk_exchange_changed(x)) {
		glk_swap_put_back(x->map, x->pages);
		return -EAGAIN;
	}
	glk_exchange_claim(x);
	glk_plan_begin(x->arena->gpu);
	err = prepare(x);
	if (err) {
		glk_swap_put_back(x->map, x->pages);
		glk_unclaim(x->map, x->run.first, x->run.last);
	}
	glk_plan_end(x->arena->gpu);
	return err;
}

/* The copy has failed, and nothing is under way: the old pages come back. */
static void undo(struct glk_exchange *x)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_map *map = x->map;
	uint32_t new;
	int err = -EIO;

	glk_exchange_tally(x, false);
	new = glk_swap_take(map, x->busy.first, x->busy.last);
	for (int i = 0; i < TRIES && err; i++)
		err = glk_swap_unmap(map, x->busy.first, x->busy.last);
	if (!err) {
		glk_exchange_put_old(x, x->old);
		glk_swap_put_back(map, new);
		x->old = 0;
	} else {
		glk_warn("GPU %d: what lay at 0x%" PRIx64
			 " is lost: it was not copied, and "
			 "the driver unmaps nothing there",
			x->arena->gpu->device, glk_slot_addr(map, x->busy.first));
	}
	glk_swap_settle(map, x->run.first, x->run.last);
	glk_exchange_tally(x, true);
	glk_error_back(&why);
}

int glk_exchange_lowered(struct glk_exchange *x)
{
	int err = x->err, failed;

	glk_use_set(x->map, x->busy.first, x->busy.last, &x->use);
	glk_exchange_shut(x);
	if (!x->idle) {
		abandon(x, run_bytes(x));
		lose(x);
		return err;
	}
	if (err)
		undo(x);
	failed = close_window(x);
	if (failed && !x->old)
		keep(x);
	if (failed)
		lose(x);
	glk_swap_put_back(x->map, x->old);
	return err ? err : failed;
}
