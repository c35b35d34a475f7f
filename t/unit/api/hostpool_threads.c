/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locked memory of the host for the program, by several threads near two GPUs, with streams and trims. */
#include "seed.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <glake/glake.h>
#include <pthread.h>
#include <string.h>

static struct glake *ctx;

static void open_soft(void)
{
	static const char *const settings[] = {"soft.gpus=2", "soft.streams=stepped",
		"map.span=8GiB", "host.piece=8MiB", "host.keep=4MiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	if (glake_open(&options, &ctx))
		tap_bail("no context");
}

static struct glake_stats stats_of(int device)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	if (glake_stats_get(ctx, device, &stats))
		tap_bail("no figures");
	return stats;
}

#define THREADS 4
#define MOVES	800
#define HELD	24

static uint64_t start;

static void *churn(void *arg)
{
	struct CUstream_st *stream = NULL;
	uint64_t seed = seed_thread(start, (unsigned)(uintptr_t)arg);
	uintptr_t wrong = 0;
	struct {
		unsigned char *ptr, byte;
		size_t size;
	} held[HELD] = {0};

	for (unsigned i = 0; i < MOVES; i++) {
		unsigned at = (unsigned)seed_below(&seed, HELD);
		size_t size = 1 + seed_below(&seed, 64 << 10);
		void *ptr = NULL;

		if (held[at].ptr) {
			wrong += held[at].ptr[0] != held[at].byte ||
				held[at].ptr[held[at].size - 1] != held[at].byte;
			if (i % 3 == 0)
				wrong += glake_host_use(
						 ctx, held[at].ptr, i % 2, stream) != 0;
			wrong += glake_host_free(ctx, held[at].ptr) != 0;
			held[at].ptr = NULL;
			continue;
		}
		if (glake_host_alloc(ctx, (int)((uintptr_t)arg % 2), size, 0, &ptr))
			return (void *)(uintptr_t)9999;
		memset(ptr, (int)i, size);
		held[at].ptr = ptr;
		held[at].byte = (unsigned char)i;
		held[at].size = size;
		if (i % 200 == 0)
			glake_trim(ctx, 0, 0, NULL);
	}
	for (unsigned at = 0; at < HELD; at++)
		wrong += glake_host_free(ctx, held[at].ptr) != 0;
	return (void *)wrong;
}

static void threads(void)
{
	struct glk_context *context;
	pthread_t thread[THREADS];
	uintptr_t wrong = 0;
	void *ret;

	open_soft();
	start = seed_start();
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, churn, (void *)i);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &ret);
		wrong += (uintptr_t)ret;
	}
	is_int((int64_t)wrong, 0, "threads on two GPUs keep what is theirs");
	ok(!glk_context_get(ctx, &context) && context_is_sound(context),
		"the books agree");
	glake_soft_stream_sync(ctx, 0, NULL);
	glake_soft_stream_sync(ctx, 1, NULL);
	for (int i = 0; i < 2; i++) {
		is_int((int64_t)stats_of(i).host_pool_live, 0, "all is freed");
		glake_trim(ctx, i, 0, NULL);
		is_int((int64_t)stats_of(i).host_pool_held, 0, "  and given back");
	}
	is_int(glake_close(ctx, NULL), 0, "closed");
}

int main(void)
{
	tap_plan_later();
	threads();
	return tap_done();
}
