/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_REPLAY_H
#define GLK_TOOL_REPLAY_H

/*
 * A replay: what was asked for, what came out, and the steps between.
 */
#include "tool/latency.h"
#include "tool/tool.h"
#include "tool/trace.h"

#include <glake/glake.h>

#include <stdio.h>

#define REPLAY_REPEATS_MAX     1000
#define REPLAY_THREADS_MAX     256
#define REPLAY_WORKING_SET_MAX (UINT64_C(64) << 20)
#define REPLAY_SAMPLES	       512 /* unless asked for otherwise */
#define REPLAY_SAMPLES_MAX     2048

/* A budget as people ask for it: none, bytes, or a multiple of the trace's peak live. */
struct replay_limit {
	uint64_t bytes; /* 0: none, or see ratio */
	double ratio;	/* 0: none, or see bytes */
};

struct replay_options {
	struct glk_tool_context context;
	struct replay_limit limit;
	unsigned repeats;
	unsigned threads;
	int gpu; /* see struct trace_limits */
	bool pressure;
	bool lenient;
	bool check;
	bool contents;	      /* into the JSON, see replay_add_contents() */
	uint64_t working_set; /* bytes that a thread uses between two calls */
	const char *timeline; /* file name or NULL */
	unsigned samples;     /* of the timeline, at most; 0: REPLAY_SAMPLES */
};

/* One pass over the trace. */
struct replay_repeat {
	int64_t wall_ns;
	struct glake_driver_stats driver; /* of this repeat alone */
	struct latency_figures malloc_ns, free_ns;
	uint64_t hits, misses, oom;
	uint64_t called; /* misses for which the driver was called */
	int64_t hold_ns; /* the longest that the lock of the GPU was held at once */
	uint64_t peak_reserved;
	uint64_t peak_host; /* memory of the host */
	uint64_t failed;    /* allocations not served, for whatever reason */
	uint64_t refused;   /* frees that the library refused */
};

/* A point of the timeline. */
struct replay_sample {
	uint32_t event; /* taken after this one */
	uint64_t live;	/* before the pass as the trace says */
	uint64_t reserved;
};

/* A repeat under a squeezed budget. */
struct replay_squeeze {
	double ratio;
	uint64_t budget;
	struct replay_repeat repeat;
};

#define REPLAY_SQUEEZES_MAX 11 /* x1.05 to x1.00 in steps of 0.005 */

struct replay_result {
	const struct trace *trace;
	const struct replay_options *options;
	const char *backend;
	struct glake_conf_value hold_clock; /* "wall" or "cpu" */
	struct glake_conf_value target;	    /* policy.target */
	uint64_t budget;		    /* UINT64_MAX: none */
	unsigned threads;		    /* that had something to do */

	size_t repeats; /* done */
	struct replay_repeat *repeat;
	uint64_t peak_reserved;
	uint64_t peak_host;
	uint64_t rungs[GLAKE_RUNG_COUNT];
	size_t squeezes;
	struct replay_squeeze squeeze[REPLAY_SQUEEZES_MAX];

	size_t samples;
	struct replay_sample sample[REPLAY_SAMPLES_MAX]; /* of the first repeat */
	struct replay_sample last[REPLAY_SAMPLES_MAX];	 /* of the last, for `timeline` */

	uint64_t lost; /* bytes the driver refused to take back */
	size_t leaked; /* blocks the library still held at the end */
	bool ok;
	char failure[TRACE_MESSAGE_MAX]; /* the first; "" if none */
};

/* A trace on an open context: what a pass over it needs. */
struct replay_run;

/* Makes the streams and the table of blocks. 0 or -errno with the record filled. */
int replay_run_new(struct glake *ctx, const struct trace *trace,
	const struct replay_options *options, struct replay_run **ret_run);
/* Ends the streams; 0 or the first error. NULL does nothing. */
int replay_run_free(struct replay_run *run);
/* How many threads have something to do. */
unsigned replay_run_threads(const struct replay_run *run);
/*
 * One pass: all events, then the blocks still alive. `samples` (may be NULL) names the events
 * after which to look at the figures. What failed first goes to `failure`, which is left
 * alone otherwise. 0 or -errno when the pass could not be made at all.
 */
int replay_run_pass(struct replay_run *run, struct replay_sample *samples, size_t count,
	char *failure, size_t size, struct replay_repeat *ret_repeat);

/* Everything with one trace: context, passes, squeezing. 0 or -errno after a message. */
int replay_job(const struct trace *trace, const struct replay_options *options,
	struct replay_result *ret_result);
void replay_result_fini(struct replay_result *result);

/* What a result is. 0 or -ENOMEM. */
struct glk_json;
int replay_add(struct glk_json *json, const struct replay_result *result);
/* The member "contents": what the trace is made of, and its timeline. 0 or -ENOMEM. */
int replay_add_contents(struct glk_json *json, const struct replay_result *result);
/* 0, or -errno after a message. */
int replay_write_timeline(const struct replay_result *result, const char *path);

#endif
