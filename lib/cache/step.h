/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_STEP_H
#define GLK_CACHE_STEP_H

/*
 * Where the large blocks of a step lay. A step ends at a quiet point, and a request of the next one
 * takes the place of the one that stood at its turn in the step before, if that is free. So pages
 * stay where they are from step to step, and a job whose steps are equal maps nothing any more; by
 * best fit alone each step may map some of it anew, above all where the budget is what is live.
 *
 * Places are taken so only where that pays. The first step is by best fit; where that settles it goes on. After
 * a few steps whose places were taken, each may map a quarter less than the one before might, or best fit goes
 * on for four times as many steps each time. A request of which the step before has none at that turn is by
 * best fit, and after some of those so are all others, until turns are met again. After a step that was unlike the
 * one before, all of the next one is by best fit: what would be taken of it by chance costs more than it saves.
 *
 * In steps of several streams a place is taken behind work of another one as it was in the step before, and while
 * fewer requests have waited than in a step by best fit; and with pages to be mapped if there are some that the
 * stream may have.
 *
 * A place that is behind contents on their way to the host is exchanged with that of a later request of the same size,
 * the last one whose place costs nothing: in a few steps what leaves is in the way of nobody, or of requests that
 * come when it has gone. That goes on for a bounded number of steps.
 *
 * Cost	the first GLK_STEP_PLACES large requests of a step are remembered; a request looks at a bounded
 *	number of them. Nothing for a program without quiet points, and nothing for a hit
 */
#include "map/map.h"

#define GLK_STEP_PLACES 65536

struct glk_arena;
struct glk_cache;
struct glk_request;

/* All under the lock of the GPU. */

/* The place of a request, if it is to have the one of the last step. */
bool glk_step_find(const struct glk_arena *arena, const struct glk_request *request,
	const struct glk_want *want, struct glk_fit *ret_fit);
/* A request has its place. */
void glk_step_note(const struct glk_arena *arena, const struct glk_request *request,
	const struct glk_fit *fit);
/* With the GPU. */
void glk_step_fini(struct glk_cache *cache);

#endif
