/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams that wait for words in memory of the host: which work goes on meanwhile, and how soon a stream
 * does when its word is written.
 */
#include "gpu.h"

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
	is_done(drv->ops->stream_wait_word(drv, 0, held, &words[0], 1), "a value that is there");
	is_done(drv->ops->event_record(drv, behind, held), "an event behind it");
	ok(passes(behind), "is not waited for");
	is_done(drv->ops->event_free(drv, behind), "end");
	is_done(drv->ops->event_free(drv, beside), "end");
	is_done(drv->ops->stream_free(drv, 0, held), "end");
	is_done(drv->ops->stream_free(drv, 0, free), "end");
	is_done(drv->ops->stream_free(drv, 0, third), "end");
}

/* Many wait, and go on in the order in which their words are written, the last first. */
static void many_wait(void)
{
	struct CUstream_st *stream[STREAMS];
	struct glk_drv_event *event[STREAMS];
	int early = 0, late = 0, err = 0;

	for (int i = 0; i < STREAMS; i++) {
		stream[i] = new_stream();
		event[i] = new_event();
		err |= drv->ops->stream_wait_word(drv, 0, stream[i], &words[1 + i], 7);
		err |= drv->ops->event_record(drv, event[i], stream[i]);
	}
	is_int(err, 0, "many streams wait");
	for (int i = STREAMS; i-- > 0;) {
		early += !drv->ops->event_query(drv, event[i]);
		glk_store_release(&words[1 + i], 7); /* pairs with: the wait of the stream */
		late += !passes(event[i]);
	}
	is_int(early, 0, "none goes on before its word is written");
	is_int(late, 0, "each does then");
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
