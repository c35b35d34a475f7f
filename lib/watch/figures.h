/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_WATCH_FIGURES_H
#define GLK_WATCH_FIGURES_H

/*
 * The tree of figures: a table of names over what was gathered, and the one walk that all forms of
 * it are made by. A face of this folder beside watch.h.
 *
 * Nothing is counted for it: figures are those that the rooms below keep anyway, or walk for.
 */
#include "cache/survey.h"

#include <glake/figures.h>
#include <glake/stats.h>
#include <glake/uvm.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct glk_json;

/* A GPU, and a context with those of its GPUs that are in use. */
enum glk_figures_times {
	GLK_FIGURES_REQUEST = 0,
	GLK_FIGURES_FREE,
	GLK_FIGURES_HOLD,
	GLK_FIGURES_WAIT_STREAMS, /* side by side */
	GLK_FIGURES_WAIT_MEMORY,
	GLK_FIGURES_SPILL,
	GLK_FIGURES_FETCH,
	GLK_FIGURES_EARLY,
	GLK_FIGURES_LATE,
	GLK_FIGURES_TIMES,
};

enum glk_figures_tier {
	GLK_FIGURES_TIER_GPU = 0,
	GLK_FIGURES_TIER_PEER,
	GLK_FIGURES_TIER_HOST,
	GLK_FIGURES_TIERS,
};

/* What follows from other figures. */
struct glk_figures_derived {
	uint64_t reserved_over_live,
		hits_over_allocs; /* in millionths; UINT64_MAX: of nothing */
	uint64_t held[GLK_FIGURES_TIERS], live[GLK_FIGURES_TIERS]; /* bytes */
};

/* What copies over several links have of a GPU. */
struct glk_figures_io {
	uint64_t staging, relayed; /* bytes */
	uint64_t
		shares; /* of its link that are borrowed, of both ways; see tier/io/agree.h */
	uint64_t host_rate, peer_rate; /* bytes a second; 0: not known */
};

struct glk_figures_gpu {
	int device;
	struct glake_stats stats;
	struct glk_figures_derived derived; /* glk_figures_derive() */
	struct glk_survey survey;
	struct glk_figures_io io;
	struct glake_histogram times[GLK_FIGURES_TIMES];
};

/* Memory of a NUMA node, held for all GPUs near it, bytes. */
struct glk_figures_node {
	int number; /* -1: not known */
	char name[12];
	uint64_t held, store, store_used, placed;
	uint64_t spare; /* in use by nothing */
};

struct glk_figures_context {
	unsigned number;    /* from 1, in this process */
	const char *driver; /* "soft" or "cuda" */
	struct glake_driver_stats calls;
	struct glake_histogram times[GLAKE_CALL_COUNT];
	const struct glk_figures_gpu *gpus;
	size_t count;
	bool has_managed; /* it has the counters of managed memory open */
	struct glake_uvm_figures managed;
	const struct glk_figures_node *nodes;
	size_t node_count;
};

struct glk_figures {
	const struct glk_figures_context *contexts;
	size_t count;
	bool brief; /* without streams and times */
};

/* Most bytes of a text of a GPU, and of its context beside that. */
#define GLK_FIGURES_GPU_TEXT	 ((size_t)32 << 10)
#define GLK_FIGURES_CONTEXT_TEXT ((size_t)48 << 10)

typedef int (*glk_figures_fn)(const struct glk_figures_context *context,
	const struct glake_figure *figure, void *arg);

/* The figures of a GPU that follow from its others. */
void glk_figures_derive(struct glk_figures_gpu *gpu);

/* Leaves streams and times out where a text of so many GPUs could be longer than `size`. */
void glk_figures_fit(struct glk_figures *figures, size_t size);

/* Name by name; in each by context, GPU and what tells them apart. 0, or what fn returned. */
int glk_figures_walk(const struct glk_figures *figures, glk_figures_fn fn, void *arg);

/* "contexts" with all there is of them, into an object that is open. */
void glk_figures_json(const struct glk_figures *figures, struct glk_json *json);
void glk_figures_prometheus(const struct glk_figures *figures, FILE *file);

#endif
