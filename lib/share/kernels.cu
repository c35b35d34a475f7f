/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Numbers of parts and looks at pairs of them, a block of threads each. lib/guard/kernels.sh makes of it the text for the
 * driver that is kept beside it; alike.c has the same in C.
 */
#include "alike.h"

/* Memory is read once, and past the caches of a processor, since others may have written. */
static __device__ uint4 load(const uint4 *at)
{
	return __ldcg(at);
}

static __device__ uint32_t sum(uint32_t value)
{
	for (int by = 16; by; by /= 2)
		value += __shfl_xor_sync(UINT32_MAX, value, by);
	return value;
}

extern "C" __global__ void __launch_bounds__(GLK_ALIKE_THREADS)
	glake_alike_hash(const __grid_constant__ struct glk_alike_hash h)
{
	__shared__ uint32_t all[4];
	uint32_t t = threadIdx.x, chain[4] = {1, 2, 3, 4};

	for (uint64_t part = blockIdx.x; part < h.count; part += gridDim.x) {
		const uint4 *at = (const uint4 *)(h.addr + part * h.part) + t;
		const uint4 *end = (const uint4 *)(h.addr + (part + 1) * h.part);

		chain[0] = 1, chain[1] = 2, chain[2] = 3, chain[3] = 4;
		if (t < 4)
			all[t] = 0;
#pragma unroll 1
		for (; at < end; at += GLK_ALIKE_THREADS * GLK_ALIKE_DEEP) {
			uint4 w[GLK_ALIKE_DEEP];

#pragma unroll
			for (int i = 0; i < GLK_ALIKE_DEEP; i++)
				w[i] = load(at + i * GLK_ALIKE_THREADS);
#pragma unroll
			for (int i = 0; i < GLK_ALIKE_DEEP; i++) {
				chain[0] = glk_alike_step(chain[0], w[i].x);
				chain[1] = glk_alike_step(chain[1], w[i].y);
				chain[2] = glk_alike_step(chain[2], w[i].z);
				chain[3] = glk_alike_step(chain[3], w[i].w);
			}
		}
		__syncthreads();
#pragma unroll
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t s = sum(glk_alike_stir(chain[i], t, i));

			if (t % 32 == 0)
				atomicAdd(&all[i], s);
		}
		__syncthreads();
		if (t < 4)
			((struct glk_alike_number *)h.numbers)[part].word[t] = all[t];
		__syncthreads();
	}
}

extern "C" __global__ void __launch_bounds__(GLK_ALIKE_THREADS)
	glake_alike_compare(const __grid_constant__ struct glk_alike_compare c)
{
	struct glk_alike_pair *pairs = (struct glk_alike_pair *)c.pairs;
	__shared__ uint64_t at[2];

	for (uint64_t i = blockIdx.x; i < c.count; i += gridDim.x) {
		const uint4 *a, *b, *end;
		uint32_t differ = 0;

		/* the table is memory of the host */
		if (threadIdx.x < 2)
			at[threadIdx.x] = threadIdx.x ? pairs[i].b : pairs[i].a;
		__syncthreads();
		a = (const uint4 *)at[0] + threadIdx.x;
		b = (const uint4 *)at[1] + threadIdx.x;
		end = (const uint4 *)(at[0] + c.part);

#pragma unroll 1
		for (; a < end; a += GLK_ALIKE_THREADS * GLK_ALIKE_DEEP / 2,
			b += GLK_ALIKE_THREADS * GLK_ALIKE_DEEP / 2) {
			uint4 x[GLK_ALIKE_DEEP / 2], y[GLK_ALIKE_DEEP / 2];

#pragma unroll
			for (int k = 0; k < GLK_ALIKE_DEEP / 2; k++) {
				x[k] = load(a + k * GLK_ALIKE_THREADS);
				y[k] = load(b + k * GLK_ALIKE_THREADS);
			}
#pragma unroll
			for (int k = 0; k < GLK_ALIKE_DEEP / 2; k++)
				differ |= (x[k].x ^ y[k].x) | (x[k].y ^ y[k].y) |
					(x[k].z ^ y[k].z) | (x[k].w ^ y[k].w);
		}
		if (__syncthreads_or(differ != 0) && !threadIdx.x)
			pairs[i].differ = 1;
	}
}
