/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages that processes have in common, by content: who has which, whose bytes they are, when they go; and many clients at
 * random, whose pages are counted beside.
 */
#include "share/depot.h"

#include "seed.h"
#include "tap.h"

#include <errno.h>

#define TOTAL 1000000u
#define PAGE  100u
#define FDS   200000

static struct glk_books *books;
static struct glk_depot *depot;
static int closed[FDS], closes;

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

static void begin(uint32_t most, uint32_t of_user)
{
	books = glk_books_new(
		&(struct glk_books_deeds){.answer = on_answer, .ask = on_ask});
	depot = glk_depot_new(books, on_close, most, of_user);
	if (!depot || glk_books_gpu(books, "GPU-a", TOTAL) ||
		glk_books_gpu(books, "GPU-b", TOTAL) != 1)
		tap_bail("no depot");
	memset(closed, 0, sizeof(closed));
	closes = 0;
}

static void end(void)
{
	glk_depot_free(depot);
	glk_books_free(books);
}

static uint32_t come(void)
{
	uint32_t client = glk_books_join(books);

	glk_books_rules(books, client, 0, 0, TOTAL);
	return client;
}

static void go(uint32_t client)
{
	glk_depot_leave(depot, client, 0);
	glk_books_leave(books, client, 0);
}

/* Numbers of which many have the same first word. */
static struct glk_depot_page page(uint32_t number, int fd)
{
	return (struct glk_depot_page){.uid = 7,
		.number = {{number % 3, 0, 0, number}},
		.bytes = PAGE,
		.fd = fd};
}

static uint32_t put(uint32_t client, uint32_t number, int fd)
{
	struct glk_depot_page p = page(number, fd);

	return glk_depot_put(depot, client, &p);
}

static uint32_t get(uint32_t client, uint32_t number, int *ret_fd)
{
	struct glk_depot_page p = page(number, -1);

	return glk_depot_get(depot, client, &p, ret_fd);
}

static uint64_t published(void)
{
	return glk_books_gpu_get(books, 0).published;
}

static void test_life(void)
{
	struct glk_depot_page other = page(1, 9);
	uint32_t a, b, id, second;
	int fd = -1;

	begin(10, 10);
	a = come();
	b = come();
	is_int(get(b, 1, &fd), 0, "nothing is there");
	id = put(a, 1, 1);
	ok(id, "one has a page for others");
	is_int(put(b, 1, 2), 0, "of which there is one");
	is_int(get(a, 1, &fd), 0, "it does not get its own");
	is_int(get(b, 1, &fd), id, "another one does");
	is_int(fd, 1, "with its descriptor");
	is_int(get(b, 1, &fd), 0, "once");
	is_int(get(b, 4, &fd), 0, "a number beside it is another");
	other.uid = 8;
	is_int(glk_depot_get(depot, b, &other, &fd), 0, "so is another user's,");
	other.uid = 7;
	other.gpu = 1;
	is_int(glk_depot_get(depot, b, &other, &fd), 0, "another GPU's,");
	other.gpu = 0;
	other.bytes = 2 * PAGE;
	is_int(glk_depot_get(depot, b, &other, &fd), 0, "and one of another size");
	second = put(b, 4, 2);
	ok(second && second != id, "which is put beside it");
	is_int((int64_t)glk_depot_sum(depot, 0).bytes, 2 * PAGE, "two pages");
	is_int((int64_t)glk_depot_sum(depot, 0).saved, PAGE, "and one saved");
	is_int((int64_t)glk_depot_sum(depot, 1).bytes, 0, "on that GPU");
	is_int((int64_t)published(), 0, "their makers have them");
	is_int(glk_depot_end(depot, a, second, 0), -EINVAL, "nobody ends another's");
	is_int(glk_depot_end(depot, a, 0, 0), -EINVAL, "nor none");
	is_int(glk_depot_end(depot, a, 99, 0), -EINVAL, "nor one that never was");
	is_int(glk_depot_end(depot, a, id, 0), 0, "the first one leaves");
	is_int((int64_t)published(), PAGE, "what another has is nobody's bytes");
	is_int(glk_depot_end(depot, a, id, 0), -EINVAL, "once");
	is_int(get(a, 1, &fd), id, "it may have it again");
	go(b);
	is_int((int64_t)published(), PAGE, "and still nobody pays");
	is_int(closed[2] == 1 && closes == 1, 1, "what the other had alone has gone");
	go(a);
	is_int(closed[1] == 1 && closes == 2 && !published(), 1, "and then all");
	end();
}

static void test_most(void)
{
	struct glk_depot_page other = page(7, 7);
	uint32_t a;

	begin(5, 3);
	a = come();
	ok(put(a, 1, 1) && put(a, 2, 2) && put(a, 3, 3), "a user has three");
	is_int(put(a, 4, 4), 0, "and no more");
	other.uid = 8;
	ok(glk_depot_put(depot, a, &other), "another one has his");
	other.number.word[3]++;
	ok(glk_depot_put(depot, a, &other), "another one has his");
	other.number.word[3]++;
	is_int(glk_depot_put(depot, a, &other), 0, "until all places are taken");
	is_int(closes, 0, "what is refused is the caller's");
	glk_depot_end(depot, a, 4, 0);
	is_int(put(a, 5, 5), 0,
		"a place that another user leaves is not the first one's");
	glk_depot_end(depot, a, 1, 0);
	ok(put(a, 5, 5), "but one of his own is");
	is_int(put(a, 6, 6), 0, "once");
	go(a);
	is_int(closes, 6, "all go");
	end();
}

/* As many as there may be, whose numbers somebody has chosen to be alike. */
static void test_alike(void)
{
	uint32_t a, b, i = 0, got = 0;
	int fd;

	begin(GLK_DEPOT_PAGES + 1, GLK_DEPOT_PAGES + 1);
	a = come();
	b = come();
	while (i < GLK_DEPOT_PAGES && put(a, 3 * i, (int)i))
		i++;
	is_int(i, GLK_DEPOT_PAGES, "all places are taken");
	is_int(put(a, 3 * i, (int)i), 0, "and there is none more");
	for (uint32_t k = 0; k < i; k++)
		got += get(b, 3 * k, &fd) && fd == (int)k;
	is_int(got, i, "each is found");
	go(a);
	go(b);
	is_int(closes, i, "and goes");
	end();
}

#define CLIENTS 12
#define NUMBERS 40

static void test_random(void)
{
	uint64_t seed = seed_start();
	int rounds = tap_rounds(100000), fd = 0, wrong = 0, there = 0, got;
	int of[NUMBERS], payer[NUMBERS];
	uint32_t id[NUMBERS] = {0}, client[CLIENTS];
	bool has[CLIENTS][NUMBERS] = {{0}};

	begin(NUMBERS, NUMBERS);
	for (int k = 0; k < NUMBERS; k++)
		payer[k] = of[k] = -1;
	for (int i = 0; i < CLIENTS; i++)
		client[i] = come();
	for (int i = 0; i < rounds && !wrong; i++) {
		int c = (int)seed_below(&seed, CLIENTS);
		uint32_t k = (uint32_t)seed_below(&seed, NUMBERS);
		uint64_t owed = 0, saved = 0;
		uint32_t answer;

		switch (seed_below(&seed, 10)) {
		case 0:
			go(client[c]);
			client[c] = come();
			for (int j = 0; j < NUMBERS; j++) {
				has[c][j] = false;
				payer[j] = payer[j] == c ? -1 : payer[j];
			}
			break;
		case 1:
		case 2:
		case 3:
			wrong += glk_depot_end(depot, client[c], id[k], 0) !=
				(has[c][k] ? 0 : -EINVAL);
			has[c][k] = false;
			payer[k] = payer[k] == c ? -1 : payer[k];
			break;
		case 4:
		case 5:
			if (fd == FDS)
				break;
			answer = put(client[c], k, fd);
			wrong += !answer != (of[k] >= 0);
			if (!answer)
				break;
			id[k] = answer;
			of[k] = fd++;
			has[c][k] = true;
			payer[k] = c;
			there++;
			break;
		default:
			answer = get(client[c], k, &got);
			if (of[k] < 0 || has[c][k])
				wrong += answer != 0;
			else
				wrong += answer != id[k] || got != of[k];
			has[c][k] |= of[k] >= 0;
			break;
		}
		for (int j = 0; j < NUMBERS; j++) {
			uint64_t users = 0;

			for (int n = 0; n < CLIENTS; n++)
				users += has[n][j];
			if (of[j] >= 0 && !users) {
				wrong += closed[of[j]] != 1;
				of[j] = -1;
				id[j] = 0;
				there--;
			}
			owed += users && payer[j] < 0 ? PAGE : 0;
			saved += users > 1 ? (users - 1) * PAGE : 0;
		}
		wrong += published() != owed || closes != fd - there ||
			glk_depot_sum(depot, 0).bytes != (uint64_t)there * PAGE ||
			glk_depot_sum(depot, 0).saved != saved;
	}
	is_int(wrong, 0, "each is there as long as somebody has it, and counts once");
	end();
	is_int(closes, fd, "each descriptor is closed once");
}

int main(void)
{
	tap_plan_later();
	test_life();
	test_most();
	test_alike();
	test_random();
	return tap_done();
}
