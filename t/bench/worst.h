/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_WORST_H
#define GLK_TOOL_WORST_H

/*
 * What the patterns of worst of bench-more work with: a context or more, room for as many blocks and
 * streams as there are to be, and the longest calls of a round so far.
 *
 * Time is that of the thread on its processor, so that what else runs on the machine does not
 * count, and without that of reading it.
 */
#include <glake/glake.h>

#include <stdbool.h>
#include <stdint.h>

#define WORST_CONTEXTS 64
#define WORST_MIB      ((size_t)1 << 20)

enum worst_figure {
	WORST_FREE,    /* the longest free */
	WORST_REQUEST, /* the longest request for which nothing was mapped */
	WORST_MAPPING, /* the longest one for which something was; the device's time is in it */
	WORST_CALL, /* the longest of the other calls that a pattern is about */
	WORST_HOLD, /* the longest time under the lock of the GPU */
	WORST_PAIR, /* mean of a request and its free, many in a row */
	WORST_FIGURES,
};

/* How long each call took in its quickest round: all rounds of a pattern make the same ones. */
struct worst_quickest {
	double *ns;
	size_t used, room;
};

struct worst_scene {
	unsigned count; /* of what the pattern varies */
	struct glake *ctx[WORST_CONTEXTS];
	struct glake *last; /* the one that is used */
	int device;
	void **block;		     /* `count` of them */
	struct CUstream_st **stream; /* as many */
	bool watched;
	int64_t clock_cost;
	double figure[WORST_FIGURES];	 /* ns; below 0: there was none */
	struct worst_quickest *quickest; /* of each figure; this round's follow */
	size_t noted[WORST_FIGURES];
	uint64_t
		calls; /* of the driver, most for a request for which nothing was mapped */
};

#define WORST_COUNTS 6 /* of a pattern, with the 0 that ends them */

struct worst_pattern {
	const char *name, *against;
	const unsigned *counts;
	int (*play)(struct worst_scene *scene);
	/* Beside those of all: see open_contexts(). */
	const char *settings[2];
};

/* worst_blocks.c, worst_many.c: the patterns of the table in bench_worst.c. */
int worst_bin_merges(struct worst_scene *scene);
int worst_big_beside(struct worst_scene *scene);
int worst_half_freed(struct worst_scene *scene);
int worst_bins_flushed(struct worst_scene *scene);
int worst_trim(struct worst_scene *scene);
int worst_figures(struct worst_scene *scene);
int worst_map(struct worst_scene *scene);
int worst_suspension(struct worst_scene *scene);
int worst_fetch_all(struct worst_scene *scene);
int worst_suspension_in_place(struct worst_scene *scene);
int worst_resumption_in_place(struct worst_scene *scene);
int worst_quiet(struct worst_scene *scene);
int worst_checkerboard(struct worst_scene *scene);
int worst_new_sizes(struct worst_scene *scene);
int worst_freed_elsewhere(struct worst_scene *scene);
int worst_busy_pages(struct worst_scene *scene);
int worst_idle_streams(struct worst_scene *scene);
int worst_streams_in_turn(struct worst_scene *scene);
int worst_busy_streams(struct worst_scene *scene);
int worst_freed_on_others(struct worst_scene *scene);
int worst_used_on_others(struct worst_scene *scene);
int worst_last_gpu(struct worst_scene *scene);
int worst_gpu_pools(struct worst_scene *scene);
int worst_last_context(struct worst_scene *scene);

/* worst_scene.c */
int64_t worst_now(void);
/* What two reads of that clock with nothing between them show. */
int64_t worst_clock_cost(void);
/* From here to the end calls are timed, and the lock is. 0 or -errno. */
int worst_begin(struct worst_scene *scene);
int worst_end(struct worst_scene *scene);
void worst_note(struct worst_scene *scene, enum worst_figure figure, int64_t ns);
/* A request, and a free of what it gave; `ptr` is NULL afterwards. 0 or -errno. */
int worst_take(struct worst_scene *scene, size_t size, struct CUstream_st *stream,
	void **ret_ptr);
int worst_give(struct worst_scene *scene, void **ptr, struct CUstream_st *stream);
/* The same for all blocks of the scene. */
int worst_take_all(struct worst_scene *scene, size_t size, struct CUstream_st *stream);
int worst_give_all(struct worst_scene *scene, struct CUstream_st *stream);
/* The first `count` streams. */
int worst_streams(struct worst_scene *scene, unsigned count);
/* Blocks in an order that is always the same, and looks like none. */
void worst_shuffle(struct worst_scene *scene);
/* A number below `range`; the same sequence for each `state` to begin with. */
unsigned worst_random(uint32_t *state, unsigned range);
/* The mean of many pairs, on the first `streams` streams in turn; 0: on the default one. */
int worst_pairs(struct worst_scene *scene, unsigned streams, size_t size);

#endif
