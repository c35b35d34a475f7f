/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_ROW_H
#define GLK_CACHE_ROW_H

/*
 * The quick bins of one stream. A bin holds freed blocks of one exact size that were last used
 * on that stream, most recently freed first; a request of that size pops one, and nothing else
 * has to be known of it. A row is what an array of bins has in common.
 *
 * Heads	a bin has one. Where two threads meet at it, it is given a crowd: more heads, a
 *		cache line each. From then on each thread pushes to a head of its own and pops
 *		from the others only when that is empty. A program with one thread a stream
 *		never meets anyone, so the same requests give the same addresses
 * Touched	says that some bin of the row may hold a block. A set one over empty bins costs a
 *		look; a clear one over a block would lose it to those who want them all. So a
 *		push sets it after its CAS if it is clear, and who takes them all clears it
 *		before it pops from the first head. All four are sequentially consistent: either
 *		the push sees it cleared, or the pop sees the push
 * Keys		what a bin is for changes under the lock of the GPU. Blocks that were given out
 *		for the old key still come back to the bin, so whoever pops compares the size
 * Ordering	what was written before a push is seen after the pop that returns it
 * Progress	lock-free, beside stopped and killed threads too
 * Cost		push, pop: one CAS each
 */
#include "base/atomic.h"
#include "base/idstack.h"
#include "cache/bin/lookaside.h"

#include <stdbool.h>
#include <stdint.h>

#ifndef GLK_BINS
#define GLK_BINS 512 /* of a row */
#endif
#ifndef GLK_CROWD_HEADS
#define GLK_CROWD_HEADS 8
#endif

/* The key of a bin is the size of its blocks, in grains; with this bit where it has a crowd, so
 * that one comparison finds a bin that has none. */
#define GLK_BIN_CROWDED (UINT64_C(1) << 63)
/* Of a bin that is for no size: what new memory holds, so that a row costs no more of it than its sizes need. */
#define GLK_BIN_NONE UINT64_C(0)

struct glk_crowd {
	struct {
		struct glk_idstack head;
		uint64_t pad[7];
	} at[GLK_CROWD_HEADS];
};

struct glk_bin {
	struct glk_idstack head; /* first, since hits swap it */
	glk_atomic(uint64_t) key;
	glk_atomic(struct glk_crowd *) crowd; /* NULL: nobody met anyone here */
	uint32_t refill; /* blocks carved ahead at its next miss; under the lock */
	uint32_t pad[9]; /* to a cache line */
};

struct glk_row {
	/* Of the stream; GLK_ROW_ENDED when it has ended, and while no request may be a hit. */
	glk_atomic(void *) handle;
	glk_atomic(uint32_t) touched; /* its bins may hold blocks, or its list */
	glk_atomic(bool) entered;     /* it has bins */
	glk_atomic(uint8_t) own;      /* the number of its stream's arena; 0: none */
	uint16_t seat;	     /* of who missed last, as far as it fits; under the lock */
	struct glk_bin *bin; /* GLK_BINS of them */
	struct glk_lookaside aside;
	uint64_t keyed[(GLK_BINS + 63) /
		64];  /* a bit a bin that has a key; under the lock */
	uint64_t key; /* the handle as such, under the lock */
	/* Born on the stream and not merged yet: live blocks, and those in its bins. Written under the
	 * lock, read without it too. */
	uint64_t blocks, bytes;
	uint16_t met; /* others at the lock, of late: see quick.h; likewise */
	uint16_t
		same; /* misses since another thread had one, while there are several: see own.h; under the lock */
	uint32_t turn; /* of the places of its list; likewise */
	uint64_t pad[24 - (GLK_BINS + 63) / 64 - 2 * GLK_LOOKASIDE];
};

#define GLK_ROW_ENDED  ((void *)UINTPTR_MAX)
#define GLK_ROW_NOBODY ((uint64_t)UINTPTR_MAX) /* the key of one that has ended */

/* Where the bin of a size begins to be looked for: there, and beside it. */
static inline uint32_t glk_row_hash(uint64_t grains)
{
	return (uint32_t)grains * UINT32_C(0x9e3779b1) / (UINT32_MAX / GLK_BINS + 1);
}

static inline uint64_t glk_bin_grains(const struct glk_bin *bin)
{
	return glk_load_relaxed(&bin->key) & ~GLK_BIN_CROWDED;
}

/* The bin of a size; GLK_BINS if there is none. */
static inline uint32_t glk_row_find(const struct glk_row *row, uint64_t grains)
{
	uint32_t i = glk_row_hash(grains);

	if (glk_bin_grains(&row->bin[i]) == grains)
		return i;
	i ^= 1;
	return glk_bin_grains(&row->bin[i]) == grains ? i : GLK_BINS;
}

/*
 * `node` is called as node(arg, id) and gives the link of a block. `thread` is any number that
 * differs between threads. What ends in _alone or _once is the case of a bin that no two threads
 * met at: false, with nothing changed, sends the caller to the other one.
 */
#define GLK_ROW_DEFINE(name, arg_t, node)                                                \
	GLK_UNUSED static inline void name##_touch(struct glk_row *row)                  \
	{                                                                                \
		/* pairs with: glk_row_untouch */                                        \
		if (!glk_load_seq_cst(&row->touched))                                    \
			glk_store_relaxed(&row->touched, 1);                             \
	}                                                                                \
                                                                                         \
	GLK_UNUSED static inline bool name##_push_head(struct glk_row *row,              \
		struct glk_idstack *s, struct glk_idnode *link, uint32_t id)             \
	{                                                                                \
		uint64_t old = glk_load_relaxed(&s->head);                               \
                                                                                         \
		glk_store_relaxed(&link->next, (uint32_t)(old & GLK_ID_MASK));           \
		/* pairs with: the look in pop */                                        \
		if (!glk_cas_seq_cst(&s->head, &old, glk_idstack_next_head(old, id)))    \
			return false;                                                    \
		name##_touch(row);                                                       \
		return true;                                                             \
	}                                                                                \
                                                                                         \
	GLK_UNUSED static inline bool name##_push_alone(struct glk_row *row,             \
		struct glk_bin *bin, struct glk_idnode *link, uint32_t id)               \
	{                                                                                \
		return !glk_load_relaxed(&bin->crowd) &&                                 \
			name##_push_head(row, &bin->head, link, id);                     \
	}                                                                                \
                                                                                         \
	/* Whether somebody else was there. */                                           \
	GLK_UNUSED static inline bool name##_push(struct glk_row *row, uint32_t i,       \
		arg_t arg, uint32_t id, uint32_t thread)                                 \
	{                                                                                \
		/* pairs with: the release where it is given */                          \
		struct glk_crowd *crowd = glk_load_acquire(&row->bin[i].crowd);          \
		struct glk_idstack *s = &row->bin[i].head;                               \
		bool met = false;                                                        \
                                                                                         \
		if (crowd)                                                               \
			s = &crowd->at[thread % GLK_CROWD_HEADS].head;                   \
		while (!name##_push_head(row, s, node(arg, id), id))                     \
			met = true;                                                      \
		return met && !crowd;                                                    \
	}                                                                                \
                                                                                         \
	/* 0: empty, or somebody was there at the same time. */                          \
	GLK_UNUSED static inline uint32_t name##_pop_once(                               \
		struct glk_idstack *s, arg_t arg)                                        \
	{                                                                                \
		/* pairs with: the CAS in push */                                        \
		uint64_t old = glk_load_seq_cst(&s->head);                               \
		uint32_t id = (uint32_t)(old & GLK_ID_MASK), next;                       \
                                                                                         \
		if (!id)                                                                 \
			return 0;                                                        \
		next = glk_load_relaxed(&node(arg, id)->next);                           \
		/* pairs with: the CAS in push */                                        \
		if (!glk_cas_acq_rel(&s->head, &old, glk_idstack_next_head(old, next)))  \
			return 0;                                                        \
		return id;                                                               \
	}                                                                                \
                                                                                         \
	GLK_UNUSED static inline uint32_t name##_pop_head(                               \
		struct glk_idstack *s, arg_t arg)                                        \
	{                                                                                \
		uint32_t id;                                                             \
                                                                                         \
		do {                                                                     \
			id = name##_pop_once(s, arg);                                    \
		} while (!id && (glk_load_relaxed(&s->head) & GLK_ID_MASK));             \
		return id;                                                               \
	}                                                                                \
                                                                                         \
	/* 0: the bin is empty, or became so meanwhile. */                               \
	GLK_UNUSED static inline uint32_t name##_pop(                                    \
		struct glk_row *row, uint32_t i, arg_t arg, uint32_t thread)             \
	{                                                                                \
		/* pairs with: the release where it is given */                          \
		struct glk_crowd *crowd = glk_load_acquire(&row->bin[i].crowd);          \
		uint32_t id = 0;                                                         \
                                                                                         \
		for (uint32_t h = 0; crowd && h < GLK_CROWD_HEADS && !id; h++)           \
			id = name##_pop_head(                                            \
				&crowd->at[(thread + h) % GLK_CROWD_HEADS].head, arg);   \
		return id ? id : name##_pop_head(&row->bin[i].head, arg);                \
	}

/* Before all bins of a row are taken: whether there may be any block in them. */
static inline bool glk_row_untouch(struct glk_row *row)
{
	/* pairs with: the load in touch */
	return glk_load_relaxed(&row->touched) && glk_xchg_seq_cst(&row->touched, 0);
}

#endif
