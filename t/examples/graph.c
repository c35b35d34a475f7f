/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of a graph: what is asked for during the capture comes from a pool of the graph and stays
 * there for its replays, also after it was freed.
 */
#include "must.h"
#include "standin.h"

#include <glake/glake.h>

#define COUNT 1024

int main(void)
{
	struct glake_pool_id id = {.low = 1};
	struct glake_pool pool = {.sz = sizeof(pool)};
	size_t bytes = COUNT * sizeof(int);
	struct glake *ctx;
	CUstream stream;
	CUgraph graph;
	void *result, *scratch;

	must(glake_open(NULL, &ctx));
	must(glake_stream_new(ctx, 0, &stream));
	must(glake_alloc(ctx, 0, bytes, stream, 0, &result));

	must(glake_pool_begin(ctx, 0, id, stream));
	must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	must(glake_alloc(ctx, 0, bytes, stream, 0, &scratch));
	must(cuMemsetD32Async(scratch, 3, COUNT, stream));
	must(cuMemcpyAsync(result, scratch, bytes, stream));
	must(glake_free(ctx, scratch, stream));
	must(cuStreamEndCapture(stream, &graph));
	must(glake_pool_end(ctx, 0, id));

	must(glake_pool_get(ctx, 0, id, &pool));
	printf("%llu bytes stay with the graph\n", (unsigned long long)pool.held);
	for (int i = 0; i < 3; i++)
		must(cuGraphLaunch(graph, stream));
	must(cuStreamSynchronize(stream));
	printf("the replays left %d\n", ((int *)result)[COUNT - 1]);

	must(cuGraphDestroy(graph));
	must(glake_pool_release(ctx, 0, id));
	must(glake_free(ctx, result, stream));
	must(glake_stream_free(ctx, 0, stream));
	must(glake_close(ctx, NULL));
	return 0;
}
