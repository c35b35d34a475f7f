/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The real lib/base/idstack.h under relacy: three threads pop, write to what they own, push,
 * and take all, under schedules and memory orders drawn at random. Two owners of one slot, or
 * an owner that does not see the last one's writes, race on the payload; a lost slot is
 * missing at the end.
 *
 * Built four times: as it is, and with one mistake planted each time, which must be found.
 * Limits: three threads, three slots, two rounds; a sample of the schedules, not all.
 */
#include "base/idstack.h"

#include "run.h"

#include <cstdint>

#ifdef MODEL_RELAXED_PUSH
#undef glk_cas_weak_release
#define glk_cas_weak_release(p, o, n) glk_cas_weak_relaxed(p, o, n)
#endif
#ifdef MODEL_RELAXED_POP
#undef glk_load_acquire
#undef glk_cas_weak_acquire
#define glk_load_acquire(p)	      glk_load_relaxed(p)
#define glk_cas_weak_acquire(p, o, n) glk_cas_weak_relaxed(p, o, n)
#endif

#define SLOTS  3
#define ROUNDS 2

static struct glk_idnode *link_of(struct glk_idnode *nodes, uint32_t id)
{
	return &nodes[id];
}

GLK_IDSTACK_DEFINE(model, struct glk_idnode *, link_of)

struct stack_model : rl::test_suite<stack_model, 3> {
	struct glk_idstack stack;
	struct glk_idnode nodes[SLOTS + 1];
	glk_plain(unsigned) payload[SLOTS + 1];

	void before()
	{
		glk_store_relaxed(&stack.head, (uint64_t)0);
		for (uint32_t id = 1; id <= SLOTS; id++) {
			glk_set(payload[id], 0u);
			model_push(&stack, nodes, id);
		}
	}

	void own(uint32_t id)
	{
		unsigned seen = glk_get(payload[id]);

		glk_set(payload[id], seen + 1);
	}

	void give(uint32_t id)
	{
		if (id)
			model_push(&stack, nodes, id);
	}

	/* One thread takes all, the others hold two at a time and return the first first. */
	void thread(unsigned self)
	{
		for (int round = 0; round < ROUNDS; round++) {
			uint32_t a =
				self ? model_pop(&stack, nodes) : model_take_all(&stack);
			uint32_t b;

			while (!self && a) {
				uint32_t next = glk_load_relaxed(&nodes[a].next);

				own(a);
				give(a);
				a = next;
			}
			if (a)
				own(a);
			b = self ? model_pop(&stack, nodes) : 0;
			if (b)
				own(b);
			give(a);
			give(b);
		}
	}

	void after()
	{
		bool found[SLOTS + 1] = {};
		uint32_t id = (uint32_t)(glk_load_relaxed(&stack.head) & GLK_ID_MASK);

		for (unsigned i = 0; i < SLOTS; i++) {
			RL_ASSERT(id >= 1 && id <= SLOTS && !found[id]);
			found[id] = true;
			id = glk_load_relaxed(&nodes[id].next);
		}
		RL_ASSERT(!id);
	}
};

int main()
{
	return model_run<stack_model>();
}
