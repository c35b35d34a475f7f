/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_DRIVER_SOFT_H
#define GLK_DRIVER_SOFT_H

/*
 * The software device, and what tests may do with it beyond the driver table. It is opened by
 * open.c inside the check wrapper, which enforces the rules on memory; used alone, it trusts
 * its caller in those.
 *
 * The calls below take the instance that glk_drv_open gave, or any layer of it, and answer
 * -EINVAL when no software device is at its bottom.
 */
#include "driver/driver.h"

int glk_soft_open(const struct glk_conf *conf, struct glk_drv **ret_drv);

/*
 * Queues a kernel that reads, or reads and writes, [addr, addr + size) and does nothing to
 * it. 0; -EINVAL when the GPU of the stream has no such right there; -ENOMEM. On a capturing
 * stream it becomes part of the graph and is not run.
 */
int glk_soft_work(struct glk_drv *drv, int device, struct CUstream_st *stream,
	uint64_t addr, size_t size, bool write);

/* Runs the next operation of a stream. 0; -EAGAIN when there is none that can run. */
int glk_soft_step(struct glk_drv *drv, int device, struct CUstream_st *stream);

/* Runs all operations of all streams that can run, in order of the streams. */
int glk_soft_run_all(struct glk_drv *drv);

/* While held, a stream runs nothing, as if a long kernel were in front of it. */
int glk_soft_hold(struct glk_drv *drv, int device, struct CUstream_st *stream, bool hold);

/* Operations queued and not yet run, of one stream. */
int glk_soft_pending(
	struct glk_drv *drv, int device, struct CUstream_st *stream, uint32_t *ret_count);

/*
 * Begins or ends the capture of a graph. Ending answers -EIO when the capture was broken
 * meanwhile by a call that is not allowed on a capturing stream.
 */
int glk_soft_capture(
	struct glk_drv *drv, int device, struct CUstream_st *stream, bool capturing);

/* The modelled clock: what all calls so far would have taken on an H200. */
int glk_soft_clock(struct glk_drv *drv, int64_t *ret_ns);

/*
 * What lies behind an address: a number of the page, never given to another one of this
 * device, and the place in it. 0; -EINVAL when nothing is mapped there.
 */
int glk_soft_physical(
	struct glk_drv *drv, uint64_t addr, uint64_t *ret_page, size_t *ret_offset);

/* Bytes of host memory that pages hold at this moment, over all GPUs and nodes. */
int glk_soft_resident(struct glk_drv *drv, uint64_t *ret_bytes);

#endif
