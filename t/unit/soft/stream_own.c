/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Default streams of threads on the software device: one number, another stream in each. */
#include "setup.h"

#include "soft/soft.h"

#include <errno.h>
#include <pthread.h>

#define OWN GLK_STREAM_PER_THREAD

static struct glk_drv *drv;
static uint32_t words[2];

static uint64_t id_of(int device)
{
	struct glk_stream_facts facts = {0};

	return drv->ops->stream_facts(drv, device, OWN, &facts) ? 0 : facts.id;
}

static void *other_thread(void *arg)
{
	uint64_t *ret_id = arg;

	*ret_id = id_of(0);
	drv->ops->fill(drv, (uint64_t)&words[1], 7, 1, OWN);
	return NULL;
}

static void run(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, fn, arg))
		tap_bail("no thread");
	pthread_join(thread, NULL);
}

static void each(void)
{
	struct glk_stream_facts facts = {0};
	struct glk_drv_event *event = NULL;
	uint64_t mine = id_of(0), theirs = 0;
	uint32_t count = 9;

	ok(mine, "a thread has a stream");
	ok(mine == id_of(0), "always the same");
	drv->ops->stream_facts(drv, 0, NULL, &facts);
	ok(mine != facts.id, "which is not the default one of the GPU");
	ok(mine != id_of(1) && id_of(1), "and another on another GPU");
	is_int(drv->ops->stream_owner(drv, 1, OWN), 0, "of every GPU");
	breaks(drv->ops->stream_owner(drv, 2, OWN), -EINVAL, "GPU 2 does not exist");

	is_int(drv->ops->fill(drv, (uint64_t)&words[0], 5, 1, OWN), 0, "work on it");
	run(other_thread, &theirs);
	ok(theirs && theirs != mine, "another thread has another");
	glk_soft_pending(drv, 0, OWN, &count);
	is_int(count, 1, "whose work is not on this one");
	glk_soft_step(drv, 0, OWN);
	is_int(words[0], 5, "the work of this thread runs");
	is_int(words[1], 0, "that of the other has not");
	is_int(drv->ops->device_sync(drv, 0), 0, "the host waits for the GPU");
	is_int(words[1], 7, "and what a thread left behind runs");

	drv->ops->event_new(drv, 0, &event);
	is_int(drv->ops->event_record(drv, event, OWN), 0, "a record");
	is_int(drv->ops->stream_wait(drv, OWN, event), 0, "a wait");
	is_int(drv->ops->stream_sync(drv, 0, OWN), 0, "the host waits for it");
	is_int(drv->ops->event_query(drv, event), 0, "all has run");
	drv->ops->event_free(drv, event);
	breaks(drv->ops->stream_free(drv, 0, OWN), -EINVAL, "cannot be freed");
}

static void *ask(void *arg)
{
	struct glk_stream_facts facts;
	int *ret_err = arg;

	*ret_err = drv->ops->stream_facts(drv, 0, OWN, &facts);
	if (*ret_err && setup_error().error_class != GLAKE_ERROR_LIMIT)
		*ret_err = 1;
	return NULL;
}

/* More threads than there are streams, one after the other. */
static void used_again(void)
{
	int err = 0, count = 0;

	for (; !err && count < 6000; count += !err)
		run(ask, &err);
	is_int(count, 6000, "streams of threads that have ended are used again");
	ok(id_of(0) && id_of(0) == id_of(0), "this one's stays");
}

static void *leave_work(void *arg)
{
	struct glk_stream_facts facts;

	(void)arg;
	if (drv->ops->stream_facts(drv, 0, OWN, &facts))
		return arg;
	drv->ops->fill(drv, (uint64_t)&words[1], 11, 1, OWN);
	return arg;
}

/* The default streams of two GPUs, and this thread's on each, are there. */
static void most(void)
{
	static struct CUstream_st *made[4096];
	uint64_t mine = id_of(0);
	int err = 0, count = 0;

	run(leave_work, NULL);
	while (count < 4096 && !drv->ops->stream_new(drv, 0, &made[count]))
		count++;
	is_int(count, 4096 - 5, "the most there may be, beside one with work left");
	is_int(setup_error().error_class, GLAKE_ERROR_LIMIT, "one more is a limit");
	run(ask, &err);
	is_int(err, -ENOMEM, "for a thread, too");
	ok(id_of(0) == mine, "those that are there stay");
	is_int(drv->ops->stream_facts(drv, 0, NULL, &(struct glk_stream_facts){0}), 0,
		"as do the others");
	is_int(drv->ops->device_sync(drv, 0), 0, "what was left has run");
	is_int(words[1], 11, "as it was meant to");
	run(ask, &err);
	is_int(err, 0, "then a thread has the place");
	while (count--)
		drv->ops->stream_free(drv, 0, made[count]);
}

int main(void)
{
	struct glk_conf conf = setup_conf();

	tap_plan_later();
	conf.soft_streams = GLK_SOFT_STREAMS_STEPPED;
	drv = setup_open(&conf);
	each();
	used_again();
	most();
	is_int(glk_drv_close(drv), 0, "nothing is left");
	return tap_done();
}
