/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory pools of the driver. A pool that a program made has properties, and where those promise
 * nothing but memory of a GPU the library serves requests from it as it does those without a
 * pool. Pools that can be shared with other processes, that have a limit, or that other GPUs may
 * reach stay with the driver, and so do all that are not known.
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

static bool is_plain(const struct CUmemPoolHandle_st *pool, int device)
{
	bool is;
	int at;

	pthread_mutex_lock(&glk_preload_lock);
	at = find(pool);
	is = at >= 0 && pools[at].device == device;
	pthread_mutex_unlock(&glk_preload_lock);
	return is;
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
