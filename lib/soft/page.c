/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages of the software device: an entry in the account of their GPU or node, and a place in
 * the file once they are mapped. A released page keeps its memory until its last mapping has
 * gone, as the driver's handles do, here and in whatever process it was exported to.
 */
#include "soft/managed.h"

#include "base/error.h"
#include "soft/handle.h"

#include <errno.h>
#include <unistd.h>

struct soft_page *glk_soft_page_find(
	const struct soft *soft, uint64_t handle, const char *call)
{
	uint32_t id = glk_handle_id(handle);
	struct soft_page *page = NULL;

	if (glk_handle_is(handle, GLK_HANDLE_PAGE) && id && id <= soft->pages.max)
		page = soft_page_at(soft, id);
	if (page && page->live && !page->released &&
		(page->gen & GLK_HANDLE_GEN_MASK) == glk_handle_gen(handle))
		return page;
	glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 0,
		"%#lx is no page, or was released", (unsigned long)handle);
	return NULL;
}

uint64_t glk_soft_page_add(struct soft *soft, const struct soft_page *filled)
{
	struct soft_page *page;
	uint32_t id, gen;

	id = glk_slab_get(&soft->pages);
	if (!id)
		return 0;
	page = soft_page_at(soft, id);
	gen = page->gen + 1;
	*page = *filled;
	page->number = ++soft->page_numbers;
	page->gen = gen;
	page->live = true;
	return glk_handle_make(GLK_HANDLE_PAGE, page->place, gen, id);
}

int glk_soft_page_put(struct soft *soft, struct soft_page *page, uint64_t addr)
{
	int err;

	if (page->placed)
		return 0;
	err = glk_soft_file_take(&soft->file, addr, page->size, &page->first);
	page->placed = !err;
	return err;
}

static int create(struct soft *soft, uint8_t place, size_t size, uint64_t *ret_page)
{
	struct soft_page page = {.size = size, .fd = -1, .place = place};
	struct soft_room *room = &soft->rooms[place];
	uint64_t handle;

	if (size > room->total - room->used)
		glk_soft_page_reap(soft);
	if (size > room->total - room->used)
		glk_soft_managed_yield(soft, place, size);
	if (size > room->total - room->used)
		return glk_error_native(-ENOMEM,
			place < soft->gpus ? GLAKE_ERROR_NOMEM_DEVICE
					   : GLAKE_ERROR_NOMEM_HOST,
			"cuMemCreate", 2,
			"a page of %zu bytes, where %zu of %zu bytes are free", size,
			room->total - room->used, room->total);
	handle = glk_soft_page_add(soft, &page);
	if (!handle)
		return -ENOMEM;
	room->used += size;
	*ret_page = handle;
	return 0;
}

int glk_soft_create(struct glk_drv *drv, struct glk_place place, size_t size,
	uint32_t flags, uint64_t *ret_page)
{
	struct soft *soft = soft_of(drv);
	uint8_t number;
	int err;

	err = glk_soft_place(soft, place, &number);
	if (err)
		return err;
	if (flags & ~GLK_PAGE_EXPORT_FD)
		return glk_error_native(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"cuMemCreate", 801,
			"the software device knows neither fabric nor RDMA (flags %#x)",
			flags);
	if (!size || size % GLK_GRANULE)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemCreate", 1,
			"%zu bytes are not whole granules", size);
	glk_soft_enter(soft);
	glk_soft_charge(soft, GLAKE_CALL_CREATE, 1);
	err = create(soft, number, size, ret_page);
	glk_unlock(&soft->lock);
	return err;
}

/* An imported page is somebody else's memory: only what stands for it goes. */
static void give_back(struct soft *soft, const struct soft_page *page)
{
	if (page->fd >= 0) {
		close(page->fd);
		return;
	}
	if (page->placed)
		glk_soft_file_give(&soft->file, page->first, page->size, page->written);
	soft->rooms[page->place].used -= page->size;
}

void glk_soft_page_settle(struct soft *soft, struct soft_page *page, uint32_t id)
{
	if (!page->released || page->maps)
		return;
	soft->kept -= page->kept;
	page->kept =
		page->lent && glk_soft_file_is_held(&soft->file, page->first, page->size);
	soft->kept += page->kept;
	if (page->kept)
		return;
	give_back(soft, page);
	page->live = false;
	glk_slab_put(&soft->pages, id);
}

void glk_soft_page_reap(struct soft *soft)
{
	uint32_t last = glk_load_relaxed(&soft->pages.used);

	for (uint32_t id = 1; id <= last && soft->kept; id++) {
		struct soft_page *page = soft_page_at(soft, id);

		if (page->live && page->kept)
			glk_soft_page_settle(soft, page, id);
	}
}

int glk_soft_release(struct glk_drv *drv, uint64_t handle)
{
	struct soft *soft = soft_of(drv);
	struct soft_page *page;
	int err = -EINVAL;

	glk_soft_enter(soft);
	page = glk_soft_page_find(soft, handle, "cuMemRelease");
	if (page) {
		glk_soft_charge(soft, GLAKE_CALL_RELEASE, 1);
		page->released = true;
		glk_soft_page_settle(soft, page, glk_handle_id(handle));
		err = 0;
	}
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_physical(
	struct glk_drv *drv, uint64_t addr, uint64_t *ret_page, size_t *ret_offset)
{
	struct soft *soft = glk_soft_below(drv);
	const struct glk_mapping *mapping;

	if (!soft)
		return -EINVAL;
	glk_lock(&soft->lock);
	mapping = glk_book_find(&soft->book, addr);
	if (mapping) {
		*ret_page = soft_page_at(soft, mapping->page)->number;
		*ret_offset = addr - mapping->addr;
	}
	glk_unlock(&soft->lock);
	return mapping ? 0
		       : glk_error(-EINVAL, GLAKE_ERROR_INVAL,
				 "nothing is mapped at %#lx", (unsigned long)addr);
}
