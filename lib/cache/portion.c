/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From bytes of a block that a program names to the slots that go or come: see part.h. */
#include "cache/part.h"

#include "base/error.h"
#include "cache/advice.h"

#include <errno.h>
#include <inttypes.h>

int glk_portion_check(const struct glk_extent *e, const struct glk_portion *p)
{
	uint64_t asked = glk_extent_asked(e);

	if (p->bytes && p->offset < asked && p->bytes <= asked - p->offset)
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"%" PRIu64 " bytes at %" PRIu64 " are no range of a block of %" PRIu64
		" bytes",
		p->bytes, p->offset, asked);
}

struct glk_stretch glk_portion_slots(const struct glk_map *map,
	const struct glk_extent *e, const struct glk_portion *p, bool any)
{
	struct glk_stretch s = glk_part_all(map, e);
	uint64_t begin = e->offset + p->offset, end = begin + p->bytes;

	if (p->offset)
		s.first = glk_slot_of(map, any ? begin : begin + glk_slot_bytes(map) - 1);
	/* those behind the last byte that was asked for go with it */
	if (p->offset + p->bytes < glk_extent_asked(e))
		s.last = any ? glk_slot_of(map, end - 1) : glk_slot_of(map, end) - 1;
	return s;
}

static bool is_all(
	const struct glk_map *map, const struct glk_extent *e, struct glk_stretch s)
{
	struct glk_stretch all = glk_part_all(map, e);

	return s.first == all.first && s.last == all.last;
}

static int is_one_page(const struct glk_extent *e)
{
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"the block at 0x%" PRIx64 " is contiguous, and moves as a whole",
		glk_load_relaxed(&e->addr));
}

static int is_placed(const struct glk_extent *e)
{
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"the block at 0x%" PRIx64
		" lies in memory of the host in part, and goes away as a whole",
		glk_load_relaxed(&e->addr));
}

static int holds_no_slot(const struct glk_map *map, const struct glk_portion *p)
{
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"%" PRIu64 " bytes at %" PRIu64 " hold no page of %" PRIu64 " bytes",
		p->bytes, p->offset, glk_slot_bytes(map));
}

int glk_portion_send(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_portion *p)
{
	const struct glk_map *map = &arena->map;
	struct glk_part_way way = {.on = on};
	struct glk_stretch s;
	int err;

	err = glk_portion_check(e, p);
	if (!err)
		err = glk_spill_may(arena, e);
	if (err)
		return err;
	s = glk_portion_slots(map, e, p, false);
	if (s.first + 1 > s.last + 1)
		return holds_no_slot(map, p);
	if (is_all(map, e, s))
		return glk_spill(arena, e, &way);
	if (glk_load_relaxed(&e->whole))
		return is_one_page(e);
	if (!arena->ops->fixed && glk_beside_placed(map, e))
		return is_placed(e);
	return glk_spill_range(arena, e, s, &way);
}

int glk_portion_leave(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_part_way *way, const struct glk_portion *p)
{
	const struct glk_map *map = &arena->map;
	struct glk_stretch s = glk_portion_slots(map, e, p, false);
	int err = glk_portion_check(e, p);

	/* other ranges of it may be out */
	if (!err && glk_advice_stays(arena, e))
		err = glk_spill_keeps(arena, e);
	if (err || glk_extent_away(e))
		return err;
	if (s.first + 1 > s.last + 1)
		return holds_no_slot(map, p);
	if (!arena->ops->fixed && glk_beside_placed(map, e))
		return is_placed(e);
	err = glk_spill_range(arena, e, s, way);
	return err == -EALREADY ? 0 : err;
}

int glk_portion_have(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_portion *portions, size_t count, const struct glk_part_way *way)
{
	if (glk_load_relaxed(&e->whole))
		return glk_fetch(arena, e, way);
	return glk_fetch_portions(arena, e, portions, count, way);
}
