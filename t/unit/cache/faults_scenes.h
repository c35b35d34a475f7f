/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_FAULTS_SCENES_H
#define GLK_UNIT_CACHE_FAULTS_SCENES_H

/* What is done while calls of the driver fail, and what is prepared for it. */
#include "rig.h"
#include "seed.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define PAGE (8 * MIB)

/* What is prepared, what is then done under faults. */
struct scene {
	const char *name;
	const char *settings[4];
	void (*prepare)(struct rig *rig, uint64_t *at);
	int (*act)(struct rig *rig, uint64_t *at);
};

static void prepare_nothing(struct rig *rig, uint64_t *at)
{
	rig_stream(rig);
}

static int act_first(struct rig *rig, uint64_t *at)
{
	return rig_try(rig, 20 * MIB, rig->stream[0], 0, at);
}

/* Sixteen pages, every other one idle. */
static void prepare_stitch(struct rig *rig, uint64_t *at)
{
	uint64_t addr[16];

	rig_stream(rig);
	for (int i = 0; i < 16; i++)
		addr[i] = rig_alloc(rig, PAGE, rig->stream[0]);
	for (int i = 0; i < 16; i += 2)
		rig_free(rig, addr[i], rig->stream[0]);
}

static int act_stitch(struct rig *rig, uint64_t *at)
{
	return rig_try(rig, 8 * PAGE, rig->stream[0], 0, at);
}

/* All the budget in small pages, half of them mapped twice. */
static void prepare_recut(struct rig *rig, uint64_t *at)
{
	uint64_t addr[16];

	rig_stream(rig);
	for (int i = 0; i < 16; i++)
		addr[i] = rig_alloc(rig, 2 * MIB, rig->stream[0]);
	for (int i = 0; i < 16; i += 2)
		rig_free(rig, addr[i], rig->stream[0]);
	addr[0] = rig_alloc(rig, 4 * MIB - 512, rig->stream[0]);
	for (int i = 1; i < 16; i += 2)
		rig_free(rig, addr[i], rig->stream[0]);
	rig_free(rig, addr[0], rig->stream[0]);
}

static int act_recut(struct rig *rig, uint64_t *at)
{
	return rig_try(rig, 3 * PAGE, rig->stream[0], 0, at);
}

/* An idle page of a contiguous block, others and live ones. */
static void prepare_single(struct rig *rig, uint64_t *at)
{
	rig_stream(rig);
	rig_free(rig, rig_single(rig, 10 * MIB, rig->stream[0]), rig->stream[0]);
	rig_alloc(rig, PAGE, rig->stream[0]);
	rig_free(rig, rig_alloc(rig, 5 * PAGE, rig->stream[0]), rig->stream[0]);
}

static int act_single(struct rig *rig, uint64_t *at)
{
	return rig_try(rig, 30 * MIB, rig->stream[0], GLAKE_ALLOC_CONTIGUOUS, at);
}

static int act_trim(struct rig *rig, uint64_t *at)
{
	uint64_t released;

	return glk_cache_trim(&rig->cache, 0, false, &released);
}

/* Memory that another stream freed with work queued. */
static void prepare_cross(struct rig *rig, uint64_t *at)
{
	uint64_t addr;

	rig_stream(rig);
	rig_stream(rig);
	addr = rig_alloc(rig, 2 * PAGE, rig->stream[0]);
	rig_work(rig, addr, 2 * PAGE, rig->stream[0]);
	rig_free(rig, addr, rig->stream[0]);
	addr = rig_single(rig, 4 * MIB, rig->stream[0]);
	rig_work(rig, addr, 4 * MIB, rig->stream[0]);
	rig_free(rig, addr, rig->stream[0]);
}

/* A kernel on it proves the order: the device refuses one that nothing orders. */
static int act_cross(struct rig *rig, uint64_t *at)
{
	int err = rig_try(rig, 2 * PAGE, rig->stream[1], 0, at);

	if (!err)
		rig_work(rig, *at, 2 * PAGE, rig->stream[1]);
	return err;
}

static int act_cross_single(struct rig *rig, uint64_t *at)
{
	int err = rig_try(rig, 4 * MIB, rig->stream[1], GLAKE_ALLOC_CONTIGUOUS, at);

	if (!err)
		rig_work(rig, *at, 4 * MIB, rig->stream[1]);
	return err;
}

/* Small pages with work queued on them: the GPU has to be waited for. */
static void prepare_sync(struct rig *rig, uint64_t *at)
{
	uint64_t addr[16];

	rig_stream(rig);
	for (int i = 0; i < 16; i++) {
		addr[i] = rig_alloc(rig, 2 * MIB, rig->stream[0]);
		rig_work(rig, addr[i], 2 * MIB, rig->stream[0]);
	}
	for (int i = 0; i < 16; i++)
		rig_free(rig, addr[i], rig->stream[0]);
}

/* Two idle pages that lie nowhere side by side, with all the mappings they may have. */
static void prepare_alias(struct rig *rig, uint64_t *at)
{
	uint64_t addr[6], wide;

	rig_stream(rig);
	for (int i = 0; i < 6; i++)
		addr[i] = rig_alloc(rig, PAGE, rig->stream[0]);
	for (int i = 0; i < 6; i += 2)
		rig_free(rig, addr[i], rig->stream[0]);
	wide = rig_alloc(rig, 3 * PAGE, rig->stream[0]);
	rig_free(rig, wide, rig->stream[0]);
	addr[0] = rig_alloc(rig, PAGE, rig->stream[0]);
	rig_alloc(rig, PAGE, rig->stream[0]);
	rig_free(rig, addr[0], rig->stream[0]);
}

static int act_alias(struct rig *rig, uint64_t *at)
{
	return rig_try(rig, 2 * PAGE, rig->stream[0], 0, at);
}

/* A block between two free ones, freed on a stream that was never seen. */
static void prepare_free(struct rig *rig, uint64_t *at)
{
	uint64_t left, right;

	rig_stream(rig);
	rig_stream(rig);
	left = rig_alloc(rig, 5 * MIB, rig->stream[0]);
	*at = rig_alloc(rig, 5 * MIB, rig->stream[0]);
	right = rig_alloc(rig, 5 * MIB, rig->stream[0]);
	rig_free(rig, left, rig->stream[0]);
	rig_free(rig, right, rig->stream[0]);
}

static int act_free(struct rig *rig, uint64_t *at)
{
	return rig_free(rig, *at, rig->stream[1]);
}

/* All the budget, most of it idle, and a capture whose pool has to take from that. */
static void prepare_graph(struct rig *rig, uint64_t *at)
{
	uint64_t addr[7];

	rig_stream(rig);
	rig_stream(rig);
	for (int i = 0; i < 7; i++)
		addr[i] = rig_alloc(rig, i ? PAGE : 2 * MIB, rig->stream[1]);
	for (int i = 0; i < 7; i++)
		rig_free(rig, addr[i], rig->stream[1]);
	rig_free(rig, rig_single(rig, 4 * MIB, rig->stream[1]), rig->stream[1]);
	rig_begin(rig, 1, rig->stream[0]);
	rig_capture(rig, rig->stream[0]);
	rig_free(rig, rig_alloc(rig, PAGE, rig->stream[0]), rig->stream[0]);
}

static int act_graph(struct rig *rig, uint64_t *at)
{
	return rig_try(rig, 2 * PAGE + MIB, rig->stream[0], 0, at);
}

static int act_graph_single(struct rig *rig, uint64_t *at)
{
	return rig_try(rig, 10 * MIB, rig->stream[0], GLAKE_ALLOC_CONTIGUOUS, at);
}

/* A capture that nobody announced, its stream not known yet. */
static void prepare_unannounced(struct rig *rig, uint64_t *at)
{
	rig_capture(rig, rig_stream(rig));
	rig_free(rig, rig_alloc(rig, 100, rig_stream(rig)), rig->stream[1]);
}

static int act_begin(struct rig *rig, uint64_t *at)
{
	int err = rig_begin(rig, 2, rig->stream[0]);

	if (err)
		return err;
	rig_end_pool(rig, 2);
	return rig_release(rig, 2);
}

/* A pool with memory of all kinds, closed. */
static void prepare_release(struct rig *rig, uint64_t *at)
{
	uint32_t graph;

	prepare_graph(rig, at);
	rig_free(rig, rig_alloc(rig, MIB, rig->stream[0]), rig->stream[0]);
	rig_free(rig, rig_single(rig, 6 * MIB, rig->stream[0]), rig->stream[0]);
	graph = rig_capture_end(rig, rig->stream[0]);
	rig_drop(rig, graph);
	rig_end_pool(rig, 1);
}

/* A pool that could not go is looked at again by trim. */
static int act_release(struct rig *rig, uint64_t *at)
{
	uint64_t unused;
	int err = rig_release(rig, 1);

	return err == -EINVAL ? glk_cache_trim(&rig->cache, SIZE_MAX, false, &unused)
			      : err;
}

/* A block of one stream and events of others, none of which was seen. */
static void prepare_use(struct rig *rig, uint64_t *at)
{
	rig_stream(rig);
	rig_stream(rig);
	*at = rig_alloc(rig, PAGE, rig->stream[0]);
	rig_follow(rig, rig->stream[1], rig->stream[0], rig_event(rig));
	rig->drv->ops->user_event_record(rig->drv, 0, rig_event(rig), rig->stream[1]);
}

static int act_use(struct rig *rig, uint64_t *at)
{
	return glk_cache_use(&rig->cache, *at, rig->stream[1]);
}

static int act_free_after(struct rig *rig, uint64_t *at)
{
	return glk_cache_free_after(&rig->cache, *at, rig->event, 2);
}

static int act_leave(struct rig *rig, uint64_t *at)
{
	int err = glk_cache_stream_leave(&rig->cache, rig->stream[0]);

	return err ? err : act_cross(rig, at);
}

static void prepare_told(struct rig *rig, uint64_t *at)
{
	prepare_cross(rig, at);
	rig_event(rig);
}

/* As the public functions do it. */
static int act_told(struct rig *rig, uint64_t *at)
{
	struct CUstream_st *a = rig->stream[0], *b = rig->stream[1];
	struct CUevent_st *event = rig->event[0];
	int err = glk_cache_event_recorded(&rig->cache, event, a);

	if (!err)
		err = rig->drv->ops->user_event_record(rig->drv, 0, event, a);
	if (err) {
		glk_cache_event_forget(&rig->cache, event);
		return err;
	}
	err = rig->drv->ops->user_event_wait(rig->drv, 0, b, event);
	if (!err)
		err = glk_cache_stream_waited(&rig->cache, b, event);
	return err ? err : act_cross(rig, at);
}

/* Memory of a stream that the program ended without a word. */
static void prepare_lost(struct rig *rig, uint64_t *at)
{
	prepare_cross(rig, at);
	rig->drv->ops->stream_free(rig->drv, 0, rig->stream[0]);
	rig->drv->ops->stream_new(rig->drv, 0, &rig->stream[0]);
}

static const struct scene scenes[] = {
	{"first request", {NULL}, prepare_nothing, act_first},
	{"first request in plenty", {"policy.target=auto"}, prepare_nothing, act_first},
	{"stitch", {"pool.budget=128MiB"}, prepare_stitch, act_stitch},
	{"recut", {"pool.budget=32MiB"}, prepare_recut, act_recut},
	{"contiguous", {"pool.budget=64MiB"}, prepare_single, act_single},
	{"trim", {"pool.budget=128MiB"}, prepare_single, act_trim},
	{"trim of aliases", {"pool.budget=64MiB"}, prepare_alias, act_trim},
	{"cross stream", {"soft.streams=stepped"}, prepare_cross, act_cross},
	{"cross stream, contiguous", {"soft.streams=stepped"}, prepare_cross,
		act_cross_single},
	{"sync", {"soft.streams=stepped", "pool.budget=32MiB"}, prepare_sync, act_recut},
	{"alias limit", {"pool.budget=48MiB", "map.aliases=2"}, prepare_alias, act_alias},
	{"free and merge", {NULL}, prepare_free, act_free},
	{"graph", {"pool.budget=64MiB"}, prepare_graph, act_graph},
	{"graph, contiguous", {"pool.budget=64MiB"}, prepare_graph, act_graph_single},
	{"capture that nobody announced", {NULL}, prepare_unannounced, act_graph},
	{"begin of a pool", {NULL}, prepare_sync, act_begin},
	{"release of a pool", {"pool.budget=64MiB"}, prepare_release, act_release},
	{"use", {NULL}, prepare_use, act_use},
	{"free behind events", {NULL}, prepare_use, act_free_after},
	{"end of a stream", {"soft.streams=stepped"}, prepare_cross, act_leave},
	{"dependency", {"soft.streams=stepped"}, prepare_told, act_told},
	{"lost stream", {"soft.streams=stepped", "pool.budget=32MiB"}, prepare_lost,
		act_cross},
};

#endif
