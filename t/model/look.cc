/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The real lib/map/space/word.h under relacy: a thread reads what an extent is between two looks
 * at its word, as glk_extent_read() does; another one holds it and adds a mark; the third one
 * frees it and gives it out again with another address and size, as a merge and a new request do.
 *
 * Shown: what two looks agree on is of one life. A free takes no extent that is held, and sees
 * the marks of all who held it. Built once as it is and once with each of these mistakes,
 * which must be found:
 *
 *	MODEL_ONE_LOOK		there is no second look
 *	MODEL_RELAXED_READ	what is read in between is not acquired
 *	MODEL_RELAXED_WRITE	what is written is not released
 *	GLK_WORD_STEP=0		lives are not told apart
 *	MODEL_NO_HOLD		the mark is made without holding
 *
 * Limits: three threads, three lives; a sample of the schedules, not all.
 */
#include "base/atomic.h"

#include <cstdint>

#include "map/space/word.h"

#include "run.h"

#define LIVES 3
#define READS 3

#ifdef MODEL_RELAXED_READ
#define read_field(p) glk_load_relaxed(p)
#else
#define read_field(p) glk_load_acquire(p)
#endif
#ifdef MODEL_RELAXED_WRITE
#define write_field(p, v) glk_store_relaxed(p, v)
#else
#define write_field(p, v) glk_store_release(p, v)
#endif

struct look_model : rl::test_suite<look_model, 3> {
	glk_atomic(uint64_t) word, at, size;
	glk_plain(
		uint64_t) marks; /* of one holder at a time here: it races with a free */
	unsigned lives;

	void before()
	{
		lives = 0;
		glk_store_relaxed(&word, (uint64_t)GLK_EXTENT_FREE);
		carve();
	}

	uint64_t address(unsigned life)
	{
		return UINT64_C(0x1000) + 512 * (life & 1);
	}

	void carve()
	{
		lives++;
		write_field(&size, address(lives) + 1);
		write_field(&at, address(lives));
		glk_set(marks, (uint64_t)0);
		glk_word_set(&word, GLK_EXTENT_QUICK);
		glk_word_set(&word, GLK_EXTENT_LIVE);
	}

	void read()
	{
		uint64_t life, addr, bytes;

		if (!glk_word_look(&word, &life))
			return;
		addr = read_field(&at);
		bytes = read_field(&size);
#ifndef MODEL_ONE_LOOK
		if (!glk_word_is_still(&word, life))
			return;
#endif
		RL_ASSERT(bytes == addr + 1);
	}

	void mark(uint64_t addr)
	{
#ifndef MODEL_NO_HOLD
		if (!glk_word_hold(&word, &at, addr))
			return;
#endif
		glk_set(marks, glk_get(marks) + 1);
#ifndef MODEL_NO_HOLD
		glk_word_let_go(&word);
#endif
	}

	void free_it()
	{
		if (!glk_word_claim(&word, &at, address(lives)))
			return;
		RL_ASSERT(glk_get(marks) <= READS);
		glk_word_set(&word, GLK_EXTENT_FREE);
		carve();
	}

	void thread(unsigned self)
	{
		for (int i = 0; i < READS; i++) {
			if (self == 0)
				read();
			else if (self == 1)
				mark(address(1 + (unsigned)i));
			else if (lives < LIVES)
				free_it();
		}
	}
};

int main()
{
	return model_run<look_model>();
}
