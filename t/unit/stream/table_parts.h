/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_STREAM_TABLE_PARTS_H
#define GLK_UNIT_STREAM_TABLE_PARTS_H

/* What the tests of the table of streams share: handles that no driver made, and one that knows them. */
#include "gpu.h"

#include <errno.h>
#include <pthread.h>

/* A handle is a value: these stand for streams that no driver made. */
static inline struct CUstream_st *fake(uintptr_t n)
{
	return (struct CUstream_st *)(n << 8 | 0x40);
}

/* A driver that knows all handles but one, and numbers streams as it is told. */
static uint64_t serial_of_next;
static struct CUstream_st *foreign;

static int facts_of(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_stream_facts *ret_facts)
{
	(void)drv;
	(void)device;
	*ret_facts = (struct glk_stream_facts){.id = serial_of_next};
	return 0;
}

static int owner_of(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	(void)drv;
	(void)device;
	return foreign && stream == foreign ? -EINVAL : 0;
}

static inline void table_open(struct gpu *gpu)
{
	static struct glk_drv_ops ops;

	gpu_open(gpu);
	ops = *gpu->drv->ops;
	ops.stream_facts = facts_of;
	ops.stream_owner = owner_of;
	gpu->drv->ops = &ops;
	serial_of_next = 0;
	foreign = NULL;
}

#endif
