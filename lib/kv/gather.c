/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rows of a lane by their numbers, copied by a kernel from wherever they lie: what is on the host is read there, over the
 * link, with as many rows under way as keep it busy. Where that is stands in a table in memory of the host, which the
 * kernel reads too; there are some of them, used in turn, so that calls do not wait for kernels.
 */
#include "kv/kernels.ptx.h"
#include "kv/kv.h"
#include "kv/rows.h"

#include "base/error.h"
#include "base/slab.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

_Static_assert(
	GLK_ROWS == GLK_KV_PLACE, "a place of the table is what the kernel takes it for");
_Static_assert(sizeof(struct glk_kv_rows) <= GLK_LAUNCH_ARGS,
	"it is given to the kernel by value");

/* Bytes of all tables, unless two of them are more. */
#define TABLES (UINT64_C(4) << 20)

/* The same in C. */
static void copy_rows(const void *args)
{
	const struct glk_kv_rows *r = args;

	for (uint32_t row = 0; row < r->count; row++) {
		uint64_t at = ((const uint32_t *)r->indices)[row] * r->step + r->offset;
		char *to = (char *)r->to + (uint64_t)row * r->size;

		for (uint32_t in = 0; in < r->size; in += 16) {
			uint64_t of = at + in, from;

			from = of < r->bytes
				? ((const uint64_t *)r->places)[of / GLK_KV_PLACE]
				: 0;
			if (from)
				memcpy(to + in, (char *)from + of % GLK_KV_PLACE, 16);
			else
				memset(to + in, 0, 16);
		}
	}
}

static const struct glk_kernel kernel = {"glake_kv_rows", copy_rows};

static int find_kernel(struct glake_kv *kv)
{
	struct glk_drv *drv = kv->cache->drv;
	int device = kv->cache->device;
	int err = drv->ops->module_load(drv, device, kernels_text, &kv->gather.module);

	if (err)
		return err;
	err = drv->ops->kernel_find(
		drv, device, kv->gather.module, &kernel, &kv->gather.kernel);
	if (err)
		drv->ops->module_free(drv, device, kv->gather.module);
	return err;
}

/* Its kernels have ended. */
static void end(struct glake_kv *kv)
{
	struct glk_drv *drv = kv->cache->drv;

	glk_lock(&kv->cache->lock);
	for (uint32_t i = 0; i < kv->gather.count; i++)
		if (kv->gather.read[i].streams)
			glk_clock_sync_use(&kv->cache->streams, &kv->gather.read[i]);
	glk_unlock(&kv->cache->lock);
	drv->ops->module_free(drv, kv->cache->device, kv->gather.module);
	drv->ops->host_unlock(drv, kv->cache->device, kv->gather.table);
	glk_region_free(kv->gather.table, kv->gather.size);
	memset(&kv->gather, 0, sizeof(kv->gather));
}

static void still(struct glk_helper *helper)
{
	end((struct glake_kv *)(void *)((char *)helper -
		offsetof(struct glake_kv, gather.helper)));
}

void glk_kv_gather_end(struct glake_kv *kv)
{
	if (kv->gather.count && glk_helper_take(kv->cache, &kv->gather.helper))
		end(kv);
}

/* At the first use. */
static int make(struct glake_kv *kv)
{
	struct glk_drv *drv = kv->cache->drv;
	uint64_t most = 0, count;
	int err;

	for (uint32_t i = 0; i < kv->shape.groups; i++)
		most = kv->shape.group[i].slot > most ? kv->shape.group[i].slot : most;
	kv->gather.places = most / GLK_KV_PLACE;
	count = TABLES / (kv->gather.places * sizeof(uint64_t));
	count = count < 2 ? 2 : count < GLK_KV_TABLES ? count : GLK_KV_TABLES;
	kv->gather.size = count * kv->gather.places * sizeof(uint64_t);
	kv->gather.table = glk_region_new(kv->gather.size);
	if (!kv->gather.table)
		return -ENOMEM;
	err = drv->ops->host_lock(
		drv, kv->cache->device, kv->gather.table, kv->gather.size);
	if (err)
		goto region;
	err = find_kernel(kv);
	if (err)
		goto lock;
	kv->gather.count = (uint32_t)count;
	kv->gather.helper.still = still;
	glk_helper_add(kv->cache, &kv->gather.helper);
	return 0;
lock:
	drv->ops->host_unlock(drv, kv->cache->device, kv->gather.table);
region:
	glk_region_free(kv->gather.table, kv->gather.size);
	return err;
}

struct gathering {
	struct glake_kv *kv;
	struct glk_kv_rows rows;
	struct CUstream_st *stream;
};

static int launch(void *arg)
{
	const struct gathering *g = arg;
	uint32_t per = GLK_KV_THREADS / GLK_KV_LANES;
	uint32_t blocks = (g->rows.count - 1) / per + 1;
	struct glk_launch launch = {.kernel = g->kv->gather.kernel,
		.blocks = blocks < GLK_KV_BLOCKS ? blocks : GLK_KV_BLOCKS,
		.threads = GLK_KV_THREADS,
		.args = &g->rows,
		.size = sizeof(g->rows),
		.addr = g->rows.to,
		.bytes = (uint64_t)g->rows.count * g->rows.size,
		.write = true};
	struct glk_cache *cache = g->kv->cache;

	return cache->drv->ops->launch(cache->drv, cache->device, &launch, g->stream);
}

/* With the lock, by who changes what is committed. */
static int queue(struct glake_kv *kv, uint32_t slot, uint32_t group, struct gathering *g)
{
	const struct glk_kv_run *run = glk_kv_run_at(kv, slot, group);
	struct glk_kv_run all = {.end = run->end};
	struct glk_rows rows = {.portion = glk_kv_portion(kv, slot, group, all),
		.launch = launch,
		.arg = g};
	uint32_t turn;
	int err = 0;

	glk_unlock(&kv->lock);
	if (!kv->gather.count)
		err = make(kv);
	if (!err) {
		turn = kv->gather.turn++ % kv->gather.count;
		rows.places = kv->gather.table + turn * kv->gather.places;
		rows.read = &kv->gather.read[turn];
		g->rows.places = (uintptr_t)rows.places;
		g->rows.bytes = rows.portion.bytes;
		err = glk_cache_rows(kv->cache, kv->base, &rows, g->stream);
	}
	glk_lock(&kv->lock);
	return err;
}

/* What can be known of the lane and of the places without the sequence. */
static int check(const struct glake_kv *kv, const struct gathering *g, uint32_t lane)
{
	const struct glk_kv_group *group = &kv->shape.group[kv->shape.lane_group[lane]];
	const struct glk_kv_rows *r = &g->rows;

	if (kv->shape.single)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"lanes of single handles are on the GPU, always");
	if (group->rule == GLAKE_KV_STATE)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"lane %" PRIu32 " is a state, which has no rows", lane);
	if ((r->step | r->offset | r->size | r->to) % 16 ||
		kv->shape.lane_bytes[lane] > GLK_KV_PLACE ||
		r->indices % sizeof(uint32_t))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"rows of %zu bytes to 0x%" PRIx64
			": they begin and end at multiples of 16 bytes, and have 256 KiB at most",
			kv->shape.lane_bytes[lane], r->to);
	return 0;
}

int glk_kv_gather(struct glake_kv *kv, uint32_t slot, uint32_t lane, const void *indices,
	uint32_t count, void *to, struct CUstream_st *stream)
{
	uint32_t group = kv->shape.lane_group[lane];
	struct gathering g = {.kv = kv,
		.stream = stream,
		.rows = {.indices = (uintptr_t)indices,
			.to = (uintptr_t)to,
			.step = kv->shape.group[group].row,
			.offset = (uint32_t)kv->shape.lane_offset[lane],
			.size = (uint32_t)kv->shape.lane_bytes[lane],
			.count = count}};
	int err = check(kv, &g, lane);

	if (!err)
		err = glk_kv_name(kv, stream);
	if (err)
		return err;
	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, slot < kv->shape.slots ? slot : GLK_KV_ALL);
	err = glk_kv_check(kv, slot, 0);
	if (!err && !glk_kv_run_at(kv, slot, group)->end)
		err = glk_error(-ERANGE, GLAKE_ERROR_INVAL,
			"the sequence in slot %" PRIu32 " has no memory for any token",
			slot);
	if (!err && count)
		err = queue(kv, slot, group, &g);
	glk_kv_change_end(kv);
	glk_unlock(&kv->lock);
	return err;
}
