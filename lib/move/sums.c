/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checksums of pages that nobody writes any more: those that several ranges have (seal.h), and those of blocks that
 * glake_seal sealed. With security.level=3 a kernel makes a number of each (share/alike.h), at a check, and at glake_seal of
 * those that have none. It is kept by slot until other contents lie there, and compared with the next one.
 *
 * Cost		4.5 TB/s of the GPU; a block waits while it is looked at
 */
#include "base/error.h"
#include "base/thread.h"
#include "move/away.h"
#include "move/block.h"
#include "move/plan.h"
#include "move/seal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct sums {
	struct glk_cache *cache;
	struct glk_likeness *look; /* NULL: pages are counted */
	bool known;		   /* those that have a number are looked at too */
	uint64_t pages;
	uint64_t *ret;
};

static size_t bytes_of(const struct glk_cache *cache)
{
	return cache->arena.map.space->capacity * sizeof(*cache->sums);
}

void glk_sums_forget(struct glk_cache *cache, uint32_t slot, uint32_t count)
{
	if (cache->sums)
		memset(&cache->sums[slot], 0, count * sizeof(*cache->sums));
}

void glk_sums_fini(struct glk_cache *cache)
{
	if (cache->sums)
		glk_region_free(cache->sums, bytes_of(cache));
	cache->sums = NULL;
}

static int is_changed(const struct glk_map *map, uint32_t slot)
{
	return glk_error(-EIO, GLAKE_ERROR_CORRUPT,
		"the sealed page at 0x%" PRIx64 " is not what it was",
		glk_slot_addr(map, slot));
}

int glk_sums_hash(
	struct glk_cache *cache, struct glk_likeness *look, uint64_t addr, uint64_t bytes)
{
	int err;

	glk_plan_park(cache, false);
	glk_lock_pause(&cache->lock);
	err = glk_likeness_hash(look, addr, bytes);
	if (!err)
		err = glk_likeness_wait(look);
	glk_lock_resume(&cache->lock);
	glk_plan_unpark(cache, false);
	return err;
}

/* Pages side by side of a block that is claimed. */
static int look_at_run(struct sums *s, const struct glk_map *map, struct glk_stretch run)
{
	uint64_t bytes = glk_slot_bytes(map), first, end;
	struct glk_cache *cache = s->cache;
	int err;

	if (!s->look) {
		s->pages += run.last - run.first + 1;
		return 0;
	}
	first = glk_likeness_looked(s->look) / bytes;
	err = glk_sums_hash(cache, s->look, glk_slot_addr(map, run.first),
		(run.last - run.first + 1) * bytes);
	end = glk_likeness_looked(s->look) / bytes;
	for (uint64_t i = first; i < end && !err; i++) {
		uint32_t slot = run.first + (uint32_t)(i - first);
		uint64_t addr, now, *was = &cache->sums[slot];
		const struct glk_alike_number *n = glk_likeness_number(s->look, i, &addr);

		now = (uint64_t)n->word[0] << 32 | n->word[1];
		now += !now;
		if (*was && *was != now)
			err = is_changed(map, slot);
		*s->ret += *was == now;
		*was = *was ? *was : now;
	}
	return err;
}

/* Who shares pages of a block need not have waited for what writes them. */
static int await_writes(struct glk_cache *cache, const struct glk_extent *e)
{
	struct glk_use use = glk_block_use(cache, e, 0);
	int err;

	glk_plan_park(cache, false);
	err = glk_clock_sync_use(&cache->streams, &use);
	glk_plan_unpark(cache, false);
	return err;
}

static int look_at(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	const struct glk_map *map = &arena->map;
	struct glk_stretch all = glk_part_all(map, e), run = {1, 0};
	const struct glk_part *part;
	struct sums *s = arg;
	bool awaited = false;
	int err = 0;

	if (!glk_part_is_elastic(s->cache, e))
		return 0;
	part = glk_part_at(s->cache, e);
	if (!part->final && !part->sealed)
		return 0;
	for (uint32_t slot = all.first; slot <= all.last + 1 && !err; slot++) {
		bool takes = slot <= all.last && glk_seal_is_whole(map, e, slot) &&
			(part->final || glk_is_sealed(map, slot)) &&
			!glk_seal_is_again(map, slot) &&
			(s->known || !s->cache->sums || !s->cache->sums[slot]);

		if (takes && run.first > run.last)
			run.first = slot;
		if (takes)
			run.last = slot;
		if (takes || run.first > run.last)
			continue;
		if (s->look && !awaited)
			err = await_writes(s->cache, e);
		awaited = true;
		if (!err)
			err = look_at_run(s, map, run);
		run = (struct glk_stretch){1, 0};
		glk_plan_step(arena->gpu);
	}
	return err;
}

static int each(struct sums *s)
{
	int err;

	glk_lock(&s->cache->lock);
	err = glk_away_everywhere(s->cache, look_at, s);
	glk_unlock(&s->cache->lock);
	return err;
}

/* The table, at the first time. */
static int make(struct glk_cache *cache)
{
	uint64_t *sums = glk_region_new(bytes_of(cache));

	if (!sums)
		return -ENOMEM;
	glk_lock(&cache->lock);
	if (!cache->sums) {
		cache->sums = sums;
		sums = NULL;
	}
	glk_unlock(&cache->lock);
	if (sums)
		glk_region_free(sums, bytes_of(cache));
	return 0;
}

int glk_cache_check_sealed(struct glk_cache *cache, bool known, uint64_t *ret)
{
	struct sums s = {.cache = cache, .known = known, .ret = ret};
	struct glake_error why = glk_thread_current->error;
	int err;

	/* pairs with: glk_cache_start */
	if (!glk_load_acquire(&cache->started) || !glk_load_relaxed(&cache->encrypts))
		return 0;
	err = each(&s);
	if (err || !s.pages)
		return err;
	err = make(cache);
	if (!err)
		err = glk_likeness_new(cache->drv, cache->device, s.pages,
			glk_slot_bytes(&cache->arena.map), 0, &s.look);
	if (err == -EOPNOTSUPP) {
		/* the driver runs no kernels: none of them is counted */
		glk_error_back(&why);
		return 0;
	}
	if (err)
		return err;
	err = each(&s);
	glk_likeness_free(s.look);
	return err;
}
