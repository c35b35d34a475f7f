/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Jobs of copies: see copy_job.h and glake/copy.h. */
#include "api/copy_job.h"

#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"
#include "tier/io/io.h"

#include <errno.h>

#define INDEX_BITS 17
/* A wait with a timeout asks again after so long, twice as long each time up to the second. */
#define ASK_FIRST_NS INT64_C(20000)
#define ASK_LAST_NS  INT64_C(1000000)

struct job {
	uint64_t generation; /* odd while it is open */
	struct glake *ctx;
	struct glk_drv_event *event; /* NULL: it has finished, or the context is closed */
	struct glk_drv *drv;	     /* NULL: the context is closed */
	struct glk_io *io;	     /* likewise */
	struct glk_feed *feed;	     /* NULL: it is not fed, or all about it is known */
	struct glake_copy_state state;
	struct glake_copy_part part[GLK_IO_LOST_MAX];
	uint32_t waits; /* threads in one */
};

/* Type-stable, and there until the process ends. */
static struct glk_slab table;
static struct glk_lock table_lock = GLK_LOCK_INIT(GLK_RANK_COPY_JOB);

static struct job *at(uint32_t id)
{
	return glk_slab_at(&table, id);
}

static uint32_t id_of(const struct glake_copy_job *handle)
{
	return (uint32_t)((uintptr_t)handle & ((1u << INDEX_BITS) - 1));
}

static struct glake_copy_job *handle_of(uint32_t id)
{
	return (struct glake_copy_job *)(uintptr_t)(at(id)->generation << INDEX_BITS |
		id);
}

/* Under the lock of the table. An open job, or NULL and a record. */
static struct job *find_any(const struct glake_copy_job *handle)
{
	uint32_t id = id_of(handle);

	if (table.base && id && id <= glk_load_relaxed(&table.used) &&
		(at(id)->generation & 1) && handle_of(id) == handle)
		return at(id);
	glk_error(-ESTALE, GLAKE_ERROR_STALE, "%p is no open job", (const void *)handle);
	return NULL;
}

/* The same, of a context that is open. */
static int find(const struct glake_copy_job *handle, struct job **ret_job)
{
	struct glk_context *context;
	struct job *job = find_any(handle);

	if (!job)
		return -ESTALE;
	if (!job->drv)
		return glk_error(-ESTALE, GLAKE_ERROR_STALE,
			"the context of the job %p was closed", (const void *)handle);
	*ret_job = job;
	return glk_context_get(job->ctx, &context);
}

static void put(struct job *job, uint32_t id)
{
	job->generation++;
	glk_slab_put(&table, id);
}

static int take(uint32_t *ret_id)
{
	int err = 0;

	if (!table.base)
		err = glk_slab_init(&table, sizeof(struct job), GLAKE_COPY_JOBS_MAX);
	if (err)
		return err;
	*ret_id = glk_slab_get(&table);
	return *ret_id ? 0 : -ENOMEM;
}

int glk_copy_job_new(struct glake *ctx, struct glk_context *context, int device,
	struct glake_copy_job **ret_job)
{
	struct glk_drv *drv = context->drv;
	struct glk_drv_event *event;
	uint32_t id;
	int err;

	err = drv->ops->event_new(drv, device, &event);
	if (err)
		return err;
	glk_lock(&table_lock);
	err = take(&id);
	if (!err) {
		*at(id) = (struct job){.generation = at(id)->generation + 1,
			.ctx = ctx,
			.drv = drv,
			.io = &context->io,
			.event = event};
		*ret_job = handle_of(id);
	}
	glk_unlock(&table_lock);
	if (err)
		drv->ops->event_free(drv, event);
	return err;
}

/* The caller has the handle alone, and the context open: the event goes without the lock. */
void glk_copy_job_drop(struct glake_copy_job *handle)
{
	struct glk_drv_event *event = NULL;
	struct glk_drv *drv = NULL;
	struct job *job;

	glk_lock(&table_lock);
	job = find_any(handle);
	if (job) {
		drv = job->drv;
		event = job->event;
		put(job, id_of(handle));
	}
	glk_unlock(&table_lock);
	if (event)
		drv->ops->event_free(drv, event);
}

int glk_copy_job_set(struct glake_copy_job *handle, const struct glk_copy_told *copy,
	struct CUstream_st *stream)
{
	struct glk_drv_event *event = NULL;
	struct glk_drv *drv = NULL;
	struct job *job;
	int err = -ESTALE;

	glk_lock(&table_lock);
	job = find_any(handle);
	if (job) {
		job->state = copy->state;
		for (uint32_t i = 0; i < copy->state.failed_parts; i++)
			job->part[i] = copy->parts[i];
		drv = job->drv;
		event = job->event;
		job->feed = copy->feed;
	}
	glk_unlock(&table_lock);
	/* it may block, as the driver does: jobs of others are asked meanwhile */
	if (event)
		err = drv->ops->event_record(drv, event, stream);
	if (err)
		glk_copy_job_drop(handle);
	return err;
}

void glk_copy_jobs_leave(struct glake *ctx, struct glk_context *context)
{
	uint32_t used;

	glk_lock(&table_lock);
	used = table.base ? glk_load_relaxed(&table.used) : 0;
	for (uint32_t id = 1; id <= used; id++) {
		struct job *job = at(id);

		if (!(job->generation & 1) || job->ctx != ctx || !job->drv)
			continue;
		if (job->event)
			context->drv->ops->event_free(context->drv, job->event);
		if (job->feed)
			glk_feed_put(job->feed);
		job->feed = NULL;
		job->event = NULL;
		job->drv = NULL;
	}
	glk_unlock(&table_lock);
}

/* What is known of it by who feeds it. */
static void hear(struct job *job)
{
	struct glk_feed_told told;

	if (!job->feed)
		return;
	glk_feed_tell(job->io, job->feed, &told);
	job->state.copied = told.copied;
	job->state.relayed = told.relayed;
	job->state.paths = told.paths;
	job->state.stalled = told.stalled;
	job->state.error = told.err;
	if (!told.is_done)
		return;
	job->state.failed_parts = told.lost_count;
	for (unsigned i = 0; i < told.lost_count; i++) {
		job->part[i] = told.lost[i];
		job->state.failed += told.lost[i].bytes;
	}
	glk_feed_put(job->feed);
	job->feed = NULL;
}

/* Its event has passed, and goes. Nobody waits for it. False: the stream was let go on, and pieces are
 * under way still. */
static bool finished(struct job *job)
{
	struct glk_drv_event *event = job->event;

	hear(job);
	if (job->feed)
		return false;
	job->state.stage = job->state.failed_parts ? GLAKE_COPY_FAILED : GLAKE_COPY_DONE;
	job->state.copied = job->state.bytes - job->state.failed;
	/* what is refused is tried again when the job is closed */
	if (!job->waits && event && !job->drv->ops->event_free(job->drv, event))
		job->event = NULL;
	return true;
}

/* 0: it has finished; -EAGAIN or the driver's error. */
static int ask(struct job *job)
{
	int err = job->event && job->state.stage == GLAKE_COPY_QUEUED
		? job->drv->ops->event_query(job->drv, job->event)
		: 0;

	return !err && !finished(job) ? -EAGAIN : err;
}

int glake_copy_get(struct glake_copy_job *handle, struct glake_copy_state *ret_state)
{
	int cancel = glk_cancel_off(), err;
	struct glk_io *ended = NULL;
	struct job *job;

	glk_lock(&table_lock);
	err = find(handle, &job);
	if (!err)
		err = ask(job);
	if (!err)
		ended = job->io;
	if (err == -EAGAIN)
		hear(job);
	if (!err || err == -EAGAIN)
		err = glk_sized_out(ret_state, &job->state, sizeof(job->state));
	glk_unlock(&table_lock);
	if (ended)
		glk_io_rest(ended);
	glk_cancel_restore(cancel);
	return err;
}

int glake_copy_failed(
	struct glake_copy_job *handle, uint32_t index, struct glake_copy_part *ret_part)
{
	struct job *job;
	int cancel = glk_cancel_off(), err;

	glk_lock(&table_lock);
	err = find(handle, &job);
	if (!err && !ret_part)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the part");
	if (!err && index >= job->state.failed_parts)
		err = glk_error(-ENOENT, GLAKE_ERROR_INVAL,
			"there are %u parts, and no %u", job->state.failed_parts, index);
	if (!err)
		*ret_part = job->part[index];
	glk_unlock(&table_lock);
	glk_cancel_restore(cancel);
	return err;
}

/* Without the lock; the job is kept by `waits`, the event with it. */
static int await(struct glk_drv *drv, struct glk_drv_event *event, int64_t timeout)
{
	int64_t pause = ASK_FIRST_NS, end;
	int err;

	if (timeout < 0)
		return drv->ops->event_sync(drv, event);
	end = glk_clock_ns() + timeout;
	while ((err = drv->ops->event_query(drv, event)) == -EAGAIN) {
		int64_t left = end - glk_clock_ns();
		struct timespec ts = {.tv_nsec = left < pause ? left : pause};

		if (left <= 0)
			return glk_error(-ETIMEDOUT, GLAKE_ERROR_AGAIN,
				"the copy has not finished");
		nanosleep(&ts, NULL);
		pause = pause < ASK_LAST_NS / 2 ? pause * 2 : ASK_LAST_NS;
	}
	return err;
}

/* Under the lock, which it gives up for a moment. */
static int await_pieces(struct job *job, int64_t end)
{
	struct timespec ts = {.tv_nsec = ASK_LAST_NS};

	if (glk_clock_ns() >= end)
		return glk_error(
			-ETIMEDOUT, GLAKE_ERROR_AGAIN, "the copy has not finished");
	job->waits++;
	glk_unlock(&table_lock);
	nanosleep(&ts, NULL);
	glk_lock(&table_lock);
	job->waits--;
	return 0;
}

static int wait(struct glake_copy_job *handle, int64_t timeout)
{
	int64_t end = timeout < 0 ? INT64_MAX : glk_clock_ns() + timeout;
	struct glk_drv_event *event;
	struct glk_io *ended = NULL;
	struct job *job;
	int err;

	glk_lock(&table_lock);
	err = find(handle, &job);
	event = err ? NULL : job->event;
	if (event) {
		job->waits++;
		glk_unlock(&table_lock);
		err = await(job->drv, event, timeout);
		glk_lock(&table_lock);
		job->waits--;
	}
	while (!err && !finished(job))
		err = await_pieces(job, end);
	if (!err) {
		ended = job->io;
		err = job->state.error;
	}
	glk_unlock(&table_lock);
	if (ended)
		glk_io_rest(ended);
	return err;
}

int glake_copy_wait(struct glake_copy_job *handle, int64_t timeout_ns)
{
	/* up to some centuries, so that the end can be told */
	int64_t most = INT64_MAX / 4;
	int cancel = glk_cancel_off();
	int err = wait(handle, timeout_ns < most ? timeout_ns : most);

	glk_cancel_restore(cancel);
	return err;
}

static int close_job(struct glake_copy_job *handle)
{
	struct glk_context *context;
	struct job *job = find_any(handle);
	int err = 0;

	if (!job)
		return -ESTALE;
	if (job->waits)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"a thread waits for the job %p", (void *)handle);
	/* in a forked child the event is the parent's */
	if (job->event && !glk_context_get(job->ctx, &context))
		err = job->drv->ops->event_free(job->drv, job->event);
	if (job->feed && !glk_context_get(job->ctx, &context))
		glk_feed_put(job->feed);
	put(job, id_of(handle));
	return err;
}

int glake_copy_cancel(struct glake_copy_job *handle)
{
	struct job *job;
	int cancel = glk_cancel_off(), err;

	glk_lock(&table_lock);
	err = find(handle, &job);
	if (!err)
		err = job->feed ? glk_feed_cancel(job->io, job->feed) : -EBUSY;
	if (err == -EBUSY)
		glk_error(err, GLAKE_ERROR_BUSY,
			"nothing is left of the copy that could be cancelled: all of it was "
			"queued, or it has ended");
	glk_unlock(&table_lock);
	glk_cancel_restore(cancel);
	return err;
}

int glake_copy_close(struct glake_copy_job *handle)
{
	int cancel, err;

	if (!handle)
		return 0;
	cancel = glk_cancel_off();
	glk_lock(&table_lock);
	err = close_job(handle);
	glk_unlock(&table_lock);
	glk_cancel_restore(cancel);
	return err;
}
