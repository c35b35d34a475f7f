/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two blocks in a budget for one: each goes to memory of the host while the other is used. Then all
 * memory of the GPU is given back for a while. Addresses stay, and so does what was written.
 */
#include "must.h"
#include "standin.h"

#include <glake/glake.h>

#include <errno.h>

#define WORDS (24 << 18)

static unsigned last_of(const void *block)
{
	return ((const unsigned *)block)[WORDS - 1];
}

int main(void)
{
	struct glake_suspended done = {.sz = sizeof(done)};
	struct glake_returned came = {.sz = sizeof(came)};
	size_t bytes = (size_t)WORDS * sizeof(int);
	struct glake *ctx;
	CUstream stream;
	void *ptr, *other;

	must(glake_open(NULL, &ctx));
	must(glake_budget_set(ctx, 0, bytes + bytes / 2));
	must(glake_stream_new(ctx, 0, &stream));
	must(glake_alloc(ctx, 0, bytes, stream, 0, &ptr));
	must(cuMemsetD32Async(ptr, 1, WORDS, stream));

	must(glake_spill(ctx, ptr, stream));
	must(glake_alloc(ctx, 0, bytes, stream, 0, &other));
	must(cuMemsetD32Async(other, 2, WORDS, stream));
	must(glake_spill(ctx, other, stream));
	must(glake_fetch(ctx, ptr, stream));
	must(cuStreamSynchronize(stream));
	printf("the first block has %u\n", last_of(ptr));

	/* a request may have its memory from here on; and nothing lies on the host in place */
	must(glake_advise(ctx, ptr, GLAKE_ADVICE_COLD));
	must(glake_quiet(ctx, 0, &came));
	printf("%llu bytes came from the host\n", (unsigned long long)came.returned);

	must(glake_suspend(ctx, 0, &done));
	printf("%llu bytes went back to the driver\n", (unsigned long long)done.released);
	must(glake_resume(ctx, 0, NULL));
	/* which nobody wanted */
	if (glake_fetch(ctx, ptr, stream) != -EALREADY)
		return 1;
	printf("the first block has %u still\n", last_of(ptr));

	must(glake_free(ctx, ptr, stream));
	must(glake_fetch(ctx, other, stream));
	must(cuStreamSynchronize(stream));
	printf("the second block has %u\n", last_of(other));
	must(glake_free(ctx, other, stream));
	must(glake_stream_free(ctx, 0, stream));
	must(glake_close(ctx, NULL));
	return 0;
}
