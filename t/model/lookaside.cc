/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The real lib/cache/bin/lookaside.h under relacy: a list of two places. Two threads take blocks of one of two sizes,
 * write to what they own and put them back under the lock, which may push another one out; a third clears places
 * under the lock, or drops a block that it knows by number.
 *
 * Shown: no block is lost and none is had twice; who gets one has the size that was asked for, and sees what was
 * written to it before; and one that merges has the tick of its last free. Built once as it is and once with each of
 * these mistakes, which must be found:
 *
 *	MODEL_NO_RELEASE	a put that releases nothing
 *	MODEL_NO_ACQUIRE	a take that acquires nothing
 *	MODEL_STORED_TAKE	a take that stores, whatever is there by then
 *	MODEL_STORED_PUT	a put that stores, whatever is there
 *
 * Limits: three threads, three blocks, two rounds; a sample of the schedules, not all.
 */
#define GLK_LOOKASIDE 2

#include "base/atomic.h"

#include <cstdint>

#define model_cas(p, o, n, success, failure)                                             \
	((p)->compare_exchange_strong(*(o), (n), success, $, failure, $))

#ifdef MODEL_NO_RELEASE
#undef glk_xchg_acq_rel
#define glk_xchg_acq_rel(p, v) ((p)->exchange((v), rl::mo_acquire, $))
#endif
#ifdef MODEL_NO_ACQUIRE
#undef glk_cas_acq_rel
#define glk_cas_acq_rel(p, o, n) model_cas(p, o, n, rl::mo_release, rl::mo_relaxed)
#endif
#ifdef MODEL_STORED_PUT
#undef glk_xchg_acq_rel
#define glk_xchg_acq_rel(p, v) ((p)->store((v), rl::mo_release, $), (uint64_t)0)
#endif
#ifdef MODEL_STORED_TAKE
#undef glk_cas_acq_rel
#define glk_cas_acq_rel(p, o, n) ((p)->store((n), rl::mo_release, $), *(o) != 0)
#endif

#include "cache/bin/lookaside.h"

#include "run.h"

#define BLOCKS 3
#define ROUNDS 2

struct lookaside_model : rl::test_suite<lookaside_model, 3> {
	struct glk_lookaside aside;
	glk_plain(unsigned) payload[BLOCKS + 1];
	bool had[BLOCKS + 1];
	unsigned merged; /* under the lock */
	uint32_t turn;	 /* likewise */
	uint64_t freed[BLOCKS + 1], ticks;
	rl::mutex lock; /* of the GPU */

	/* The first and the third have the same. */
	static uint64_t size_of(uint32_t id)
	{
		return 7 + id % 2;
	}

	void before()
	{
		for (unsigned i = 0; i < GLK_LOOKASIDE; i++)
			glk_store_relaxed(&aside.place[i], (uint64_t)0);
		glk_store_relaxed(&aside.kinds, (uint64_t)0);
		merged = turn = 0;
		ticks = 0;
		for (uint32_t id = 1; id <= BLOCKS; id++) {
			glk_set(payload[id], 0u);
			had[id] = true;
			put(id);
		}
	}

	void own(uint32_t id)
	{
		unsigned seen;

		if (!id)
			return;
		RL_ASSERT(id <= BLOCKS && !had[id]);
		had[id] = true;
		seen = glk_get(payload[id]);
		glk_set(payload[id], seen + 1);
	}

	/* Under the lock: it is free from then on, as of its last free. */
	void merge(struct glk_laid laid)
	{
		RL_ASSERT(!laid.id ||
			(freed[laid.id] == laid.tick && laid.key == size_of(laid.id)));
		own(laid.id);
		merged += laid.id > 0;
	}

	void put(uint32_t id)
	{
		struct glk_laid laid = {size_of(id), freed[id] = ++ticks, id};

		had[id] = false;
		glk_lookaside_put(&aside, &turn, &laid);
		merge(laid);
	}

	void use(uint64_t size)
	{
		uint32_t id = glk_lookaside_take(&aside, size);

		own(id);
		if (!id)
			return;
		RL_ASSERT(size_of(id) == size);
		lock.lock($);
		put(id);
		lock.unlock($);
	}

	void empty(unsigned round)
	{
		struct glk_laid laid = {0, 0, 1 + rl::rand(BLOCKS)};

		laid.key = size_of(laid.id);
		lock.lock($);
		if (round)
			laid = glk_lookaside_clear(&aside, rl::rand(GLK_LOOKASIDE));
		else if (!glk_lookaside_drop(&aside, laid.key, laid.id, &laid.tick))
			laid.id = 0;
		merge(laid);
		lock.unlock($);
	}

	void thread(unsigned self)
	{
		for (unsigned round = 0; round < ROUNDS; round++) {
			if (self < 2)
				use(7 + rl::rand(2));
			else
				empty(round);
		}
	}

	void after()
	{
		for (unsigned i = 0; i < GLK_LOOKASIDE; i++)
			merge(glk_lookaside_clear(&aside, i));
		RL_ASSERT(merged == BLOCKS);
	}
};

int main()
{
	return model_run<lookaside_model>();
}
