/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SHARE_BOOKS_H
#define GLK_SHARE_BOOKS_H

/*
 * The books of a broker: how many bytes of each GPU which client may hold, who waits for more, and which contents are
 * published. They know no sockets, no processes and no clock: each call says what happened and when, and what follows
 * from it is called for in a table.
 *
 *	total = free + the sum of what clients hold + what is published
 *
 * Guarantee	a client gets what it holds less than its least at once: nobody else is given the last bytes that
 *		such guarantees want, and nobody is asked to give below his own
 * Line		who wants more than there is waits behind those who came before, and in front of those who want
 *		more than their guarantee if its own covers the want. Nobody overtakes the first
 * Asks		while the first waits, those who hold most above their guarantee are asked to give, no more than it
 *		lacks in all. Who gives too little is passed over for the next and asked anew after
 *		GLK_BOOKS_AGAIN; who does not answer in GLK_BOOKS_PATIENCE, not before he has said something
 * Refusals	at the date of a want; at once if it is more than the client may have, or than there is
 *
 * Cost		a want, a gift: constant while nobody waits. While somebody does, a walk over the clients
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLK_BOOKS_GPUS	  64
#define GLK_BOOKS_CLIENTS 4096
#define GLK_BOOKS_WANTS	  8192
#define GLK_BOOKS_NAME	  256

/* ns between two asks of one client for the same want. */
#define GLK_BOOKS_AGAIN INT64_C(100000000)
/* ns that one has to answer. */
#define GLK_BOOKS_PATIENCE INT64_C(250000000)

struct glk_books;

/* What follows, for who keeps the books. None of them may change the books. */
struct glk_books_deeds {
	/* A want is met with so many bytes, which the client holds from now on, or is refused with -errno. */
	void (*answer)(void *of, uint32_t client, unsigned gpu, uint64_t want, int err,
		uint64_t bytes);
	/* A client is to give, until a time. */
	void (*ask)(
		void *of, uint32_t client, unsigned gpu, uint64_t bytes, int64_t until);
	void *of;
};

/* NULL: no memory. */
struct glk_books *glk_books_new(const struct glk_books_deeds *deeds);
void glk_books_free(struct glk_books *books);

/* The GPU of a name, with so many bytes to give if nobody has it. It is used while a client has rules for it or holds
 * something of it; a name that is not may be forgotten for another. -ENOSPC: there are GLK_BOOKS_GPUS in use. */
int glk_books_gpu(struct glk_books *books, const char *name, uint64_t total);
const char *glk_books_gpu_name(const struct glk_books *books, unsigned gpu);
unsigned glk_books_gpus(const struct glk_books *books);

/* A client comes, from 1; 0: there are too many. It goes, with all that it holds and waits for. */
uint32_t glk_books_join(struct glk_books *books);
void glk_books_leave(struct glk_books *books, uint32_t client, int64_t now);

/* What it is guaranteed, as far as others leave it, and may have; and what it holds already, whatever there is. What
 * follows from that is done by glk_books_due(). */
void glk_books_rules(struct glk_books *books, uint32_t client, unsigned gpu,
	uint64_t least, uint64_t most);
void glk_books_holds(
	struct glk_books *books, uint32_t client, unsigned gpu, uint64_t bytes);

/* It wants `least` bytes, better `like`, until a time, which is answered by a number of the caller's. */
void glk_books_want(struct glk_books *books, uint32_t client, unsigned gpu,
	uint64_t least, uint64_t like, int64_t until, uint64_t want, int64_t now);
/* It gives bytes back: 0; -EINVAL, it does not hold so many. And it has answered what it was asked. */
int glk_books_give(struct glk_books *books, uint32_t client, unsigned gpu, uint64_t bytes,
	int64_t now);
void glk_books_told(struct glk_books *books, uint32_t client, unsigned gpu, int64_t now);

/* What is published takes bytes that no client holds, or leaves them. */
void glk_books_charge(
	struct glk_books *books, unsigned gpu, uint64_t more, uint64_t less, int64_t now);

/* Does what is due; when something will be, INT64_MAX: nothing. */
int64_t glk_books_due(struct glk_books *books, int64_t now);

struct glk_books_gpu {
	uint64_t total, free, held, published, kept; /* of `free` for guarantees */
	uint32_t clients, waiting;
	uint64_t asks, stalls, refusals; /* so far */
};

struct glk_books_lease {
	uint64_t held, least, most, asked, wanted;
};

struct glk_books_gpu glk_books_gpu_get(const struct glk_books *books, unsigned gpu);
struct glk_books_lease glk_books_lease_get(
	const struct glk_books *books, uint32_t client, unsigned gpu);
/* The client that holds most of a GPU after `before`, by bytes and then by number; 0: no other one. */
uint32_t glk_books_holder(const struct glk_books *books, unsigned gpu, uint32_t before);

#endif
