/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory that two streams touch without an event between them is reported, with both sides. */
#include "setup.h"

#include "driver/soft.h"

#include <errno.h>

#define STREAMS 4
#define EVENTS	4

static const struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};

static struct glk_drv *drv;
static struct CUstream_st *streams[STREAMS];
static struct glk_drv_event *events[EVENTS];
static uint64_t base, alias, page;

/* One page of two granules, mapped twice. */
static void set_up(void)
{
	struct glk_conf conf = setup_conf();
	int err = 0;

	conf.soft_streams = GLK_SOFT_STREAMS_STEPPED;
	drv = setup_open(&conf);
	for (int i = 0; i < STREAMS; i++)
		err |= drv->ops->stream_new(drv, 0, &streams[i]);
	for (int i = 0; i < EVENTS; i++)
		err |= drv->ops->event_new(drv, 0, &events[i]);
	err |= drv->ops->reserve(drv, 8 * GRANULE, 0, &base);
	alias = base + 4 * GRANULE;
	err |= drv->ops->create(drv, setup_gpu(0), 2 * GRANULE, 0, &page);
	err |= drv->ops->map(drv, base, 2 * GRANULE, page);
	err |= drv->ops->map(drv, alias, 2 * GRANULE, page);
	err |= drv->ops->set_access(drv, base, 2 * GRANULE, &grant, 1);
	err |= drv->ops->set_access(drv, alias, 2 * GRANULE, &grant, 1);
	if (err)
		tap_bail("the test cannot be set up");
}

static void take_down(void)
{
	int err = 0;

	for (int i = 0; i < STREAMS; i++)
		err |= drv->ops->stream_free(drv, 0, streams[i]);
	for (int i = 0; i < EVENTS; i++)
		err |= drv->ops->event_free(drv, events[i]);
	err |= drv->ops->unmap(drv, base, 2 * GRANULE);
	err |= drv->ops->unmap(drv, alias, 2 * GRANULE);
	err |= drv->ops->release(drv, page);
	err |= drv->ops->unreserve(drv, base, 8 * GRANULE);
	err |= glk_drv_close(drv);
	is_int(err, 0, "all is taken down, nothing is left");
}

static int work(int stream, uint64_t addr, size_t size, bool write)
{
	return glk_soft_work(drv, 0, streams[stream], addr, size, write);
}

static void touches(void)
{
	is_int(work(0, base + 1024, 512, true), 0, "stream 0 writes");
	breaks(work(1, base + 1024, 512, true), -EINVAL,
		"stream order rule: a kernel of 512");
	has_str(setup_error().text, "on stream 4 touches", "names the new side");
	has_str(setup_error().text, "operation 1 on stream 3", "and the queued one");
	is_int(work(1, base + 1024, 512, false), -EINVAL, "nor may stream 1 read");
	is_int(work(1, base + 1535, 1, false), -EINVAL, "not even the last byte");
	is_int(work(1, base + 1536, 512, true), 0, "the next byte is free");
	is_int(work(1, base + 512, 512, true), 0, "and the one before");
	is_int(work(1, base, 2 * GRANULE, false), -EINVAL, "a range around it is not");
	is_int(work(1, alias + 1024, 4, false), -EINVAL, "nor an alias");
	is_int(work(0, base + 1024, 512, true), 0, "the same stream may");
	is_int(drv->ops->copy(drv, base + GRANULE, alias + 1024, 8, streams[2]), -EINVAL,
		"copies are seen by what they read");
	is_int(drv->ops->copy(drv, alias + 1024, base + GRANULE, 8, streams[2]), -EINVAL,
		"and by what they write");
	is_int(drv->ops->fill(drv, base + 1024, 0, 1, streams[2]), -EINVAL,
		"so are fills");
	glk_soft_run_all(drv);
	is_int(work(1, base + 1024, 512, true), 0, "finished work is in nobody's way");
	glk_soft_run_all(drv);
	is_int(work(0, base, 4096, false), 0, "stream 0 reads");
	is_int(work(1, alias, 4096, false), 0, "stream 1 may read too");
	is_int(work(2, base, 1, true), -EINVAL, "stream 2 may not write");
	glk_soft_run_all(drv);
}

static void orders(void)
{
	work(0, base, 64, true);
	drv->ops->event_record(drv, events[0], streams[0]);
	work(0, base + 64, 64, true);
	is_int(drv->ops->stream_wait(drv, streams[1], events[0]), 0, "1 waits for 0");
	is_int(work(1, base, 64, true), 0, "and may follow");
	is_int(work(1, base + 64, 64, true), -EINVAL,
		"but not on what came after the record");
	drv->ops->event_record(drv, events[1], streams[1]);
	drv->ops->stream_wait(drv, streams[2], events[1]);
	is_int(work(2, base, 64, true), 0, "2 waits for 1, which waited for 0");
	is_int(work(3, base, 64, true), -EINVAL, "3 waits for nobody");
	drv->ops->event_record(drv, events[0], streams[3]);
	drv->ops->stream_wait(drv, streams[3], events[0]);
	is_int(work(3, base, 64, true), -EINVAL, "or for itself, which is no better");
	drv->ops->event_record(drv, events[0], streams[0]);
	drv->ops->stream_wait(drv, streams[3], events[0]);
	is_int(work(3, base + 64, 64, true), 0, "3 waits for the end of 0");
	is_int(work(3, base, 64, true), -EINVAL, "which does not order it after 1");
	is_int(drv->ops->device_sync(drv, 0), 0, "the host waits for all");
	is_int(work(3, base, 64, true), 0, "and all is free");
	glk_soft_run_all(drv);
}

static uint32_t dice(uint32_t sides)
{
	static uint64_t seed = 1;

	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(seed >> 33) % sides;
}

/*
 * Random programs against clocks of vectors: what[s][t] counts the operations of t that are
 * ordered before the end of s. A kernel is refused exactly if another stream's kernel on the
 * same cell has not run and is not ordered before it.
 */
enum { CELLS = 4, OPS = 24 };

static uint32_t now[STREAMS], done[STREAMS]; /* operations queued, and run */
static uint32_t clocks[STREAMS][STREAMS], snapshots[EVENTS][STREAMS];
static uint32_t last[CELLS][STREAMS]; /* the latest kernel of a stream on a cell */

static bool expected(uint32_t stream, uint32_t cell)
{
	for (uint32_t t = 0; t < STREAMS; t++)
		if (t != stream && last[cell][t] > done[t] &&
			last[cell][t] > clocks[stream][t])
			return false;
	return true;
}

/* One random operation; whether the device agreed with the clocks. */
static bool random_op(void)
{
	uint32_t s = dice(STREAMS), e = dice(EVENTS), cell = dice(CELLS);
	uint32_t count = 0;

	switch (dice(5)) {
	case 0:
		drv->ops->event_record(drv, events[e], streams[s]);
		clocks[s][s] = ++now[s];
		memcpy(snapshots[e], clocks[s], sizeof(snapshots[e]));
		return true;
	case 1:
		/* A wait for what has passed is not queued. */
		if (drv->ops->event_query(drv, events[e]))
			now[s]++;
		drv->ops->stream_wait(drv, streams[s], events[e]);
		for (uint32_t t = 0; t < STREAMS; t++)
			if (clocks[s][t] < snapshots[e][t])
				clocks[s][t] = snapshots[e][t];
		clocks[s][s] = now[s];
		return true;
	case 2:
		if (!glk_soft_step(drv, 0, streams[s]))
			done[s]++;
		glk_soft_pending(drv, 0, streams[s], &count);
		return now[s] - done[s] == count;
	default:
		if (work((int)s, (dice(2) ? base : alias) + cell * 512, 512, true))
			return !expected(s, cell);
		if (!expected(s, cell))
			return false;
		last[cell][s] = clocks[s][s] = ++now[s];
		return true;
	}
}

static void random_programs(void)
{
	uint32_t wrong = 0;

	for (int program = 0; program < 2000; program++) {
		for (int i = 0; i < OPS; i++)
			wrong += !random_op();
		drv->ops->device_sync(drv, 0);
		memcpy(done, now, sizeof(done));
	}
	is_int(wrong, 0, "2000 random programs, judged as vector clocks do");
}

int main(void)
{
	tap_plan_later();
	set_up();
	touches();
	orders();
	take_down();
	set_up();
	random_programs();
	take_down();
	return tap_done();
}
