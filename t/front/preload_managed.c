/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Managed memory for a program that knows nothing of it, by pool.managed=over in the environment: what
 * it asks of cudaMalloc and its kin, and what it is told of it.
 */
#define TAP_NO_LOG
#include "tap.h"

#include "preload_calls.h"

static struct calls cu;
static const struct fake_state *fake;

/* More than the GPU has, in blocks that are what they were asked for. */
static void larger(struct CUstream_st *stream)
{
	fake_address ptr[6] = {0}, base = 0;
	size_t size = 0;
	int context;

	for (int i = 0; i < 6; i++)
		is_int(i % 2 ? cu.cuMemAllocAsync(&ptr[i], 400 * MIB, stream)
			     : cu.cuMemAlloc(&ptr[i], 400 * MIB),
			0, "a block, of 2.4 GiB together where the GPU has one");
	is_int(fake->count("cuMemAlloc_v2") + fake->count("cuMemAllocAsync"), 0,
		"none is the driver's own");
	ok(fake->count("cuMemAllocManaged") > 0, "all are managed memory");
	is_int(fake->pages(), 0, "and no page is");
	is_int(cu.cuMemGetAddressRange(&base, &size, ptr[1] + MIB), 0, "a range");
	ok(base == ptr[1] && size == 400 * MIB, "is that of the block");
	context = 7;
	is_int(cu.cuPointerGetAttribute(&context, 10, ptr[0]), 0, "a handle for others");
	is_int(context, 0, "cannot be had");
	memset((void *)(uintptr_t)ptr[2], 7, MIB);
	for (int i = 0; i < 6; i++)
		is_int(i % 2 ? cu.cuMemFreeAsync(ptr[i], stream) : cu.cuMemFree(ptr[i]),
			0, "freed");
}

/* What stays memory of the GPU. */
static void others(struct CUstream_st *stream)
{
	fake_address little = 0, graph = 0;
	int had = fake->count("cuMemAllocManaged"), pages;
	struct calls_handle handle;
	void *made = NULL;

	is_int(cu.cuMemAlloc(&little, 100000), 0, "a little block");
	ok(fake->pages() > 0, "lies on pages");
	is_int(cu.cuIpcGetMemHandle(&handle, little), 0, "which others may have");
	pages = fake->pages();
	is_int(cu.cuStreamBeginCapture(stream, 2), 0, "a capture");
	is_int(cu.cuMemAllocAsync(&graph, 8 * MIB, stream), 0, "asks for a block");
	is_int(cu.cuMemFreeAsync(graph, stream), 0, "and frees it");
	is_int(cu.cuStreamEndCapture(stream, &made), 0, "and lives");
	ok(fake->pages() >= pages, "pages are there");
	is_int(fake->count("cuMemAllocManaged"), had, "none of it is managed");
	is_int(cu.cuMemFree(little), 0, "freed");
}

int main(void)
{
	struct CUstream_st *stream = NULL;

	tap_plan_later();
	cu = calls_by("dlsym");
	fake = driver_state();
	calls_use(&cu, 0);
	is_int(cu.cuStreamCreate(&stream, 0), 0, "a stream");
	larger(stream);
	others(stream);
	return tap_done();
}
