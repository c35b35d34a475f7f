/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks that lie in memory of the host, in place: an arena of the GPU whose rule is that its pages are
 * those of the NUMA node near it. It serves a request for which the GPU has no room on any rung, if
 * tier.place says so, and is there from the first such request on. What is asked for later is asked of the
 * GPU first again.
 *
 * A block stays where it was born until it is freed, or until the program has it exchanged for pages
 * of the GPU (exchange.c): a part of a block may lie on the host and the rest on the GPU, and which it is is
 * read from the pages. What is idle of either serves whoever wants pages of its node.
 *
 * With tier.place=peer its pages are those of the peer of that node, which another GPU lends, as long as it has room
 * (pool/lend.c).
 *
 * Blocks with a tag lie among the addresses of their tag, so that they stay together, with pages of the host
 * as well. There, and among those of blocks that went to the host in place, no new block of the GPU finds a
 * place at pages of the host.
 *
 * There are no bins: what is freed here should not be found before what the GPU has.
 */
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/cache.h"
#include "cache/exchange.h"
#include "cache/reserve.h"

#include <errno.h>

static const struct glk_arena_ops ops = {
	.kind = GLAKE_ARENA_HOST,
	.may = glk_common_may,
	.order = glk_common_order,
	.own = true,
	.waits = true,
	.inside = "lies in memory of the host",
	.host = true,
};

/* Whether the request was refused for want of memory of the GPU, and of nothing else. A contiguous
 * block is for others to have, which memory of the host is not; and no block is larger than all
 * addresses. */
static bool is_for_host(
	const struct glk_cache *cache, const struct glk_request *request, int err)
{
	return err == -ENOMEM && glk_peek_relaxed(&cache->places) &&
		request->size <= cache->conf->map_span &&
		!(request->flags & GLAKE_ALLOC_CONTIGUOUS) &&
		glk_thread_current->error.error_class == GLAKE_ERROR_NOMEM_DEVICE;
}

static bool begins_lent(const struct glk_cache *cache, uint64_t addr)
{
	const struct glk_range *range = glk_cache_range(cache, addr);
	uint32_t slot = glk_slot_of(range->map, addr - range->base + range->offset);

	return glk_map_is_lent(range->map, range->map->page[slot]);
}

/* Who may lend to a GPU; NULL: nobody, which a warning has said where it is not meant. */
static struct glk_node *find_lender(struct glk_cache *cache)
{
	int from = (int)cache->conf->tier_peer;
	struct glk_drv *drv = cache->drv;
	bool can = false;

	if (from >= cache->pool->gpus && cache->device == 0)
		glk_warn(
			"tier.peer: there is no GPU %d, so that others have memory of the host",
			from);
	if (!cache->host || from == cache->device || from >= cache->pool->gpus)
		return NULL;
	if (drv->ops->peer_can(drv, from, cache->device, &can) || !can) {
		glk_warn(
			"GPU %d cannot reach the memory of GPU %d, and has memory of the host "
			"instead",
			cache->device, from);
		return NULL;
	}
	return glk_pool_gpu(cache->pool, from);
}

void glk_beside_lend(struct glk_cache *cache, bool place, bool away)
{
	struct glk_node *lender = place || away ? find_lender(cache) : NULL;

	if (!cache->host)
		return;
	if (lender) {
		cache->host->peer->lender = lender;
		cache->host->peer->place = lender->place;
	}
	/* pairs with: glk_node_lender */
	glk_store_release(&cache->host->peer->borrows, lender && place);
	/* pairs with: glk_lend_stows */
	glk_store_release(&cache->host->peer->stows, lender && away);
}

/* A driver that has no such memory for this GPU, or none that can be mapped, is not asked again. */
static int give_up(struct glk_cache *cache, const struct glake_error *why)
{
	if (!cache->rungs[GLAKE_RUNG_SPILL_HOST] &&
		!cache->rungs[GLAKE_RUNG_SPILL_PEER]) {
		glk_warn("GPU %d: nothing can lie in memory of the host: %s",
			cache->device, glk_thread_current->error.text);
		glk_poke_relaxed(&cache->places, false);
	}
	glk_error_back(why);
	return -ENOMEM;
}

static int serve(struct glk_arena *arena, const struct glk_request *request,
	struct glk_seat *seat, uint64_t *ret_addr)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_request again = {.size = request->size,
		.flags = request->flags,
		.stream = request->stream,
		.capture = request->capture,
		.node = cache->host,
		.patient = true};

	/* as it was asked for: the GPU may have rounded it in its own way */
	again.rounded = (request->size + GLAKE_GRAIN - 1) & ~(uint64_t)(GLAKE_GRAIN - 1);
	/* a tag has its blocks together */
	return glk_arena_serve(
		arena->binned ? &cache->beside : arena, &again, seat, NULL, ret_addr);
}

int glk_beside_serve(struct glk_arena *arena, const struct glk_request *request, int err,
	struct glk_seat *seat, uint64_t *ret_addr)
{
	struct glk_cache *cache = arena->gpu;
	struct glake_error why;

	if (!is_for_host(cache, request, err))
		return err;
	why = glk_thread_current->error;
	err = cache->beside.map.pool
		? 0
		: glk_arena_init(&cache->beside, cache, &ops, &cache->space,
			  glk_arena_size(cache, cache->memory));
	if (err)
		return err;
	err = serve(arena, request, seat, ret_addr);
	if (!err)
		glk_cache_climbed(cache,
			begins_lent(cache, *ret_addr) ? GLAKE_RUNG_SPILL_PEER
						      : GLAKE_RUNG_SPILL_HOST);
	return err == -EINVAL || err == -EPERM || err == -EACCES || err == -EOPNOTSUPP
		? give_up(cache, &why)
		: err;
}
