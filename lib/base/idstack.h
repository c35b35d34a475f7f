/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_IDSTACK_H
#define GLK_BASE_IDSTACK_H

/*
 * A stack of array slots, lock-free, for free lists. Treiber's stack (IBM RJ 5118, 1986) over
 * indices instead of pointers: the head is {tag:40, index:24} in one 64-bit word, and every
 * push and pop adds one to the tag, which is the cure of ABA. Index 0 means empty.
 *
 * Design	nodes are slots of an array that is never freed, so a stale reader reads an
 *		old `next`, never freed memory, and its CAS fails on the tag
 * Ordering	what was written before push(id) is seen after the pop that returns id
 * Progress	push, pop, take_all: lock-free
 * Callers	any thread, also in signal handlers and beside killed threads
 * Limits	2^24 - 1 slots; the tag wraps after 2^40 moves, and a wrap harms only a thread
 *		that slept between its load and its CAS for exactly that many moves
 */
#include "base/atomic.h"

#include <stdint.h>

#define GLK_ID_BITS 24
#define GLK_ID_MASK ((UINT64_C(1) << GLK_ID_BITS) - 1)
#define GLK_ID_MAX  ((uint32_t)GLK_ID_MASK)

struct glk_idstack {
	glk_atomic(uint64_t) head;
};

/* One per slot; the arrays are indexed by id, so entry 0 is not used. */
struct glk_idnode {
	glk_atomic(uint32_t) next;
};

/* Takes the step of the tag; a model plants a mistake by redefining it. */
#ifndef GLK_IDSTACK_TAG_STEP
#define GLK_IDSTACK_TAG_STEP 1
#endif

static inline uint64_t glk_idstack_next_head(uint64_t old, uint32_t id)
{
	/* a sum: an or takes gcc one instruction more */
	return old + ((uint64_t)GLK_IDSTACK_TAG_STEP << GLK_ID_BITS) +
		(id - (old & GLK_ID_MASK));
}

/* A list need not use all three; clang would warn of the others. */
#define GLK_UNUSED __attribute__((unused))

/*
 * `node` is called as node(arg, id) and gives the link of a slot, so that links may live
 * inside larger descriptors.
 */
#define GLK_IDSTACK_DEFINE(name, arg_t, node)                                            \
	GLK_UNUSED static inline void name##_push(                                       \
		struct glk_idstack *s, arg_t arg, uint32_t id)                           \
	{                                                                                \
		uint64_t old = glk_load_relaxed(&s->head);                               \
                                                                                         \
		do {                                                                     \
			glk_store_relaxed(                                               \
				&node(arg, id)->next, (uint32_t)(old & GLK_ID_MASK));    \
			/* pairs with: the acquire in pop and take_all */                \
		} while (!glk_cas_weak_release(                                          \
			&s->head, &old, glk_idstack_next_head(old, id)));                \
	}                                                                                \
                                                                                         \
	GLK_UNUSED static inline uint32_t name##_pop(struct glk_idstack *s, arg_t arg)   \
	{                                                                                \
		/* pairs with: the release in push */                                    \
		uint64_t old = glk_load_acquire(&s->head);                               \
                                                                                         \
		while (old & GLK_ID_MASK) {                                              \
			uint32_t id = (uint32_t)(old & GLK_ID_MASK);                     \
			uint32_t next = glk_load_relaxed(&node(arg, id)->next);          \
                                                                                         \
			/* pairs with: the release in push, also when it fails */        \
			if (glk_cas_weak_acquire(                                        \
				    &s->head, &old, glk_idstack_next_head(old, next)))   \
				return id;                                               \
		}                                                                        \
		return 0;                                                                \
	}                                                                                \
                                                                                         \
	/* Empties the stack; the caller walks the links of what it got. */              \
	GLK_UNUSED static inline uint32_t name##_take_all(struct glk_idstack *s)         \
	{                                                                                \
		uint64_t old = glk_load_relaxed(&s->head);                               \
                                                                                         \
		while ((old & GLK_ID_MASK) && /* pairs with: the release in push */      \
			!glk_cas_weak_acquire(                                           \
				&s->head, &old, glk_idstack_next_head(old, 0)))          \
			;                                                                \
		return (uint32_t)(old & GLK_ID_MASK);                                    \
	}

#endif
