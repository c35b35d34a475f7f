/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_FIGURES_H
#define GLAKE_FIGURES_H

/*
 * All figures of a context by name, for what shows, keeps or sends them on and knows none of them
 * itself: those of stats.h, and those of uvm.h where they are open, each with its unit, its kind and
 * a sentence. A name does not change and does not come to mean another thing; there will be more of
 * them.
 */
#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;

/* What happens to a figure. */
enum glake_figure_kind {
	GLAKE_FIGURE_GAUGE = 0,	  /* goes up and down, as bytes held */
	GLAKE_FIGURE_COUNTER = 1, /* only goes up, as requests served */
	/* How long each of many calls took, since open; the value is how many there were. */
	GLAKE_FIGURE_HISTOGRAM = 2,
};

enum glake_figure_unit {
	GLAKE_FIGURE_NUMBER = 0,
	GLAKE_FIGURE_BYTES = 1,
	GLAKE_FIGURE_NS = 2,	/* nanoseconds */
	GLAKE_FIGURE_RATIO = 3, /* in millionths; UINT64_MAX: of nothing */
};

/*
 * Times of calls in buckets whose bounds are the same for ever: at[0] counts those below 128 ns,
 * at[i] those below 128 << i that are in no lower one, and the last all that are longer. Read while
 * calls are made, a bucket may have one that the sum and the longest lack. Requests and frees that neither wait nor
 * have anything to do but to book what is there are all alike: one in 16 is timed, and stands for the others.
 */
#define GLAKE_HISTOGRAM_BUCKETS 29

struct glake_histogram {
	uint64_t count;	       /* of all buckets */
	uint64_t sum, longest; /* ns */
	uint64_t at[GLAKE_HISTOGRAM_BUCKETS];
};

/* One figure. The texts are the library's and stay, but for `of` and `times`, which are there until
 * the function that takes the figure returns. */
struct glake_figure {
	size_t sz;	  /* of the structure, set by the library */
	const char *name; /* as "live_bytes", "hold_max_ns", "hits" */
	const char *help; /* a sentence */
	int kind;	  /* enum glake_figure_kind */
	int unit;	  /* enum glake_figure_unit */
	int device;	  /* GPU number; -1: of the whole context */
	/* Where there are several of a name: what they are told apart by, as "call", "rung", "tier",
	 * "node" or "stream", and which this is, as "set_access". Else NULL. */
	const char *label;
	const char *of;
	uint64_t value;			     /* "budget_bytes": UINT64_MAX is none */
	const struct glake_histogram *times; /* of a histogram; else NULL */
};

/* Takes one figure; anything but 0 ends the walk. */
typedef int (*glake_figure_fn)(const struct glake_figure *figure, void *arg);

/*
 * Hands all figures to a function, those of one name together: of each GPU that the context has
 * been asked for memory of, and of the context. They are gathered before the first is handed out,
 * those of struct glake_stats of a GPU at one time, and cost the program nothing but that: free pages
 * are walked for a few microseconds at a time, bins without a lock. The function may call any
 * other, but must not close the context.
 *
 * Returns 0, what the function returned that was not 0, or -EINVAL (NULL), -ENOMEM, -ESTALE,
 * -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_figures(struct glake *ctx, glake_figure_fn fn, void *arg);

enum glake_figures_format {
	GLAKE_FIGURES_JSON = 0,	      /* as `glakectl stat --json` has it */
	GLAKE_FIGURES_PROMETHEUS = 1, /* text that Prometheus scrapes, version 0.0.4 */
};

/*
 * Writes the same figures as text, ended by a zero, into a buffer of the caller, and says how long
 * it is without that. With a NULL buffer only that is said; figures may be longer at the next
 * call. A GPU has less than 32 KiB of either, and a context less than 48 KiB beside them.
 *
 * Returns 0, or -EINVAL (no such format, NULL), -ENOSPC (longer than `size`; the buffer then holds
 * nothing of meaning), -ENOMEM, -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_figures_text(
	struct glake *ctx, int format, char *buffer, size_t size, size_t *ret_length);

GLAKE_END_DECLS

#endif
