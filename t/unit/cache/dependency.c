/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the program tells of its streams: their ends, and what they wait for. */
#include "stepped.h"

#include <errno.h>

#define SIZE (8 * MIB)

/* The program makes a dependency and tells of it. */
static void tell(struct rig *rig, struct CUstream_st *stream, struct CUstream_st *behind,
	struct CUevent_st *event)
{
	if (glk_cache_event_recorded(&rig->cache, event, behind))
		tap_bail(rig_error().text);
	rig_follow(rig, stream, behind, event);
	if (glk_cache_stream_waited(&rig->cache, stream, event))
		tap_bail(rig_error().text);
}

/* With the last wait of the library's own spared. */
static void spares_waits(void)
{
	struct CUstream_st *a, *b, *c;
	struct CUevent_st *ab, *bc;
	uint64_t x, y, waits;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	ab = rig_event(&rig);
	bc = rig_event(&rig);
	x = give(&rig, SIZE, a);
	y = give(&rig, 3 * MIB, a);
	rig_free(&rig, x, a);
	rig_free(&rig, y, a);
	rig_flush(&rig);
	tell(&rig, b, a, ab);
	waits = waits_of(&rig);
	is_int((int64_t)give(&rig, SIZE, b), (int64_t)x,
		"B is behind A: it gets what A freed");
	is_int((int64_t)(waits_of(&rig) - waits), 0, "without a wait of ours");
	is_int((int64_t)rig_figures(&rig).rungs[GLAKE_RUNG_CROSS_STREAM], 0, "or a rung");
	tell(&rig, c, b, bc);
	waits = waits_of(&rig);
	is_int((int64_t)give(&rig, 3 * MIB, c), (int64_t)y, "C by way of B");
	is_int((int64_t)(waits_of(&rig) - waits), 0, "too");
	rig_free(&rig, y, c);
	rig_flush(&rig);
	is_int((int64_t)give(&rig, 3 * MIB, a), (int64_t)y, "A is behind nobody");
	is_int((int64_t)(waits_of(&rig) - waits), 1, "and has to wait");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* What lay in a bin at the record is known to be behind it only if it left the bin before. */
static void knows_bins(void)
{
	struct CUstream_st *a, *b;
	struct CUevent_st *ab;
	uint64_t x, waits;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	ab = rig_event(&rig);
	x = give(&rig, SIZE, a);
	tell(&rig, b, a, ab);
	/* freed after the record, by a hit */
	rig_work(&rig, x, SIZE, a);
	rig_free(&rig, x, a);
	rig_flush(&rig);
	waits = waits_of(&rig);
	is_int((int64_t)give(&rig, SIZE, b), (int64_t)x, "freed after the record");
	is_int((int64_t)(waits_of(&rig) - waits), 1, "it is waited for");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void forgets(void)
{
	static const char *const off[] = {
		"soft.streams=stepped", "stream.event_dependencies=no", NULL};
	struct CUstream_st *a, *b;
	struct CUevent_st *event;
	uint64_t x, waits;
	struct rig rig;

	for (int way = 0; way < 3; way++) {
		rig_open(&rig, way == 2 ? off : STEPPED);
		a = rig_stream(&rig);
		b = rig_stream(&rig);
		event = rig_event(&rig);
		x = give(&rig, SIZE, a);
		rig_free(&rig, x, a);
		rig_flush(&rig);
		glk_cache_event_recorded(&rig.cache, event, a);
		rig_follow(&rig, b, a, event);
		if (way == 0)
			glk_cache_event_forget(&rig.cache, event);
		if (way == 1) {
			/* recorded again, as a part of a graph */
			rig_capture(&rig, a);
			is_int(glk_cache_event_recorded(&rig.cache, event, a), 0,
				"a record in a capture");
			rig_drop(&rig, rig_capture_end(&rig, a));
		}
		is_int(glk_cache_stream_waited(&rig.cache, b, event), 0,
			"a wait is told");
		waits = waits_of(&rig);
		is_int((int64_t)give(&rig, SIZE, b), (int64_t)x, "the memory is had");
		is_int((int64_t)(waits_of(&rig) - waits), 1,
			way == 0	   ? "an event that was forgotten saves nothing"
				: way == 1 ? "nor one that is a graph's now"
					   : "nor any where that is configured");
		is_sound(&rig, "the books agree");
		rig_close(&rig, 1);
	}
}

/* On a stream that captures nothing is noted. */
static void ignores_captures(void)
{
	struct CUstream_st *a, *b, *c;
	struct CUevent_st *event, *inside;
	uint64_t x, waits;
	uint32_t graph;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	event = rig_event(&rig);
	inside = rig_event(&rig);
	x = give(&rig, SIZE, a);
	rig_free(&rig, x, a);
	rig_flush(&rig);
	rig_begin(&rig, 1, b);
	rig_capture(&rig, b);
	/* C joins B, which is behind nobody: told, as a program would that tells everything */
	tell(&rig, c, b, inside);
	is_int(glk_cache_event_recorded(&rig.cache, event, a), 0,
		"a record outside is told");
	is_int(glk_cache_stream_waited(&rig.cache, b, event), 0, "and a wait of a graph");
	rig_follow(&rig, b, c, inside);
	graph = rig_capture_end(&rig, b);
	ok(graph, "the capture is whole");
	rig_drop(&rig, graph);
	rig_end_pool(&rig, 1);
	waits = waits_of(&rig);
	is_int((int64_t)give(&rig, SIZE, b), (int64_t)x, "after it B gets what A freed");
	is_int((int64_t)(waits_of(&rig) - waits), 1, "behind a wait");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void refuses(void)
{
	struct CUstream_st *a, *dead;
	struct CUevent_st *event;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	dead = rig_stream(&rig);
	event = rig_event(&rig);
	rig.drv->ops->stream_free(rig.drv, 0, dead);
	rig.streams--;
	is_int(glk_cache_event_recorded(&rig.cache, event, dead), -EINVAL,
		"a stream that ended");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_int(glk_cache_stream_waited(&rig.cache, dead, event), -EINVAL,
		"waits neither");
	is_int(glk_cache_event_recorded(&rig.cache, event, a), 0, "one that is there");
	rig_fill_streams(&rig);
	glk_region_fail_after(1);
	is_int(glk_cache_event_recorded(&rig.cache, event, a), 0,
		"is known without memory");
	is_int(glk_cache_event_recorded(&rig.cache, event, rig_stream(&rig)), -ENOMEM,
		"another one is not");
	glk_region_fail_after(0);
	glk_fault_set(rig.drv, "stream_facts:nth=1:err=EIO");
	is_int(glk_cache_stream_waited(&rig.cache, a, event), -EIO,
		"a driver that does not tell");
	glk_fault_set(rig.drv, "off");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	spares_waits();
	knows_bins();
	forgets();
	ignores_captures();
	refuses();
	return tap_done();
}
