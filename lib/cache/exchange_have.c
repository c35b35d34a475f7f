/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A block that lies on the host comes to the GPU, as far as it has its pages to itself: see exchange.h. */
#include "cache/exchange.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>

/* Whether nothing but a block touches a mapping, nor a block that is about to come. */
static bool is_alone(
	const struct glk_map *map, const struct glk_extent *e, struct glk_mapping m)
{
	uint32_t first = glk_extent_first(map, e), last = glk_extent_last(map, e);

	for (uint32_t slot = m.first; slot <= m.last; slot++) {
		bool inside = slot >= first && slot <= last;

		if (inside ? map->count[slot] > 1 : glk_bit_get(map->busy, slot))
			return false;
	}
	return !glk_is_claimed(map, m.first, m.last);
}

/* The next run from a slot on that a block has to itself: others touch mappings at its ends alone. */
static struct glk_run next_own(
	const struct glk_map *map, const struct glk_extent *e, uint32_t slot)
{
	uint32_t last = glk_extent_last(map, e), begun;
	struct glk_mapping m;
	struct glk_run run;

	do {
		begun = slot;
		run = glk_exchange_next(map, slot, last, UINT32_MAX, GLK_TO_GPU);
		slot = run.first > run.last ? begun : run.last + 1;
		while (run.first <= run.last &&
			!is_alone(map, e, m = glk_mapping_at(map, run.first)))
			run.first = m.last + 1;
		while (run.first <= run.last &&
			!is_alone(map, e, m = glk_mapping_at(map, run.last)))
			run.last = m.first - 1;
	} while (run.first > run.last && slot > begun && slot <= last);
	return run;
}

/* Times that a run is looked for, which others have taken a part of meanwhile. */
#define TRIES 8

int glk_exchange_have(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_map *map = &arena->map;
	uint32_t slot = glk_extent_first(map, e);
	bool done = false;
	struct glk_run run;
	int err = -EAGAIN;

	for (int i = 0; i < TRIES; i += err == -EAGAIN) {
		run = next_own(map, e, slot);
		if (run.first > run.last)
			break;
		err = glk_exchange(arena, e, &run, on);
		if (err && err != -EAGAIN)
			return err;
		/* there may be another one, behind pages that came before */
		if (!err)
			slot = run.last + 1;
		done |= !err;
	}
	return done ? 0
		    : glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			      "the block at 0x%" PRIx64
			      " shares its pages of the host with others: glake_quiet "
			      "moves them all",
			      glk_load_relaxed(&e->addr));
}
