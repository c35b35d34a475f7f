/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_LADDER_H
#define GLK_CACHE_LADDER_H

/*
 * What is tried for a request that has not enough: ladder.c, where all rungs stand in one table, in order. It is
 * climbed twice over: within a try of a request, for pages that are missing, with those in hand that it has got;
 * and by a request of which a try has failed, for a place, after which it is tried again as a whole. Who climbs is
 * alone, see plan.h. Everything else answers -ENOMEM.
 *
 * All under the lock of the GPU, which is given up meanwhile.
 */
#include "cache/arena/request.h"

struct glk_climb {
	struct glk_arena *arena;
	struct glk_request *request;
	/* Whether it is enough now: 0; -ENOMEM; -EBUSY: it may be when the GPU has been waited for; or an error
	 * that ends it. */
	int (*again)(struct glk_climb *climb);
	void *arg;
	struct glk_node *node; /* whose pages are missing; NULL: a place is */
	uint64_t lack;	       /* bytes of them, which `again` keeps */
	/* Of the ladder: to be given back in this round, and given. */
	uint64_t want, given;
	struct glk_late late;
	unsigned waits, looks, tries;
	uint64_t frees;
};

/*
 * For pages. 0; -ENOMEM with a record; without one where others are inside: all that was had is to go back then, and
 * it is climbed by the try that follows; or the error that ended it.
 */
int glk_ladder_pages(struct glk_climb *climb);
/* Cold blocks go for so many bytes, if all of them are enough. */
bool glk_ladder_cold(struct glk_cache *cache, uint64_t bytes);

#endif
