/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that guard keeps, when the GPU is far behind, when the mode changes, and beside a capture. */
#include "guarded.h"

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

int main(void)
{
	tap_plan_later();
	glake_log_hook(hook, NULL, GLAKE_LOG_ERROR);
	behind();
	changed();
	beside_capture();
	return tap_done();
}
