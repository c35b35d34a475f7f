/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Beside a stream that captures a graph (fault 13): in each mode of capture, from the thread
 * that captures and from another, every operation but work on that stream itself, and after
 * each the capture is still alive.
 */
#include "gpu.h"

#include <pthread.h>

#define CAPTURE_ACTIVE 1

static struct glk_drv *drv;
static struct gpu_extra cuda;
static struct CUstream_st *captured, *other;
static struct glk_drv_event *passed, *pending;
static struct gate gate;
static uint64_t span, target;

/* Says which operation ended the capture, if one did. */
static void lives(int err, int want, const char *what)
{
	int status = -1;

	if (!is_int(err, want, what))
		gpu_why();
	ok(!cuda.is_capturing(captured, &status) && status == CAPTURE_ACTIVE,
		"%s: the capture lives", what);
}

static void memory(void)
{
	struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};
	struct glake_device info = {.sz = sizeof(info)};
	uint64_t addr = 0, page = 0;
	size_t free = 0, total = 0;

	lives(drv->ops->memory_info(drv, 0, &free, &total), 0, "memory info");
	lives(drv->ops->device_info(drv, 0, &info), 0, "device info");
	lives(drv->ops->reserve(drv, PAGE, PAGE, &addr), 0, "reserve");
	lives(drv->ops->create(drv, grant.who, PAGE, 0, &page), 0, "create");
	lives(drv->ops->map(drv, addr, PAGE, page), 0, "map");
	lives(drv->ops->set_access(drv, addr, PAGE, &grant, 1), 0, "set access");
	lives(drv->ops->fill(drv, addr, 1, PAGE / 4, other), 0, "fill on another stream");
	lives(drv->ops->stream_sync(drv, 0, other), 0, "wait for another stream");
	lives(drv->ops->unmap(drv, addr, PAGE), 0, "unmap");
	lives(drv->ops->release(drv, page), 0, "release");
	lives(drv->ops->unreserve(drv, addr, PAGE), 0, "unreserve");
}

static void streams(void)
{
	struct CUstream_st *stream = NULL;
	struct glk_drv_event *event = NULL;
	struct glk_stream_facts facts = {0};

	lives(drv->ops->stream_facts(drv, 0, captured, &facts), 0, "asked");
	ok(facts.capture && facts.capture != GLK_CAPTURE_BROKEN, "it captures");
	ok(!facts.id, "and has no number meanwhile");
	lives(drv->ops->stream_facts(drv, 0, other, &facts), 0, "asked of another");
	ok(!facts.capture, "it does not");
	ok(facts.id, "and has a number");
	lives(drv->ops->stream_owner(drv, 0, captured), 0, "whose it is");
	lives(drv->ops->stream_facts(drv, 0, NULL, &facts), 0, "the default stream");
	ok(!facts.capture, "which a non-blocking stream does not disturb");
	lives(drv->ops->stream_facts(drv, 0, GLK_STREAM_PER_THREAD, &facts), 0,
		"the thread's own");
	lives(drv->ops->event_query(drv, passed), 0, "query an event that passed");
	lives(drv->ops->event_query(drv, pending), -EAGAIN,
		"query an event that has not");
	lives(drv->ops->event_new(drv, 0, &event), 0, "new event");
	lives(drv->ops->stream_new(drv, 0, &stream), 0, "new stream");
	lives(drv->ops->event_record(drv, event, stream), 0, "record on another stream");
	lives(drv->ops->stream_wait(drv, stream, passed), 0, "wait on another stream");
	lives(drv->ops->stream_free(drv, 0, stream), 0, "end the other stream");
	lives(drv->ops->event_free(drv, event), 0, "end the event");
}

static void *elsewhere(void *arg)
{
	tap_note("from another thread");
	memory();
	streams();
	return arg;
}

/* The driver has three modes: global 0, thread-local 1, relaxed 2. */
static void capture(int mode)
{
	static struct CUstream_st *held;
	void *graph = NULL;
	pthread_t thread;

	tap_note("capture in mode %d", mode);
	must(drv->ops->stream_new(drv, 0, &held), "no stream");
	is_int(gate_close(&cuda, &gate, held), 0, "hold a stream");
	must(drv->ops->event_record(drv, pending, held), "no record");

	cuda.context_set(cuda.primary);
	if (cuda.begin_capture(captured, mode))
		tap_bail("cuStreamBeginCapture");
	cuda.context_set(NULL);
	lives(drv->ops->fill(drv, target, 7, 16, captured), 0, "captured work");
	memory();
	streams();
	if (pthread_create(&thread, NULL, elsewhere, NULL))
		tap_bail("no thread");
	pthread_join(thread, NULL);
	lives(drv->ops->fill(drv, target, 8, 16, captured), 0, "more captured work");
	cuda.context_set(cuda.primary);
	is_int(cuda.end_capture(captured, &graph), 0, "end of the capture");
	ok(graph, "which gives its graph");
	if (graph)
		cuda.graph_destroy(graph);
	cuda.context_set(NULL);
	is_int(atomic_load(&gate.late), 0, "nothing waited for the stream held");
	gate_open(&gate);
	is_done(drv->ops->stream_free(drv, 0, held), "let it go");
}

/* An event recorded in a capture belongs to the graph: an answer, no harm. */
static void event_inside(void)
{
	struct glk_drv_event *event = NULL;
	void *graph = NULL;
	struct glk_stream_facts facts = {0};

	must(drv->ops->event_new(drv, 0, &event), "no event");
	cuda.context_set(cuda.primary);
	if (cuda.begin_capture(captured, 0))
		tap_bail("cuStreamBeginCapture");
	is_done(drv->ops->event_record(drv, event, captured),
		"record on the capturing stream");
	is_int(drv->ops->event_query(drv, event), -EBUSY, "its query is refused");
	is_int(gpu_class(), GLAKE_ERROR_CAPTURE, "because of the capture");
	gpu_why();
	cuda.end_capture(captured, &graph);
	if (graph)
		cuda.graph_destroy(graph);
	cuda.context_set(NULL);
	is_done(drv->ops->stream_facts(drv, 0, captured, &facts), "asked after it");
	ok(!facts.capture, "no capture is left");
	is_done(drv->ops->event_free(drv, event), "end the event");
	is_done(drv->ops->fill(drv, target, 9, 16, captured), "the stream works again");
	is_done(drv->ops->stream_sync(drv, 0, captured), "and ends its work");
}

static uint64_t capture_of(struct CUstream_st *stream)
{
	struct glk_stream_facts facts = {0, 77};

	is_done(drv->ops->stream_facts(drv, 0, stream, &facts), "asked");
	return facts.capture;
}

static void begin(void)
{
	cuda.context_set(cuda.primary);
	if (cuda.begin_capture(captured, 0))
		tap_bail("cuStreamBeginCapture");
	cuda.context_set(NULL);
}

static int end(void)
{
	void *graph = NULL;
	int result;

	cuda.context_set(cuda.primary);
	result = cuda.end_capture(captured, &graph);
	if (graph)
		cuda.graph_destroy(graph);
	cuda.context_set(NULL);
	return result;
}

/* Events of the program fork and join a capture, and break one, as on the software device. */
static void forked(void)
{
	struct CUevent_st *fork = NULL, *join = NULL;
	uint64_t first;

	must(drv->ops->user_event_new(drv, 0, &fork), "no event");
	must(drv->ops->user_event_new(drv, 0, &join), "no event");
	begin();
	first = capture_of(captured);
	ok(first && first != GLK_CAPTURE_BROKEN, "a capture has a number");
	is_done(drv->ops->user_event_record(drv, 0, fork, captured), "record in it");
	is_done(drv->ops->user_event_wait(drv, 0, other, fork), "another stream waits");
	ok(capture_of(other) == first, "and is in the same capture");
	is_done(drv->ops->fill(drv, target, 1, 16, other), "it works there");
	is_done(drv->ops->user_event_record(drv, 0, join, other), "records");
	is_done(drv->ops->user_event_wait(drv, 0, captured, join), "and is waited for");
	is_int(end(), 0, "the end gives a graph");
	is_int(capture_of(other), 0, "and frees both streams");

	begin();
	ok(capture_of(captured) != first, "another capture, another number");
	is_done(drv->ops->user_event_record(drv, 0, fork, captured), "record in it");
	is_done(drv->ops->user_event_wait(drv, 0, other, fork), "another stream waits");
	is_done(drv->ops->fill(drv, target, 1, 16, other), "works, and is forgotten");
	is_int(end(), 904, "the end says so");
	is_int(capture_of(other), 0, "and frees both streams");

	is_done(drv->ops->user_event_record(drv, 0, join, other),
		"an event from outside");
	begin();
	is_int(drv->ops->user_event_wait(drv, 0, captured, join), -EBUSY,
		"is not waited for");
	is_int(gpu_class(), GLAKE_ERROR_CAPTURE, "because of the capture");
	gpu_why();
	ok(capture_of(captured) == GLK_CAPTURE_BROKEN, "which is broken now");
	is_int(drv->ops->stream_owner(drv, 0, captured), -EBUSY, "whose nobody knows");
	is_int(drv->ops->user_event_record(drv, 0, fork, captured), -EBUSY,
		"nor is anything recorded");
	is_int(end(), 901, "it ends without a graph");
	is_int(capture_of(captured), 0, "and is over");
	is_done(drv->ops->user_event_free(drv, fork), "end an event");
	is_done(drv->ops->user_event_free(drv, join), "end the other");
}

int main(void)
{
	uint64_t page = 0;

	drv = gpu_open();
	tap_plan_later();
	cuda = gpu_extra();
	must(drv->ops->stream_new(drv, 0, &captured), "no stream");
	must(drv->ops->stream_new(drv, 0, &other), "no stream");
	must(drv->ops->event_new(drv, 0, &passed), "no event");
	must(drv->ops->event_new(drv, 0, &pending), "no event");
	must(drv->ops->reserve(drv, PAGE, PAGE, &span), "no addresses");
	must(drv->ops->create(drv, (struct glk_place){GLK_PLACE_GPU, 0}, PAGE, 0, &page),
		"no page");
	must(gpu_map(drv, 0, span, PAGE, page), "no mapping");
	target = span;
	must(drv->ops->event_record(drv, passed, other), "no record");
	must(drv->ops->fill(drv, target, 1, 16, captured), "no fill");
	must(drv->ops->device_sync(drv, 0), "no sync");

	for (int mode = 0; mode < 3; mode++)
		capture(mode);
	event_inside();
	forked();

	is_done(drv->ops->unmap(drv, span, PAGE), "unmap");
	is_done(drv->ops->release(drv, page), "release");
	is_done(drv->ops->unreserve(drv, span, PAGE), "unreserve");
	is_done(drv->ops->event_free(drv, passed), "end an event");
	is_done(drv->ops->event_free(drv, pending), "end the other");
	is_done(drv->ops->stream_free(drv, 0, captured), "end a stream");
	is_done(drv->ops->stream_free(drv, 0, other), "end the other");
	is_done(drv->ops->close(drv), "close");
	return tap_done();
}
