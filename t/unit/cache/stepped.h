/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_STEPPED_H
#define GLK_UNIT_CACHE_STEPPED_H

/* Memory in the hands of kernels, on a device whose streams run when they are stepped. */
#include "rig.h"

#define STEPPED                                                                          \
	(const char *const[])                                                            \
	{                                                                                \
		"soft.streams=stepped", NULL                                             \
	}

static inline uint64_t waits_of(struct rig *rig)
{
	return rig_calls(rig, GLAKE_CALL_STREAM_WAIT);
}

/* A block and a kernel on it, which the device refuses where nothing orders it. */
static inline uint64_t give(struct rig *rig, size_t size, struct CUstream_st *stream)
{
	uint64_t addr = rig_alloc(rig, size, stream);

	if (!addr)
		tap_bail(rig_error().text);
	rig_work(rig, addr, size, stream);
	return addr;
}

#endif
