/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A library that stands in front of the driver as ours does, to be loaded before it or after it.
 * It counts what comes by and hands it on to the next. rand() is there for a function that has
 * nothing to do with CUDA: found wrongly, the next one would be this one again.
 */
#include "preload_cuda.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern int wrap_allocs, wrap_frees, wrap_rands;
int wrap_allocs, wrap_frees, wrap_rands;

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

EXPORT fake_result cuMemAlloc_v2(fake_address *ret, size_t size);
EXPORT fake_result cuMemFree_v2(fake_address ptr);

fake_result cuMemAlloc_v2(fake_address *ret, size_t size)
{
	fake_result (*fn)(fake_address *, size_t);
	void *found = next("cuMemAlloc_v2");

	memcpy(&fn, &found, sizeof(fn));
	wrap_allocs++;
	return fn(ret, size);
}

fake_result cuMemFree_v2(fake_address ptr)
{
	fake_result (*fn)(fake_address);
	void *found = next("cuMemFree_v2");

	memcpy(&fn, &found, sizeof(fn));
	wrap_frees++;
	return fn(ptr);
}

EXPORT int rand(void)
{
	int (*fn)(void);
	void *found = next("rand");

	memcpy(&fn, &found, sizeof(fn));
	return wrap_rands++ ? 0 : fn();
}
