/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_GPU_TRAFFIC_H
#define GLK_T_GPU_TRAFFIC_H

/*
 * Traffic: threads that take blocks of all sizes on streams of their own, fill them, let them
 * be checked on that stream or on another one, and give them back in each way there is, while
 * a small budget makes sure that what one stream freed is what another gets. The GPU lags far
 * behind, and some streams more than others, so whatever is handed over too early is
 * overwritten before it was checked.
 *
 * A thread owns some of the streams and queues first use and free there; further use may go to
 * a stream of another thread. From time to time a stream is ended, with work left on it, and
 * another one takes its place.
 */
#include "kernels.h"

#include <glake/glake.h>

#include <pthread.h>

#define KIB	((size_t)1 << 10)
#define MIB	((size_t)1 << 20)
#define STREAMS 16
#define THREADS 16
#define KEPT	3  /* batches that a thread holds */
#define EVENTS	16 /* of a thread, used by turns */

/* Mistakes of the program, which the checks must see. */
enum mistake {
	MISTAKE_NONE,
	MISTAKE_USE,  /* a further stream's use is not told */
	MISTAKE_WAIT, /* a wait is told that was never made */
};

struct traffic {
	/* Set by the caller. */
	struct glake *ctx;
	const struct gpu_work *work;
	unsigned threads;
	bool tell;  /* the program's events are told to the library */
	bool stays; /* streams do not end */
	bool lags;  /* further use lags far behind, so that mistakes show */
	enum mistake mistake;
	size_t live_most;
	uint64_t seed;
	/* Its own. */
	struct {
		struct CUstream_st *stream;
		unsigned life;	       /* of how many streams it is the place */
		pthread_rwlock_t lock; /* written by the owner to end the stream */
	} slot[STREAMS];
	atomic_bool stop;
	atomic_size_t live;
	atomic_uint serial;
	pthread_t thread[THREADS];
	/* What happened. */
	atomic_ulong blocks, launches, ended, ordered, refused, failed;
	atomic_ulong ways[4];
};

struct batch {
	struct gpu_jobs jobs;
	void *block[JOBS];
	size_t bytes;
	unsigned count, slot, life;
	bool own; /* on the thread's own default stream */
};

struct worker {
	struct traffic *t;
	unsigned number;
	uint64_t state;
	struct batch kept[KEPT];
	struct CUevent_st *event[EVENTS];
	unsigned turn;
};

static uint32_t traffic_random(struct worker *w, uint32_t below)
{
	w->state =
		w->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((w->state >> 33) % below);
}

static bool traffic_one_in(struct worker *w, uint32_t n)
{
	return traffic_random(w, n) == 0;
}

/* Whatever fails but a request is told once. */
static void traffic_failed(struct traffic *t, const char *what, int err)
{
	if (!err || atomic_fetch_add(&t->failed, 1))
		return;
	tap_note("%s: %d", what, err);
	if (err < 0)
		gpu_why();
}

static struct CUstream_st *traffic_stream_of(
	const struct worker *w, const struct batch *b)
{
	return b->own ? GLK_STREAM_PER_THREAD : w->t->slot[b->slot].stream;
}

/* Of the kernels; two slots linger more than the rest. */
static uint32_t traffic_delay(struct worker *w, unsigned slot)
{
	uint32_t n = traffic_random(w, 256);

	if (slot % 8 == 5 && n < 48)
		return 150000;
	if (n == 0)
		return 500000;
	return n < 24 ? 20000 : 0;
}

static struct CUevent_st *traffic_next_event(struct worker *w)
{
	return w->event[w->turn++ % EVENTS];
}

static void traffic_record(
	struct worker *w, struct CUevent_st *event, struct CUstream_st *stream)
{
	struct traffic *t = w->t;

	if (t->tell && t->mistake != MISTAKE_WAIT)
		traffic_failed(t, "glake_event_record",
			glake_event_record(t->ctx, 0, event, stream));
	if (t->mistake == MISTAKE_WAIT)
		traffic_failed(t, "glake_event_recorded",
			glake_event_recorded(t->ctx, 0, event, stream));
	if (!t->tell || t->mistake == MISTAKE_WAIT)
		traffic_failed(t, "cuEventRecord", t->work->event_record(event, stream));
}

static void traffic_wait(
	struct worker *w, struct CUstream_st *stream, struct CUevent_st *event)
{
	struct traffic *t = w->t;

	if (t->tell)
		traffic_failed(t, "glake_stream_wait",
			glake_stream_wait(t->ctx, 0, stream, event));
	else
		traffic_failed(
			t, "cuStreamWaitEvent", t->work->stream_wait(stream, event, 0));
}

/* Puts a stream behind another one, of no block's account. */
static void traffic_order(struct worker *w)
{
	struct traffic *t = w->t;
	unsigned from = traffic_random(w, STREAMS), to = traffic_random(w, STREAMS);
	struct CUevent_st *event = traffic_next_event(w);

	pthread_rwlock_rdlock(&t->slot[from].lock);
	traffic_record(w, event, t->slot[from].stream);
	pthread_rwlock_unlock(&t->slot[from].lock);
	pthread_rwlock_rdlock(&t->slot[to].lock);
	if (t->mistake == MISTAKE_WAIT)
		traffic_failed(t, "glake_stream_waited",
			glake_stream_waited(t->ctx, 0, t->slot[to].stream, event));
	else
		traffic_wait(w, t->slot[to].stream, event);
	pthread_rwlock_unlock(&t->slot[to].lock);
	atomic_fetch_add(&t->ordered, 1);
}

/* Sizes of a batch: many small ones, some of up to 4 MiB, or one large. */
static unsigned traffic_sizes(struct worker *w, size_t *size)
{
	uint32_t kind = traffic_random(w, 100);
	unsigned count = 1;

	if (kind < 75) {
		count = JOBS;
		for (unsigned i = 0; i < count; i++)
			size[i] = ((size_t)8 << traffic_random(w, 12)) +
				8 * (size_t)traffic_random(w, 64);
		return count;
	}
	if (kind < 95) {
		count = 1 + traffic_random(w, 4);
		for (unsigned i = 0; i < count; i++)
			size[i] = (16 * KIB << traffic_random(w, 9)) - 512;
		return count;
	}
	size[0] = 4 * MIB + MIB / 2 * (size_t)traffic_random(w, 64);
	return 1;
}

static void traffic_give_up(struct worker *w, struct batch *b)
{
	struct traffic *t = w->t;

	for (unsigned i = 0; i < b->count; i++)
		traffic_failed(t, "glake_free",
			glake_free(t->ctx, b->block[i], traffic_stream_of(w, b)));
	atomic_fetch_sub(&t->live, b->bytes);
	b->count = 0;
}

/* Takes blocks and fills them. False if there was no room. */
static bool traffic_take(struct worker *w, struct batch *b)
{
	struct traffic *t = w->t;
	size_t size[JOBS];
	unsigned count = traffic_sizes(w, size), name;

	b->count = 0;
	b->bytes = 0;
	b->own = traffic_one_in(w, 16);
	b->slot = traffic_random(w, STREAMS / t->threads) * t->threads + w->number;
	b->life = t->slot[b->slot].life;
	name = b->own ? STREAMS + 1 + w->number : b->slot + 1;
	for (unsigned i = 0; i < count; i++)
		b->bytes += size[i];
	if (atomic_fetch_add(&t->live, b->bytes) + b->bytes > t->live_most) {
		atomic_fetch_sub(&t->live, b->bytes);
		return false;
	}
	for (; b->count < count; b->count++) {
		void **block = &b->block[b->count];
		int err = glake_alloc(
			t->ctx, 0, size[b->count], traffic_stream_of(w, b), 0, block);

		if (err) {
			if (!atomic_fetch_add(&t->refused, 1))
				gpu_why();
			traffic_give_up(w, b);
			return false;
		}
		b->jobs.at[b->count] = gpu_job(
			*block, size[b->count], name, atomic_fetch_add(&t->serial, 1));
	}
	traffic_failed(t, "put",
		gpu_put(t->work, &b->jobs, count, 0, traffic_delay(w, b->slot),
			traffic_stream_of(w, b)));
	atomic_fetch_add(&t->blocks, count);
	atomic_fetch_add(&t->launches, 1);
	return true;
}

static void traffic_look(struct worker *w, const struct batch *b,
	struct CUstream_st *stream, unsigned slot)
{
	uint32_t delay = traffic_delay(w, slot);

	if (w->t->lags && slot != b->slot)
		delay = 400000;
	traffic_failed(w->t, "check",
		gpu_check(w->t->work, &b->jobs, b->count, 0, delay, stream));
	atomic_fetch_add(&w->t->launches, 1);
}

static void traffic_give_back(
	struct worker *w, struct batch *b, struct CUstream_st *stream)
{
	for (unsigned i = 0; i < b->count; i++)
		traffic_failed(
			w->t, "glake_free", glake_free(w->t->ctx, b->block[i], stream));
}

static void traffic_use(
	struct worker *w, const struct batch *b, struct CUstream_st *stream)
{
	for (unsigned i = 0; i < b->count && w->t->mistake != MISTAKE_USE; i++)
		traffic_failed(
			w->t, "glake_use", glake_use(w->t->ctx, b->block[i], stream));
}

/* Checked on its stream, freed there. */
static void traffic_end_plain(struct worker *w, struct batch *b)
{
	traffic_look(w, b, traffic_stream_of(w, b), b->slot);
	traffic_give_back(w, b, traffic_stream_of(w, b));
}

/* Checked on a further stream too, which is told, before or after; freed on its own. */
static void traffic_end_used(struct worker *w, struct batch *b, unsigned other)
{
	struct traffic *t = w->t;
	struct CUevent_st *event = traffic_next_event(w);
	bool before = traffic_one_in(w, 2);

	traffic_record(w, event, traffic_stream_of(w, b));
	pthread_rwlock_rdlock(&t->slot[other].lock);
	traffic_wait(w, t->slot[other].stream, event);
	if (before)
		traffic_use(w, b, t->slot[other].stream);
	traffic_look(w, b, t->slot[other].stream, other);
	if (!before)
		traffic_use(w, b, t->slot[other].stream);
	pthread_rwlock_unlock(&t->slot[other].lock);
	if (traffic_one_in(w, 2))
		traffic_look(w, b, traffic_stream_of(w, b), b->slot);
	traffic_give_back(w, b, traffic_stream_of(w, b));
}

/* Checked on both, freed behind an event of each; the events go on to other work. */
static void traffic_end_after(struct worker *w, struct batch *b, unsigned other)
{
	struct traffic *t = w->t;
	struct CUevent_st *events[2] = {traffic_next_event(w), traffic_next_event(w)};

	traffic_record(w, events[0], traffic_stream_of(w, b));
	pthread_rwlock_rdlock(&t->slot[other].lock);
	traffic_wait(w, t->slot[other].stream, events[0]);
	traffic_look(w, b, t->slot[other].stream, other);
	traffic_record(w, events[1], t->slot[other].stream);
	pthread_rwlock_unlock(&t->slot[other].lock);
	traffic_look(w, b, traffic_stream_of(w, b), b->slot);
	traffic_record(w, events[0], traffic_stream_of(w, b));
	for (unsigned i = 0; i < b->count; i++)
		traffic_failed(t, "glake_free_after",
			glake_free_after(t->ctx, b->block[i], events, 2));
}

/* Checked and freed on another stream. Work on the stream it was given to needs no event. */
static void traffic_end_elsewhere(struct worker *w, struct batch *b, unsigned other)
{
	struct traffic *t = w->t;
	struct CUevent_st *event = traffic_next_event(w);

	traffic_record(w, event, traffic_stream_of(w, b));
	if (b->own || b->life == t->slot[b->slot].life)
		traffic_look(w, b, traffic_stream_of(w, b), b->slot);
	pthread_rwlock_rdlock(&t->slot[other].lock);
	traffic_wait(w, t->slot[other].stream, event);
	traffic_look(w, b, t->slot[other].stream, other);
	traffic_give_back(w, b, t->slot[other].stream);
	pthread_rwlock_unlock(&t->slot[other].lock);
}

static void traffic_end_batch(struct worker *w, struct batch *b)
{
	unsigned other = traffic_random(w, STREAMS), way = traffic_random(w, 20);
	struct traffic *t = w->t;

	if (!b->count)
		return;
	way = t->mistake == MISTAKE_USE ? 1
		: way < 9		? 0
		: way < 15		? 1
		: way < 17		? 2
					: 3;
	if (way == 0)
		traffic_end_plain(w, b);
	else if (way == 1)
		traffic_end_used(w, b, other);
	else if (way == 2)
		traffic_end_after(w, b, other);
	else
		traffic_end_elsewhere(w, b, other);
	atomic_fetch_add(&t->ways[way], b->count);
	atomic_fetch_sub(&t->live, b->bytes);
	b->count = 0;
}

/* The next one in a slot of the worker's comes after all work of the one that ends. */
static void traffic_replace(struct worker *w)
{
	struct traffic *t = w->t;
	unsigned slot = traffic_random(w, STREAMS / t->threads) * t->threads + w->number;
	struct CUevent_st *event = NULL;
	struct CUstream_st *old, *new = NULL;

	traffic_failed(t, "cuEventCreate", t->work->event_create(&event, NO_TIMING));
	pthread_rwlock_wrlock(&t->slot[slot].lock);
	old = t->slot[slot].stream;
	traffic_failed(t, "cuEventRecord", t->work->event_record(event, old));
	traffic_failed(t, "glake_stream_end", glake_stream_end(t->ctx, 0, old));
	/* either order: the handle comes back, or does not */
	if (traffic_one_in(w, 2)) {
		traffic_failed(t, "cuStreamDestroy", t->work->stream_destroy(old));
		old = NULL;
	}
	traffic_failed(t, "cuStreamCreate", t->work->stream_create(&new, NON_BLOCKING));
	traffic_failed(t, "cuStreamWaitEvent", t->work->stream_wait(new, event, 0));
	t->slot[slot].stream = new;
	t->slot[slot].life++;
	pthread_rwlock_unlock(&t->slot[slot].lock);
	if (old)
		traffic_failed(t, "cuStreamDestroy", t->work->stream_destroy(old));
	traffic_failed(t, "cuEventDestroy", t->work->event_destroy(event));
	atomic_fetch_add(&t->ended, 1);
}

static void traffic_work_on(struct worker *w)
{
	struct traffic *t = w->t;
	unsigned at = 0;

	while (!atomic_load(&t->stop)) {
		at = traffic_random(w, KEPT);
		traffic_end_batch(w, &w->kept[at]);
		if (traffic_one_in(w, 8) || t->mistake == MISTAKE_WAIT)
			traffic_order(w);
		if (!t->stays && traffic_one_in(w, 2000))
			traffic_replace(w);
		if (!traffic_take(w, &w->kept[at]))
			for (unsigned i = 0; i < KEPT; i++)
				traffic_end_batch(w, &w->kept[i]);
	}
	for (unsigned i = 0; i < KEPT; i++)
		traffic_end_batch(w, &w->kept[i]);
}

static void *traffic_thread(void *arg)
{
	struct worker *w = arg;
	struct traffic *t = w->t;

	t->work->extra.context_set(t->work->extra.primary);
	for (unsigned i = 0; i < EVENTS; i++)
		traffic_failed(t, "cuEventCreate",
			t->work->event_create(&w->event[i], NO_TIMING));
	traffic_work_on(w);
	for (unsigned i = 0; i < EVENTS; i++) {
		traffic_failed(t, "glake_event_forget",
			glake_event_forget(t->ctx, 0, w->event[i]));
		traffic_failed(t, "cuEventDestroy", t->work->event_destroy(w->event[i]));
	}
	free(w);
	return NULL;
}

/* `t` is zeroed but for what the caller sets. */
static UNUSED_FN void traffic_start(struct traffic *t)
{
	for (unsigned i = 0; i < STREAMS; i++) {
		must_cuda(t->work->stream_create(&t->slot[i].stream, NON_BLOCKING),
			"no stream");
		pthread_rwlock_init(&t->slot[i].lock, NULL);
	}
	for (unsigned i = 0; i < t->threads; i++) {
		struct worker *w = calloc(1, sizeof(*w));

		if (!w)
			tap_bail("no host memory");
		w->t = t;
		w->number = i;
		w->state = t->seed * 1000003 + i;
		if (pthread_create(&t->thread[i], NULL, traffic_thread, w))
			tap_bail("no thread");
	}
}

static UNUSED_FN void traffic_stop(struct traffic *t)
{
	atomic_store(&t->stop, true);
	for (unsigned i = 0; i < t->threads; i++)
		pthread_join(t->thread[i], NULL);
	for (unsigned i = 0; i < STREAMS; i++) {
		traffic_failed(t, "glake_stream_end",
			glake_stream_end(t->ctx, 0, t->slot[i].stream));
		must_cuda(t->work->stream_destroy(t->slot[i].stream), "end of a stream");
		pthread_rwlock_destroy(&t->slot[i].lock);
	}
}

static UNUSED_FN void traffic_sleep(double seconds)
{
	struct timespec pause = {.tv_sec = (time_t)seconds,
		.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

	nanosleep(&pause, NULL);
}

#endif
