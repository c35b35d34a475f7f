/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_CUDA_FAKE_MANAGED_H
#define GLK_T_CUDA_FAKE_MANAGED_H

/* Managed memory of our own libcuda.so.1; a part of cuda_fake.c, which alone includes it. */

static glk_cu_result fake_cuMemAllocManaged(
	glk_cu_address *address, size_t size, unsigned int flags)
{
	BEGIN;
	FORBIDDEN;
	fake.size = size;
	fake.flags = flags;
	*address = 0x600000000000;
	return fake.current ? GLK_CU_SUCCESS : GLK_CU_INVALID_CONTEXT;
}

static glk_cu_result fake_cuMemFree(glk_cu_address address)
{
	BEGIN;
	FORBIDDEN;
	fake.address = address;
	return GLK_CU_SUCCESS;
}

static glk_cu_result said(glk_cu_address address, size_t size, unsigned int signature,
	unsigned int type, int id)
{
	fake.address = address;
	fake.size = size;
	fake.managed_signature = signature;
	fake.managed = (struct glk_cu_location){type, id};
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemAdvise_v1(
	glk_cu_address address, size_t size, glk_cu_advice advice, glk_cu_device device)
{
	BEGIN;
	fake.managed_advice = advice;
	return said(address, size, 1, 0, device);
}

static glk_cu_result fake_cuMemAdvise_v2(glk_cu_address address, size_t size,
	glk_cu_advice advice, struct glk_cu_location at)
{
	BEGIN;
	fake.managed_advice = advice;
	return said(address, size, 2, at.type, at.id);
}

static glk_cu_result fake_cuMemPrefetchAsync_v1(glk_cu_address address, size_t size,
	glk_cu_device device, struct CUstream_st *stream)
{
	BEGIN;
	return said(address, size, 1, 0, device);
}

static glk_cu_result fake_cuMemPrefetchAsync_v2(glk_cu_address address, size_t size,
	struct glk_cu_location at, unsigned int flags, struct CUstream_st *stream)
{
	BEGIN;
	return flags ? GLK_CU_INVALID_VALUE : said(address, size, 2, at.type, at.id);
}

static glk_cu_result fake_cuMemRangeGetAttribute(void *data, size_t size,
	glk_cu_range_attribute attribute, glk_cu_address address, size_t count)
{
	bool type = attribute == GLK_CU_RANGE_PREFERRED_TYPE ||
		attribute == GLK_CU_RANGE_PREFETCHED_TYPE;

	BEGIN;
	if (size != sizeof(int))
		return GLK_CU_INVALID_VALUE;
	*(int *)data = type ? (int)fake.managed.type : fake.managed.id;
	return GLK_CU_SUCCESS;
}

#endif
