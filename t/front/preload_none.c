/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A program on a machine without a driver. 0: nothing is there and everything says so. */
#include <dlfcn.h>
#include <string.h>

int main(void)
{
	unsigned (*alloc)(unsigned long long *, unsigned long);
	unsigned long long ptr = 7;
	void *fn;

	if (dlopen("libcuda.so.1", RTLD_LAZY) || !dlerror() || dlerror())
		return 1;
	/* There only under the preload, which has nothing behind it. */
	fn = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	if (!fn)
		return 2;
	memcpy(&alloc, &fn, sizeof(fn));
	if (alloc(&ptr, 4096) != 3 || ptr != 7 || dlerror())
		return 3;
	return 0;
}
