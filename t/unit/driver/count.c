/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Calls of each kind are counted, and their time is the modelled one or the measured one. */
#include "unit/soft/setup.h"

#include "base/clock.h"
#include "driver/count.h"
#include "soft/fault.h"
#include "soft/soft.h"

#include <errno.h>

static const struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};

static struct glake_driver_stats figures(struct glk_drv *drv)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	if (drv->ops->figures(drv, &stats))
		tap_bail("no figures");
	return stats;
}

/* One call of each kind. */
static void use(struct glk_drv *drv)
{
	struct glk_stream_facts facts;
	struct glk_drv_event *event;
	struct CUstream_st *stream;
	uint64_t base, page;

	drv->ops->reserve(drv, GRANULE, 0, &base);
	drv->ops->create(drv, setup_gpu(0), GRANULE, 0, &page);
	drv->ops->map(drv, base, GRANULE, page);
	drv->ops->set_access(drv, base, GRANULE, &grant, 1);
	drv->ops->stream_new(drv, 0, &stream);
	drv->ops->stream_facts(drv, 0, stream, &facts);
	drv->ops->stream_owner(drv, 0, stream);
	drv->ops->event_new(drv, 0, &event);
	drv->ops->event_record(drv, event, stream);
	drv->ops->event_query(drv, event);
	drv->ops->stream_wait(drv, stream, event);
	drv->ops->fill(drv, base, 1, 1, stream);
	drv->ops->stream_sync(drv, 0, stream);
	drv->ops->event_free(drv, event);
	drv->ops->stream_free(drv, 0, stream);
	drv->ops->unmap(drv, base, GRANULE);
	drv->ops->release(drv, page);
	drv->ops->unreserve(drv, base, GRANULE);
}

static void user_events(struct glk_drv *drv)
{
	struct glake_driver_stats before = figures(drv), after;
	struct CUevent_st *event = NULL;

	drv->ops->user_event_new(drv, 0, &event);
	drv->ops->user_event_record(drv, 0, event, NULL);
	drv->ops->user_event_wait(drv, 0, NULL, event);
	drv->ops->user_event_free(drv, event);
	after = figures(drv);
	for (int i = GLAKE_CALL_EVENT_CREATE; i <= GLAKE_CALL_STREAM_WAIT; i++)
		ok(after.calls[i] - before.calls[i] == (i != GLAKE_CALL_EVENT_QUERY),
			"events of the program, kind %d", i);
	is_int((int64_t)(after.calls[GLAKE_CALL_OTHER] - before.calls[GLAKE_CALL_OTHER]),
		1, "and their end");
}

static void counts(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *drv = setup_open(&conf);
	struct glake_driver_stats stats;
	int64_t sum = 0;
	uint64_t page = 0;

	stats = figures(drv);
	is_int((int64_t)stats.calls[GLAKE_CALL_OTHER], 0, "opening counts for nothing");
	use(drv);
	stats = figures(drv);
	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		sum += stats.ns[i];
	is_int(stats.now_ns, sum, "the clock is the sum");
	for (int i = GLAKE_CALL_RESERVE; i <= GLAKE_CALL_RELEASE; i++)
		is_int((int64_t)stats.calls[i], 1, "one call on memory each");
	is_int((int64_t)stats.calls[GLAKE_CALL_EXPORT], 0, "no export");
	for (int i = GLAKE_CALL_EVENT_CREATE; i <= GLAKE_CALL_STREAM_WAIT; i++)
		is_int((int64_t)stats.calls[i], 1, "one call on events each");
	is_int((int64_t)stats.calls[GLAKE_CALL_SYNC], 2,
		"the sync, and the end of the stream");
	is_int((int64_t)stats.calls[GLAKE_CALL_COPY], 1, "the fill");
	is_int((int64_t)stats.calls[GLAKE_CALL_OTHER], 2,
		"the rest, but for what is asked of a stream");
	is_int(stats.ns[GLAKE_CALL_SET_ACCESS], 22600, "modelled time");
	is_int(stats.ns[GLAKE_CALL_UNMAP], 15600, "of each kind");
	is_int(stats.ns[GLAKE_CALL_EVENT_QUERY], 200, "also of events");
	drv->ops->create(drv, setup_gpu(7), GRANULE, 0, &page);
	stats = figures(drv);
	is_int((int64_t)stats.calls[GLAKE_CALL_CREATE], 2, "failed calls count");
	user_events(drv);
	is_int(glk_drv_close(drv), 0, "closed");
}

/* A backend without a modelled clock, whose calls take a while. */
static int slow_memory_info(
	struct glk_drv *drv, int device, size_t *ret_free, size_t *ret_total)
{
	int64_t end = glk_clock_ns() + 20000;

	while (glk_clock_ns() < end)
		;
	*ret_free = *ret_total = 1;
	return 0;
}

static int slow_close(struct glk_drv *drv)
{
	return -EIO;
}

static void measures(void)
{
	const struct glk_drv_ops ops = {.version = GLK_DRV_OPS_VERSION,
		.name = "slow",
		.close = slow_close,
		.memory_info = slow_memory_info};
	struct glk_drv slow = {.ops = &ops}, *drv = NULL;
	struct glake_driver_stats stats;
	size_t left, total;

	is_int(glk_count_open(&slow, &drv), 0, "over a backend without a clock");
	drv->ops->memory_info(drv, 0, &left, &total);
	drv->ops->memory_info(drv, 0, &left, &total);
	stats = figures(drv);
	is_int((int64_t)stats.calls[GLAKE_CALL_OTHER], 2, "two calls");
	ok(stats.ns[GLAKE_CALL_OTHER] >= 40000, "take at least the time they wait");
	breaks(drv->ops->device_sync(drv, 0), -EOPNOTSUPP,
		"slow driver has no operation "
		"device_sync");
	stats = figures(drv);
	is_int((int64_t)stats.calls[GLAKE_CALL_SYNC], 1, "stubs count");
	is_int(glk_drv_close(drv), -EIO, "the backend's word at close is passed on");
}

int main(void)
{
	tap_plan_later();
	counts();
	measures();
	return tap_done();
}
