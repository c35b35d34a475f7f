/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_BOOK_H
#define GLK_SOFT_BOOK_H

/*
 * What lies where in the address space: reservations, and mappings inside them, found by
 * address. The check wrapper keeps one to judge by, the software device one to act by. A book
 * knows no rules; it is a data structure.
 *
 * Design	a table of one 32-bit entry per granule of 2 MiB, in leaves that are made when
 *		a reservation first touches them, so that a map can never fail for want of a
 *		table. An entry is the slot of the mapping that covers the granule.
 *		Reservations are few and lie in an array sorted by address.
 * Cost		add, remove: one entry per granule of the mapping; find: two loads;
 *		find a reservation: binary search
 * Callers	hold their own lock round every call
 */
#include "base/slab.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLK_GRANULE_BITS 21
#define GLK_GRANULE	 ((size_t)1 << GLK_GRANULE_BITS)

/* A leaf covers 512 GiB; 512 of them all user addresses of x86-64 and aarch64 (48 bits). */
#define GLK_BOOK_LEAF_BITS 39
#define GLK_BOOK_ADDR_BITS 48
#define GLK_BOOK_LEAVES	   (1u << (GLK_BOOK_ADDR_BITS - GLK_BOOK_LEAF_BITS))
#define GLK_BOOK_LEAF	   ((size_t)1 << (GLK_BOOK_LEAF_BITS - GLK_GRANULE_BITS))

/* Most reservations at once: each costs 216 us to make on an H200, so more are a mistake. */
#define GLK_BOOK_SPANS 65536u

struct glk_span {
	uint64_t addr;
	size_t size;
	uint32_t maps; /* mappings inside */
};

enum glk_mapping_state {
	GLK_MAPPING_MAPPED = 0,
	GLK_MAPPING_COMING, /* its map is on the way down */
	GLK_MAPPING_GOING,  /* its unmap is */
};

struct glk_mapping {
	uint64_t addr;
	size_t size;
	uint64_t readers, writers; /* a bit for each GPU */
	uint32_t page;		   /* slot of the page in its owner's slab */
	uint32_t queued;	   /* queued operations that name it */
	uint8_t state;		   /* enum glk_mapping_state */
	uint8_t prot;		   /* rights of the process, PROT_READ and PROT_WRITE */
	bool host_read, host_write;
	bool promised; /* nobody writes it any more */
};

struct glk_book {
	uint32_t *leaves[GLK_BOOK_LEAVES];
	struct glk_slab mappings;
	struct glk_span *spans;
	uint32_t span_count;
};

/* 0 or -ENOMEM. */
int glk_book_init(struct glk_book *book, uint32_t mappings_max);
/* Takes a zeroed book too. */
void glk_book_fini(struct glk_book *book);

/* The reservation that holds [addr, addr + size), or NULL. */
struct glk_span *glk_book_span(const struct glk_book *book, uint64_t addr, size_t size);
/* 0; -ENOMEM and a record (host memory, LIMIT). */
int glk_book_span_add(struct glk_book *book, uint64_t addr, size_t size);
void glk_book_span_remove(struct glk_book *book, struct glk_span *span);

/* The mapping over this address, or NULL. */
struct glk_mapping *glk_book_find(const struct glk_book *book, uint64_t addr);

/* Any mapping that overlaps [addr, addr + size), the lowest; or NULL. */
struct glk_mapping *glk_book_overlap(
	const struct glk_book *book, uint64_t addr, size_t size);

/* Adds a mapping in a free place of a reservation. NULL and a LIMIT record when full. */
struct glk_mapping *glk_book_add(
	struct glk_book *book, uint64_t addr, size_t size, uint32_t page);
void glk_book_remove(struct glk_book *book, struct glk_mapping *mapping);

/* Whether [addr, addr + size) is a run of whole mappings; if not, *ret_at is where it is
 * broken. */
bool glk_book_is_run(
	const struct glk_book *book, uint64_t addr, size_t size, uint64_t *ret_at);

#endif
