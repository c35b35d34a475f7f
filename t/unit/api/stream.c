/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Streams that a context makes and ends, and dependencies, with a driver that refuses its part. */
#include "api/context.h"
#include "cache/bin/quick.h"
#include "soft/fault.h"
#include "soft/soft.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>

#define MIB ((size_t)1 << 20)

static struct glake *ctx;
static struct glk_context *context;

static void open_soft(void)
{
	static const char *const settings[] = {"soft.gpus=2", "soft.streams=stepped",
		"driver.fault=off", "map.span=8GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context))
		tap_bail("no context");
}

static int error_class(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error.error_class;
}

/* Its work is waited for, and its memory is everybody's then. */
static void ends(void)
{
	struct CUstream_st *a = NULL, *b = NULL;
	void *p = NULL, *q = NULL;
	uint64_t waits;

	glake_stream_new(ctx, 0, &a);
	glake_stream_new(ctx, 0, &b);
	glake_alloc(ctx, 0, 8 * MIB, a, 0, &p);
	glk_soft_work(context->drv, 0, a, (uint64_t)(uintptr_t)p, 8 * MIB, true);
	glake_free(ctx, p, a);
	glk_soft_hold(context->drv, 0, a, true);
	is_int(glake_stream_free(ctx, 0, a), -EBUSY, "work that does not end");
	glk_lock(&context->caches[0].lock);
	glk_quick_flush(&context->caches[0]);
	glk_unlock(&context->caches[0].lock);
	waits = context->caches[0].streams.waits;
	is_int(glake_alloc(ctx, 0, 8 * MIB, b, 0, &q), 0, "the stream is still known");
	ok(q == p, "as the one whose memory this is");
	is_int((int64_t)(context->caches[0].streams.waits - waits), 1,
		"which is waited for");
	glake_free(ctx, q, b);
	glk_soft_hold(context->drv, 0, a, false);
	is_int(glake_stream_free(ctx, 0, a), 0, "work that does");
	is_int(glake_stream_free(ctx, 0, a), -EINVAL, "ended twice");
	is_int(error_class(), GLAKE_ERROR_INVAL, "  its class");
	is_int(glake_stream_free(ctx, 0, b), 0, "the other one");
}

/* A stream that this context never allocated on, on a GPU that was never used. */
static void ends_unused(void)
{
	struct CUstream_st *a = NULL;

	is_int(glake_stream_new(ctx, 1, &a), 0, "a stream nobody uses");
	is_int(glake_stream_free(ctx, 0, a), -EINVAL, "is not of another GPU");
	is_int(glake_stream_free(ctx, 1, a), 0, "and ends");
	ok(!glk_load_relaxed(&context->caches[1].started), "nothing was begun for it");
}

static void fails(void)
{
	struct CUstream_st *a = (struct CUstream_st *)5, *b = NULL;
	void *p = NULL;

	glk_fault_set(context->drv, "stream_new:nth=1:err=ENOMEM");
	is_int(glake_stream_new(ctx, 0, &a), -ENOMEM, "no stream to be had");
	ok(a == (struct CUstream_st *)5, "the output is as it was");
	glake_stream_new(ctx, 0, &a);
	glake_alloc(ctx, 0, 100, a, 0, &p);
	glake_free(ctx, p, a);
	glk_fault_set(context->drv, "stream_sync:nth=1:err=EIO");
	is_int(glake_stream_free(ctx, 0, a), -EIO, "its work cannot be waited for");
	glk_fault_set(context->drv, "stream_free:nth=1:err=EIO");
	is_int(glake_stream_free(ctx, 0, a), -EIO, "it cannot be ended");
	glk_fault_set(context->drv, "off");
	glake_stream_new(ctx, 0, &b);
	is_int(glake_alloc(ctx, 0, 100, b, 0, &p), 0, "its memory can be had");
	is_int(glake_free(ctx, p, a), 0, "and freed on it");
	is_int(glake_stream_free(ctx, 0, a), 0, "later it ends");
	is_int(glake_stream_free(ctx, 0, b), 0, "so does the other");
}

/* Of dependencies. */
static struct CUstream_st *from, *to;

static void *give(struct CUstream_st *stream)
{
	void *p = NULL;

	if (glake_alloc(ctx, 0, 8 * MIB, stream, 0, &p) ||
		glk_soft_work(
			context->drv, 0, stream, (uint64_t)(uintptr_t)p, 8 * MIB, true))
		tap_bail("no block");
	return p;
}

/* Waits of the library for the next request on one stream of what the other freed: 0 or 1. */
static int waits_for(
	struct CUevent_st *event, const char *fault, int *ret_record, int *ret_wait)
{
	struct glk_streams *streams = &context->caches[0].streams;
	uint64_t waits;
	void *p = give(from), *q;

	glake_free(ctx, p, from);
	glake_trim(ctx, 0, SIZE_MAX, NULL);
	glk_fault_set(context->drv, fault);
	*ret_record = glake_event_record(ctx, 0, event, from);
	*ret_wait = glake_stream_wait(ctx, 0, to, event);
	glk_fault_set(context->drv, "off");
	waits = streams->waits;
	q = give(to);
	if (p != q)
		tap_bail("other memory");
	glake_free(ctx, q, to);
	waits = streams->waits - waits;
	glk_soft_run_all(context->drv);
	glake_trim(ctx, 0, SIZE_MAX, NULL);
	glk_soft_run_all(context->drv);
	glake_trim(ctx, 0, SIZE_MAX, NULL);
	return (int)waits;
}

static void orders(void)
{
	struct CUevent_st *event = NULL;
	int record, wait;

	glake_stream_new(ctx, 0, &from);
	glake_stream_new(ctx, 0, &to);
	is_int(glake_event_new(ctx, 0, &event), 0, "an event");
	is_int(waits_for(event, "off", &record, &wait), 0, "a dependency spares a wait");
	ok(!record && !wait, "both calls were made");
	is_int(waits_for(event, "user_event_record:nth=1:err=EIO", &record, &wait), 1,
		"a record that the driver refuses spares none");
	ok(record == -EIO && !wait, "and is told");
	is_int(waits_for(event, "user_event_wait:nth=1:err=EIO", &record, &wait), 1,
		"nor does a wait that it refuses");
	ok(!record && wait == -EIO, "which is told");
	is_int(waits_for(event, "stream_facts:nth=1:err=EIO", &record, &wait), 1,
		"nor one that cannot be noted");
	is_int(record, -EIO, "which is told, too");
	is_int(waits_for(event, "off", &record, &wait), 0, "later it does again");
	glk_fault_set(context->drv, "user_event_free:nth=1:err=EIO");
	is_int(glake_event_free(ctx, 0, event), -EIO, "an end that the driver refuses");
	glk_fault_set(context->drv, "user_event_new:nth=1:err=ENOMEM");
	is_int(glake_event_new(ctx, 0, &(struct CUevent_st *){NULL}), -ENOMEM,
		"as a beginning");
	glk_fault_set(context->drv, "off");
	is_int(glake_event_free(ctx, 0, event), 0, "later it ends");
	is_int(glake_stream_free(ctx, 0, from), 0, "a stream");
	is_int(glake_stream_free(ctx, 0, to), 0, "and the other");
}

int main(void)
{
	tap_plan_later();
	open_soft();
	orders();
	ends();
	ends_unused();
	fails();
	is_int(sound_close(ctx, NULL), 0, "closed");
	return tap_done();
}
