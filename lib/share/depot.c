/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pages that processes have in common: see depot.h. */
#include "share/depot.h"

#include "base/slab.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define BUCKETS GLK_DEPOT_PAGES
#define WORDS	(GLK_DEPOT_PAGES / 64 + 1)
#define SAID	8 /* words by which contents are told */

struct place {
	struct glk_depot_page page;
	uint32_t next;	/* of its bucket, or of those that are free */
	uint32_t payer; /* the client whose bytes they are; 0: the depot's */
	uint32_t users; /* 0: it is free */
};

struct glk_depot {
	struct glk_books *books;
	void (*close)(int fd);
	uint32_t most, of_user;
	uint32_t last, free, count;
	uint32_t uid, of_uid; /* pages of the user who was counted last */
	struct glk_depot_sum sum[GLK_BOOKS_GPUS];
	uint64_t secret[SAID + 1];
	uint32_t bucket[BUCKETS];
	struct place place[GLK_DEPOT_PAGES + 1]; /* the first is none */
	/* that a client has one: a bit each */
	uint64_t has[GLK_BOOKS_CLIENTS + 1][WORDS];
};

struct glk_depot *glk_depot_new(
	struct glk_books *books, void (*close)(int fd), uint32_t most, uint32_t of_user)
{
	struct glk_depot *depot = glk_region_new(sizeof(*depot));

	if (!depot)
		return NULL;
	depot->books = books;
	depot->close = close;
	depot->most = most < GLK_DEPOT_PAGES ? most : GLK_DEPOT_PAGES;
	depot->of_user = of_user;
	if (getrandom(depot->secret, sizeof(depot->secret), 0) != sizeof(depot->secret)) {
		glk_region_free(depot, sizeof(*depot));
		return NULL;
	}
	return depot;
}

void glk_depot_free(struct glk_depot *depot)
{
	if (!depot)
		return;
	for (uint32_t i = 1; i <= depot->last; i++) {
		if (depot->place[i].users)
			depot->close(depot->place[i].page.fd);
	}
	glk_region_free(depot, sizeof(*depot));
}

/* Clients choose what they say, and cannot choose what lies in one bucket: a multilinear hash whose factors are secret. */
static uint32_t *bucket_of(struct glk_depot *depot, const struct glk_depot_page *page)
{
	const uint32_t *number = page->number.word;
	const uint32_t said[SAID] = {number[0], number[1], number[2], number[3],
		page->uid, page->gpu, (uint32_t)page->bytes,
		(uint32_t)(page->bytes >> 32)};
	uint64_t hash = depot->secret[SAID];

	for (int i = 0; i < SAID; i++)
		hash += depot->secret[i] * said[i];
	return &depot->bucket[(hash >> 32) % BUCKETS];
}

static bool is_same(const struct glk_depot_page *a, const struct glk_depot_page *b)
{
	return a->uid == b->uid && a->gpu == b->gpu && a->bytes == b->bytes &&
		!memcmp(&a->number, &b->number, sizeof(a->number));
}

static uint32_t find(struct glk_depot *depot, const struct glk_depot_page *wanted)
{
	uint32_t id = *bucket_of(depot, wanted);

	while (id && !is_same(&depot->place[id].page, wanted))
		id = depot->place[id].next;
	return id;
}

static uint64_t *word_of(struct glk_depot *depot, uint32_t client, uint32_t id)
{
	return &depot->has[client][id / 64];
}

static uint64_t bit_of(uint32_t id)
{
	return UINT64_C(1) << id % 64;
}

static bool has_many(struct glk_depot *depot, uint32_t uid)
{
	if (depot->count >= depot->most)
		return true;
	/* nobody has his part of all where there is less than that */
	if (depot->count < depot->of_user)
		return false;
	if (depot->uid != uid)
		depot->of_uid = 0;
	for (uint32_t i = 1; i <= depot->last && depot->uid != uid; i++)
		depot->of_uid += depot->place[i].users && depot->place[i].page.uid == uid;
	depot->uid = uid;
	return depot->of_uid >= depot->of_user;
}

uint32_t glk_depot_put(
	struct glk_depot *depot, uint32_t client, const struct glk_depot_page *page)
{
	struct place *p;
	uint32_t id;

	if (find(depot, page) || has_many(depot, page->uid))
		return 0;
	id = depot->free;
	if (id)
		depot->free = depot->place[id].next;
	else
		id = ++depot->last;
	p = &depot->place[id];
	*p = (struct place){.page = *page,
		.next = *bucket_of(depot, page),
		.payer = client,
		.users = 1};
	*bucket_of(depot, page) = id;
	*word_of(depot, client, id) |= bit_of(id);
	depot->count++;
	depot->of_uid += page->uid == depot->uid;
	depot->sum[page->gpu].bytes += page->bytes;
	return id;
}

uint32_t glk_depot_get(struct glk_depot *depot, uint32_t client,
	const struct glk_depot_page *wanted, int *ret_fd)
{
	uint32_t id = find(depot, wanted);

	if (!id || *word_of(depot, client, id) & bit_of(id))
		return 0;
	*word_of(depot, client, id) |= bit_of(id);
	depot->place[id].users++;
	depot->sum[wanted->gpu].saved += wanted->bytes;
	*ret_fd = depot->place[id].page.fd;
	return id;
}

static void charge(struct glk_depot *depot, const struct place *p, bool on, int64_t now)
{
	uint64_t bytes = p->page.bytes;

	glk_books_charge(depot->books, p->page.gpu, on ? bytes : 0, on ? 0 : bytes, now);
}

static void drop(struct glk_depot *depot, uint32_t id)
{
	struct place *p = &depot->place[id];
	uint32_t *link = bucket_of(depot, &p->page);

	while (*link != id)
		link = &depot->place[*link].next;
	*link = p->next;
	depot->close(p->page.fd);
	p->next = depot->free;
	depot->free = id;
	depot->count--;
	depot->of_uid -= p->page.uid == depot->uid;
	depot->sum[p->page.gpu].bytes -= p->page.bytes;
}

static void leave(struct glk_depot *depot, uint32_t client, uint32_t id, int64_t now)
{
	struct place *p = &depot->place[id];

	*word_of(depot, client, id) &= ~bit_of(id);
	p->users--;
	if (p->users)
		depot->sum[p->page.gpu].saved -= p->page.bytes;
	/* whoever maps it keeps it, and so does the descriptor here */
	if (p->payer == client && p->users)
		charge(depot, p, true, now);
	if (!p->users && !p->payer)
		charge(depot, p, false, now);
	if (p->payer == client)
		p->payer = 0;
	if (!p->users)
		drop(depot, id);
}

int glk_depot_end(struct glk_depot *depot, uint32_t client, uint32_t page, int64_t now)
{
	if (!page || page > depot->last ||
		!(*word_of(depot, client, page) & bit_of(page)))
		return -EINVAL;
	leave(depot, client, page, now);
	return 0;
}

void glk_depot_leave(struct glk_depot *depot, uint32_t client, int64_t now)
{
	for (uint32_t w = 0; w <= depot->last / 64; w++) {
		uint64_t *word = &depot->has[client][w];

		while (*word)
			leave(depot, client, w * 64 + (uint32_t)__builtin_ctzll(*word),
				now);
	}
}

struct glk_depot_sum glk_depot_sum(const struct glk_depot *depot, unsigned gpu)
{
	return depot->sum[gpu];
}
