/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which backend is taken where a false libcuda is there: CUDA by itself, the software device if asked for. */
#include "setup.h"

#include "soft/open.h"
#include "soft/soft.h"
#include "unit/driver/cuda_fake.h"

#include <errno.h>

static void bare(void)
{
	struct glk_conf conf = setup_conf();
	struct glake_driver_stats stats = {.sz = sizeof(stats)};
	struct glk_drv *drv = NULL;
	char why[64] = "x";
	uint64_t page = 0;
	int64_t clock;

	conf.driver_backend = GLAKE_BACKEND_AUTO;
	is_int(glk_drv_open(&conf, why, sizeof(why), &drv), 0,
		"opened without being asked for");
	is_str(glk_drv_name(drv), "cuda", "CUDA is taken where it works");
	is_str(why, "", "which needs no reason");
	is_int(glk_drv_version(drv), 13000, "its version");
	is_int(drv->ops->create(drv, setup_gpu(1), GRANULE, 0, &page), 0, "a page");
	is_int(drv->ops->release(drv, page), 0, "goes");
	is_int(drv->ops->figures(drv, &stats), 0, "figures");
	is_int((int64_t)stats.calls[GLAKE_CALL_CREATE], 1, "count");
	ok(stats.ns[GLAKE_CALL_CREATE] > 0, "with the time measured");
	is_int(glk_drv_close(drv), 0, "closed");

	conf.driver_backend = GLAKE_BACKEND_SOFT;
	drv = setup_open(&conf);
	is_str(glk_drv_name(drv), "soft", "the software device where that is asked for");
	is_int(glk_drv_close(drv), 0, "closed");
	conf.driver_backend = GLAKE_BACKEND_CUDA;
	drv = setup_open(&conf);
	breaks(glk_soft_clock(drv, &clock), -EINVAL, "this is the cuda driver");
	is_int(glk_drv_close(drv), 0, "closed");
}

int main(void)
{
	if (!fake_load(12000))
		tap_skip_all("the false libcuda is not beside this program");
	tap_plan_later();
	bare();
	return tap_done();
}
