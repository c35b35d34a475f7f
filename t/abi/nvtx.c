/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Our declarations of NVTX's memory interface against NVIDIA's headers, and what a tool gets from those beside what it gets from
 * us. Built as a skip where no nvToolsExtMem.h was found.
 */
#include "tap.h"

#ifndef GLK_HAVE_NVTX
int main(void)
{
	tap_skip_all("no nvtx3/nvToolsExtMem.h on the machine that built this test");
}
#else

#include "flow/nvtx_tool.h"

#include <nvtx3/nvToolsExtMem.h>

#include <dlfcn.h>
#include <stdlib.h>

#define SIZE(ours, theirs) is_int(sizeof(struct ours), sizeof(theirs), "size of " #theirs)
#define AT(ours, field, theirs, other)                                                   \
	is_int(offsetof(struct ours, field), offsetof(theirs, other), #theirs "." #other)

static void structs(void)
{
	SIZE(glk_nvtx_segment, nvtxExtModuleSegment_t);
	AT(glk_nvtx_segment, count, nvtxExtModuleSegment_t, slotCount);
	AT(glk_nvtx_segment, slots, nvtxExtModuleSegment_t, functionSlots);
	SIZE(glk_nvtx_module, nvtxExtModuleInfo_t);
	AT(glk_nvtx_module, size, nvtxExtModuleInfo_t, structSize);
	AT(glk_nvtx_module, module, nvtxExtModuleInfo_t, moduleId);
	AT(glk_nvtx_module, compatible, nvtxExtModuleInfo_t, compatId);
	AT(glk_nvtx_module, count, nvtxExtModuleInfo_t, segmentsCount);
	AT(glk_nvtx_module, segments, nvtxExtModuleInfo_t, segments);
	AT(glk_nvtx_module, export, nvtxExtModuleInfo_t, getExportFunction);
	AT(glk_nvtx_module, more, nvtxExtModuleInfo_t, extInfo);
	SIZE(glk_nvtx_range, nvtxMemVirtualRangeDesc_t);
	AT(glk_nvtx_range, ptr, nvtxMemVirtualRangeDesc_t, ptr);
	SIZE(glk_nvtx_heap, nvtxMemHeapDesc_t);
	AT(glk_nvtx_heap, size, nvtxMemHeapDesc_t, structSize);
	AT(glk_nvtx_heap, usage, nvtxMemHeapDesc_t, usage);
	AT(glk_nvtx_heap, type, nvtxMemHeapDesc_t, type);
	AT(glk_nvtx_heap, desc_size, nvtxMemHeapDesc_t, typeSpecificDescSize);
	AT(glk_nvtx_heap, desc, nvtxMemHeapDesc_t, typeSpecificDesc);
	AT(glk_nvtx_heap, category, nvtxMemHeapDesc_t, category);
	AT(glk_nvtx_heap, name_type, nvtxMemHeapDesc_t, messageType);
	AT(glk_nvtx_heap, name, nvtxMemHeapDesc_t, message);
	SIZE(glk_nvtx_regions, nvtxMemRegionsRegisterBatch_t);
	AT(glk_nvtx_regions, type, nvtxMemRegionsRegisterBatch_t, regionType);
	AT(glk_nvtx_regions, heap, nvtxMemRegionsRegisterBatch_t, heap);
	AT(glk_nvtx_regions, count, nvtxMemRegionsRegisterBatch_t, regionCount);
	AT(glk_nvtx_regions, element, nvtxMemRegionsRegisterBatch_t,
		regionDescElementSize);
	AT(glk_nvtx_regions, ranges, nvtxMemRegionsRegisterBatch_t, regionDescElements);
	AT(glk_nvtx_regions, ret_handles, nvtxMemRegionsRegisterBatch_t,
		regionHandleElementsOut);
	SIZE(glk_nvtx_gone, nvtxMemRegionsUnregisterBatch_t);
	AT(glk_nvtx_gone, type, nvtxMemRegionsUnregisterBatch_t, refType);
	AT(glk_nvtx_gone, count, nvtxMemRegionsUnregisterBatch_t, refCount);
	AT(glk_nvtx_gone, element, nvtxMemRegionsUnregisterBatch_t, refElementSize);
	AT(glk_nvtx_gone, pointers, nvtxMemRegionsUnregisterBatch_t, refElements);
	SIZE(glk_nvtx_name, nvtxMemRegionNameDesc_t);
	AT(glk_nvtx_name, name_type, nvtxMemRegionNameDesc_t, nameType);
	AT(glk_nvtx_name, ptr, nvtxMemRegionNameDesc_t, region);
	AT(glk_nvtx_name, name, nvtxMemRegionNameDesc_t, name);
	AT(glk_nvtx_name, category, nvtxMemRegionNameDesc_t, category);
	SIZE(glk_nvtx_names, nvtxMemRegionsNameBatch_t);
	AT(glk_nvtx_names, count, nvtxMemRegionsNameBatch_t, regionCount);
	AT(glk_nvtx_names, element, nvtxMemRegionsNameBatch_t, regionElementSize);
	AT(glk_nvtx_names, names, nvtxMemRegionsNameBatch_t, regionElements);
	SIZE(glk_nvtx_callbacks, NvtxExportTableCallbacks);
	AT(glk_nvtx_callbacks, get, NvtxExportTableCallbacks, GetModuleFunctionTable);
	SIZE(glk_nvtx_versions, NvtxExportTableVersionInfo);
	AT(glk_nvtx_versions, version, NvtxExportTableVersionInfo, version);
	AT(glk_nvtx_versions, tell, NvtxExportTableVersionInfo, SetInjectionNvtxVersion);
}

static void numbers(void)
{
	is_int(GLK_NVTX_VERSION, NVTX_VERSION, "the version");
	is_int(GLK_NVTX_MEMORY, NVTX_EXT_MODULEID_MEM, "the module");
	is_int(GLK_NVTX_COMPATIBLE, NVTX_EXT_COMPATID_MEM, "what it is compatible with");
	is_int(GLK_NVTX_SLOTS, NVTX_EXT_MEM_SLOT_COUNT, "slots");
	is_int(GLK_NVTX_HEAP_REGISTER, NVTX3EXT_CBID_nvtxMemHeapRegister, "a slot");
	is_int(GLK_NVTX_HEAP_UNREGISTER, NVTX3EXT_CBID_nvtxMemHeapUnregister, "a slot");
	is_int(GLK_NVTX_REGIONS_REGISTER, NVTX3EXT_CBID_nvtxMemRegionsRegister, "a slot");
	is_int(GLK_NVTX_REGIONS_UNREGISTER, NVTX3EXT_CBID_nvtxMemRegionsUnregister,
		"a slot");
	is_int(GLK_NVTX_REGIONS_NAME, NVTX3EXT_CBID_nvtxMemRegionsName, "a slot");
	is_int(GLK_NVTX_SUB_ALLOCATOR, NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR, "a usage");
	is_int(GLK_NVTX_ADDRESS, NVTX_MEM_TYPE_VIRTUAL_ADDRESS, "a type");
	is_int(GLK_NVTX_ADDRESS, NVTX_MEM_REGION_REF_TYPE_POINTER, "a reference");
	is_int(GLK_NVTX_ASCII, NVTX_MESSAGE_TYPE_ASCII, "a text");
	is_int(GLK_NVTX_MODULES, NVTX_CB_MODULE_SIZE, "modules");
	is_int(GLK_NVTX_CALLBACKS, NVTX_ETID_CALLBACKS, "a table");
	is_int(GLK_NVTX_VERSIONS, NVTX_ETID_VERSIONINFO, "a table");
}

/* By their headers, a heap with a region that has a name. */
static void they(const char *at, size_t size)
{
	nvtxMemVirtualRangeDesc_t range = {size, at}, part = {100, at + 512};
	nvtxMemHeapDesc_t desc = {.extCompatID = NVTX_EXT_COMPATID_MEM,
		.structSize = sizeof(desc),
		.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
		.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
		.typeSpecificDescSize = sizeof(range),
		.typeSpecificDesc = &range,
		.messageType = NVTX_MESSAGE_TYPE_ASCII,
		.message.ascii = "a heap"};
	nvtxMemRegionsRegisterBatch_t regions = {.extCompatID = NVTX_EXT_COMPATID_MEM,
		.structSize = sizeof(regions),
		.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
		.regionCount = 1,
		.regionDescElementSize = sizeof(part),
		.regionDescElements = &part};
	nvtxMemRegionNameDesc_t name = {.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER,
		.nameType = NVTX_MESSAGE_TYPE_ASCII,
		.region.pointer = part.ptr,
		.name.ascii = "a region"};
	nvtxMemRegionsNameBatch_t names = {.extCompatID = NVTX_EXT_COMPATID_MEM,
		.structSize = sizeof(names),
		.regionCount = 1,
		.regionElementSize = sizeof(name),
		.regionElements = &name};
	nvtxMemHeapHandle_t heap = nvtxMemHeapRegister(NULL, &desc);

	regions.heap = heap;
	nvtxMemRegionsRegister(NULL, &regions);
	nvtxMemRegionsName(NULL, &names);
}

static void we(const char *at, size_t size)
{
	void *heap;

	ok(glk_nvtx_attach(), "we find it too");
	heap = glk_nvtx_heap((uintptr_t)at, size, "a heap");
	glk_nvtx_region(heap, (uintptr_t)at + 512, 100);
	ok(glk_nvtx_name((uintptr_t)at + 512, "a region"), "it takes names");
}

int main(void)
{
	static char theirs[4096], ours[4096];
	const struct nvtx_told *told;
	unsigned functions[GLK_NVTX_MODULES];
	void *tool;

	tap_plan_later();
	structs();
	numbers();
	setenv("NVTX_INJECTION64_PATH", NVTX_TOOL, 1);
	tool = dlopen(NVTX_TOOL, RTLD_NOW);
	told = tool ? dlsym(tool, "nvtx_told") : NULL;
	if (!told)
		tap_bail("no tool");
	they(theirs, sizeof(theirs));
	is_int(told->began, 2, "their headers ask the tool in two ways");
	memcpy(functions, told->functions, sizeof(functions));
	we(ours, sizeof(ours));
	is_int(told->began, 4, "  as we do");
	ok(!memcmp(functions, told->functions, sizeof(functions)),
		"  with as many functions of each module");
	ok(told->heaps == 2 && told->heap[0].ptr == theirs && told->heap[1].ptr == ours &&
			told->heap[0].size == told->heap[1].size,
		"it has a heap of each");
	ok(told->begun == 2 && !strcmp(told->regions[NVTX_MOST - 1].name, "a region") &&
			!strcmp(told->regions[NVTX_MOST - 2].name, "a region"),
		"  and a region");
	is_int(told->wrong, 0, "  and nothing is wrong of either");
	return tap_done();
}
#endif
