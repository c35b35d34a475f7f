/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Addresses of the software device. A reservation is one PROT_NONE map of the file, which
 * costs nothing; a map only writes down which page lies where. The system is asked when
 * rights are given (access.c) and when mappings that had rights go, once a range.
 */
#include "soft/state.h"

#include "base/error.h"
#include "soft/handle.h"

#include <errno.h>
#include <sys/mman.h>

/* Finds addresses: maps more than was asked for and gives the ends back. */
static int find(size_t size, size_t align, uint64_t *ret_addr)
{
	uint64_t raw, addr;
	size_t whole;
	void *p = MAP_FAILED;

	if (!__builtin_add_overflow(size, align, &whole))
		p = mmap(NULL, whole, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return glk_error_native(-ENOMEM, GLAKE_ERROR_ADDRESS,
			"cuMemAddressReserve", 2,
			"the system has no %zu bytes of addresses", size);
	raw = (uint64_t)p;
	addr = (raw + align - 1) & ~(align - 1);
	if (addr > raw)
		munmap(p, addr - raw);
	if (addr + size < raw + whole)
		munmap((void *)(addr + size), raw + whole - addr - size);
	*ret_addr = addr;
	return 0;
}

int glk_soft_reserve(struct glk_drv *drv, size_t size, size_t align, uint64_t *ret_addr)
{
	struct soft *soft = soft_of(drv);
	uint64_t addr = 0;
	int err;

	glk_soft_charge(soft, GLAKE_CALL_RESERVE, 1);
	err = glk_soft_maps_room(1);
	if (err)
		return err;
	err = find(size, align > GLK_GRANULE ? align : GLK_GRANULE, &addr);
	if (err)
		return err;
	err = glk_soft_access_none(soft, addr, size);
	glk_soft_enter(soft);
	if (!err)
		err = glk_book_span_add(&soft->book, addr, size);
	if (!err)
		glk_soft_maps_note(soft, 1);
	glk_unlock(&soft->lock);
	if (err) {
		munmap((void *)addr, size);
		return err;
	}
	*ret_addr = addr;
	return 0;
}

int glk_soft_unreserve(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct soft *soft = soft_of(drv);
	struct glk_span *span;
	int err = 0;

	glk_soft_enter(soft);
	span = glk_book_span(&soft->book, addr, size);
	if (!span || span->addr != addr || span->size != size || span->maps)
		err = glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemAddressFree", 1,
			"%#lx + %zu is no reservation free of mappings",
			(unsigned long)addr, size);
	if (!err) {
		glk_book_span_remove(&soft->book, span);
		glk_soft_maps_note(soft, -1);
	}
	glk_unlock(&soft->lock);
	if (err)
		return err;
	glk_soft_charge(soft, GLAKE_CALL_UNRESERVE, 1);
	munmap((void *)addr, size);
	return 0;
}

int glk_soft_map(struct glk_drv *drv, uint64_t addr, size_t size, uint64_t handle)
{
	struct soft *soft = soft_of(drv);
	struct soft_page *page;
	int err = -EINVAL;

	glk_soft_enter(soft);
	page = glk_soft_page_find(soft, handle, "cuMemMap");
	if (!page)
		goto out;
	if (addr % GLK_GRANULE || page->size != size ||
		!glk_book_span(&soft->book, addr, size) ||
		glk_book_overlap(&soft->book, addr, size)) {
		glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemMap", 1,
			"%#lx + %zu is no free place for a page of %zu bytes",
			(unsigned long)addr, size, page->size);
		goto out;
	}
	err = glk_soft_page_put(soft, page, addr);
	if (!err && !glk_book_add(&soft->book, addr, size, glk_handle_id(handle)))
		err = -ENOMEM;
	if (err)
		goto out;
	page->maps++;
	glk_soft_charge(soft, GLAKE_CALL_MAP, 1);
out:
	glk_unlock(&soft->lock);
	return err;
}

static void forget(struct soft *soft, uint64_t addr, size_t size)
{
	struct glk_mapping *mapping;
	struct soft_page *page;
	uint64_t at = addr;
	size_t count = 0;

	for (; at < addr + size; count++) {
		mapping = glk_book_find(&soft->book, at);
		page = soft_page_at(soft, mapping->page);
		at += mapping->size;
		page->maps--;
		glk_soft_page_settle(soft, page, mapping->page);
		glk_book_remove(&soft->book, mapping);
	}
	glk_soft_charge(soft, GLAKE_CALL_UNMAP, count);
}

int glk_soft_unmap(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct soft *soft = soft_of(drv);
	uint64_t at;
	int err = 0;

	glk_soft_enter(soft);
	if (!glk_book_span(&soft->book, addr, size) ||
		!glk_book_is_run(&soft->book, addr, size, &at)) {
		err = glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemUnmap", 1,
			"%#lx + %zu is no run of whole mappings", (unsigned long)addr,
			size);
		goto out;
	}
	err = glk_soft_queue_refuse(soft, addr, size, "cuMemUnmap");
	if (err)
		goto out;
	err = glk_soft_access_remove(soft, addr, size);
	if (!err)
		forget(soft, addr, size);
out:
	glk_unlock(&soft->lock);
	return err;
}
