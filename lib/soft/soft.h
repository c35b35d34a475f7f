/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_SOFT_H
#define GLK_SOFT_SOFT_H

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
 * stream it becomes a node of the graph, as copies and fills do, and is not run.
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
 * Graphs. A capture begins on a stream, which no legacy stream may be; others join and are
 * joined through events of the program, see user_event_record. What is captured is judged at
 * once: two nodes that touch the same bytes of a page, one of them writing, with no path
 * between them, are a race.
 *
 * The end, on the same stream, gives a graph to be ended by glk_soft_graph_free. -EIO and class
 * CAPTURE, and no graph: a call that is not allowed broke the capture, or a stream did work
 * in it that was not waited for, or it is a stream that only joined, which breaks the capture
 * and does not end it. -EINVAL: the stream captures nothing, or something already.
 *
 * At most 1023 graphs at once, of 16384 nodes each (131072 of all), and 32 streams in a
 * capture: -ENOMEM, class LIMIT, and the capture lives on.
 */
int glk_soft_capture_begin(struct glk_drv *drv, int device, struct CUstream_st *stream);
int glk_soft_capture_end(
	struct glk_drv *drv, int device, struct CUstream_st *stream, uint32_t *ret_graph);

/*
 * Queues the work of a graph on a stream: one operation a node, all or none, behind the
 * graph's launch before. Mappings and rights are those of the moment of the launch, and what
 * is named stays mapped until it has run. 0; -EINVAL no graph, nothing mapped, no right, or a
 * race with queued work; -EBUSY on a capturing stream, whose capture it breaks; -ENOMEM.
 */
int glk_soft_graph_launch(
	struct glk_drv *drv, uint32_t graph, int device, struct CUstream_st *stream);
/* What is queued of it runs on. */
int glk_soft_graph_free(struct glk_drv *drv, uint32_t graph);

/* The modelled clock: what all calls so far would have taken on an H200. */
int glk_soft_clock(struct glk_drv *drv, int64_t *ret_ns);

/*
 * What lies behind an address: a number of the page, never given to another one of this
 * device, and the place in it. 0; -EINVAL when nothing is mapped there.
 */
int glk_soft_physical(
	struct glk_drv *drv, uint64_t addr, uint64_t *ret_page, size_t *ret_offset);

/* The modelled time of a stream: when its copies that ran so far end on the links that they go over.
 * All links are free at 0. */
int glk_soft_link_time(
	struct glk_drv *drv, int device, struct CUstream_st *stream, int64_t *ret_ns);
/* Bytes that went over the link of a GPU to the host, or from it. */
int glk_soft_link_bytes(struct glk_drv *drv, int device, bool up, uint64_t *ret_bytes);
/* Of these, over all GPUs, that went to a GPU from another NUMA node than its own, or from it to such a one. */
int glk_soft_across_bytes(struct glk_drv *drv, bool up, uint64_t *ret_bytes);

/*
 * The pace of links. Copies over links then run when the modelled time has come at which the links have
 * carried them, and that stands still but for the next calls and for the host, which makes it go on as
 * long as it waits for a stream. Before anything is queued.
 */
int glk_soft_pace(struct glk_drv *drv);
/* On to the end of the copy that ends first, which then runs. -EAGAIN: none is under way. */
int glk_soft_pace_step(struct glk_drv *drv);
int glk_soft_pace_time(struct glk_drv *drv, int64_t *ret_ns);

/* Bytes of host memory that pages hold at this moment, over all GPUs and nodes. */
int glk_soft_resident(struct glk_drv *drv, uint64_t *ret_bytes);

/* What managed memory did for a GPU. */
struct glk_soft_managed {
	uint64_t gpu_faults,
		host_faults;	  /* blocks of 2 MiB that were not where they were used */
	uint64_t to_gpu, to_host; /* bytes that were moved */
	uint64_t evicted;	  /* blocks that went since the GPU was full */
	uint64_t remote;   /* blocks that were used where they lay, over the link */
	uint64_t resident; /* bytes on the GPU now */
};
int glk_soft_managed_figures(
	struct glk_drv *drv, int device, struct glk_soft_managed *ret_did);

/* The host touches managed memory, near a GPU, under whose figures it is counted: what a page fault
 * tells a real driver. 0; -EINVAL: it is none. */
int glk_soft_managed_touch(
	struct glk_drv *drv, int device, uint64_t addr, size_t size, bool write);

/* Maps of the process that this device has: one a reservation, and what rights make of it. */
int glk_soft_maps(struct glk_drv *drv, int64_t *ret_maps);

#endif
