/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is published: see shelf.h. */
#include "share/shelf.h"

#include "base/slab.h"

#include <errno.h>
#include <string.h>

struct place {
	bool lives;
	struct glk_shelf_item item;
};

struct glk_shelf {
	struct glk_books *books;
	void (*close)(int fd);
	uint32_t last, most;			 /* of a user */
	struct place place[GLK_SHELF_ITEMS + 1]; /* the first is none */
	/* that a client has one */
	uint32_t times[GLK_BOOKS_CLIENTS + 1][GLK_SHELF_ITEMS + 1];
};

struct glk_shelf *glk_shelf_new(
	struct glk_books *books, void (*close)(int fd), uint32_t most)
{
	struct glk_shelf *shelf = glk_region_new(sizeof(*shelf));

	if (!shelf)
		return NULL;
	shelf->books = books;
	shelf->close = close;
	shelf->most = most;
	return shelf;
}

void glk_shelf_free(struct glk_shelf *shelf)
{
	if (!shelf)
		return;
	for (uint32_t i = 1; i <= shelf->last; i++) {
		if (shelf->place[i].lives && !shelf->place[i].item.writer)
			shelf->close(shelf->place[i].item.fd);
	}
	glk_region_free(shelf, sizeof(*shelf));
}

static struct place *find(struct glk_shelf *shelf, const struct glk_shelf_item *wanted)
{
	for (uint32_t i = 1; i <= shelf->last; i++) {
		struct place *p = &shelf->place[i];

		if (p->lives && p->item.uid == wanted->uid &&
			p->item.gpu == wanted->gpu && !strcmp(p->item.key, wanted->key))
			return p;
	}
	return NULL;
}

/* A place for a name that is none yet; NULL: there are too many. */
static struct place *take(struct glk_shelf *shelf, const struct glk_shelf_item *item)
{
	uint32_t i, has = 0, place = 0;

	for (i = 1; i <= shelf->last; i++) {
		if (shelf->place[i].lives)
			has += shelf->place[i].item.uid == item->uid;
		else if (!place)
			place = i;
	}
	i = place ? place : i;
	if (i > GLK_SHELF_ITEMS || has >= shelf->most)
		return NULL;
	shelf->last = i > shelf->last ? i : shelf->last;
	shelf->place[i] = (struct place){.lives = true, .item = *item};
	shelf->place[i].item.users = 0;
	shelf->place[i].item.writer = shelf->place[i].item.payer = 0;
	return &shelf->place[i];
}

static uint32_t *times(struct glk_shelf *shelf, const struct place *p, uint32_t client)
{
	return &shelf->times[client][p - shelf->place];
}

static void add_user(struct glk_shelf *shelf, struct place *p, uint32_t client)
{
	p->item.users += !(*times(shelf, p, client))++;
}

static void charge(struct glk_shelf *shelf, const struct place *p, bool on, int64_t now)
{
	uint64_t bytes = p->item.page;

	glk_books_charge(shelf->books, p->item.gpu, on ? bytes : 0, on ? 0 : bytes, now);
}

int glk_shelf_put(struct glk_shelf *shelf, uint32_t client,
	const struct glk_shelf_item *item, bool pays, bool again, int64_t now)
{
	struct place *p = find(shelf, item);

	if (p && !p->item.writer) {
		if (!again || p->item.stamp != item->stamp ||
			p->item.page != item->page || p->item.length != item->length)
			return -EEXIST;
		add_user(shelf, p, client);
		if (pays && !p->item.payer) {
			p->item.payer = client;
			charge(shelf, p, false, now);
		}
		return 1;
	}
	if (p && p->item.writer != client)
		return -EEXIST;
	if (p)
		p->item = *item;
	else
		p = take(shelf, item);
	if (!p)
		return -ENOSPC;
	p->item.writer = p->item.users = 0;
	p->item.payer = pays ? client : 0;
	add_user(shelf, p, client);
	if (!pays)
		charge(shelf, p, true, now);
	return 0;
}

int glk_shelf_get(struct glk_shelf *shelf, uint32_t client,
	const struct glk_shelf_item *wanted, bool claim, struct glk_shelf_item *ret_item)
{
	struct place *p = find(shelf, wanted);

	if (!p && claim) {
		p = take(shelf, wanted);
		if (!p)
			return -ENOSPC;
		p->item.writer = client;
	}
	if (!p || p->item.writer)
		return !p || p->item.writer == client ? -ENOENT : -EAGAIN;
	if (wanted->stamp && wanted->stamp != p->item.stamp)
		return -EEXIST;
	add_user(shelf, p, client);
	*ret_item = p->item;
	return 0;
}

static void leave(struct glk_shelf *shelf, struct place *p, uint32_t client, int64_t now)
{
	if (p->item.writer == client) {
		p->lives = false;
		return;
	}
	if (p->item.writer || !*times(shelf, p, client))
		return;
	*times(shelf, p, client) = 0;
	p->item.users--;
	/* whoever maps it keeps it, and so does the descriptor here */
	if (p->item.payer == client && p->item.users)
		charge(shelf, p, true, now);
	if (p->item.payer == client)
		p->item.payer = p->item.users ? 0 : client;
	if (p->item.users)
		return;
	shelf->close(p->item.fd);
	p->lives = false;
	if (!p->item.payer)
		charge(shelf, p, false, now);
}

void glk_shelf_end(struct glk_shelf *shelf, uint32_t client,
	const struct glk_shelf_item *wanted, int64_t now)
{
	struct place *p = find(shelf, wanted);

	/* the publisher's memory is its own as long as it is there */
	if (!p || p->item.payer == client)
		return;
	if (*times(shelf, p, client) > 1)
		--*times(shelf, p, client);
	else
		leave(shelf, p, client, now);
}

void glk_shelf_leave(struct glk_shelf *shelf, uint32_t client, int64_t now)
{
	for (uint32_t i = 1; i <= shelf->last; i++) {
		if (shelf->place[i].lives)
			leave(shelf, &shelf->place[i], client, now);
	}
}

void glk_shelf_follow(struct glk_shelf *shelf, uint32_t former, uint32_t client)
{
	for (uint32_t i = 1; i <= shelf->last; i++) {
		if (shelf->place[i].lives && shelf->place[i].item.writer == former)
			shelf->place[i].item.writer = client;
	}
}

uint32_t glk_shelf_next(const struct glk_shelf *shelf, unsigned gpu, uint32_t before,
	struct glk_shelf_item *ret_item)
{
	for (uint32_t i = before + 1; i <= shelf->last; i++) {
		if (!shelf->place[i].lives || shelf->place[i].item.gpu != gpu)
			continue;
		*ret_item = shelf->place[i].item;
		return i;
	}
	return 0;
}
