/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What copies and fills write. Bytes that nobody wrote take no memory of the host: they are holes of the
 * file, or pages of zeroes that the kernel makes up. A copy of them leaves them so, since programs and tests
 * move blocks of which they wrote a few words, and making 512 pages of zeroes costs more than all else that
 * is done with a block of 2 MiB.
 *
 * Cost		a stretch without contents: a call of the kernel, and a look at each word of host memory
 */
#include "glake/memory.h"
#include "soft/state.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STEP ((size_t)4096) /* what the kernel makes at once */

/*
 * The thread sanitizer is told of a word in each grain that a device reads or writes: to follow every byte takes it
 * longer than everything else that the tests do.
 */
#ifdef __SANITIZE_THREAD__
void __tsan_read8(void *word);
void __tsan_write8(void *word);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static void tell(uint64_t dst, uint64_t src, size_t size)
{
	for (size_t i = 0; i < size; i += GLAKE_GRAIN) {
		__tsan_write8((void *)(dst + i));
		if (src)
			__tsan_read8((void *)(src + i));
	}
}

static void hide(uint64_t dst, uint64_t src, size_t size)
{
	tell(dst, src, size);
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void show(void)
{
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static void tell(uint64_t dst, uint64_t src, size_t size)
{
	(void)dst, (void)src, (void)size;
}

static void hide(uint64_t dst, uint64_t src, size_t size)
{
	(void)dst, (void)src, (void)size;
}

static void show(void)
{
}
#endif

/* Reads whole pages of the host. Who writes them meanwhile is told by the copy of what he wrote. */
__attribute__((no_sanitize("thread"))) static bool is_zero(uint64_t addr)
{
	const uint64_t *word = (const uint64_t *)addr;
	size_t i = 0;

	while (i < STEP / sizeof(*word) && !word[i])
		i++;
	return i == STEP / sizeof(*word);
}

/* The stretch of bytes from an address on, `size` at most, of which all or none may hold anything. */
static bool has_contents(
	const struct soft *soft, uint64_t addr, size_t size, size_t *ret_size)
{
	const struct glk_mapping *mapping = glk_book_find(&soft->book, addr);
	bool empty;
	size_t n;

	if (mapping) {
		const struct soft_page *page = soft_page_at(soft, mapping->page);
		off_t at = (off_t)(page->first * GLK_GRANULE + addr - mapping->addr);
		off_t next;
		int fd = soft->file.fd;

		/* the offset of what was imported says which page it is, to all who have it (share.c) */
		if (page->fd >= 0) {
			n = mapping->addr + mapping->size - addr;
			*ret_size = n < size ? n : size;
			return true;
		}
		next = lseek(fd, at, SEEK_DATA);
		/* a file that cannot tell has contents everywhere */
		empty = next < 0 ? errno == ENXIO : next > at;
		if (!empty)
			next = lseek(fd, at, SEEK_HOLE);
		n = mapping->addr + mapping->size - addr;
		n = next < at || (size_t)(next - at) > n ? n : (size_t)(next - at);
		*ret_size = n < size ? n : size;
		return !empty;
	}
	n = addr % STEP ? STEP - addr % STEP : STEP;
	n = n < size ? n : size;
	empty = n == STEP && is_zero(addr);
	while (n + STEP <= size && is_zero(addr + n) == empty)
		n += STEP;
	*ret_size = n;
	return !empty;
}

/* In one call, where each page would cost an exception. Older kernels refuse it, and nothing is lost. */
static void populate(const struct soft *soft, uint64_t addr, size_t size)
{
	uint64_t first = addr & ~(STEP - 1);

	if (!glk_book_find(&soft->book, addr))
		madvise((void *)first, addr + size - first, MADV_POPULATE_READ);
}

static void clear(const struct soft *soft, uint64_t addr, size_t size)
{
	populate(soft, addr, size);
	for (size_t n; size; addr += n, size -= n)
		if (has_contents(soft, addr, size, &n)) {
			hide(addr, 0, n);
			memset((void *)addr, 0, n);
			show();
		}
}

/*
 * Contents go straight into the file: a page of it that nobody has touched would cost an exception, and be
 * cleared first. Returns how many bytes went.
 */
static size_t put(const struct soft *soft, uint64_t dst, uint64_t src, size_t size)
{
	const struct glk_mapping *mapping = glk_book_find(&soft->book, dst);
	const struct soft_page *page = mapping ? soft_page_at(soft, mapping->page) : NULL;
	ssize_t n = 0;

	if (page && page->fd < 0 && size >= STEP) {
		if (size > mapping->addr + mapping->size - dst)
			size = mapping->addr + mapping->size - dst;
		hide(dst, src, size);
		n = pwrite(soft->file.fd, (const void *)src, size,
			(off_t)(page->first * GLK_GRANULE + dst - mapping->addr));
		show();
	}
	if (n > 0)
		return (size_t)n;
	hide(dst, src, size);
	memcpy((void *)dst, (const void *)src, size);
	show();
	return size;
}

static void copy(const struct soft *soft, uint64_t dst, uint64_t src, size_t size)
{
	populate(soft, src, size);
	for (size_t n; size; dst += n, src += n, size -= n)
		if (has_contents(soft, src, size, &n))
			n = put(soft, dst, src, n);
		else
			clear(soft, dst, n);
}

void glk_soft_contents_run(const struct soft *soft, const struct soft_op *op)
{
	uint32_t *words = (uint32_t *)op->dst;

	if (op->kind == SOFT_FILL && !op->value)
		clear(soft, op->dst, op->size);
	else if (op->kind == SOFT_FILL) {
		hide(op->dst, 0, op->size);
		for (size_t i = 0; i < op->size / sizeof(*words); i++)
			words[i] = op->value;
		show();
	}
	if (op->kind == SOFT_LAUNCH && op->write)
		tell(op->dst, 0, op->size);
	if (op->kind != SOFT_COPY)
		return;
	if (op->size < STEP ||
		(op->dst < op->src + op->size && op->src < op->dst + op->size))
		memmove((void *)op->dst, (const void *)op->src, op->size);
	else
		copy(soft, op->dst, op->src, op->size);
}
