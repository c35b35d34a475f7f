/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_BENCH_COPY_H
#define GLK_TOOL_BENCH_COPY_H

/* What the parts of bench copy have in common: a context, two streams, and memory at both ends. */
#include "tool/bench.h"

#include <glake/copy.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

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

struct trip {
	struct glake *ctx;
	struct bench_cuda cuda;
	bool on_cuda;
	bool plain; /* memory of the host that is not locked */
	struct CUstream_st *stream[2];
	char *host[2];
	void *block[2];
	size_t most;
};

/* Over what copies may go, and between which memory. */
struct means {
	int links, threads;
	bool plain;
};

/* 0 or -errno after a message; a trip that was begun is to be closed in any case. */
int trip_open(const struct bench_options *options, const struct means *means,
	struct trip *trip);
/* `err`, else 0 or -errno after a message. */
int trip_close(struct trip *trip, int err);
/* Copies are queued, and all that was queued is waited for. */
int trip_queue(const struct trip *trip, enum bench_copy_way way, size_t bytes);
int trip_wait(const struct trip *trip);

/* A case of some size, in each way; `took` has room for two figures a round. 0 or -errno. */
int trip_measure(const struct trip *trip, unsigned rounds, double *took,
	struct bench_copy_case *ret);

/* What was measured of a case, inside of its object. */
void bench_copy_add_case(struct glk_json *json, const struct bench_copy_case *c);

#endif
