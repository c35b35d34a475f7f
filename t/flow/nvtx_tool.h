/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef FLOW_NVTX_TOOL_H
#define FLOW_NVTX_TOOL_H

/* What the tool of nvtx_tool.c keeps, which tests look up in it. */
#include "guard/nvtx.h"

#define NVTX_MOST  256
#define NVTX_HEAPS 16

struct nvtx_told {
	int began; /* both ways, together */
	int wrong; /* what should not have been told, or not so */
	unsigned functions[GLK_NVTX_MODULES];	/* of NVTX itself, by module */
	struct glk_nvtx_range heap[NVTX_HEAPS]; /* in their order */
	int heaps, ended;
	struct nvtx_region {
		const void *ptr;
		size_t size; /* 0: none */
		char name[256];
	} regions[NVTX_MOST];
	int begun, gone;
	void (*calls)(
		void); /* what it calls when it is asked and told of a heap; NULL: nothing */
};

#endif
