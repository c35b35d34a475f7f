/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_REST_H
#define GLK_CACHE_REST_H

/*
 * Memory of a GPU goes back to the driver while the program rests, where the key pool.rest asks for it: a thread a
 * GPU looks each time that long after the last look.
 *
 * Rest		no request has come since the last look that was no hit. Hits take blocks of bins, which are no
 *		idle memory, so idle pages served nobody all the while
 * Gives	idle pages beyond policy.target of what is in use now, and what pool.ahead keeps. A peak that has
 *		passed does not count: requests within the target find what they need as long as the program
 *		is at work
 * Bins		are emptied before, where no block at all came or went, and more lies in them than that
 * Steps	a page at a time, the lock given up for it; the next request that is no hit ends it
 * Thread	from the first request on that leaves more held than is never given back. While no more is, it
 *		sleeps. What was freed on streams that have gone without a word it waits for, since no event
 *		tells of those
 */
#include "move/gpu.h"

void glk_rest_init(struct glk_cache *cache);
/* Ends the thread, waiting for the calls under way. Not under the lock. */
void glk_rest_stop(struct glk_cache *cache);
void glk_rest_fini(struct glk_cache *cache);
/* pool.rest has another value. Not under the lock. */
void glk_rest_set(struct glk_cache *cache, int64_t ns);
/* A request was no hit: whether the thread is to be woken, when the lock is free. */
bool glk_rest_note(struct glk_cache *cache);
/* Starts it, or wakes it. Where none can be had the log says so, once. Not under the lock. */
void glk_rest_wake(struct glk_cache *cache);

#endif
