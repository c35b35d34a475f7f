/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_IO_PLAN_H
#define GLK_TIER_IO_PLAN_H

/*
 * Which path the next piece of a copy takes, and when it will have arrived: arithmetic on a clock
 * that the caller tells, so that it is tried without a GPU.
 *
 * A path is one hop, or two with a buffer of a few slots between them. A hop goes over one to four
 * links at once. A link is booked until it could have carried all that was put on it; in which order
 * it carries that is nobody's business here, so a piece that comes late leaves no gap before it.
 * A piece goes to the path over which it arrives first, by what the links carry and by what is
 * booked on them already. Of those over which it arrives not much later it goes to the one whose own
 * link has the least to do, then to the first: paths that share a link are served alike by it, so they
 * had better have as much to bring. So links that are shared count once, a path that
 * others keep busy is taken less, and no weights are needed.
 */
#include <stdbool.h>
#include <stdint.h>

#define GLK_PLAN_HOPS  2
#define GLK_PLAN_LANES 4 /* links of a hop */
#define GLK_PLAN_SLOTS 16

struct glk_plan_link {
	double rate; /* bytes a ns; 0: no limit */
	double free; /* ns, when what is booked has passed */
};

/* Between two hops, of all paths that go through it. */
struct glk_plan_buffer {
	unsigned slots;
	double held[GLK_PLAN_SLOTS]; /* when each slot is free */
	unsigned next;		     /* slot of the next piece */
	bool off;		     /* it takes none */
};

struct glk_plan_path {
	struct glk_plan_link
		*hop[GLK_PLAN_HOPS][GLK_PLAN_LANES]; /* NULL: no more of them */
	struct glk_plan_link
		*own; /* one of them, which carries the least for other paths */
	struct glk_plan_buffer *buffer; /* NULL: one hop */
	bool off;			/* it takes none */
};

/* When a piece would have arrived that may begin at `now`. */
double glk_plan_arrival(const struct glk_plan_path *path, uint64_t bytes, double now);
/* The path that the next piece takes: its index, or -1 if all are off. */
int glk_plan_pick(
	const struct glk_plan_path *paths, unsigned count, uint64_t bytes, double now);
/* It has taken it: when it will have arrived. */
double glk_plan_book(struct glk_plan_path *path, uint64_t bytes, double now);

#endif
