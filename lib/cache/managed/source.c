/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stands between the map of a chunk and the driver. To reserve addresses is to have managed memory, more
 * of it than is asked for, since a map begins and ends at a multiple of what the index of the process
 * counts in: memory that is never touched takes none. Pages and mappings are words.
 */
#include "cache/managed/managed.h"

#include "base/error.h"

#include <errno.h>

static struct glk_source *source_of(struct glk_drv *drv)
{
	return (struct glk_source *)(void *)drv;
}

static int source_reserve(
	struct glk_drv *drv, size_t size, size_t align, uint64_t *ret_addr)
{
	struct glk_source *source = source_of(drv);
	uint64_t addr, base, none;
	int err;

	err = source->real->ops->managed_alloc(
		source->real, source->device, size + align, &addr);
	if (err)
		return err;
	base = (addr + align - 1) & ~((uint64_t)align - 1);
	for (int i = 0; i < GLK_CHUNKS_MAX; i++) {
		none = 0;
		if (!glk_cas_acq_rel(&source->piece[i].base, &none, base))
			continue;
		source->piece[i].addr = addr;
		source->piece[i].size = size + align;
		*ret_addr = base;
		return 0;
	}
	source->real->ops->managed_free(source->real, addr);
	return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"a GPU has %d chunks of managed memory at most", GLK_CHUNKS_MAX);
}

/* In place of a base: somebody gives the piece back, or the driver kept it. */
#define LEAVING UINT64_C(1)

/* Nobody finds it from here on: as soon as the driver has it, its addresses may be another one's. */
static int give_back(struct glk_source *source, int i, uint64_t size)
{
	int err;

	glk_store_relaxed(&source->piece[i].base, LEAVING);
	err = source->real->ops->managed_free(source->real, source->piece[i].addr);
	if (err) /* pairs with: glk_source_retry */
		glk_store_release(&source->piece[i].lost, size);
	else /* pairs with: the exchange in source_reserve */
		glk_store_release(&source->piece[i].base, 0);
	return err;
}

/* What the driver does not take back is kept, to be tried again. */
static int source_unreserve(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct glk_source *source = source_of(drv);

	for (int i = 0; i < GLK_CHUNKS_MAX; i++)
		if (glk_load_relaxed(&source->piece[i].base) == addr)
			return give_back(source, i, size);
	return glk_error(-EIO, GLAKE_ERROR_CORRUPT,
		"no chunk of managed memory begins at %#lx", (unsigned long)addr);
}

bool glk_managed_piece(const struct glk_cache *cache, const struct glk_range *range,
	uint64_t *ret_addr, uint64_t *ret_size)
{
	const struct glk_source *source = &cache->managed->source;

	for (int i = 0; i < GLK_CHUNKS_MAX; i++)
		/* it stays while it has a block */
		if (glk_load_relaxed(&source->piece[i].base) == range->reserved) {
			*ret_addr = source->piece[i].addr;
			*ret_size = source->piece[i].size;
			return true;
		}
	return false;
}

uint64_t glk_source_retry(struct glk_source *source)
{
	uint64_t left = 0;

	for (int i = 0; i < GLK_CHUNKS_MAX; i++) {
		uint64_t lost = glk_load_relaxed(&source->piece[i].lost);

		/* pairs with: give_back */
		if (lost && glk_cas_acq_rel(&source->piece[i].lost, &lost, 0) &&
			give_back(source, i, lost))
			left += lost;
	}
	return left;
}

static int source_create(struct glk_drv *drv, struct glk_place place, size_t size,
	uint32_t flags, uint64_t *ret_page)
{
	(void)drv;
	(void)place;
	(void)size;
	(void)flags;
	*ret_page = 0;
	return 0;
}

static int source_release(struct glk_drv *drv, uint64_t page)
{
	(void)drv;
	(void)page;
	return 0;
}

static int source_map(struct glk_drv *drv, uint64_t addr, size_t size, uint64_t page)
{
	(void)drv;
	(void)addr;
	(void)size;
	(void)page;
	return 0;
}

static int source_set_access(struct glk_drv *drv, uint64_t addr, size_t size,
	const struct glk_grant *grants, size_t count)
{
	(void)drv;
	(void)addr;
	(void)size;
	(void)grants;
	(void)count;
	return 0;
}

static int source_unmap(struct glk_drv *drv, uint64_t addr, size_t size)
{
	(void)drv;
	(void)addr;
	(void)size;
	return 0;
}

/* All that maps and nodes ask for. */
static const struct glk_drv_ops source_ops = {
	.version = GLK_DRV_OPS_VERSION,
	.name = "managed",
	.reserve = source_reserve,
	.unreserve = source_unreserve,
	.create = source_create,
	.release = source_release,
	.map = source_map,
	.set_access = source_set_access,
	.unmap = source_unmap,
};

void glk_source_init(struct glk_source *source, struct glk_drv *real, int device)
{
	source->drv.ops = &source_ops;
	source->real = real;
	source->device = device;
}
