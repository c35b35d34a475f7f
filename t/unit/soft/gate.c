/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Streams that wait for the host: work behind a gate runs when it is open, and not before. */
#include "queues.h"

#include "base/slab.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define BYTES 4096

static struct glk_drv_gate *gate;

static int put(int stream, uint32_t number)
{
	return drv->ops->gate(drv, 0, streams[stream], gate, number);
}

static void begin_with(int how, bool gates)
{
	struct glk_conf conf = setup_conf();

	conf.soft_gates = gates;
	conf.soft_streams = how;
	set_up(&conf);
	gate = glk_region_new(BYTES);
	if (!gate)
		tap_bail("no memory");
}

static void over(void)
{
	take_down();
	glk_region_free(gate, BYTES);
}

static void refused(void)
{
	uint32_t graph;

	begin_with(GLK_SOFT_STREAMS_WORKER, false);
	is_int(put(0, 1), -EOPNOTSUPP, "a device without");
	over();
	begin_with(GLK_SOFT_STREAMS_WORKER, true);
	is_int(put(0, 1), -EINVAL, "words that are not locked");
	is_int(drv->ops->host_lock(drv, 0, gate, BYTES), 0, "they are");
	is_int(drv->ops->gate(drv, 7, NULL, gate, 1), -EINVAL, "no such GPU");
	is_int(begin(0), 0, "a stream that captures");
	is_int(put(0, 1), -EBUSY, "  has none");
	is_int(end(0, &graph), -EIO, "  and its capture is broken");
	is_int(drv->ops->host_unlock(drv, 0, gate), 0, "let go");
	over();
}

/* Opens the next one when the stream has come there. */
static void *opens(void *arg)
{
	static const struct timespec soon = {.tv_nsec = 1000};

	while (glk_load_acquire(&gate->at) != 0)
		nanosleep(&soon, NULL);
	glk_store_release(&gate->open, 0);
	return arg;
}

/* Numbers go on from 0. */
static void in_order(int how, const char *name)
{
	bool steps = how == GLK_SOFT_STREAMS_STEPPED;
	pthread_t thread;

	begin_with(how, true);
	is_int(drv->ops->host_lock(drv, 0, gate, BYTES), 0, name);
	glk_store_relaxed(&gate->open, UINT32_MAX - 1);
	fill(0, 0, 1);
	is_int(put(0, UINT32_MAX), 0, "a gate");
	fill(0, 1, 2);
	is_int(put(0, 0), 0, "and the next one");
	fill(0, 2, 3);
	fill(1, 8, 4);
	if (steps)
		glk_soft_run_all(drv);
	ok(word(0) == 1 && word(8) == 4 && !word(1) && !word(2),
		"  what is behind them waits");
	ok(glk_load_acquire(&gate->at) == UINT32_MAX, "  the stream has come to it");
	is_int(drv->ops->unmap(drv, base, SPAN), -EINVAL, "  and names its memory");
	glk_store_release(&gate->open, UINT32_MAX);
	ok(!word(1), "it is opened");
	fill(1, 8, 5);
	if (steps)
		glk_soft_run_all(drv);
	ok(word(1) == 2 && !word(2), "  the stream goes on to the next one");
	if (pthread_create(&thread, NULL, opens, NULL))
		tap_bail("no thread");
	is_int(drv->ops->stream_sync(drv, 0, streams[0]), 0,
		"who waits for the stream waits for who opens it");
	pthread_join(thread, NULL);
	is_int((int64_t)word(2), 3, "  all of it has run");
	is_int(drv->ops->host_unlock(drv, 0, gate), 0, "let go");
	over();
}

int main(void)
{
	tap_plan_later();
	refused();
	in_order(GLK_SOFT_STREAMS_WORKER, "at once");
	in_order(GLK_SOFT_STREAMS_STEPPED, "by steps");
	return tap_done();
}
