/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_STREAM_H
#define GLAKE_STREAM_H

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st;

/*
 * Makes a stream on a GPU of the context: a non-blocking CUDA stream, or a stream of the
 * software device. Programs that use CUDA hand their own streams to glake_alloc instead.
 *
 * Returns 0, or -EINVAL (device), -ESTALE, -ENOMEM (class LIMIT: as many as the software device
 * can have), -EIO, -ENODEV (device lost, or in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: one.
 */
GLAKE_EXPORT int glake_stream_new(
	struct glake *ctx, int device, struct CUstream_st **ret_stream);

/*
 * Ends a stream of glake_stream_new after its work is done; blocks freed on it become
 * reusable by all. NULL does nothing.
 *
 * Returns 0, or -EINVAL (not a stream of this context), -ESTALE, -EIO, -ENODEV (device lost, or
 * in a forked child).
 * Thread: any; nobody may use the stream meanwhile. Blocks: until its work is done.
 */
GLAKE_EXPORT int glake_stream_free(
	struct glake *ctx, int device, struct CUstream_st *stream);

GLAKE_END_DECLS

#endif
