/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What others may do while a request stands in a call of the driver, in the middle of its plan. */
#include "gate.h"

#include <errno.h>

/* A block of a pool of graphs, and what the capture made of it. */
static uint32_t capture(
	struct rig *rig, uint64_t pool, struct CUstream_st *stream, uint64_t *ret_addr)
{
	if (rig_begin(rig, pool, stream))
		tap_bail(rig_error().text);
	rig_capture(rig, stream);
	*ret_addr = rig_alloc(rig, 20 * MIB, stream);
	return rig_capture_end(rig, stream);
}

/* A pool that is being taken down is nobody else's yet. */
static void pool_is_taken_down(void)
{
	struct errand e = {.fn = errand_release, .pool = 1};
	struct CUstream_st *s;
	uint64_t first, second;
	uint32_t graph;
	struct rig rig;

	gate_open_rig(&rig, NULL);
	e.rig = &rig;
	s = rig_stream(&rig);
	graph = capture(&rig, 1, s, &first);
	rig_end_pool(&rig, 1);
	rig_free(&rig, first, s);
	rig_drop(&rig, graph);
	ok(gate_send(&e, GLK_OP_unmap, 1), "a pool is released, and unmapped");
	graph = capture(&rig, 2, s, &second);
	ok(second, "meanwhile another one begins, and has a block");
	is_int(gate_end(&e, 0), 0, "the first one goes");
	is_int(rig_end_pool(&rig, 2), 0, "the second one ends");
	is_int((int64_t)rig_pool(&rig, 2).blocks, 1, "and has its block");
	is_sound(&rig, "the books agree");
	rig_free(&rig, second, s);
	rig_drop(&rig, graph);
	is_int(rig_release(&rig, 2), 0, "it goes too");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Others free memory where a trim is at work: it goes through all the rest. */
static void trim_goes_on(void)
{
	struct errand e = {.fn = errand_trim};
	struct CUstream_st *s;
	uint64_t live, block[3];
	struct rig rig;

	gate_open_rig(&rig, (const char *const[]){"policy.bins=0", NULL});
	e.rig = &rig;
	s = rig_stream(&rig);
	block[0] = rig_alloc(&rig, 120 * MIB, s);
	live = rig_alloc(&rig, 8 * MIB, s);
	block[1] = rig_alloc(&rig, 128 * MIB, s);
	block[2] = rig_alloc(&rig, 128 * MIB, s);
	for (int i = 0; i < 3; i++)
		rig_free(&rig, block[i], s);
	ok(gate_send(&e, GLK_OP_unmap, 1), "a trim stands in its first call");
	rig_free(&rig, live, s);
	is_int(gate_end(&e, 0), 0, "it goes on");
	ok(rig_figures(&rig).reserved <= 8 * MIB, "and gives all back");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A page that has three mappings, the last of them made for an extent and not wanted after all,
 * and the driver keeps that one. */
static void undo_is_refused(void)
{
	struct glk_map *map;
	struct CUstream_st *s;
	uint64_t block[4], wide;
	uint32_t id, slot, first;
	struct rig rig;
	int err;

	gate_open_rig(
		&rig, (const char *const[]){"policy.bins=0", "pool.budget=8MiB", NULL});
	s = rig_stream(&rig);
	for (int i = 0; i < 4; i++)
		block[i] = rig_alloc(&rig, 2 * MIB, s);
	rig_free(&rig, block[0], s);
	rig_free(&rig, block[2], s);
	wide = rig_alloc(&rig, 4 * MIB, s);
	rig_free(&rig, wide, s);
	map = &rig.cache.arena.map;
	glk_lock(&rig.cache.lock);
	id = map->page[0];
	is_int(glk_map_page(map, id)->aliases, 2, "an idle page with two mappings");
	slot = glk_map_end(map) + 3;
	map->ahead = slot + 1;
	glk_page_take(map, id);
	glk_slots_enter(map, slot, slot);
	is_int(glk_mapping_make(map, slot, &id, 1), 0, "a third one, for an extent");
	glk_fault_set(gate.drv.inner, "unmap:from=1");
	first = glk_map_page(map, id)->first_alias;
	err = glk_limbo_undo(map, first);
	is_int(err, -EIO, "which the driver does not take back");
	is_int(glk_page_state(glk_map_page(map, id)), GLK_PAGE_LOST, "the page is lost");
	glk_slots_leave(map, slot, slot, &(struct glk_use){0});
	glk_unlock(&rig.cache.lock);
	glk_fault_set(gate.drv.inner, "off");
	is_sound(&rig, "the books agree");
	rig_free(&rig, block[1], s);
	rig_free(&rig, block[3], s);
	rig_close(&rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

static bool is_for_all(struct CUstream_st *stream, void *arg)
{
	return true;
}

/* A request of a pool reserves addresses, the last that there may be; but another one has had them
 * meanwhile, and left enough. */
static void both_extend(void)
{
	struct errand e = {.fn = errand_alloc, .size = 500 * MIB};
	uint64_t first, second;
	struct CUstream_st *s;
	struct rig rig;

	gate_open_rig(
		&rig, (const char *const[]){"soft.memory=4GiB", "map.span=4GiB", NULL});
	s = rig_stream(&rig);
	e.rig = &rig;
	e.stream = rig_stream(&rig);
	is_int(rig_begin_for(&rig, 1, is_for_all, NULL), 0, "a pool begins");
	first = rig_alloc(&rig, 1700 * MIB, s);
	ok(first, "its addresses are almost all in use");
	ok(gate_send(&e, GLK_OP_reserve, 1), "a request reserves more");
	second = rig_alloc(&rig, 500 * MIB, s);
	ok(second, "another one was faster");
	is_int(gate_end(&e, 0), 0, "and left enough for both");
	is_int(rig_end_pool(&rig, 1), 0, "the pool ends");
	is_sound(&rig, "the books agree");
	rig_free(&rig, first, s);
	rig_free(&rig, second, s);
	if (e.addr)
		rig_free(&rig, e.addr, s);
	is_int(rig_release(&rig, 1), 0, "and goes");
	rig_close(&rig, 0);
}

/* All slots but one that small blocks may have for themselves are theirs: two requests are about to
 * add one. */
static void last_of_the_small(void)
{
	struct errand e = {.fn = errand_alloc, .size = 200 << 10};
	struct CUstream_st *s;
	uint64_t syncs, addr = 0;
	struct glk_slab *nests;
	struct glk_map *map;
	struct rig rig;
	uint32_t hole;

	gate_open_rig(
		&rig, (const char *const[]){"map.span=1GiB", "policy.bins=0", NULL});
	s = rig_stream(&rig);
	e.rig = &rig;
	e.stream = rig_stream(&rig);
	is_int(rig_begin_for(&rig, 1, is_for_all, NULL), 0, "a pool begins");
	ok(rig_alloc(&rig, 200 << 10, s), "a small block");
	map = &glk_graph_at(glk_graphs(&rig.cache), 1)->arena.map;
	nests = &map->nests;
	while (glk_load_relaxed(&nests->live) < nests->max - 1 ||
		glk_tree_find(map, &map->nested, 200 << 10, &hole, 1)) {
		if (!rig_alloc(&rig, 200 << 10, s))
			tap_bail(rig_error().text);
	}
	syncs = rig_calls(&rig, GLAKE_CALL_SYNC);
	ok(gate_send(&e, GLK_OP_map, 1),
		"a request is about to add a slot for small blocks");
	is_int(rig_try(&rig, 200 << 10, s, 0, &addr), 0, "another one has the last");
	is_int((int64_t)glk_load_relaxed(&nests->live), (int64_t)nests->max,
		"there are no more");
	is_int(gate_end(&e, 0), 0, "the first one is served elsewhere");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_SYNC) - syncs), 0,
		"and waits for nobody");
	rig_end_pool(&rig, 1);
	is_sound(&rig, "the books agree");
	rig_end(&rig);
}

int main(void)
{
	tap_plan_later();
	pool_is_taken_down();
	trim_goes_on();
	undo_is_refused();
	both_extend();
	last_of_the_small();
	return tap_done();
}
