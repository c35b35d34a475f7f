/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A lender that wants its memory back from a GPU with many blocks that are here: those that are away are looked for
 * in steps, between which others have the lock, and not for longer where there are more of them.
 */
#include "vacate_rig.h"

#include "base/clock.h"

#include <errno.h>

static void set_up(void)
{
	open_beside("soft.memory=64GiB", "map.span=128GiB", NULL, NULL);
}

static void *take(size_t size)
{
	void *ptr = NULL;

	if (glake_alloc(ctx, 0, size, NULL, 0, &ptr))
		tap_bail("no block");
	return ptr;
}

static struct glk_extent *extent_of(const void *ptr)
{
	const struct glk_range *range = glk_cache_range(cache, (uintptr_t)ptr);

	return glk_extent_at(range->map, glk_lookup_first(range, (uintptr_t)ptr));
}

int main(void)
{
	int blocks = tap_on_valgrind() ? 2000 : 30000, slots;
	struct glk_moving moving;
	uint64_t steps, passes;
	uint32_t tag;
	int64_t since;
	void *one;

	tap_plan_later();
	set_up();
	for (int i = 0; i < blocks; i++)
		take(512 << 10);
	glake_tag_open(ctx, "some", &tag);
	glake_tag_set(ctx, tag, NULL);
	for (int i = 0; i < blocks; i++)
		take(4096);
	glake_tag_set(ctx, 0, NULL);
	slots = blocks * 4096 / (int)(2 * MIB);
	one = take(40 * MIB);
	is_int(glake_spill(ctx, one, NULL), 0, "one block of many goes");
	steps = cache->plans.steps;
	is_int(glk_cache_vacate(cache), 0, "and comes to the host");
	steps = cache->plans.steps - steps;
	ok(steps >= (uint64_t)(blocks + slots),
		"of %d and %d, among which others had the lock: %llu steps", blocks,
		slots, (unsigned long long)steps);
	is_int(glake_fetch(ctx, one, NULL) | glake_spill(ctx, one, NULL), 0,
		"it goes to the lender again");
	glk_lock(&cache->lock);
	ok(glk_away_take(cache, extent_of(one), &moving), "somebody has it");
	glk_unlock(&cache->lock);
	passes = cache->plans.steps;
	since = glk_clock_ns();
	is_int(glk_cache_vacate(cache), -EBUSY, "and keeps it");
	since = glk_clock_ns() - since;
	passes = (cache->plans.steps - passes) / steps;
	ok(since < INT64_C(3000000000) || passes <= 102,
		"which is seen after a second or two: %lld ms, %llu passes",
		(long long)since / 1000000, (unsigned long long)passes);
	glk_lock(&cache->lock);
	glk_away_let_go(cache, extent_of(one), &moving);
	glk_unlock(&cache->lock);
	is_int(glk_cache_vacate(cache), 0, "when it is let go it comes");
	is_int(glake_close(ctx, NULL), 0, "closed");
	return tap_done();
}
