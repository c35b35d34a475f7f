/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A block that two streams use. One fills it, the other reads it behind an event, and when it is
 * freed its memory waits for both, though nobody waits for the GPU.
 */
#include "must.h"
#include "standin.h"

#include <glake/glake.h>

#define BYTES ((size_t)4 << 20)

int main(void)
{
	struct glake *ctx;
	struct CUstream_st *fills, *reads;
	struct CUevent_st *filled, *read;
	void *block, *copy, *next;

	must(glake_open(NULL, &ctx));
	must(glake_stream_new(ctx, 0, &fills));
	must(glake_stream_new(ctx, 0, &reads));
	must(glake_event_new(ctx, 0, &filled));
	must(glake_event_new(ctx, 0, &read));

	must(glake_alloc(ctx, 0, BYTES, fills, 0, &block));
	must(cuMemsetD32Async(block, 42, BYTES / 4, fills));

	/* in place of cuEventRecord and cuStreamWaitEvent, so that the library knows it too */
	must(glake_event_record(ctx, 0, filled, fills));
	must(glake_stream_wait(ctx, 0, reads, filled));
	must(glake_alloc(ctx, 0, BYTES, reads, 0, &copy));
	must(cuMemcpyAsync(copy, block, BYTES, reads));

	/* its stream is `fills`, but `reads` uses it too */
	must(glake_use(ctx, block, reads));
	must(glake_free(ctx, block, fills));
	must(glake_alloc(ctx, 0, BYTES, fills, 0, &next));
	must(cuMemsetD32Async(next, 7, BYTES / 4, fills));

	must(cuStreamSynchronize(reads));
	printf("the copy has %d\n", ((int *)copy)[BYTES / 4 - 1]);

	/* behind events in place of a stream */
	must(glake_event_record(ctx, 0, read, reads));
	must(glake_free_after(ctx, copy, &read, 1));
	must(glake_free(ctx, next, fills));

	must(glake_event_free(ctx, 0, filled));
	must(glake_event_free(ctx, 0, read));
	must(glake_stream_free(ctx, 0, fills));
	must(glake_stream_free(ctx, 0, reads));
	must(glake_close(ctx, NULL));
	return 0;
}
