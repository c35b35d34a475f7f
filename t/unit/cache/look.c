/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who found the addresses of a pool in time reads its tables, however quickly it goes. */
#include "unit/cache/rig.h"

#include <sched.h>

static struct rig rig;

/* Any thread's requests go to the pool; so it is this one's stream alone. */
static bool is_mine(struct CUstream_st *stream, void *arg)
{
	return stream == arg;
}

static glk_atomic(bool) released;

static void *release(void *arg)
{
	if (glk_graph_release(arg, rig_id(1)))
		tap_bail("no release");
	glk_store_release(&released, true);
	return NULL;
}

static void stays_for_a_look(void)
{
	struct glk_range *range;
	struct glk_look look;
	struct glk_live live;
	pthread_t thread;
	uint64_t addr;

	rig_open(&rig, NULL);
	rig_stream(&rig);
	if (rig_begin_for(&rig, 1, is_mine, rig.stream[0]))
		tap_bail("no pool");
	addr = rig_alloc(&rig, 3 * MIB, rig.stream[0]);
	rig_end_pool(&rig, 1);
	look = glk_look_begin(&rig.cache);
	range = glk_cache_range(&rig.cache, addr);
	ok(range && glk_lookup_live(range, addr + 5, &live), "a block of a pool");
	rig_free(&rig, addr, rig.stream[0]);
	if (pthread_create(&thread, NULL, release, &rig.cache))
		tap_bail("no thread");
	while (glk_cache_range(&rig.cache, addr))
		sched_yield();
	/* time enough for one that does not wait */
	for (int i = 0; i < 1000 && !glk_load_acquire(&released); i++)
		sched_yield();
	ok(!glk_load_acquire(&released), "the pool is about to go, and waits");
	ok(!glk_live_is_still(&live) && !glk_lookup_live(range, addr, &live),
		"its tables are there");
	glk_look_end(&rig.cache, &look);
	pthread_join(thread, NULL);
	ok(glk_load_acquire(&released), "it goes after the look");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	stays_for_a_look();
	return tap_done();
}
