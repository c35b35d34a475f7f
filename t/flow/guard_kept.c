/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that guard keeps, when the GPU is far behind, when the mode changes, and beside a capture; and two who begin it at once. */
#include "guarded.h"

#include <dlfcn.h>
#include <sys/mman.h>

/* The GPU has not looked at one of many thousand frees: none goes back unlooked. */
static void behind(void)
{
	struct glake *ctx = open_with(
		(const char *const[]){"guard.mode=canary", "soft.streams=stepped", NULL});
	struct CUstream_st *one;
	struct glake_checked c;

	if (glake_stream_new(ctx, 0, &one))
		tap_bail("no stream");
	for (size_t i = 0; i < 6000; i++)
		if (glake_free(ctx, flow_alloc(ctx, 20000 + i, one), one))
			tap_bail("a free is refused");
	c = checked(ctx, 0);
	ok(c.freed == 6000 && !c.unchecked, "of 6000 frees %d are looked at, %d not",
		(int)c.freed, (int)c.unchecked);
	is_int(glake_stream_free(ctx, 0, one), 0, "the stream ends");
	flow_close(ctx, 0);
}

/* What was kept without being filled serves no more, and is passed by once. */
static void changed(void)
{
	struct glake *ctx = open_with((const char *const[]){"guard.mode=canary", NULL});
	void *p[200];
	unsigned char *q;

	for (int i = 0; i < 200; i++)
		p[i] = given(ctx, 1000);
	for (int i = 0; i < 200; i++)
		glake_free(ctx, p[i], NULL);
	is_int(glake_conf_set(ctx, "guard.mode", "poison"), 0, "canary to poison");
	for (int i = 0; i < 10; i++) {
		q = given(ctx, 1000);
		ok(q[1] == 0xff, "a block comes filled");
		glake_free(ctx, q, NULL);
	}
	is_int((int64_t)checked(ctx, 0).unchecked, 0, "all are looked at");
	flow_close(ctx, 0);
}

/* On the legacy stream no kernel is queued while a graph is captured: it would end captures of blocking streams. */
static void beside_capture(void)
{
	struct glake *ctx = open_with((const char *const[]){"guard.mode=canary", NULL});
	struct CUstream_st *one;
	struct glake_checked c;
	uint32_t graph;

	if (glake_stream_new(ctx, 0, &one))
		tap_bail("no stream");
	glake_free(ctx, given(ctx, 500), NULL);
	glake_free(ctx, flow_alloc(ctx, 600, one), one);
	is_int(glake_soft_capture_begin(ctx, 0, one), 0, "a stream captures");
	glake_free(ctx, given(ctx, 7000), NULL);
	is_int(glake_soft_capture_end(ctx, 0, one, &graph), 0, "the capture ends");
	is_int(glake_soft_graph_free(ctx, graph), 0, "  and its graph");
	c = checked(ctx, 0);
	is_int((int64_t)c.unguarded, 1, "a block of the legacy stream has no canary");
	is_int(glake_stream_free(ctx, 0, one), 0, "the stream ends");
	flow_close(ctx, 0);
}

/* ---- A mode of the context and one of a tag at once ---- */

static struct glake *
	racing; /* the next who maps memory lets another thread go first; NULL: nobody does */
static uint32_t racing_tag;
static int64_t mapped; /* bytes */

static void *guard_tag(void *ctx)
{
	is_int(glake_tag_guard_set(ctx, 0, racing_tag, "canary", -1), 0,
		"a tag is guarded meanwhile");
	return NULL;
}

/* Both in the place of those of the C library. */
void *mmap(void *addr, size_t size, int rights, int flags, int fd, off_t offset)
{
	static void *(*real)(
		void *addr, size_t size, int rights, int flags, int fd, off_t offset);
	struct glake *ctx = racing;
	pthread_t thread;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "mmap");
	racing = NULL;
	if (ctx &&
		(pthread_create(&thread, NULL, guard_tag, ctx) ||
			pthread_join(thread, NULL)))
		tap_bail("no thread");
	mapped += (int64_t)size;
	return real(addr, size, rights, flags, fd, offset);
}

int munmap(void *addr, size_t size)
{
	static int (*real)(void *addr, size_t size);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "munmap");
	mapped -= (int64_t)size;
	return real(addr, size);
}

/* Bytes that are mapped still when all has ended. */
static int64_t left_by(bool race)
{
	struct glake *ctx = open_with(NULL);
	int64_t before = mapped;
	char *p;

	if (glake_tag_open(ctx, "raced", &racing_tag))
		tap_bail("no tag");
	racing = race ? ctx : NULL;
	is_int(glake_conf_set(ctx, "guard.mode", "canary"), 0, "all is guarded");
	if (!race)
		guard_tag(ctx);
	p = given(ctx, 1000);
	spoil(p + 1000, 1);
	checked(ctx, -EIO);
	spoil(p + 1000, 1);
	glake_free(ctx, p, NULL);
	is_int(glake_tag_close(ctx, racing_tag), 0, "the tag ends");
	flow_close(ctx, 0);
	return mapped - before;
}

static void at_once(void)
{
	int64_t left = left_by(false);

	is_int(left_by(true), left, "neither is left behind by the other");
}

int main(void)
{
	tap_plan_later();
	glake_log_hook(hook, NULL, GLAKE_LOG_ERROR);
	behind();
	changed();
	beside_capture();
	at_once();
	return tap_done();
}
