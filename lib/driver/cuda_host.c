/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host that the GPUs copy from and to. */
#include "driver/cuda_state.h"

#include <errno.h>

static int missing(void)
{
	return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
		"this driver locks no memory of the host");
}

int glk_cuda_host_lock(struct glk_drv *drv, void *ptr, size_t size)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (!cuda->lib->cuMemHostRegister)
		return missing();
	err = glk_cuda_enter_any(cuda, &scope);
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

int glk_cuda_host_unlock(struct glk_drv *drv, void *ptr)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (glk_cuda_exiting())
		return 0;
	if (!cuda->lib->cuMemHostUnregister)
		return missing();
	err = glk_cuda_enter_any(cuda, &scope);
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
