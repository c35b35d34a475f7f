/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_POOL_USE_H
#define GLK_POOL_USE_H

/*
 * When memory was last used on the GPU: by which streams, and until which tick of the GPU's
 * clock of frees. It says nothing on whether that work has finished; lib/stream answers that.
 *
 * One tick for all streams of the set is coarse and safe: work freed on a stream at tick t is
 * covered by any event recorded on that stream after t.
 */
#include <stdint.h>

struct glk_use {
	uint64_t streams; /* bit of each stream, see stream/table.h; 0: never used */
	uint64_t tick;
};

static inline void glk_use_add(struct glk_use *use, uint64_t streams, uint64_t tick)
{
	use->streams |= streams;
	if (use->tick < tick)
		use->tick = tick;
}

#endif
