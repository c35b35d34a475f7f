/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program that knows nothing of quotas and does what it is told, a line each:
 *
 *	info	free and whole MiB of GPU 0 as each function says: cuMemGetInfo, cuDeviceTotalMem (its whole
 *		alone), NVML's two
 *	alloc MIB, create MIB, rows MIB, pass MIB	memory by cuMemAlloc, cuMemCreate, cuMemAllocPitch, and by
 *		cuMemAlloc of a context of its own: the number of what it got, or "refused RESULT"
 *	free N	of any of them
 *	used	MiB that the driver has given
 */
#include "preload_calls.h"

#define HELD 256

struct memory {
	unsigned long long total, free, used;
};

struct memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

static struct calls cu;
static struct {
	char kind; /* 0: nothing is there */
	fake_address at;
} held[HELD];

static void *nvml(const char *name)
{
	void *handle = dlopen("libnvidia-ml.so.1", RTLD_LAZY);

	return handle ? dlsym(handle, name) : NULL;
}

static void info(void)
{
	int (*by_index)(unsigned index, void **ret),
		(*get)(void *gpu, struct memory *ret),
		(*get_v2)(void *gpu, struct memory_v2 *ret);
	void *fn[3] = {nvml("nvmlDeviceGetHandleByIndex_v2"),
		nvml("nvmlDeviceGetMemoryInfo"), nvml("nvmlDeviceGetMemoryInfo_v2")};
	struct memory_v2 v2 = {.version = 2};
	struct memory v1 = {0};
	size_t left = 0, total = 0, whole = 0;
	void *gpu;

	if (cu.cuMemGetInfo(&left, &total) || cu.cuDeviceTotalMem(&whole, 0))
		exit(1);
	if (fn[0]) {
		memcpy(&by_index, &fn[0], sizeof(by_index));
		memcpy(&get, &fn[1], sizeof(get));
		memcpy(&get_v2, &fn[2], sizeof(get_v2));
		if (by_index(0, &gpu) || get(gpu, &v1) || get_v2(gpu, &v2) ||
			v1.used + v1.free != v1.total ||
			v2.used + v2.free + v2.reserved != v2.total)
			exit(1);
	}
	printf("%zu %zu %zu %llu %llu %llu %llu\n", left / MIB, total / MIB, whole / MIB,
		v1.free / MIB, v1.total / MIB, v2.free / MIB, v2.total / MIB);
}

static void take(char kind, size_t bytes)
{
	const int prop[8] = {1, 0, 1, 0}; /* pinned, of GPU 0 */
	struct CUctx_st *first = calls_use(&cu, 0);
	unsigned long long page = 0;
	fake_result result;
	size_t pitch;
	int n = 0;

	while (held[n].kind)
		n++;
	if (kind == 'c') {
		result = cu.cuMemCreate(&page, bytes, prop, 0);
		held[n].at = page;
	} else if (kind == 'r') {
		result = cu.cuMemAllocPitch(&held[n].at, &pitch, MIB, bytes / MIB, 4);
	} else {
		if (kind == 'p')
			cu.cuCtxSetCurrent(driver_state()->context(0));
		result = cu.cuMemAlloc(&held[n].at, bytes);
		cu.cuCtxSetCurrent(first);
	}
	if (result) {
		printf("refused %u\n", result);
		return;
	}
	held[n].kind = kind;
	printf("%d\n", n);
}

static void give(int n)
{
	fake_result result = held[n].kind == 'c' ? cu.cuMemRelease(held[n].at)
						 : cu.cuMemFree(held[n].at);

	held[n].kind = 0;
	printf("%u\n", result);
}

int main(void)
{
	char word[16], line[64];
	size_t number;

	cu = calls_by("proc2");
	calls_use(&cu, 0);
	while (fgets(line, sizeof(line), stdin)) {
		number = 0;
		if (sscanf(line, "%15s %zu", word, &number) < 1)
			return 1;
		if (!strcmp(word, "info"))
			info();
		else if (!strcmp(word, "used"))
			printf("%zu\n", driver_state()->used(0) / MIB);
		else if (!strcmp(word, "free"))
			give((int)number);
		else
			take(word[0], number * MIB);
		fflush(stdout);
	}
	return 0;
}
