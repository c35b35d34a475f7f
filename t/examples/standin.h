/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef STANDIN_H
#define STANDIN_H

/*
 * A few of CUDA's calls on the software device, for GPU 0 of a context called ctx. A program for
 * a GPU includes <cuda.h> in the place of this.
 */
#include <glake/soft.h>

#define CU_STREAM_CAPTURE_MODE_GLOBAL 0

typedef struct CUstream_st *CUstream;
typedef uint32_t CUgraph;

#define cuStreamBeginCapture(stream, mode) glake_soft_capture_begin(ctx, 0, stream)
#define cuStreamEndCapture(stream, graph)  glake_soft_capture_end(ctx, 0, stream, graph)
#define cuGraphLaunch(graph, stream)	   glake_soft_graph_launch(ctx, 0, graph, stream)
#define cuGraphDestroy(graph)		   glake_soft_graph_free(ctx, graph)
#define cuStreamSynchronize(stream)	   glake_soft_stream_sync(ctx, 0, stream)

#define cuMemsetD32Async(ptr, value, count, stream)                                      \
	glake_soft_fill(ctx, stream, ptr, value, count)
#define cuMemcpyAsync(dst, src, size, stream) glake_soft_copy(ctx, stream, dst, src, size)

#endif
