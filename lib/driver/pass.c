/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What wrappers have in common: a table that passes every operation on, from which a wrapper
 * starts and replaces what it cares for, and the stubs that complete a backend's table once,
 * so that no caller ever tests an entry for NULL.
 */
#include "base/error.h"
#include "driver/cuda.h"
#include "driver/ops.h"

#include <errno.h>
#include <string.h>

#define X(op, params, args, call)                                                        \
	static int pass_##op params                                                      \
	{                                                                                \
		struct glk_drv *inner = drv->inner;                                      \
                                                                                         \
		return inner->ops->op args;                                              \
	}                                                                                \
                                                                                         \
	static int stub_##op params                                                      \
	{                                                                                \
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,                   \
			"the %s driver has no operation %s", drv->ops->name, #op);       \
	}
GLK_DRV_OPS(X)
#undef X

static int pass_close(struct glk_drv *drv)
{
	return drv->inner->ops->close(drv->inner);
}

static int pass_figures(struct glk_drv *drv, struct glake_driver_stats *ret_stats)
{
	return drv->inner->ops->figures(drv->inner, ret_stats);
}

static int stub_figures(struct glk_drv *drv, struct glake_driver_stats *ret_stats)
{
	return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
		"the %s driver keeps no figures of its own", drv->ops->name);
}

const struct glk_drv_ops glk_drv_pass = {.version = GLK_DRV_OPS_VERSION,
	.name = "pass",
	.close = pass_close,
	.figures = pass_figures,
#define X(op, params, args, call) .op = pass_##op,
	GLK_DRV_OPS(X)
#undef X
};

void glk_drv_fill(const struct glk_drv_ops *ops, struct glk_drv_ops *ret_ops)
{
	*ret_ops = *ops;
#define X(op, params, args, call)                                                        \
	if (!ret_ops->op)                                                                \
		ret_ops->op = stub_##op;
	GLK_DRV_OPS(X)
#undef X
	if (!ret_ops->figures)
		ret_ops->figures = stub_figures;
}

struct glk_drv *glk_drv_bottom(struct glk_drv *drv)
{
	while (drv->inner)
		drv = drv->inner;
	return drv;
}

int glk_drv_close(struct glk_drv *drv)
{
	return drv ? drv->ops->close(drv) : 0;
}

const char *glk_drv_name(struct glk_drv *drv)
{
	return glk_drv_bottom(drv)->ops->name;
}

int glk_drv_version(struct glk_drv *drv)
{
	struct glk_drv *bottom = glk_drv_bottom(drv);

	return strcmp(bottom->ops->name, "cuda") ? 0 : glk_cuda_version(bottom);
}

int glk_drv_place(struct glk_drv *drv, size_t size, size_t align, uint64_t handle,
	const struct glk_grant *grant, uint64_t *ret_addr)
{
	uint64_t addr;
	int err;

	*ret_addr = 0;
	err = drv->ops->reserve(drv, size, align, &addr);
	if (err)
		return err;
	err = drv->ops->map(drv, addr, size, handle);
	if (err)
		goto unreserve;
	err = drv->ops->set_access(drv, addr, size, grant, 1);
	if (!err || drv->ops->unmap(drv, addr, size)) {
		*ret_addr = addr;
		return err;
	}
unreserve:
	drv->ops->unreserve(drv, addr, size);
	return err;
}
