/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pinned memory of the host of the exact size, copied to a block and back in the order of a stream. */
#include "must.h"
#include "standin.h"

#include <glake/glake.h>

#define WORDS 1000001

int main(void)
{
	size_t bytes = (size_t)WORDS * sizeof(int);
	unsigned *pinned;
	struct glake *ctx;
	CUstream stream;
	void *block;

	must(glake_open(NULL, &ctx));
	must(glake_stream_new(ctx, 0, &stream));
	must(glake_alloc(ctx, 0, bytes, stream, 0, &block));
	must(glake_host_alloc(ctx, 0, bytes, 0, (void **)&pinned));
	for (unsigned i = 0; i < WORDS; i++)
		pinned[i] = i;

	must(glake_copy(ctx, block, pinned, bytes, stream, 0, NULL));
	must(cuMemsetD32Async(block, 9, 1, stream));
	must(glake_copy(ctx, pinned, block, bytes, stream, 0, NULL));
	/* it serves no other request before the copies have finished */
	must(glake_host_use(ctx, pinned, 0, stream));
	must(cuStreamSynchronize(stream));
	printf("the first is %u, the last %u\n", pinned[0], pinned[WORDS - 1]);

	must(glake_host_free(ctx, pinned));
	must(glake_free(ctx, block, stream));
	must(glake_stream_free(ctx, 0, stream));
	must(glake_close(ctx, NULL));
	return 0;
}
