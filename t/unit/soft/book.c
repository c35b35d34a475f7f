/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The book against a plain array, with random reservations and mappings. */
#include "soft/book.h"
#include "tap.h"

#include <errno.h>
#include <glake/error.h>

#define GRANULES 512

static uint64_t seed = 42;

static uint32_t dice(uint32_t sides)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(seed >> 33) % sides;
}

/* What the array says of each granule of the range under test. */
static struct {
	uint32_t span;	/* 0: not reserved */
	uint32_t first; /* of its mapping, + 1; 0: not mapped */
	uint32_t page;
} model[GRANULES];

/* A range that crosses from one leaf of the table to the next. */
static const uint64_t base = ((uint64_t)1 << 40) - GRANULES / 2 * GLK_GRANULE;

static uint64_t at(uint32_t granule)
{
	return base + granule * GLK_GRANULE;
}

static bool agrees(const struct glk_book *book)
{
	for (uint32_t i = 0; i < GRANULES; i++) {
		const struct glk_mapping *mapping = glk_book_find(book, at(i) + 4095);
		const struct glk_span *span = glk_book_span(book, at(i), GLK_GRANULE);

		if (!!span != !!model[i].span || !!mapping != !!model[i].first)
			return false;
		if (mapping &&
			(mapping->addr != at(model[i].first - 1) ||
				mapping->page != model[i].page))
			return false;
	}
	return true;
}

static uint32_t run(uint32_t from, uint32_t most, bool (*wanted)(uint32_t, uint32_t))
{
	uint32_t n = 0;

	while (from + n < GRANULES && n < most && wanted(from, from + n))
		n++;
	return n;
}

static bool unreserved(uint32_t from, uint32_t i)
{
	return !model[i].span;
}

static bool mappable(uint32_t from, uint32_t i)
{
	return model[i].span && model[i].span == model[from].span && !model[i].first;
}

static void reserve(struct glk_book *book, uint32_t number)
{
	uint32_t from = dice(GRANULES), n = run(from, 1 + dice(128), unreserved);

	if (!n)
		return;
	glk_book_span_add(book, at(from), n * GLK_GRANULE);
	for (uint32_t i = from; i < from + n; i++)
		model[i].span = number;
}

static void map(struct glk_book *book)
{
	uint32_t from = dice(GRANULES), n = run(from, 1 + dice(5), mappable);
	uint32_t page = 1 + dice(1000);

	if (!n)
		return;
	glk_book_add(book, at(from), n * GLK_GRANULE, page);
	for (uint32_t i = from; i < from + n; i++) {
		model[i].first = from + 1;
		model[i].page = page;
	}
}

static void drop(struct glk_book *book)
{
	uint32_t i = dice(GRANULES), first = model[i].first;
	struct glk_span *span = glk_book_span(book, at(i), 1);

	if (first) {
		glk_book_remove(book, glk_book_find(book, at(i)));
		for (i = first - 1; i < GRANULES && model[i].first == first; i++)
			model[i].first = 0;
	} else if (span && !span->maps && !dice(10)) {
		uint32_t number = model[i].span;

		glk_book_span_remove(book, span);
		for (i = 0; i < GRANULES; i++)
			if (model[i].span == number)
				model[i].span = 0;
	}
}

static void random_work(void)
{
	struct glk_book book;
	bool right = true;

	is_int(glk_book_init(&book, 1000), 0, "a book");
	for (uint32_t step = 1; step <= 20000 && right; step++) {
		uint32_t what = dice(20);

		if (!what)
			reserve(&book, step);
		else if (what < 11)
			map(&book);
		else
			drop(&book);
		if (!(step % 50))
			right = agrees(&book);
	}
	ok(right, "20000 random steps agree with an array");
	glk_book_fini(&book);
}

static void runs(void)
{
	struct glk_book book;
	uint64_t broken = 0;

	glk_book_init(&book, 4);
	glk_book_span_add(&book, at(0), 64 * GLK_GRANULE);
	glk_book_add(&book, at(0), 4 * GLK_GRANULE, 1);
	glk_book_add(&book, at(4), 1 * GLK_GRANULE, 2);
	glk_book_add(&book, at(6), 2 * GLK_GRANULE, 3);
	ok(glk_book_is_run(&book, at(0), 5 * GLK_GRANULE, &broken), "two neighbours");
	ok(glk_book_is_run(&book, at(6), 2 * GLK_GRANULE, &broken), "one alone");
	ok(!glk_book_is_run(&book, at(0), 8 * GLK_GRANULE, &broken), "a gap");
	is_int((int64_t)broken, (int64_t)at(5), "is found");
	ok(!glk_book_is_run(&book, at(0), 3 * GLK_GRANULE, &broken), "a cut end");
	is_int((int64_t)broken, (int64_t)at(0), "is found");
	ok(!glk_book_is_run(&book, at(1), 4 * GLK_GRANULE, &broken), "a cut begin");
	ok(glk_book_overlap(&book, at(5), GLK_GRANULE) == NULL,
		"nothing overlaps the gap");
	ok(glk_book_overlap(&book, at(5) + 1, GLK_GRANULE) != NULL,
		"one byte further, yes");
	ok(glk_book_add(&book, at(20), GLK_GRANULE, 4) != NULL, "the last slot");
	ok(!glk_book_add(&book, at(21), GLK_GRANULE, 5), "and none after it");
	ok(!glk_book_find(&book, UINT64_MAX), "no mapping beyond all addresses");
	is_int(glk_book_span_add(&book, UINT64_C(1) << 48, GLK_GRANULE), -ENOMEM,
		"no reservation there");
	is_int(glk_book_span_add(&book, (UINT64_C(1) << 48) - GLK_GRANULE, GLK_GRANULE),
		0, "but in the last granule");
	ok(!glk_book_span(&book, at(63), 2 * GLK_GRANULE), "no reservation past an end");
	glk_book_fini(&book);
	glk_book_fini(&book);
}

static void runs_out(void)
{
	uint64_t before = glk_region_bytes();
	struct glk_book book;

	for (uint32_t n = 1; n <= 3; n++) {
		glk_region_fail_after(n);
		is_int(glk_book_init(&book, 4), -ENOMEM, "no memory for a book");
		glk_region_fail_after(0);
	}
	glk_book_init(&book, 4);
	glk_region_fail_after(2);
	is_int(glk_book_span_add(&book, 0, (size_t)2 << 39), -ENOMEM,
		"nor for its leaves");
	glk_region_fail_after(0);
	ok(!glk_book_span(&book, 0, 1), "so nothing was added");
	is_int(glk_book_span_add(&book, 0, (size_t)2 << 39), 0, "with memory it is");
	glk_book_fini(&book);
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "nothing is left");
}

int main(void)
{
	tap_plan_later();
	runs();
	random_work();
	runs_out();
	return tap_done();
}
