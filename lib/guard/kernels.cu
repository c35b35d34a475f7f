/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What guard has the GPU do: write the pattern, and look for what is not of it. kernels.sh makes of it the text for
 * the driver that is kept beside it, so that building needs no compiler for the GPU; twins.c is the same in C.
 */
#include "pattern.h"

typedef unsigned long long word64;

/* 16 bytes of the pattern, at a multiple of 16. */
static __device__ uint4 pattern_at(uint64_t addr, uint32_t secret)
{
	return make_uint4(glk_guard_word(addr, secret), glk_guard_word(addr + 4, secret),
		glk_guard_word(addr + 8, secret), glk_guard_word(addr + 12, secret));
}

/* The part of a range that lies in whole 16 bytes. */
static __device__ void whole(
	const struct glk_guard_range *r, uint64_t *ret_begin, uint64_t *ret_end)
{
	uint64_t end = r->addr + r->bytes;

	*ret_begin = (r->addr + 15) & ~UINT64_C(15);
	*ret_end = end & ~UINT64_C(15);
	if (*ret_begin >= *ret_end)
		*ret_begin = *ret_end = end;
}

extern "C" __global__ void glake_guard_fill(
	const __grid_constant__ struct glk_guard_range r)
{
	uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	uint64_t step = (uint64_t)gridDim.x * blockDim.x, begin, end;

	whole(&r, &begin, &end);
#pragma unroll 1
	for (uint64_t at = begin + i * 16; at < end; at += step * 16)
		*(uint4 *)at = pattern_at(at, r.secret);
		/* fewer than 16 bytes at either end, or than 31 in all */
#pragma unroll 1
	for (uint64_t at = r.addr + i; at < begin; at += step)
		*(uint8_t *)at = glk_guard_byte(at, r.secret);
#pragma unroll 1
	for (uint64_t at = end + i; at < r.addr + r.bytes; at += step)
		*(uint8_t *)at = glk_guard_byte(at, r.secret);
}

/* Reads past the caches of a processor, since others may have written. */
static __device__ uint4 load(uint64_t at)
{
	return __ldcg((const uint4 *)at);
}

static __device__ uint8_t load_byte(uint64_t at)
{
	return __ldcg((const unsigned char *)at);
}

struct wrong {
	word64 first, count;
};

static __device__ void look_at_byte(uint64_t at, uint32_t secret, struct wrong *wrong)
{
	if (load_byte(at) == glk_guard_byte(at, secret))
		return;
	if (at < wrong->first)
		wrong->first = at;
	wrong->count++;
}

/* Seldom, and once in the text. */
static __device__ __noinline__ struct wrong look_at_bytes(
	uint64_t at, uint32_t secret, struct wrong wrong)
{
#pragma unroll 1
	for (int i = 0; i < 16; i++)
		look_at_byte(at + i, secret, &wrong);
	return wrong;
}

static __device__ void look_at(
	uint64_t at, uint4 found, uint32_t secret, struct wrong *wrong)
{
	uint4 want = pattern_at(at, secret);

	if (found.x != want.x || found.y != want.y || found.z != want.z ||
		found.w != want.w)
		*wrong = look_at_bytes(at, secret, *wrong);
}

/* What a thread of `step` finds in a range, so many bytes behind the first whole 16 of it, and at both ends. */
static __device__ void scan(const struct glk_guard_range *r, uint64_t i, uint64_t step,
	uint64_t from, struct wrong *wrong)
{
	uint64_t begin, end, at;

	whole(r, &begin, &end);
#pragma unroll 1
	for (at = begin + from; at < end; at += step * 16)
		look_at(at, load(at), r->secret, wrong);
#pragma unroll 1
	for (at = r->addr + i; at < begin; at += step)
		look_at_byte(at, r->secret, wrong);
#pragma unroll 1
	for (at = end + i; at < r->addr + r->bytes; at += step)
		look_at_byte(at, r->secret, wrong);
}

/* The first part of a large range, with four loads under way at a time; how many bytes of it. */
static __device__ uint64_t scan_fast(
	const struct glk_guard_range *r, uint64_t i, uint64_t step, struct wrong *wrong)
{
	uint64_t begin, end, at;

	whole(r, &begin, &end);
#pragma unroll 1
	for (at = begin + i * 16; at + 3 * step * 16 < end; at += 4 * step * 16) {
		uint4 a = load(at), b = load(at + step * 16),
		      c = load(at + 2 * step * 16), d = load(at + 3 * step * 16);

		look_at(at, a, r->secret, wrong);
		look_at(at + step * 16, b, r->secret, wrong);
		look_at(at + 2 * step * 16, c, r->secret, wrong);
		look_at(at + 3 * step * 16, d, r->secret, wrong);
	}
	return at - begin;
}

/* Of one range, of any size. */
extern "C" __global__ void glake_guard_scan(
	const __grid_constant__ struct glk_guard_range r)
{
	uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	struct glk_guard_found *found = (struct glk_guard_found *)r.found;
	uint64_t step = (uint64_t)gridDim.x * blockDim.x;
	struct wrong wrong = {UINT64_MAX, 0};

	scan(&r, i, step, scan_fast(&r, i, step, &wrong), &wrong);
	if (wrong.count) {
		atomicMin((word64 *)&found->first, wrong.first - r.addr);
		atomicAdd((word64 *)&found->count, wrong.count);
		__threadfence_system();
	}
	__syncthreads();
	if (!threadIdx.x) {
		__threadfence_system();
		atomicAdd(&found->ended, 1);
	}
}

/* Of a table of short ranges, a warp for each. */
extern "C" __global__ void glake_guard_check(
	const __grid_constant__ struct glk_guard_table t)
{
	uint32_t lane = threadIdx.x % GLK_GUARD_LANES;
	uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / GLK_GUARD_LANES;
	uint32_t warps = gridDim.x * blockDim.x / GLK_GUARD_LANES;
	struct glk_guard_founds *founds = (struct glk_guard_founds *)t.founds;
	const struct glk_guard_entry *entries = (const struct glk_guard_entry *)t.entries;

#pragma unroll 1
	for (; warp < t.count; warp += warps) {
		struct glk_guard_range r = {
			entries[warp].addr, entries[warp].bytes, 0, t.secret, 0};
		struct wrong wrong = {UINT64_MAX, 0};

		scan(&r, lane, GLK_GUARD_LANES, lane * 16, &wrong);
		if (!__any_sync(UINT32_MAX, wrong.count != 0))
			continue;
		for (int by = GLK_GUARD_LANES / 2; by; by /= 2) {
			word64 other = __shfl_xor_sync(UINT32_MAX, wrong.first, by);

			wrong.first = other < wrong.first ? other : wrong.first;
			wrong.count += __shfl_xor_sync(UINT32_MAX, wrong.count, by);
		}
		if (!lane) {
			uint32_t at = atomicAdd(&founds->count, 1);

			if (at < GLK_GUARD_FOUND) {
				founds->at[at].first = wrong.first - r.addr;
				founds->at[at].count = wrong.count;
				founds->at[at].index = warp;
			}
		}
	}
}
