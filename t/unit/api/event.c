/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Dependencies by the public functions, with a driver that refuses its part. */
#include "api/context.h"
#include "driver/fault.h"
#include "driver/soft.h"
#include "tap.h"

#include <errno.h>
#include <glake/glake.h>

#define SIZE ((size_t)8 << 20)

static struct glake *ctx;
static struct glk_context *context;
static struct CUstream_st *a, *b;

static void open_soft(void)
{
	static const char *const settings[] = {
		"soft.streams=stepped", "driver.fault=off", "map.span=8GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context) ||
		glake_stream_new(ctx, 0, &a) || glake_stream_new(ctx, 0, &b))
		tap_bail("no context");
}

static void *give(struct CUstream_st *stream)
{
	void *p = NULL;

	if (glake_alloc(ctx, 0, SIZE, stream, 0, &p) ||
		glk_soft_work(
			context->drv, 0, stream, (uint64_t)(uintptr_t)p, SIZE, true))
		tap_bail("no block");
	return p;
}

/* Waits of the library for the next request on B of what A freed: 0 or 1. */
static int waits_for(
	struct CUevent_st *event, const char *fault, int *ret_record, int *ret_wait)
{
	struct glk_streams *streams = &context->caches[0].streams;
	uint64_t waits;
	void *p = give(a), *q;

	glake_free(ctx, p, a);
	glake_trim(ctx, 0, SIZE_MAX, NULL);
	glk_fault_set(context->drv, fault);
	*ret_record = glake_event_record(ctx, 0, event, a);
	*ret_wait = glake_stream_wait(ctx, 0, b, event);
	glk_fault_set(context->drv, "off");
	waits = streams->waits;
	q = give(b);
	if (p != q)
		tap_bail("other memory");
	glake_free(ctx, q, b);
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
}

int main(void)
{
	tap_plan_later();
	open_soft();
	orders();
	is_int(glake_stream_free(ctx, 0, a), 0, "a stream");
	is_int(glake_stream_free(ctx, 0, b), 0, "and the other");
	is_int(glake_close(ctx, NULL), 0, "closed");
	return tap_done();
}
