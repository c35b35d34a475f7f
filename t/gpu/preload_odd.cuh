// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * For preload.cu: what is said of addresses, memory of other kinds beside that of cudaMalloc, and
 * what is refused of each. All of it is printed, and must be as plain.
 */
#ifndef GLK_GPU_PRELOAD_ODD_CUH
#define GLK_GPU_PRELOAD_ODD_CUH

#include "preload.cuh"

#include <cstring>

static void *driver_entry(const char *name)
{
	cudaDriverEntryPointQueryResult found;
	void *fn = nullptr;

	MUST(cudaGetDriverEntryPointByVersion(name, &fn, 12000, cudaEnableDefault, &found));
	return fn;
}

static void about(const char *what, const char *p, size_t offset)
{
	typedef CUresult (*one_fn)(void *, CUpointer_attribute, CUdeviceptr);
	typedef CUresult (*all_fn)(unsigned, CUpointer_attribute *, void **, CUdeviceptr);
	typedef CUresult (*current_fn)(CUcontext *);
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	CUcontext current = nullptr, context = nullptr, again = nullptr;
	CUdeviceptr start = 0;
	size_t size = 0;
	unsigned type = 0;
	int ordinal = -1;
	void *values[] = {&context, &start, &size, &type, &ordinal};
	cudaPointerAttributes said;
	CUresult one, all;

	MUST(cudaPointerGetAttributes(&said, p + offset));
	((current_fn)driver_entry("cuCtxGetCurrent"))(&current);
	one = ((one_fn)driver_entry("cuPointerGetAttribute"))(
		&again, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(p + offset));
	all = ((all_fn)driver_entry("cuPointerGetAttributes"))(
		5, which, values, (CUdeviceptr)(p + offset));
	printf(" %s: %d %d %d %d, %d %d %d %d %d %zu %u %d\n", what, said.type, said.device,
		(char *)said.devicePointer == p + offset, said.hostPointer == nullptr, one, all,
		context == current, again == context, start == (CUdeviceptr)p, size, type,
		ordinal);
}

/* The code of a call that may be refused, and no trace of it. */
static int code(cudaError_t result)
{
	cudaGetLastError();
	return result;
}

static void odd()
{
	const size_t size = 12 << 20;
	cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>();
	float rows[64 * 64], back[64 * 64];
	cudaArray_t array;
	char *p, *managed, *host;

	printf("odd\n");
	MUST(cudaMalloc(&p, size));
	MUST(cudaMallocManaged(&managed, size));
	MUST(cudaMallocHost(&host, size));
	about("cudaMalloc", p, 5 << 20);
	about("cudaMallocManaged", managed, 5 << 20);
	MUST(cudaMallocArray(&array, &floats, 64, 64));
	for (int i = 0; i < 64 * 64; i++)
		rows[i] = (float)i;
	MUST(cudaMemcpy2DToArray(array, 0, 0, rows, 256, 256, 64, cudaMemcpyHostToDevice));
	MUST(cudaMemcpy2DFromArray(back, 256, array, 0, 0, 256, 64, cudaMemcpyDeviceToHost));
	MUST(cudaFreeArray(array));
	MUST(cudaMemcpy(p, host, size, cudaMemcpyDefault));
	MUST(cudaMemcpy(managed, p, size, cudaMemcpyDefault));
	printf(" array %d, register %d, free host %d, free inside %d, free of a stack %d\n",
		memcmp(rows, back, sizeof(rows)),
		code(cudaHostRegister(p, 1 << 20, cudaHostRegisterDefault)),
		code(cudaFreeHost(p)), code(cudaFree(p + 4096)), code(cudaFree(rows)));
	printf(" frees %d %d %d, again %d %d\n", code(cudaFree(managed)), code(cudaFreeHost(host)),
		code(cudaFree(p)), code(cudaFree(managed)), code(cudaFree(p)));
}

#endif
