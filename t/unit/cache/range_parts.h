/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_RANGE_PARTS_H
#define GLK_UNIT_CACHE_RANGE_PARTS_H

/* What the tests of ranges share: blocks of which a word in each WORD_STEP bytes says where it lies, and
 * calls for parts of them. */
#include "move/part.h"
#include "plan_parts.h"
#include "tier/pack.h"

#include <time.h>

#define WORD_STEP ((size_t)32 << 10) /* of which all borders are a multiple */

static inline void write_words(const struct held *h, size_t offset, size_t bytes)
{
	for (size_t at = offset; at < offset + bytes; at += WORD_STEP) {
		if (at + 8 <= h->size)
			*(uint64_t *)(h->addr + at) = h->mark + at;
	}
}

static inline bool has_words(const struct held *h, size_t offset, size_t bytes)
{
	for (size_t at = offset; at < offset + bytes; at += WORD_STEP) {
		if (at + 8 <= h->size && *(uint64_t *)(h->addr + at) != h->mark + at)
			return false;
	}
	return true;
}

/* What a call answers. One that was refused has left nothing behind, which is looked at where nothing else is under way:
 * no thread compresses, nor, with RANGE_STORM, moves anything. */
static inline int answered(struct rig *rig, int err)
{
#ifndef RANGE_STORM
	if (err && !rig->cache.mover.store.pack && !rig_is_sound(rig))
		tap_bail("a call that answers an error leaves its books wrong");
#else
	(void)rig;
#endif
	return err;
}

static inline int spill_range(struct rig *rig, const struct held *h, size_t offset,
	size_t bytes, struct CUstream_st *stream)
{
	const struct glk_portion portion = {offset, bytes};

	return answered(
		rig, glk_cache_move(&rig->cache, h->addr, stream, false, &portion, NULL));
}

static inline int fetch_range(struct rig *rig, const struct held *h, size_t offset,
	size_t bytes, struct CUstream_st *stream)
{
	const struct glk_portion portion = {offset, bytes};

	return answered(
		rig, glk_cache_move(&rig->cache, h->addr, stream, true, &portion, NULL));
}

/* All is suspended, in place or not. Whether nothing of the GPU is held then, and the books agree. */
static inline bool leaves(struct rig *rig, bool in_place)
{
	struct glake_suspended did;
	int err = in_place ? glk_cache_suspend(&rig->cache, true, &did)
			   : glk_cache_suspend(&rig->cache, false, &did);
	bool good = !err && !rig_figures(rig).reserved && rig_is_sound(rig);

	if (!good)
		tap_note("suspended: %d, %llu held: %s", err,
			(unsigned long long)rig_figures(rig).reserved, rig_error().text);
	return good;
}

/* Bytes of a block that are away; UINT64_MAX: it is none. */
static inline uint64_t away_of(struct rig *rig, const struct held *h)
{
	struct glake_block block = {.sz = sizeof(block)};

	return glk_cache_query(&rig->cache, h->addr, &block) ? UINT64_MAX : block.away;
}

static inline struct glk_extent *extent_of(struct rig *rig, const struct held *h)
{
	const struct glk_range *range = glk_cache_range(&rig->cache, h->addr);

	return glk_extent_at(range->map, glk_lookup_first(range, h->addr));
}

/* Returns when nothing waits to be compressed, and nothing is in hand. Before the first content there is no
 * thread. Ten minutes at the most, by the scheduler's clock where there is one. */
static inline void range_settle(struct rig *rig)
{
	struct glk_pack *pack = rig->cache.mover.store.pack;
	bool done = !pack;

	for (int i = 0; i < 600000 && !done; i++) {
		glk_lock(&rig->cache.lock);
		done = pack->rests && !pack->first && !pack->spent;
		glk_unlock(&rig->cache.lock);
		nanosleep(&(struct timespec){.tv_nsec = done ? 0 : 1000000}, NULL);
	}
	if (!done)
		tap_bail("contents still wait to be compressed");
}

#endif
