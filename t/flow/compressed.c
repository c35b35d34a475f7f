/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents that are compressed while they are away, through the public functions: figures, forks, ends. */
#include "context.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT 5
#define SIZE  (9 * MIB)

static struct glake *ctx;
static unsigned char *block[COUNT];

static struct glake_stats stats(void)
{
	struct glake_stats s = {.sz = sizeof(s)};

	if (glake_stats_get(ctx, 0, &s))
		tap_bail(flow_error().text);
	return s;
}

static void make(void)
{
	for (int i = 0; i < COUNT; i++) {
		block[i] = flow_alloc(ctx, SIZE, NULL);
		for (size_t at = 0; at < SIZE; at++)
			block[i][at] = (unsigned char)((at >> 10) * 7 + (size_t)i);
	}
}

static int torn(void)
{
	int wrong = 0;

	for (int i = 0; i < COUNT; i++)
		for (size_t at = 0; at < SIZE; at++)
			wrong += block[i][at] !=
				(unsigned char)((at >> 10) * 7 + (size_t)i);
	return wrong;
}

/* A minute at the most. */
static bool await(uint64_t bytes)
{
	for (int i = 0; i < 30000 && stats().packed < bytes; i++)
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	return stats().packed == bytes;
}

/* What held them goes when nothing is left to be compressed. */
static bool lets_go(void)
{
	for (int i = 0; i < 30000 && stats().store + stats().store_used; i++)
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	return !(stats().store + stats().store_used);
}

/* A child has nothing of it, and its end disturbs nobody. */
static int forks(void)
{
	pid_t child = fork();
	int status = -1;

	if (!child) {
		alarm(100);
		_exit(glake_fetch(ctx, block[0], NULL) != -ENODEV ||
			glake_close(ctx, NULL));
	}
	return child < 0 || waitpid(child, &status, 0) != child || status;
}

int main(void)
{
	static const char *const settings[] = {
		"tier.compress=lz4", "tier.compress_rest=10ms", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glake_suspended did = {.sz = sizeof(did)};
	int err;

	tap_plan_later();
	err = glake_open(&options, &ctx);
	if (err == -EOPNOTSUPP) {
		has_str(flow_error().text, "tier.compress",
			"the library says what it cannot");
		tap_expect_log(tap.logs); /* one built without lz4.h logs it too */
		tap_skip("contents are compressed", "the library has no lz4");
		return tap_done();
	}
	is_int(err, 0, "a context");
	make();
	is_int(glake_suspend(ctx, 0, &did), 0, "the GPU is suspended");
	ok(await(COUNT * SIZE), "all contents are compressed");
	ok(stats().packed_held < stats().packed / 20,
		"and take a small part of the memory");
	ok(lets_go(), "none is locked for them");
	is_int(forks(), 0, "a child has none of them");
	is_int(glake_resume(ctx, 0, &did), 0, "resumed");
	is_int(torn(), 0, "they are what they were");
	is_int((int64_t)stats().packed, 0, "and no longer compressed");
	for (int i = 0; i < COUNT; i++)
		err |= glake_spill(ctx, block[i], NULL);
	is_int(err, 0, "each goes away");
	is_int(forks(), 0, "a child while they are compressed");
	is_int(glake_free(ctx, block[0], NULL), 0, "one is freed");
	is_int(glake_fetch(ctx, block[1], NULL), 0, "one is fetched");
	ok(await((COUNT - 2) * SIZE), "the others are compressed");
	for (int i = 0; i < 2; i++)
		err |= glake_fetch(ctx, block[2 + i], NULL);
	is_int(err, 0, "two more are fetched");
	flow_close(ctx, COUNT - 1);
	return tap_done();
}
