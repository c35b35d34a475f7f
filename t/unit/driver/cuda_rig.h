/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_CUDA_RIG_H
#define GLK_T_CUDA_RIG_H

/* An instance over the newest false libcuda, and which of its calls fails. */
#include "cuda_fake.h"
#include "tap.h"

#include <errno.h>

static struct glk_cuda_lib lib;
static struct fake *fake;
static struct glk_drv *drv;

static inline void fail(const char *call, glk_cu_result result)
{
	fake->fail_call = call;
	fake->fail_result = result;
}

static inline void rig_begin(void)
{
	struct glk_cuda *cuda;

	tap_plan_later();
	cuda = fake_open(&lib, &fake);
	if (!cuda)
		tap_bail("no fake libcuda");
	drv = &cuda->drv;
}

static inline int rig_end(void)
{
	is_int(drv->ops->close(drv), 0, "close");
	return tap_done();
}

#endif
