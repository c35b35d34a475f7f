/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * All memory of the GPU is given back, with contents on the host at the same addresses. The end of it
 * moves nothing: blocks are used where they are until they come to the GPU.
 */
#include "must.h"
#include "standin.h"

#include <glake/glake.h>

#define WORDS (24 << 18)

int main(void)
{
	struct glake_suspended done = {.sz = sizeof(done)};
	struct glake_returned came = {.sz = sizeof(came)};
	size_t bytes = (size_t)WORDS * sizeof(int);
	struct glake *ctx;
	CUstream stream;
	void *ptr;

	must(glake_open(NULL, &ctx));
	must(glake_stream_new(ctx, 0, &stream));
	must(glake_alloc(ctx, 0, bytes, stream, 0, &ptr));
	must(cuMemsetD32Async(ptr, 7, WORDS, stream));

	must(glake_suspend_in_place(ctx, 0, &done));
	printf("%llu bytes lie on the host\n", (unsigned long long)done.moved);
	must(glake_resume_lazy(ctx, 0, NULL));
	must(cuMemsetD32Async(ptr, 8, WORDS / 2, stream));
	must(cuStreamSynchronize(stream));
	must(glake_quiet(ctx, 0, &came));
	printf("%llu bytes came to the GPU\n", (unsigned long long)came.returned);
	printf("they are %u and %u\n", ((unsigned *)ptr)[0],
		((unsigned *)ptr)[WORDS - 1]);

	must(glake_free(ctx, ptr, stream));
	must(glake_stream_free(ctx, 0, stream));
	must(glake_close(ctx, NULL));
	return 0;
}
