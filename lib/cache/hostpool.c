/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locked memory of the host for the program, with the streams of GPUs: see tier/hostpool.h. */
#include "base/error.h"
#include "cache/cache.h"

#include <errno.h>

int glk_cache_host_alloc(
	struct glk_cache *cache, uint64_t size, uint64_t align, uint64_t *ret_addr)
{
	/* with it come the figures of the GPU, and a trim */
	int err = glk_cache_start(cache);

	return err ? err : glk_hostpool_alloc(&cache->hostpool, size, align, ret_addr);
}

int glk_cache_host_use(struct glk_cache *cache, struct CUstream_st *stream,
	struct glk_hostpool *pool, uint64_t addr)
{
	struct glk_stream_facts facts = {0};
	uint32_t id;
	struct glk_use use;
	int err = glk_cache_start(cache);

	if (!err)
		err = glk_stream_get(&cache->streams, stream, &facts, &id);
	if (err)
		return err;
	if (facts.capture)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"the stream captures a graph, whose replays no event tells of: the "
			"block is to be kept as long as the graph");
	glk_lock(&cache->lock);
	use = glk_stream_use(glk_stream_enter(&cache->streams, id), 0);
	glk_unlock(&cache->lock);
	/* of one that has just ended it is empty */
	return glk_hostpool_use(pool, addr, &cache->streams, &use);
}
