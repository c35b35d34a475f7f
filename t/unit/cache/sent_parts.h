/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef T_UNIT_CACHE_SENT_PARTS_H
#define T_UNIT_CACHE_SENT_PARTS_H

/* Contents that go to the host and come back, for tests of what is done to them there. */
#include "tier/pack.h"

#include "plan_parts.h"

static struct rig rig;
static struct CUstream_st *a;

static int spill_at(uint64_t addr)
{
	return glk_cache_spill(&rig.cache, addr, a);
}

static int fetch_at(uint64_t addr)
{
	return glk_cache_fetch(&rig.cache, addr, a);
}

/* Nothing waits to be compressed, and nothing is in hand. */
static bool is_packed(void)
{
	struct glk_pack *pack = rig.cache.mover.store.pack;
	bool done;

	glk_lock(&rig.cache.lock);
	done = !pack || (pack->rests && !pack->first && !pack->spent);
	glk_unlock(&rig.cache.lock);
	return done;
}

/* For the thread: ten minutes at the most. */
static void settle(void)
{
	for (int i = 0; i < 600000 && !is_packed(); i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	if (!is_packed())
		tap_bail("contents still wait to be packed");
}

#endif
