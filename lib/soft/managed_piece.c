/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pieces of managed memory of the software device: had, and given back. */
#include "soft/managed.h"

#include "base/error.h"

#include <errno.h>
#include <sys/mman.h>

static size_t blocks_bytes(size_t count)
{
	return count * sizeof(struct soft_managed_block);
}

static int no_room(size_t size)
{
	return glk_error_native(-ENOMEM, GLAKE_ERROR_ADDRESS, "cuMemAllocManaged", 2,
		"the system has no %zu bytes of addresses", size);
}

/* A place in the table; with the table made at the first. NULL and a record: there is none. */
static struct soft_managed_piece *take(struct soft *soft)
{
	struct soft_managed *m = soft->managed;

	if (!m)
		m = soft->managed = glk_region_new(sizeof(*m));
	if (!m)
		return NULL;
	for (uint32_t i = 0; i < SOFT_MANAGED; i++) {
		if (m->piece[i].size)
			continue;
		m->used = m->used > i ? m->used : i + 1;
		return &m->piece[i];
	}
	glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"the software device has %u pieces of managed memory at most",
		SOFT_MANAGED);
	return NULL;
}

/* Aligned to blocks. Forked children have a copy, as of other memory of the process; they may not
 * use it. */
static int map_piece(struct soft *soft, size_t size, struct soft_managed_piece *piece)
{
	size_t whole = size + SOFT_MANAGED_BLOCK;
	uint64_t addr, end;
	void *p;

	if (whole < size || glk_soft_maps_room(1))
		return no_room(size);
	p = mmap(NULL, whole, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return no_room(size);
	addr = ((uint64_t)p + SOFT_MANAGED_BLOCK - 1) & ~(SOFT_MANAGED_BLOCK - 1);
	end = (uint64_t)p + whole;
	if (addr > (uint64_t)p)
		munmap(p, addr - (uint64_t)p);
	if (end > addr + size)
		munmap((void *)(addr + size), end - addr - size);
	piece->addr = addr;
	glk_soft_maps_note(soft, 1);
	return 0;
}

int glk_soft_managed_alloc(
	struct glk_drv *drv, int device, size_t size, uint64_t *ret_addr)
{
	struct soft *soft = soft_of(drv);
	struct soft_managed_piece *piece;
	uint8_t place;
	int err;

	glk_soft_charge(soft, GLAKE_CALL_MANAGED_ALLOC, 1);
	err = glk_soft_place(soft, (struct glk_place){GLK_PLACE_GPU, device}, &place);
	if (err)
		return err;
	/* whole pages of the system, as the driver gives them */
	if (!size || size > SIZE_MAX / 2)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemAllocManaged",
			1, "%zu bytes of managed memory", size);
	size = (size + 4095) & ~(size_t)4095;
	glk_soft_enter(soft);
	err = -ENOMEM;
	piece = take(soft);
	if (!piece)
		goto out;
	piece->count = (size + SOFT_MANAGED_BLOCK - 1) / SOFT_MANAGED_BLOCK;
	piece->blocks = glk_region_new(blocks_bytes(piece->count));
	if (!piece->blocks)
		goto out;
	err = map_piece(soft, size, piece);
	if (err) {
		glk_region_free(piece->blocks, blocks_bytes(piece->count));
		goto out;
	}
	piece->size = size;
	piece->queued = 0;
	piece->gpu = device;
	*ret_addr = piece->addr;
out:
	glk_unlock(&soft->lock);
	return err;
}

static void drop(struct soft *soft, struct soft_managed_piece *piece)
{
	munmap((void *)piece->addr, piece->size);
	glk_soft_maps_note(soft, -1);
	glk_region_free(piece->blocks, blocks_bytes(piece->count));
	*piece = (struct soft_managed_piece){0};
}

/* Work that is queued could name it later, where the driver would wait: nobody shall count on that. */
int glk_soft_managed_free(struct glk_drv *drv, uint64_t addr)
{
	struct soft *soft = soft_of(drv);
	struct soft_managed_piece *piece;
	int i, err = 0;

	glk_soft_charge(soft, GLAKE_CALL_MANAGED_FREE, 1);
	glk_soft_enter(soft);
	i = glk_soft_managed_find(soft, addr);
	piece = i < 0 ? NULL : &soft->managed->piece[i];
	if (!piece || piece->addr != addr)
		err = glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemFree", 1,
			"cuMemFree rule: no managed memory begins at %#lx",
			(unsigned long)addr);
	else if (piece->queued)
		err = glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemFree", 1,
			"cuMemFree rule: %#lx + %zu is named by %u ranges of work not yet run",
			(unsigned long)addr, piece->size, piece->queued);
	if (!err) {
		glk_soft_managed_forget(soft, piece);
		drop(soft, piece);
	}
	glk_unlock(&soft->lock);
	return err;
}

void glk_soft_managed_fini(struct soft *soft)
{
	struct soft_managed *m = soft->managed;

	for (uint32_t i = 0; m && i < m->used; i++)
		if (m->piece[i].size)
			drop(soft, &m->piece[i]);
	if (m)
		glk_region_free(m, sizeof(*m));
	soft->managed = NULL;
}
