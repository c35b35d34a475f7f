/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of streams and of dependencies between them: see glake/stream.h. */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"

#include <errno.h>

#include <glake/stream.h>

int glake_stream_new(struct glake *ctx, int device, struct CUstream_st **ret_stream)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!ret_stream)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the stream");
	cancel = glk_cancel_off();
	err = context->drv->ops->stream_new(context->drv, device, ret_stream);
	glk_cancel_restore(cancel);
	return err;
}

static int end_stream(struct glake *ctx, int device, struct CUstream_st *stream)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	/* forgotten between the end of its work and the end of its handle */
	err = context->drv->ops->stream_sync(context->drv, device, stream);
	if (err)
		return err;
	if (glk_load_acquire(&cache->started)) /* pairs with: glk_cache_start */
		glk_cache_stream_end(cache, stream);
	glk_context_record(context, GLAKE_TRACE_STREAM_END, device, 0, 0, stream);
	return context->drv->ops->stream_free(context->drv, device, stream);
}

int glake_stream_free(struct glake *ctx, int device, struct CUstream_st *stream)
{
	int cancel, err;

	if (!stream)
		return 0;
	/* in one go: a stream that is forgotten is ended too */
	cancel = glk_cancel_off();
	err = end_stream(ctx, device, stream);
	glk_cancel_restore(cancel);
	return err;
}

int glake_stream_end(struct glake *ctx, int device, struct CUstream_st *stream)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_stream_leave(cache, stream);
	if (!err)
		glk_context_record(context, GLAKE_TRACE_STREAM_END, device, 0, 0, stream);
	glk_cancel_restore(cancel);
	return err;
}

static int no_event(void)
{
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no event");
}

int glake_event_new(struct glake *ctx, int device, struct CUevent_st **ret_event)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!ret_event)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the event");
	cancel = glk_cancel_off();
	err = context->drv->ops->user_event_new(context->drv, device, ret_event);
	glk_cancel_restore(cancel);
	return err;
}

int glake_event_free(struct glake *ctx, int device, struct CUevent_st *event)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err || !event)
		return err;
	cancel = glk_cancel_off();
	glk_cache_event_forget(cache, event);
	err = context->drv->ops->user_event_free(context->drv, event);
	glk_cancel_restore(cancel);
	return err;
}

int glake_event_recorded(struct glake *ctx, int device, const struct CUevent_st *event,
	struct CUstream_st *stream)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!event)
		return no_event();
	cancel = glk_cancel_off();
	err = glk_cache_event_recorded(cache, event, stream);
	if (!err)
		glk_context_record(context, GLAKE_TRACE_EVENT_RECORDED, device,
			(uintptr_t)event, 0, stream);
	glk_cancel_restore(cancel);
	return err;
}

int glake_stream_waited(struct glake *ctx, int device, struct CUstream_st *stream,
	const struct CUevent_st *event)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!event)
		return no_event();
	cancel = glk_cancel_off();
	err = glk_cache_stream_waited(cache, stream, event);
	if (!err)
		glk_context_record(context, GLAKE_TRACE_STREAM_WAITED, device,
			(uintptr_t)event, 0, stream);
	glk_cancel_restore(cancel);
	return err;
}

int glake_event_forget(struct glake *ctx, int device, const struct CUevent_st *event)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	glk_cache_event_forget(cache, event);
	glk_cancel_restore(cancel);
	return 0;
}

int glake_event_record(struct glake *ctx, int device, struct CUevent_st *event,
	struct CUstream_st *stream)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	/* who waits for the event meanwhile must not take the old record for the new one */
	glk_lock(&cache->dependencies);
	err = glake_event_recorded(ctx, device, event, stream);
	if (!err) {
		err = context->drv->ops->user_event_record(
			context->drv, device, event, stream);
		if (err)
			glk_cache_event_forget(cache, event);
	}
	glk_unlock(&cache->dependencies);
	return err;
}

int glake_stream_wait(struct glake *ctx, int device, struct CUstream_st *stream,
	struct CUevent_st *event)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!event)
		return no_event();
	glk_lock(&cache->dependencies);
	err = context->drv->ops->user_event_wait(context->drv, device, stream, event);
	if (!err)
		err = glake_stream_waited(ctx, device, stream, event);
	glk_unlock(&cache->dependencies);
	return err;
}
