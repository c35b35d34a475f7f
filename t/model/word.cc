/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The real lib/map/space/word.h under relacy: two threads free the same address again and again, as
 * fast as they can, and a third one takes the freed extent out of a bin and gives it out again,
 * first at the same address, as a hit does, and then at another, as a merge and a new request
 * do. So a free may be overtaken by the other free and by the next life of the extent between
 * its loads and its compare-and-swap.
 *
 * Shown: a life of the extent is ended by one free alone, and by none that read the word in an
 * earlier life or means another address; and who ends it sees what was written to the extent
 * before it became LIVE. Built once as it is and once with each of these mistakes, which must
 * be found:
 *
 *	GLK_WORD_STEP=0		the generation does not step
 *	MODEL_STORED_CLAIM	the claim stores instead of comparing
 *	MODEL_ADDRESS_FIRST	the claim reads the address before the word
 *	MODEL_RELAXED_CLAIM	the claim acquires nothing
 *	MODEL_RELAXED_LIVE	the move to LIVE releases nothing
 *
 * Limits: three threads, three lives; a sample of the schedules, not all.
 */
#include "base/atomic.h"

#include <cstdint>

/* Of the extent, and as the thread that runs last read its word. */
static unsigned lives, read_in[3];

#ifdef MODEL_ADDRESS_FIRST
static glk_atomic(uint64_t) * address;
static uint64_t seen_first[3];

/* The only relaxed load of an address is that of the claim. */
template <typename T> static T model_relaxed(rl::atomic<T> *p)
{
	return (void *)p == address ? (T)seen_first[rl::thread_index()]
				    : glk_load_relaxed(p);
}
#endif

static inline uint64_t model_read(glk_atomic(uint64_t) * p)
{
	uint64_t word;

#ifdef MODEL_ADDRESS_FIRST
	seen_first[rl::thread_index()] = glk_load_relaxed(address);
#endif
#ifdef MODEL_RELAXED_CLAIM
	word = glk_load_relaxed(p);
#else
	word = glk_load_acquire(p);
#endif
	read_in[rl::thread_index()] = lives;
	return word;
}

#ifdef MODEL_RELAXED_CLAIM
#undef glk_cas_acq_rel
#define glk_cas_acq_rel(p, o, n)                                                         \
	((p)->compare_exchange_strong(*(o), (n), rl::mo_release, $, rl::mo_relaxed, $))
#endif
#ifdef MODEL_STORED_CLAIM
#undef glk_cas_acq_rel
#define glk_cas_acq_rel(p, o, n) ((p)->store((n), rl::mo_release, $), true)
#endif
#undef glk_load_acquire
#define glk_load_acquire(p) model_read(p)
#ifdef MODEL_ADDRESS_FIRST
#undef glk_load_relaxed
#define glk_load_relaxed(p) model_relaxed(p)
#endif
#ifdef MODEL_RELAXED_LIVE
#undef glk_store_release
#define glk_store_release(p, v) glk_store_relaxed(p, v)
#endif

#include "map/space/word.h"

#include "run.h"

#define FREES 3
#define LIVES 3
#define HERE  UINT64_C(0x1000)
#define THERE UINT64_C(0x1200)

struct word_model : rl::test_suite<word_model, 3> {
	glk_atomic(uint64_t) word, at;
	glk_atomic(uint32_t) bin; /* whether the extent lies in it */
	glk_plain(uint64_t) payload;
	unsigned ended;

	void before()
	{
#ifdef MODEL_ADDRESS_FIRST
		address = &at;
#endif
		lives = ended = 0;
		glk_store_relaxed(&word, (uint64_t)GLK_EXTENT_FREE);
		glk_store_relaxed(&bin, 0u);
		carve(HERE);
	}

	/* The owner's moves, as glk_extent_carve() and glk_hit_revive() make them. */
	void carve(uint64_t addr)
	{
		glk_store_relaxed(&at, addr);
		glk_set(payload, addr);
		lives++;
		glk_word_set(&word, GLK_EXTENT_LIVE);
	}

	void revive(uint64_t addr)
	{
		glk_set(payload, addr);
		lives++;
		glk_word_revive(&word);
	}

	void free_at(unsigned self, uint64_t addr)
	{
		if (!glk_word_claim(&word, &at, addr))
			return;
		RL_ASSERT(read_in[self] == lives);
		RL_ASSERT(++ended == lives);
		RL_ASSERT(glk_get(payload) == addr);
		glk_xchg_acq_rel(&bin, 1u);
	}

	void live_again()
	{
		if (!glk_xchg_acq_rel(&bin, 0u))
			return;
		if (lives == 1) {
			revive(HERE);
			return;
		}
		glk_word_set(&word, GLK_EXTENT_FREE);
		carve(THERE);
	}

	void thread(unsigned self)
	{
		if (self < 2) {
			for (int i = 0; i < FREES; i++)
				free_at(self, i < FREES - 1 ? HERE : THERE);
			return;
		}
		for (int i = 0; i < 2 * LIVES && lives < LIVES; i++)
			live_again();
	}

	void after()
	{
		enum glk_extent_state state = glk_word_state(glk_load_relaxed(&word));
		bool live = state == GLK_EXTENT_LIVE;

		RL_ASSERT(live || state == GLK_EXTENT_QUICK);
		RL_ASSERT(ended + live == lives);
		RL_ASSERT(glk_load_relaxed(&bin) == !live);
	}
};

int main()
{
	return model_run<word_model>();
}
