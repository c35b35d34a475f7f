// SPDX-License-Identifier: LGPL-2.1-or-later
/* Kernels that write and check patterns, for the programs of preload.cu. */
#ifndef GLK_GPU_PRELOAD_CUH
#define GLK_GPU_PRELOAD_CUH

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define MUST(call)                                                                       \
	do {                                                                             \
		cudaError_t must_error = (call);                                         \
		if (must_error != cudaSuccess) {                                         \
			fprintf(stderr, "%s: %s\n", #call,                               \
				cudaGetErrorString(must_error));                         \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

typedef unsigned long long word;

__global__ void add(const float *a, const float *b, float *c, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
		i += (size_t)gridDim.x * blockDim.x)
		c[i] = a[i] + b[i];
}

__global__ void fill(word *p, size_t n, word seed)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
		i += (size_t)gridDim.x * blockDim.x)
		p[i] = seed * 0x9e3779b97f4a7c15ull + i;
}

/* Adds what differs from the pattern to wrong[0], and the pattern's sum to wrong[1]. */
__global__ void check(const word *p, size_t n, word seed, word *wrong)
{
	word bad = 0, sum = 0;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
		i += (size_t)gridDim.x * blockDim.x) {
		bad += p[i] != seed * 0x9e3779b97f4a7c15ull + i;
		sum += p[i];
	}
	atomicAdd(&wrong[0], bad);
	atomicAdd(&wrong[1], sum);
}

__global__ void slow_fill(word *p, size_t n, word seed, word cycles)
{
	word start = clock64();

	while (clock64() - start < cycles)
		;
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
		i += (size_t)gridDim.x * blockDim.x)
		p[i] = seed * 0x9e3779b97f4a7c15ull + i;
}

static word *counters()
{
	word *wrong;

	MUST(cudaMallocManaged(&wrong, 2 * sizeof(*wrong)));
	wrong[0] = wrong[1] = 0;
	return wrong;
}

#endif
