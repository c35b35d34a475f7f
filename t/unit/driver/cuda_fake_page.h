/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_CUDA_FAKE_PAGE_H
#define GLK_T_CUDA_FAKE_PAGE_H

/* Addresses and pages of our own libcuda.so.1; a part of cuda_fake.c, which alone includes it. */

static glk_cu_result fake_cuMemAddressReserve(glk_cu_address *address, size_t size,
	size_t align, glk_cu_address hint, unsigned long long flags)
{
	BEGIN;
	fake.size = size;
	fake.flags = flags;
	*address = 0x700000000000;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemAddressFree(glk_cu_address address, size_t size)
{
	BEGIN;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemCreate(glk_cu_page *page, size_t size,
	const struct glk_cu_prop *prop, unsigned long long flags)
{
	char name[32];
	const char *end;

	BEGIN;
	/* how it ends on a node, told to another process */
	snprintf(name, sizeof(name), "FAKE_NODE_%d", prop->location.id);
	end = prop->location.type == GLK_CU_LOCATION_HOST_NUMA ? getenv(name) : NULL;
	if (end && !strcmp(end, "crash"))
		raise(SIGSEGV);
	while (end && !strcmp(end, "hang"))
		pause();
	if (end && !strcmp(end, "refuse"))
		return GLK_CU_NOT_SUPPORTED;
	if (end && !strcmp(end, "context") && !fake.current)
		return GLK_CU_INVALID_CONTEXT;
	fake.prop = *prop;
	fake.size = size;
	fake.flags = flags;
	*page = (glk_cu_page)++fake.pages;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemRelease(glk_cu_page page)
{
	BEGIN;
	fake.pages--;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemMap(glk_cu_address address, size_t size, size_t offset,
	glk_cu_page page, unsigned long long flags)
{
	BEGIN;
	fake.address = address;
	fake.size = size;
	fake.offset = offset;
	fake.flags = flags;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemUnmap(glk_cu_address address, size_t size)
{
	BEGIN;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemSetAccess(glk_cu_address address, size_t size,
	const struct glk_cu_access *access, size_t count)
{
	BEGIN;
	fake.access_count = count;
	for (size_t i = 0; i < count && i < 4; i++)
		fake.access[i] = access[i];
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemGetAllocationGranularity(
	size_t *size, const struct glk_cu_prop *prop, glk_cu_granularity which)
{
	BEGIN;
	*size = which == GLK_CU_GRANULARITY_MINIMUM ? (size_t)1 << 16 : (size_t)2 << 20;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemExportToShareableHandle(
	void *handle, glk_cu_page page, glk_cu_handle_type type, unsigned long long flags)
{
	BEGIN;
	*(int *)handle = dup(STDOUT_FILENO);
	return type == GLK_CU_HANDLE_FD ? GLK_CU_SUCCESS : GLK_CU_INVALID_VALUE;
}

static glk_cu_result fake_cuMemImportFromShareableHandle(
	glk_cu_page *page, void *handle, glk_cu_handle_type type)
{
	BEGIN;
	fake.imported = (uintptr_t)handle;
	*page = 77;
	return type == GLK_CU_HANDLE_FD ? GLK_CU_SUCCESS : GLK_CU_INVALID_VALUE;
}

static glk_cu_result fake_cuMemGetAllocationPropertiesFromHandle(
	struct glk_cu_prop *prop, glk_cu_page page)
{
	BEGIN;
	*prop = (struct glk_cu_prop){.type = GLK_CU_ALLOCATION_PINNED};
	prop->location = fake.page_location;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemGetHandleForAddressRange(void *handle,
	glk_cu_address address, size_t size, glk_cu_range_type type,
	unsigned long long flags)
{
	BEGIN;
	fake.address = address;
	fake.size = size;
	fake.range_flags[fake.ranges++ % 2] = flags;
	if (type != GLK_CU_RANGE_DMABUF || (flags & fake.range_refused) ||
		fake.range_never)
		return GLK_CU_INVALID_VALUE;
	*(int *)handle = dup(STDOUT_FILENO);
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuDeviceCanAccessPeer(
	int *can, glk_cu_device device, glk_cu_device peer)
{
	BEGIN;
	*can = device != peer && !fake.no_peers;
	return GLK_CU_SUCCESS;
}

#endif
