/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of guard: see glake/guard.h. */
#include "guard/guard.h"
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"

#include <errno.h>

int glake_check(struct glake *ctx, struct glake_checked *ret_checked)
{
	struct glake_checked did = {.sz = sizeof(did)};
	struct glk_context *context;
	int err = glk_context_get(ctx, &context), told = 0, cancel;

	/* what it can take is asked before anything is looked at */
	if (!err && ret_checked)
		err = glk_sized_out(ret_checked, &did, sizeof(did));
	if (err)
		return err;
	cancel = glk_cancel_off();
	for (int i = 0; i < context->devices && !err; i++)
		err = glk_guard_check(&context->caches[i], &did);
	for (int i = 0; i < context->devices && !err && !told; i++)
		told = glk_guard_tell(&context->caches[i]);
	glk_cancel_restore(cancel);
	if (ret_checked)
		glk_sized_out(ret_checked, &did, sizeof(did));
	return err ? err : told;
}

int glake_finding_get(
	struct glake *ctx, int device, uint64_t number, struct glake_finding *ret_finding)
{
	struct glake_finding found = {0};
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_device(ctx, device, &context, &cache);

	if (!err && !ret_finding)
		err = glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "no place for what was found");
	if (!err)
		err = glk_guard_finding(cache, number, &found);
	return err ? err : glk_sized_out(ret_finding, &found, sizeof(found));
}

int glake_describe(
	struct glake *ctx, const void *ptr, struct glake_described *ret_described)
{
	struct glake_described d = {.sz = sizeof(d), .device = -1};
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_get(ctx, &context), cancel;

	if (!err)
		err = glk_sized_out(ret_described, &d, sizeof(d));
	if (err)
		return err;
	cancel = glk_cancel_off();
	cache = glk_context_cache(context, addr);
	if (cache)
		glk_guard_describe(cache, addr, &d);
	glk_cancel_restore(cancel);
	return glk_sized_out(ret_described, &d, sizeof(d));
}

const char *glake_what_name(int what)
{
	static const char *const names[] = {
		"foreign", "live", "behind", "freed", "free", "guard"};

	return what < 0 || (size_t)what >= sizeof(names) / sizeof(*names) ? NULL
									  : names[what];
}
