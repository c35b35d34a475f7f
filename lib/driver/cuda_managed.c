/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Managed memory. Places are said by GPU and NUMA node to drivers of CUDA 12.2 and later; to older ones
 * by GPU, and the host as a whole. It is had for GPUs alone that the host may share it with while they
 * work: on others each launch would take it from the host, and each touch of the host end the program.
 */
#include "driver/cuda_state.h"

#include <errno.h>

static int lacks(const char *function)
{
	return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
		"this driver has no %s, and so no managed memory", function);
}

static int able(struct glk_cuda *cuda, int device)
{
	static const struct {
		glk_cu_attribute attribute;
		const char *text;
	} all[] = {
		{GLK_CU_ATTR_HAS_MANAGED, "has no managed memory"},
		{GLK_CU_ATTR_MANAGED,
			"cannot share managed memory with the host while it works"},
	};

	if (device < 0 || device >= cuda->gpus)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "GPU %d of %d", device, cuda->gpus);
	if (!cuda->lib->cuMemAllocManaged || !cuda->lib->cuMemFree)
		return lacks("cuMemAllocManaged");
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		int value = 0;

		if (!cuda->lib->cuDeviceGetAttribute(
			    &value, all[i].attribute, cuda->gpu[device].device) &&
			value)
			continue;
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"GPU %d, or its driver, %s", device, all[i].text);
	}
	return 0;
}

int glk_cuda_managed_alloc(
	struct glk_drv *drv, int device, size_t size, uint64_t *ret_addr)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_address addr = 0;
	glk_cu_result result;
	int err;

	err = glk_cuda_alive(cuda);
	if (!err)
		err = able(cuda, device);
	if (!err)
		err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuMemAllocManaged(&addr, size, GLK_CU_ATTACH_GLOBAL);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemAllocManaged", result,
			"%zu bytes of managed memory for GPU %d", size, device);
	*ret_addr = addr;
	return 0;
}

/* After exit has begun it does nothing and is success: the driver takes all. */
int glk_cuda_managed_free(struct glk_drv *drv, uint64_t addr)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (glk_cuda_exiting())
		return 0;
	if (!cuda->lib->cuMemFree)
		return lacks("cuMemFree");
	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuMemFree(addr);
	glk_cuda_leave(cuda, &scope);
	if (result && result != GLK_CU_DEINITIALIZED)
		return glk_cuda_fail(cuda->lib, "cuMemFree", result,
			"managed memory at %#llx", (unsigned long long)addr);
	return 0;
}

/* As drivers of 12.2 know a place; a GPU has to be one. */
static int locate(
	const struct glk_cuda *cuda, struct glk_place place, struct glk_cu_location *ret)
{
	if (place.kind == GLK_PLACE_GPU && (place.id < 0 || place.id >= cuda->gpus))
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "GPU %d of %d", place.id, cuda->gpus);
	*ret = (struct glk_cu_location){GLK_CU_LOCATION_HOST, 0};
	if (place.kind == GLK_PLACE_GPU)
		*ret = (struct glk_cu_location){
			GLK_CU_LOCATION_DEVICE, cuda->gpu[place.id].device};
	else if (place.kind == GLK_PLACE_HOST)
		*ret = (struct glk_cu_location){GLK_CU_LOCATION_HOST_NUMA, place.id};
	return 0;
}

/* As older ones do. */
static glk_cu_device device_of(struct glk_cu_location at)
{
	return at.type == GLK_CU_LOCATION_DEVICE ? at.id : GLK_CU_DEVICE_CPU;
}

int glk_cuda_managed_say(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_say what, struct glk_place place)
{
	static const glk_cu_advice advice[] = {
		[GLK_MANAGED_PREFER] = GLK_CU_ADVICE_PREFER,
		[GLK_MANAGED_UNPREFER] = GLK_CU_ADVICE_UNPREFER,
		[GLK_MANAGED_ACCESSED] = GLK_CU_ADVICE_ACCESSED,
		[GLK_MANAGED_UNACCESSED] = GLK_CU_ADVICE_UNACCESSED,
	};
	struct glk_cuda *cuda = glk_cuda_of(drv);
	const struct glk_cuda_lib *lib = cuda->lib;
	struct glk_cu_location at = {GLK_CU_LOCATION_HOST, 0};
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err = 0;

	if (!lib->cuMemAdvise_v2 && !lib->cuMemAdvise_v1)
		return lacks("cuMemAdvise");
	if (what != GLK_MANAGED_UNPREFER)
		err = locate(cuda, place, &at);
	/* a node is a place to be at; who uses it is the host as a whole */
	if (what >= GLK_MANAGED_ACCESSED && at.type == GLK_CU_LOCATION_HOST_NUMA)
		at = (struct glk_cu_location){GLK_CU_LOCATION_HOST, 0};
	if (!err)
		err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	if (lib->cuMemAdvise_v2)
		result = lib->cuMemAdvise_v2(addr, size, advice[what], at);
	else
		result = lib->cuMemAdvise_v1(addr, size, advice[what], device_of(at));
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(lib, "cuMemAdvise", result,
			"%zu bytes of managed memory at %#llx", size,
			(unsigned long long)addr);
	return 0;
}

int glk_cuda_managed_prefetch(struct glk_drv *drv, uint64_t addr, size_t size,
	struct glk_place place, int device, struct CUstream_st *stream)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	const struct glk_cuda_lib *lib = cuda->lib;
	struct glk_cu_location at;
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (!lib->cuMemPrefetchAsync_v2 && !lib->cuMemPrefetchAsync_v1)
		return lacks("cuMemPrefetchAsync");
	err = locate(cuda, place, &at);
	if (!err)
		err = glk_cuda_enter_stream(cuda, stream, device, &scope);
	if (err)
		return err;
	if (lib->cuMemPrefetchAsync_v2)
		result = lib->cuMemPrefetchAsync_v2(addr, size, at, 0, stream);
	else
		result = lib->cuMemPrefetchAsync_v1(addr, size, device_of(at), stream);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(lib, "cuMemPrefetchAsync", result,
			"%zu bytes of managed memory at %#llx", size,
			(unsigned long long)addr);
	return 0;
}

/* Drivers that do not know of types know GPUs, and the host by a number of its own. */
static glk_cu_result ask(const struct glk_cuda *cuda, uint64_t addr, size_t size,
	bool sent, struct glk_cu_location *ret_at)
{
	const struct glk_cuda_lib *lib = cuda->lib;
	struct glk_cu_location at = {GLK_CU_LOCATION_NONE, 0};
	glk_cu_result result;
	int id = 0;

	if (lib->version >= GLK_CUDA_VERSION_LOCATIONS) {
		result = lib->cuMemRangeGetAttribute(&at.type, sizeof(at.type),
			sent ? GLK_CU_RANGE_PREFETCHED_TYPE : GLK_CU_RANGE_PREFERRED_TYPE,
			addr, size);
		if (!result)
			result = lib->cuMemRangeGetAttribute(&at.id, sizeof(at.id),
				sent ? GLK_CU_RANGE_PREFETCHED_ID
				     : GLK_CU_RANGE_PREFERRED_ID,
				addr, size);
	} else {
		result = lib->cuMemRangeGetAttribute(&id, sizeof(id),
			sent ? GLK_CU_RANGE_PREFETCHED : GLK_CU_RANGE_PREFERRED, addr,
			size);
		if (id == GLK_CU_DEVICE_CPU)
			at.type = GLK_CU_LOCATION_HOST;
		else if (id >= 0)
			at = (struct glk_cu_location){GLK_CU_LOCATION_DEVICE, id};
	}
	*ret_at = at;
	return result;
}

int glk_cuda_managed_ask(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_ask what, struct glk_place *ret_place)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cu_location at;
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (!cuda->lib->cuMemRangeGetAttribute)
		return lacks("cuMemRangeGetAttribute");
	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = ask(cuda, addr, size, what == GLK_MANAGED_PREFETCHED, &at);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemRangeGetAttribute", result,
			"%zu bytes of managed memory at %#llx", size,
			(unsigned long long)addr);
	if (at.type == GLK_CU_LOCATION_HOST || at.type == GLK_CU_LOCATION_HOST_NUMA) {
		*ret_place = at.type == GLK_CU_LOCATION_HOST
			? (struct glk_place){GLK_PLACE_ANY, 0}
			: (struct glk_place){GLK_PLACE_HOST, at.id};
		return 0;
	}
	for (int i = 0; at.type == GLK_CU_LOCATION_DEVICE && i < cuda->gpus; i++) {
		if (cuda->gpu[i].device != at.id)
			continue;
		*ret_place = (struct glk_place){GLK_PLACE_GPU, i};
		return 0;
	}
	return -ENOENT;
}
