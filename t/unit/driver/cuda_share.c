/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What goes to the driver for pages that are shared, and what comes back. */
#include "cuda_rig.h"

#include <fcntl.h>
#include <sys/resource.h>

static int class_now(void)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	return record.error_class;
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
	fail("cuMemImportFromShareableHandle", GLK_CU_UNKNOWN);
	is_int(drv->ops->import_fd(drv, 0, &page), -EINVAL, "something else behind it");
	is_int(class_now(), GLAKE_ERROR_INVAL, "is the caller's mistake");
	fail("cuMemImportFromShareableHandle", GLK_CU_INVALID_VALUE);
	is_int(drv->ops->import_fd(drv, 0, &page), -EINVAL, "no page behind it");
	fail(NULL, 0);
}

static void places(void)
{
	struct glk_place place = {GLK_PLACE_HOST, 99};

	fake->page_location = (struct glk_cu_location){GLK_CU_LOCATION_DEVICE, 1};
	is_int(drv->ops->page_place(drv, 77, &place), 0, "where a page lies");
	ok(place.kind == GLK_PLACE_GPU && place.id == 1, "on GPU 1");
	fake->page_location = (struct glk_cu_location){GLK_CU_LOCATION_HOST_NUMA, 3};
	is_int(drv->ops->page_place(drv, 77, &place), 0, "where another one lies");
	ok(place.kind == GLK_PLACE_HOST && place.id == 3, "on node 3");
	fake->page_location = (struct glk_cu_location){GLK_CU_LOCATION_DEVICE, 9};
	is_int(drv->ops->page_place(drv, 77, &place), -EINVAL, "on a GPU that is none");
	fail("cuMemGetAllocationPropertiesFromHandle", GLK_CU_INVALID_VALUE);
	is_int(drv->ops->page_place(drv, 78, &place), -EINVAL, "no page");
	ok(place.kind == GLK_PLACE_HOST && place.id == 3, "the output is left alone");
	fail(NULL, 0);
}

static int ranges(void)
{
	int before = fake->ranges;
	int fd = -1;
	int err = drv->ops->dmabuf_fd(drv, 0x700000000000, 8192, &fd);

	if (!err) {
		ok(fcntl(fd, F_GETFD) & FD_CLOEXEC, "  closed on exec");
		close(fd);
	} else {
		is_int(fd, -1, "  no output");
		is_int(err, -EINVAL, "  refused");
	}
	return fake->ranges - before;
}

static void dmabufs(void)
{
	struct rlimit limit, low;
	int fd = -1;

	is_int(ranges(), 1, "a dma-buf in one call");
	is_int((int64_t)fake->range_flags[0], GLK_CU_RANGE_PCIE, "through the BAR");
	is_int((int64_t)fake->address, 0x700000000000, "of that address");
	is_int((int64_t)fake->size, 8192, "and size");
	fake->range_refused = GLK_CU_RANGE_PCIE;
	is_int(ranges(), 2, "a driver that knows no such flag is asked without");
	is_int((int64_t)fake->range_flags[0], 0, "without");
	fake->range_never = true;
	is_int(ranges(), 2, "one that makes none");
	getrlimit(RLIMIT_NOFILE, &limit);
	low = (struct rlimit){3, limit.rlim_max};
	setrlimit(RLIMIT_NOFILE, &low);
	is_int(drv->ops->dmabuf_fd(drv, 0x700000000000, 8192, &fd), -EMFILE,
		"no descriptor left");
	is_int(class_now(), GLAKE_ERROR_LIMIT, "is a limit");
	setrlimit(RLIMIT_NOFILE, &limit);
	fake->range_never = false;
	fake->range_refused = 0;
	lib.cuMemGetHandleForAddressRange = NULL;
	is_int(drv->ops->dmabuf_fd(drv, 0x700000000000, 8192, &fd), -EOPNOTSUPP,
		"a driver without the function");
	is_int(class_now(), GLAKE_ERROR_UNSUPPORTED, "has none");
}

static void peers(void)
{
	bool can = false;

	is_int(drv->ops->peer_can(drv, 0, 1, &can), 0, "GPU 1 and memory of GPU 0");
	ok(can, "reaches it");
	fake->no_peers = true;
	is_int(drv->ops->peer_can(drv, 0, 1, &can), 0, "asked again");
	ok(!can, "does not");
	is_int(drv->ops->peer_can(drv, 0, 2, &can), -EINVAL, "GPU 2 of 2");
	is_int(drv->ops->peer_can(drv, -1, 0, &can), -EINVAL, "GPU -1");
	fail("cuDeviceCanAccessPeer", GLK_CU_UNKNOWN);
	is_int(drv->ops->peer_can(drv, 0, 1, &can), -EIO, "a fault of the driver");
	fail(NULL, 0);
}

int main(void)
{
	rig_begin();
	exporting();
	places();
	dmabufs();
	peers();
	is_int(fake->pushes, fake->pops, "as many pops as pushes");
	return rig_end();
}
