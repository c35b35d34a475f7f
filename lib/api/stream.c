/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of streams: see glake/stream.h. */
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
