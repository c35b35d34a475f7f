/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "stress/program/oracle.h"

#include "soft/soft.h"
#include "tap.h"

#include <glake/error.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS	 1024
#define ACCESSES 16384
#define GRANULE	 ((uint64_t)2 << 20)

struct clock {
	uint32_t at[ORACLE_STREAMS];
};

struct access {
	uint64_t page;
	size_t first, end; /* bytes of the page */
	uint32_t serial;   /* of the stream's accesses */
	uint32_t place; /* of the operation in its stream's queue; 0: a node of a graph */
	uint8_t stream;
	bool write;
};

struct lane {
	struct CUstream_st *handle;
	uint32_t queued; /* operations ever */
	bool captures;
};

struct event {
	const void *key;
	bool captured;
	struct clock clock;
};

/* One of the order in which streams run, one of that of the nodes of a graph. */
struct order {
	struct clock clock[ORACLE_STREAMS];
	struct access access[ACCESSES];
	unsigned count;
};

struct oracle {
	struct glk_drv *drv;
	const struct glk_drv_ops *inner;
	struct glk_drv_ops ops;
	struct lane lane[ORACLE_STREAMS];
	unsigned lanes;
	struct event event[EVENTS];
	unsigned events;
	struct order run, graph;
	uint64_t judged;
	char text[512];
};

/* The driver's table has no room for an argument. One world at a time. */
static struct oracle *the;

static unsigned lane_of(struct oracle *o, struct CUstream_st *stream)
{
	for (unsigned i = 0; i < o->lanes; i++) {
		if (o->lane[i].handle == stream)
			return i;
	}
	if (o->lanes == ORACLE_STREAMS)
		tap_bail("more streams than the oracle knows");
	o->lane[o->lanes] = (struct lane){.handle = stream};
	return o->lanes++;
}

static struct event *event_of(struct oracle *o, const void *key)
{
	for (unsigned i = 0; i < o->events; i++) {
		if (o->event[i].key == key)
			return &o->event[i];
	}
	if (o->events == EVENTS)
		tap_bail("more events than the oracle knows");
	o->event[o->events] = (struct event){.key = key};
	return &o->event[o->events++];
}

static uint32_t pending(struct oracle *o, struct CUstream_st *stream)
{
	uint32_t count = 0;

	glk_soft_pending(o->drv, 0, stream, &count);
	return count;
}

/* Books what a call queued; its place in the queue, 0 if it has run or is no operation. */
static uint32_t queued(struct oracle *o, unsigned lane, uint32_t before)
{
	uint32_t now = pending(o, o->lane[lane].handle);

	if (now <= before)
		return 0;
	o->lane[lane].queued += now - before;
	return o->lane[lane].queued;
}

static void join(struct clock *a, const struct clock *b)
{
	for (unsigned i = 0; i < ORACLE_STREAMS; i++) {
		if (a->at[i] < b->at[i])
			a->at[i] = b->at[i];
	}
}

static void recorded(struct oracle *o, unsigned lane, const void *event)
{
	bool captures = o->lane[lane].captures;
	struct event *e = event_of(o, event);

	e->captured = captures;
	e->clock = captures ? o->graph.clock[lane] : o->run.clock[lane];
}

static void waited(struct oracle *o, unsigned lane, const void *event)
{
	const struct event *e = event_of(o, event);

	if (!e->captured) {
		join(&o->run.clock[lane], &e->clock);
		return;
	}
	o->lane[lane].captures = true;
	join(&o->graph.clock[lane], &e->clock);
}

static int see_record(
	struct glk_drv *drv, struct glk_drv_event *event, struct CUstream_st *stream)
{
	unsigned lane = lane_of(the, stream);
	uint32_t before = pending(the, stream);
	int err = the->inner->event_record(drv, event, stream);

	queued(the, lane, before);
	if (!err)
		recorded(the, lane, event);
	return err;
}

static int see_wait(
	struct glk_drv *drv, struct CUstream_st *stream, struct glk_drv_event *event)
{
	unsigned lane = lane_of(the, stream);
	uint32_t before = pending(the, stream);
	int err = the->inner->stream_wait(drv, stream, event);

	queued(the, lane, before);
	if (!err)
		waited(the, lane, event);
	return err;
}

static int see_user_record(struct glk_drv *drv, int device, struct CUevent_st *event,
	struct CUstream_st *stream)
{
	unsigned lane = lane_of(the, stream);
	uint32_t before = pending(the, stream);
	int err = the->inner->user_event_record(drv, device, event, stream);

	queued(the, lane, before);
	if (!err)
		recorded(the, lane, event);
	return err;
}

static int see_user_wait(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct CUevent_st *event)
{
	unsigned lane = lane_of(the, stream);
	uint32_t before = pending(the, stream);
	int err = the->inner->user_event_wait(drv, device, stream, event);

	queued(the, lane, before);
	if (!err)
		waited(the, lane, event);
	return err;
}

/* Work of the library itself is judged by the device alone, but stands in the queue. */
static int see_launch(struct glk_drv *drv, int device, const struct glk_launch *launch,
	struct CUstream_st *stream)
{
	unsigned lane = lane_of(the, stream);
	uint32_t before = pending(the, stream);
	int err = the->inner->launch(drv, device, launch, stream);

	queued(the, lane, before);
	return err;
}

static int see_fill(struct glk_drv *drv, uint64_t dst, uint32_t value, size_t count,
	struct CUstream_st *stream)
{
	unsigned lane = lane_of(the, stream);
	uint32_t before = pending(the, stream);
	int err = the->inner->fill(drv, dst, value, count, stream);

	queued(the, lane, before);
	return err;
}

struct oracle *oracle_new(struct glk_drv *drv)
{
	struct oracle *o = calloc(1, sizeof(*o));

	if (!o)
		tap_bail("no memory for the oracle");
	o->drv = drv;
	o->inner = drv->ops;
	o->ops = *drv->ops;
	o->ops.event_record = see_record;
	o->ops.stream_wait = see_wait;
	o->ops.user_event_record = see_user_record;
	o->ops.user_event_wait = see_user_wait;
	o->ops.launch = see_launch;
	o->ops.fill = see_fill;
	drv->ops = &o->ops;
	the = o;
	return o;
}

void oracle_free(struct oracle *o)
{
	o->drv->ops = o->inner;
	the = NULL;
	free(o);
}

void oracle_reset(struct oracle *o)
{
	o->lanes = 0;
	o->events = 0;
	memset(&o->run.clock, 0, sizeof(o->run.clock));
	memset(&o->graph.clock, 0, sizeof(o->graph.clock));
	o->run.count = 0;
	o->graph.count = 0;
}

static bool has_run(struct oracle *o, const struct access *a)
{
	const struct lane *lane = &o->lane[a->stream];

	return a->place + pending(o, lane->handle) <= lane->queued;
}

/* Work that has run is ordered before all that comes. */
static void forget(struct oracle *o)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < o->run.count; i++) {
		if (!has_run(o, &o->run.access[i]))
			o->run.access[kept++] = o->run.access[i];
	}
	o->run.count = kept;
}

static bool collide(const struct access *a, const struct access *b)
{
	return (a->write || b->write) && a->page == b->page && a->first < b->end &&
		b->first < a->end;
}

static const char *judge(struct oracle *o, struct order *order, const struct access *a)
{
	const struct clock *now = &order->clock[a->stream];

	o->judged++;
	for (unsigned i = 0; i < order->count; i++) {
		const struct access *b = &order->access[i];

		if (!collide(a, b) || b->serial <= now->at[b->stream])
			continue;
		snprintf(o->text, sizeof(o->text),
			"oracle: access %u of stream %u %s page %llu [%zx, %zx), which access "
			"%u of stream %u %s, not ordered before it",
			a->serial, a->stream, a->write ? "writes" : "reads",
			(unsigned long long)a->page, a->first, a->end, b->serial,
			b->stream, b->write ? "writes" : "reads");
		return o->text;
	}
	return NULL;
}

/* Judges a range piece by piece, and books it. */
static const char *see(struct oracle *o, struct order *order, struct access like,
	uint64_t addr, size_t size)
{
	const char *wrong = NULL;
	uint64_t end = addr + size, next;

	like.serial = order->clock[like.stream].at[like.stream] + 1;
	for (uint64_t at = addr; at < end && !wrong; at = next) {
		struct access a = like;

		next = (at / GRANULE + 1) * GRANULE < end ? (at / GRANULE + 1) * GRANULE
							  : end;
		if (glk_soft_physical(o->drv, at, &a.page, &a.first))
			return "oracle: nothing is mapped where work was queued";
		a.end = a.first + (next - at);
		if (order->count == ACCESSES)
			tap_bail("more work than the oracle keeps");
		wrong = judge(o, order, &a);
		order->access[order->count++] = a;
	}
	order->clock[like.stream].at[like.stream] = like.serial;
	return wrong;
}

static const char *device_says(struct oracle *o)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	snprintf(o->text, sizeof(o->text), "device: %s", record.text);
	return o->text;
}

const char *oracle_work(struct oracle *o, struct CUstream_st *stream, uint64_t addr,
	size_t size, bool write)
{
	unsigned lane = lane_of(o, stream);
	struct access a = {.stream = (uint8_t)lane, .write = write};
	uint32_t before = pending(o, stream);
	const char *wrong;

	if (o->lane[lane].captures) {
		wrong = see(o, &o->graph, a, addr, size);
		if (!wrong && glk_soft_work(o->drv, 0, stream, addr, size, write))
			wrong = device_says(o);
		return wrong;
	}
	forget(o);
	/* both judges see each, and either may find what is wrong first */
	a.place = o->lane[lane].queued + 1;
	wrong = see(o, &o->run, a, addr, size);
	if (!wrong && glk_soft_work(o->drv, 0, stream, addr, size, write))
		wrong = device_says(o);
	queued(o, lane, before);
	return wrong;
}

void oracle_launched(
	struct oracle *o, struct CUstream_st *stream, uint32_t queued, unsigned nodes)
{
	/* what stands before the nodes orders launches of one graph */
	if (queued > nodes)
		o->lane[lane_of(o, stream)].queued += queued - nodes;
}

const char *oracle_replayed(struct oracle *o, struct CUstream_st *stream, uint64_t addr,
	size_t size, bool write)
{
	unsigned lane = lane_of(o, stream);
	struct access a = {.stream = (uint8_t)lane, .write = write};

	forget(o);
	a.place = ++o->lane[lane].queued;
	return see(o, &o->run, a, addr, size);
}

void oracle_capture(struct oracle *o, struct CUstream_st *stream)
{
	memset(&o->graph.clock, 0, sizeof(o->graph.clock));
	o->graph.count = 0;
	o->lane[lane_of(o, stream)].captures = true;
}

void oracle_capture_end(struct oracle *o)
{
	for (unsigned i = 0; i < o->lanes; i++)
		o->lane[i].captures = false;
}

bool oracle_captures(struct oracle *o, struct CUstream_st *stream)
{
	return o->lane[lane_of(o, stream)].captures;
}

uint64_t oracle_judged(const struct oracle *o)
{
	return o->judged;
}
