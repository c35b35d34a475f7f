/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* guard.mode is changed while threads ask for blocks and free them. */
#include "context.h"

#include <pthread.h>
#include <string.h>

#define THREADS 2
#define MODES	5

static int errors;

static void hook(int level, const char *line, void *arg)
{
	(void)line, (void)arg;
	if (level == GLAKE_LOG_ERROR)
		__atomic_add_fetch(&errors, 1, __ATOMIC_RELAXED);
}

/* A thread that asks for blocks and frees them, on a stream of its own, and writes to all of each. */
static void *works(void *arg)
{
	struct glake *ctx = arg;
	struct CUstream_st *stream;
	void *held[16] = {NULL};

	if (glake_stream_new(ctx, 0, &stream))
		tap_bail("no stream");
	for (unsigned i = 0; i < 1500; i++) {
		void **p = &held[i * 7 % 16];
		size_t size = 1 + i * 1237 % 20000;

		if (*p && glake_free(ctx, *p, stream))
			tap_bail("a free is refused");
		*p = flow_alloc(ctx, size, stream);
		if (!*p)
			tap_bail("no block");
		memset(*p, (int)i, size);
	}
	for (unsigned i = 0; i < 16; i++)
		glake_free(ctx, held[i], stream);
	glake_stream_free(ctx, 0, stream);
	return NULL;
}

/* The mode changes while threads ask and free: nothing is said of what is right, and all comes back. */
static void under_load(void)
{
	static const char *const modes[] = {
		"canary", "off", "poison", "sample", "poison"};
	struct glake *ctx = flow_open((const char *const[]){"guard.rate=100", NULL});
	pthread_t threads[THREADS];
	struct glake_checked c = {.sz = sizeof(c)};

	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, works, ctx))
			tap_bail("no thread");
	for (unsigned i = 0; i < 40; i++) {
		if (glake_conf_set(ctx, "guard.mode", modes[i % MODES]))
			tap_bail("the mode does not change");
		if (i % 4 == 0 && glake_check(ctx, NULL))
			tap_bail("something is found");
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	is_int(glake_conf_set(ctx, "guard.mode", "off"), 0, "the mode was changed often");
	is_int(glake_check(ctx, &c), 0, "a check finds nothing");
	ok(c.freed && !c.findings, "of %d frees nothing is said", (int)c.freed);
	is_int(errors, 0, "  nor in the log");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "and all goes back");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "  to the last page");
	flow_close(ctx, 0);
}

/* Asks and frees, and writes nothing. */
static void *asks(void *arg)
{
	struct glake *ctx = arg;
	struct CUstream_st *stream;

	if (glake_stream_new(ctx, 0, &stream))
		tap_bail("no stream");
	for (unsigned i = 0; i < 300; i++)
		if (glake_free(
			    ctx, flow_alloc(ctx, 1 + i * 1237 % 20000, stream), stream))
			tap_bail("a free is refused");
	glake_stream_free(ctx, 0, stream);
	return NULL;
}

/* Blocks that are freed while a look at all waits are not looked at before they are filled. */
static void beside_looks(void)
{
	struct glake *ctx = flow_open(
		(const char *const[]){"guard.mode=poison", "soft.streams=stepped", NULL});
	struct glake_checked c = {.sz = sizeof(c)};
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, asks, ctx))
			tap_bail("no thread");
	for (unsigned i = 0; i < 100; i++)
		if (glake_check(ctx, NULL))
			tap_bail("something is found");
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	is_int(glake_check(ctx, &c), 0, "checks beside others find nothing");
	ok(c.freed && !c.findings, "of %d frees nothing is said", (int)c.freed);
	is_int(errors, 0, "  nor in the log");
	flow_close(ctx, 0);
}

int main(void)
{
	tap_plan_later();
	glake_log_hook(hook, NULL, GLAKE_LOG_ERROR);
	under_load();
	for (unsigned i = 0; i < 4; i++)
		beside_looks();
	return tap_done();
}
