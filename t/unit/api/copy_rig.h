/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_API_COPY_RIG_H
#define GLK_UNIT_API_COPY_RIG_H

/* A context whose GPUs lend their links, a block, and locked memory of the host. */
#include "api/context.h"
#include "base/slab.h"
#include "seed.h"
#include "soft/fault.h"
#include "soft/soft.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>
#include <string.h>
#include <sys/mman.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#ifndef ROOM
#define ROOM (4 * MIB) /* of each side */
#endif
#define EDGE 64 /* bytes around a target that have to stay */

static struct glake *ctx;
static struct glk_context *context;
static unsigned char *host, *other; /* locked memory of the host */
static unsigned char *gpu;	    /* a block, which the CPU may look at too */
static struct CUstream_st *stream;
static uint64_t rolled;

static inline uint64_t dice(void)
{
	return seed_next(&rolled);
}

static inline void begin(const char *const *settings)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	void *block = NULL;

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context) ||
		glake_stream_new(ctx, 0, &stream) ||
		glake_alloc(ctx, 0, ROOM, stream, 0, &block) ||
		context->drv->ops->host_lock(context->drv, 0, host, ROOM) ||
		context->drv->ops->host_lock(context->drv, 0, other, ROOM))
		tap_bail("no context");
	gpu = block;
}

/* Whether no table is left but those that are made once: of what any context has, and of copies. */
static inline bool has_no_more(void)
{
	static uint64_t before;
	static int times;
	uint64_t now = glk_region_bytes();

	times += now != before;
	before = now;
	return times <= 2;
}

static inline bool ended(void)
{
	size_t leaked = 99;

	context->drv->ops->host_unlock(context->drv, 0, host);
	context->drv->ops->host_unlock(context->drv, 0, other);
	glake_free(ctx, gpu, stream);
	glake_stream_free(ctx, 0, stream);
	if (!context_is_sound(context))
		return false;
	return !glake_close(ctx, &leaked) && !leaked;
}

static inline void end(void)
{
	ok(ended() && has_no_more(), "nothing is left of it");
}

#define MANY                                                                             \
	"soft.gpus=4", "soft.memory=64MiB", "map.span=4GiB", "io.lend=all",              \
		"io.least=0", "io.piece=64KiB", "io.staging=2MiB", "driver.fault=off",   \
		"policy.target=1.04"

static inline void fill_each(unsigned char *at, size_t bytes, size_t step)
{
	for (size_t i = 0; i + 8 <= bytes; i += step) {
		uint64_t word = dice();

		memcpy(at + i, &word, 8);
	}
}

/* 4 KiB by chance, which are repeated with another word in each 512 bytes: no piece is like its neighbour. */
static inline void fill(unsigned char *at, size_t bytes)
{
	const size_t page = 4 * KIB;

	fill_each(at, bytes < page ? bytes : page, 8);
	for (size_t i = page; i < bytes; i += page) {
		size_t left = bytes - i < page ? bytes - i : page;

		memcpy(at + i, at, left);
		fill_each(at + i, left, 512);
	}
}

static inline int sync_stream(void)
{
	return context->drv->ops->stream_sync(context->drv, 0, stream);
}

static inline int error_class(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error.error_class;
}

static inline struct glake_copy_state state_of(struct glake_copy_job *job)
{
	struct glake_copy_state now = {.sz = sizeof(now)};

	if (glake_copy_get(job, &now))
		tap_bail("no state");
	return now;
}

/* One copy of random size to and from odd addresses, with guards. Whether all bytes are right. */
static inline bool round_trip(size_t most)
{
	size_t bytes = 1 + dice() % most, a = EDGE + dice() % 200,
	       b = EDGE + dice() % 200;
	unsigned char before[2 * EDGE], after[2 * EDGE];
	size_t c = EDGE + dice() % 200;

	fill(host, ROOM);
	memcpy(before, gpu + b - EDGE, EDGE);
	memcpy(before + EDGE, gpu + b + bytes, EDGE);
	if (glake_copy(ctx, gpu + b, host + a, bytes, stream, 0, NULL) ||
		glake_copy(ctx, other + c, gpu + b, bytes, stream, 0, NULL) ||
		sync_stream())
		return false;
	memcpy(after, gpu + b - EDGE, EDGE);
	memcpy(after + EDGE, gpu + b + bytes, EDGE);
	return !memcmp(other + c, host + a, bytes) && !memcmp(gpu + b, host + a, bytes) &&
		!memcmp(before, after, sizeof(before));
}

static inline void copy_rig_start(void)
{
	rolled = seed_thread(seed_start(), 0);
	host = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	if (host == MAP_FAILED)
		tap_bail("no memory");
	other = host + ROOM;
}

#endif
