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

int main(void)
{
	tap_plan_later();
	pool_is_taken_down();
	trim_goes_on();
	return tap_done();
}
