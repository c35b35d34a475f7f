/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Weights with a tag give their memory back while a block without one stays in use, and come back to
 * their addresses with what was in them.
 */
#include "must.h"
#include "standin.h"

#include <glake/glake.h>

#define WORDS (8 << 18)

int main(void)
{
	struct glake_suspended done = {.sz = sizeof(done)};
	size_t bytes = (size_t)WORDS * sizeof(int);
	struct glake *ctx;
	uint32_t tag, was;
	void *weights, *cache;
	CUstream stream;

	must(glake_open(NULL, &ctx));
	must(glake_stream_new(ctx, 0, &stream));
	must(glake_tag_open(ctx, "weights", &tag));
	must(glake_tag_set(ctx, tag, &was));
	must(glake_alloc(ctx, 0, bytes, stream, 0, &weights));
	must(glake_tag_set(ctx, was, NULL));
	must(glake_alloc(ctx, 0, bytes, stream, 0, &cache));
	must(cuMemsetD32Async(weights, 5, WORDS, stream));
	must(cuStreamSynchronize(stream));

	must(glake_tag_suspend(ctx, 0, tag, 0, &done));
	printf("%llu bytes went\n", (unsigned long long)done.moved);
	must(cuMemsetD32Async(cache, 6, WORDS, stream));
	must(cuStreamSynchronize(stream));
	must(glake_tag_resume(ctx, 0, tag, NULL));
	printf("the weights are %u, the cache is %u\n", ((unsigned *)weights)[WORDS - 1],
		((unsigned *)cache)[WORDS - 1]);

	must(glake_free(ctx, weights, stream));
	must(glake_free(ctx, cache, stream));
	must(glake_tag_close(ctx, tag));
	must(glake_stream_free(ctx, 0, stream));
	must(glake_close(ctx, NULL));
	return 0;
}
