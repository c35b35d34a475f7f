/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_GUARD_PATTERN_H
#define GLK_GUARD_PATTERN_H

/*
 * The pattern that guard writes where nobody should: each word of 32 bits by its address and a secret of the
 * process, so that neither a constant nor another place's pattern passes for it. And what kernels are given. This
 * is read by the C of the library and by the compiler for the GPU alike.
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

/* A word at a multiple of 4. */
static GLK_ON_GPU inline uint32_t glk_guard_word(uint64_t addr, uint32_t secret)
{
	uint32_t x = (uint32_t)(addr >> 2) * UINT32_C(0x9e3779b1);

	return (x ^ (x >> 15)) + secret;
}

static GLK_ON_GPU inline uint8_t glk_guard_byte(uint64_t addr, uint32_t secret)
{
	return (uint8_t)(glk_guard_word(addr & ~UINT64_C(3), secret) >> (addr & 3) * 8);
}

/* What was found wrong in a range. `first` begins as UINT64_MAX: the offset of a byte. */
struct glk_guard_found {
	uint64_t first, count;
	uint32_t ended; /* blocks of the kernel that are through */
	uint32_t index; /* of a table: which range */
};

/* One range: to fill, or to look at. */
struct glk_guard_range {
	uint64_t addr, bytes;
	uint64_t found; /* address of a struct glk_guard_found; 0 for a fill */
	uint32_t secret;
	uint32_t blocks; /* that the kernel has */
};

/* A table of short ranges. */
struct glk_guard_entry {
	uint64_t addr;
	uint32_t bytes;
	uint32_t unused;
};

/* Of these, those in which something is wrong, as many as there is room for. */
#define GLK_GUARD_FOUND 64

struct glk_guard_founds {
	uint32_t count, ended;
	struct glk_guard_found at[GLK_GUARD_FOUND];
};

struct glk_guard_table {
	uint64_t entries; /* address of struct glk_guard_entry */
	uint64_t founds;  /* address of a struct glk_guard_founds */
	uint32_t count;
	uint32_t secret;
};

#endif
