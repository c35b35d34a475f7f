/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_VACATE_RIG_H
#define GLK_UNIT_CACHE_VACATE_RIG_H

/* GPU 0, whose contents lie with GPU 1, on the software device. */
#include "api/context.h"
#include "cache/away.h"
#include "tap.h"

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)

static struct glake *ctx;
static struct glk_cache *cache;

/* With the size of its memory and addresses, and further settings; those that are NULL end them. */
static void open_beside(
	const char *memory, const char *span, const char *one, const char *two)
{
	const char *const settings[] = {memory, span, "soft.gpus=2",
		"soft.host_memory=1GiB", "driver.fault=off", "tier.peer=1",
		"tier.away=peer", one, two, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glk_context *context;

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context))
		tap_bail("no context");
	cache = &context->caches[0];
}

#endif
