/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What goes to the driver for pages that are shared, and what comes back. */
#include "cuda_fake.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

static struct glk_cuda_lib lib;
static struct fake *fake;
static struct glk_drv *drv;

static int class_now(void)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	return record.error_class;
}

static void fail(const char *call, glk_cu_result result)
{
	fake->fail_call = call;
	fake->fail_result = result;
}

static void exporting(void)
{
	struct rlimit limit, low;
	uint64_t page = 0;
	int fd = -1;

	is_int(drv->ops->export_fd(drv, 1, &fd), 0, "export");
	ok(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC), "closed on exec");
	is_int(drv->ops->import_fd(drv, fd, &page), 0, "import");
	is_int(fake->imported, fd, "of that descriptor");
	is_int(page, 77, "is that page");
	close(fd);
	fail("cuMemExportToShareableHandle", GLK_CU_UNKNOWN);
	is_int(drv->ops->export_fd(drv, 1, &fd), -EIO, "a fault of the driver");
	getrlimit(RLIMIT_NOFILE, &limit);
	low = (struct rlimit){3, limit.rlim_max};
	setrlimit(RLIMIT_NOFILE, &low);
	is_int(drv->ops->export_fd(drv, 1, &fd), -EMFILE, "no descriptor left");
	is_int(class_now(), GLAKE_ERROR_LIMIT, "is a limit");
	setrlimit(RLIMIT_NOFILE, &limit);
	fail("cuMemImportFromShareableHandle", GLK_CU_INVALID_VALUE);
	is_int(drv->ops->import_fd(drv, 0, &page), -EINVAL, "no page behind it");
	fail(NULL, 0);
}

int main(void)
{
	struct glk_cuda *cuda;

	tap_plan_later();
	cuda = fake_open(&lib, &fake);
	if (!cuda)
		tap_bail("no fake libcuda");
	drv = &cuda->drv;
	exporting();
	is_int(fake->pushes, fake->pops, "as many pops as pushes");
	is_int(drv->ops->close(drv), 0, "close");
	return tap_done();
}
