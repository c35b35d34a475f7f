/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The wrappers over the CUDA backend, with a false libcuda below: they are the same ones. */
#include "setup.h"

#include "cuda_fake.h"
#include "driver/fault.h"
#include "driver/soft.h"

#include <errno.h>

static const struct glk_grant grant = {{GLK_PLACE_GPU, 1}, GLK_ACCESS_WRITE};

static struct fake *fake;

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

static void checked(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv_event *event = NULL;
	struct glk_drv *drv;
	uint64_t addr = 0, page = 0;
	int calls;

	conf.driver_backend = GLAKE_BACKEND_CUDA;
	conf.driver_check = true;
	snprintf(conf.driver_fault, sizeof(conf.driver_fault), "off");
	drv = setup_open(&conf);
	is_int(drv->ops->reserve(drv, 4 * GRANULE, 0, &addr), 0, "addresses");
	is_int(drv->ops->create(drv, setup_gpu(1), GRANULE, 0, &page), 0, "a page");
	is_int(drv->ops->map(drv, addr, GRANULE, page), 0, "mapped");
	is_int(drv->ops->set_access(drv, addr, GRANULE, &grant, 1), 0, "with rights");
	is_int(drv->ops->event_new(drv, 1, &event), 0, "an event");
	is_int(drv->ops->event_record(drv, event, FAKE_STREAM), 0,
		"recorded on a stream of the program's own");
	calls = fake->calls;
	breaks(drv->ops->map(drv, addr, GRANULE, page), -EINVAL, "cuMemMap rule");
	breaks(drv->ops->unmap(drv, addr, 2 * GRANULE), -EINVAL, "cuMemUnmap rule");
	breaks(drv->ops->fill(drv, addr + GRANULE, 0, 1, NULL), -EINVAL, "rule");
	is_int(fake->calls, calls, "the driver saw none of the broken ones");
	is_int(glk_fault_set(drv, "unmap:nth=1:err=EIO"), 0, "a fault below the check");
	is_int(drv->ops->unmap(drv, addr, GRANULE), -EIO, "fails the unmap");
	is_int(fake->calls, calls, "without the driver");
	is_int(drv->ops->unmap(drv, addr, GRANULE), 0, "which can be done again");
	is_int(drv->ops->event_free(drv, event), 0, "the event goes");
	breaks(drv->ops->event_query(drv, event), -EINVAL, "an event must be alive");
	is_int(drv->ops->release(drv, page), 0, "the page goes");
	is_int(drv->ops->unreserve(drv, addr, 4 * GRANULE), 0, "the addresses go");
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

int main(void)
{
	fake = fake_load(12000);
	if (!fake)
		tap_skip_all("the false libcuda is not beside this program");
	tap_plan_later();
	bare();
	checked();
	return tap_done();
}
