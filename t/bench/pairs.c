/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pairs COUNT SIZE: allocates and frees a block that many times on one stream, all but the
 * first from the quick bins. For whoever counts what a pair costs from outside; exit status 3
 * if a pair was no hit.
 */
#include <glake/glake.h>

#include <stdio.h>
#include <stdlib.h>

/* Before the count begins: the first few requests carve blocks ahead. */
#define WARM 64

static int run(struct glake *ctx, struct CUstream_st *stream, long count, size_t size)
{
	void *ptr;

	for (long i = 0; i < count; i++) {
		if (glake_alloc(ctx, 0, size, stream, 0, &ptr) ||
			glake_free(ctx, ptr, stream))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT};
	struct glake_stats before = {.sz = sizeof(before)}, after = before;
	struct CUstream_st *stream;
	struct glake *ctx;
	long count;

	if (argc != 3)
		return 2;
	count = atol(argv[1]);
	if (glake_open(&options, &ctx) || glake_stream_new(ctx, 0, &stream) ||
		run(ctx, stream, WARM, (size_t)atol(argv[2])) ||
		glake_stats_get(ctx, 0, &before) ||
		run(ctx, stream, count, (size_t)atol(argv[2])) ||
		glake_stats_get(ctx, 0, &after))
		return 1;
	if (after.hits - before.hits != (uint64_t)count) {
		fprintf(stderr, "%llu hits of %ld\n",
			(unsigned long long)(after.hits - before.hits), count);
		return 3;
	}
	if (glake_stream_free(ctx, 0, stream) || glake_close(ctx, NULL))
		return 1;
	return 0;
}
