/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of the host that the GPUs copy from and to. It is locked in the primary context of a GPU for
 * all contexts: in one that the program has current it would be locked no longer than that one lives.
 */
#include "driver/cuda_state.h"

#include <errno.h>

static int missing(void)
{
	return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
		"this driver locks no memory of the host");
}

int glk_cuda_host_lock(struct glk_drv *drv, int device, void *ptr, size_t size)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (!cuda->lib->cuMemHostRegister)
		return missing();
	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuMemHostRegister(ptr, size, GLK_CU_HOST_PORTABLE);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemHostRegister", result,
			"%zu bytes of the host", size);
	return 0;
}

int glk_cuda_host_unlock(struct glk_drv *drv, int device, void *ptr)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (glk_cuda_exiting())
		return 0;
	if (!cuda->lib->cuMemHostUnregister)
		return missing();
	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuMemHostUnregister(ptr);
	glk_cuda_leave(cuda, &scope);
	if (result && result != GLK_CU_DEINITIALIZED)
		return glk_cuda_fail(cuda->lib, "cuMemHostUnregister", result,
			"memory of the host at %p", ptr);
	return 0;
}

/* What an attribute of an address is; 0 where the driver does not know the address. */
static unsigned attribute(struct glk_cuda *cuda, unsigned which, uint64_t addr)
{
	unsigned value = 0; /* the driver writes a word, or a byte for a truth */

	return cuda->lib->cuPointerGetAttribute(&value, which, addr) ? 0 : value;
}

/* Whether the driver says that it knows nothing of an address; what is wrong otherwise is no such answer. */
static bool is_plain(struct glk_cuda *cuda, uint64_t addr)
{
	unsigned value;

	return cuda->lib->cuPointerGetAttribute(
		       &value, GLK_CU_POINTER_MEMORY_TYPE, addr) == GLK_CU_INVALID_VALUE;
}

int glk_cuda_spot(
	struct glk_drv *drv, uint64_t addr, size_t size, struct glk_spot *ret_spot)
{
	struct glk_spot spot = {.kind = GLK_SPOT_OTHER, .device = -1};
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	unsigned type, ordinal;
	int err;

	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	type = attribute(cuda, GLK_CU_POINTER_MEMORY_TYPE, addr);
	ordinal = attribute(cuda, GLK_CU_POINTER_DEVICE, addr);
	if (attribute(cuda, GLK_CU_POINTER_MEMORY_TYPE, addr + size - 1) != type ||
		attribute(cuda, GLK_CU_POINTER_IS_MANAGED, addr) ||
		(type == GLK_CU_MEMORY_GPU &&
			attribute(cuda, GLK_CU_POINTER_DEVICE, addr + size - 1) !=
				ordinal))
		type = 0;
	if (type == GLK_CU_MEMORY_HOST)
		spot.kind = GLK_SPOT_LOCKED;
	else if (!type && is_plain(cuda, addr) && is_plain(cuda, addr + size - 1))
		spot.kind = GLK_SPOT_PLAIN;
	glk_cuda_leave(cuda, &scope);
	for (int i = 0; type == GLK_CU_MEMORY_GPU && i < cuda->gpus; i++)
		if (cuda->gpu[i].device == (int)ordinal)
			spot = (struct glk_spot){.kind = GLK_SPOT_GPU, .device = i};
	*ret_spot = spot;
	return 0;
}
