/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whose memory is what was freed to a pool of graphs: a graph's, or that of work which runs. */
#include "unit/cache/stepped.h"

#define SIZE (9 * MIB)

static bool any(struct CUstream_st *stream, void *arg)
{
	(void)stream;
	(void)arg;
	return true;
}

static void start(struct rig *rig, struct CUstream_st **a, struct CUstream_st **b)
{
	rig_open(rig, STEPPED);
	*a = rig_stream(rig);
	*b = rig_stream(rig);
}

static void finish(struct rig *rig)
{
	glk_event_poll(&rig->cache.streams);
	glk_soft_run_all(rig->drv);
	glk_event_poll(&rig->cache.streams);
}

/* What a graph frees is its stream's at once, and another stream's when the capture is over. */
static void of_a_graph(void)
{
	struct CUstream_st *a, *b;
	uint64_t first, second;
	uint32_t graphs[2];
	struct rig rig;

	start(&rig, &a, &b);
	rig_begin(&rig, 1, a);
	rig_capture(&rig, a);
	first = give(&rig, SIZE, a);
	rig_free(&rig, first, a);
	ok(give(&rig, SIZE, a) == first, "in a capture a stream has its own again");
	rig_free(&rig, first, a);
	graphs[0] = rig_capture_end(&rig, a);
	rig_end_pool(&rig, 1);
	rig_begin(&rig, 1, b);
	rig_capture(&rig, b);
	second = give(&rig, SIZE, b);
	ok(second == first, "the next graph has it on another stream");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 0, "without a wait");
	graphs[1] = rig_capture_end(&rig, b);
	rig_end_pool(&rig, 1);
	rig_free(&rig, second, b);
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 2; i++) {
		rig_drop(&rig, graphs[i]);
		rig_release(&rig, 1);
	}
	rig_close(&rig, 0);
}

/* An output is read by work that is queued, and freed behind it. */
static void beside_a_graph(void)
{
	struct CUstream_st *a, *b;
	uint64_t output, early, late;
	uint32_t graphs[2];
	struct rig rig;

	start(&rig, &a, &b);
	rig_begin(&rig, 1, a);
	rig_capture(&rig, a);
	output = give(&rig, SIZE, a);
	graphs[0] = rig_capture_end(&rig, a);
	rig_end_pool(&rig, 1);
	rig_work(&rig, output, SIZE, a);
	rig_free(&rig, output, a);
	rig_begin(&rig, 1, a);
	rig_capture(&rig, a);
	early = give(&rig, SIZE, a);
	ok(early != output, "a graph does not have what work may still read");
	glk_soft_run_all(rig.drv);
	late = give(&rig, SIZE, a);
	ok(late == output, "when that has finished it has");
	graphs[1] = rig_capture_end(&rig, a);
	rig_end_pool(&rig, 1);
	is_int(rig_launch(&rig, graphs[1], b), 0, "the graph runs anywhere then");
	glk_soft_run_all(rig.drv);
	rig_free(&rig, early, a);
	rig_free(&rig, late, a);
	finish(&rig);
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 2; i++) {
		rig_drop(&rig, graphs[i]);
		rig_release(&rig, 1);
	}
	rig_close(&rig, 0);
}

/* A pool by a filter serves work that is queued, on a stream that captures a moment later. */
static void before_a_graph(void)
{
	struct CUstream_st *a, *b;
	uint64_t queued, captured;
	uint32_t graph;
	struct rig rig;

	start(&rig, &a, &b);
	rig_begin_for(&rig, 1, any, NULL);
	queued = give(&rig, SIZE, a);
	rig_free(&rig, queued, a);
	ok(give(&rig, SIZE, a) == queued, "in its own order a stream has it again");
	rig_free(&rig, queued, a);
	rig_capture(&rig, a);
	captured = give(&rig, SIZE, a);
	ok(captured != queued, "its graph, which runs anywhere, has not");
	graph = rig_capture_end(&rig, a);
	is_int(rig_launch(&rig, graph, b), 0, "beside that work");
	glk_soft_run_all(rig.drv);
	rig_free(&rig, captured, a);
	rig_end_pool(&rig, 1);
	finish(&rig);
	is_sound(&rig, "the books agree");
	rig_drop(&rig, graph);
	rig_release(&rig, 1);
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	of_a_graph();
	beside_a_graph();
	before_a_graph();
	return tap_done();
}
