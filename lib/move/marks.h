/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_MARKS_H
#define GLK_MOVE_MARKS_H

/*
 * The streams that used a live block beside its own, in one word of its extent. Streams with a low bit
 * have it there too. Of the others, of which there may be thousands, two have their numbers above these
 * bits, so that whoever frees the block waits for them alone; more are not told apart.
 *
 * Adding takes no lock: the block is held by whoever adds, and whoever frees it sees what was added, since
 * the claim follows the holder's last move.
 */
#include "map/map.h"
#include "stream/stream.h"

/* A stream by its number; one that has no bit is not added. Any thread, without the lock once it has. */
void glk_marks_add(
	const struct glk_streams *streams, struct glk_extent *e, uint32_t stream);
/* Those of a use. Under the lock of the GPU, as the next. */
void glk_marks_add_use(const struct glk_streams *streams, struct glk_extent *e,
	const struct glk_use *use);
/* The use of them all, and of what they were given until a tick. */
struct glk_use glk_marks_use(
	struct glk_streams *streams, const struct glk_extent *e, uint64_t tick);

static inline bool glk_marks_any(const struct glk_extent *e)
{
	return glk_load_relaxed(&e->marks);
}

#endif
