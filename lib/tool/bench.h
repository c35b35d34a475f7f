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
#define BENCH_CASES	  5
#define BENCH_TIERS	  3
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
	void (*print)(const void *measured);
	/* Whether it is what it should be, and what else there is to do; NULL: yes, nothing. */
	bool (*finish)(const struct bench_options *options, const void *measured);
};

/* A command that has some of them. */
struct bench_set {
	const char *command, *help;
	const struct option
		*options; /* letters as in bench.c, which knows what they mean */
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

/* alloc: what a pair of allocate and free costs one thread. */
struct bench_alloc {
	unsigned rounds;
	size_t pairs; /* a round */
	/* Of a mutex; and in a process with one thread, where it needs no atomic operation. */
	struct bench_range mutex_ns, mutex_alone_ns;
	struct {
		const char *name;
		bool steady;	       /* each request should be a hit */
		struct bench_range ns; /* a pair */
		struct bench_hits count;
	} cases[BENCH_CASES];
	bool all_hits; /* the steady cases measured nothing else */
};

void bench_add_alloc(struct glk_json *json, const void *measured);
void bench_print_alloc(const void *measured);

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

void bench_add_stitch(struct glk_json *json, const void *measured);
void bench_print_stitch(const void *measured);

/* tier: contents that leave the GPU and come back. */
enum bench_tier_step {
	BENCH_TIER_CALL, /* us that the call of a spill takes; GB/s where nothing else is said */
	BENCH_TIER_SPILL,
	BENCH_TIER_FETCH,
	BENCH_TIER_BOTH,
	BENCH_TIER_SUSPEND,
	BENCH_TIER_RESUME,
	BENCH_TIER_LOWER, /* suspended in place */
	BENCH_TIER_LAZY,  /* us until that has ended lazily */
	BENCH_TIER_QUIET, /* what lies in place then comes to the GPU */
	BENCH_TIER_PLACE,
	BENCH_TIER_PEER_SPILL, /* to another GPU that lends its memory, and back */
	BENCH_TIER_PEER_FETCH,
	BENCH_TIER_PEER_BOTH,
	BENCH_TIER_STEPS,
};

struct bench_tier {
	unsigned rounds;
	struct bench_tier_case {
		size_t block, count;
		bool peer; /* another GPU has lent memory */
		/* Of the first round, which makes memory of the host. */
		double first[BENCH_TIER_STEPS];
		struct bench_range figure[BENCH_TIER_STEPS];
		size_t torn; /* blocks that did not hold what was written */
	} cases[BENCH_TIERS];
	size_t torn;
};

void bench_add_tier(struct glk_json *json, const void *measured);
void bench_print_tier(const void *measured);

/* copy: copies between the host and a GPU, by size and by links that they may go over. */
#define BENCH_COPY_LINKS 8
#define BENCH_COPY_CASES (BENCH_COPY_LINKS * 12)
#define BENCH_COPY_PLAIN                                                                 \
	20 /* cases of memory that is not locked, by the driver and by threads */

enum bench_copy_way {
	BENCH_COPY_DOWN, /* to the GPU */
	BENCH_COPY_UP,
	BENCH_COPY_BOTH, /* bytes of both, at once */
	BENCH_COPY_WAYS,
};

struct bench_copy {
	unsigned rounds, count;
	int gpus;
	struct bench_copy_case {
		int links, threads;
		size_t bytes;
		struct bench_range rate[BENCH_COPY_WAYS],
			call[BENCH_COPY_WAYS]; /* GB/s, us */
		bool torn;		       /* something did not arrive */
		char lend[16];		       /* io.lend, as the library had it */
	} cases[BENCH_COPY_CASES], plain[BENCH_COPY_PLAIN];
	unsigned plain_count;
	bool torn;
};

#endif
