/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who holds what: see books.h. One thread; every sum is kept, and counted anew by the tests alone. */
#include "share/books.h"

#include "base/slab.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct lease {
	uint64_t held, least, most;
	uint64_t asked; /* bytes that it was asked for and has not answered */
	int64_t until;	/* when that is given up */
	uint64_t round; /* in which it was asked last */
	uint64_t wanted;
	bool stalls; /* it did not answer, and has said nothing since */
};

struct client {
	bool lives;
	struct lease lease[GLK_BOOKS_GPUS];
};

struct want {
	bool lives;
	uint32_t client, next; /* in the line; of a free one in the list of those */
	uint64_t least, like, number;
	int64_t until;
	bool guaranteed;
};

struct gpu {
	char name[GLK_BOOKS_NAME];
	uint64_t total, held, published;
	uint64_t unfilled; /* bytes that clients hold less than their guarantees */
	uint64_t asked;	   /* the sum of its leases */
	uint64_t round;
	int64_t again; /* when the next round begins */
	uint32_t first;
	uint32_t waiting;
	uint64_t asks, stalls, refusals;
};

struct glk_books {
	struct glk_books_deeds deeds;
	uint32_t last; /* client that there ever was */
	unsigned gpus;
	uint32_t free_want, last_want;
	struct gpu gpu[GLK_BOOKS_GPUS];
	struct client client[GLK_BOOKS_CLIENTS + 1];
	struct want want[GLK_BOOKS_WANTS + 1];
};

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int64_t least_of_times(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

struct glk_books *glk_books_new(const struct glk_books_deeds *deeds)
{
	struct glk_books *books = glk_region_new(sizeof(*books));

	if (books)
		books->deeds = *deeds;
	return books;
}

void glk_books_free(struct glk_books *books)
{
	if (books)
		glk_region_free(books, sizeof(*books));
}

static bool is_used(const struct glk_books *books, unsigned number)
{
	const struct gpu *gpu = &books->gpu[number];
	bool used = gpu->held || gpu->published;

	for (uint32_t c = 1; !used && c <= books->last; c++)
		used = books->client[c].lease[number].most;
	return used;
}

/* A place for one more; as many as there are: there is none. Of names that nobody uses any more the first goes. */
static unsigned place_for_gpu(struct glk_books *books)
{
	unsigned i = 0;

	if (books->gpus < GLK_BOOKS_GPUS)
		return books->gpus++;
	while (i < GLK_BOOKS_GPUS && is_used(books, i))
		i++;
	return i;
}

int glk_books_gpu(struct glk_books *books, const char *name, uint64_t total)
{
	unsigned i = 0;

	while (i < books->gpus && strcmp(books->gpu[i].name, name))
		i++;
	if (i == books->gpus) {
		i = place_for_gpu(books);
		if (i == GLK_BOOKS_GPUS)
			return -ENOSPC;
		books->gpu[i] = (struct gpu){.total = total};
		snprintf(books->gpu[i].name, sizeof(books->gpu[i].name), "%s", name);
	}
	if (!is_used(books, i))
		books->gpu[i].total = total;
	return (int)i;
}

const char *glk_books_gpu_name(const struct glk_books *books, unsigned gpu)
{
	return books->gpu[gpu].name;
}

unsigned glk_books_gpus(const struct glk_books *books)
{
	return books->gpus;
}

static struct lease *lease_of(struct glk_books *books, uint32_t client, unsigned gpu)
{
	return &books->client[client].lease[gpu];
}

static uint64_t free_of(const struct gpu *gpu)
{
	return less(less(gpu->total, gpu->held), gpu->published);
}

/* All changes of what is held and guaranteed. */
static void set_lease(struct glk_books *books, uint32_t client, unsigned number,
	uint64_t held, uint64_t least)
{
	struct lease *lease = lease_of(books, client, number);
	struct gpu *gpu = &books->gpu[number];

	gpu->held += held - lease->held;
	gpu->unfilled -= less(lease->least, lease->held);
	lease->held = held;
	lease->least = least;
	gpu->unfilled += less(lease->least, lease->held);
}

/* Bytes that a client can have now. */
static uint64_t room_of(struct glk_books *books, uint32_t client, unsigned number)
{
	const struct lease *lease = lease_of(books, client, number);
	const struct gpu *gpu = &books->gpu[number];
	uint64_t free = free_of(gpu), own = less(lease->least, lease->held);
	uint64_t room = least_of(free, less(free, gpu->unfilled) + own);

	return least_of(room, less(lease->most, lease->held));
}

/* ---- The line ---- */

/* Takes the want behind `link` out of the line. */
static void drop(struct glk_books *books, unsigned gpu, uint32_t *link)
{
	struct want *want = &books->want[*link];
	uint32_t id = *link;

	lease_of(books, want->client, gpu)->wanted -= want->least;
	*link = want->next;
	want->lives = false;
	want->next = books->free_want;
	books->free_want = id;
	books->gpu[gpu].waiting--;
}

static void answer(struct glk_books *books, uint32_t client, unsigned gpu, uint64_t want,
	int err, uint64_t bytes)
{
	books->gpu[gpu].refusals += err != 0;
	books->deeds.answer(books->deeds.of, client, gpu, want, err, bytes);
}

static void grant(struct glk_books *books, uint32_t client, unsigned gpu, uint64_t want,
	uint64_t bytes)
{
	struct lease *lease = lease_of(books, client, gpu);

	set_lease(books, client, gpu, lease->held + bytes, lease->least);
	answer(books, client, gpu, want, 0, bytes);
}

static void refuse_late(struct glk_books *books, unsigned gpu, int64_t now)
{
	uint32_t *link = &books->gpu[gpu].first;

	while (*link) {
		const struct want *want = &books->want[*link];
		uint64_t number = want->number;
		uint32_t client = want->client;

		if (want->until > now) {
			link = &books->want[*link].next;
			continue;
		}
		drop(books, gpu, link);
		answer(books, client, gpu, number, -ENOMEM, 0);
	}
}

/* Those who did not answer in time. */
static void pass_over(struct glk_books *books, unsigned gpu, int64_t now)
{
	for (uint32_t c = 1; books->gpu[gpu].asked && c <= books->last; c++) {
		struct lease *lease = lease_of(books, c, gpu);

		if (!lease->asked || lease->until > now)
			continue;
		books->gpu[gpu].asked -= lease->asked;
		books->gpu[gpu].stalls++;
		lease->asked = 0;
		lease->stalls = true;
	}
}

/* Who has most above its guarantee, of those who were not asked in this round; 0: nobody has any. */
static uint32_t richest(struct glk_books *books, unsigned gpu, uint32_t besides)
{
	uint64_t most = 0;
	uint32_t found = 0;

	for (uint32_t c = 1; c <= books->last; c++) {
		const struct lease *lease = lease_of(books, c, gpu);

		if (c == besides || lease->asked || lease->stalls ||
			lease->round == books->gpu[gpu].round ||
			less(lease->held, lease->least) <= most)
			continue;
		most = less(lease->held, lease->least);
		found = c;
	}
	return found;
}

static void ask_others(struct glk_books *books, unsigned number, int64_t now)
{
	struct gpu *gpu = &books->gpu[number];
	const struct want *want = &books->want[gpu->first];
	/* more may be held than there is, by those who were alone */
	uint64_t over = less(gpu->held + gpu->published, gpu->total), bytes;
	uint64_t lack = less(want->least + over, room_of(books, want->client, number));
	uint32_t client;

	if (gpu->again <= now) {
		gpu->round++;
		gpu->again = now + GLK_BOOKS_AGAIN;
	}
	while (gpu->asked < lack && (client = richest(books, number, want->client))) {
		struct lease *lease = lease_of(books, client, number);

		bytes = least_of(lack - gpu->asked, less(lease->held, lease->least));
		lease->asked = bytes;
		lease->until = least_of_times(want->until, now + GLK_BOOKS_PATIENCE);
		lease->round = gpu->round;
		gpu->asked += bytes;
		gpu->asks++;
		books->deeds.ask(books->deeds.of, client, number, bytes, lease->until);
	}
}

/* All that follows from a change. */
static void serve(struct glk_books *books, unsigned number, int64_t now)
{
	struct gpu *gpu = &books->gpu[number];
	uint32_t client;
	uint64_t room, bytes, want;

	while (gpu->first) {
		const struct want *first = &books->want[gpu->first];
		const struct lease *lease = lease_of(books, first->client, number);

		client = first->client;
		want = first->number;
		/* it has had so much meanwhile that it may not have this */
		if (first->least > less(lease->most, lease->held)) {
			drop(books, number, &gpu->first);
			answer(books, client, number, want, -ENOMEM, 0);
			continue;
		}
		room = room_of(books, client, number);
		if (room < first->least)
			break;
		/* who waits behind it is not made to wait for what is nice to have */
		bytes = first->next ? first->least : least_of(room, first->like);
		drop(books, number, &gpu->first);
		grant(books, client, number, want, bytes);
	}
	refuse_late(books, number, now);
	pass_over(books, number, now);
	if (gpu->first)
		ask_others(books, number, now);
}

void glk_books_want(struct glk_books *books, uint32_t client, unsigned number,
	uint64_t least, uint64_t like, int64_t until, uint64_t want, int64_t now)
{
	const struct lease *lease = lease_of(books, client, number);
	bool guaranteed = least <= less(lease->least, lease->held);
	struct gpu *gpu = &books->gpu[number];
	uint32_t id = books->free_want, *link = &gpu->first;

	like = like < least ? least : like;
	while (*link && (!guaranteed || books->want[*link].guaranteed))
		link = &books->want[*link].next;
	if (link == &gpu->first && room_of(books, client, number) >= least) {
		grant(books, client, number, want,
			gpu->first ? least
				   : least_of(room_of(books, client, number), like));
		return;
	}
	if (!id && books->last_want < GLK_BOOKS_WANTS)
		id = ++books->last_want;
	if (until <= now || !id || least > less(lease->most, lease->held) ||
		least > gpu->total) {
		answer(books, client, number, want, -ENOMEM, 0);
		return;
	}
	if (id == books->free_want)
		books->free_want = books->want[id].next;
	books->want[id] =
		(struct want){true, client, *link, least, like, want, until, guaranteed};
	*link = id;
	lease_of(books, client, number)->wanted += least;
	/* one who has come to be the first is asked for at once */
	if (!gpu->waiting++)
		gpu->again = now;
	serve(books, number, now);
}

int glk_books_give(struct glk_books *books, uint32_t client, unsigned gpu, uint64_t bytes,
	int64_t now)
{
	struct lease *lease = lease_of(books, client, gpu);

	if (bytes > lease->held)
		return -EINVAL;
	lease->stalls = false;
	set_lease(books, client, gpu, lease->held - bytes, lease->least);
	serve(books, gpu, now);
	return 0;
}

void glk_books_told(struct glk_books *books, uint32_t client, unsigned gpu, int64_t now)
{
	struct lease *lease = lease_of(books, client, gpu);

	books->gpu[gpu].asked -= lease->asked;
	lease->asked = 0;
	lease->stalls = false;
	serve(books, gpu, now);
}

/* ---- Clients ---- */

uint32_t glk_books_join(struct glk_books *books)
{
	uint32_t client = 1;

	while (client <= books->last && books->client[client].lives)
		client++;
	if (client > GLK_BOOKS_CLIENTS)
		return 0;
	if (client > books->last)
		books->last = client;
	memset(books->client[client].lease, 0, sizeof(books->client[client].lease));
	books->client[client].lives = true;
	return client;
}

void glk_books_leave(struct glk_books *books, uint32_t client, int64_t now)
{
	for (unsigned g = 0; g < books->gpus; g++) {
		uint32_t *link = &books->gpu[g].first;

		while (*link) {
			if (books->want[*link].client == client)
				drop(books, g, link);
			else
				link = &books->want[*link].next;
		}
		books->gpu[g].asked -= lease_of(books, client, g)->asked;
		set_lease(books, client, g, 0, 0);
	}
	books->client[client].lives = false;
	memset(books->client[client].lease, 0, sizeof(books->client[client].lease));
	for (unsigned g = 0; g < books->gpus; g++)
		serve(books, g, now);
}

void glk_books_rules(struct glk_books *books, uint32_t client, unsigned number,
	uint64_t least, uint64_t most)
{
	struct lease *lease = lease_of(books, client, number);
	const struct gpu *gpu = &books->gpu[number];
	uint64_t others = 0;

	for (uint32_t c = 1; c <= books->last; c++)
		others += c == client ? 0 : lease_of(books, c, number)->least;
	lease->most = most;
	least = least_of(least, least_of(most, less(gpu->total, others)));
	set_lease(books, client, number, lease->held, least);
}

void glk_books_holds(
	struct glk_books *books, uint32_t client, unsigned gpu, uint64_t bytes)
{
	set_lease(books, client, gpu, bytes, lease_of(books, client, gpu)->least);
}

void glk_books_charge(
	struct glk_books *books, unsigned gpu, uint64_t more, uint64_t fewer, int64_t now)
{
	books->gpu[gpu].published += more;
	books->gpu[gpu].published -= fewer;
	serve(books, gpu, now);
}

/* ---- Questions ---- */

int64_t glk_books_due(struct glk_books *books, int64_t now)
{
	int64_t next = INT64_MAX;

	for (unsigned g = 0; g < books->gpus; g++) {
		const struct gpu *gpu = &books->gpu[g];

		if (!gpu->first && !gpu->asked)
			continue;
		serve(books, g, now);
		for (uint32_t id = gpu->first; id; id = books->want[id].next)
			next = books->want[id].until < next ? books->want[id].until
							    : next;
		if (gpu->first && gpu->again < next)
			next = gpu->again;
		for (uint32_t c = 1; gpu->asked && c <= books->last; c++) {
			const struct lease *lease = lease_of(books, c, g);

			if (lease->asked && lease->until < next)
				next = lease->until;
		}
	}
	return next;
}

struct glk_books_gpu glk_books_gpu_get(const struct glk_books *books, unsigned number)
{
	const struct gpu *gpu = &books->gpu[number];
	struct glk_books_gpu of = {.total = gpu->total,
		.free = free_of(gpu),
		.held = gpu->held,
		.published = gpu->published,
		.kept = least_of(free_of(gpu), gpu->unfilled),
		.waiting = gpu->waiting,
		.asks = gpu->asks,
		.stalls = gpu->stalls,
		.refusals = gpu->refusals};

	for (uint32_t c = 1; c <= books->last; c++)
		of.clients +=
			books->client[c].lives && books->client[c].lease[number].most;
	return of;
}

struct glk_books_lease glk_books_lease_get(
	const struct glk_books *books, uint32_t client, unsigned gpu)
{
	const struct lease *lease = &books->client[client].lease[gpu];

	return (struct glk_books_lease){.held = lease->held,
		.least = lease->least,
		.most = lease->most,
		.asked = lease->asked,
		.wanted = lease->wanted};
}

uint32_t glk_books_holder(const struct glk_books *books, unsigned gpu, uint32_t before)
{
	uint64_t most = before ? books->client[before].lease[gpu].held : UINT64_MAX;
	uint32_t found = 0;

	for (uint32_t c = 1; c <= books->last; c++) {
		uint64_t held = books->client[c].lease[gpu].held;
		uint64_t best = found ? books->client[found].lease[gpu].held : 0;

		if (held <= best || held > most || (held == most && c <= before))
			continue;
		found = c;
	}
	return found;
}
