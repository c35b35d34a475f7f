/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of mirrors of other processes: see glake/share.h. */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"

#include <errno.h>

#include <glake/share.h>

static int unknown(int err)
{
	return err == -ENOENT
		? glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE, "no mirror of this context")
		: err;
}

int glake_mirror_new(struct glake *ctx, int device, struct glake_mirror **ret_mirror)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_device(ctx, device, &context, &cache);

	if (err)
		return err;
	if (!ret_mirror)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the mirror");
	return glk_mirror_new(&cache->imports, ret_mirror);
}

int glake_mirror_open(struct glake *ctx, struct glake_mirror *mirror, uint64_t at,
	const struct glake_piece *pieces, size_t count, size_t size,
	glake_mirror_fds_fn fds, void *arg, void **ret_ptr)
{
	struct glk_context *context;
	uint64_t addr = 0;
	int err, cancel;

	err = glk_context_get(ctx, &context);
	if (err)
		return err;
	if (!pieces || !count || count > GLAKE_PIECES_MAX || !fds || !ret_ptr)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%zu pieces, 1 to %zu, their descriptors and a place for the address are "
			"right",
			pieces ? count : 0, GLAKE_PIECES_MAX);
	cancel = glk_cancel_off();
	err = -ENOENT;
	for (int i = 0; i < context->devices && err == -ENOENT; i++)
		err = glk_mirror_open(&context->caches[i].imports, mirror, at, pieces,
			count, size, fds, arg, &addr);
	glk_cancel_restore(cancel);
	if (!err)
		*ret_ptr = (void *)(uintptr_t)addr;
	return unknown(err);
}

int glake_mirror_close(
	struct glake *ctx, struct glake_mirror *mirror, void *ptr, size_t size)
{
	struct glk_context *context;
	int err, cancel;

	err = glk_context_get(ctx, &context);
	if (err) /* a forked child: the memory is the parent's */
		return err == -ENODEV ? 0 : err;
	cancel = glk_cancel_off();
	err = -ENOENT;
	for (int i = 0; i < context->devices && err == -ENOENT; i++)
		err = glk_mirror_close(&context->caches[i].imports, mirror,
			(uint64_t)(uintptr_t)ptr, size);
	glk_cancel_restore(cancel);
	return unknown(err);
}

int glake_mirror_trim(
	struct glake *ctx, struct glake_mirror *mirror, size_t keep, size_t *ret_kept)
{
	struct glk_context *context;
	uint64_t kept = 0;
	int err, cancel;

	err = glk_context_get(ctx, &context);
	if (!err) {
		cancel = glk_cancel_off();
		err = -ENOENT;
		for (int i = 0; i < context->devices && err == -ENOENT; i++)
			err = glk_mirror_trim(
				&context->caches[i].imports, mirror, keep, &kept);
		glk_cancel_restore(cancel);
	} else if (err == -ENODEV) {
		err = 0;
	}
	if (!err && ret_kept)
		*ret_kept = kept;
	return unknown(err);
}

int glake_mirror_end(struct glake *ctx, struct glake_mirror *mirror)
{
	struct glk_context *context;
	int err, cancel;

	err = glk_context_get(ctx, &context);
	if (err)
		return err == -ENODEV ? 0 : err;
	cancel = glk_cancel_off();
	err = -ENOENT;
	for (int i = 0; i < context->devices && err == -ENOENT; i++)
		err = glk_mirror_end(&context->caches[i].imports, mirror);
	glk_cancel_restore(cancel);
	return unknown(err);
}
