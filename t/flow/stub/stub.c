/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* libcuda.so.1 as the toolkit has it to link against: each function says that it is none. */
#include <stddef.h>
#include <stdint.h>

#define STUB_LIBRARY 34
#define FOR_ALL	     __attribute__((visibility("default")))

FOR_ALL int cuDriverGetVersion(int *version);
FOR_ALL int cuInit(unsigned flags);
FOR_ALL int cuGetProcAddress(const char *name, void **fn, int version, uint64_t flags);
FOR_ALL int cuGetProcAddress_v2(
	const char *name, void **fn, int version, uint64_t flags, int *status);

int cuDriverGetVersion(int *version)
{
	return STUB_LIBRARY;
}

int cuInit(unsigned flags)
{
	return STUB_LIBRARY;
}

int cuGetProcAddress(const char *name, void **fn, int version, uint64_t flags)
{
	return STUB_LIBRARY;
}

int cuGetProcAddress_v2(
	const char *name, void **fn, int version, uint64_t flags, int *status)
{
	return STUB_LIBRARY;
}
