/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_TIER_MOVE_RIG_H
#define GLK_UNIT_TIER_MOVE_RIG_H

/* A context with blocks that go away and come back, and the modelled time that it takes. */
#include "api/context.h"
#include "seed.h"
#include "soft/fault.h"
#include "soft/soft.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>
#include <stdlib.h>
#include <string.h>

#define MIB    ((size_t)1 << 20)
#define BLOCKS 2

static struct glake *ctx;
static struct glk_context *context;
static struct CUstream_st *stream;
static unsigned char *block[BLOCKS];
static size_t size;

/* Bytes between two words: nine pages, and such that all places in a page are met. */
#define STEP (9 * 4096 + 248)

/* The next word after one; the last is at the end. */
static inline size_t next_word(size_t at)
{
	return at + STEP + 8 <= size || at + 8 == size ? at + STEP : size - 8;
}

static inline void fill(unsigned char *at, uint64_t word)
{
	for (size_t i = 0; i < size;
		i = next_word(i), word += UINT64_C(0x9e3779b97f4a7c15))
		memcpy(at + i, &word, 8);
}

static inline bool is_filled(const unsigned char *at, uint64_t word)
{
	uint64_t wrong = 0, there;

	for (size_t i = 0; i < size;
		i = next_word(i), word += UINT64_C(0x9e3779b97f4a7c15)) {
		memcpy(&there, at + i, 8);
		wrong |= there ^ word;
	}
	return !wrong;
}

/* Settings besides; NULL: no more of them. */
static const char *more[3];

#define SETTINGS                                                                         \
	"soft.gpus=4", "soft.memory=128GiB", "soft.host_memory=128GiB",                  \
		"map.span=256GiB", "driver.fault=off", "pool.large_page=8MiB"

static inline void begin(
	const char *lend, const char *piece, const char *staging, size_t bytes)
{
	const char *const settings[] = {
		SETTINGS, "io.least=2MiB", lend, piece, staging, more[0], more[1], NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	void *ptr = NULL;

	size = bytes;
	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context) ||
		glake_stream_new(ctx, 0, &stream))
		tap_bail("no context");
	for (int i = 0; i < BLOCKS; i++) {
		if (glake_alloc(ctx, 0, size, stream, 0, &ptr))
			tap_bail("no block");
		block[i] = ptr;
		fill(block[i], (uint64_t)i);
	}
}

static inline int close_all(void)
{
	size_t leaked = 99;
	int err = 0;

	for (int i = 0; i < BLOCKS; i++)
		err |= glake_free(ctx, block[i], stream);
	err |= glake_stream_free(ctx, 0, stream);
	err |= sound_close(ctx, &leaked);
	return err || leaked;
}

static inline int spill(void)
{
	int err = 0;

	for (int i = 0; i < BLOCKS && !err; i++)
		err = glake_spill(ctx, block[i], stream);
	return err == -EALREADY ? 0 : err;
}

static inline int fetch(void)
{
	int err = 0, failed;

	for (int i = 0; i < BLOCKS; i++) {
		failed = glake_fetch(ctx, block[i], stream);
		err = failed && failed != -EALREADY ? failed : err;
	}
	return err;
}

static inline int suspend(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};

	return glake_suspend(ctx, 0, &did);
}

static inline int resume(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};

	return glake_resume(ctx, 0, &did);
}

/* A way back would begin in modelled time with what went there first: both ways begin behind all, over whatever
 * links. */
static inline void level(const struct glk_mover *mover)
{
	const struct glk_channel *way[] = {&mover->out_channel, &mover->back_channel};
	struct glk_drv *drv = context->drv;
	struct glk_drv_event *event;

	for (int i = 0; mover->streams && i < 4; i++) {
		const struct glk_channel *other = way[!(i & 1)];

		if (drv->ops->event_new(drv, 0, &event) ||
			drv->ops->event_record(drv, event, way[i & 1]->main) ||
			drv->ops->stream_wait(drv, other->main, event) ||
			(other->gate && drv->ops->stream_wait(drv, other->gate, event)) ||
			drv->ops->event_free(drv, event))
			tap_bail("no event");
	}
	drv->ops->device_sync(drv, 0);
}

/* Bytes a ns that go one way, in modelled time, to what one link carries. */
static inline double rate_of(int (*act)(void), bool out)
{
	const struct glk_mover *mover = &context->caches[0].mover;
	int64_t before = 0, after = 0;

	level(mover);
	if (mover->streams)
		glk_soft_link_time(context->drv, 0, mover->out_channel.main, &before);
	if (act())
		tap_bail("refused");
	context->drv->ops->device_sync(context->drv, 0);
	glk_soft_link_time(context->drv, 0,
		out ? mover->out_channel.main : mover->back_channel.main, &after);
	return (double)(BLOCKS * size) / (double)(after - before) / 55.5;
}

static inline bool is_whole(void)
{
	bool whole = true;

	context->drv->ops->device_sync(context->drv, 0);
	for (int i = 0; i < BLOCKS; i++)
		whole &= is_filled(block[i], (uint64_t)i);
	return whole;
}

#endif
