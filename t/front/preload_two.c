/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program that uses the library itself, under the preload: one copy of the library, contexts
 * of each, and each takes the other's memory for foreign. With an argument it uses nothing but
 * the library, which must reach no hook then.
 */
#define TAP_NO_LOG
#include "tap.h"

#include "preload_calls.h"

#include <errno.h>

#include <glake/glake.h>

int main(int count, char **arguments)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA, .no_conf_file = 1};
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = NULL;
	void *own = NULL;
	size_t leaked = 9;
	fake_address ptr;
	struct calls cu;

	tap_plan_later();
	is_int(glake_open(&options, &ctx), 0, "the library");
	is_int(glake_alloc(ctx, 0, 3 * MIB, NULL, 0, &own), 0, "a block of it");
	memset(own, 1, 3 * MIB);
	if (count > 1) {
		is_int(glake_free(ctx, own, NULL), 0, "freed");
		is_int(glake_close(ctx, &leaked), 0, "closed");
		return tap_done();
	}
	cu = calls_by_proc_v2();
	calls_use(&cu, 0);
	is_int(cu.cuMemAlloc(&ptr, 5 * MIB), 0, "a block of the preload");
	is_int(glake_query(ctx, (void *)(uintptr_t)ptr, &block), -EINVAL, "is another's");
	is_int(glake_free(ctx, (void *)(uintptr_t)ptr, NULL), -EINVAL, "  also to free");
	is_int(cu.cuMemFree((uintptr_t)own), 1, "and so is the program's to the driver");
	is_int(cu.cuMemFree(ptr), 0, "each by its own");
	is_int(driver_state()->count("cuMemAlloc_v2"), 0, "nothing was the driver's");
	is_int(glake_free(ctx, own, NULL), 0, "freed");
	is_int(glake_close(ctx, &leaked), 0, "closed");
	is_int((int64_t)leaked, 0, "with nothing left");
	is_int(cu.cuMemAlloc(&ptr, 5 * MIB), 0, "the preload goes on");
	is_int(cu.cuMemFree(ptr), 0, "freed");
	return tap_done();
}
