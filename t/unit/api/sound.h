/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_API_SOUND_H
#define GLK_UNIT_API_SOUND_H

/* The books of a whole context (unit/cache/walk.h), where nothing is under way any more. */
#include "api/context.h"
#include "unit/cache/walk.h"

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

/* The end of a context that nobody is in the middle of anything with. */
static inline int sound_close(struct glake *ctx, size_t *ret_leaked)
{
	struct glk_context *context;

	if (glk_context_get(ctx, &context) || !context_is_sound(context))
		tap_bail("the books do not agree at the end");
	return glake_close(ctx, ret_leaked);
}

#endif
