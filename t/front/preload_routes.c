/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A small program that uses memory of GPU 0 and says in one line of JSON what its driver saw of
 * it. The argument is the way in which it finds the driver.
 */
#include "preload_calls.h"

#define BLOCKS 8

static void must(fake_result result, const char *what)
{
	if (result) {
		fprintf(stderr, "%s: %u\n", what, result);
		exit(1);
	}
}

int main(int count, char **arguments)
{
	const char *route = count > 1 ? arguments[1] : "dlsym";
	const struct fake_state *fake = driver_state();
	struct calls cu = calls_by(route);
	struct CUstream_st *stream = NULL;
	struct CUevent_st *event = NULL;
	fake_address plain[BLOCKS], ordered[BLOCKS], base = 0;
	size_t left = 0, total = 0, size = 0, pitch = 0;
	fake_address rows = 0;
	unsigned sum = 0;

	calls_use(&cu, 0);
	must(cu.cuStreamCreate(&stream, 0), "a stream");
	for (int i = 0; i < BLOCKS; i++) {
		must(cu.cuMemAlloc(&plain[i], MIB << i % 4), "plain memory");
		must(cu.cuMemAllocAsync(&ordered[i], MIB << i % 4, stream), "memory");
		memset((void *)(uintptr_t)plain[i], i, MIB << i % 4);
		memset((void *)(uintptr_t)ordered[i], i + BLOCKS, MIB << i % 4);
	}
	must(cu.cuMemAllocPitch(&rows, &pitch, 1000, 7, 4), "rows");
	must(cu.cuMemGetInfo(&left, &total), "figures");
	must(cu.cuMemGetAddressRange(&base, &size, plain[3] + 100), "a range");
	for (int i = 0; i < BLOCKS; i++) {
		sum += ((unsigned char *)(uintptr_t)plain[i])[MIB - 1] +
			((unsigned char *)(uintptr_t)ordered[i])[MIB - 1];
		must(cu.cuMemFree(plain[i]), "a free");
		must(cu.cuMemFreeAsync(ordered[i], stream), "a free in order");
	}
	must(cu.cuMemFree(rows), "the rows' free");
	must(cu.cuEventCreate(&event, 0), "an event");
	must(cu.cuEventRecord(event, stream), "a record");
	must(cu.cuStreamWaitEvent(NULL, event, 0), "a wait");
	must(cu.cuEventDestroy(event), "the event's end");
	must(cu.cuStreamDestroy(stream), "the stream's end");
	printf("{\"sum\": %u, \"alloc\": %d, \"alloc_async\": %d, \"pitch\": %d, "
	       "\"free\": %d, \"free_async\": %d, \"create\": %d, \"sync\": %d, \"total\": %zu, "
	       "\"left\": %zu, \"range\": %d, \"rows\": %d}\n",
		sum, fake->count("cuMemAlloc_v2"), fake->count("cuMemAllocAsync"),
		fake->count("cuMemAllocPitch_v2"), fake->count("cuMemFree_v2"),
		fake->count("cuMemFreeAsync"), fake->count("cuMemCreate"),
		fake->count("cuCtxSynchronize"), total, left,
		base == plain[3] && size == 8 * MIB, pitch == 1024);
	return 0;
}
