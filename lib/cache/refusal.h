/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_REFUSAL_H
#define GLK_CACHE_REFUSAL_H

/*
 * The last request of a GPU that was refused for want of memory, with what is to be told of it: see
 * glake/refusal.h. Figures are had for each one, which costs about as much as a look at them. The
 * walk of addresses is had for one a second at most, and ends after REFUSAL_RUNS runs.
 */
#include <glake/error.h>
#include <glake/map.h>
#include <glake/stats.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct glk_request;

#define GLK_REFUSAL_EVERY_NS INT64_C(1000000000)
#define GLK_REFUSAL_RUNS     100000
#define GLK_REFUSAL_OWNERS   10
#define GLK_REFUSAL_TEXT     8192 /* bytes, with the zero */

/* Live blocks that have something in common. */
struct glk_owner {
	uint64_t
		name; /* the largest size there is of them, as a power of two; a stream */
	uint64_t count, bytes;
};

/* Runs of one state. */
struct glk_pieces {
	uint64_t count, bytes, largest;
};

struct glk_refusal {
	uint64_t count; /* since the GPU was opened; 0: none */
	int64_t at;	/* glk_clock_ns() */
	uint64_t asked, stream;
	uint64_t
		lacked; /* bytes of pages more that it found no room for, as far as is known */
	uint32_t flags;
	bool graph; /* it was for a pool of graphs */
	struct glake_error why;
	struct glake_stats stats;
	uint64_t host_budget; /* UINT64_MAX: none */
	bool places, may_place;
	bool large; /* there are pages of several slots */
	/* The walk. */
	struct {
		uint64_t count; /* of them all */
		int64_t at;
		uint64_t runs;
		bool whole;
		uint64_t device_free,
			device_total; /* as the driver tells; both 0: it does not */
		struct glk_pieces pieces[GLAKE_RUN_STATES];
		uint64_t late; /* a stream of those that limbo waits for */
		struct glk_owner sizes[GLK_REFUSAL_OWNERS], streams[GLK_REFUSAL_OWNERS];
	} walk;
};

/* refusal_text.c: writes it, in a form of glake/refusal.h; the bytes without the zero. `now` is the
 * time, `gpu` the number. */
size_t glk_refusal_print(const struct glk_refusal *r, int gpu, int form, int64_t now,
	char *buffer, size_t size);

#endif
