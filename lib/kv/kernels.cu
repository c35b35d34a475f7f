/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What KV caches have the GPU do: copy rows by their numbers, many of which are under way at once, from memory of the
 * host as well. lib/guard/kernels.sh makes of it the text for the driver that is kept beside it; gather.c has the same
 * in C.
 */
#include "rows.h"

static __device__ uint64_t place_of(const struct glk_kv_rows *r, uint64_t at)
{
	return at < r->bytes ? ((const uint64_t *)r->places)[at / GLK_KV_PLACE] : 0;
}

extern "C" __global__ void glake_kv_rows(const __grid_constant__ struct glk_kv_rows r)
{
	uint32_t lane = threadIdx.x % GLK_KV_LANES;
	uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / GLK_KV_LANES;
	uint32_t warps = gridDim.x * blockDim.x / GLK_KV_LANES;

#pragma unroll 1
	for (uint32_t row = warp; row < r.count; row += warps) {
		uint64_t at = ((const uint32_t *)r.indices)[row] * r.step + r.offset;
		uint64_t first = place_of(&r, at), second = first;
		uint64_t to = r.to + (uint64_t)row * r.size;

		if (at / GLK_KV_PLACE != (at + r.size - 1) / GLK_KV_PLACE)
			second = place_of(&r, at + r.size - 1);
#pragma unroll 1
		for (uint32_t in = lane * 16; in < r.size;
			in += GLK_KV_AT_ONCE * GLK_KV_LANES * 16) {
			uint4 v[GLK_KV_AT_ONCE];

#pragma unroll
			for (uint32_t i = 0; i < GLK_KV_AT_ONCE; i++) {
				uint64_t of = at + in + i * GLK_KV_LANES * 16;
				uint64_t from = of / GLK_KV_PLACE == at / GLK_KV_PLACE
					? first
					: second;

				v[i] = make_uint4(0, 0, 0, 0);
				if (in + i * GLK_KV_LANES * 16 < r.size && from)
					v[i] = __ldcs((
						const uint4 *)(from + of % GLK_KV_PLACE));
			}
#pragma unroll
			for (uint32_t i = 0; i < GLK_KV_AT_ONCE; i++)
				if (in + i * GLK_KV_LANES * 16 < r.size)
					*(uint4 *)(to + in + i * GLK_KV_LANES * 16) =
						v[i];
		}
	}
}
