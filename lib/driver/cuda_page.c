/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Addresses and pages: the VMM calls, one operation each. They wait for no kernel, so all may
 * be called beside running work and while streams capture graphs. They belong to the process
 * and not to a context, and go on working after a context was lost; memory can then still be
 * given back.
 *
 * Giving back after exit has begun does nothing and is success: the driver takes all.
 */
#include "driver/cuda_state.h"

#include <errno.h>

static struct glk_cu_location location_of(
	const struct glk_cuda *cuda, struct glk_place place)
{
	struct glk_cu_location location = {GLK_CU_LOCATION_HOST_NUMA, place.id};

	if (place.kind == GLK_PLACE_GPU) {
		location.type = GLK_CU_LOCATION_DEVICE;
		location.id = cuda->gpu[place.id].device;
	} else if (place.kind == GLK_PLACE_ANY) {
		location.type = GLK_CU_LOCATION_HOST;
	}
	return location;
}

static const char *place_name(struct glk_place place)
{
	static const char *const names[] = {"GPU", "NUMA node", "host"};

	return names[place.kind];
}

static int place_check(const struct glk_cuda *cuda, struct glk_place place)
{
	if (place.id >= 0 && (place.kind != GLK_PLACE_GPU || place.id < cuda->gpus))
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "there is no %s %d",
		place_name(place), place.id);
}

/* Calls that give something back: nothing is left to do once the driver has gone. */
static int given_back(struct glk_cuda *cuda, const char *call, glk_cu_result result,
	const char *what, uint64_t which)
{
	if (!result || result == GLK_CU_DEINITIALIZED)
		return 0;
	return glk_cuda_fail(
		cuda->lib, call, result, "%s %#llx", what, (unsigned long long)which);
}

int glk_cuda_reserve(struct glk_drv *drv, size_t size, size_t align, uint64_t *ret_addr)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_address addr = 0;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemAddressReserve(&addr, size, align, 0, 0);
	glk_cuda_leave(cuda, &scope);
	if (result == GLK_CU_OUT_OF_MEMORY)
		return glk_error_native(-ENOMEM, GLAKE_ERROR_ADDRESS,
			"cuMemAddressReserve", (int)result,
			"no %zu bytes of addresses in one piece", size);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemAddressReserve", result,
			"%zu bytes of addresses at multiples of %zu", size, align);
	*ret_addr = addr;
	return 0;
}

int glk_cuda_unreserve(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (glk_cuda_exiting())
		return 0;
	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemAddressFree(addr, size);
	glk_cuda_leave(cuda, &scope);
	return given_back(cuda, "cuMemAddressFree", result, "addresses at", addr);
}

int glk_cuda_create(struct glk_drv *drv, struct glk_place place, size_t size,
	uint32_t flags, uint64_t *ret_page)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cu_prop prop = {.type = GLK_CU_ALLOCATION_PINNED};
	struct glk_cuda_scope scope;
	glk_cu_page page = 0;
	glk_cu_result result;
	int err;

	err = place_check(cuda, place);
	if (err)
		return err;
	prop.location = location_of(cuda, place);
	if (flags & GLK_PAGE_EXPORT_FD)
		prop.handle_types |= GLK_CU_HANDLE_FD;
	if (flags & GLK_PAGE_FABRIC)
		prop.handle_types |= GLK_CU_HANDLE_FABRIC;
	if (flags & GLK_PAGE_RDMA)
		prop.flags.rdma = 1;

	if (place.kind == GLK_PLACE_GPU)
		err = glk_cuda_enter(cuda, place.id, &scope);
	else
		err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemCreate(&page, size, &prop, 0);
	glk_cuda_leave(cuda, &scope);
	if (result == GLK_CU_OUT_OF_MEMORY && place.kind != GLK_PLACE_GPU)
		return glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "cuMemCreate",
			(int)result, "%s %d has no %zu bytes", place_name(place),
			place.id, size);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemCreate", result,
			"a page of %zu bytes, flags %#x, on %s %d", size, flags,
			place_name(place), place.id);
	*ret_page = page;
	return 0;
}

int glk_cuda_release(struct glk_drv *drv, uint64_t page)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (glk_cuda_exiting())
		return 0;
	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemRelease(page);
	glk_cuda_leave(cuda, &scope);
	return given_back(cuda, "cuMemRelease", result, "page", page);
}

int glk_cuda_map(struct glk_drv *drv, uint64_t addr, size_t size, uint64_t page)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemMap(addr, size, 0, page, 0);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemMap", result,
			"page %#llx of %zu bytes at %#llx", (unsigned long long)page,
			size, (unsigned long long)addr);
	return 0;
}

/* The rights of a mapping must not change while a kernel may use it, so that nothing is to be done. */
int glk_cuda_promise(struct glk_drv *drv, uint64_t addr, size_t size)
{
	(void)drv, (void)addr, (void)size;
	return 0;
}

int glk_cuda_set_access(struct glk_drv *drv, uint64_t addr, size_t size,
	const struct glk_grant *grants, size_t count)
{
	struct glk_cu_access access[GLK_CUDA_GRANTS_MAX];
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err, gpu = -1;

	if (!count || count > GLK_CUDA_GRANTS_MAX)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%zu grants, 1 to %d are right", count, GLK_CUDA_GRANTS_MAX);
	for (size_t i = 0; i < count; i++) {
		err = place_check(cuda, grants[i].who);
		if (err)
			return err;
		access[i].location = location_of(cuda, grants[i].who);
		access[i].flags = (unsigned int)grants[i].access; /* the same numbers */
		if (gpu < 0 && grants[i].who.kind == GLK_PLACE_GPU)
			gpu = grants[i].who.id;
	}
	/* A GPU that may touch the range has a context from here on. */
	err = gpu < 0 ? glk_cuda_enter_any(cuda, &scope)
		      : glk_cuda_enter(cuda, gpu, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemSetAccess(addr, size, access, count);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemSetAccess", result,
			"access to %zu bytes at %#llx", size, (unsigned long long)addr);
	return 0;
}

int glk_cuda_unmap(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (glk_cuda_exiting())
		return 0;
	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemUnmap(addr, size);
	glk_cuda_leave(cuda, &scope);
	return given_back(cuda, "cuMemUnmap", result, "the mappings at", addr);
}
