/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The thread that feeds copies, and what is asked of them: see feed.h. */
#include "tier/io/feed.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "driver/driver.h"

#include <errno.h>
#include <sys/prctl.h>

#define PAGE 4096
_Static_assert(GLK_FEEDS * sizeof(glk_drv_word) <= PAGE, "the words have a page");

/* It looks again after so long: a piece takes 150 us. Where streams have to come to their copies first,
 * after twice as long each time, up to the second. */
#define LOOK_NS	     10000
#define LOOK_LAST_NS 160000

bool glk_feed_is_busy(const struct glk_io *io)
{
	const struct glk_feed *f = io->feeder ? io->feeder->first : NULL;

	while (f && f->stage == GLK_FEED_DONE)
		f = f->next;
	return f;
}

bool glk_feed_counts_on(const struct glk_io *io, int relay, int turn)
{
	const struct glk_feed *f = io->feeder ? io->feeder->first : NULL;

	for (; f; f = f->next)
		for (unsigned i = 1; f->stage != GLK_FEED_DONE && i < f->job.count; i++)
			if (f->job.turn == turn && f->job.relay[i] == relay)
				return true;
	return false;
}

/* The thread has the lock but while it sleeps. */
static void *run(void *arg)
{
	struct glk_feeder *feeder = arg;
	struct glk_io *io = feeder->io;
	struct timespec look = {.tv_nsec = LOOK_NS};
	int busy;

	/* it would sleep 50 us longer than it says */
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	glk_io_enter(io);
	while (!feeder->stop) {
		busy = glk_feed_turn(io);
		if (!busy) {
			glk_lock_wait(&io->lock, &feeder->wake);
			look.tv_nsec = LOOK_NS;
			continue;
		}
		glk_unlock(&io->lock);
		nanosleep(&look, NULL);
		glk_io_enter(io);
		look.tv_nsec = busy > 1		      ? LOOK_NS
			: look.tv_nsec < LOOK_LAST_NS ? look.tv_nsec * 2
						      : LOOK_LAST_NS;
	}
	glk_unlock(&io->lock);
	return NULL;
}

static int start(struct glk_feeder *feeder, int gpu)
{
	struct glk_drv *drv = feeder->io->drv;
	int err;

	feeder->words = glk_region_new(PAGE);
	if (!feeder->words)
		return -ENOMEM;
	feeder->locker = gpu;
	err = drv->ops->host_lock(drv, gpu, feeder->words, PAGE);
	if (err)
		goto region;
	err = glk_guard_start(feeder);
	if (err)
		goto words;
	pthread_cond_init(&feeder->wake, NULL);
	if (!glk_thread_start(&feeder->thread, "glake-copies", run, feeder))
		return 0;
	err = -EAGAIN;
	pthread_cond_destroy(&feeder->wake);
	glk_guard_stop(feeder);
words:
	drv->ops->host_unlock(drv, gpu, feeder->words);
region:
	glk_region_free(feeder->words, PAGE);
	return err;
}

struct glk_feeder *glk_feeder_get(struct glk_io *io, int gpu)
{
	struct glk_feeder *feeder = io->feeder;

	if (feeder)
		return feeder;
	feeder = glk_region_new(sizeof(*feeder));
	if (!feeder)
		return NULL;
	feeder->io = io;
	if (start(feeder, gpu)) {
		glk_region_free(feeder, sizeof(*feeder));
		return NULL;
	}
	io->feeder = feeder;
	return feeder;
}

void glk_feed_end_event(struct glk_drv *drv, struct glk_drv_event *event)
{
	/* nobody could end it later, so it is asked for twice */
	if (event && drv->ops->event_free(drv, event))
		drv->ops->event_free(drv, event);
}

void glk_feed_free(struct glk_feeder *feeder, struct glk_feed *feed)
{
	struct glk_drv *drv = feeder->io->drv;

	glk_feed_end_event(drv, feed->start);
	glk_feed_end_event(drv, feed->passed);
	feeder->taken[feed->word] = false;
	glk_region_free(feed, feed->size);
}

void glk_feeder_sweep(struct glk_feeder *feeder)
{
	struct glk_drv *drv = feeder->io->drv;
	struct glk_feed **at = &feeder->first, *f;

	while ((f = *at)) {
		/* pairs with: the release in glk_feed_put */
		if (f->stage != GLK_FEED_DONE || glk_load_acquire(&f->is_held) ||
			drv->ops->event_query(drv, f->passed)) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		glk_feed_free(feeder, f);
	}
}

/* ---- For who was given one ---- */

void glk_feed_tell(
	struct glk_io *io, struct glk_feed *feed, struct glk_feed_told *ret_told)
{
	struct glk_feed_told told;

	glk_io_enter(io);
	told = (struct glk_feed_told){.is_done = feed->stage == GLK_FEED_DONE,
		.bytes = feed->copy.bytes,
		.copied = feed->copied,
		.relayed = feed->copy.relayed,
		.err = feed->copy.err};
	if (told.is_done) {
		told.lost_count = feed->copy.lost_count;
		for (unsigned i = 0; i < told.lost_count; i++)
			told.lost[i] = feed->copy.lost[i];
	} else if (!feed->is_ended) {
		/* it may be made yet */
		told.err = 0;
	}
	for (unsigned i = 0; i < feed->job.count; i++) {
		told.paths += feed->lane[i].carried;
		told.stalled += feed->lane[i].stalled;
	}
	glk_unlock(&io->lock);
	*ret_told = told;
}

/* What is not queued, and what goes another way when its path has been left. */
static bool is_any_left(const struct glk_feed *f)
{
	bool is_any = f->job.begin < f->job.end || f->job.returns;

	for (unsigned i = 0; i < f->job.count; i++)
		is_any |= f->lane[i].hands_back && f->lane[i].count;
	return is_any;
}

int glk_feed_cancel(struct glk_io *io, struct glk_feed *feed)
{
	int err = 0;

	glk_io_enter(io);
	if (feed->stage == GLK_FEED_DONE || feed->is_ended || !is_any_left(feed))
		err = -EBUSY;
	if (!err) {
		feed->is_cancelled = feed->is_ended = true;
		glk_feed_turn(io);
	}
	glk_unlock(&io->lock);
	return err;
}

void glk_feed_put(struct glk_feed *feed)
{
	/* pairs with: the acquire in glk_feeder_sweep */
	glk_store_release(&feed->is_held, false);
}

/* ---- The end of the context ---- */

/* Until the copy may begin. Its stream may wait for another one that is fed: not under the lock. */
static void await_start(struct glk_io *io, struct glk_feed *f)
{
	int err;

	glk_unlock(&io->lock);
	err = io->drv->ops->event_sync(io->drv, f->start);
	glk_io_enter(io);
	if (err && f->stage == GLK_FEED_WAITING) {
		f->copy.err = err;
		f->is_ended = true;
	}
}

/* Until a piece has arrived on each path that has any, or what it had has passed. An error of that is met again by
 * who asks for it. */
static void await_pieces(struct glk_io *io, struct glk_feed *f)
{
	struct glk_drv *drv = io->drv;
	int err;

	for (unsigned i = 0; i < f->job.count; i++) {
		const struct glk_feed_lane *lane = &f->lane[i];

		for (unsigned j = 0; j < GLK_FEED_STREAMS; j++)
			if (lane->is_leaving && lane->is_behind[j])
				drv->ops->event_sync(drv, lane->left[j]);
		if (!lane->count || lane->hands_back)
			continue;
		err = drv->ops->event_sync(drv, lane->event[lane->first]);
		if (err)
			glk_feed_give_up(f, i, err, glk_io_now(io));
	}
}

void glk_io_still(struct glk_io *io)
{
	if (!io->feeder)
		return;
	glk_io_enter(io);
	for (struct glk_feed *f = io->feeder->first; f; f = f->next) {
		glk_store_relaxed(&f->is_held, false);
		while (f->stage != GLK_FEED_DONE) {
			if (f->stage == GLK_FEED_WAITING && !f->is_ended)
				await_start(io, f);
			else
				await_pieces(io, f);
			glk_feed_turn(io);
		}
	}
	glk_unlock(&io->lock);
}

/* A stream that has not come to its word yet reads it later. */
static void end_feeds(struct glk_feeder *feeder)
{
	struct glk_drv *drv = feeder->io->drv;
	struct glk_feed *f;

	while ((f = feeder->first)) {
		feeder->first = f->next;
		feeder->is_lost |= drv->ops->event_sync(drv, f->passed) != 0;
		glk_feed_free(feeder, f);
	}
}

void glk_feeder_end(struct glk_io *io)
{
	struct glk_feeder *feeder = io->feeder;

	if (!feeder)
		return;
	glk_io_still(io);
	glk_io_enter(io);
	feeder->stop = true;
	pthread_cond_signal(&feeder->wake);
	glk_unlock(&io->lock);
	pthread_join(feeder->thread, NULL);
	glk_guard_stop(feeder);
	end_feeds(feeder);
	pthread_cond_destroy(&feeder->wake);
	if (!feeder->is_lost) {
		io->drv->ops->host_unlock(io->drv, feeder->locker, feeder->words);
		glk_region_free(feeder->words, PAGE);
	}
	io->feeder = NULL;
	glk_region_free(feeder, sizeof(*feeder));
}
