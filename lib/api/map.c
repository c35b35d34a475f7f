/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of the walk of addresses: see glake/map.h. */
#include "api/context.h"
#include "base/error.h"

#include <errno.h>

int glake_map(struct glake *ctx, int device, uint64_t from, glake_run_fn fn, void *arg)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err;

	if (!fn)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "no function to take the runs");
	err = glk_context_device(ctx, device, &context, &cache);
	return err ? err : glk_cache_walk(cache, from, fn, arg);
}

const char *glake_run_state_name(int state)
{
	static const char *const names[GLAKE_RUN_STATES] = {"live", "away", "quick",
		"idle", "limbo", "rest", "alias", "leaving", "hole"};

	return state >= 0 && state < GLAKE_RUN_STATES ? names[state] : NULL;
}
