/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The books of a broker, at times that the test says: who is given what and when, who is asked, who waits for whom; and
 * many clients at random, whose bytes are counted beside.
 */
#include "share/books.h"

#include "seed.h"
#include "tap.h"

#include <errno.h>

#define MS  INT64_C(1000000)
#define BIG 1000u

/* What followed from the last calls. */
static struct deed {
	bool ask;
	uint32_t client;
	uint64_t want, bytes;
	int err;
	int64_t until;
} deeds[64];
static unsigned count, seen;
static struct glk_books *books;

static void on_answer(
	void *of, uint32_t client, unsigned gpu, uint64_t want, int err, uint64_t bytes)
{
	deeds[count++ % 64] =
		(struct deed){.client = client, .want = want, .bytes = bytes, .err = err};
}

static void on_ask(void *of, uint32_t client, unsigned gpu, uint64_t bytes, int64_t until)
{
	deeds[count++ % 64] = (struct deed){
		.ask = true, .client = client, .bytes = bytes, .until = until};
}

static void open_books(uint64_t total)
{
	books = glk_books_new(
		&(struct glk_books_deeds){.answer = on_answer, .ask = on_ask});
	if (!books || glk_books_gpu(books, "GPU-a", total))
		tap_bail("no books");
	count = seen = 0;
}

static uint32_t come(uint64_t least, uint64_t most)
{
	uint32_t client = glk_books_join(books);

	glk_books_rules(books, client, 0, least, most);
	return client;
}

static void want(
	uint32_t client, uint64_t least, uint64_t like, int64_t until, int64_t now)
{
	static uint64_t number;

	glk_books_want(books, client, 0, least, like, until, ++number, now);
}

static void is_answer(uint32_t client, int err, uint64_t bytes, const char *what)
{
	const struct deed *d = &deeds[seen++ % 64];

	ok(seen <= count && !d->ask && d->client == client && d->err == err &&
			d->bytes == bytes,
		"%s (%s of client %u: %d, %llu bytes)", what, d->ask ? "ask" : "answer",
		d->client, d->err, (unsigned long long)d->bytes);
}

static void is_ask(uint32_t client, uint64_t bytes, int64_t until, const char *what)
{
	const struct deed *d = &deeds[seen++ % 64];

	ok(seen <= count && d->ask && d->client == client && d->bytes == bytes &&
			d->until == until,
		"%s (%s of client %u: %llu bytes)", what, d->ask ? "ask" : "answer",
		d->client, (unsigned long long)d->bytes);
}

static void is_quiet(const char *what)
{
	is_int(count, seen, what);
}

static uint64_t held(uint32_t client)
{
	return glk_books_lease_get(books, client, 0).held;
}

static void test_leave(void)
{
	uint32_t a, b;

	open_books(1000);
	a = come(0, BIG);
	b = come(0, BIG);
	want(a, 100, 300, 0, 0);
	is_answer(a, 0, 300, "as much as it would like");
	want(b, 100, 900, 0, 0);
	is_answer(b, 0, 700, "or as there is");
	want(a, 1, 1, 0, 0);
	is_answer(a, -ENOMEM, 0, "who does not wait is refused when nothing is left");
	is_quiet("and nobody is asked for it");
	is_int(glk_books_give(books, b, 0, 701, 0), -EINVAL,
		"nobody gives what he has not");
	is_int(glk_books_give(books, b, 0, 200, 0), 0, "some of it goes back");
	is_int((int64_t)held(b), 500, "which is no longer held");
	glk_books_leave(books, a, 0);
	is_int((int64_t)glk_books_gpu_get(books, 0).free, 500, "who goes leaves all");
	a = come(0, 400);
	want(a, 401, 401, 99 * MS, 0);
	is_answer(a, -ENOMEM, 0, "more than its most is refused at once");
	want(a, 10, 500, 99 * MS, 0);
	is_answer(a, 0, 400, "and more than it is not given");
	is_int(glk_books_due(books, 0) == INT64_MAX, 1, "nothing is due");
	glk_books_free(books);
}

static void test_line(void)
{
	uint32_t a, b, c;

	open_books(1000);
	a = come(0, BIG);
	b = come(0, BIG);
	c = come(0, BIG);
	want(a, 900, 900, 0, 0);
	is_answer(a, 0, 900, "one has most");
	want(b, 500, 500, 50 * MS, 0);
	is_ask(a, 400, 50 * MS, "it is asked for what another one lacks");
	want(c, 50, 50, 60 * MS, 1 * MS);
	is_quiet("nobody overtakes the first in line");
	glk_books_give(books, a, 0, 300, 2 * MS);
	is_quiet("too little is not given to anybody");
	glk_books_give(books, a, 0, 120, 3 * MS);
	is_answer(b, 0, 500, "then the first is served");
	is_quiet("and the next waits");
	is_int(glk_books_due(books, 59 * MS) <= 60 * MS, 1, "until its date");
	seen = count;
	glk_books_due(books, 60 * MS);
	is_answer(c, -ENOMEM, 0, "when it is refused");
	glk_books_told(books, a, 0, 61 * MS);
	is_int(glk_books_due(books, 61 * MS) == INT64_MAX, 1, "nothing is due");
	glk_books_free(books);
}

/* One whose first want is met may have no more of what its second one waits for. */
static void test_most(void)
{
	uint32_t a, b, c;

	open_books(1000);
	a = come(0, 500);
	b = come(0, BIG);
	c = come(0, BIG);
	want(b, 900, 900, 0, 0);
	want(a, 300, 300, 900 * MS, 0);
	want(a, 300, 300, 900 * MS, 0);
	want(c, 100, 100, 900 * MS, 0);
	seen = count;
	glk_books_give(books, b, 0, 700, 1 * MS);
	is_answer(a, 0, 300, "a client has what it waits for");
	is_answer(a, -ENOMEM, 0, "and is refused what would be more than its most");
	is_answer(c, 0, 100, "for which nobody behind it waits");
	glk_books_free(books);
}

static void test_asks(void)
{
	uint32_t a, b, c, d;

	open_books(1000);
	a = come(300, BIG);
	b = come(0, BIG);
	c = come(0, BIG);
	d = come(0, BIG);
	want(a, 400, 400, 0, 0);
	want(b, 350, 350, 0, 0);
	want(c, 250, 250, 0, 0);
	seen = count;
	want(d, 400, 400, 2000 * MS, 0);
	is_ask(b, 350, GLK_BOOKS_PATIENCE,
		"who has most above its guarantee is asked first");
	is_ask(c, 50, GLK_BOOKS_PATIENCE, "then the next, for the rest");
	glk_books_give(books, b, 0, 100, 1 * MS);
	is_quiet("while one is asked nobody else is for its part");
	glk_books_told(books, b, 0, 1 * MS);
	is_ask(a, 100, 1 * MS + GLK_BOOKS_PATIENCE,
		"who gave too little is passed over, and nobody asked below its guarantee");
	is_quiet("nor twice");
	glk_books_told(books, a, 0, 2 * MS);
	is_quiet("all have been asked");
	is_int(glk_books_due(books, 3 * MS), GLK_BOOKS_AGAIN,
		"they are again, after a while");
	glk_books_due(books, GLK_BOOKS_AGAIN);
	is_ask(b, 250, GLK_BOOKS_AGAIN + GLK_BOOKS_PATIENCE, "the richest first");
	seen = count;
	glk_books_due(books, GLK_BOOKS_PATIENCE);
	is_int((int64_t)glk_books_gpu_get(books, 0).stalls, 1,
		"who does not answer is counted");
	seen = count;
	glk_books_due(books, 500 * MS);
	for (; seen < count; seen++)
		ok(deeds[seen % 64].client != c, "and not asked any more");
	glk_books_give(books, c, 0, 250, 501 * MS);
	glk_books_leave(books, b, 502 * MS);
	seen = count - 1;
	is_answer(d, 0, 400, "one that ends is as good as one that gives");
	glk_books_free(books);
}

static void test_guarantees(void)
{
	uint32_t a, b, c;

	open_books(1000);
	a = come(0, BIG);
	b = come(300, BIG);
	want(a, 701, 701, 0, 0);
	is_answer(a, -ENOMEM, 0, "what is guaranteed is not given to others");
	want(a, 100, 900, 0, 0);
	is_answer(a, 0, 700, "all else is");
	want(b, 300, 300, 0, 0);
	is_answer(b, 0, 300, "and it is there at once");
	c = come(800, BIG);
	is_int((int64_t)glk_books_lease_get(books, c, 0).least, 700,
		"no more is guaranteed than there is");
	want(b, 100, 100, 90 * MS, 0);
	is_ask(a, 100, 90 * MS, "one waits for more than its guarantee");
	want(c, 50, 50, 90 * MS, 1 * MS);
	glk_books_give(books, a, 0, 50, 2 * MS);
	is_answer(c, 0, 50, "one that waits for its guarantee is before it");
	glk_books_free(books);
}

static void test_announced(void)
{
	uint32_t a, b, last;

	open_books(1000);
	a = come(0, BIG * 2);
	glk_books_holds(books, a, 0, 1200);
	is_int((int64_t)held(a), 1200, "what a client says to hold is held");
	is_int((int64_t)glk_books_gpu_get(books, 0).free, 0, "nothing is free then");
	b = come(0, BIG);
	want(b, 10, 10, 90 * MS, 0);
	is_ask(a, 210, 90 * MS, "it is asked for what is too much, too");
	glk_books_give(books, a, 0, 210, 1 * MS);
	is_answer(b, 0, 10, "so that there is some");
	want(b, 100, 100, 90 * MS, 1 * MS);
	seen = count;
	is_int(glk_books_gpu_get(books, 0).waiting, 1, "one waits");
	glk_books_leave(books, b, 3 * MS);
	is_int(glk_books_gpu_get(books, 0).waiting, 0, "who goes waits no more");
	is_int(glk_books_gpu(books, "GPU-a", 5), 0, "a GPU keeps its number");
	is_int((int64_t)glk_books_gpu_get(books, 0).total, 1000,
		"and its bytes, while one has it");
	is_int(glk_books_gpu(books, "GPU-b", 5), 1, "another has another");
	glk_books_gpu(books, "GPU-b", 7);
	is_int((int64_t)glk_books_gpu_get(books, 1).total, 7,
		"what was said of one that nobody has is not kept");
	for (int i = 2; i < GLK_BOOKS_GPUS; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%d", i);
		glk_books_gpu(books, name, 5);
	}
	is_int(glk_books_gpu(books, "one more", 5), 1,
		"a name that nobody uses makes way for another");
	is_int((int64_t)glk_books_gpu_get(books, 1).total, 5, "with its own bytes");
	is_int(glk_books_gpu(books, "GPU-a", 5), 0, "one that is used does not");
	last = glk_books_join(books);
	for (unsigned i = 0; i < GLK_BOOKS_GPUS; i++)
		glk_books_rules(books, last, i, 0, 1);
	is_int(glk_books_gpu(books, "two more", 5), -ENOSPC,
		"there is an end to those in use");
	glk_books_leave(books, last, 0);
	is_int(glk_books_gpu(books, "two more", 5), 1, "until their clients go");
	for (uint32_t c = 1; c < GLK_BOOKS_CLIENTS; c++)
		glk_books_join(books);
	is_int(glk_books_join(books), 0, "and to clients");
	glk_books_free(books);
}

/* ---- At random ---- */

#define CLIENTS 40
#define TOTAL	1000000u

static uint64_t mine[GLK_BOOKS_CLIENTS + 1]; /* by what was answered */
static bool waits[GLK_BOOKS_CLIENTS + 1];
static unsigned wrong;

static void count_answer(
	void *of, uint32_t client, unsigned gpu, uint64_t number, int err, uint64_t bytes)
{
	mine[client] += bytes;
	wrong += !waits[client] || (err && bytes) || (!err && !bytes);
	waits[client] = false;
}

static void count_ask(
	void *of, uint32_t client, unsigned gpu, uint64_t bytes, int64_t until)
{
	wrong += bytes > mine[client];
}

static bool adds_up(const uint32_t *client)
{
	struct glk_books_gpu gpu = glk_books_gpu_get(books, 0);
	uint64_t sum = 0, kept = 0;
	unsigned waiting = 0;

	for (int i = 0; i < CLIENTS; i++) {
		struct glk_books_lease lease = glk_books_lease_get(books, client[i], 0);

		sum += lease.held;
		kept += lease.held < lease.least ? lease.least - lease.held : 0;
		waiting += waits[client[i]];
		if (lease.held != mine[client[i]] || lease.held > lease.most)
			return false;
	}
	return sum == gpu.held && sum <= TOTAL && gpu.free == TOTAL - sum &&
		kept <= gpu.free && waiting == gpu.waiting;
}

static void test_random(void)
{
	uint64_t seed = seed_start(), number = 0;
	int rounds = tap_rounds(200000), bad = 0;
	uint32_t client[CLIENTS];
	int64_t now = 0;

	books = glk_books_new(
		&(struct glk_books_deeds){.answer = count_answer, .ask = count_ask});
	glk_books_gpu(books, "GPU-a", TOTAL);
	for (int i = 0; i < CLIENTS; i++)
		client[i] = come(0, TOTAL);
	for (int i = 0; i < rounds && !wrong && !bad; i++) {
		uint32_t *c = &client[seed_below(&seed, CLIENTS)];
		uint64_t bytes = 1 + seed_below(&seed, TOTAL / 8);

		now += (int64_t)seed_below(&seed, (uint64_t)(5 * MS));
		switch (seed_below(&seed, 8)) {
		case 0:
		case 1:
		case 2:
			if (waits[*c])
				break;
			waits[*c] = true;
			glk_books_want(books, *c, 0, bytes, 2 * bytes,
				seed_below(&seed, 2) ? now + 100 * MS : now, ++number,
				now);
			break;
		case 3:
		case 4:
			bytes = bytes < mine[*c] ? bytes : mine[*c];
			mine[*c] -= bytes;
			wrong += glk_books_give(books, *c, 0, bytes, now) != 0;
			break;
		case 5:
			glk_books_told(books, *c, 0, now);
			break;
		case 6:
			glk_books_due(books, now);
			break;
		case 7:
			mine[*c] = 0;
			waits[*c] = false;
			glk_books_leave(books, *c, now);
			/* nobody is guaranteed what others have */
			*c = come(seed_below(&seed, 2)
					? 0
					: glk_books_gpu_get(books, 0).free / 4 -
						glk_books_gpu_get(books, 0).kept / 4,
				TOTAL / 2 + seed_below(&seed, TOTAL / 2));
			break;
		}
		bad += !adds_up(client);
	}
	is_int(wrong, 0, "no answer without a want, and no ask for more than there is");
	is_int(bad, 0, "each byte is somewhere, once");
	for (int i = 0; i < CLIENTS; i++)
		glk_books_leave(books, client[i], now);
	is_int((int64_t)glk_books_gpu_get(books, 0).held, 0,
		"nothing is held in the end");
	glk_books_free(books);
}

int main(void)
{
	tap_plan_later();
	test_leave();
	test_line();
	test_most();
	test_asks();
	test_guarantees();
	test_announced();
	test_random();
	return tap_done();
}
