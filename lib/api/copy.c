/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The public face of copies: see glake/copy.h. A list is checked as a whole before anything of it is
 * queued. Jobs are values {generation, index}, like the handles of contexts. They lie in one table of
 * the process, so that one that outlives its context is answered.
 */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"
#include "tier/io/io.h"

#include <errno.h>

#include <glake/copy.h>

#define INDEX_BITS 17
/* A wait with a timeout asks again after so long, twice as long each time up to the second. */
#define ASK_FIRST_NS INT64_C(20000)
#define ASK_LAST_NS  INT64_C(1000000)

/* A range of bytes of a list, as it is compared with others. */
struct span {
	uint64_t from, to;
	bool target;
};

static int check_range(const struct glake_copy_range *r, uint64_t *bytes)
{
	uint64_t dst = (uintptr_t)r->dst, src = (uintptr_t)r->src, end;

	if (!r->bytes)
		return 0;
	if (!dst || !src || __builtin_add_overflow(dst, r->bytes, &end) ||
		__builtin_add_overflow(src, r->bytes, &end) ||
		__builtin_add_overflow(*bytes, r->bytes, bytes))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%zu bytes from %p to %p cannot be copied", r->bytes, r->src,
			r->dst);
	if (dst < src + r->bytes && src < dst + r->bytes)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%zu bytes from %p to %p overlap", r->bytes, r->src, r->dst);
	return 0;
}

static void sift(struct span *s, size_t root, size_t count)
{
	size_t child;

	for (; (child = 2 * root + 1) < count; root = child) {
		struct span swapped = s[root];

		if (child + 1 < count && s[child + 1].from > s[child].from)
			child++;
		if (s[root].from >= s[child].from)
			return;
		s[root] = s[child];
		s[child] = swapped;
	}
}

static void sort(struct span *s, size_t count)
{
	for (size_t i = count / 2; i--;)
		sift(s, i, count);
	for (size_t i = count; i-- > 1;) {
		struct span last = s[i];

		s[i] = s[0];
		s[0] = last;
		sift(s, 0, i);
	}
}

/* Whether a target lies over anything else. */
static int check_spans(struct span *s, size_t count)
{
	uint64_t any = 0, target = 0;

	sort(s, count);
	for (size_t i = 0; i < count; i++) {
		if (s[i].from < target || (s[i].target && s[i].from < any))
			return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
				"the target of a range overlaps with another range at %#lx",
				(unsigned long)s[i].from);
		if (s[i].to > any)
			any = s[i].to;
		if (s[i].target && s[i].to > target)
			target = s[i].to;
	}
	return 0;
}

static int check_apart(const struct glake_copy_range *r, size_t count)
{
	size_t size = 2 * count * sizeof(struct span), used = 0;
	struct span *s;
	int err;

	if (count < 2)
		return 0;
	s = glk_region_new(size);
	if (!s)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		uint64_t dst = (uintptr_t)r[i].dst, src = (uintptr_t)r[i].src;

		if (!r[i].bytes)
			continue;
		s[used++] = (struct span){dst, dst + r[i].bytes, true};
		s[used++] = (struct span){src, src + r[i].bytes, false};
	}
	err = check_spans(s, used);
	glk_region_free(s, size);
	return err;
}

struct job {
	uint64_t generation; /* odd while it is open */
	struct glake *ctx;
	struct glk_drv_event *event; /* NULL: it has finished, or the context is closed */
	struct glk_drv *drv;	     /* NULL: the context is closed */
	struct glk_io *io;	     /* likewise */
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

/* A job with an event of a GPU, nothing recorded yet. 0, -EBUSY, -ENOMEM (class LIMIT) or the
 * driver's error. */
static int job_new(struct glake *ctx, struct glk_context *context, int device,
	const struct glk_io_copy *copy, struct glake_copy_job **ret_job)
{
	struct glk_stream_facts facts = {0};
	struct glk_drv *drv = context->drv;
	struct glk_drv_event *event;
	uint32_t id;
	int err;

	err = drv->ops->stream_facts(drv, device, copy->stream, &facts);
	if (err)
		return err;
	if (facts.capture)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"a copy that is captured has no job: it is made when its graph is "
			"launched");
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

/* Nothing was queued. The caller has the handle alone, and the context open: the event goes without
 * the lock. */
static void job_drop(struct glake_copy_job *handle)
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

/* What was queued, and the event on its stream. 0; after an error the job is no more. */
static int job_set(struct glake_copy_job *handle, const struct glk_io_copy *copy)
{
	struct glk_drv_event *event = NULL;
	struct glk_drv *drv = NULL;
	struct job *job;
	int err = -ESTALE;

	glk_lock(&table_lock);
	job = find_any(handle);
	if (job) {
		job->state = (struct glake_copy_state){.sz = sizeof(job->state),
			.error = copy->err,
			.bytes = copy->bytes,
			.relayed = copy->relayed,
			.paths = copy->paths,
			.failed_parts = copy->lost_count};
		for (unsigned i = 0; i < copy->lost_count; i++) {
			job->part[i] = copy->lost[i];
			job->state.failed += copy->lost[i].bytes;
		}
		drv = job->drv;
		event = job->event;
	}
	glk_unlock(&table_lock);
	/* it may block, as the driver does: jobs of others are asked meanwhile */
	if (event)
		err = drv->ops->event_record(drv, event, copy->stream);
	if (err)
		job_drop(handle);
	return err;
}

/* The GPU on whose default stream all ranges are, as the driver queues them. */
static int device_of_ranges(
	const struct glk_context *context, const struct glk_io_copy *copy)
{
	const struct glake_copy_range *r = copy->ranges;
	struct glk_drv *drv = context->drv;
	int device, found = -1, err;

	for (size_t i = 0; i < copy->count; i++) {
		if (!r[i].bytes)
			continue;
		err = drv->ops->copy_gpu(
			drv, (uintptr_t)r[i].dst, (uintptr_t)r[i].src, &device);
		if (err)
			return err;
		if (found >= 0 && device != found)
			return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
				"ranges on the default streams of GPU %d and GPU %d: one "
				"copy is work of one stream",
				found, device);
		found = device;
	}
	return found < 0 ? 0 : found;
}

/* A GPU that a stream is of. */
static int device_of(const struct glk_context *context, const struct glk_io_copy *copy)
{
	struct glk_drv *drv = context->drv;

	if (glk_stream_is_default(copy->stream))
		return device_of_ranges(context, copy);
	for (int device = 0; device < context->devices; device++) {
		if (!drv->ops->stream_owner(drv, device, copy->stream))
			return device;
	}
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "%p is no stream of a GPU here",
		(void *)copy->stream);
}

static int queue(struct glake *ctx, struct glk_context *context, struct glk_io_copy *copy,
	bool direct, struct glake_copy_job **ret_job)
{
	struct glake_copy_job *job = NULL;
	int device = 0, err;

	if (ret_job || (copy->count > 1 && glk_stream_is_default(copy->stream)))
		device = device_of(context, copy);
	if (device < 0)
		return device;
	if (ret_job) {
		err = job_new(ctx, context, device, copy, &job);
		if (err)
			return err;
	}
	err = glk_io_copy(&context->io, copy, direct);
	if (!ret_job)
		return err ? err : copy->err;
	if (err) {
		job_drop(job);
		return err;
	}
	err = job_set(job, copy);
	if (!err)
		*ret_job = job;
	return err;
}

int glake_copy_list(struct glake *ctx, const struct glake_copy_range *ranges,
	size_t count, struct CUstream_st *stream, uint32_t flags,
	struct glake_copy_job **ret_job)
{
	struct glk_io_copy copy = {.ranges = ranges, .count = count, .stream = stream};
	struct glk_context *context;
	int err, cancel;

	err = glk_context_get(ctx, &context);
	if (err)
		return err;
	if (flags & ~GLAKE_COPY_DIRECT)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "unknown flags 0x%x",
			flags & ~GLAKE_COPY_DIRECT);
	if (count && !ranges)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no ranges");
	if (count > GLAKE_COPY_RANGES_MAX)
		return glk_error(-E2BIG, GLAKE_ERROR_LIMIT,
			"%zu ranges; a list has %d at most", count,
			GLAKE_COPY_RANGES_MAX);
	for (size_t i = 0; i < count; i++) {
		err = check_range(&ranges[i], &copy.bytes);
		if (err)
			return err;
	}
	cancel = glk_cancel_off();
	err = check_apart(ranges, count);
	if (!err)
		err = queue(ctx, context, &copy, flags & GLAKE_COPY_DIRECT, ret_job);
	glk_cancel_restore(cancel);
	return err;
}

int glake_copy(struct glake *ctx, void *dst, const void *src, size_t bytes,
	struct CUstream_st *stream, uint32_t flags, struct glake_copy_job **ret_job)
{
	struct glake_copy_range range = {.dst = dst, .src = src, .bytes = bytes};

	return glake_copy_list(ctx, &range, 1, stream, flags, ret_job);
}

/* Its event has passed, and goes. Nobody waits for it. */
static void finish(struct job *job)
{
	struct glk_drv_event *event = job->event;

	job->state.stage = job->state.failed_parts ? GLAKE_COPY_FAILED : GLAKE_COPY_DONE;
	job->state.copied = job->state.bytes - job->state.failed;
	/* what is refused is tried again when the job is closed */
	if (!job->waits && event && !job->drv->ops->event_free(job->drv, event))
		job->event = NULL;
}

/* 0: it has finished; -EAGAIN or the driver's error. */
static int ask(struct job *job)
{
	int err = job->event && job->state.stage == GLAKE_COPY_QUEUED
		? job->drv->ops->event_query(job->drv, job->event)
		: 0;

	if (!err)
		finish(job);
	return err;
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

static int wait(struct glake_copy_job *handle, int64_t timeout)
{
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
	if (!err) {
		finish(job);
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

int glake_copy_cancel(struct glake_copy_job *handle)
{
	struct job *job;
	int cancel = glk_cancel_off(), err;

	glk_lock(&table_lock);
	err = find(handle, &job);
	if (!err)
		err = glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"all of the copy was queued when its call returned: nothing is left "
			"that could be cancelled");
	glk_unlock(&table_lock);
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
	put(job, id_of(handle));
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
		job->event = NULL;
		job->drv = NULL;
	}
	glk_unlock(&table_lock);
}
