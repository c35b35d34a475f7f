/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every move of a page, legal or not, from every state. */
#include "pool/page.h"
#include "tap.h"

#define STATES 5

/* As the table in page.h draws them. */
static const bool legal[STATES][STATES] = {
	[GLK_PAGE_EMPTY] = {[GLK_PAGE_OWNED] = true},
	[GLK_PAGE_FREE] = {[GLK_PAGE_OWNED] = true, [GLK_PAGE_LOST] = true},
	[GLK_PAGE_OWNED] =
		{[GLK_PAGE_FREE] = true, [GLK_PAGE_LIMBO] = true, [GLK_PAGE_LOST] = true},
	[GLK_PAGE_LIMBO] = {[GLK_PAGE_EMPTY] = true, [GLK_PAGE_LOST] = true},
};

#define GENERATION UINT64_C(123456789)

/* A page in a state and a generation. */
static struct glk_page page_in(enum glk_page_state state)
{
	struct glk_page page = {0};

	glk_store_relaxed(&page.word, GENERATION << 4 | state);
	return page;
}

/* One move from the state the page is in. */
static void test_move(enum glk_page_state from, enum glk_page_state to)
{
	const char *a = glk_page_state_name(from), *b = glk_page_state_name(to);
	struct glk_page page = page_in(from);
	uint64_t generation =
		GENERATION + (from == GLK_PAGE_LIMBO && to == GLK_PAGE_EMPTY);
	bool moved = glk_page_move(&page, from, to);

	if (legal[from][to])
		ok(moved && glk_page_state(&page) == to &&
				glk_page_generation(&page) == generation,
			"%s to %s", a, b);
	else
		ok(!moved && glk_load_relaxed(&page.word) == (GENERATION << 4 | from),
			"not %s to %s", a, b);
}

/* Moves that begin in another state than the page is in change nothing. */
static void test_elsewhere(enum glk_page_state state)
{
	int wrong = 0;

	for (int from = 0; from < STATES; from++) {
		for (int to = 0; to < STATES && from != (int)state; to++) {
			struct glk_page page = page_in(state);

			wrong += glk_page_move(&page, (enum glk_page_state)from,
				(enum glk_page_state)to);
			wrong +=
				glk_load_relaxed(&page.word) != (GENERATION << 4 | state);
		}
	}
	is_int(wrong, 0, "no move of a page that is in another state");
}

static void test_life(void)
{
	struct glk_page page = {0};
	int failed = 0;

	is_int(glk_page_state(&page), GLK_PAGE_EMPTY, "a zeroed page is empty");
	for (int i = 0; i < 1000; i++) {
		failed += !glk_page_move(&page, GLK_PAGE_EMPTY, GLK_PAGE_OWNED);
		failed += !glk_page_move(&page, GLK_PAGE_OWNED, GLK_PAGE_FREE);
		failed += !glk_page_move(&page, GLK_PAGE_FREE, GLK_PAGE_OWNED);
		failed += !glk_page_move(&page, GLK_PAGE_OWNED, GLK_PAGE_LIMBO);
		failed += !glk_page_move(&page, GLK_PAGE_LIMBO, GLK_PAGE_EMPTY);
	}
	is_int(failed, 0, "a thousand lives");
	is_int((int64_t)glk_page_generation(&page), 1000, "a generation each");
	glk_store_relaxed(&page.word, ~UINT64_C(0) << 4 | GLK_PAGE_LIMBO);
	ok(glk_page_move(&page, GLK_PAGE_LIMBO, GLK_PAGE_EMPTY),
		"the last generation ends");
	ok(!glk_load_relaxed(&page.word), "and the state stays its own after it");
}

static void test_names(void)
{
	is_str(glk_page_state_name(GLK_PAGE_EMPTY), "EMPTY", "name of EMPTY");
	is_str(glk_page_state_name(GLK_PAGE_FREE), "FREE", "name of FREE");
	is_str(glk_page_state_name(GLK_PAGE_OWNED), "OWNED", "name of OWNED");
	is_str(glk_page_state_name(GLK_PAGE_LIMBO), "LIMBO", "name of LIMBO");
	is_str(glk_page_state_name(GLK_PAGE_LOST), "LOST", "name of LOST");
	is_str(glk_page_state_name((enum glk_page_state)5), "?", "no name above");
	is_str(glk_page_state_name((enum glk_page_state)15), "?", "nor of the mask");
}

int main(void)
{
	tap_plan(STATES * STATES + STATES + 5 + 7);
	for (int from = 0; from < STATES; from++) {
		for (int to = 0; to < STATES; to++)
			test_move((enum glk_page_state)from, (enum glk_page_state)to);
	}
	for (int state = 0; state < STATES; state++)
		test_elsewhere((enum glk_page_state)state);
	test_life();
	test_names();
	return tap_done();
}
