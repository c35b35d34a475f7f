/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one place that changes the state of a page. The compare-and-swap is what makes two
 * owners of one page impossible: whoever loses the race is told, and no move is made twice.
 */
#include "pool/page.h"

#define STATE_MASK	UINT64_C(15)
#define GENERATION_STEP UINT64_C(16)

static bool legal(enum glk_page_state from, enum glk_page_state to)
{
	switch (from) {
	case GLK_PAGE_EMPTY:
		return to == GLK_PAGE_OWNED;
	case GLK_PAGE_FREE:
		return to == GLK_PAGE_OWNED || to == GLK_PAGE_LOST;
	case GLK_PAGE_OWNED:
		return to == GLK_PAGE_FREE || to == GLK_PAGE_LIMBO || to == GLK_PAGE_LOST;
	case GLK_PAGE_LIMBO:
		return to == GLK_PAGE_EMPTY || to == GLK_PAGE_LOST;
	case GLK_PAGE_LOST:
		return false;
	}
	return false;
}

bool glk_page_move(
	struct glk_page *page, enum glk_page_state from, enum glk_page_state to)
{
	uint64_t old = glk_load_relaxed(&page->word), new;

	if ((old & STATE_MASK) != from || !legal(from, to))
		return false;
	new = (old & ~STATE_MASK) | to;
	if (to == GLK_PAGE_EMPTY)
		new += GENERATION_STEP;
	/* acquire pairs with the release of the move before it, and the reverse */
	return glk_cas_acq_rel(&page->word, &old, new);
}

const char *glk_page_state_name(enum glk_page_state state)
{
	static const char *const names[] = {"EMPTY", "FREE", "OWNED", "LIMBO", "LOST"};

	return (unsigned)state < sizeof(names) / sizeof(*names) ? names[state] : "?";
}
