/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_BENCH_COPY_H
#define GLK_TOOL_BENCH_COPY_H

/* What the parts of bench copy have in common: a context, two streams, and memory at both ends. */
#include "tool/bench_cuda.h"

#include <glake/copy.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

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

/* bench_copy_show.c: what was measured of a case, inside of its object. */
void bench_copy_add_case(struct glk_json *json, const struct bench_copy_case *c);
void bench_add_copy(struct glk_json *json, const void *measured);
void bench_print_copy(const void *measured);

#endif
