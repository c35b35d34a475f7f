/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is told about a GPU, and what is left unknown. */
#include "cuda_rig.h"

static void whole(void)
{
	struct glake_device info = {.sz = sizeof(info), .numa_node = 9};

	is_int(drv->ops->device_info(drv, 1, &info), 0, "info");
	is_int(info.sz, sizeof(info), "its size is the caller's");
	is_str(info.name, "Fake GPU 1", "name");
	is_str(info.uuid, "GPU-b0b1b2b3-b4b5-b6b7-b8b9-babbbcbdbebf", "UUID");
	is_str(info.pci, "0000:3b:01.0", "address, in small letters");
	is_int(info.memory, (uint64_t)140 << 30, "memory");
	is_int(info.numa_node, 1, "NUMA node");
	is_int(info.major * 10 + info.minor, 90, "compute capability");
	is_int(info.granularity, 1 << 16, "smallest page");
	is_int(info.granularity_recommended, 2 << 20, "best page");
	is_int(info.caps,
		GLAKE_CAP_VMM | GLAKE_CAP_FD | GLAKE_CAP_FABRIC | GLAKE_CAP_RDMA |
			GLAKE_CAP_DMABUF | GLAKE_CAP_HOST_NUMA | GLAKE_CAP_MANAGED,
		"all capabilities but PAGEABLE and MPS");
	ok(!info.free_valid, "free memory is not known");
	is_int(fake->retains, 0, "because no context was made");
}

static void partly(void)
{
	struct glake_device info = {.sz = sizeof(info)};

	fake->no_numa = true;
	fake->mig = true;
	fail("cuDeviceGetPCIBusId", GLK_CU_UNKNOWN);
	is_int(drv->ops->device_info(drv, 0, &info), 0, "an older driver");
	is_int(info.numa_node, -1, "NUMA node unknown");
	ok(!(info.caps & GLAKE_CAP_HOST_NUMA), "no pages on the host");
	is_str(info.uuid, "MIG-10111213-1415-1617-1819-1a1b1c1d1e1f",
		"an instance's UUID");
	is_str(info.pci, "", "address unknown");
	fake->fail_call = "cuDeviceGetUuid";
	is_int(drv->ops->device_info(drv, 0, &info), 0, "UUID unknown");
	is_str(info.uuid, "", "is empty");
	fake->fail_call = "cuDeviceGetName";
	is_int(drv->ops->device_info(drv, 0, &info), -EIO, "no name");
	fake->fail_call = "cuDeviceTotalMem";
	is_int(drv->ops->device_info(drv, 0, &info), -EIO, "no size");
	fake->fail_call = "cuMemGetAllocationGranularity";
	is_int(drv->ops->device_info(drv, 0, &info), -EIO, "no page size");
	fake->fail_call = NULL;
	is_int(drv->ops->device_info(drv, 2, &info), -EINVAL, "GPU 2 of 2");
	is_int(drv->ops->device_info(drv, -1, &info), -EINVAL, "GPU -1");
}

static void memory(void)
{
	struct glake_device info = {.sz = sizeof(info)};
	size_t free = 0, total = 0;
	int count = 0;

	is_int(drv->ops->device_count(drv, &count), 0, "count");
	is_int(count, 2, "two");
	is_int(drv->ops->memory_info(drv, 0, &free, &total), 0, "memory");
	is_int(free, (size_t)100 << 30, "free");
	is_int(total, (size_t)140 << 30, "in all");
	drv->ops->device_info(drv, 0, &info);
	ok(info.free_valid && info.free == (uint64_t)100 << 30,
		"now the info has it too");
	fail("cuMemGetInfo", GLK_CU_ECC_UNCORRECTABLE);
	is_int(drv->ops->memory_info(drv, 0, &free, &total), -ENODEV, "a lost GPU");
	is_int(drv->ops->device_info(drv, 0, &info), 0, "is still described");
	ok(!info.free_valid, "without its free memory");
	fake->fail_call = NULL;
}

int main(void)
{
	rig_begin();
	whole();
	partly();
	memory();
	return rig_end();
}
