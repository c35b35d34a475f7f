/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_ROW_H
#define GLK_CACHE_ROW_H

/*
 * The quick bins of one stream. A bin holds freed blocks of one exact size that were last used
 * on that stream, most recently freed first; a request of that size pops one, and nothing else
 * has to be known of it. A row is an array of bins beside one bit a bin, which says where
 * blocks may lie.
 *
 * Heads	a bin begins with one. Two threads that meet at it mark the bin as crowded, and
 *		from then on each thread pushes to a head of its own and pops from the others
 *		only when that is empty. A program with one thread a stream never meets anyone,
 *		so the same requests give the same addresses
 * Bits		a set bit over an empty bin costs a look; a clear bit over a full one would lose
 *		its blocks. So a push sets the bit after its CAS if it is clear, and take clears
 *		it before its own, which it makes for empty heads too: of two CAS on one head
 *		one is first, and the second sees all the other thread did before
 * Keys		what a bin is for changes under the lock of the GPU. A thread that read the old
 *		one may still push or pop once, so whoever pops compares the size of the block
 * Ordering	what was written before a push is seen after the pop or take that returns it
 * Progress	lock-free, beside stopped and killed threads too
 * Cost		push, pop: one CAS each
 */
#include "base/atomic.h"
#include "base/idstack.h"

#include <stdbool.h>
#include <stdint.h>

#ifndef GLK_BINS
#define GLK_BINS 512 /* of a row */
#endif
#ifndef GLK_BIN_HEADS
#define GLK_BIN_HEADS 4
#endif

/* Of a bin that is for no size. */
#define GLK_BIN_NONE UINT64_MAX

struct glk_bin {
	glk_atomic(uint64_t) key; /* size of its blocks, in grains */
	struct glk_idstack head[GLK_BIN_HEADS];
	glk_atomic(uint32_t) crowded;
	uint32_t refill; /* blocks carved ahead at its next miss; under the lock */
	uint64_t pad[2]; /* to a cache line */
};

struct glk_row {
	glk_atomic(void *) handle; /* of the stream; GLK_ROW_ENDED when it has ended */
	bool entered;		   /* it has bins; under the lock */
	uint64_t pad[6];
	glk_atomic(uint64_t) used[(GLK_BINS + 63) / 64];
	struct glk_bin bin[GLK_BINS];
};

#define GLK_ROW_ENDED ((void *)UINTPTR_MAX)

/* Where the bin of a size begins to be looked for: there, and beside it. */
static inline uint32_t glk_row_hash(uint64_t grains)
{
	return (uint32_t)((uint32_t)grains * UINT64_C(0x9e3779b1) % (UINT64_C(1) << 32) >>
		       16) %
		GLK_BINS;
}

/* The bin of a size; GLK_BINS if there is none. */
static inline uint32_t glk_row_find(const struct glk_row *row, uint64_t grains)
{
	uint32_t i = glk_row_hash(grains);

	if (glk_load_relaxed(&row->bin[i].key) == grains)
		return i;
	i ^= 1;
	return glk_load_relaxed(&row->bin[i].key) == grains ? i : GLK_BINS;
}

/* A model plants a mistake by redefining it. */
#ifndef GLK_ROW_MARK
#define GLK_ROW_MARK(row, i)                                                             \
	do {                                                                             \
		if (!(glk_load_relaxed(&(row)->used[(i) / 64]) >> (i) % 64 & 1))         \
			glk_or_relaxed(&(row)->used[(i) / 64], UINT64_C(1) << (i) % 64); \
	} while (0)
#endif

/* What a thread alone on its stream never runs. */
#define GLK_ROW_APART __attribute__((noinline))

/*
 * `node` is called as node(arg, id) and gives the link of a block. `thread` is any number that
 * differs between threads.
 */
#define GLK_ROW_DEFINE(name, arg_t, node)                                                      \
	GLK_UNUSED static inline void name##_push(struct glk_row *row, uint32_t i,             \
		arg_t arg, uint32_t id, uint32_t thread)                                       \
	{                                                                                      \
		struct glk_bin *bin = &row->bin[i];                                            \
		struct glk_idstack *s = &bin->head[0];                                         \
		uint64_t old;                                                                  \
                                                                                               \
		if (glk_load_relaxed(&bin->crowded))                                           \
			s = &bin->head[thread % GLK_BIN_HEADS];                                \
		old = glk_load_relaxed(&s->head);                                              \
		for (;;) {                                                                     \
			glk_store_relaxed(                                                     \
				&node(arg, id)->next, (uint32_t)(old & GLK_ID_MASK));          \
			/* pairs with: the acquire in pop and take, and its release */         \
			if (glk_cas_acq_rel(                                                   \
				    &s->head, &old, glk_idstack_next_head(old, id)))           \
				break;                                                         \
			glk_store_relaxed(&bin->crowded, 1);                                   \
		}                                                                              \
		GLK_ROW_MARK(row, i);                                                          \
	}                                                                                      \
                                                                                               \
	GLK_UNUSED static inline uint32_t name##_pop_head(                                     \
		struct glk_bin *bin, uint32_t h, arg_t arg)                                    \
	{                                                                                      \
		struct glk_idstack *s = &bin->head[h];                                         \
		/* pairs with: the release in push */                                          \
		uint64_t old = glk_load_acquire(&s->head);                                     \
                                                                                               \
		while (old & GLK_ID_MASK) {                                                    \
			uint32_t id = (uint32_t)(old & GLK_ID_MASK);                           \
			uint32_t next = glk_load_relaxed(&node(arg, id)->next);                \
                                                                                               \
			/* pairs with: the release in push, also when it fails */              \
			if (glk_cas_acq_rel(                                                   \
				    &s->head, &old, glk_idstack_next_head(old, next)))         \
				return id;                                                     \
			glk_store_relaxed(&bin->crowded, 1);                                   \
		}                                                                              \
		return 0;                                                                      \
	}                                                                                      \
                                                                                               \
	GLK_UNUSED static GLK_ROW_APART uint32_t name##_pop_crowded(                           \
		struct glk_bin *bin, arg_t arg, uint32_t thread)                               \
	{                                                                                      \
		uint32_t id = 0;                                                               \
                                                                                               \
		for (uint32_t h = 0; h < GLK_BIN_HEADS && !id; h++)                            \
			id = name##_pop_head(bin, (thread + h) % GLK_BIN_HEADS, arg);          \
		return id;                                                                     \
	}                                                                                      \
                                                                                               \
	/* 0: the bin is empty, or became so meanwhile. */                                     \
	GLK_UNUSED static inline uint32_t name##_pop(                                          \
		struct glk_row *row, uint32_t i, arg_t arg, uint32_t thread)                   \
	{                                                                                      \
		struct glk_bin *bin = &row->bin[i];                                            \
                                                                                               \
		if (glk_load_relaxed(&bin->crowded))                                           \
			return name##_pop_crowded(bin, arg, thread);                           \
		return name##_pop_head(bin, 0, arg);                                           \
	}                                                                                      \
                                                                                               \
	/* Empties one head of a bin; the caller walks the links. The mark of the bin is     \
	 * cleared before its first head is taken. */ \
	GLK_UNUSED static inline uint32_t name##_take(                                         \
		struct glk_row *row, uint32_t i, uint32_t h)                                   \
	{                                                                                      \
		struct glk_idstack *s = &row->bin[i].head[h];                                  \
		uint64_t old = glk_load_relaxed(&s->head);                                     \
                                                                                               \
		/* pairs with: the CAS of push */                                              \
		while (!glk_cas_acq_rel(&s->head, &old, glk_idstack_next_head(old, 0)))        \
			;                                                                      \
		return (uint32_t)(old & GLK_ID_MASK);                                          \
	}

/* Clears the mark of a bin, before it is taken. */
static inline void glk_row_unmark(struct glk_row *row, uint32_t i)
{
	glk_and_acq_rel(&row->used[i / 64], ~(UINT64_C(1) << i % 64));
}

#endif
