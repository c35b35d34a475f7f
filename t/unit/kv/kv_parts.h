/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_KV_PARTS_H
#define GLK_UNIT_KV_PARTS_H

/* What the tests of KV caches share: a context over the software device, and looks at a cache. */
#include "seed.h"
#include "tap.h"
#include "unit/api/sound.h"
#include "unit/kv/kv_books.h"

#include <glake/glake.h>

#include <errno.h>
#include <string.h>

#define MIB  ((size_t)1 << 20)
#define PAGE (2 * MIB)

static struct glake *ctx;
static struct CUstream_st *stream;

static inline struct glake_error record(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error;
}

static inline void begin_with(const char *memory, const char *more)
{
	const char *settings[] = {memory, "map.span=64GiB", "pool.large_page=8MiB",
		"soft.host_memory=2GiB", "tier.host=1GiB", more, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	if (glake_open(&options, &ctx) || glake_stream_new(ctx, 0, &stream))
		tap_bail(record().text);
}

static inline void begin(const char *memory)
{
	begin_with(memory, NULL);
}

static inline struct glake_stats figures(void)
{
	struct glake_stats s = {.sz = sizeof(s)};

	if (glake_stats_get(ctx, 0, &s))
		tap_bail(record().text);
	return s;
}

static inline void settle(void)
{
	if (glake_soft_stream_sync(ctx, 0, stream))
		tap_bail(record().text);
}

static inline void finish(void)
{
	size_t leaked = 99;

	glake_stream_free(ctx, 0, stream);
	is_int(sound_close(ctx, &leaked), 0, "closed");
	is_int((int64_t)leaked, 0, "no block was live");
}

static inline struct glake_kv *make(const struct glake_kv_options *o)
{
	struct glake_kv *kv = NULL;

	if (glake_kv_open(ctx, 0, o, stream, &kv))
		tap_bail(record().text);
	return kv;
}

/* The figures of a cache, whose books are looked at by the way. */
static inline struct glake_kv_figures told(struct glake_kv *kv)
{
	struct glake_kv_figures f = {.sz = sizeof(f)};
	struct glk_context *context;

	/* one whose context has ended has figures alone */
	if (!glk_context_get(ctx, &context) && !kv_is_sound(kv))
		tap_bail("the books of a KV cache are wrong");
	if (glake_kv_figures_get(kv, &f))
		tap_bail(record().text);
	return f;
}

static inline unsigned char *at(
	const struct glake_kv *kv, uint32_t lane, uint32_t slot, uint32_t token)
{
	struct glake_kv_place place = {.sz = sizeof(place)};

	if (glake_kv_place_get(kv, lane, &place))
		tap_bail(record().text);
	return (unsigned char *)place.base + slot * place.slot + token * place.token;
}

#endif
