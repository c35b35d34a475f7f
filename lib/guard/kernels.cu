/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What guard has the GPU do: write its patterns, and look for what is not of them. kernels.sh makes of it the text for
 * the driver that is kept beside it, so that building needs no compiler for the GPU; twins.c is the same in C.
 */
#include "pattern.h"

typedef unsigned long long word64;

/* 16 bytes at a multiple of 16. */
static __device__ uint4 canary_at(uint64_t addr, uint32_t secret)
{
	return make_uint4(glk_guard_word(addr, secret), glk_guard_word(addr + 4, secret),
		glk_guard_word(addr + 8, secret), glk_guard_word(addr + 12, secret));
}

static __device__ uint4 freed_at(uint64_t addr, uint32_t secret)
{
	return make_uint4(glk_guard_freed_word(addr, secret),
		glk_guard_freed_word(addr + 4, secret),
		glk_guard_freed_word(addr + 8, secret),
		glk_guard_freed_word(addr + 12, secret));
}

/* Whole 16 bytes of a body or of a canary at once, and bytes where the one ends and another begins. */
extern "C" __global__ void glake_guard_fill(
	const __grid_constant__ struct glk_guard_range r)
{
	uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	uint64_t step = (uint64_t)gridDim.x * blockDim.x * 16;
	uint64_t begin = r.addr - r.front, middle = r.addr + r.body,
		 end = middle + r.canary;

#pragma unroll 1
	for (uint64_t at = (begin & ~UINT64_C(15)) + i * 16; at < end; at += step) {
		if (at >= r.addr && at + 16 <= middle) {
			*(uint4 *)at = freed_at(at, r.secret);
			continue;
		}
		if ((at >= middle && at + 16 <= end) ||
			(at >= begin && at + 16 <= r.addr)) {
			*(uint4 *)at = canary_at(at, r.secret);
			continue;
		}
#pragma unroll 1
		for (uint64_t b = at < begin ? begin : at; b < at + 16 && b < end; b++)
			*(uint8_t *)b = b >= r.addr && b < middle
				? glk_guard_freed_byte(b, r.secret)
				: glk_guard_byte(b, r.secret);
	}
}

struct wrong {
	word64 first, count;
};

/* Which of 16 bytes are wrong, as far as they lie in a range; seldom, and once in the text. */
static __device__ __noinline__ struct wrong note(uint64_t at, uint64_t begin,
	uint64_t end, uint32_t secret, bool freed, struct wrong wrong)
{
#pragma unroll 1
	for (uint64_t b = at < begin ? begin : at; b < at + 16 && b < end; b++) {
		uint8_t want = freed ? glk_guard_freed_byte(b, secret)
				     : glk_guard_byte(b, secret);

		if (__ldcg((const unsigned char *)b) == want)
			continue;
		if (b < wrong.first)
			wrong.first = b;
		wrong.count++;
	}
	return wrong;
}

static __device__ bool differ(uint4 a, uint4 b)
{
	return a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w;
}

/* Reads past the caches of a processor, since others may have written. */
static __device__ uint4 load(uint64_t at)
{
	return __ldcg((const uint4 *)at);
}

/* Over a warp. */
static __device__ struct wrong sum(struct wrong wrong)
{
#pragma unroll 1
	for (int by = GLK_GUARD_LANES / 2; by; by /= 2) {
		word64 other = __shfl_xor_sync(UINT32_MAX, wrong.first, by);

		wrong.first = other < wrong.first ? other : wrong.first;
		wrong.count += __shfl_xor_sync(UINT32_MAX, wrong.count, by);
	}
	return wrong;
}

static __device__ uint64_t place_of(uint64_t begin, uint32_t lane)
{
	return (begin & ~UINT64_C(15)) + lane * 16;
}

static __device__ struct glk_guard_look *look_of(
	const struct glk_guard_run *r, uint32_t i)
{
	struct glk_guard_look *looks = (struct glk_guard_look *)r->looks;

	return &looks[(r->first + i) % GLK_GUARD_LOOKS];
}

/* What a warp finds in a canary, of which each lane has read 16 bytes: the first may be those of the block in part. */
static __device__ __noinline__ struct wrong look_at_canary(
	uint64_t begin, uint64_t end, uint32_t lane, uint4 is, uint32_t secret)
{
	uint64_t at = place_of(begin, lane);
	struct wrong wrong = {UINT64_MAX, 0};

	if (at < end && differ(is, canary_at(at, secret)))
		wrong = note(at, begin, end, secret, false, wrong);
	if (!__any_sync(UINT32_MAX, wrong.count != 0))
		return wrong;
	wrong = sum(wrong);
	wrong.first -= begin;
	return wrong;
}

static __device__ void look_at_canary_of(
	struct glk_guard_look *look, uint32_t lane, uint32_t secret)
{
	uint64_t begin = look->addr + look->asked, end = begin + look->length;
	uint4 is = make_uint4(0, 0, 0, 0);
	struct wrong wrong;

	if (place_of(begin, lane) < end)
		is = load(place_of(begin, lane));
	wrong = look_at_canary(begin, end, lane, is, secret);
	if (lane || !wrong.count)
		return;
	look->canary.first = wrong.first;
	look->canary.count = wrong.count;
}

/* Canaries of blocks that were freed, a warp for each. */
extern "C" __global__ void glake_guard_canaries(
	const __grid_constant__ struct glk_guard_run r)
{
	uint32_t lane = threadIdx.x % GLK_GUARD_LANES;
	uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / GLK_GUARD_LANES;
	struct glk_guard_look *look;

	if (warp >= r.count)
		return;
	look = look_of(&r, warp);
	look_at_canary_of(look, lane, r.secret);
	if (lane)
		return;
	__threadfence_system();
	*(volatile uint32_t *)&look->ended = 1;
}

/* What a thread finds in a body, with four loads under way at a time. */
static __device__ void look_at_body(const struct glk_guard_look *look, uint32_t part,
	uint32_t parts, uint32_t secret, struct wrong *wrong)
{
	uint64_t step = (uint64_t)parts * blockDim.x * 16;
	uint64_t begin = look->addr, end = begin + look->asked;
	uint64_t at = begin + ((uint64_t)part * blockDim.x + threadIdx.x) * 16;

#pragma unroll 1
	for (; at < end; at += 4 * step) {
		uint32_t bad = 0;
		uint4 is[4];

#pragma unroll
		for (int i = 0; i < 4; i++)
			if (at + i * step < end)
				is[i] = load(at + i * step);
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (at + i * step < end &&
				differ(is[i], freed_at(at + i * step, secret)))
				bad |= 1u << i;
#pragma unroll 1
		for (uint64_t b = at; bad; bad >>= 1, b += step)
			if (bad & 1)
				*wrong = note(b, begin, end, secret, true, *wrong);
	}
}

/* Blocks that were freed, as a whole, each by so many blocks of the kernel as it has parts. */
extern "C" __global__ void glake_guard_bodies(
	const __grid_constant__ struct glk_guard_run r)
{
	struct glk_guard_look *look = look_of(&r, blockIdx.x / r.parts);
	uint32_t part = blockIdx.x % r.parts, parts = look->parts;
	struct wrong wrong = {UINT64_MAX, 0};

	if (part >= parts)
		return;
	look_at_body(look, part, parts, r.secret, &wrong);
	if (wrong.count) {
		atomicMin((word64 *)&look->body.first, wrong.first - look->addr);
		atomicAdd((word64 *)&look->body.count, wrong.count);
		__threadfence_system();
	}
	if (!part && threadIdx.x < GLK_GUARD_LANES)
		look_at_canary_of(look, threadIdx.x, r.secret);
	__syncthreads();
	if (!threadIdx.x) {
		__threadfence_system();
		atomicAdd(&look->ended, 1);
	}
}

/* By a warp: one of a table is broken. */
static __device__ void say(struct glk_guard_table t, uint32_t n, uint32_t lane)
{
	const struct glk_guard_entry *e = &((const struct glk_guard_entry *)t.entries)[n];
	struct glk_guard_founds *founds = (struct glk_guard_founds *)t.founds;
	uint64_t begin = e->addr, end = begin + e->bytes;
	uint4 is = make_uint4(0, 0, 0, 0);
	struct wrong wrong;
	uint32_t at;

	if (place_of(begin, lane) < end)
		is = load(place_of(begin, lane));
	wrong = look_at_canary(begin, end, lane, is, t.secret);
	if (lane || !wrong.count)
		return;
	at = atomicAdd(&founds->count, 1);
	if (at >= GLK_GUARD_FOUND)
		return;
	founds->at[at].found.first = wrong.first;
	founds->at[at].found.count = wrong.count;
	founds->at[at].index = n;
}

/* Of a table of canaries: all that a warp looks at is under way before any of it is judged. */
extern "C" __global__ void glake_guard_check(
	const __grid_constant__ struct glk_guard_table t)
{
	uint32_t lane = threadIdx.x % GLK_GUARD_LANES;
	uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / GLK_GUARD_LANES;
	uint32_t bad = 0;
	const ulonglong2 *entries = (const ulonglong2 *)t.entries;
	uint64_t begin[GLK_GUARD_TOGETHER], end[GLK_GUARD_TOGETHER];
	uint4 is[GLK_GUARD_TOGETHER];

	warp *= GLK_GUARD_TOGETHER;
#pragma unroll
	for (int i = 0; i < GLK_GUARD_TOGETHER; i++) {
		begin[i] = end[i] = 0;
		if (warp + i < t.count) {
			ulonglong2 entry = __ldg(&entries[warp + i]);

			begin[i] = entry.x;
			end[i] = begin[i] + entry.y;
		}
	}
#pragma unroll
	for (int i = 0; i < GLK_GUARD_TOGETHER; i++)
		if (place_of(begin[i], lane) < end[i])
			is[i] = load(place_of(begin[i], lane));
#pragma unroll
	for (int i = 0; i < GLK_GUARD_TOGETHER; i++)
		bad |= (uint32_t)__any_sync(UINT32_MAX,
			       place_of(begin[i], lane) < end[i] &&
				       differ(is[i],
					       canary_at(place_of(begin[i], lane),
						       t.secret)))
			<< i;
#pragma unroll 1
	for (; bad; bad >>= 1, warp++)
		if (bad & 1)
			say(t, warp, lane);
}
