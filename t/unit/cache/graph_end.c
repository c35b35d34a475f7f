/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pools of graphs: what they take from the GPU's own memory, and how they fail. */
#include "graph_parts.h"

/* A pool takes what the GPU's own cache has idle, and that only when it is done with. */
static void borrows(void)
{
	uint64_t home[8], made, x;
	struct CUstream_st *a, *b;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"soft.streams=stepped", "pool.budget=64MiB", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	for (int i = 0; i < 8; i++)
		home[i] = give(&rig, PAGE, b);
	glk_soft_run_all(rig.drv);
	rig_work(&rig, home[0], PAGE, b);
	for (int i = 0; i < 4; i++)
		rig_free(&rig, home[i], b);
	glk_soft_hold(rig.drv, 0, b, true);
	made = rig_calls(&rig, GLAKE_CALL_CREATE);
	open_capture(&rig, 1, a);
	is_int(rig_try(&rig, PAGE, a, 0, &x), -ENOMEM,
		"memory with work that does not end");
	is_sound(&rig, "the books agree");
	glk_soft_hold(rig.drv, 0, b, false);
	glk_soft_run_all(rig.drv);
	x = rig_alloc(&rig, 4 * PAGE, a);
	ok(x, "idle pages of the GPU's own cache serve a pool");
	rig_work(&rig, x, 4 * PAGE, a);
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_CREATE) - made), 0, "none is made");
	is_int(rig_try(&rig, 1, a, 0, &x), -ENOMEM, "there is no more");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "  its class");
	is_sound(&rig, "the books agree");
	rig_drop(&rig, close_capture(&rig, 1, a));
	ok(!rig_alloc(&rig, PAGE, b), "what the pool has nobody else can have");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 5);
}

/* One handle each, as outside of graphs. */
static void has_contiguous(void)
{
	struct glake_block block;
	struct CUstream_st *a, *b;
	struct CUevent_st *fork;
	uint64_t x, y, z;
	uint32_t graph;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	fork = rig_event(&rig);
	open_capture(&rig, 1, a);
	rig_follow(&rig, b, a, fork);
	x = rig_single(&rig, 6 * MIB, a);
	is_int(glk_cache_query(&rig.cache, x, &block), 0,
		"a contiguous block of a graph");
	ok(block.flags == GLAKE_ALLOC_CONTIGUOUS && block.pages == 1 &&
			block.page_size == 6 * MIB && block.pool.low == 1,
		"on one page");
	rig_work(&rig, x, 6 * MIB, a);
	is_sound(&rig, "the books agree");
	rig_free(&rig, x, a);
	is_int((int64_t)rig_figures(&rig).free_pages, 6 * (int64_t)MIB,
		"freed its page is idle");
	y = rig_single(&rig, 6 * MIB, b);
	ok(y && y != x, "another stream does not get it");
	z = rig_single(&rig, 6 * MIB, a);
	ok(z == x, "its own does");
	rig_free(&rig, z, a);
	rig_free(&rig, y, b);
	rig_work(&rig, y, 6 * MIB, b);
	rig_follow(&rig, a, b, fork);
	graph = close_capture(&rig, 1, a);
	ok(!glk_cache_trim(&rig.cache, 0, &z) && rig_pool(&rig, 1).held == 12 * MIB,
		"trim takes neither");
	is_int(rig_launch(&rig, graph, a), 0, "replayed");
	glk_soft_run_all(rig.drv);
	rig_drop(&rig, graph);
	open_capture(&rig, 1, b);
	x = rig_single(&rig, 6 * MIB, b);
	y = rig_single(&rig, 6 * MIB, b);
	is_int((int64_t)rig_pool(&rig, 1).held, 12 * (int64_t)MIB,
		"the next graph has both");
	is_sound(&rig, "the books agree");
	rig_free(&rig, x, b);
	rig_free(&rig, y, b);
	rig_drop(&rig, close_capture(&rig, 1, b));
	rig_release(&rig, 1);
	is_int(rig_release(&rig, 1), 0, "the last one");
	is_int((int64_t)rig_figures(&rig).free_pages, 12 * (int64_t)MIB,
		"their pages are there for all");
	glk_cache_trim(&rig.cache, 0, &z);
	is_int((int64_t)rig_figures(&rig).reserved, 0, "and go to the driver");
	rig.drv->ops->user_event_free(rig.drv, fork);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* While a pool is open nothing is a hit, on any stream; after it all are again. */
static void diverts(void)
{
	struct CUstream_st *a, *b, *c;
	uint64_t x, hits, misses;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	x = rig_alloc(&rig, 100, b);
	rig_free(&rig, x, b);
	hits = rig_figures(&rig).hits;
	x = rig_alloc(&rig, 100, b);
	rig_free(&rig, x, b);
	is_int((int64_t)(rig_figures(&rig).hits - hits), 1, "a hit");
	rig_begin(&rig, 1, a);
	rig_begin(&rig, 2, a);
	misses = rig_figures(&rig).misses;
	for (int i = 0; i < 3; i++) {
		x = rig_alloc(&rig, 100, b);
		rig_free(&rig, x, b);
		/* one that is first seen meanwhile */
		x = rig_alloc(&rig, 100, c);
		rig_free(&rig, x, c);
	}
	is_int((int64_t)(rig_figures(&rig).misses - misses), 6,
		"with pools open there are none");
	is_sound(&rig, "the books agree");
	rig_end_pool(&rig, 2);
	misses = rig_figures(&rig).misses;
	x = rig_alloc(&rig, 100, b);
	rig_free(&rig, x, b);
	is_int((int64_t)(rig_figures(&rig).misses - misses), 1, "nor with one");
	rig_end_pool(&rig, 1);
	for (int i = 0; i < 2; i++) {
		x = rig_alloc(&rig, 100, b);
		rig_free(&rig, x, b);
		x = rig_alloc(&rig, 100, c);
		rig_free(&rig, x, c);
		hits = i ? hits : rig_figures(&rig).hits;
	}
	is_int((int64_t)(rig_figures(&rig).hits - hits), 2, "after both there are");
	/* one that ended meanwhile does not come back */
	rig_begin(&rig, 1, a);
	glk_cache_stream_leave(&rig.cache, c);
	rig_end_pool(&rig, 1);
	hits = rig_figures(&rig).hits;
	x = rig_alloc(&rig, 100, c);
	is_int((int64_t)(rig_figures(&rig).hits - hits), 0,
		"save for a stream that ended");
	rig_free(&rig, x, c);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A block of a pool that was released is used and freed by a later graph: replays find it. */
static void is_inherited(void)
{
	struct CUstream_st *a, *b;
	uint32_t graph, other;
	uint64_t x, y, unused;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	open_capture(&rig, 1, a);
	x = give(&rig, PAGE, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	is_int(rig_release(&rig, 1), 0, "a pool is released");
	open_capture(&rig, 2, a);
	y = give(&rig, PAGE, a);
	rig_work(&rig, x, PAGE, a);
	rig_free(&rig, x, a);
	rig_free(&rig, y, a);
	graph = close_capture(&rig, 2, a);
	is_int((int64_t)rig_figures(&rig).pools, 2,
		"with a block freed in another's capture it stays");
	for (int i = 0; i < 3; i++)
		is_int(rig_launch(&rig, graph, a), 0, "for replays");
	glk_soft_run_all(rig.drv);
	open_capture(&rig, 3, a);
	y = give(&rig, PAGE, a);
	rig_begin(&rig, 4, b);
	rig_free(&rig, y, a);
	other = close_capture(&rig, 3, a);
	is_int((int64_t)rig_figures(&rig).pools, 4, "also when further captures end");
	rig_drop(&rig, other);
	rig_release(&rig, 3);
	rig_end_pool(&rig, 4);
	glk_cache_trim(&rig.cache, SIZE_MAX, &unused);
	is_int((int64_t)rig_figures(&rig).pools, 3,
		"what a capture frees to its own pool has no heir");
	rig_drop(&rig, graph);
	is_int(rig_release(&rig, 2), 0, "the other's release");
	is_int((int64_t)rig_figures(&rig).pools, 1, "ends both");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* The GPU is closed with pools in all states. */
static void is_closed(void)
{
	struct CUstream_st *a, *b, *c;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	for (uint64_t n = 1; n <= 4; n++) {
		open_capture(&rig, n, a);
		give(&rig, n * 3 * MIB, a);
		rig_single(&rig, 2 * MIB, a);
		rig_free(&rig, give(&rig, n * 5 * MIB, a), a);
		rig_free(&rig, rig_single(&rig, 4 * MIB, a), a);
		rig_drop(&rig, close_capture(&rig, n, a));
	}
	rig_release(&rig, 1);
	rig_begin(&rig, 2, b);
	rig_begin(&rig, 5, c);
	rig_capture(&rig, c);
	give(&rig, MIB, c);
	rig_drop(&rig, rig_capture_end(&rig, c));
	is_int((int64_t)rig_figures(&rig).pools, 5,
		"pools that are open, closed and leaving");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 9);
}

/* Addresses, tables: without them no pool begins, and none is left half made. */
static void lacks_memory(void)
{
	struct CUstream_st *a;
	uint64_t space;
	unsigned failed = 0;
	bool right = true;
	struct rig rig;
	int err;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, 1, a), a);
	space = rig_figures(&rig).address_space;
	for (uint32_t n = 1; n < 100; n++) {
		glk_region_fail_after(n);
		err = rig_begin(&rig, 1, a);
		glk_region_fail_after(0);
		if (!err)
			break;
		failed++;
		right &= err == -ENOMEM &&
			rig_error().error_class == GLAKE_ERROR_NOMEM_HOST &&
			!rig_figures(&rig).pools && rig_is_sound(&rig);
	}
	tap_note("%u tables", failed);
	ok(failed > 3 && right, "no memory for one table of a pool after the other");
	rig_end_pool(&rig, 1);
	rig_release(&rig, 1);
	glk_fault_set(rig.drv, "reserve:from=1:err=ENOMEM");
	is_int(rig_begin(&rig, 1, a), -ENOMEM, "no addresses");
	glk_fault_set(rig.drv, "off");
	is_int((int64_t)rig_figures(&rig).address_space, (int64_t)space,
		"none are left over");
	is_int(rig_begin(&rig, 1, a), 0, "later there are some");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* What the driver keeps of the GPU's own cache is asked for once at the end, pools or not. */
static void knows_lost(void)
{
	struct CUstream_st *a;
	uint64_t unused;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, PAGE, a), a);
	glk_fault_set(rig.drv, "unmap:nth=1:err=EIO");
	tap_expect_log(1);
	is_int(glk_cache_trim(&rig.cache, 0, &unused), -EIO, "the driver keeps a page");
	glk_fault_set(rig.drv, "off");
	for (uint64_t n = 1; n <= 2; n++) {
		open_capture(&rig, n, a);
		give(&rig, PAGE, a);
		rig_drop(&rig, close_capture(&rig, n, a));
	}
	is_int((int64_t)rig_figures(&rig).lost, (int64_t)PAGE, "it is counted");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* The driver refuses a call while a pool ends: it is told, and the rest goes. */
static void ends_badly(void)
{
	static const char *const faults[] = {"unmap:nth=1:err=EIO", "unmap:nth=2:err=EIO",
		"device_sync:nth=1:err=EIO", "unreserve:nth=1:err=EIO"};
	static const int answers[] = {-EIO, -EIO, -EIO, 0};
	struct CUstream_st *a;
	struct glake_stats s;
	uint64_t unused;
	struct rig rig;

	for (int i = 0; i < 4; i++) {
		struct rig_end end;

		rig_open(&rig, NULL);
		a = rig_stream(&rig);
		open_capture(&rig, 1, a);
		for (int n = 0; n < 3; n++)
			rig_free(&rig, give(&rig, (size_t)(n + 1) * 3 * PAGE, a), a);
		rig_free(&rig, rig_single(&rig, 4 * MIB, a), a);
		rig_drop(&rig, close_capture(&rig, 1, a));
		tap_note("%s", faults[i]);
		glk_fault_set(rig.drv, faults[i]);
		tap_expect_log(i < 2 || i == 3);
		is_int(rig_release(&rig, 1), answers[i], "the answer");
		glk_fault_set(rig.drv, "off");
		s = rig_figures(&rig);
		tap_note("%" PRIu64 " pools, %" PRIu64 " MiB held, %" PRIu64 " MiB lost",
			s.pools, s.reserved >> 20, s.lost >> 20);
		is_sound(&rig, "the books agree");
		is_int(glk_cache_trim(&rig.cache, 0, &unused), 0, "trimmed");
		is_sound(&rig, "the books agree still");
		s = rig_figures(&rig);
		is_int((int64_t)s.pools, 0, "the pool has gone");
		is_int((int64_t)(s.reserved - s.lost), 0, "with all but what was lost");
		end = rig_end(&rig);
		is_int(end.cache, 0, "at the end all goes back");
		is_int(end.device, i == 3 ? -EBUSY : 0, "to the device too");
	}
}

/* With more than one thread the peak counts requests that go to pools. */
static void *touch(void *arg)
{
	struct rig *rig = arg;

	rig_free(rig, rig_alloc(rig, 100, rig->stream[1]), rig->stream[1]);
	return NULL;
}

static void has_peak(void)
{
	struct CUstream_st *a;
	pthread_t thread;
	struct glake_stats s;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	rig_stream(&rig);
	rig_alloc(&rig, 100, a);
	pthread_create(&thread, NULL, touch, &rig);
	pthread_join(thread, NULL);
	open_capture(&rig, 1, a);
	give(&rig, 5 * PAGE, a);
	s = rig_figures(&rig);
	ok(s.peak_live >= s.live, "the peak has seen what is live in a pool");
	rig_drop(&rig, close_capture(&rig, 1, a));
	rig_close(&rig, 2);
}

int main(void)
{
	tap_plan_later();
	borrows();
	has_contiguous();
	diverts();
	is_inherited();
	is_closed();
	lacks_memory();
	has_peak();
	knows_lost();
	ends_badly();
	return tap_done();
}
