/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Kernels of the library. The driver makes them of text when they are loaded, for which it needs its own compiler
 * beside it: an installation without answers -EOPNOTSUPP.
 */
#include "driver/cuda_state.h"

#include <errno.h>

static int missing(void)
{
	return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
		"this driver runs no kernels of the library");
}

int glk_cuda_module_load(
	struct glk_drv *drv, int device, const char *text, uint64_t *ret_module)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct CUmod_st *module = NULL;
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (!cuda->lib->cuModuleLoadData || !cuda->lib->cuModuleUnload ||
		!cuda->lib->cuModuleGetFunction || !cuda->lib->cuLaunchKernel)
		return missing();
	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuModuleLoadData(&module, text);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuModuleLoadData", result,
			"kernels of the library on GPU %d", device);
	*ret_module = (uintptr_t)module;
	return 0;
}

int glk_cuda_module_free(struct glk_drv *drv, int device, uint64_t module)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (glk_cuda_exiting())
		return 0;
	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuModuleUnload((struct CUmod_st *)(uintptr_t)module);
	glk_cuda_leave(cuda, &scope);
	if (result && result != GLK_CU_DEINITIALIZED)
		return glk_cuda_fail(cuda->lib, "cuModuleUnload", result,
			"kernels of the library on GPU %d", device);
	return 0;
}

int glk_cuda_kernel_find(struct glk_drv *drv, int device, uint64_t module,
	const struct glk_kernel *kernel, uint64_t *ret_kernel)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct CUfunc_st *function = NULL;
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuModuleGetFunction(
		&function, (struct CUmod_st *)(uintptr_t)module, kernel->name);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuModuleGetFunction", result,
			"kernel %s on GPU %d", kernel->name, device);
	*ret_kernel = (uintptr_t)function;
	return 0;
}

int glk_cuda_launch(struct glk_drv *drv, int device, const struct glk_launch *launch,
	struct CUstream_st *stream)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	void *params[] = {(void *)(uintptr_t)launch->args};
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter_stream(cuda, stream, device, &scope);
	if (err)
		return err;
	result = cuda->lib->cuLaunchKernel((struct CUfunc_st *)(uintptr_t)launch->kernel,
		launch->blocks, 1, 1, launch->threads, 1, 1, 0, stream, params, NULL);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuLaunchKernel", result,
			"a kernel of the library on GPU %d", device);
	return 0;
}
