/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_GUARD_NVTX_H
#define GLK_GUARD_NVTX_H

/*
 * NVTX's memory interface, as a tool sees it that NVTX_INJECTION64_PATH names: compute-sanitizer, Nsight. Our own declarations of
 * what nvToolsExtMem.h has, so that building needs no toolkit; t/abi/nvtx.c compares them where there is one. The tool gets a table
 * of slots by number and puts its functions there; those that it leaves empty it has no use for.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLK_NVTX_VERSION    3
#define GLK_NVTX_MEMORY	    1 /* the module */
#define GLK_NVTX_COMPATIBLE 0x0102
#define GLK_NVTX_SLOTS	    63

enum glk_nvtx_slot {
	GLK_NVTX_HEAP_REGISTER = 0,
	GLK_NVTX_HEAP_UNREGISTER = 1,
	GLK_NVTX_REGIONS_REGISTER = 3,
	GLK_NVTX_REGIONS_UNREGISTER = 5,
	GLK_NVTX_REGIONS_NAME = 6,
};

#define GLK_NVTX_SUB_ALLOCATOR                                                           \
	1 /* usage of a heap: but for its regions nothing of it may be touched */
#define GLK_NVTX_ADDRESS                                                                 \
	1 /* type of a heap and of a region; a region is named by its pointer */
#define GLK_NVTX_ASCII 1 /* type of a text */

struct glk_nvtx_segment {
	size_t id, count;
	intptr_t *slots;
};

struct glk_nvtx_module {
	uint16_t version, size, module, compatible;
	size_t count;
	struct glk_nvtx_segment *segments;
	intptr_t (*export)(uint32_t id);
	const void *more;
};

struct glk_nvtx_range {
	size_t size;
	const void *ptr;
};

struct glk_nvtx_heap {
	uint16_t compatible, size;
	uint32_t unused, usage, type;
	size_t desc_size;
	const struct glk_nvtx_range *desc;
	uint32_t category, name_type;
	const char *name;
};

struct glk_nvtx_regions {
	uint16_t compatible, size;
	uint32_t type;
	void *heap;
	size_t count, element;
	const struct glk_nvtx_range *ranges;
	void **ret_handles;
};

struct glk_nvtx_gone {
	uint16_t compatible, size;
	uint32_t type;
	size_t count, element;
	const void *const *pointers;
};

struct glk_nvtx_name {
	uint32_t type, name_type;
	const void *ptr;
	const char *name;
	uint32_t category, unused;
};

struct glk_nvtx_names {
	uint16_t compatible, size;
	uint32_t unused;
	size_t count, element;
	const struct glk_nvtx_name *names;
	size_t unused_too;
};

/* What NVTX itself has for a tool that asks it first: tables of its functions by module, of each a place to put one. */
#define GLK_NVTX_MODULES 7
#define GLK_NVTX_MOST	 16 /* functions of a module, and one more that is none */

enum glk_nvtx_table { GLK_NVTX_CALLBACKS = 1, GLK_NVTX_VERSIONS = 3 };

typedef void (*glk_nvtx_fn)(void);

struct glk_nvtx_callbacks {
	size_t size;
	int (*get)(int module, glk_nvtx_fn ***ret_table, unsigned *ret_size);
};

struct glk_nvtx_versions {
	size_t size;
	uint32_t version, unused;
	void (*tell)(uint32_t version);
};

/* Finds the tool, at the first call of the process, when CUDA was initialised: whether there is one that wants regions. */
bool glk_nvtx_attach(void);
/* All as glk_nvtx_attach() has said. A stretch of addresses of which the tool is told what lies there: its handle, or NULL. */
void *glk_nvtx_heap(uint64_t addr, uint64_t size, const char *name);
void glk_nvtx_heap_end(void *heap);
void glk_nvtx_region(void *heap, uint64_t addr, uint64_t size);
void glk_nvtx_region_end(uint64_t addr);
/* Whether it takes names. */
bool glk_nvtx_name(uint64_t addr, const char *name);

#endif
