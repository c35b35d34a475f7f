/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SHARE_DEPOT_H
#define GLK_SHARE_DEPOT_H

/*
 * Pages of sealed blocks that the processes of a user have in common, by content: each is known by a number of its
 * contents (alike.h), and its descriptor is kept for whoever has a page of that number. Who takes one compares every
 * byte before it stands on it, so a number that lies costs time, and no more. As books.h it knows no sockets and no
 * processes.
 *
 *	(none) -- put --> there, with users -- the last one leaves --> (none)
 *
 * Bytes	are their maker's as long as it has the page, and the depot's from then on until the last user has left
 *		(glk_books_charge): each page counts once, wherever it is mapped
 * Cost		a look at a chain for a page that is looked for, which is short whatever numbers clients choose; for a
 *		client that goes a look at a bit of each page
 */
#include "share/alike.h"
#include "share/books.h"

#define GLK_DEPOT_PAGES (1u << 17)

struct glk_depot;

struct glk_depot_page {
	uint32_t uid;
	unsigned gpu;
	struct glk_alike_number number;
	uint64_t bytes;
	int fd;
};

/* NULL for no memory, or no random number. What is let go of goes to `close`. `most`: pages in all, and of one user. */
struct glk_depot *glk_depot_new(
	struct glk_books *books, void (*close)(int fd), uint32_t most, uint32_t of_user);
void glk_depot_free(struct glk_depot *depot);

/*
 * A client has made a page, and others may have it from now on. Its number, and the descriptor is the depot's; 0: one of
 * those contents is there, or there are too many.
 */
uint32_t glk_depot_put(
	struct glk_depot *depot, uint32_t client, const struct glk_depot_page *page);
/* A client has the page of such contents from now on, which are told by all but the descriptor. Its number; 0: there is none that it
 * has not already. */
uint32_t glk_depot_get(struct glk_depot *depot, uint32_t client,
	const struct glk_depot_page *wanted, int *ret_fd);
/* It has one no more: 0; -EINVAL, it did not. And it goes, to be said before glk_books_leave(). */
int glk_depot_end(struct glk_depot *depot, uint32_t client, uint32_t page, int64_t now);
void glk_depot_leave(struct glk_depot *depot, uint32_t client, int64_t now);

struct glk_depot_sum {
	uint64_t bytes,
		saved; /* of all pages, each once; and of all users beyond the first */
};

struct glk_depot_sum glk_depot_sum(const struct glk_depot *depot, unsigned gpu);

#endif
