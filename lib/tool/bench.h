/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_BENCH_H
#define GLK_TOOL_BENCH_H

/*
 * Micro-benchmarks. Each is a function that measures into a structure of its own, and two
 * that show it.
 */
#include "tool/tool.h"

#include <glake/glake.h>

#include <stdio.h>

#define BENCH_ROUNDS_MAX  10000
#define BENCH_THREADS_MAX 256
#define BENCH_CASES	  6

struct glk_json;

struct bench_options {
	struct glk_tool_context context;
	unsigned rounds;
	unsigned threads;
	bool json;
};

/* Of the rounds. */
struct bench_range {
	double min, median, max;
};

/* Sorts `values`. */
struct bench_range bench_range_of(double *values, size_t count);

struct bench_alloc {
	size_t pairs; /* a round and thread */
	struct {
		const char *name;
		struct bench_range ns; /* a pair */
		uint64_t misses;       /* of the rounds that were timed */
	} cases[BENCH_CASES];
};

/* 0 or -errno after a message. */
int bench_alloc(const struct bench_options *options, struct bench_alloc *ret_alloc);

/* One large block on pages that lay elsewhere. */
struct bench_stitched {
	uint64_t calls[GLAKE_CALL_COUNT];
	double driver_ms;
	double wall_ms;
};

struct bench_stitch {
	const char *backend;
	size_t block; /* bytes of the large block */
	size_t pages; /* it is made of */
	struct bench_stitched first;
	struct bench_stitched again; /* mean of the other rounds */
	uint64_t stitches;
	bool checked;  /* the contents were */
	size_t kept;   /* pages whose contents came through the new mapping */
	size_t broken; /* places in other blocks that changed */
	bool ok;
};

int bench_stitch(const struct bench_options *options, struct bench_stitch *ret_stitch);

#endif
