/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_APART_H
#define GLK_CACHE_APART_H

/*
 * Straight requests and frees of a stream that has an arena, with no more than the part of the lock of the GPU that is
 * the arena's, while the lock is divided: see base/lock.h. Streams whose threads met at the lock do not meet any more.
 *
 * Written	is what nobody else has meanwhile: the extents and slots of the arena, the row and the clock of the
 *		stream, the list aside of it, the seat of the thread. What belongs to all is booked by who next has
 *		all of the lock: bin/own.c
 * Read		is anything else, since whoever writes it has all of the lock; and of other streams when something was
 *		freed on them last
 * Pages	that have one mapping each, so that what becomes of them is nothing to other arenas
 * Time		a free has the tick of the moment when the lock was divided: no event was recorded since
 */
#include "cache/cache.h"

/* With the part, which they give back: whether a request was served; and whether a block that is claimed was taken back
 * behind a stream. Else nothing was done. */
bool glk_apart_serve(struct glk_arena *arena, struct glk_seat *seat, struct glk_row *row,
	struct CUstream_st *stream, uint64_t size, uint64_t *ret_addr);
bool glk_apart_give(struct glk_arena *arena, struct glk_seat *seat, struct glk_extent *e,
	struct glk_stream *stream);

#endif
