/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_ROUTE_PARTS_H
#define GLK_UNIT_CACHE_ROUTE_PARTS_H

/* What route.c and route_late.c share. */
#include "stepped.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#define PAGE (8 * MIB)

/* A request, and the pool that served it: 0 none, UINT64_MAX one that nobody named. */
static inline uint64_t goes_to(struct rig *rig, struct CUstream_st *stream)
{
	struct glake_block block;
	uint64_t addr = rig_alloc(rig, 3 * MIB, stream);

	if (!addr || glk_cache_query(&rig->cache, addr, &block))
		tap_bail(rig_error().text);
	rig_work(rig, addr, 3 * MIB, stream);
	rig_free(rig, addr, stream);
	return block.pool.high == UINT64_MAX ? UINT64_MAX : block.pool.low;
}

static inline void announced(void)
{
	struct CUstream_st *a, *b, *c;
	struct CUevent_st *fork;
	uint64_t calls, failed;
	uint32_t graph;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	fork = rig_event(&rig);
	rig_begin(&rig, 1, a);
	is_int((int64_t)goes_to(&rig, a), 0, "a pool is open, and nothing is captured");
	rig_capture(&rig, a);
	is_int((int64_t)goes_to(&rig, a), 1, "the stream that captures");
	is_int((int64_t)goes_to(&rig, b), 0, "another one");
	is_int((int64_t)goes_to(&rig, NULL), 0, "the default stream");
	rig_follow(&rig, b, a, fork);
	glk_fault_set(rig.drv, "stream_facts:nth=2:err=EIO");
	is_int((int64_t)goes_to(&rig, b), 1, "one that joined the capture");
	glk_fault_count(rig.drv, &calls, &failed);
	glk_fault_set(rig.drv, "off");
	is_int((int64_t)failed, 1, "though that stream cannot be asked now");
	is_int((int64_t)goes_to(&rig, b), 1, "and again when it can");
	is_int((int64_t)goes_to(&rig, c), 0, "one that did not");
	rig_follow(&rig, c, b, fork);
	is_int((int64_t)goes_to(&rig, c), 1, "one that joined by way of another");
	rig_follow(&rig, a, b, fork);
	rig_follow(&rig, a, c, fork);
	graph = rig_capture_end(&rig, a);
	ok(graph, "the capture is whole");
	is_int((int64_t)goes_to(&rig, a), 0, "it is over, and the pool still open");
	is_int((int64_t)goes_to(&rig, b), 0, "for the others too");
	rig_end_pool(&rig, 1);
	rig_drop(&rig, graph);
	rig_release(&rig, 1);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Threads that capture on default streams of their own: one name for all of them. */
struct own {
	struct rig *rig;
	pthread_barrier_t *turn;
	bool announces;
	uint64_t pool, pools[3];
	struct glake_pool_id id;
	uint64_t addr[3];
	bool whole;
};

#endif
