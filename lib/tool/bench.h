/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_BENCH_H
#define GLK_TOOL_BENCH_H

/*
 * Micro-benchmarks. Each is a struct bench_part: it measures into a structure of its own, and
 * shows that to people or programs. bench.c runs those that are wanted; what all of them do
 * besides stands there once.
 */
#include "tool/replay.h"
#include "tool/tool.h"

#include <glake/glake.h>

#include <stdio.h>

#define BENCH_ROUNDS_MAX  10000
#define BENCH_THREADS_MAX 256
#define BENCH_SIZES_MAX	  (7 << 20)
#define BENCH_WORST_MOST  1000000

struct glk_json;
struct option;

struct bench_options {
	struct glk_tool_context context;
	unsigned rounds;   /* 0: what suits each */
	unsigned threads;  /* of scale */
	unsigned requests; /* of sizes */
	unsigned most;	   /* of worst; 0: as many as there are */
	size_t size;	   /* of host; 0: what suits the driver */
};

/* A benchmark; `measured` is its own structure. */
struct bench_part {
	const char *name;
	size_t size; /* of the structure, which is all zeroes before */
	/* 0 or -errno after a message. */
	int (*measure)(const struct bench_options *options, void *measured);
	void (*add)(struct glk_json *json, const void *measured);
	void (*print)(const void *measured); /* NULL: as the report has it */
	/* Whether it is what it should be, and what else there is to do; NULL: yes, nothing. */
	bool (*finish)(const struct bench_options *options, const void *measured);
};

/* A command that has some of them. */
struct bench_set {
	const char *command, *help;
	const struct option
		*options; /* letters as in bench.c, which knows what they mean */
	int (*take)(int c, struct bench_options *options); /* its own letters, or NULL */
	const struct bench_part *const *parts;
	size_t count, usual; /* of those, so many run without a name */
};

/* Runs those that are named. The exit status. */
int bench_run(const struct bench_set *set, int argc, char **argv);

extern const struct bench_part bench_alloc, bench_stitch, bench_tier, bench_copy;

/* The end of each: a message if it failed, or if blocks were lost. `err`, else 0 or -errno. */
int bench_close(const struct bench_part *part, struct glake *ctx, int err);

/* Of the rounds. */
struct bench_range {
	double mean, min, median, max;
};

/* Sorts `values`. */
struct bench_range bench_range_of(double *values, size_t count);
void bench_add_range(struct glk_json *json, const char *key, struct bench_range range);

/* Requests of the rounds that were timed, and those that the quick bins served. */
struct bench_hits {
	uint64_t requests, hits, called; /* the driver was, for a miss */
};

/* What was counted until now, to be taken off again; a context that fails counts nothing. */
void bench_hits_begin(struct glake *ctx, struct bench_hits *hits);
void bench_hits_end(struct glake *ctx, struct bench_hits *hits);
void bench_add_hits(struct glk_json *json, const struct bench_hits *hits);

/*
 * What benchmarks call of the CUDA driver past the library: work on the GPU, and waits for it. The
 * driver is the one that the library has loaded.
 */
#define BENCH_CUDA_PENDING 600 /* CUDA_ERROR_NOT_READY */

struct bench_cuda {
	unsigned (*fill)(unsigned long long, unsigned, size_t, struct CUstream_st *);
	unsigned (*read)(void *, unsigned long long, size_t);
	unsigned (*query)(struct CUstream_st *);
	unsigned (*sync)(void); /* the whole context */
	unsigned (*context_of)(struct CUstream_st *, void **);
	unsigned (*set_context)(void *);
	/* Pinned memory of the host. */
	unsigned (*host_register)(void *, size_t, unsigned);
	unsigned (*host_unregister)(void *);
	unsigned (*host_alloc)(void **, size_t, unsigned);
	unsigned (*host_free)(void *);
};

/* 0, or -EIO after a message. */
int bench_cuda_find(const struct bench_part *part, struct bench_cuda *cuda);
/* The context of a stream is that of the thread from here on. 0 or -EIO. */
int bench_cuda_enter(const struct bench_cuda *cuda, struct CUstream_st *stream);

#endif
