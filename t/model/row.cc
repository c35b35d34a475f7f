/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The real lib/cache/bin/row.h under relacy: one bin. Two threads pop, write to what they own and
 * push, as a hit does, alone first; the second one gives the bin a crowd on the way, and so
 * does who meets somebody. A third does what happens under the lock of a GPU: it clears the
 * touched flag of the row and pops, at the most one block the first time, as before pages are
 * mapped, and all the second time, as when memory is short. At the end a last pass looks into
 * the bin if the row is touched.
 *
 * Shown: no block is lost, which takes the order of flag and heads; none is had twice; and who
 * gets a block sees what was written to it before. Built once as it is and once with each of
 * these mistakes, which must be found:
 *
 *	GLK_IDSTACK_TAG_STEP=0	the tag of a head does not step
 *	MODEL_NO_RELEASE	a push that releases nothing
 *	MODEL_NO_ACQUIRE	a pop that acquires nothing
 *	MODEL_TOUCH_FIRST	the flag is looked at before the CAS of the push
 *	MODEL_UNTOUCH_LATE	the flag is cleared after the bin was emptied
 *	MODEL_NO_RETOUCH	who stops early leaves the flag cleared
 *	MODEL_WEAK_PUSH		the CAS of the push is acquire and release only
 *	MODEL_WEAK_LOOK		so is the look at the flag
 *	MODEL_WEAK_CLEAR	so is its clearing
 *	MODEL_WEAK_POP		so is the look of a pop
 *	MODEL_FORGET_CROWD	the heads of the crowd are not emptied
 *	MODEL_NO_LOCK		the crowd is given while the bin is emptied
 *
 * Limits: three threads, three blocks, two rounds; a sample of the schedules, not all.
 */
#define GLK_BINS	2
#define GLK_CROWD_HEADS 2

#include "base/atomic.h"

#include <cstdint>

#define model_cas(p, o, n, success, failure)                                             \
	((p)->compare_exchange_strong(*(o), (n), success, $, failure, $))

#ifdef MODEL_NO_RELEASE
#undef glk_cas_seq_cst
#define glk_cas_seq_cst(p, o, n) model_cas(p, o, n, rl::mo_relaxed, rl::mo_relaxed)
#endif
#ifdef MODEL_WEAK_PUSH
#undef glk_cas_seq_cst
#define glk_cas_seq_cst(p, o, n) model_cas(p, o, n, rl::mo_acq_rel, rl::mo_acquire)
#endif
#ifdef MODEL_WEAK_CLEAR
#undef glk_xchg_seq_cst
#define glk_xchg_seq_cst(p, v) glk_xchg_acq_rel(p, v)
#endif
#ifdef MODEL_NO_ACQUIRE
#undef glk_cas_acq_rel
#undef glk_load_acquire
#define glk_cas_acq_rel(p, o, n) model_cas(p, o, n, rl::mo_release, rl::mo_relaxed)
#define glk_load_acquire(p)	 glk_load_relaxed(p)
#endif

/* The look at the flag, which is the one of 32 bits, and that at a head. */
#if defined(MODEL_TOUCH_FIRST)
static glk_atomic(uint32_t) * flag;
static uint32_t seen_first[8];

static bool model_look_first()
{
	seen_first[rl::thread_index() % 8] = glk_load_seq_cst(flag);
	return true;
}

static uint32_t model_look(glk_atomic(uint32_t) *)
{
	return seen_first[rl::thread_index() % 8];
}

#undef glk_cas_seq_cst
#define glk_cas_seq_cst(p, o, n)                                                         \
	(model_look_first() && model_cas(p, o, n, rl::mo_seq_cst, rl::mo_seq_cst))
#elif defined(MODEL_WEAK_LOOK)
static uint32_t model_look(glk_atomic(uint32_t) * p)
{
	return glk_load_acquire(p);
}
#else
static uint32_t model_look(glk_atomic(uint32_t) * p)
{
	return glk_load_seq_cst(p);
}
#endif

static uint64_t model_look(glk_atomic(uint64_t) * p)
{
#if defined(MODEL_NO_ACQUIRE)
	return glk_load_relaxed(p);
#elif defined(MODEL_WEAK_POP)
	return glk_load_acquire(p);
#else
	return glk_load_seq_cst(p);
#endif
}

#undef glk_load_seq_cst
#define glk_load_seq_cst(p) model_look(p)

#include "cache/bin/row.h"

#include "run.h"

#define BLOCKS 3
#define ROUNDS 2

static struct glk_idnode *link_of(struct glk_idnode *nodes, uint32_t id)
{
	return &nodes[id];
}

GLK_ROW_DEFINE(model, struct glk_idnode *, link_of)

struct row_model : rl::test_suite<row_model, 3> {
	struct glk_row row;
	struct glk_bin bin[GLK_BINS];
	struct glk_crowd crowd;
	struct glk_idnode nodes[BLOCKS + 1];
	glk_plain(unsigned) payload[BLOCKS + 1];
	bool had[BLOCKS + 1];
	unsigned blocks, kept;
	rl::mutex lock; /* of the GPU */

	void before()
	{
#ifdef MODEL_TOUCH_FIRST
		flag = &row.touched;
#endif
		row.bin = bin;
		glk_store_relaxed(&row.touched, 0u);
		glk_store_relaxed(&bin[0].head.head, (uint64_t)0);
		glk_store_relaxed(&bin[0].crowd, (struct glk_crowd *)0);
		for (unsigned h = 0; h < GLK_CROWD_HEADS; h++)
			glk_store_relaxed(&crowd.at[h].head.head, (uint64_t)0);
		kept = 0;
		blocks = BLOCKS - rl::rand(2);
		for (uint32_t id = 1; id <= blocks; id++) {
			glk_set(payload[id], 0u);
			had[id] = true;
			give(id, 0);
		}
	}

	void take_lock()
	{
#ifndef MODEL_NO_LOCK
		lock.lock($);
#endif
	}

	void drop_lock()
	{
#ifndef MODEL_NO_LOCK
		lock.unlock($);
#endif
	}

	void give_crowd()
	{
		take_lock();
		if (!glk_load_relaxed(&bin[0].crowd))
			glk_store_release(&bin[0].crowd, &crowd);
		drop_lock();
	}

	void own(uint32_t id)
	{
		unsigned seen;

		if (!id)
			return;
		RL_ASSERT(id <= blocks && !had[id]);
		had[id] = true;
		seen = glk_get(payload[id]);
		glk_set(payload[id], seen + 1);
	}

	/* Whether somebody else was there. */
	bool give(uint32_t id, unsigned self)
	{
		if (!id)
			return false;
		had[id] = false;
		return !model_push_alone(&row, &bin[0], &nodes[id], id) &&
			model_push(&row, 0, nodes, id, self);
	}

	uint32_t get(unsigned self)
	{
		uint32_t id = model_pop_once(&bin[0].head, nodes);

		if (!id)
			id = model_pop(&row, 0, nodes, self);
		own(id);
		return id;
	}

	/* Who holds two blocks returns the first one first, which is what a tag is for. */
	void use(unsigned self)
	{
		uint32_t a = get(self), b = get(self);
		bool met;

		met = give(a, self);
		if (met || self == 1)
			give_crowd();
		give(b, self);
	}

	uint32_t take()
	{
		uint32_t id;

#ifdef MODEL_FORGET_CROWD
		id = model_pop_head(&bin[0].head, nodes);
#else
		id = model_pop(&row, 0, nodes, 0);
#endif
		own(id);
		return id;
	}

	/* Under the lock. */
	void empty(unsigned most)
	{
		unsigned count = 0;

#ifdef MODEL_UNTOUCH_LATE
		if (!glk_load_relaxed(&row.touched))
			return;
#else
		if (!glk_row_untouch(&row))
			return;
#endif
		while (count < most && take())
			count++;
#ifdef MODEL_UNTOUCH_LATE
		glk_row_untouch(&row);
#endif
#ifndef MODEL_NO_RETOUCH
		if (count == most)
			glk_store_relaxed(&row.touched, 1u);
#endif
		kept += count;
	}

	void thread(unsigned self)
	{
		unsigned rounds = self < 2 ? 1 + rl::rand(ROUNDS) : ROUNDS;

		for (unsigned round = 1; round <= rounds; round++) {
			if (self < 2) {
				use(self);
				continue;
			}
			take_lock();
			empty(round == rounds ? BLOCKS : 1);
			drop_lock();
		}
	}

	void after()
	{
		unsigned found = kept;
		uint32_t id;

		if (!glk_row_untouch(&row)) {
			RL_ASSERT(found == blocks);
			return;
		}
		while ((id = model_pop(&row, 0, nodes, 0))) {
			own(id);
			found++;
		}
		RL_ASSERT(found == blocks);
	}
};

int main()
{
	return model_run<row_model>();
}
