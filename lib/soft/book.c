/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table by granules and the sorted array of reservations; see book.h.
 *
 * Invariant	a non-zero entry is the slot of a mapping that covers this granule, and every
 *		granule of a mapping has its entry
 */
#include "soft/book.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

#define LEAF_BYTES (GLK_BOOK_LEAF * sizeof(uint32_t))

int glk_book_init(struct glk_book *book, uint32_t mappings_max)
{
	int err;

	*book = (struct glk_book){0};
	err = glk_slab_init(&book->mappings, sizeof(struct glk_mapping), mappings_max);
	if (err)
		return err;
	book->spans = glk_region_new(GLK_BOOK_SPANS * sizeof(*book->spans));
	if (!book->spans) {
		glk_slab_fini(&book->mappings);
		return -ENOMEM;
	}
	return 0;
}

void glk_book_fini(struct glk_book *book)
{
	for (uint32_t i = 0; i < GLK_BOOK_LEAVES; i++)
		glk_region_free(book->leaves[i], LEAF_BYTES);
	glk_region_free(book->spans, GLK_BOOK_SPANS * sizeof(*book->spans));
	if (book->mappings.base)
		glk_slab_fini(&book->mappings);
	*book = (struct glk_book){0};
}

/* The number of reservations that begin at or below addr. */
static uint32_t span_rank(const struct glk_book *book, uint64_t addr)
{
	uint32_t low = 0, high = book->span_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (book->spans[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct glk_span *glk_book_span(const struct glk_book *book, uint64_t addr, size_t size)
{
	uint32_t rank = span_rank(book, addr);
	struct glk_span *span;

	if (!rank)
		return NULL;
	span = &book->spans[rank - 1];
	if (addr - span->addr >= span->size || size > span->size - (addr - span->addr))
		return NULL;
	return span;
}

int glk_book_span_add(struct glk_book *book, uint64_t addr, size_t size)
{
	uint32_t rank = span_rank(book, addr);
	uint64_t last;

	if (__builtin_add_overflow(addr, size - 1, &last) || last >> GLK_BOOK_ADDR_BITS)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"reservation at %#lx ends above %d-bit addresses",
			(unsigned long)addr, GLK_BOOK_ADDR_BITS);
	if (book->span_count == GLK_BOOK_SPANS)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"all %u reservations are in use", GLK_BOOK_SPANS);
	for (uint64_t i = addr >> GLK_BOOK_LEAF_BITS; i <= last >> GLK_BOOK_LEAF_BITS;
		i++) {
		if (!book->leaves[i])
			book->leaves[i] = glk_region_new(LEAF_BYTES);
		if (!book->leaves[i])
			return -ENOMEM;
	}
	memmove(&book->spans[rank + 1], &book->spans[rank],
		(book->span_count - rank) * sizeof(*book->spans));
	book->spans[rank] = (struct glk_span){.addr = addr, .size = size};
	book->span_count++;
	return 0;
}

void glk_book_span_remove(struct glk_book *book, struct glk_span *span)
{
	size_t rank = (size_t)(span - book->spans);

	book->span_count--;
	memmove(span, span + 1, (book->span_count - rank) * sizeof(*span));
}

static uint32_t *entry_at(const struct glk_book *book, uint64_t addr)
{
	uint32_t *leaf;

	if (addr >> GLK_BOOK_ADDR_BITS)
		return NULL;
	leaf = book->leaves[addr >> GLK_BOOK_LEAF_BITS];
	return leaf ? &leaf[addr >> GLK_GRANULE_BITS & (GLK_BOOK_LEAF - 1)] : NULL;
}

struct glk_mapping *glk_book_find(const struct glk_book *book, uint64_t addr)
{
	const uint32_t *entry = entry_at(book, addr);

	return entry && *entry ? glk_slab_at(&book->mappings, *entry) : NULL;
}

struct glk_mapping *glk_book_overlap(
	const struct glk_book *book, uint64_t addr, size_t size)
{
	struct glk_mapping *mapping;

	for (uint64_t at = addr & ~(GLK_GRANULE - 1); at < addr + size;
		at += GLK_GRANULE) {
		mapping = glk_book_find(book, at);
		if (mapping)
			return mapping;
	}
	return NULL;
}

static void entries_set(struct glk_book *book, uint64_t addr, size_t size, uint32_t id)
{
	for (uint64_t at = addr; at < addr + size; at += GLK_GRANULE)
		*entry_at(book, at) = id;
}

struct glk_mapping *glk_book_add(
	struct glk_book *book, uint64_t addr, size_t size, uint32_t page)
{
	uint32_t id = glk_slab_get(&book->mappings);
	struct glk_mapping *mapping;

	if (!id)
		return NULL;
	mapping = glk_slab_at(&book->mappings, id);
	*mapping = (struct glk_mapping){.addr = addr, .size = size, .page = page};
	entries_set(book, addr, size, id);
	glk_book_span(book, addr, size)->maps++;
	return mapping;
}

void glk_book_remove(struct glk_book *book, struct glk_mapping *mapping)
{
	uint32_t id = *entry_at(book, mapping->addr);

	entries_set(book, mapping->addr, mapping->size, 0);
	glk_book_span(book, mapping->addr, mapping->size)->maps--;
	glk_slab_put(&book->mappings, id);
}

bool glk_book_is_run(
	const struct glk_book *book, uint64_t addr, size_t size, uint64_t *ret_at)
{
	const struct glk_mapping *mapping;
	uint64_t at = addr;

	while (at < addr + size) {
		mapping = glk_book_find(book, at);
		if (!mapping || mapping->addr != at || mapping->size > addr + size - at) {
			*ret_at = at;
			return false;
		}
		at += mapping->size;
	}
	return true;
}
