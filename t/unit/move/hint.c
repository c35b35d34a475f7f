/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The order of hints: those that wait come by deadline, then priority, then age, however they came and went. */
#include "move/hint.h"
#include "seed.h"
#include "tap.h"

#define MOST  40
#define TURNS 20000

static struct glk_hints *hints;

static bool is_before(const struct glk_hint *a, const struct glk_hint *b)
{
	return a->deadline != b->deadline    ? a->deadline < b->deadline
		: a->priority != b->priority ? a->priority > b->priority
					     : a->serial < b->serial;
}

/* The one of a list that is to come first. */
static struct glk_hint *first_of(struct glk_hint *const *list, uint32_t count)
{
	struct glk_hint *first = count ? list[0] : NULL;

	for (uint32_t i = 1; i < count; i++)
		first = is_before(list[i], first) ? list[i] : first;
	return first;
}

/* Some come and some go, wherever they are in the heap. */
static void in_order(void)
{
	uint64_t state = seed_thread(seed_start(), 1);
	struct glk_hint *list[MOST], *h;
	uint32_t count = 0, wrong = 0;

	for (int turn = 0; turn < TURNS; turn++) {
		if (count < MOST && seed_below(&state, 2)) {
			h = glk_hint_new(hints, 1 + seed_below(&state, UINT32_MAX));
			h->deadline = (int64_t)seed_below(&state, 30);
			h->priority = (int)seed_below(&state, 3);
			glk_hint_queue(hints, h);
			list[count++] = h;
		} else if (count) {
			uint32_t i = (uint32_t)seed_below(&state, count);

			glk_hint_unqueue(hints, list[i]);
			wrong += list[i]->at != 0;
			glk_hint_end(hints, list[i]);
			list[i] = list[--count];
		}
		wrong += glk_hint_next(hints) != first_of(list, count);
		wrong += hints->queued != count;
	}
	while ((h = glk_hint_next(hints))) {
		wrong += h != first_of(list, count);
		for (uint32_t i = 0; i < count; i++)
			if (list[i] == h)
				list[i--] = list[--count];
		glk_hint_unqueue(hints, h);
		glk_hint_end(hints, h);
	}
	is_int(wrong, 0, "the next one is the first of those that wait");
	is_int(count, 0, "until none does");
}

/* Three of one row, of which any is hidden. */
static void by_address(void)
{
	struct glk_hint *h[3];
	uint64_t addr[3] = {1, 0, 0};

	for (uint64_t at = 2, i = 1; i < 3; at++) {
		addr[i] = at;
		i += (at * UINT64_C(0x9e3779b97f4a7c15) >> 32) % GLK_HINT_ROWS ==
			(UINT64_C(0x9e3779b97f4a7c15) >> 32) % GLK_HINT_ROWS;
	}
	for (int hidden = 0; hidden < 3; hidden++) {
		int wrong = 0;

		for (int i = 0; i < 3; i++)
			h[i] = glk_hint_new(hints, addr[i]);
		glk_hint_hide(hints, h[hidden]);
		for (int i = 0; i < 3; i++)
			wrong += glk_hint_find(hints, addr[i]) !=
				(i == hidden ? NULL : h[i]);
		ok(!wrong, "%d of three is found no more, the others are", hidden);
		for (int i = 0; i < 3; i++)
			glk_hint_end(hints, h[i]);
		wrong = 0;
		for (int i = 0; i < 3; i++)
			wrong += glk_hint_find(hints, addr[i]) != NULL;
		is_int(wrong, 0, "none is when they have ended");
	}
}

/* The table is full, and has room again. */
static void as_many_as_there_may_be(void)
{
	uint32_t count = 0;
	struct glk_hint *h, *last = NULL;

	while ((h = glk_hint_new(hints, 1000 + count))) {
		last = h;
		count++;
	}
	is_int(count, GLK_HINTS, "so many hints at a time");
	glk_hint_end(hints, last);
	ok(glk_hint_new(hints, 7) == last, "one more when one has ended");
	ok(!glk_hint_new(hints, 8), "and no other");
}

/* Under way, in the order of their stream. */
static void under_way(void)
{
	struct glk_hint *h[3];

	for (unsigned i = 0; i < 3; i++) {
		h[i] = glk_hint_new(hints, 1 + i);
		h[i]->bytes = 1u << i;
		glk_hint_fly(hints, h[i]);
	}
	is_int((int64_t)hints->flying, 7, "bytes under way");
	for (int i = 0; i < 3; i++) {
		ok(glk_hint_flying(hints) == h[i], "the oldest first");
		is_int(h[i]->state, GLK_HINT_COPYING, "its copy is queued");
		glk_hint_land(hints);
		is_int(h[i]->state, GLK_HINT_LANDED, "and has arrived");
	}
	ok(!glk_hint_flying(hints) && !hints->flying, "none is under way");
	glk_hint_fly(hints, h[1]);
	ok(glk_hint_flying(hints) == h[1], "but the next one");
	glk_hint_land(hints);
	ok(!glk_hint_flying(hints), "alone");
	for (int i = 0; i < 3; i++)
		glk_hint_end(hints, h[i]);
}

int main(void)
{
	hints = calloc(1, sizeof(*hints));
	if (!hints)
		return 1;
	tap_plan_later();
	in_order();
	by_address();
	under_way();
	as_many_as_there_may_be();
	free(hints);
	return tap_done();
}
