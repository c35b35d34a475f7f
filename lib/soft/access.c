/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rights on the software device are rights of the process: a mapping appears in its address
 * space when somebody is given access, with the sum of all grants, and is PROT_NONE before.
 * Neighbours that lie in the file as in the address space become one system call and one map
 * of the kernel, of which vm.max_map_count allows 65530 by default.
 *
 * Invariant	an address of a reservation is a map of the file at the offset equal to it,
 *		except where a mapping with rights has put a page from another place
 * Guarantees	a call that fails half way leaves the rights as they were
 * Last maps	are left to the program (maps.c): to know what a change takes of them, the
 *		edges between its pieces are counted before and after
 * Out of maps	rights that go can need one more, where they split a map. If the kernel has
 *		none, addresses may keep their rights until they are mapped again, which only
 *		a program that touches what is not mapped could see; from then on giving
 *		rights says which page lies there, also for pages at their own place
 * Cost		per run of neighbours: mprotect, 1.2 us, for pages at their own place and for those
 *		that have rights, mmap, 3.3 us, for others
 */
#include "soft/managed.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <sys/mman.h>

/* A run of mappings that one system call can serve. */
struct run {
	uint64_t addr;
	size_t size;
	size_t first; /* granule in the file */
	int fd;	      /* the file, -1 for that of the device */
	uint8_t prot;
	bool lies; /* the pages are there, and keep some rights */
};

/* Whether a granule of a file lies at its own address. */
static bool is_home(uint64_t addr, size_t first, int fd)
{
	return fd < 0 && addr == first * GLK_GRANULE;
}

static int failed(const char *call, uint64_t addr, size_t size)
{
	if (errno == ENOMEM) {
		glk_soft_maps_refused();
		return glk_error_native(-ENOMEM, GLAKE_ERROR_LIMIT, call, ENOMEM,
			"the process has used up its maps, see vm.max_map_count");
	}
	return glk_error_native(-EIO, GLAKE_ERROR_DRIVER, call, errno,
		"rights on %#lx + %zu cannot be changed", (unsigned long)addr, size);
}

/* What a call changes: places that no grant names keep the rights they have. */
struct change {
	uint64_t gpus, readers, writers; /* a bit for each GPU */
	bool host, host_read, host_write;
};

static const struct change change_none = {.gpus = UINT64_MAX, .host = true};

static struct glk_mapping change_apply(
	const struct change *change, const struct glk_mapping *mapping)
{
	struct glk_mapping now = *mapping;

	now.readers = (now.readers & ~change->gpus) | change->readers;
	now.writers = (now.writers & ~change->gpus) | change->writers;
	now.promised &= !change->writers;
	if (change->host) {
		now.host_read = change->host_read;
		now.host_write = change->host_write;
	}
	now.prot = PROT_NONE;
	if (now.readers || now.host_read)
		now.prot |= PROT_READ;
	if (now.writers || now.host_write)
		now.prot |= PROT_READ | PROT_WRITE;
	return now;
}

/* Where bytes of the address space lie. Neighbours of which all of it is equal are one map of
 * the kernel. */
struct piece {
	size_t shift; /* granules from the address to the place in the file */
	int fd;
	uint8_t prot;
};

/* Without rights, or without a mapping, an address lies at its own place. */
static struct piece piece_of(
	const struct soft *soft, const struct glk_mapping *mapping, uint8_t prot)
{
	const struct soft_page *page;

	if (!mapping || prot == PROT_NONE)
		return (struct piece){.fd = -1, .prot = PROT_NONE};
	page = soft_page_at(soft, mapping->page);
	return (struct piece){.shift = page->first - mapping->addr / GLK_GRANULE,
		.fd = page->fd,
		.prot = prot};
}

static struct piece piece_at(const struct soft *soft, uint64_t addr)
{
	const struct glk_mapping *mapping = glk_book_find(&soft->book, addr);

	return piece_of(soft, mapping, mapping ? mapping->prot : PROT_NONE);
}

static bool is_edge(struct piece a, struct piece b)
{
	return a.shift != b.shift || a.fd != b.fd || a.prot != b.prot;
}

/* How many more maps of the kernel a change makes of a run of mappings. */
static int64_t change_maps(
	const struct soft *soft, uint64_t addr, size_t size, const struct change *change)
{
	struct piece was = piece_at(soft, addr - 1), is = was;
	const struct glk_mapping *mapping;
	struct piece next;
	int64_t more = 0;

	for (uint64_t at = addr; at < addr + size; at += mapping->size) {
		mapping = glk_book_find(&soft->book, at);
		next = piece_of(soft, mapping, mapping->prot);
		more -= is_edge(was, next);
		was = next;
		next = piece_of(soft, mapping, change_apply(change, mapping).prot);
		more += is_edge(is, next);
		is = next;
	}
	next = piece_at(soft, addr + size);
	return more - is_edge(was, next) + is_edge(is, next);
}

int glk_soft_access_none(const struct soft *soft, uint64_t addr, size_t size)
{
	void *p = mmap((void *)addr, size, PROT_NONE,
		MAP_SHARED | MAP_FIXED | MAP_NORESERVE, soft->file.fd, (off_t)addr);

	return p == MAP_FAILED ? failed("mmap", addr, size) : 0;
}

static int access_remove(const struct soft *soft, uint64_t addr, size_t size)
{
	const struct glk_mapping *mapping;
	const struct soft_page *page;
	bool rights = false, home = true;

	for (uint64_t at = addr; at < addr + size; at += mapping->size) {
		mapping = glk_book_find(&soft->book, at);
		page = soft_page_at(soft, mapping->page);
		rights |= mapping->prot != PROT_NONE;
		home &= mapping->prot == PROT_NONE || is_home(at, page->first, page->fd);
	}
	if (!rights)
		return 0;
	if (!home)
		return glk_soft_access_none(soft, addr, size);
	if (mprotect((void *)addr, size, PROT_NONE))
		return failed("mprotect", addr, size);
	return 0;
}

/* Without a map to spare: rights that can go without one do, the others stay. */
static void tear(struct soft *soft, uint64_t addr, size_t size)
{
	soft->torn = true;
	mprotect((void *)addr, size, PROT_NONE);
}

int glk_soft_access_remove(struct soft *soft, uint64_t addr, size_t size)
{
	int64_t more = change_maps(soft, addr, size, &change_none);
	int err = access_remove(soft, addr, size);

	if (err == -ENOMEM) {
		tear(soft, addr, size);
		err = 0;
	}
	if (!err)
		glk_soft_maps_note(soft, more);
	return err;
}

static int run_map(const struct soft *soft, const struct run *run)
{
	void *p;

	if ((run->lies || is_home(run->addr, run->first, run->fd)) && !soft->torn) {
		if (mprotect((void *)run->addr, run->size, run->prot))
			return failed("mprotect", run->addr, run->size);
		return 0;
	}
	if (run->prot == PROT_NONE)
		return glk_soft_access_none(soft, run->addr, run->size);
	p = mmap((void *)run->addr, run->size, run->prot,
		MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
		run->fd < 0 ? soft->file.fd : run->fd, (off_t)(run->first * GLK_GRANULE));
	return p == MAP_FAILED ? failed("mmap", run->addr, run->size) : 0;
}

/* Whether the mapping continues the run, with these rights. */
static bool run_extend(const struct soft *soft, struct run *run,
	const struct glk_mapping *mapping, uint8_t prot, bool lies)
{
	const struct soft_page *page = soft_page_at(soft, mapping->page);

	if (!run->size)
		*run = (struct run){.addr = mapping->addr,
			.first = page->first,
			.fd = page->fd,
			.prot = prot,
			.lies = lies};
	else if (run->prot != prot || run->lies != lies || run->fd != page->fd ||
		run->first + run->size / GLK_GRANULE != page->first)
		return false;
	run->size += mapping->size;
	return true;
}

/*
 * Brings the process's rights on [addr, addr + size) to what the change makes of them, or,
 * without one, back to what the book says. *ret_done is the end of what was done.
 */
static int range_map(const struct soft *soft, uint64_t addr, size_t size,
	const struct change *change, uint64_t *ret_done)
{
	struct run run = {0};
	uint64_t at = addr;
	int err = 0;

	while (!err && at < addr + size) {
		const struct glk_mapping *mapping = glk_book_find(&soft->book, at);
		uint8_t prot =
			change ? change_apply(change, mapping).prot : mapping->prot;
		bool lies = change && mapping->prot != PROT_NONE && prot != PROT_NONE;

		if (run_extend(soft, &run, mapping, prot, lies)) {
			at += mapping->size;
			continue;
		}
		err = run_map(soft, &run);
		if (!err)
			run.size = 0;
	}
	if (!err && run.size)
		err = run_map(soft, &run);
	*ret_done = err ? run.addr : at;
	return err;
}

static int change_read(const struct soft *soft, const struct glk_grant *grants,
	size_t count, struct change *ret_change)
{
	struct change change = {0};
	uint8_t place;
	int err;

	for (size_t i = 0; i < count; i++) {
		bool write = grants[i].access == GLK_ACCESS_WRITE;
		bool read = grants[i].access != GLK_ACCESS_NONE;
		uint64_t bit;

		err = glk_soft_place(soft, grants[i].who, &place);
		if (err)
			return err;
		if (grants[i].who.kind == GLK_PLACE_HOST) {
			change.host = true;
			change.host_read = read;
			change.host_write = write;
			continue;
		}
		bit = UINT64_C(1) << grants[i].who.id;
		change.gpus |= bit;
		change.readers |= read ? bit : 0;
		change.writers |= write ? bit : 0;
	}
	*ret_change = change;
	return 0;
}

/* Rights may grow while queued work names the range, but not shrink. */
static int shrink_refuse(
	struct soft *soft, uint64_t addr, size_t size, const struct change *change)
{
	const struct glk_mapping *mapping;
	struct glk_mapping now;

	for (uint64_t at = addr; soft->pending && at < addr + size; at += mapping->size) {
		mapping = glk_book_find(&soft->book, at);
		now = change_apply(change, mapping);
		if ((mapping->readers & ~now.readers) ||
			(mapping->writers & ~now.writers))
			return glk_soft_queue_refuse(
				soft, at, mapping->size, "cuMemSetAccess");
	}
	return 0;
}

static void change_note(
	struct soft *soft, uint64_t addr, size_t size, const struct change *change)
{
	struct glk_mapping *mapping;
	size_t count = 0;

	for (uint64_t at = addr; at < addr + size; count++) {
		mapping = glk_book_find(&soft->book, at);
		*mapping = change_apply(change, mapping);
		if (mapping->prot & PROT_WRITE)
			soft_page_at(soft, mapping->page)->written = true;
		at += mapping->size;
	}
	glk_soft_charge(soft, GLAKE_CALL_SET_ACCESS, count);
}

/* After a change that failed, where the kernel refuses the way back too: what had no rights
 * before loses them as far as can be. */
static void restore_torn(struct soft *soft, uint64_t addr, size_t size)
{
	const struct glk_mapping *mapping;

	for (uint64_t at = addr; at < addr + size; at += mapping->size) {
		mapping = glk_book_find(&soft->book, at);
		if (mapping->prot == PROT_NONE)
			tear(soft, at, mapping->size);
		else
			glk_err("rights on %#lx + %zu could not be restored",
				(unsigned long)at, mapping->size);
	}
	soft->torn = true;
}

int glk_soft_set_access(struct glk_drv *drv, uint64_t addr, size_t size,
	const struct glk_grant *grants, size_t count)
{
	struct soft *soft = soft_of(drv);
	struct change change;
	uint64_t at, done;
	int64_t more;
	int err;

	err = change_read(soft, grants, count, &change);
	if (err)
		return err;
	glk_soft_enter(soft);
	if (!glk_book_span(&soft->book, addr, size) ||
		!glk_book_is_run(&soft->book, addr, size, &at)) {
		err = glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemSetAccess", 1,
			"%#lx + %zu is no run of whole mappings", (unsigned long)addr,
			size);
		goto out;
	}
	err = shrink_refuse(soft, addr, size, &change);
	if (err)
		goto out;
	more = change_maps(soft, addr, size, &change);
	err = glk_soft_maps_room(more);
	if (err)
		goto out;
	err = range_map(soft, addr, size, &change, &done);
	if (!err) {
		glk_soft_maps_note(soft, more);
		change_note(soft, addr, size, &change);
	} else if (range_map(soft, addr, done - addr, NULL, &at)) {
		restore_torn(soft, addr, done - addr);
	}
out:
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_promise(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct soft *soft = soft_of(drv);
	struct glk_mapping *mapping;

	glk_soft_enter(soft);
	for (uint64_t at = addr; at < addr + size; at += mapping->size) {
		mapping = glk_book_find(&soft->book, at);
		if (!mapping)
			break;
		mapping->promised = true;
	}
	glk_unlock(&soft->lock);
	return 0;
}

/* Whether every byte of a range may be touched by a GPU. Memory outside of all reservations is
 * the host's own and not judged. */
static int touchable(struct soft *soft, int device, uint64_t addr, size_t size,
	bool write, const char *call)
{
	uint64_t mask = UINT64_C(1) << device;
	const struct glk_mapping *mapping;
	uint64_t at = addr, end;

	if (__builtin_add_overflow(addr, size, &end) || !addr)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
			"%zu bytes at %#lx are no range", size, (unsigned long)addr);
	if (!glk_book_span(&soft->book, addr, 1))
		return glk_soft_managed_whole(soft, addr, size, call);
	for (; at < end; at = mapping->addr + mapping->size) {
		mapping = glk_book_find(&soft->book, at);
		if (!mapping || !((write ? mapping->writers : mapping->readers) & mask))
			return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 700,
				"%s rule: GPU %d may not %s %#lx: %s", call, device,
				write ? "write" : "read", (unsigned long)at,
				mapping ? "no such access was set"
					: "nothing is mapped there");
		if (write && mapping->promised)
			return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 700,
				"%s rule: GPU %d may not write %#lx: it was sealed", call,
				device, (unsigned long)at);
	}
	return 0;
}

int glk_soft_access_judge(
	struct soft *soft, int device, const struct soft_op *op, const char *call)
{
	bool write = !soft_op_reads(op);
	int err = touchable(soft, device, op->dst, op->size, write, call);

	if (!err && op->kind == SOFT_COPY)
		err = touchable(soft, device, op->src, op->size, false, call);
	return err;
}
