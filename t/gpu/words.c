/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams that wait for words in memory of the host: which work goes on meanwhile, how soon a stream does
 * when its word is written, and how many can wait before a call of the driver stands still.
 */
#include "gpu.h"

#include <pthread.h>
#include <time.h>

#define ROOM	((size_t)4096)
#define STREAMS 64
#define PATIENT 2 /* seconds */

static struct glk_drv *drv;
static glk_drv_word *words;

static struct CUstream_st *new_stream(void)
{
	struct CUstream_st *stream = NULL;

	must(drv->ops->stream_new(drv, 0, &stream), "no stream");
	return stream;
}

static struct glk_drv_event *new_event(void)
{
	struct glk_drv_event *event = NULL;

	must(drv->ops->event_new(drv, 0, &event), "no event");
	return event;
}

static bool passes(struct glk_drv_event *event)
{
	double until = now_s() + PATIENT;
	int err;

	do
		err = drv->ops->event_query(drv, event);
	while (err == -EAGAIN && now_s() < until);
	return !err;
}

/* One stream waits, and another does not. */
static void waits_alone(void)
{
	struct CUstream_st *held = new_stream(), *free = new_stream(), *third;
	struct glk_drv_event *behind = new_event(), *beside = new_event();
	double written;
	int err = drv->ops->stream_wait_word(drv, 0, held, &words[0], 1);

	if (err == -EOPNOTSUPP) {
		tap_skip("waits for words", "not by this driver");
		return;
	}
	is_done(err, "a stream waits");
	is_done(drv->ops->event_record(drv, behind, held), "an event behind it");
	is_done(drv->ops->event_record(drv, beside, free), "one on another stream");
	ok(passes(beside), "the other stream goes on");
	third = new_stream();
	is_done(drv->ops->event_record(drv, beside, third), "a stream that is new");
	ok(passes(beside), "  does too");
	is_int(drv->ops->event_query(drv, behind), -EAGAIN, "the first one stands");
	glk_store_release(&words[0], 1); /* pairs with: the wait of the stream */
	written = now_s();
	ok(passes(behind), "until its word is written");
	tap_note("%.1f us later", (now_s() - written) * 1e6);
	is_done(drv->ops->stream_wait_word(drv, 0, held, &words[0], 1),
		"a value that is there");
	is_done(drv->ops->event_record(drv, behind, held), "an event behind it");
	ok(passes(behind), "is not waited for");
	is_done(drv->ops->event_free(drv, behind), "end");
	is_done(drv->ops->event_free(drv, beside), "end");
	is_done(drv->ops->stream_free(drv, 0, held), "end");
	is_done(drv->ops->stream_free(drv, 0, free), "end");
	is_done(drv->ops->stream_free(drv, 0, third), "end");
}

static glk_atomic(int) there; /* streams that wait */
static glk_atomic(int) stood; /* as many as did when a call stood still; 0: none has */
static glk_atomic(bool) over;

static void write_all(void)
{
	for (int i = 0; i < STREAMS; i++)
		glk_store_release(
			&words[1 + i], 7); /* pairs with: the wait of the stream */
}

/* A call that stands still for a second waits for one of the streams. */
static void *let_go(void *arg)
{
	const struct timespec second = {.tv_sec = 1};
	int before = -1, now;

	while (!glk_load_relaxed(&over)) {
		now = glk_load_relaxed(&there);
		if (now == before) {
			glk_store_relaxed(&stood, now);
			write_all();
			break;
		}
		before = now;
		nanosleep(&second, NULL);
	}
	return arg;
}

/* Streams share channels of the GPU, so that not every number of them can wait. */
static void many_wait(void)
{
	struct CUstream_st *stream[STREAMS];
	struct glk_drv_event *event[STREAMS];
	int late = 0, err = 0;
	pthread_t thread;

	must(-pthread_create(&thread, NULL, let_go, NULL), "no thread");
	for (int i = 0; i < STREAMS; i++) {
		stream[i] = new_stream();
		event[i] = new_event();
		err |= drv->ops->stream_wait_word(drv, 0, stream[i], &words[1 + i], 7);
		err |= drv->ops->event_record(drv, event[i], stream[i]);
		glk_store_relaxed(&there, i + 1);
	}
	glk_store_relaxed(&over, true);
	pthread_join(thread, NULL);
	write_all();
	is_int(err, 0, "many streams wait");
	if (glk_load_relaxed(&stood))
		tap_note("with %d that wait the next one stands still",
			glk_load_relaxed(&stood));
	else
		tap_note("%d can wait at once", STREAMS);
	for (int i = 0; i < STREAMS; i++)
		late += !passes(event[i]);
	is_int(late, 0, "each goes on when the words are written");
	for (int i = 0; i < STREAMS; i++) {
		is_done(drv->ops->event_free(drv, event[i]), "end");
		is_done(drv->ops->stream_free(drv, 0, stream[i]), "end");
	}
}

int main(void)
{
	drv = gpu_open();
	tap_plan_later();
	if (!drv->ops->stream_wait_word) {
		tap_skip("waits for words", "not by this driver");
	} else {
		words = aligned_alloc(ROOM, ROOM);
		memset((void *)words, 0, ROOM);
		must(drv->ops->host_lock(drv, 0, (void *)words, ROOM), "no memory");
		waits_alone();
		many_wait();
		is_done(drv->ops->host_unlock(drv, 0, (void *)words), "unlock");
	}
	is_done(drv->ops->close(drv), "close");
	return tap_done();
}
