/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SHARE_ALIKE_H
#define GLK_SHARE_ALIKE_H

/*
 * What contents of memory are told apart by: a number of 128 bits of each part, and a look at every byte of parts whose
 * numbers are equal. This is read by the C of the library and by the compiler for the GPU alike.
 *
 * Number	thread t of a part takes its words of 16 bytes t, t + THREADS, ..., each 32 bits by a step of its own
 *		chain: rotated, mixed in and multiplied. Then each chain is stirred with the number of its thread, and
 *		they are added up. It tells random contents apart, and is no wall against who makes equal ones: nothing
 *		is equal before it was compared
 */
#include <stdint.h>

#ifdef __CUDACC__
#define GLK_ALIKE_FN static __device__
#else
#define GLK_ALIKE_FN static inline
#endif

#define GLK_ALIKE_THREADS 128
/* Words that a thread has under way. A part is whole rounds of these: 16 KiB. */
#define GLK_ALIKE_DEEP	8
#define GLK_ALIKE_ROUND (GLK_ALIKE_THREADS * GLK_ALIKE_DEEP * 16)

struct glk_alike_number {
	uint32_t word[4];
};

/* Numbers of parts from `addr` on. */
struct glk_alike_hash {
	uint64_t addr, part, count;
	uint64_t numbers; /* where they go */
};

struct glk_alike_pair {
	uint64_t a, b;
	uint64_t differ; /* by the kernel: not 0, they do */
};

struct glk_alike_compare {
	uint64_t pairs, count, part;
};

GLK_ALIKE_FN uint32_t glk_alike_step(uint32_t chain, uint32_t word)
{
	chain ^= word;
	chain = chain << 13 | chain >> 19;
	return chain * 0x9e3779b1u + 0x85ebca77u;
}

/* Of the end of a chain, which is number `of` of 4 of a thread. */
GLK_ALIKE_FN uint32_t glk_alike_stir(uint32_t chain, uint32_t thread, uint32_t of)
{
	chain += (thread * 4 + of) * 0xc2b2ae3du;
	chain ^= chain >> 15;
	chain *= 0x85ebca77u;
	chain ^= chain >> 13;
	chain *= 0xc2b2ae3du;
	return chain ^ chain >> 16;
}

#endif
