/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SHARE_SHELF_H
#define GLK_SHARE_SHELF_H

/*
 * What is published, by name: contents of one page each, which exists once however many have it. A name is of one user
 * and one GPU. As books.h it knows no sockets and no processes; a descriptor is a number that it keeps.
 *
 *	(none) -- claim --> written by one client -- put --> there, with users -- the last one leaves --> (none)
 *	                       | it leaves: (none)
 *
 * Bytes	are the publisher's as long as it holds them, and the shelf's from then on until the last user has left
 *		(glk_books_charge): each page counts once, wherever it is mapped
 * Cost		a walk over the names there are
 */
#include "share/alike.h"
#include "share/books.h"

#define GLK_SHELF_ITEMS 4096
#define GLK_SHELF_KEY	192

struct glk_shelf;

struct glk_shelf_item {
	uint32_t uid;
	unsigned gpu;
	char key[GLK_SHELF_KEY];
	uint64_t stamp;		     /* of the contents; 0: nobody says */
	struct glk_alike_number sum; /* likewise */
	uint64_t page, offset,
		length; /* bytes: of the page, and what is published in it */
	int fd;
	uint32_t writer; /* the client that will put it; 0: it is there */
	uint32_t payer;	 /* the client whose bytes they are; 0: the shelf's */
	uint32_t users;
};

/* NULL for no memory. What is let go of goes to `close`. `most`: names of one user. */
struct glk_shelf *glk_shelf_new(
	struct glk_books *books, void (*close)(int fd), uint32_t most);
void glk_shelf_free(struct glk_shelf *shelf);

/*
 * A client has contents of a name from now on; `item` says all but who writes, pays and uses. `pays`: it holds the page
 * by a lease of its own. `again`: it had them before, from another broker; then they may be there. 0, and the descriptor
 * is the shelf's; 1, it had them; -EEXIST, there are others, or another client writes them; -ENOSPC.
 */
int glk_shelf_put(struct glk_shelf *shelf, uint32_t client,
	const struct glk_shelf_item *item, bool pays, bool again, int64_t now);
/*
 * A client wants the contents of a name and stamp, or any where that is 0. 0; -ENOENT, there are none, and with `claim`
 * it is the one that will put them; -EAGAIN, another one is; -EEXIST, there are others.
 */
int glk_shelf_get(struct glk_shelf *shelf, uint32_t client,
	const struct glk_shelf_item *wanted, bool claim, struct glk_shelf_item *ret_item);
/* It has them once less, or puts them not; and it goes, to be said before glk_books_leave(). */
void glk_shelf_end(struct glk_shelf *shelf, uint32_t client,
	const struct glk_shelf_item *wanted, int64_t now);
void glk_shelf_leave(struct glk_shelf *shelf, uint32_t client, int64_t now);
/* Another client is what one was: it will put what that one claimed. */
void glk_shelf_follow(struct glk_shelf *shelf, uint32_t former, uint32_t client);

/* The next one after `before`, from 0, of a GPU; 0: none. */
uint32_t glk_shelf_next(const struct glk_shelf *shelf, unsigned gpu, uint32_t before,
	struct glk_shelf_item *ret_item);

#endif
