/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What an exchange brings goes over links that other GPUs lend, too: see tier/io/io.h. Those GPUs have to read
 * pages of the host, or write them, which are mapped for their own GPU alone. So they are given rights there by
 * one call of the driver, and lose them when all has arrived, unless the pages go anyway. On memory of the
 * GPU they have none: that is between it and their staging memory.
 *
 * Who changes the rights of all that is mapped closes the plans first, and no exchange is under way then.
 */
#include "cache/exchange.h"
#include "tier/io/io.h"

/* Tries to take rights back. */
#define TRIES 4

/* Whether the part that is copied is memory of the host throughout, and none that a GPU lends. */
static bool is_of_host(const struct glk_exchange *x)
{
	uint32_t slot = x->busy.first;

	while (slot <= x->busy.last) {
		const struct glk_page *page = glk_map_page(x->map, x->map->page[slot]);

		if (!glk_map_is_host(x->map, x->map->page[slot]) || page->lent)
			return false;
		slot = glk_mapping_at(x->map, slot).last + 1;
	}
	return true;
}

static int set(struct glk_exchange *x, uint64_t gpus, enum glk_access access)
{
	uint64_t bytes = (uint64_t)(x->open.last - x->open.first + 1) << x->map->shift;
	struct glk_drv *drv = x->map->pool->drv;
	struct glk_grant grants[GLK_IO_GPUS];
	size_t count = 0;
	int err;

	for (; gpus; gpus &= gpus - 1)
		grants[count++] = (struct glk_grant){
			.who = {GLK_PLACE_GPU, __builtin_ctzll(gpus)}, .access = access};
	glk_map_pause(x->map);
	err = drv->ops->set_access(
		drv, glk_slot_addr(x->map, x->open.first), bytes, grants, count);
	glk_map_resume(x->map);
	return err;
}

void glk_exchange_open(struct glk_exchange *x)
{
	struct glk_cache *cache = x->arena->gpu;
	uint64_t bytes = (uint64_t)(x->busy.last - x->busy.first + 1) << x->map->shift;
	uint64_t peers = glk_load_relaxed(&cache->node->peers);
	uint64_t gpus = glk_io_relays(cache->mover.io, cache->device, bytes);

	if (!gpus || !is_of_host(x))
		return;
	x->opened = gpus & ~peers;
	/* rights are those of whole pages */
	x->open = (struct glk_run){glk_mapping_at(x->map, x->busy.first).first,
		glk_mapping_at(x->map, x->busy.last).last};
	if (x->opened && set(x, x->opened, GLK_ACCESS_WRITE)) {
		/* the driver may have given some */
		glk_exchange_shut(x);
		gpus &= peers;
	}
	x->relays = gpus;
}

void glk_exchange_shut(struct glk_exchange *x)
{
	/* while some of the copy may be under way they are left as they are */
	for (int i = 0; i < TRIES && x->idle && x->opened; i++)
		if (!set(x, x->opened, GLK_ACCESS_NONE))
			x->opened = 0;
	if (x->opened)
		glk_peer_stays(x->arena->gpu, x->opened);
	x->opened = 0;
}
