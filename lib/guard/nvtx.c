/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The tool that is attached by NVTX: asked once a process, as NVTX's own headers do it. */
#include "guard/nvtx.h"

#include "base/atomic.h"
#include "base/log.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is offered to the tool: of the functions for ranges and marks none is called. */
static struct {
	intptr_t slots[GLK_NVTX_SLOTS];
	glk_nvtx_fn fns[GLK_NVTX_MODULES][GLK_NVTX_MOST];
	glk_nvtx_fn *tables[GLK_NVTX_MODULES][GLK_NVTX_MOST];
	glk_atomic(int) state;
} tool;

enum { NOT_ASKED, ASKED, THERE, NOT_THERE };

static int table_of(int module, glk_nvtx_fn ***ret_table, unsigned *ret_size)
{
	/* by module; with the first entry, which is none */
	static const unsigned sizes[GLK_NVTX_MODULES] = {0, 16, 9, 15, 7, 16, 7};

	if (module < 1 || module >= GLK_NVTX_MODULES)
		return 0;
	for (unsigned i = 1; i < sizes[module]; i++)
		tool.tables[module][i] = &tool.fns[module][i];
	if (ret_size)
		*ret_size = sizes[module];
	if (ret_table)
		*ret_table = tool.tables[module];
	return 1;
}

static void hears(uint32_t version)
{
	(void)version;
}

static const void *offer(uint32_t id)
{
	static const struct glk_nvtx_callbacks callbacks = {sizeof(callbacks), table_of};
	static const struct glk_nvtx_versions versions = {
		sizeof(versions), GLK_NVTX_VERSION, 0, hears};

	return id == GLK_NVTX_CALLBACKS	  ? (const void *)&callbacks
		: id == GLK_NVTX_VERSIONS ? (const void *)&versions
					  : NULL;
}

/* The loader has a lock of its own, which a constructor holds that opens a context: none is held here. */
static void *load(void)
{
	const char *path = secure_getenv("NVTX_INJECTION64_PATH");
	void *library = path && *path ? dlopen(path, RTLD_LAZY) : NULL;

	if (path && *path && !library)
		glk_warn("the tool of NVTX_INJECTION64_PATH cannot be loaded: %s",
			dlerror());
	return library;
}

static bool ask(void *library)
{
	struct glk_nvtx_segment segment = {
		.id = 1, .count = GLK_NVTX_SLOTS, .slots = tool.slots};
	struct glk_nvtx_module module = {.version = GLK_NVTX_VERSION,
		.size = sizeof(module),
		.module = GLK_NVTX_MEMORY,
		.compatible = GLK_NVTX_COMPATIBLE,
		.count = 1,
		.segments = &segment};
	int (*begin)(const void *(*table)(uint32_t)) = NULL;
	int (*extend)(struct glk_nvtx_module *) = NULL;

	*(void **)&begin = dlsym(library, "InitializeInjectionNvtx2");
	*(void **)&extend = dlsym(library, "InitializeInjectionNvtxExtension");
	if (begin)
		begin(offer);
	/* one that failed has left nothing of use */
	return extend && extend(&module) && tool.slots[GLK_NVTX_HEAP_REGISTER] &&
		tool.slots[GLK_NVTX_REGIONS_REGISTER] &&
		tool.slots[GLK_NVTX_REGIONS_UNREGISTER];
}

bool glk_nvtx_attach(void)
{
	int state = glk_load_acquire(&tool.state), none = NOT_ASKED;
	void *library = state == NOT_ASKED ? load() : NULL;

	if (state == NOT_ASKED && glk_cas_acq_rel(&tool.state, &none, ASKED)) {
		state = library && ask(library) ? THERE : NOT_THERE;
		glk_store_release(&tool.state, state); /* pairs with: the acquire above */
		return state == THERE;
	}
	/* the tool itself opens a context, or another thread does meanwhile: nobody waits for a tool */
	state = glk_load_acquire(&tool.state);
	if (state == ASKED)
		glk_warn(
			"a context was opened while the tool of NVTX_INJECTION64_PATH was "
			"asked, which is told nothing of it");
	return state == THERE;
}

void *glk_nvtx_heap(uint64_t addr, uint64_t size, const char *name)
{
	void *(*call)(void *domain, const struct glk_nvtx_heap *) = NULL;
	struct glk_nvtx_range range = {.size = size, .ptr = (void *)(uintptr_t)addr};
	struct glk_nvtx_heap heap = {.compatible = GLK_NVTX_COMPATIBLE,
		.size = sizeof(heap),
		.usage = GLK_NVTX_SUB_ALLOCATOR,
		.type = GLK_NVTX_ADDRESS,
		.desc_size = sizeof(range),
		.desc = &range,
		.name_type = GLK_NVTX_ASCII,
		.name = name};

	memcpy(&call, &tool.slots[GLK_NVTX_HEAP_REGISTER], sizeof(call));
	return call(NULL, &heap);
}

void glk_nvtx_heap_end(void *heap)
{
	void (*call)(void *domain, void *heap) = NULL;

	memcpy(&call, &tool.slots[GLK_NVTX_HEAP_UNREGISTER], sizeof(call));
	if (call)
		call(NULL, heap);
}

void glk_nvtx_region(void *heap, uint64_t addr, uint64_t size)
{
	void (*call)(void *domain, const struct glk_nvtx_regions *) = NULL;
	struct glk_nvtx_range range = {.size = size, .ptr = (void *)(uintptr_t)addr};
	struct glk_nvtx_regions regions = {.compatible = GLK_NVTX_COMPATIBLE,
		.size = sizeof(regions),
		.type = GLK_NVTX_ADDRESS,
		.heap = heap,
		.count = 1,
		.element = sizeof(range),
		.ranges = &range};

	memcpy(&call, &tool.slots[GLK_NVTX_REGIONS_REGISTER], sizeof(call));
	call(NULL, &regions);
}

void glk_nvtx_region_end(uint64_t addr)
{
	void (*call)(void *domain, const struct glk_nvtx_gone *) = NULL;
	const void *ptr = (void *)(uintptr_t)addr;
	struct glk_nvtx_gone gone = {.compatible = GLK_NVTX_COMPATIBLE,
		.size = sizeof(gone),
		.type = GLK_NVTX_ADDRESS,
		.count = 1,
		.element = sizeof(ptr),
		.pointers = &ptr};

	memcpy(&call, &tool.slots[GLK_NVTX_REGIONS_UNREGISTER], sizeof(call));
	call(NULL, &gone);
}

/* compute-sanitizer 2025.3 has names of so many characters, and warns of each that is longer. */
#define NAME_MOST 49

bool glk_nvtx_name(uint64_t addr, const char *name)
{
	void (*call)(void *domain, const struct glk_nvtx_names *) = NULL;
	char brief[NAME_MOST + 1];
	struct glk_nvtx_name named = {.type = GLK_NVTX_ADDRESS,
		.name_type = GLK_NVTX_ASCII,
		.ptr = (void *)(uintptr_t)addr,
		.name = brief};
	struct glk_nvtx_names names = {.compatible = GLK_NVTX_COMPATIBLE,
		.size = sizeof(names),
		.count = 1,
		.element = sizeof(named),
		.names = &named};

	snprintf(brief, sizeof(brief), "%s", name);
	memcpy(&call, &tool.slots[GLK_NVTX_REGIONS_NAME], sizeof(call));
	if (call)
		call(NULL, &names);
	return call;
}
