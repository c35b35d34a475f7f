/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * NVML, which knows what a process has of a GPU, where CUDA does not. It is loaded at the first question and stays; of
 * its names those are taken that all drivers since R510 have.
 */
#include "base/lock.h"
#include "driver/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define LIBNVML "libnvidia-ml.so.1"
/* Processes on a GPU that are looked through. */
#define PROCESSES 1024

struct process {
	unsigned pid;
	unsigned long long bytes; /* all ones: not told */
	unsigned instance, compute;
};

enum { SUCCESS = 0 };

static struct {
	int (*init)(void);
	int (*by_uuid)(const char *uuid, void **ret_device);
	int (*processes)(void *device, unsigned *count, struct process *ret);
} nvml;

static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_DRIVER);
static bool tried, there;	       /* under the lock */
static struct process list[PROCESSES]; /* likewise */

/* Where the preload stands in front of dlsym, it would answer for NVML with functions that call us. */
extern __typeof__(dlsym) glake_preload_dlsym __attribute__((weak));

static bool find(void *handle, const char *name, void *ret_fn)
{
	void *fn = glake_preload_dlsym ? glake_preload_dlsym(handle, name)
				       : dlsym(handle, name);

	memcpy(ret_fn, &fn, sizeof(fn));
	return fn;
}

/* Under the lock. */
static bool load(void)
{
	void *handle;

	if (tried)
		return there;
	tried = true;
	handle = dlopen(LIBNVML, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle) {
		dlerror();
		return false;
	}
	there = find(handle, "nvmlInit_v2", &nvml.init) &&
		find(handle, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid) &&
		find(handle, "nvmlDeviceGetComputeRunningProcesses_v3",
			&nvml.processes) &&
		nvml.init() == SUCCESS;
	return there;
}

/* Under the lock. */
static int look(const char *uuid, uint64_t *ret_bytes)
{
	unsigned count = PROCESSES, self = (unsigned)getpid();
	uint64_t bytes = 0;
	bool found = false;
	void *device;

	if (!load() || nvml.by_uuid(uuid, &device) != SUCCESS)
		return -ENODEV;
	if (nvml.processes(device, &count, list) != SUCCESS || count > PROCESSES)
		return -EOPNOTSUPP;
	for (unsigned i = 0; i < count; i++) {
		if (list[i].pid != self)
			continue;
		if (list[i].bytes > INT64_MAX)
			return -EOPNOTSUPP;
		bytes += list[i].bytes;
		found = true;
	}
	if (!found)
		return -ENOENT;
	*ret_bytes = bytes;
	return 0;
}

int glk_nvml_used(const char *uuid, uint64_t *ret_bytes)
{
	int err;

	glk_lock(&lock);
	err = look(uuid, ret_bytes);
	glk_unlock(&lock);
	return err;
}
