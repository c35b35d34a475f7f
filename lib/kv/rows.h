/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_KV_ROWS_H
#define GLK_KV_ROWS_H

/*
 * Rows of a lane that are copied by their numbers from wherever they lie: what the kernel is given. This is read by the C
 * of the library and by the compiler for the GPU alike.
 */
#include <stdint.h>

/* Bytes of a place of the table, and of a row at the most: it lies in two of them. */
#define GLK_KV_PLACE (UINT64_C(256) << 10)

/* Threads of a block, of which 32 copy one row, and what each reads before it writes. */
#define GLK_KV_THREADS 256
#define GLK_KV_LANES   32
#define GLK_KV_AT_ONCE 8
/* The most blocks: enough to have the link busy. */
#define GLK_KV_BLOCKS 528

struct glk_kv_rows {
	uint64_t indices; /* of uint32_t */
	uint64_t to;	  /* rows one behind the other */
	uint64_t places,
		bytes; /* where each part of the lane lies, 0 for nowhere; and of how many bytes */
	uint64_t step;	 /* from a row to the next */
	uint32_t offset; /* of what is copied of it, */
	uint32_t size;	 /* and bytes: multiples of 16, as the step */
	uint32_t count;
};

#endif
