/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The rules on pages: sizes in whole granules, places that exist, handles that are alive, one
 * release each. The slot of a page stays taken while it is mapped anywhere, as its memory does.
 */
#include "soft/check_state.h"

#include "driver/ops.h"
#include "soft/handle.h"

#include <errno.h>

#define PAGE_FLAGS (GLK_PAGE_EXPORT_FD | GLK_PAGE_FABRIC | GLK_PAGE_RDMA)

struct check_page *glk_check_page_find(
	const struct check *check, uint64_t handle, const char *call)
{
	uint32_t id = glk_handle_id(handle);
	struct check_page *page = NULL;

	if (glk_handle_is(handle, GLK_HANDLE_CHECKED_PAGE) && id &&
		id <= check->pages.max)
		page = check_page_at(check, id);
	if (!page || !page->gen) {
		glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 400,
			"%s rule: a page of this driver is meant, %#lx is none", call,
			(unsigned long)handle);
		return NULL;
	}
	if (!page->live || page->released ||
		(page->gen & GLK_HANDLE_GEN_MASK) != glk_handle_gen(handle)) {
		glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 400,
			"%s rule: a page may not be named after its release, %#lx was released",
			call, (unsigned long)handle);
		return NULL;
	}
	return page;
}

void glk_check_page_settle(struct check *check, uint32_t id)
{
	struct check_page *page = check_page_at(check, id);

	if (!page->released || page->leaving || page->maps)
		return;
	page->live = false;
	glk_slab_put(&check->pages, id);
}

/* Books a page of the driver and gives it a handle of ours. */
static uint64_t page_add(
	struct check *check, uint32_t id, uint64_t handle, size_t size, uint32_t flags)
{
	struct check_page *page = check_page_at(check, id);
	uint64_t ours;

	glk_lock(&check->lock);
	*page = (struct check_page){.handle = handle,
		.size = size,
		.gen = page->gen + 1,
		.flags = flags,
		.live = true};
	/* Generation 0 stands for a slot never used. */
	if (!(page->gen & GLK_HANDLE_GEN_MASK))
		page->gen++;
	ours = glk_handle_make(GLK_HANDLE_CHECKED_PAGE, 0, page->gen, id);
	glk_unlock(&check->lock);
	return ours;
}

static int check_create(struct glk_drv *drv, struct glk_place place, size_t size,
	uint32_t flags, uint64_t *ret_page)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	uint64_t handle;
	uint32_t id;
	int err;

	if (!size || size % check->granularity)
		return check_rule("cuMemCreate",
			"a page has whole granules of %zu bytes, not %zu",
			check->granularity, size);
	if (place.kind > GLK_PLACE_ANY || place.id < 0 ||
		(place.kind == GLK_PLACE_GPU && place.id >= check->gpus))
		return check_rule("cuMemCreate", "place %d of kind %d does not exist",
			place.id, (int)place.kind);
	if (flags & ~PAGE_FLAGS)
		return check_rule(
			"cuMemCreate", "unknown flags %#x", flags & ~PAGE_FLAGS);
	id = glk_slab_get(&check->pages);
	if (!id)
		return -ENOMEM;
	err = inner->ops->create(inner, place, size, flags, &handle);
	if (err) {
		glk_slab_put(&check->pages, id);
		return err;
	}
	*ret_page = page_add(check, id, handle, size, flags);
	return 0;
}

static int check_release(struct glk_drv *drv, uint64_t ours)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	struct check_page *page;
	uint64_t handle = 0;
	int err;

	glk_lock(&check->lock);
	page = glk_check_page_find(check, ours, "cuMemRelease");
	if (page) {
		page->released = true;
		page->leaving = true;
		handle = page->handle;
	}
	glk_unlock(&check->lock);
	if (!page)
		return -EINVAL;
	err = inner->ops->release(inner, handle);
	glk_lock(&check->lock);
	page->leaving = false;
	page->released = !err;
	glk_check_page_settle(check, glk_handle_id(ours));
	glk_unlock(&check->lock);
	return err;
}

static int check_export_fd(struct glk_drv *drv, uint64_t ours, int *ret_fd)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	const struct check_page *page;
	uint64_t handle = 0;
	bool may = false;

	glk_lock(&check->lock);
	page = glk_check_page_find(check, ours, "cuMemExportToShareableHandle");
	if (page) {
		handle = page->handle;
		may = page->flags & GLK_PAGE_EXPORT_FD;
	}
	glk_unlock(&check->lock);
	if (!page)
		return -EINVAL;
	if (!may)
		return check_rule("cuMemExportToShareableHandle",
			"a page is exported as it was made to be: %#lx was not",
			(unsigned long)ours);
	return inner->ops->export_fd(inner, handle, ret_fd);
}

static int check_page_place(
	struct glk_drv *drv, uint64_t ours, struct glk_place *ret_place)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	const struct check_page *page;
	uint64_t handle = 0;

	glk_lock(&check->lock);
	page = glk_check_page_find(check, ours, "cuMemGetAllocationPropertiesFromHandle");
	if (page)
		handle = page->handle;
	glk_unlock(&check->lock);
	return page ? inner->ops->page_place(inner, handle, ret_place) : -EINVAL;
}

static int check_import_fd(struct glk_drv *drv, int fd, uint64_t *ret_page)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	uint32_t id = glk_slab_get(&check->pages);
	uint64_t handle;
	int err;

	if (!id)
		return -ENOMEM;
	err = inner->ops->import_fd(inner, fd, &handle);
	if (err) {
		glk_slab_put(&check->pages, id);
		return err;
	}
	*ret_page = page_add(check, id, handle, 0, GLK_PAGE_EXPORT_FD);
	return 0;
}

void glk_check_page_ops(struct glk_drv_ops *ops)
{
	ops->create = check_create;
	ops->release = check_release;
	ops->export_fd = check_export_fd;
	ops->import_fd = check_import_fd;
	ops->page_place = check_page_place;
}
