/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of copies: see glake/copy.h. */
#include "api/context.h"
#include "api/copy_job.h"
#include "base/cancel.h"
#include "base/error.h"
#include "tier/io/io.h"

#include <errno.h>

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

static int job_for(struct glake *ctx, struct glk_context *context, int device,
	const struct glk_io_copy *copy, struct glake_copy_job **ret_job)
{
	struct glk_stream_facts facts = {0};
	int err;

	err = context->drv->ops->stream_facts(context->drv, device, copy->stream, &facts);
	if (err)
		return err;
	if (facts.capture)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"a copy that is captured has no job: it is made when its graph is "
			"launched");
	return glk_copy_job_new(ctx, context, device, ret_job);
}

static int tell(struct glake_copy_job *job, const struct glk_io_copy *copy)
{
	struct glk_copy_told what = {.state = {.sz = sizeof(what.state),
					     .error = copy->err,
					     .bytes = copy->bytes,
					     .relayed = copy->relayed,
					     .paths = copy->paths,
					     .failed_parts = copy->lost_count},
		.parts = copy->lost,
		.feed = copy->feed};

	for (unsigned i = 0; i < copy->lost_count; i++)
		what.state.failed += copy->lost[i].bytes;
	what.state.fed = copy->feed != NULL;
	return glk_copy_job_set(job, &what, copy->stream);
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
		err = job_for(ctx, context, device, copy, &job);
		if (err)
			return err;
	}
	copy->may_feed = ret_job;
	err = glk_io_copy(&context->io, copy, direct);
	if (!ret_job)
		return err ? err : copy->err;
	if (err) {
		glk_copy_job_drop(job);
		return err;
	}
	err = tell(job, copy);
	if (!err) {
		*ret_job = job;
	} else if (copy->feed) {
		/* nobody would be told how it ends */
		glk_feed_cancel(&context->io, copy->feed);
		glk_feed_put(copy->feed);
	}
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
