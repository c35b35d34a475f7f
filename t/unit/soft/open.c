/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which driver is opened, and what is put over it. */
#include "setup.h"

#include "base/slab.h"
#include "driver/ops.h"
#include "soft/open.h"
#include "soft/soft.h"

#include <errno.h>
#include <glake/info.h>

static void opens_soft(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *drv = NULL;
	char why[256] = "x";
	int gpus = 0;

	is_int(glk_drv_open(&conf, why, sizeof(why), &drv), 0,
		"the software device opens");
	is_str(why, "", "and nothing has to be explained");
	is_str(glk_drv_name(drv), "soft", "its name");
	is_int(glk_drv_version(drv), 0, "it has no CUDA version");
	is_int(drv->ops->device_count(drv, &gpus), 0, "its GPUs are counted");
	is_int(gpus, 2, "as configured");
	is_int(glk_drv_close(drv), 0, "it closes");
	is_int(glk_drv_close(NULL), 0, "closing nothing is allowed");
}

static void describes(void)
{
	struct glk_conf conf = setup_conf();
	struct glake_device info = {.sz = sizeof(info)};
	struct glk_drv *drv = setup_open(&conf);
	size_t left = 0, total = 0;

	is_int(drv->ops->device_info(drv, 1, &info), 0, "GPU 1 is described");
	is_int((int64_t)info.memory, (int64_t)conf.soft_memory, "its memory");
	is_int((int64_t)info.free, (int64_t)conf.soft_memory, "all of it free");
	is_int(info.numa_node, 1, "its node");
	is_int((int64_t)info.granularity, (int64_t)GRANULE, "its granularity");
	ok(info.caps & GLAKE_CAP_VMM, "it can map");
	is_int(drv->ops->memory_info(drv, 0, &left, &total), 0, "memory of GPU 0");
	is_int((int64_t)total, (int64_t)conf.soft_memory, "in all");
	breaks(drv->ops->device_info(drv, 2, &info), -EINVAL, "GPU 2 does not exist");
	breaks(drv->ops->memory_info(drv, -1, &left, &total), -EINVAL, "GPU -1");
	glk_drv_close(drv);
}

static void fills_stubs(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *drv = setup_open(&conf), *soft = glk_drv_bottom(drv);
	int fd = -1;

	breaks(soft->ops->dmabuf_fd(soft, 0, 4096, &fd), -EOPNOTSUPP,
		"the soft driver has no operation dmabuf_fd");
	is_int(setup_error().error_class, GLAKE_ERROR_UNSUPPORTED, "  its class");
	is_int(fd, -1, "  no output");
	glk_drv_close(drv);
}

/* Where CUDA cannot be had: asked for it is an error, else the software device and a reason. */
static void falls_back(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *drv = NULL;
	char why[256] = "";
	char cut[8] = "";

	conf.driver_backend = GLAKE_BACKEND_CUDA;
	if (!glk_drv_open(&conf, why, sizeof(why), &drv)) {
		is_str(glk_drv_name(drv), "cuda", "CUDA works here");
		ok(glk_drv_version(drv) > 0, "and has a version");
		is_int(glk_drv_close(drv), 0, "it closes");
		return;
	}
	ok(!drv, "CUDA asked for and not to be had: nothing is opened");
	ok(setup_error().text[0], "the record says why (%s)", setup_error().text);
	conf.driver_backend = GLAKE_BACKEND_AUTO;
	conf.no_soft_warning = true;
	is_int(glk_drv_open(&conf, why, sizeof(why), &drv), 0,
		"the caller says it himself");
	is_int(glk_drv_close(drv), 0, "closed");
	conf.no_soft_warning = false;
	tap_expect_log(1);
	is_int(glk_drv_open(&conf, why, sizeof(why), &drv), 0, "not asked for: it opens");
	has_str(tap.last_log, why, "a warning says why");
	has_str(tap.last_log, "driver.backend=soft says that it is meant",
		"and how to do without it; once, however often it is opened");
	is_str(glk_drv_name(drv), "soft", "the software device");
	is_str(why, setup_error().text, "and says why");
	is_int(glk_drv_close(drv), 0, "closed");
	is_int(glk_drv_open(&conf, cut, sizeof(cut), &drv), 0, "into a short buffer");
	is_int((int64_t)strlen(cut), 7, "the reason is cut");
	is_int(glk_drv_close(drv), 0, "closed");
	is_int(glk_drv_open(&conf, NULL, 0, &drv), 0, "nobody wants to know");
	is_int(glk_drv_close(drv), 0, "closed");
}

/* Every table that an open makes fails once; nothing is left. */
static void runs_out_of_memory(void)
{
	struct glk_conf conf = setup_conf();
	uint64_t before = glk_region_bytes();
	struct glk_drv *drv = NULL;
	uint32_t n = 1;
	int err;

	for (;; n++) {
		glk_region_fail_after(n);
		err = glk_drv_open(&conf, NULL, 0, &drv);
		glk_region_fail_after(0);
		if (err != -ENOMEM || n > 100)
			break;
	}
	is_int(err, 0, "with enough memory it opens");
	ok(n > 5, "and each table was refused once (%u)", n);
	glk_drv_close(drv);
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "nothing is left");
}

int main(void)
{
	tap_plan_later();
	opens_soft();
	describes();
	fills_stubs();
	falls_back();
	runs_out_of_memory();
	return tap_done();
}
