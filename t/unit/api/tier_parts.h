/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_API_TIER_PARTS_H
#define GLK_UNIT_API_TIER_PARTS_H

/* What the tests of contents on their way share: a context on a device that goes step by step, and blocks
 * that say whose they are. */
#include "api/context.h"
#include "soft/fault.h"
#include "soft/soft.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#ifndef SIZE
#define SIZE (8 * MIB) /* t/unit/api/prefetch.c has budgets for some of these */
#endif

static struct glake *ctx;
static struct glk_context *context;
static struct CUstream_st *a;

/* `more` ends with NULL; NULL for none. */
static inline void open_soft(const char *streams, const char *const *more)
{
	const char *settings[16] = {streams, "driver.fault=off", "map.span=8GiB",
		"soft.memory=1GiB", "soft.host_memory=256MiB",
		/* pages as many as blocks need */
		"policy.target=1.04"};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	for (int i = 6; more && *more; i++)
		settings[i] = *more++;
	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context) ||
		glake_stream_new(ctx, 0, &a))
		tap_bail("no context");
}

static inline void close_soft(void)
{
	glk_soft_run_all(context->drv);
	glake_stream_free(ctx, 0, a);
	ok(context_is_sound(context), "the books agree");
	is_int(glake_close(ctx, NULL), 0, "closed");
}

static inline void run(void)
{
	glk_soft_run_all(context->drv);
}

static inline void work(char *p)
{
	if (glk_soft_work(context->drv, 0, a, (uint64_t)(uintptr_t)p, SIZE, true))
		tap_bail("no work");
}

static inline void mark(char *p, int seed)
{
	for (size_t i = 0; i < SIZE; i += 4096)
		*(uint64_t *)(void *)(p + i) = (uint64_t)seed * 0x9e3779b97f4a7c15u + i;
}

static inline bool has_mark(const char *p, int seed)
{
	bool same = true;

	for (size_t i = 0; i < SIZE; i += 4096)
		same &= *(const uint64_t *)(const void *)(p + i) ==
			(uint64_t)seed * 0x9e3779b97f4a7c15u + i;
	return same;
}

static inline char *give(int seed)
{
	void *p = NULL;

	if (glake_alloc(ctx, 0, SIZE, a, 0, &p))
		tap_bail("no block");
	run();
	mark(p, seed);
	return p;
}

/* One that is away. */
static inline char *give_away(int seed)
{
	char *p = give(seed);

	if (glake_spill(ctx, p, a))
		tap_bail("it stays");
	run();
	return p;
}

static inline struct glake_ticket_info ask(struct glake_ticket *ticket)
{
	struct glake_ticket_info info = {.sz = sizeof(info)};

	if (glake_ticket_get(ticket, &info))
		tap_bail("the ticket says nothing");
	return info;
}

static inline int state_of(struct glake_ticket *ticket)
{
	return ask(ticket).state;
}

static inline int error_class(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return (int)error.error_class;
}

static inline struct glake_stats stats(void)
{
	struct glake_stats s = {.sz = sizeof(s)};

	if (glake_stats_get(ctx, 0, &s))
		tap_bail("no figures");
	return s;
}

static inline uint64_t copies(void)
{
	struct glake_driver_stats s = {.sz = sizeof(s)};

	glake_driver_stats_get(ctx, &s);
	return s.calls[GLAKE_CALL_COPY];
}

static inline bool is_away(char *p)
{
	struct glake_block block = {.sz = sizeof(block)};

	return !glake_query(ctx, p, &block) && block.away == SIZE;
}

static inline int64_t in_seconds(int64_t seconds)
{
	return glk_clock_ns() + seconds * 1000000000;
}

#endif
