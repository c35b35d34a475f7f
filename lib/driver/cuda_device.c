/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What each GPU is and can do. A capability is set only when the driver said yes: an
 * attribute that an older driver does not know counts as no. Describing a GPU makes no
 * context on it, which would cost half a GiB of its memory; free memory is told only where a
 * context is there already.
 */
#include "driver/cuda_state.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	glk_cu_attribute attribute;
	uint32_t cap;
} caps[] = {
	{GLK_CU_ATTR_VMM, GLAKE_CAP_VMM},
	{GLK_CU_ATTR_FD, GLAKE_CAP_FD},
	{GLK_CU_ATTR_FABRIC, GLAKE_CAP_FABRIC},
	{GLK_CU_ATTR_RDMA, GLAKE_CAP_RDMA},
	{GLK_CU_ATTR_DMABUF, GLAKE_CAP_DMABUF},
	{GLK_CU_ATTR_HOST_NUMA, GLAKE_CAP_HOST_NUMA},
	{GLK_CU_ATTR_MANAGED, GLAKE_CAP_MANAGED},
	{GLK_CU_ATTR_PAGEABLE, GLAKE_CAP_PAGEABLE},
	{GLK_CU_ATTR_MPS, GLAKE_CAP_MPS},
};

int glk_cuda_device_count(struct glk_drv *drv, int *ret_count)
{
	*ret_count = glk_cuda_of(drv)->gpus;
	return 0;
}

/* `unknown` where the driver does not answer. */
static int attribute(
	struct glk_cuda *cuda, glk_cu_device device, glk_cu_attribute which, int unknown)
{
	int value = unknown;

	if (cuda->lib->cuDeviceGetAttribute(&value, which, device))
		return unknown;
	return value;
}

/*
 * As nvidia-smi prints it. The newer of the two calls gives the instance's own UUID on a GPU
 * cut into instances (MIG); the two then differ, which nothing else tells.
 */
static void uuid_text(
	struct glk_cuda *cuda, glk_cu_device device, char *text, size_t size)
{
	struct glk_cu_uuid gpu = {0}, own = {0};
	const unsigned char *b = (const unsigned char *)own.bytes;
	const char *kind = "GPU";

	text[0] = '\0';
	if (cuda->lib->cuDeviceGetUuid(&own, device))
		return;
	if (!cuda->lib->cuDeviceGetUuid_v1(&gpu, device) &&
		memcmp(&gpu, &own, sizeof(own)))
		kind = "MIG";
	snprintf(text, size,
		"%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		kind, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
		b[11], b[12], b[13], b[14], b[15]);
}

static int granularity(struct glk_cuda *cuda, int device, struct glake_device *info)
{
	struct glk_cu_prop prop = {.type = GLK_CU_ALLOCATION_PINNED};
	size_t minimum = 0, recommended = 0;
	glk_cu_result result;

	prop.location.type = GLK_CU_LOCATION_DEVICE;
	prop.location.id = cuda->gpu[device].device;
	result = cuda->lib->cuMemGetAllocationGranularity(
		&minimum, &prop, GLK_CU_GRANULARITY_MINIMUM);
	if (!result)
		result = cuda->lib->cuMemGetAllocationGranularity(
			&recommended, &prop, GLK_CU_GRANULARITY_RECOMMENDED);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemGetAllocationGranularity", result,
			"the page sizes of GPU %d", device);
	info->granularity = minimum;
	info->granularity_recommended = recommended;
	return 0;
}

static int describe(struct glk_cuda *cuda, int device, struct glake_device *info)
{
	glk_cu_device gpu = cuda->gpu[device].device;
	glk_cu_result result;
	size_t memory = 0;

	result = cuda->lib->cuDeviceGetName(info->name, (int)sizeof(info->name), gpu);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuDeviceGetName", result,
			"the name of GPU %d", device);
	result = cuda->lib->cuDeviceTotalMem(&memory, gpu);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuDeviceTotalMem", result,
			"the memory of GPU %d", device);
	info->memory = memory;
	uuid_text(cuda, gpu, info->uuid, sizeof(info->uuid));
	if (cuda->lib->cuDeviceGetPCIBusId(info->pci, (int)sizeof(info->pci), gpu))
		info->pci[0] = '\0';
	/* sysfs writes it in small letters. */
	for (char *c = info->pci; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	info->numa_node = attribute(cuda, gpu, GLK_CU_ATTR_NUMA_NODE, -1);
	info->major = attribute(cuda, gpu, GLK_CU_ATTR_MAJOR, 0);
	info->minor = attribute(cuda, gpu, GLK_CU_ATTR_MINOR, 0);
	for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++)
		if (attribute(cuda, gpu, caps[i].attribute, 0))
			info->caps |= caps[i].cap;
	return info->caps & GLAKE_CAP_VMM ? granularity(cuda, device, info) : 0;
}

int glk_cuda_device_info(struct glk_drv *drv, int device, struct glake_device *ret_device)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glake_device info = {.sz = ret_device->sz};
	size_t free, total;
	int err;

	err = glk_cuda_alive(cuda);
	if (err)
		return err;
	if (device < 0 || device >= cuda->gpus)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "GPU %d of %d", device, cuda->gpus);
	err = describe(cuda, device, &info);
	if (err)
		return err;
	if (glk_load_relaxed(&cuda->gpu[device].context) &&
		!glk_cuda_memory_info(drv, device, &free, &total)) {
		info.free = free;
		info.free_valid = 1;
	}
	*ret_device = info;
	return 0;
}

int glk_cuda_memory_info(
	struct glk_drv *drv, int device, size_t *ret_free, size_t *ret_total)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	size_t free = 0, total = 0;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemGetInfo(&free, &total);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemGetInfo", result,
			"the memory of GPU %d", device);
	*ret_free = free;
	*ret_total = total;
	return 0;
}
