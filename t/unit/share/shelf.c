/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is published by name: who may put and have it, whose bytes it is, when it goes; and many clients at random, whose
 * contents are counted beside.
 */
#include "share/shelf.h"

#include "seed.h"
#include "tap.h"

#include <errno.h>

#define TOTAL 100000u
#define PAGE  100u

static struct glk_books *books;
static struct glk_shelf *shelf;
static int closed[4096], closes;

static void on_answer(
	void *of, uint32_t client, unsigned gpu, uint64_t want, int err, uint64_t bytes)
{
}

static void on_ask(void *of, uint32_t client, unsigned gpu, uint64_t bytes, int64_t until)
{
}

static void on_close(int fd)
{
	closed[fd]++;
	closes++;
}

static void begin(void)
{
	books = glk_books_new(
		&(struct glk_books_deeds){.answer = on_answer, .ask = on_ask});
	shelf = glk_shelf_new(books, on_close, GLK_SHELF_ITEMS);
	if (!shelf || glk_books_gpu(books, "GPU-a", TOTAL) ||
		glk_books_gpu(books, "GPU-b", TOTAL) != 1)
		tap_bail("no shelf");
	memset(closed, 0, sizeof(closed));
	closes = 0;
}

static void end(void)
{
	glk_shelf_free(shelf);
	glk_books_free(books);
}

static uint32_t come(uint64_t holds)
{
	uint32_t client = glk_books_join(books);

	glk_books_rules(books, client, 0, 0, TOTAL);
	glk_books_holds(books, client, 0, holds);
	return client;
}

static void go(uint32_t client)
{
	glk_shelf_leave(shelf, client, 0);
	glk_books_leave(books, client, 0);
}

static struct glk_shelf_item item(const char *key, uint64_t stamp, int fd)
{
	struct glk_shelf_item i = {
		.uid = 7, .stamp = stamp, .page = PAGE, .length = PAGE, .fd = fd};

	snprintf(i.key, sizeof(i.key), "%s", key);
	return i;
}

static int put(
	uint32_t client, const char *key, uint64_t stamp, int fd, bool pays, bool again)
{
	struct glk_shelf_item i = item(key, stamp, fd);

	return glk_shelf_put(shelf, client, &i, pays, again, 0);
}

static int get(uint32_t client, const char *key, uint64_t stamp, bool claim)
{
	struct glk_shelf_item i = item(key, stamp, -1), got;

	return glk_shelf_get(shelf, client, &i, claim, &got);
}

static void drop(uint32_t client, const char *key)
{
	struct glk_shelf_item i = item(key, 0, -1);

	glk_shelf_end(shelf, client, &i, 0);
}

static uint64_t published(void)
{
	return glk_books_gpu_get(books, 0).published;
}

/* A client whose connection was lost comes again, as another. */
static void test_follow(void)
{
	uint32_t a, b, again;

	begin();
	a = come(PAGE);
	b = come(0);
	is_int(get(a, "k", 0, true), -ENOENT, "one claims a name");
	again = come(PAGE);
	glk_shelf_follow(shelf, a, again);
	go(a);
	is_int(get(b, "k", 0, true), -EAGAIN, "it is claimed after it came again");
	is_int(put(b, "k", 0, 1, true, false), -EEXIST, "nobody else puts it");
	is_int(put(again, "k", 0, 1, true, false), 0, "it does");
	is_int(get(b, "k", 0, true), 0, "for the others");
	go(again);
	go(b);
	end();
}

static void test_life(void)
{
	struct glk_shelf_item other, got;
	uint32_t a, b, c;

	begin();
	a = come(PAGE);
	b = come(0);
	c = come(0);
	is_int(get(b, "k", 0, false), -ENOENT, "nothing is there");
	is_int(put(a, "k", 5, 1, true, false), 0, "a client publishes");
	is_int(get(b, "k", 6, false), -EEXIST, "another stamp is another");
	is_int(get(b, "k", 5, false), 0, "its own is had");
	is_int(get(c, "k", 0, true), 0, "and any");
	is_int(get(c, "k", 0, false), 0, "and once more");
	is_int(put(b, "k", 5, 2, true, false), -EEXIST, "nobody publishes it twice");
	is_int((int64_t)published(), 0, "its bytes are the publisher's");
	other = item("k", 5, -1);
	other.uid = 8;
	is_int(glk_shelf_get(shelf, b, &other, false, &got), -ENOENT,
		"of another user it is none");
	other.uid = 7;
	other.gpu = 1;
	is_int(glk_shelf_get(shelf, b, &other, false, &got), -ENOENT,
		"nor on another GPU");
	is_int(glk_shelf_next(shelf, 0, 0, &got) && got.users == 3, 1, "three have it");
	drop(a, "k");
	is_int(glk_shelf_next(shelf, 0, 0, &got) && got.users == 3, 1,
		"the publisher's memory is there as long as it is");
	go(a);
	is_int((int64_t)published(), PAGE, "then its bytes are the shelf's");
	drop(b, "k");
	drop(b, "k");
	is_int(closes, 0, "one has it");
	drop(c, "k");
	is_int(closes, 0, "twice, and then once");
	is_int(get(c, "k", 0, false), 0, "and twice again");
	go(c);
	is_int(closed[1], 1, "with the last one it goes");
	is_int((int64_t)published(), 0, "and its bytes");
	is_int(put(b, "k", 9, 3, true, false), 0, "the name is free again");
	go(b);
	is_int((int64_t)published() + (closed[3] - 1), 0,
		"one that only the publisher has goes with it");
	end();
}

static void test_claims(void)
{
	uint32_t a, b;

	begin();
	a = come(PAGE);
	b = come(PAGE);
	is_int(get(a, "k", 0, true), -ENOENT, "one is to publish it");
	is_int(get(a, "k", 0, true), -ENOENT, "and is told so again");
	is_int(get(b, "k", 0, true), -EAGAIN, "another one comes again");
	is_int(get(b, "k", 0, false), -EAGAIN, "whether it would or not");
	is_int(put(b, "k", 0, 1, true, false), -EEXIST, "and does not publish instead");
	drop(b, "k");
	is_int(get(b, "k", 0, true), -EAGAIN,
		"what it did not claim it does not give up");
	drop(a, "k");
	is_int(get(b, "k", 0, true), -ENOENT, "given up, it is the next one's");
	go(b);
	is_int(get(a, "k", 0, true), -ENOENT, "as when that ends");
	is_int(put(a, "k", 0, 2, true, false), 0, "who has claimed publishes");
	is_int(closes, 0, "a claim has no descriptor");
	end();
	is_int(closed[2], 1, "what is there goes with the shelf");
}

static void test_again(void)
{
	uint32_t a, b, c;

	begin();
	a = come(PAGE);
	b = come(0);
	c = come(0);
	is_int(put(b, "k", 5, 1, false, true), 0,
		"one that had it brings it to a new broker");
	is_int((int64_t)published(), PAGE, "its bytes are the shelf's");
	is_int(put(c, "k", 5, 2, false, true), 1, "another one had it too");
	is_int(put(a, "k", 5, 3, true, true), 1, "and its publisher");
	is_int((int64_t)published(), 0, "whose bytes they are");
	is_int(put(c, "k", 6, 4, false, true), -EEXIST, "other contents are others");
	go(a);
	go(b);
	go(c);
	is_int(closed[1] == 1 && closes == 1 && !published(), 1, "all is gone, once");
	for (int i = 0; i < GLK_SHELF_ITEMS; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%d", i);
		if (get(a, key, 0, true) != -ENOENT)
			tap_bail("no place");
	}
	is_int(get(a, "one more", 0, true), -ENOSPC, "there is an end to names");
	is_int(put(a, "one more", 0, 5, true, false), -ENOSPC, "for who publishes too");
	end();
}

/* One user leaves room for others. */
static void test_users(void)
{
	struct glk_shelf_item item = {.uid = 1, .page = PAGE, .length = PAGE};
	int err = 0;
	uint32_t a;

	begin();
	glk_shelf_free(shelf);
	shelf = glk_shelf_new(books, on_close, 3);
	a = come(0);
	for (int i = 0; i < 3; i++) {
		item.key[0] = (char)('a' + i);
		err |= glk_shelf_put(shelf, a, &item, true, false, 0);
	}
	item.key[0] = 'd';
	is_int(err, 0, "a user has as many names as he may");
	is_int(glk_shelf_put(shelf, a, &item, true, false, 0), -ENOSPC, "and no more");
	item.uid = 2;
	is_int(glk_shelf_put(shelf, a, &item, true, false, 0), 0, "another has his own");
	end();
}

/* ---- At random ---- */

#define CLIENTS 12
#define KEYS	6

static void test_random(void)
{
	uint64_t seed = seed_start();
	int rounds = tap_rounds(100000), fd = 0, wrong = 0, taken = 0;
	int has[CLIENTS][KEYS] = {{0}};
	int payer[KEYS], of[KEYS];
	uint32_t client[CLIENTS];

	begin();
	for (int k = 0; k < KEYS; k++)
		payer[k] = of[k] = -1;
	for (int i = 0; i < CLIENTS; i++)
		client[i] = come(0);
	for (int i = 0; i < rounds && !wrong; i++) {
		int c = (int)seed_below(&seed, CLIENTS), k = (int)seed_below(&seed, KEYS);
		char key[8];
		uint64_t owed = 0;
		int err, there = of[k] >= 0;

		snprintf(key, sizeof(key), "%d", k);
		switch (seed_below(&seed, 5)) {
		case 0:
			if (fd == 4095)
				break;
			err = put(client[c], key, 0, fd, true, false);
			wrong += err != (there ? -EEXIST : 0);
			if (err)
				break;
			has[c][k] = 1;
			payer[k] = c;
			of[k] = fd++;
			taken++;
			break;
		case 1:
		case 2:
			err = get(client[c], key, 0, false);
			wrong += err != (there ? 0 : -ENOENT);
			has[c][k] += !err;
			break;
		case 3:
			drop(client[c], key);
			has[c][k] -= has[c][k] && payer[k] != c;
			break;
		case 4:
			go(client[c]);
			client[c] = come(0);
			for (int j = 0; j < KEYS; j++) {
				has[c][j] = 0;
				payer[j] = payer[j] == c ? -1 : payer[j];
			}
			break;
		}
		for (int j = 0; j < KEYS; j++) {
			bool any = false;

			for (int n = 0; n < CLIENTS; n++)
				any |= has[n][j] > 0;
			if (of[j] >= 0 && !any) {
				wrong += closed[of[j]] != 1;
				of[j] = -1;
				taken--;
			}
			owed += of[j] >= 0 && payer[j] < 0 ? PAGE : 0;
		}
		wrong += published() != owed || closes != fd - taken;
	}
	is_int(wrong, 0, "each is there as long as somebody has it, and counts once");
	end();
	is_int(closes, fd, "each descriptor is closed once");
}

int main(void)
{
	tap_plan_later();
	test_life();
	test_follow();
	test_claims();
	test_again();
	test_users();
	test_random();
	return tap_done();
}
