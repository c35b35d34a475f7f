/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory pools of the driver. A pool that a program made has properties, and where those promise
 * nothing but memory of a GPU the library serves requests from it as it does those without a
 * pool. Pools that can be shared with other processes, that have a limit, or that other GPUs may
 * reach stay with the driver, and so do all that are not known.
 *
 * The pools of a GPU that are served have their memory in common: each says what all of them have,
 * and the rest of the library on that GPU, beside what the driver has in that one.
 */
#include "front/preload/preload.h"

/* Pools known at a time; those made above that stay with the driver. */
#define POOLS_MAX 256

#define SERVES(fn) glk_preload_called(GLK_PRELOAD_##fn)

static struct {
	struct CUmemPoolHandle_st *pool;
	int device;
} pools[POOLS_MAX];

static int pool_count; /* under the lock */

/* Its place, or -1. Under the lock. */
static int find(const struct CUmemPoolHandle_st *pool)
{
	for (int i = 0; i < pool_count; i++)
		if (pools[i].pool == pool)
			return i;
	return -1;
}

/* The GPU of one that a program made and that is served; -1: none. */
static int device_of(const struct CUmemPoolHandle_st *pool)
{
	int at, device;

	pthread_mutex_lock(&glk_preload_lock);
	at = find(pool);
	device = at < 0 ? -1 : pools[at].device;
	pthread_mutex_unlock(&glk_preload_lock);
	return device;
}

static bool is_plain(const struct CUmemPoolHandle_st *pool, int device)
{
	return device_of(pool) == device;
}

bool glk_preload_pool_serves(
	const struct glk_preload_seat *seat, struct CUmemPoolHandle_st *pool)
{
	/* without a pool, and from the one there is at first, unless another took its place */
	if (!pool || pool == seat->pool)
		return !glk_preload_pools_left(seat->device);
	return is_plain(pool, seat->device);
}

static void note(struct CUmemPoolHandle_st *pool, int device)
{
	pthread_mutex_lock(&glk_preload_lock);
	if (pool_count < POOLS_MAX) {
		pools[pool_count].pool = pool;
		pools[pool_count++].device = device;
	}
	pthread_mutex_unlock(&glk_preload_lock);
}

static void forget(const struct CUmemPoolHandle_st *pool)
{
	int at;

	pthread_mutex_lock(&glk_preload_lock);
	at = find(pool);
	if (at >= 0)
		pools[at] = pools[--pool_count];
	pthread_mutex_unlock(&glk_preload_lock);
}

glk_cu_result cuMemPoolCreate(
	struct CUmemPoolHandle_st **ret_pool, const struct glk_cu_pool_props *props)
{
	bool serves = SERVES(cuMemPoolCreate);
	glk_cu_result result = GLK_PRELOAD_PASS(cuMemPoolCreate, ret_pool, props);

	if (!result && serves && props->type == GLK_CU_ALLOCATION_PINNED &&
		!props->handle_types && !props->max_size && !props->usage &&
		props->location.type == GLK_CU_LOCATION_DEVICE)
		note(*ret_pool, props->location.id);
	return result;
}

glk_cu_result cuMemPoolDestroy(struct CUmemPoolHandle_st *pool)
{
	if (SERVES(cuMemPoolDestroy))
		forget(pool);
	return GLK_PRELOAD_PASS(cuMemPoolDestroy, pool);
}

static void leave_default(const struct CUmemPoolHandle_st *pool)
{
	for (int i = 0; i < GLK_PRELOAD_GPUS_MAX; i++) {
		const struct glk_preload_seat *seat = glk_preload_seat_at(i);

		if (seat && seat->pool == pool)
			glk_preload_pools_leave(i, true);
	}
}

glk_cu_result cuMemPoolSetAccess(
	struct CUmemPoolHandle_st *pool, const struct glk_cu_access *map, size_t count)
{
	bool serves = SERVES(cuMemPoolSetAccess);
	glk_cu_result result = GLK_PRELOAD_PASS(cuMemPoolSetAccess, pool, map, count);

	if (!result && serves) {
		forget(pool);
		leave_default(pool);
	}
	return result;
}

/* What cuMemAllocAsync takes memory from. */
static void set_current(int device, const struct CUmemPoolHandle_st *pool)
{
	const struct glk_preload_next *next = glk_preload_next();
	struct CUmemPoolHandle_st *first = NULL;

	if (next->cuDeviceGetDefaultMemPool)
		next->cuDeviceGetDefaultMemPool(&first, device);
	glk_preload_pools_leave(device, pool != first && !is_plain(pool, device));
}

glk_cu_result cuDeviceSetMemPool(glk_cu_device device, struct CUmemPoolHandle_st *pool)
{
	bool serves = SERVES(cuDeviceSetMemPool);
	glk_cu_result result = GLK_PRELOAD_PASS(cuDeviceSetMemPool, device, pool);

	if (!result && serves)
		set_current(device, pool);
	return result;
}

glk_cu_result cuMemSetMemPool(struct glk_cu_location *location, glk_cu_allocation type,
	struct CUmemPoolHandle_st *pool)
{
	bool serves = SERVES(cuMemSetMemPool);
	glk_cu_result result = GLK_PRELOAD_PASS(cuMemSetMemPool, location, type, pool);

	if (!result && serves && location->type == GLK_CU_LOCATION_DEVICE &&
		type == GLK_CU_ALLOCATION_PINNED)
		set_current(location->id, pool);
	return result;
}

/* The GPU whose memory a pool that is served has, once there is some; NULL: the pool is the driver's. */
static struct glk_preload_seat *seat_of(struct CUmemPoolHandle_st *pool)
{
	int device = device_of(pool);
	struct glk_preload_seat *seat;

	if (device >= 0)
		return glk_preload_seat_at(device);
	for (int i = 0; i < GLK_PRELOAD_GPUS_MAX; i++) {
		seat = glk_preload_seat_at(i);
		if (seat && seat->pool == pool)
			return glk_preload_pools_left(i) ? NULL : seat;
	}
	return NULL;
}

static uint64_t figure(const struct glake_stats *stats, glk_cu_pool_attribute attribute)
{
	switch (attribute) {
	case GLK_CU_POOL_RESERVED:
		return stats->reserved;
	case GLK_CU_POOL_RESERVED_HIGH:
		return stats->peak_reserved;
	case GLK_CU_POOL_USED:
		return stats->live;
	case GLK_CU_POOL_USED_HIGH:
		return stats->peak_live;
	default:
		return 0;
	}
}

glk_cu_result cuMemPoolGetAttribute(
	struct CUmemPoolHandle_st *pool, glk_cu_pool_attribute attribute, void *ret_value)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct glk_preload_seat *seat =
		SERVES(cuMemPoolGetAttribute) ? seat_of(pool) : NULL;
	glk_cu_result result =
		GLK_PRELOAD_PASS(cuMemPoolGetAttribute, pool, attribute, ret_value);

	if (result || attribute < GLK_CU_POOL_RESERVED ||
		attribute > GLK_CU_POOL_USED_HIGH || !seat || !glk_preload_in(seat))
		return result;
	if (!glk_library.stats_get(seat->glake, seat->device, &stats))
		*(uint64_t *)ret_value += figure(&stats, attribute);
	glk_preload_out(seat);
	return result;
}

/* The driver refuses another value than 0 for a peak. */
glk_cu_result cuMemPoolSetAttribute(
	struct CUmemPoolHandle_st *pool, glk_cu_pool_attribute attribute, void *value)
{
	struct glk_preload_seat *seat =
		SERVES(cuMemPoolSetAttribute) ? seat_of(pool) : NULL;
	glk_cu_result result =
		GLK_PRELOAD_PASS(cuMemPoolSetAttribute, pool, attribute, value);

	if (!result && seat &&
		(attribute == GLK_CU_POOL_RESERVED_HIGH ||
			attribute == GLK_CU_POOL_USED_HIGH) &&
		glk_preload_in(seat)) {
		glk_library.stats_reset(seat->glake, seat->device);
		glk_preload_out(seat);
	}
	return result;
}

glk_cu_result cuMemPoolTrimTo(struct CUmemPoolHandle_st *pool, size_t keep)
{
	struct glk_preload_seat *seat = SERVES(cuMemPoolTrimTo) ? seat_of(pool) : NULL;
	glk_cu_result result = GLK_PRELOAD_PASS(cuMemPoolTrimTo, pool, keep);

	if (!result && seat && glk_preload_in(seat)) {
		glk_library.trim(seat->glake, seat->device, keep, NULL);
		glk_preload_out(seat);
	}
	return result;
}
