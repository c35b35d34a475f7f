/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Streams of the software device: order, events, waits, and what queued work holds. */
#include "setup.h"

#include "soft/soft.h"

#include <errno.h>

static const struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};

struct bench {
	struct glk_conf conf;
	struct glk_drv *drv;
	struct CUstream_st *a, *b;
	struct glk_drv_event *event;
	uint64_t base, page;
};

/* Two streams, an event, and one mapped page of two granules. */
static struct bench bench_open(int mode)
{
	struct bench b = {.conf = setup_conf()};
	int err;

	b.conf.soft_streams = mode;
	b.drv = setup_open(&b.conf);
	err = b.drv->ops->stream_new(b.drv, 0, &b.a);
	err |= b.drv->ops->stream_new(b.drv, 0, &b.b);
	err |= b.drv->ops->event_new(b.drv, 0, &b.event);
	err |= b.drv->ops->reserve(b.drv, 8 * GRANULE, 0, &b.base);
	err |= b.drv->ops->create(b.drv, setup_gpu(0), 2 * GRANULE, 0, &b.page);
	err |= b.drv->ops->map(b.drv, b.base, 2 * GRANULE, b.page);
	err |= b.drv->ops->set_access(b.drv, b.base, 2 * GRANULE, &grant, 1);
	if (err)
		tap_bail("the bench cannot be set up");
	return b;
}

static void bench_close(struct bench *b)
{
	int err;

	err = b->drv->ops->unmap(b->drv, b->base, 2 * GRANULE);
	err |= b->drv->ops->release(b->drv, b->page);
	err |= b->drv->ops->unreserve(b->drv, b->base, 8 * GRANULE);
	err |= b->drv->ops->event_free(b->drv, b->event);
	err |= b->drv->ops->stream_free(b->drv, 0, b->a);
	err |= b->drv->ops->stream_free(b->drv, 0, b->b);
	err |= glk_drv_close(b->drv);
	is_int(err, 0, "all is taken down, nothing is left");
}

static uint32_t pending(struct bench *b, struct CUstream_st *stream)
{
	uint32_t count = 99;

	glk_soft_pending(b->drv, 0, stream, &count);
	return count;
}

static void steps(void)
{
	struct bench b = bench_open(GLK_SOFT_STREAMS_STEPPED);
	uint32_t *words = (uint32_t *)b.base;

	is_int(glk_soft_step(b.drv, 0, b.a), -EAGAIN, "nothing to step");
	is_int(b.drv->ops->fill(b.drv, b.base, 5, 4, b.a), 0, "a fill");
	is_int(b.drv->ops->copy(b.drv, b.base + GRANULE, b.base, 16, b.a), 0, "a copy");
	is_int(b.drv->ops->event_record(b.drv, b.event, b.a), 0, "a record");
	is_int(pending(&b, b.a), 3, "all queued");
	is_int(words[0], 0, "none run");
	is_int(b.drv->ops->event_query(b.drv, b.event), -EAGAIN, "the event is pending");
	is_int(glk_soft_step(b.drv, 0, b.a), 0, "one step");
	is_int(words[3], 5, "the fill has run");
	is_int(words[4], 0, "no further than asked");
	is_int(words[GRANULE / 4], 0, "the copy has not");
	is_int(glk_soft_step(b.drv, 0, b.a), 0, "another");
	is_int(words[GRANULE / 4 + 3], 5, "the copy has run");
	is_int(b.drv->ops->event_query(b.drv, b.event), -EAGAIN,
		"the event is still pending");
	is_int(glk_soft_step(b.drv, 0, b.a), 0, "the last");
	is_int(b.drv->ops->event_query(b.drv, b.event), 0, "the event has passed");
	is_int(glk_soft_step(b.drv, 0, b.a), -EAGAIN, "nothing is left");
	bench_close(&b);
}

static void waits(void)
{
	struct bench b = bench_open(GLK_SOFT_STREAMS_STEPPED);
	uint32_t *words = (uint32_t *)b.base;

	b.drv->ops->fill(b.drv, b.base, 1, 1, b.a);
	b.drv->ops->event_record(b.drv, b.event, b.a);
	is_int(b.drv->ops->stream_wait(b.drv, b.b, b.event), 0, "b waits for a");
	b.drv->ops->fill(b.drv, b.base, 2, 1, b.b);
	is_int(glk_soft_step(b.drv, 0, b.b), -EAGAIN, "so b cannot run");
	/* A later record of the event does not move the wait. */
	b.drv->ops->fill(b.drv, b.base + 64, 9, 1, b.a);
	is_int(b.drv->ops->event_record(b.drv, b.event, b.a), 0,
		"the event is used again");
	glk_soft_step(b.drv, 0, b.a);
	glk_soft_step(b.drv, 0, b.a);
	is_int(words[0], 1, "a has run as far as the first record");
	is_int(glk_soft_step(b.drv, 0, b.b), 0, "b's wait is over");
	is_int(glk_soft_step(b.drv, 0, b.b), 0, "b runs");
	is_int(words[0], 2, "after a");
	is_int(b.drv->ops->event_query(b.drv, b.event), -EAGAIN,
		"the second record has not "
		"passed");

	/* Syncing b moves a as far as b needs it, and no further. */
	b.drv->ops->stream_wait(b.drv, b.b, b.event);
	b.drv->ops->fill(b.drv, b.base + 128, 3, 1, b.a);
	is_int(b.drv->ops->event_free(b.drv, b.event), 0, "a pending event may be freed");
	is_int(b.drv->ops->stream_sync(b.drv, 0, b.b), 0, "the host waits for b");
	is_int(words[16], 9, "a has run to the record");
	is_int(words[32], 0, "and no further");
	is_int(b.drv->ops->event_new(b.drv, 0, &b.event), 0, "a new event");
	is_int(b.drv->ops->event_sync(b.drv, b.event), 0, "never recorded, is no wait");
	is_int(b.drv->ops->event_query(b.drv, b.event), 0,
		"knows nothing of the old one");
	is_int(b.drv->ops->device_sync(b.drv, 0), 0, "the host waits for all");
	is_int(words[32], 3, "all has run");

	/* So does waiting for an event. */
	b.drv->ops->fill(b.drv, b.base, 4, 1, b.a);
	b.drv->ops->event_record(b.drv, b.event, b.a);
	b.drv->ops->stream_wait(b.drv, b.b, b.event);
	b.drv->ops->fill(b.drv, b.base, 5, 1, b.b);
	b.drv->ops->event_record(b.drv, b.event, b.b);
	b.drv->ops->fill(b.drv, b.base, 6, 1, b.b);
	is_int(b.drv->ops->event_sync(b.drv, b.event), 0, "the host waits for an event");
	is_int(words[0], 5, "what it stands behind has run");
	is_int(pending(&b, b.b), 1, "and no more");
	is_int(b.drv->ops->event_sync(b.drv, b.event), 0, "it has passed");
	is_int(pending(&b, b.b), 1, "and runs nothing more");
	b.drv->ops->event_record(b.drv, b.event, b.b);
	glk_soft_hold(b.drv, 0, b.b, true);
	breaks(b.drv->ops->event_sync(b.drv, b.event), -EBUSY, "is held");
	glk_soft_hold(b.drv, 0, b.b, false);
	b.drv->ops->device_sync(b.drv, 0);
	bench_close(&b);
}

static void runs_at_once(void)
{
	struct bench b = bench_open(GLK_SOFT_STREAMS_WORKER);
	uint32_t *words = (uint32_t *)b.base;

	b.drv->ops->fill(b.drv, b.base, 5, 1, b.a);
	b.drv->ops->event_record(b.drv, b.event, b.a);
	is_int(words[0], 5, "a fill runs at once");
	is_int(b.drv->ops->event_query(b.drv, b.event), 0, "and the event has passed");
	is_int(glk_soft_hold(b.drv, 0, b.a, true), 0, "stream a is held");
	b.drv->ops->fill(b.drv, b.base, 6, 1, b.a);
	b.drv->ops->event_record(b.drv, b.event, b.a);
	b.drv->ops->stream_wait(b.drv, b.b, b.event);
	b.drv->ops->copy(b.drv, b.base + GRANULE, b.base, 4, b.b);
	is_int(words[0], 5, "its work waits");
	is_int(b.drv->ops->event_query(b.drv, b.event), -EAGAIN, "its event too");
	is_int(pending(&b, b.b), 2, "and who waits for it");
	breaks(b.drv->ops->stream_sync(b.drv, 0, b.b), -EBUSY, "is held");
	is_int(glk_soft_hold(b.drv, 0, b.a, false), 0, "stream a goes on");
	is_int(words[GRANULE / 4], 6, "and all with it, in order");
	is_int(pending(&b, b.a) + pending(&b, b.b), 0, "nothing is queued");
	bench_close(&b);
}

/* Queued work holds what it names. */
static void holds_memory(void)
{
	struct bench b = bench_open(GLK_SOFT_STREAMS_STEPPED);
	struct glk_grant read = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_READ};
	uint64_t alias = b.base + 4 * GRANULE;
	int err;

	is_int(glk_soft_work(b.drv, 0, b.a, b.base + GRANULE, 64, true), 0, "a kernel");
	err = b.drv->ops->unmap(b.drv, b.base, 2 * GRANULE);
	is_int(err, -EINVAL, "no unmap while it is queued");
	has_str(setup_error().text, "cuMemUnmap rule: ", "names the call");
	has_str(setup_error().text, "kernel of 64 bytes", "names the work");
	has_str(setup_error().text, "operation 1 on stream 3 of GPU 0",
		"and where it stands");
	breaks(b.drv->ops->set_access(b.drv, b.base, 2 * GRANULE, &read, 1), -EINVAL,
		"cuMemSetAccess rule");
	is_int(b.drv->ops->map(b.drv, alias, 2 * GRANULE, b.page), 0,
		"an alias is no matter");
	is_int(b.drv->ops->unmap(b.drv, alias, 2 * GRANULE), 0, "nor is its unmap");
	is_int(glk_soft_run_all(b.drv), 0, "the kernel runs");
	is_int(b.drv->ops->set_access(b.drv, b.base, 2 * GRANULE, &read, 1), 0,
		"then rights may shrink");
	breaks(glk_soft_work(b.drv, 0, b.a, b.base, 64, true), -EINVAL,
		"GPU 0 may not write");
	is_int(glk_soft_work(b.drv, 0, b.a, b.base, 64, false), 0, "reading is right");
	breaks(glk_soft_work(b.drv, 0, b.a, b.base, 2 * GRANULE + 1, false), -EINVAL,
		"nothing is mapped there");
	is_int(b.drv->ops->set_access(b.drv, b.base, 2 * GRANULE, &grant, 1), 0,
		"rights may grow while work is queued");
	breaks(b.drv->ops->unmap(b.drv, b.base, 2 * GRANULE), -EINVAL,
		"work not yet run");
	glk_soft_run_all(b.drv);
	bench_close(&b);
}

static void knows_its_handles(void)
{
	struct bench b = bench_open(GLK_SOFT_STREAMS_WORKER);
	struct CUstream_st *old = b.a, *far = NULL;
	uint32_t count = 0;

	is_int(b.drv->ops->stream_free(b.drv, 0, b.a), 0, "a stream goes");
	is_int(b.drv->ops->stream_new(b.drv, 0, &b.a), 0, "another comes");
	ok(b.a != old, "with another handle");
	breaks(b.drv->ops->stream_sync(b.drv, 0, old), -EINVAL,
		"no stream of the software "
		"device, or was freed");
	breaks(b.drv->ops->event_record(b.drv, b.event, old), -EINVAL, "was freed");
	breaks(b.drv->ops->stream_wait(b.drv, old, b.event), -EINVAL, "was freed");
	breaks(b.drv->ops->fill(b.drv, b.base, 0, 1, old), -EINVAL, "was freed");
	breaks(b.drv->ops->stream_sync(b.drv, 0, (struct CUstream_st *)&b), -EINVAL,
		"is no stream");
	breaks(b.drv->ops->stream_sync(b.drv, 1, b.a), -EINVAL, "of GPU 0, not of GPU 1");
	breaks(b.drv->ops->stream_sync(b.drv, 5, b.a), -EINVAL, "GPU 5 does not exist");
	breaks(b.drv->ops->stream_free(b.drv, 0, NULL), -EINVAL, "default streams");
	breaks(b.drv->ops->stream_new(b.drv, 7, &far), -EINVAL, "GPU 7 does not exist");
	breaks(b.drv->ops->device_sync(b.drv, -1), -EINVAL, "GPU -1 does not exist");
	is_int(b.drv->ops->stream_new(b.drv, 1, &far), 0, "a stream of GPU 1");
	breaks(b.drv->ops->fill(b.drv, b.base, 0, 1, far), -EINVAL,
		"GPU 1 may not write");
	is_int(b.drv->ops->stream_free(b.drv, 1, far), 0, "goes");
	is_int(b.drv->ops->event_record(b.drv, b.event, NULL), 0,
		"the default stream is one");
	is_int(b.drv->ops->stream_wait(b.drv, NULL, b.event), 0, "for waits too");
	is_int(b.drv->ops->fill(b.drv, b.base, 1, 1, NULL), 0, "and for fills");
	is_int(b.drv->ops->copy(b.drv, b.base, b.base + GRANULE, 0, NULL), 0,
		"nothing is copied by nobody");
	is_int(glk_soft_pending(b.drv, 0, NULL, &count), 0, "its queue");
	bench_close(&b);
}

/* What is asked of streams most, which takes no lock while they capture nothing. */
static void tells_of_them(int mode)
{
	struct bench b = bench_open(mode);
	struct glk_stream_facts facts = {0}, again = {0}, other = {0};
	struct CUstream_st *gone = NULL, *next = NULL;
	uint32_t graph = 0;

	is_int(b.drv->ops->stream_facts(b.drv, 0, b.a, &facts), 0, "a stream");
	b.drv->ops->stream_facts(b.drv, 0, b.a, &again);
	b.drv->ops->stream_facts(b.drv, 0, b.b, &other);
	ok(facts.id && facts.id == again.id && facts.id != other.id,
		"has a number of its own");
	breaks(b.drv->ops->stream_facts(b.drv, 1, b.a, &other), -EINVAL,
		"of GPU 0, not of GPU 1");
	is_int(b.drv->ops->stream_facts(b.drv, 0, NULL, &other), 0, "the legacy stream");
	is_int((int64_t)other.id, 0, "has none");
	breaks(b.drv->ops->stream_facts(b.drv, 0, (struct CUstream_st *)0x53, &other),
		-EINVAL, "is no stream");
	is_int(glk_soft_capture_begin(b.drv, 0, b.a), 0, "one that captures");
	b.drv->ops->stream_facts(b.drv, 0, b.a, &again);
	ok(again.capture && !again.id, "says which graph");
	is_int(glk_soft_capture_end(b.drv, 0, b.a, &graph), 0, "and afterwards");
	b.drv->ops->stream_facts(b.drv, 0, b.a, &again);
	ok(!again.capture && again.id == facts.id, "it is what it was");
	glk_soft_graph_free(b.drv, graph);
	b.drv->ops->stream_new(b.drv, 0, &gone);
	b.drv->ops->stream_facts(b.drv, 0, gone, &facts);
	b.drv->ops->stream_free(b.drv, 0, gone);
	breaks(b.drv->ops->stream_facts(b.drv, 0, gone, &again), -EINVAL, "is no stream");
	b.drv->ops->stream_new(b.drv, 0, &next);
	breaks(b.drv->ops->stream_facts(b.drv, 0, gone, &again), -EINVAL, "is no stream");
	is_int(b.drv->ops->stream_facts(b.drv, 0, next, &again), 0, "the next one");
	ok(next != gone && again.id != facts.id, "has another number");
	b.drv->ops->stream_free(b.drv, 0, next);
	bench_close(&b);
}

int main(void)
{
	tap_plan_later();
	steps();
	waits();
	runs_at_once();
	holds_memory();
	knows_its_handles();
	tells_of_them(GLK_SOFT_STREAMS_WORKER);
	tells_of_them(GLK_SOFT_STREAMS_RANDOM);
	return tap_done();
}
