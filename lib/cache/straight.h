/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_STRAIGHT_H
#define GLK_CACHE_STRAIGHT_H

/*
 * The straight miss: a large block whose place is mapped and its stream's own is found, carved, entered and
 * booked, and the free of one that nothing was done with gives it back. A bounded number of steps under the lock,
 * no driver call, no wait. It is what a miss does while nothing is out of the ordinary on the GPU; all else is
 * for the plan (arena/serve.c) and the long free (block.c). With one stream the place is the one that they would
 * find, with several the first that needs no wait.
 */
#include "cache/cache.h"

/*
 * Both under the lock of the GPU, whose turn stays short: see base/lock.h. Where they do not answer that it is done,
 * nothing was.
 */

/* A block for a plain request by a thread of a seat, on a stream that captures nothing, by its number and name. 0;
 * -EBUSY: what streams have to tell may make it one; -ENOMEM: it is for the plan. */
int glk_straight_take(struct glk_cache *cache, struct glk_seat *seat, uint32_t stream,
	const struct CUstream_st *name, uint64_t size, uint64_t *ret_addr);
/* One that the caller has claimed, of the GPU's own arena, freed on a stream. */
bool glk_straight_give(struct glk_cache *cache, struct glk_seat *seat,
	struct glk_extent *e, struct glk_stream *stream);

#endif
