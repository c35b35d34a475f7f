/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The real lib/cache/row.h under relacy: one bin of two heads. Two threads pop, write to what
 * they own and push; a third does what happens under the lock of a GPU: it clears the mark of
 * the bin, takes every head, keeps one block, as one that is merged, and pushes the others
 * back. At the end a last pass looks into marked bins alone.
 *
 * Shown: no block is lost, which takes the order of marks and heads; none is had twice; and
 * who gets a block sees what was written to it before. Built once as it is and once with each
 * of these mistakes, which must be found:
 *
 *	GLK_IDSTACK_TAG_STEP=0	the tag of a head does not step
 *	MODEL_NO_RELEASE	a push that releases nothing
 *	MODEL_NO_ACQUIRE	pops and takes that acquire nothing
 *	MODEL_BLIND_PUSH	a push that does not acquire: it may miss that its mark was cleared
 *	MODEL_MARK_FIRST	the mark is set before the CAS of the push
 *	MODEL_MARK_LATE		the mark is cleared after the heads were taken
 *	MODEL_SKIP_EMPTY	take makes no CAS on a head it found empty
 *	MODEL_TRUST_CROWDED	only one head is taken of a bin that does not look crowded
 *
 * Limits: three threads, three blocks, two rounds; a sample of the schedules, not all.
 */
#define GLK_BINS      1
#define GLK_BIN_HEADS 2

#include "base/atomic.h"

#define model_cas(p, o, n, success, failure)                                             \
	((p)->compare_exchange_strong(*(o), (n), success, $, failure, $))

#ifdef MODEL_MARK_FIRST
#define GLK_ROW_MARK(row, i)
#endif
#ifdef MODEL_NO_RELEASE
#undef glk_cas_acq_rel
#define glk_cas_acq_rel(p, o, n) model_cas(p, o, n, rl::mo_acquire, rl::mo_acquire)
#endif
#ifdef MODEL_NO_ACQUIRE
#undef glk_cas_acq_rel
#undef glk_load_acquire
#define glk_cas_acq_rel(p, o, n) model_cas(p, o, n, rl::mo_release, rl::mo_relaxed)
#define glk_load_acquire(p)	 glk_load_relaxed(p)
#endif

#include "cache/row.h"

#include "run.h"

#include <cstdint>

#define BLOCKS 3
#define ROUNDS 2

static struct glk_idnode *link_of(struct glk_idnode *nodes, uint32_t id)
{
	return &nodes[id];
}

GLK_ROW_DEFINE(model, struct glk_idnode *, link_of)

/* The same functions once more, of which the mistake uses the push. */
#ifdef MODEL_BLIND_PUSH
#undef glk_cas_acq_rel
#define glk_cas_acq_rel(p, o, n) model_cas(p, o, n, rl::mo_release, rl::mo_relaxed)
GLK_ROW_DEFINE(blind, struct glk_idnode *, link_of)
#define model_push blind_push
#endif

struct row_model : rl::test_suite<row_model, 3> {
	struct glk_row row;
	struct glk_idnode nodes[BLOCKS + 1];
	glk_plain(unsigned) payload[BLOCKS + 1];
	bool had[BLOCKS + 1];
	uint32_t kept;

	void before()
	{
		glk_store_relaxed(&row.used[0], (uint64_t)0);
		glk_store_relaxed(&row.bin[0].crowded, 0u);
		for (unsigned h = 0; h < GLK_BIN_HEADS; h++)
			glk_store_relaxed(&row.bin[0].head[h].head, (uint64_t)0);
		kept = 0;
		for (uint32_t id = 1; id <= BLOCKS; id++) {
			glk_set(payload[id], 0u);
			had[id] = true;
			give(id, 0);
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

	void give(uint32_t id, unsigned self)
	{
		if (!id)
			return;
		had[id] = false;
#ifdef MODEL_MARK_FIRST
		if (!(glk_load_relaxed(&row.used[0]) & 1))
			glk_or_relaxed(&row.used[0], (uint64_t)1);
#endif
		model_push(&row, 0, nodes, id, self);
	}

	uint32_t take(unsigned h)
	{
#ifdef MODEL_SKIP_EMPTY
		if (!(glk_load_relaxed(&row.bin[0].head[h].head) & GLK_ID_MASK))
			return 0;
#endif
		return model_take(&row, 0, h);
	}

	/* Who holds two blocks returns the first one first, which is what a tag is for. */
	void use(unsigned self)
	{
		uint32_t a, b;

		a = model_pop(&row, 0, nodes, self);
		own(a);
		b = model_pop(&row, 0, nodes, self);
		own(b);
		give(a, self);
		give(b, self);
	}

	void empty(unsigned self)
	{
		unsigned heads = GLK_BIN_HEADS;
		uint32_t mine[BLOCKS], count = 0, id, next;

#ifdef MODEL_TRUST_CROWDED
		if (!glk_load_relaxed(&row.bin[0].crowded))
			heads = 1;
#endif
#ifndef MODEL_MARK_LATE
		glk_row_unmark(&row, 0);
#endif
		for (unsigned h = 0; h < heads; h++) {
			for (id = take(h); id; id = next) {
				next = glk_load_relaxed(&nodes[id].next);
				own(id);
				mine[count++] = id;
			}
		}
#ifdef MODEL_MARK_LATE
		glk_row_unmark(&row, 0);
#endif
		if (count && !kept)
			kept = mine[--count];
		while (count)
			give(mine[--count], self);
	}

	void thread(unsigned self)
	{
		for (int round = 0; round < ROUNDS; round++) {
			if (self == 2)
				empty(self);
			else
				use(self);
		}
	}

	void after()
	{
		unsigned found = kept != 0;

		for (unsigned h = 0; h < GLK_BIN_HEADS; h++) {
			uint32_t id = 0;

			if (glk_load_relaxed(&row.used[0]) & 1)
				id = model_take(&row, 0, h);
			for (; id; id = glk_load_relaxed(&nodes[id].next)) {
				own(id);
				found++;
			}
		}
		RL_ASSERT(found == BLOCKS);
	}
};

int main()
{
	return model_run<row_model>();
}
