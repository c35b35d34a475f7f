/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The real lib/pool/page.c under relacy: three threads move one page between its states and
 * write to it while they own it. Two owners at once, or an owner that does not see what the
 * last one wrote, race on the payload; an owner whose next move fails lost the page.
 *
 * Built three times: as it is, with moves that order nothing, and with moves that store where
 * they should compare and swap; both mistakes must be found.
 * Limits: one page, three threads, two rounds; a sample of the schedules, not all.
 */
#include "base/atomic.h"
#include "base/idstack.h"
#include "pool/use.h"

#include "run.h"

#include <cstdint>

#ifdef MODEL_RELAXED_MOVE
#undef glk_cas_acq_rel
#define glk_cas_acq_rel(p, o, n)                                                         \
	((p)->compare_exchange_strong(*(o), (n), rl::mo_relaxed, $, rl::mo_relaxed, $))
#endif
#ifdef MODEL_STORED_MOVE
#undef glk_cas_acq_rel
#define glk_cas_acq_rel(p, o, n) ((p)->store((n), rl::mo_release, $), true)
#endif

/* words that C++ and relacy keep for themselves, and a size that atomics of the model lack */
#pragma push_macro("new")
#undef new
#define new fresh
#define class klass
#define _Static_assert(...) static_assert(true, "")
#include "../../lib/pool/page.c"
#undef class
#pragma pop_macro("new")

#define THREADS 3
#define ROUNDS	2

struct move_model : rl::test_suite<move_model, THREADS> {
	struct glk_page page;
	glk_plain(unsigned) payload;
	unsigned owned[THREADS], released[THREADS];

	void before()
	{
		glk_store_relaxed(&page.word, (uint64_t)GLK_PAGE_FREE);
		glk_set(payload, 0u);
		for (unsigned i = 0; i < THREADS; i++)
			owned[i] = released[i] = 0;
	}

	void own(unsigned self)
	{
		unsigned seen = glk_get(payload);

		glk_set(payload, seen + 1);
		owned[self]++;
	}

	/* One thread gives the memory back, the others put the page on a list. */
	void thread(unsigned self)
	{
		for (int round = 0; round < ROUNDS; round++) {
			if (!glk_page_move(&page, GLK_PAGE_FREE, GLK_PAGE_OWNED) &&
				!glk_page_move(&page, GLK_PAGE_EMPTY, GLK_PAGE_OWNED))
				continue;
			own(self);
			if (self) {
				RL_ASSERT(glk_page_move(
					&page, GLK_PAGE_OWNED, GLK_PAGE_FREE));
				continue;
			}
			RL_ASSERT(glk_page_move(&page, GLK_PAGE_OWNED, GLK_PAGE_LIMBO));
			own(self);
			RL_ASSERT(glk_page_move(&page, GLK_PAGE_LIMBO, GLK_PAGE_EMPTY));
			released[self]++;
		}
	}

	void after()
	{
		enum glk_page_state state = glk_page_state(&page);
		unsigned sum = 0, ends = 0;

		for (unsigned i = 0; i < THREADS; i++) {
			sum += owned[i];
			ends += released[i];
		}
		RL_ASSERT(state == GLK_PAGE_FREE || state == GLK_PAGE_EMPTY);
		RL_ASSERT(glk_get(payload) == sum);
		RL_ASSERT(glk_page_generation(&page) == ends);
	}
};

int main()
{
	return model_run<move_model>();
}
