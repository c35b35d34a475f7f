/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The CUDA driver, for benchmarks: see bench_cuda.h. */
#include "tool/bench_cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

int bench_cuda_find(const struct bench_part *part, struct bench_cuda *cuda)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	const struct {
		void *fn;
		const char *name;
	} table[] = {
		{&cuda->fill, "cuMemsetD32Async"},
		{&cuda->read, "cuMemcpyDtoH_v2"},
		{&cuda->query, "cuStreamQuery"},
		{&cuda->sync, "cuCtxSynchronize"},
		{&cuda->context_of, "cuStreamGetCtx"},
		{&cuda->set_context, "cuCtxSetCurrent"},
		{&cuda->host_register, "cuMemHostRegister_v2"},
		{&cuda->host_unregister, "cuMemHostUnregister"},
		{&cuda->host_alloc, "cuMemHostAlloc"},
		{&cuda->host_free, "cuMemFreeHost"},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		void *found = library ? dlsym(library, table[i].name) : NULL;

		if (!found) {
			glk_tool_say("bench %s: the driver has no %s", part->name,
				table[i].name);
			return -EIO;
		}
		memcpy(table[i].fn, &found, sizeof(found));
	}
	return 0;
}

int bench_cuda_enter(const struct bench_cuda *cuda, struct CUstream_st *stream)
{
	void *context = NULL;

	return cuda->context_of(stream, &context) || cuda->set_context(context) ? -EIO
										: 0;
}
