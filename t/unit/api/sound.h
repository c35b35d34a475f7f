/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_API_SOUND_H
#define GLK_UNIT_API_SOUND_H

/* The books of a whole context (unit/cache/walk.h), where nothing is under way any more. */
#include "api/context.h"
#include "unit/cache/walk.h"
#include "unit/regions.h"

/* The threads of its GPUs end for it. */
static inline bool context_is_sound(struct glk_context *context)
{
	bool sound = true;

	for (int i = 0; i < context->devices; i++) {
		struct glk_cache *cache = &context->caches[i];

		sound &= books_hostpool(&cache->hostpool);
		if (!glk_load_relaxed(&cache->started))
			continue;
		glk_cache_still(cache);
		/* of several GPUs each has a part of what is held of the host and of each other */
		sound &= context->devices == 1 ? walk_is_sound(cache)
					       : walk_tables_are_sound(cache);
		sound &= books_rest(cache);
	}
	return sound;
}

/* Bytes of the library's tables before there is a context. */
static uint64_t sound_tables;

static __attribute__((constructor)) void sound_begin(void)
{
	regions_open();
	sound_tables = regions.bytes;
}

/* The end of a context that nobody is in the middle of anything with. */
static inline int sound_close(struct glake *ctx, size_t *ret_leaked)
{
	struct glk_context *context;
	unsigned others = 0;
	int err;

	if (glk_context_get(ctx, &context) || !context_is_sound(context))
		tap_bail("the books do not agree at the end");
	err = glake_close(ctx, ret_leaked);
	for (unsigned i = 0; i < sizeof(glk_contexts) / sizeof(*glk_contexts); i++)
		others += glk_load_relaxed(&glk_contexts[i].open) != 0;
	if (!others && glk_region_bytes() != sound_tables) {
		tap_note("tables: %" PRIu64 " bytes, %" PRIu64 " before",
			glk_region_bytes(), sound_tables);
		tap_bail("a table of the library is left");
	}
	return err;
}

#endif
