/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How a copy that is fed begins: see feed.h. */
#include "tier/io/feed.h"

#include "driver/driver.h"
#include "tier/io/stage.h"

#include <errno.h>

/* Bytes a ns of a path whose links have no limit. */
#define RATE_MOST 1e3

static double rate_of(const struct glk_plan_path *path)
{
	double rate = RATE_MOST;

	for (unsigned i = 0; i < GLK_PLAN_HOPS && path->hop[i][0]; i++)
		for (unsigned j = 0; j < GLK_PLAN_LANES && path->hop[i][j]; j++)
			if (path->hop[i][j]->rate > 0 && path->hop[i][j]->rate < rate)
				rate = path->hop[i][j]->rate;
	return rate;
}

static int make_events(struct glk_feed *f)
{
	const struct glk_job *job = &f->job;
	int err, gpu;

	err = glk_stage_direct(job->io, job->target, job->turn);
	if (!err)
		err = glk_stage_event(job->io, job->target, &f->start);
	if (!err)
		err = glk_stage_event(job->io, job->target, &f->passed);
	for (unsigned i = 0; i < job->count; i++) {
		gpu = i && job->turn == GLK_IO_UP ? job->relay[i] : job->target;
		f->lane[i].rate = rate_of(&job->path[i]);
		for (unsigned j = 0; !err && j < GLK_FEED_WINDOW; j++)
			err = glk_stage_event(job->io, gpu, &f->lane[i].event[j]);
	}
	return err;
}

static unsigned free_word(const struct glk_feeder *feeder)
{
	unsigned word = 0;

	while (word < GLK_FEEDS && feeder->taken[word])
		word++;
	return word;
}

static struct glk_feed *make(struct glk_feeder *feeder, const struct glk_job *job)
{
	size_t count = job->copy->count, most = job->count * GLK_FEED_RETURNED;
	size_t size = sizeof(struct glk_feed) + count * sizeof(struct glake_copy_range) +
		most * sizeof(struct glk_copy_piece);
	unsigned word = free_word(feeder);
	struct glk_feed *f;

	f = word < GLK_FEEDS ? glk_region_new(size) : NULL;
	if (!f)
		return NULL;
	f->size = size;
	f->job = *job;
	f->copy = *job->copy;
	for (size_t i = 0; i < count; i++)
		f->ranges[i] = job->copy->ranges[i];
	f->copy.ranges = f->ranges;
	f->job.copy = &f->copy;
	f->job.returned = (struct glk_copy_piece *)(void *)&f->ranges[count];
	f->job.returns_most = (unsigned)most;
	f->job.fed = true;
	f->job.relay[0] = job->target;
	glk_store_relaxed(&f->is_held, true);
	f->word = word;
	feeder->taken[word] = true;
	glk_add_relaxed(&feeder->value[word], 1);
	if (!make_events(f))
		return f;
	glk_feed_end_events(f);
	glk_feed_free(feeder, f);
	return NULL;
}

/* On the program's stream: the start, the word, and an event behind it. */
static int stand(struct glk_feeder *feeder, struct glk_feed *f)
{
	struct glk_drv *drv = f->job.io->drv;
	int err;

	err = drv->ops->event_record(drv, f->start, f->copy.stream);
	if (!err)
		err = drv->ops->stream_wait_word(drv, f->job.target, f->copy.stream,
			&feeder->words[f->word],
			glk_load_relaxed(&feeder->value[f->word]));
	if (err)
		return err;
	f->is_lost = drv->ops->event_record(drv, f->passed, f->copy.stream) != 0;
	return 0;
}

bool glk_feed_begin(struct glk_job *job)
{
	struct glk_io *io = job->io;
	struct glk_feeder *feeder = io->wordless ? NULL : glk_feeder_get(io, job->target);
	struct glk_feed *f = NULL, **last;
	int err;

	if (feeder) {
		glk_feeder_sweep(feeder);
		f = make(feeder, job);
	}
	if (!f)
		return false;
	/* it may wait for room on the stream, which others who are fed have to make */
	glk_io_pause(io);
	err = stand(feeder, f);
	glk_io_resume(io);
	if (err) {
		io->wordless |= err == -EOPNOTSUPP;
		glk_feed_end_events(f);
		glk_feed_free(feeder, f);
		return false;
	}
	feeder->is_lost |= f->is_lost;
	for (last = &feeder->first; *last;)
		last = &(*last)->next;
	*last = f;
	io->copies++;
	io->bytes += f->copy.bytes;
	job->copy->feed = f;
	/* the guard has written all words meanwhile */
	if (glk_load_relaxed(&feeder->words[f->word]) ==
		glk_load_relaxed(&feeder->value[f->word]))
		glk_feed_let_go(f);
	glk_guard_wake(feeder);
	if (glk_feed_turn(io))
		pthread_cond_signal(&feeder->wake);
	return true;
}

bool glk_feed_is_free(struct glk_io *io, int target, struct CUstream_st *stream)
{
	struct glk_drv_event *event;
	struct glk_drv *drv = io->drv;
	bool is_free;

	glk_io_pause(io);
	is_free = !drv->ops->event_new(drv, target, &event);
	if (is_free) {
		is_free = !drv->ops->event_record(drv, event, stream) &&
			!drv->ops->event_query(drv, event);
		glk_feed_end_event(drv, event);
	}
	glk_io_resume(io);
	return is_free;
}
