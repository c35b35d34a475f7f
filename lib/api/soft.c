/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of the software device's work: see glake/soft.h. */
#include "soft/soft.h"
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"

#include <errno.h>
#include <string.h>

#include <glake/soft.h>

/* What every call here begins with: the driver, cancellation put off until leave. */
struct visit {
	struct glk_drv *drv;
	int cancel;
};

static int enter(struct glake *ctx, struct visit *visit)
{
	struct glk_context *context;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	if (strcmp(glk_drv_name(context->drv), "soft"))
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"work of glake/soft.h is for the software device, and this context "
			"runs on %s",
			glk_drv_name(context->drv));
	visit->drv = context->drv;
	visit->cancel = glk_cancel_off();
	return 0;
}

static int leave(const struct visit *visit, int err)
{
	glk_cancel_restore(visit->cancel);
	return err;
}

int glake_soft_fill(struct glake *ctx, struct CUstream_st *stream, void *ptr,
	uint32_t value, size_t count)
{
	struct visit visit = {0};
	int err = enter(ctx, &visit);

	if (err)
		return err;
	return leave(&visit,
		visit.drv->ops->fill(visit.drv, (uintptr_t)ptr, value, count, stream));
}

int glake_soft_copy(struct glake *ctx, struct CUstream_st *stream, void *dst,
	const void *src, size_t size)
{
	struct visit visit = {0};
	int err = enter(ctx, &visit);

	if (err)
		return err;
	return leave(&visit,
		visit.drv->ops->copy(
			visit.drv, (uintptr_t)dst, (uintptr_t)src, size, stream));
}

int glake_soft_kernel(struct glake *ctx, int device, struct CUstream_st *stream,
	const void *ptr, size_t size, int write)
{
	struct visit visit = {0};
	int err = enter(ctx, &visit);

	if (err)
		return err;
	return leave(&visit,
		glk_soft_work(visit.drv, device, stream, (uintptr_t)ptr, size, write));
}

int glake_soft_stream_sync(struct glake *ctx, int device, struct CUstream_st *stream)
{
	struct visit visit = {0};
	int err = enter(ctx, &visit);

	if (err)
		return err;
	return leave(&visit, visit.drv->ops->stream_sync(visit.drv, device, stream));
}

int glake_soft_capture_begin(struct glake *ctx, int device, struct CUstream_st *stream)
{
	struct visit visit = {0};
	int err = enter(ctx, &visit);

	if (err)
		return err;
	return leave(&visit, glk_soft_capture_begin(visit.drv, device, stream));
}

int glake_soft_capture_end(
	struct glake *ctx, int device, struct CUstream_st *stream, uint32_t *ret_graph)
{
	struct visit visit = {0};
	int err = enter(ctx, &visit);

	if (err)
		return err;
	if (!ret_graph)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the graph");
	else
		err = glk_soft_capture_end(visit.drv, device, stream, ret_graph);
	return leave(&visit, err);
}

int glake_soft_graph_launch(
	struct glake *ctx, int device, uint32_t graph, struct CUstream_st *stream)
{
	struct visit visit = {0};
	int err = enter(ctx, &visit);

	if (err)
		return err;
	return leave(&visit, glk_soft_graph_launch(visit.drv, graph, device, stream));
}

int glake_soft_graph_free(struct glake *ctx, uint32_t graph)
{
	struct visit visit = {0};
	int err = enter(ctx, &visit);

	return err ? err : leave(&visit, glk_soft_graph_free(visit.drv, graph));
}

int glake_soft_touch(
	struct glake *ctx, int device, const void *ptr, size_t size, int write)
{
	struct visit visit = {0};
	int err = enter(ctx, &visit);

	if (err)
		return err;
	return leave(&visit,
		glk_soft_managed_touch(visit.drv, device, (uintptr_t)ptr, size, write));
}

int glake_soft_managed_get(
	struct glake *ctx, int device, struct glake_soft_managed *ret_figures)
{
	struct glk_soft_managed did = {0};
	struct glake_soft_managed figures;
	struct visit visit = {0};
	int err = enter(ctx, &visit);

	if (err)
		return err;
	err = leave(&visit, glk_soft_managed_figures(visit.drv, device, &did));
	if (err)
		return err;
	figures = (struct glake_soft_managed){.sz = sizeof(figures),
		.gpu_faults = did.gpu_faults,
		.host_faults = did.host_faults,
		.to_gpu = did.to_gpu,
		.to_host = did.to_host,
		.evicted = did.evicted,
		.remote = did.remote,
		.resident = did.resident};
	return glk_sized_out(ret_figures, &figures, sizeof(figures));
}
