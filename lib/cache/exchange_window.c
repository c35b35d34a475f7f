/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A window: addresses that no map has, where pages of the GPU are read or written while nothing or something
 * else lies at those of their block. See exchange.h. Two are in use at a time by exchanges one after the
 * other, and one by each fetch; what the driver has kept there is nobody's any more, and the window
 * neither.
 */
#include "base/error.h"
#include "base/log.h"
#include "cache/cache.h"
#include "cache/exchange.h"

#include <errno.h>
#include <inttypes.h>

/* Pages that are mapped between two looks at the tables. */
#define BATCH 64

/* A free one; NULL: there is none, and *ret_comes tells whether others give one back, who wait for nobody. */
static struct glk_window *find(struct glk_cache *cache, bool *ret_comes)
{
	*ret_comes = false;
	for (int i = 0; i < GLK_WINDOWS; i++) {
		*ret_comes |= !cache->windows[i].kept;
		if (!cache->windows[i].taken)
			return &cache->windows[i];
	}
	return NULL;
}

static void give_back(struct glk_exchange *x)
{
	x->window->taken = false;
	pthread_cond_broadcast(&x->arena->gpu->moved);
}

int glk_window_open(struct glk_exchange *x, uint64_t size)
{
	struct glk_cache *cache = x->arena->gpu;
	uint64_t least = (uint64_t)GLK_EXCHANGE_PART << x->map->shift;
	struct glk_window *w;
	bool comes;
	int err = 0;

	/* one of two at once waits for nobody, who may be the one that has the window */
	while (!(w = find(cache, &comes)) && x->patient && comes) {
		glk_plan_park(cache, false);
		glk_lock_wait(&cache->lock, &cache->moved);
		glk_plan_unpark(cache, false);
	}
	if (!w)
		return glk_error(-EIO, GLAKE_ERROR_DRIVER,
			"GPU %d: the driver keeps what was mapped in all of the %d windows through which "
			"pages go to the host",
			cache->device, GLK_WINDOWS);
	x->window = w;
	w->taken = true;
	w->bytes = size;
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
	if (err)
		give_back(x);
	return err;
}

void glk_window_abandon(struct glk_exchange *x)
{
	glk_warn("GPU %d: 0x%" PRIx64 " could not be unmapped and stays out of use",
		x->arena->gpu->device, x->window->addr);
	x->window->kept = x->window->bytes;
}

int glk_window_close(struct glk_exchange *x)
{
	struct glk_drv *drv = x->map->pool->drv;
	int err;

	glk_map_pause(x->map);
	err = drv->ops->unmap(drv, x->window->addr, x->window->bytes);
	glk_map_resume(x->map);
	if (err)
		glk_window_abandon(x);
	else
		give_back(x);
	return err;
}

/* The next pages of a list, as many as are mapped at once. */
static int map_some(struct glk_exchange *x, uint32_t *pages, uint64_t *at)
{
	struct glk_drv *drv = x->map->pool->drv;
	uint64_t handle[BATCH], size[BATCH];
	unsigned count = 0;
	int err = 0;

	for (; *pages && count < BATCH; count++) {
		const struct glk_page *page = glk_map_page(x->map, *pages);

		handle[count] = page->handle;
		size[count] = page->size;
		*pages = glk_page_next(x->map, *pages);
	}
	glk_map_pause(x->map);
	for (unsigned i = 0; i < count && !err; i++) {
		err = drv->ops->map(drv, *at, size[i], handle[i]);
		*at += err ? 0 : size[i];
	}
	glk_map_resume(x->map);
	return err;
}

int glk_window_fill(struct glk_exchange *x, uint32_t pages)
{
	const struct glk_grant grant = {
		.who = x->arena->gpu->node->place, .access = GLK_ACCESS_WRITE};
	struct glk_drv *drv = x->map->pool->drv;
	uint64_t addr = x->window->addr, at = addr;
	bool kept = false;
	int err = 0;

	while (pages && !err)
		err = map_some(x, &pages, &at);
	glk_map_pause(x->map);
	if (!err)
		err = drv->ops->set_access(drv, addr, at - addr, &grant, 1);
	if (err && at > addr)
		kept = drv->ops->unmap(drv, addr, at - addr) != 0;
	glk_map_resume(x->map);
	x->window->bytes = at - addr;
	if (kept)
		glk_window_abandon(x);
	else if (err)
		give_back(x);
	return err;
}

void glk_window_lose(struct glk_exchange *x, uint32_t pages)
{
	for (uint32_t id = pages, next; id; id = next) {
		next = glk_page_next(x->map, id);
		glk_map_page(x->map, id)->kept = true;
		glk_node_lose(glk_map_node(x->map, id), id);
	}
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
