/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_GUARD_PATTERN_H
#define GLK_GUARD_PATTERN_H

/*
 * What guard writes where nobody should: each word of 32 bits by its address and a secret of the process, so that
 * neither a constant nor another place's pattern passes for it. Memory that was freed has words of which both halves,
 * and the whole, are no number (NaN) in every format of floating point, and negative as integers: it is what the next
 * block comes with. And what kernels are given. This is read by the C of the library and by the compiler for the GPU
 * alike.
 */
#include <stdint.h>

#ifdef __CUDACC__
#define GLK_ON_GPU __device__
#else
#define GLK_ON_GPU
#endif

/* Threads of a block, of which 32 look at one canary. */
#define GLK_GUARD_THREADS 256
#define GLK_GUARD_LANES	  32

/* The longest canary. It ends at a multiple of 16, so that as many lanes read it with 16 bytes each. */
#define GLK_CANARY_MOST 512

/* A word at a multiple of 4, of a canary and of freed memory. */
static GLK_ON_GPU inline uint32_t glk_guard_word(uint64_t addr, uint32_t secret)
{
	uint32_t x = (uint32_t)(addr >> 2) * UINT32_C(0x9e3779b1);

	return (x ^ (x >> 15)) + secret;
}

static GLK_ON_GPU inline uint32_t glk_guard_freed_word(uint64_t addr, uint32_t secret)
{
	return UINT32_C(0xffc0ffc0) |
		(glk_guard_word(addr, secret) & UINT32_C(0x003f003f));
}

static GLK_ON_GPU inline uint8_t glk_guard_byte(uint64_t addr, uint32_t secret)
{
	return (uint8_t)(glk_guard_word(addr & ~UINT64_C(3), secret) >> (addr & 3) * 8);
}

static GLK_ON_GPU inline uint8_t glk_guard_freed_byte(uint64_t addr, uint32_t secret)
{
	return (uint8_t)(glk_guard_freed_word(addr & ~UINT64_C(3), secret) >>
		(addr & 3) * 8);
}

/* A block to fill: so many bytes as of freed memory, a canary behind them, and one before them. */
struct glk_guard_range {
	uint64_t addr, body;
	uint32_t canary, front;
	uint32_t secret, unused;
};

/* Bytes that were found wrong; `first` is the offset of the first, and UINT64_MAX before any was. */
struct glk_guard_found {
	uint64_t first, count;
};

/* A block that was freed, and what is found wrong in it: `body` from its address on, `canary` from its end on. */
struct glk_guard_look {
	uint64_t addr, asked;
	uint32_t length; /* of the canary */
	uint32_t parts;	 /* blocks of the kernel that look at the body; 0: nobody does */
	uint32_t ended;	 /* of these; or 1 when the canary was looked at */
	uint32_t unused;
	struct glk_guard_found body, canary;
};

/* A ring of them, in memory of the host: as many as blocks are known that were freed, so that each of these can wait for one. */
#define GLK_GUARD_LOOKS 16384

/* So many of the ring, from one on. */
struct glk_guard_run {
	uint64_t looks; /* address of the ring */
	uint32_t first, count;
	uint32_t secret;
	uint32_t
		parts; /* blocks of the kernel for each, of which it may need fewer; 0: canaries alone */
};

/* Bytes of a body that one part looks at, at the least. */
#define GLK_GUARD_PART (UINT64_C(256) << 10)

/* A table of canaries, of which a warp looks at some together. */
#define GLK_GUARD_TOGETHER 4

struct glk_guard_entry {
	uint64_t addr, bytes;
};

/* Of these, those in which something is wrong, as many as there is room for. */
#define GLK_GUARD_FOUND 64

struct glk_guard_founds {
	uint32_t count, unused;
	struct {
		struct glk_guard_found found;
		uint32_t index, unused;
	} at[GLK_GUARD_FOUND];
};

struct glk_guard_table {
	uint64_t entries; /* address of struct glk_guard_entry */
	uint64_t founds;  /* address of a struct glk_guard_founds */
	uint32_t count;
	uint32_t secret;
};

#endif
