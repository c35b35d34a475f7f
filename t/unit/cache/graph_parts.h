/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_GRAPH_PARTS_H
#define GLK_UNIT_CACHE_GRAPH_PARTS_H

/* What graph.c and graph/state.c share. */
#include "stepped.h"
#include <errno.h>
#include <pthread.h>

#define PAGE (8 * MIB)

/* A pool with a capture on a stream. */
static inline void open_capture(
	struct rig *rig, uint64_t pool, struct CUstream_st *stream)
{
	if (rig_begin(rig, pool, stream))
		tap_bail(rig_error().text);
	rig_capture(rig, stream);
}

static inline uint32_t close_capture(
	struct rig *rig, uint64_t pool, struct CUstream_st *stream)
{
	uint32_t graph = rig_capture_end(rig, stream);

	if (!graph || rig_end_pool(rig, pool))
		tap_bail(rig_error().text);
	return graph;
}

#endif
