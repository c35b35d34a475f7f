/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of the figures: see glake/stats.h. */
#include "api/context.h"
#include "base/error.h"
#include "base/sized.h"

#include <glake/stats.h>

int glake_stats_get(struct glake *ctx, int device, struct glake_stats *ret_stats)
{
	struct glk_context *context;
	struct glk_cache *cache;
	struct glake_stats stats;
	int err;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	glk_cache_figures(cache, &stats);
	return glk_sized_out(ret_stats, &stats, sizeof(stats));
}

int glake_stats_reset(struct glake *ctx, int device)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	glk_cache_reset_peaks(cache);
	return 0;
}

int glake_driver_stats_get(struct glake *ctx, struct glake_driver_stats *ret_stats)
{
	struct glk_context *context;
	struct glake_driver_stats stats = {0};
	int err;

	err = glk_context_get(ctx, &context);
	if (err)
		return err;
	err = context->drv->ops->figures(context->drv, &stats);
	if (err)
		return err;
	return glk_sized_out(ret_stats, &stats, sizeof(stats));
}
