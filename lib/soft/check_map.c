/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The rules on addresses: reservations are freed as they were made and empty, a page is
 * mapped whole into free addresses of one reservation, rights and unmaps take whole mappings,
 * and copies touch only what somebody was given access to.
 */
#include "soft/check_state.h"

#include "driver/ops.h"
#include "soft/handle.h"

#include <errno.h>

static int check_reserve(
	struct glk_drv *drv, size_t size, size_t align, uint64_t *ret_addr)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	uint64_t addr;
	int err;

	if (!size || size % check->granularity)
		return check_rule("cuMemAddressReserve",
			"a reservation has whole granules of %zu bytes, not %zu",
			check->granularity, size);
	if (align & (align - 1))
		return check_rule("cuMemAddressReserve",
			"an alignment of %zu bytes is no power of two", align);
	err = inner->ops->reserve(inner, size, align, &addr);
	if (err)
		return err;
	glk_lock(&check->lock);
	err = glk_book_span_add(&check->book, addr, size);
	glk_unlock(&check->lock);
	if (err) {
		inner->ops->unreserve(inner, addr, size);
		return err;
	}
	*ret_addr = addr;
	return 0;
}

static int span_leave(struct check *check, uint64_t addr, size_t size)
{
	struct glk_span *span = glk_book_span(&check->book, addr, size);

	if (!span)
		return check_rule("cuMemAddressFree", "%#lx + %zu is not reserved",
			(unsigned long)addr, size);
	if (span->addr != addr || span->size != size)
		return check_rule("cuMemAddressFree",
			"a reservation is freed whole: %#lx + %zu is part of %#lx + %zu",
			(unsigned long)addr, size, (unsigned long)span->addr, span->size);
	if (span->maps)
		return check_rule("cuMemAddressFree",
			"a reservation is empty when it is freed: %#lx + %zu has %u mappings",
			(unsigned long)addr, size, span->maps);
	glk_book_span_remove(&check->book, span);
	return 0;
}

/* The book forgets it first: once the addresses are free below, another thread may have them. */
static int check_unreserve(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	int err;

	glk_lock(&check->lock);
	err = span_leave(check, addr, size);
	glk_unlock(&check->lock);
	if (err)
		return err;
	err = inner->ops->unreserve(inner, addr, size);
	if (!err)
		return 0;
	glk_lock(&check->lock);
	glk_book_span_add(
		&check->book, addr, size); /* its leaves are there; a place was */
	glk_unlock(&check->lock);
	return err;
}

static int map_rules(
	struct check *check, uint64_t addr, size_t size, const struct check_page *page)
{
	const struct glk_mapping *other;
	const struct glk_span *span;

	if (!size || addr % check->granularity || size % check->granularity)
		return check_rule("cuMemMap",
			"offset and size must be whole granules of %zu bytes: %#lx + %zu",
			check->granularity, (unsigned long)addr, size);
	if (page->size && page->size != size)
		return check_rule("cuMemMap",
			"a page is mapped whole: it has %zu bytes, not %zu", page->size,
			size);
	span = glk_book_span(&check->book, addr, size);
	if (!span)
		return check_rule("cuMemMap", "%#lx + %zu is not inside one reservation",
			(unsigned long)addr, size);
	other = glk_book_overlap(&check->book, addr, size);
	if (other)
		return check_rule("cuMemMap",
			"%#lx + %zu is not free: %#lx + %zu is mapped there",
			(unsigned long)addr, size, (unsigned long)other->addr,
			other->size);
	return 0;
}

/* Takes the mapping out of the ledger, and the page with it if this was its last. */
static void mapping_drop(struct check *check, struct glk_mapping *mapping)
{
	uint32_t id = mapping->page;

	glk_book_remove(&check->book, mapping);
	check_page_at(check, id)->maps--;
	glk_check_page_settle(check, id);
}

static int check_map(struct glk_drv *drv, uint64_t addr, size_t size, uint64_t ours)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	struct glk_mapping *mapping = NULL;
	struct check_page *page;
	uint64_t handle;
	int err = -EINVAL;

	glk_lock(&check->lock);
	page = glk_check_page_find(check, ours, "cuMemMap");
	if (page)
		err = map_rules(check, addr, size, page);
	if (!err) {
		mapping = glk_book_add(&check->book, addr, size, glk_handle_id(ours));
		err = mapping ? 0 : -ENOMEM;
	}
	if (err)
		goto out;
	mapping->state = GLK_MAPPING_COMING;
	page->maps++;
	handle = page->handle;
	glk_unlock(&check->lock);
	err = inner->ops->map(inner, addr, size, handle);
	glk_lock(&check->lock);
	mapping->state = GLK_MAPPING_MAPPED;
	if (err)
		mapping_drop(check, mapping);
	else
		page->size = size;
out:
	glk_unlock(&check->lock);
	return err;
}

/* Whether a range is a run of whole mappings that no other call is busy with. */
static int run_rules(
	const struct check *check, uint64_t addr, size_t size, const char *call)
{
	const struct glk_mapping *mapping;
	uint64_t at;

	if (!size || !glk_book_span(&check->book, addr, size))
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
			"%s rule: %#lx + %zu is not inside one reservation", call,
			(unsigned long)addr, size);
	if (!glk_book_is_run(&check->book, addr, size, &at)) {
		mapping = glk_book_find(&check->book, at);
		if (!mapping)
			return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
				"%s rule: %#lx + %zu must be mapped, %#lx is not", call,
				(unsigned long)addr, size, (unsigned long)at);
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
			"%s rule: %#lx + %zu cuts the mapping %#lx + %zu, only whole ones go",
			call, (unsigned long)addr, size, (unsigned long)mapping->addr,
			mapping->size);
	}
	for (at = addr; at < addr + size; at += mapping->size) {
		mapping = glk_book_find(&check->book, at);
		if (mapping->state != GLK_MAPPING_MAPPED)
			return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
				"%s rule: %#lx is being mapped or unmapped by another call",
				call, (unsigned long)at);
	}
	return 0;
}

static int grant_rules(
	const struct check *check, const struct glk_grant *grants, size_t count)
{
	if (!count || !grants)
		return check_rule(
			"cuMemSetAccess", "%zu grants, there must be one", count);
	for (size_t i = 0; i < count; i++) {
		const struct glk_grant *grant = &grants[i];

		if (grant->who.kind > GLK_PLACE_HOST || grant->who.id < 0 ||
			(grant->who.kind == GLK_PLACE_GPU &&
				grant->who.id >= check->gpus))
			return check_rule("cuMemSetAccess",
				"place %d of kind %d does not exist", grant->who.id,
				(int)grant->who.kind);
		if (grant->access != GLK_ACCESS_NONE &&
			grant->access != GLK_ACCESS_READ &&
			grant->access != GLK_ACCESS_WRITE)
			return check_rule("cuMemSetAccess", "access %d is unknown",
				(int)grant->access);
	}
	return 0;
}

static void grants_note(
	struct glk_mapping *mapping, const struct glk_grant *grants, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		/* GPUs beyond 63 share a bit: the ledger then errs on the lenient side. */
		uint64_t bit = UINT64_C(1)
			<< (grants[i].who.id < 63 ? grants[i].who.id : 63);

		if (grants[i].who.kind != GLK_PLACE_GPU)
			continue;
		mapping->readers &= ~bit;
		mapping->writers &= ~bit;
		mapping->readers |= grants[i].access != GLK_ACCESS_NONE ? bit : 0;
		mapping->writers |= grants[i].access == GLK_ACCESS_WRITE ? bit : 0;
	}
}

static int check_set_access(struct glk_drv *drv, uint64_t addr, size_t size,
	const struct glk_grant *grants, size_t count)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	struct glk_mapping *mapping;
	int err;

	err = grant_rules(check, grants, count);
	if (err)
		return err;
	glk_lock(&check->lock);
	err = run_rules(check, addr, size, "cuMemSetAccess");
	glk_unlock(&check->lock);
	if (!err)
		err = inner->ops->set_access(inner, addr, size, grants, count);
	if (err)
		return err;
	glk_lock(&check->lock);
	for (uint64_t at = addr; at < addr + size; at += mapping->size) {
		mapping = glk_book_find(&check->book, at);
		if (!mapping)
			break; /* unmapped meanwhile: the other call was told */
		grants_note(mapping, grants, count);
	}
	glk_unlock(&check->lock);
	return 0;
}

static int check_unmap(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	struct glk_mapping *mapping;
	uint64_t at;
	int err;

	glk_lock(&check->lock);
	err = run_rules(check, addr, size, "cuMemUnmap");
	for (at = addr; !err && at < addr + size; at += mapping->size) {
		mapping = glk_book_find(&check->book, at);
		mapping->state = GLK_MAPPING_GOING;
	}
	glk_unlock(&check->lock);
	if (err)
		return err;
	err = inner->ops->unmap(inner, addr, size);
	glk_lock(&check->lock);
	for (at = addr; at < addr + size;) {
		mapping = glk_book_find(&check->book, at);
		at += mapping->size;
		mapping->state = GLK_MAPPING_MAPPED;
		if (!err)
			mapping_drop(check, mapping);
	}
	glk_unlock(&check->lock);
	return err;
}

/* Pages of the host on all architectures have this many bytes or a multiple of it. */
#define HOST_PAGE ((size_t)4096)

static int check_dmabuf_fd(struct glk_drv *drv, uint64_t addr, size_t size, int *ret_fd)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	const struct glk_mapping *mapping;
	uint64_t at = addr;
	bool whole = true;

	if (!size || addr % HOST_PAGE || size % HOST_PAGE)
		return check_rule("cuMemGetHandleForAddressRange",
			"a dma-buf has whole pages of the host, not %#lx + %zu",
			(unsigned long)addr, size);
	glk_lock(&check->lock);
	while (whole && at - addr < size) {
		mapping = glk_book_find(&check->book, at);
		whole = mapping && mapping->state == GLK_MAPPING_MAPPED;
		if (whole)
			at = mapping->addr + mapping->size;
	}
	glk_unlock(&check->lock);
	if (!whole)
		return check_rule("cuMemGetHandleForAddressRange",
			"%#lx + %zu must be mapped, %#lx is not", (unsigned long)addr,
			size, (unsigned long)at);
	return inner->ops->dmabuf_fd(inner, addr, size, ret_fd);
}

void glk_check_map_ops(struct glk_drv_ops *ops)
{
	ops->reserve = check_reserve;
	ops->unreserve = check_unreserve;
	ops->map = check_map;
	ops->set_access = check_set_access;
	ops->unmap = check_unmap;
	ops->dmabuf_fd = check_dmabuf_fd;
}
