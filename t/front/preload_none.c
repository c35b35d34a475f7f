/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program on a machine without a driver. 0: nothing is there and everything says so; a program
 * that asks whether there is CUDA is not misled by functions that stand before it.
 */
#include <dlfcn.h>
#include <string.h>

static int is_missing(void *handle, const char *name)
{
	char *why;

	dlerror();
	if (dlsym(handle, name))
		return 0;
	why = dlerror();
	return why && strstr(why, name) && !dlerror();
}

int main(void)
{
	static const char *const names[] = {"cuMemAlloc_v2", "cuMemFree_v2",
		"cuGetProcAddress_v2", "nvmlDeviceGetMemoryInfo",
		"nvmlDeviceGetMemoryInfo_v2", "cuInit", "cute", "nvmlInit_v2"};
	void *self = dlopen(NULL, RTLD_LAZY), *libc = dlopen("libc.so.6", RTLD_LAZY);

	if (dlopen("libcuda.so.1", RTLD_LAZY) || !dlerror() || dlerror() ||
		dlopen("libnvidia-ml.so.1", RTLD_LAZY) || !dlerror())
		return 1;
	for (int i = 0; i < 8; i++)
		if (!is_missing(RTLD_DEFAULT, names[i]) || !is_missing(self, names[i]) ||
			!is_missing(libc, names[i]) ||
			(i > 4 && !is_missing(RTLD_NEXT, names[i])))
			return 2 + i;
	if (!dlsym(RTLD_DEFAULT, "printf") || !dlsym(RTLD_NEXT, "printf"))
		return 10;
	return 0;
}
