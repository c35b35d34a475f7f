/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_REFUSAL_H
#define GLK_CACHE_REFUSAL_H

/*
 * The last request of a GPU that was refused for want of memory, with what is to be told of it: see
 * glake/refusal.h. Figures are had for each one, which costs about as much as a look at them. The
 * walk of addresses is had for one a second at most, and ends after REFUSAL_RUNS runs.
 */
#include "move/gpu.h"

struct glk_request;

#define GLK_REFUSAL_EVERY_NS INT64_C(1000000000)
#define GLK_REFUSAL_RUNS     100000
#define GLK_REFUSAL_TEXT     8192 /* bytes, with the zero */

/* Writes it, in a form of glake/refusal.h; the bytes without the zero. `now` is the
 * time, `gpu` the number. */
size_t glk_refusal_print(const struct glk_refusal *r, int gpu, int form, int64_t now,
	char *buffer, size_t size);

#endif
