/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A tool as NVTX_INJECTION64_PATH names one: it keeps what it is told of memory, and whether that was right. */
#include "nvtx_tool.h"

#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

SHOWN struct nvtx_told nvtx_told;

static void wrong(bool is)
{
	nvtx_told.wrong += is;
}

static struct nvtx_region *region_at(const void *ptr)
{
	for (int i = 0; i < NVTX_MOST; i++)
		if (nvtx_told.regions[i].size && nvtx_told.regions[i].ptr == ptr)
			return &nvtx_told.regions[i];
	return NULL;
}

static void *heap_begins(void *domain, const struct glk_nvtx_heap *h)
{
	wrong(domain || h->compatible != GLK_NVTX_COMPATIBLE || h->size != sizeof(*h) ||
		h->usage != GLK_NVTX_SUB_ALLOCATOR || h->type != GLK_NVTX_ADDRESS ||
		h->desc_size != sizeof(*h->desc) || h->name_type != GLK_NVTX_ASCII ||
		nvtx_told.heaps == NVTX_HEAPS);
	if (nvtx_told.calls)
		nvtx_told.calls();
	nvtx_told.heap[nvtx_told.heaps] = *h->desc;
	return &nvtx_told.heap[nvtx_told.heaps++];
}

static void heap_ends(void *domain, void *heap)
{
	const struct glk_nvtx_range *range = heap;

	wrong(domain || range < nvtx_told.heap ||
		range >= nvtx_told.heap + nvtx_told.heaps);
	if (nvtx_told.calls)
		nvtx_told.calls();
	nvtx_told.ended++;
}

static void begins(void *domain, const struct glk_nvtx_regions *r)
{
	const struct glk_nvtx_range *heap = r->heap;
	struct nvtx_region *free = NULL;

	wrong(domain || r->compatible != GLK_NVTX_COMPATIBLE || r->size != sizeof(*r) ||
		r->type != GLK_NVTX_ADDRESS || r->count != 1 ||
		r->element != sizeof(*r->ranges) || r->ret_handles);
	wrong((const char *)r->ranges->ptr < (const char *)heap->ptr ||
		(const char *)r->ranges->ptr + r->ranges->size >
			(const char *)heap->ptr + heap->size);
	for (int i = 0; i < NVTX_MOST; i++) {
		const struct nvtx_region *other = &nvtx_told.regions[i];

		if (!other->size)
			free = &nvtx_told.regions[i];
		/* not even one byte between them: what is written past one is not seen */
		else
			wrong((const char *)r->ranges->ptr <=
					(const char *)other->ptr + other->size &&
				(const char *)other->ptr <=
					(const char *)r->ranges->ptr + r->ranges->size);
	}
	wrong(!free);
	if (free)
		*free = (struct nvtx_region){
			.ptr = r->ranges->ptr, .size = r->ranges->size};
	nvtx_told.begun++;
}

static void goes(void *domain, const struct glk_nvtx_gone *g)
{
	struct nvtx_region *region = region_at(g->pointers[0]);

	wrong(domain || g->compatible != GLK_NVTX_COMPATIBLE || g->size != sizeof(*g) ||
		g->type != GLK_NVTX_ADDRESS || g->count != 1 ||
		g->element != sizeof(*g->pointers) || !region);
	if (region)
		region->size = 0;
	nvtx_told.gone++;
}

static void names(void *domain, const struct glk_nvtx_names *n)
{
	struct nvtx_region *region = region_at(n->names->ptr);

	wrong(domain || n->compatible != GLK_NVTX_COMPATIBLE || n->size != sizeof(*n) ||
		n->count != 1 || n->element != sizeof(*n->names) || n->unused_too ||
		n->names->type != GLK_NVTX_ADDRESS ||
		n->names->name_type != GLK_NVTX_ASCII || !region);
	if (region)
		strncpy(region->name, n->names->name, sizeof(region->name) - 1);
}

/* NVTX itself, which NVTX's headers ask first: its functions are counted, and one of each module is taken. */
SHOWN int InitializeInjectionNvtx2(const void *(*table)(uint32_t));
int InitializeInjectionNvtx2(const void *(*table)(uint32_t))
{
	const struct glk_nvtx_callbacks *callbacks = table(GLK_NVTX_CALLBACKS);
	const struct glk_nvtx_versions *versions = table(GLK_NVTX_VERSIONS);
	glk_nvtx_fn **fns;
	unsigned count;

	wrong(table(77) || !callbacks || callbacks->size != sizeof(*callbacks) ||
		!versions || versions->size != sizeof(*versions) ||
		versions->version != GLK_NVTX_VERSION ||
		callbacks->get(0, &fns, &count) ||
		callbacks->get(GLK_NVTX_MODULES, &fns, &count));
	versions->tell(GLK_NVTX_VERSION);
	for (int module = 1; module < GLK_NVTX_MODULES; module++) {
		wrong(!callbacks->get(module, &fns, &count));
		nvtx_told.functions[module] = count;
		wrong(fns[0] || !fns[count - 1]);
		/* a function of another one stays as it is */
		if (module == GLK_NVTX_MODULES - 1)
			*fns[count - 1] = *fns[count - 1];
	}
	nvtx_told.began++;
	return 1;
}

SHOWN int InitializeInjectionNvtxExtension(struct glk_nvtx_module *module);
int InitializeInjectionNvtxExtension(struct glk_nvtx_module *module)
{
	intptr_t *slots = module->segments->slots;

	wrong(module->version != GLK_NVTX_VERSION || module->size != sizeof(*module) ||
		module->module != GLK_NVTX_MEMORY ||
		module->compatible != GLK_NVTX_COMPATIBLE || module->count != 1 ||
		module->segments->id != 1 || module->segments->count != GLK_NVTX_SLOTS);
	nvtx_told.began++;
	if (nvtx_told.calls)
		nvtx_told.calls();
	if (getenv("NVTX_TOOL_REFUSES"))
		return 0;
	if (getenv("NVTX_TOOL_IDLE"))
		return 1;
	slots[GLK_NVTX_HEAP_REGISTER] = (intptr_t)heap_begins;
	slots[GLK_NVTX_HEAP_UNREGISTER] = (intptr_t)heap_ends;
	slots[GLK_NVTX_REGIONS_REGISTER] = (intptr_t)begins;
	slots[GLK_NVTX_REGIONS_UNREGISTER] = (intptr_t)goes;
	slots[GLK_NVTX_REGIONS_NAME] = (intptr_t)names;
	return 1;
}
