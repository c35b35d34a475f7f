/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A libnvidia-ml.so.1 for tests. What a process has of a GPU it reads in the file that GLAKE_TEST_NVML names, a line
 * with a process id and MiB for each; without one it tells of this process alone, and asks the libcuda.so.1 of
 * t/front/preload_cuda.c, with CONTEXT bytes for its context.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../preload_cuda.h"

#define CONTEXT	  ((size_t)16 << 20)
#define FOR_ALL	  __attribute__((visibility("default")))
#define NOT_FOUND 6

struct process {
	unsigned pid;
	unsigned long long bytes;
	unsigned instance, compute;
};

struct memory {
	unsigned long long total, free, used;
};

struct memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

FOR_ALL int nvmlInit_v2(void);
FOR_ALL int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret);
FOR_ALL int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret);
FOR_ALL int nvmlDeviceGetUUID(void *device, char *text, unsigned length);
FOR_ALL int nvmlDeviceGetComputeRunningProcesses_v3(
	void *device, unsigned *count, struct process *ret);
FOR_ALL int nvmlDeviceGetMemoryInfo(void *device, struct memory *ret);
FOR_ALL int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *ret);

static int gpus[FAKE_GPUS];

static const struct fake_state *fake(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

	return driver ? dlsym(driver, "fake") : NULL;
}

static int index_of(const void *device)
{
	return (int)((const int *)device - gpus);
}

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret)
{
	*ret = &gpus[index];
	return index < FAKE_GPUS ? 0 : NOT_FOUND;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned length)
{
	int b = index_of(device) + 1;

	if (getenv("GLAKE_TEST_NVML"))
		snprintf(text, length, "GPU-50f70000-0000-0000-0000-%012x", b - 1);
	else
		snprintf(text, length,
			"GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
			b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b);
	return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret)
{
	char text[96];

	for (unsigned i = 0; i < FAKE_GPUS; i++) {
		nvmlDeviceGetUUID(&gpus[i], text, sizeof(text));
		if (!strcmp(text, uuid))
			return nvmlDeviceGetHandleByIndex_v2(i, ret);
	}
	return NOT_FOUND;
}

int nvmlDeviceGetComputeRunningProcesses_v3(
	void *device, unsigned *count, struct process *ret)
{
	const char *path = getenv("GLAKE_TEST_NVML");
	unsigned most = *count;
	FILE *file;

	*count = 0;
	if (!path) {
		if (!fake())
			return 0;
		ret[0] = (struct process){.pid = (unsigned)getpid(),
			.bytes = fake()->used(index_of(device)) + CONTEXT};
		*count = 1;
		return 0;
	}
	file = fopen(path, "re");
	while (file && *count < most &&
		fscanf(file, "%u %llu", &ret[*count].pid, &ret[*count].bytes) == 2)
		ret[(*count)++].bytes <<= 20;
	if (file)
		fclose(file);
	return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *ret)
{
	*ret = (struct memory){
		.total = FAKE_MEMORY, .free = FAKE_MEMORY - CONTEXT, .used = CONTEXT};
	return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *ret)
{
	*ret = (struct memory_v2){.version = ret->version,
		.total = FAKE_MEMORY,
		.reserved = 1,
		.free = FAKE_MEMORY - CONTEXT - 1,
		.used = CONTEXT};
	return 0;
}
