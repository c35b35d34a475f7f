/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of memory that others use, and of mirrors of theirs: see glake/share.h. */
#include <glake/share.h>

#include "api/context.h"
#include "base/cancel.h"
#include "base/conf.h"
#include "base/error.h"
#include "base/sized.h"
#include "share/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

/* Pins a block and lists its pieces, with a descriptor for each if it is to leave at once. */
static int list_pieces(struct glk_cache *cache, const void *ptr, bool leaves,
	struct glake_piece *pieces, size_t max, size_t *ret_count)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_pin pin;
	int err;

	err = glk_cache_pin(cache, addr, false, &pin);
	if (err)
		return err;
	if (pin.count > max)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block has %u pieces, and the list room for %zu", pin.count,
			max);
	else if (leaves)
		err = glk_share_export(cache->drv, glk_pin_page, &pin, pin.count, pieces);
	else
		err = glk_share_list(glk_pin_page, &pin, pin.count, pieces);
	if (!err && leaves)
		glk_pin_mark(&pin);
	if (err)
		glk_cache_unpin(cache, addr);
	else
		*ret_count = pin.count;
	return err;
}

static int export(struct glake *ctx, const void *ptr, bool leaves,
	struct glake_piece *ret_pieces, size_t max, size_t *ret_count)
{
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_owner(ctx, ptr, &cache);
	if (err)
		return err;
	if (!ret_pieces || !ret_count)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the pieces");
	cancel = glk_cancel_off();
	err = list_pieces(cache, ptr, leaves, ret_pieces, max, ret_count);
	glk_cancel_restore(cancel);
	return err;
}

int glake_export(struct glake *ctx, const void *ptr, struct glake_piece *ret_pieces,
	size_t max, size_t *ret_count)
{
	return export(ctx, ptr, true, ret_pieces, max, ret_count);
}

int glake_export_list(struct glake *ctx, const void *ptr, struct glake_piece *ret_pieces,
	size_t max, size_t *ret_count)
{
	return export(ctx, ptr, false, ret_pieces, max, ret_count);
}

int glake_export_fds(
	struct glake *ctx, const void *ptr, size_t first, size_t count, int *ret_fds)
{
	struct glk_cache *cache;
	struct glk_pin pin;
	int err, cancel;

	err = glk_context_owner(ctx, ptr, &cache);
	if (err)
		return err;
	if (!ret_fds || !count)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for descriptors");
	err = glk_cache_pinned(cache, (uint64_t)(uintptr_t)ptr, &pin);
	if (err)
		return err;
	if (first >= pin.count || count > pin.count - first)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block has %u pieces, not %zu from number %zu on", pin.count,
			count, first);
	cancel = glk_cancel_off();
	glk_pin_mark(&pin);
	err = glk_share_fds(cache->drv, glk_pin_page, &pin, first, count, ret_fds);
	glk_cancel_restore(cancel);
	return err;
}

int glake_export_gone(struct glake *ctx, uint64_t *ret_bytes)
{
	struct glk_context *context;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	if (!ret_bytes)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the number");
	*ret_bytes = glk_load_relaxed(&context->pool.gone);
	return 0;
}

int glake_export_end(struct glake *ctx, const void *ptr)
{
	struct glk_cache *cache;
	int err = glk_context_owner(ctx, ptr, &cache);

	if (err) /* a forked child: the memory is the parent's */
		return err == -ENODEV ? 0 : err;
	return glk_cache_unpin(cache, (uint64_t)(uintptr_t)ptr);
}

static int dmabuf(struct glk_cache *cache, uint64_t addr, size_t size, int *ret_fd,
	size_t *ret_offset)
{
	struct glk_pin pin;
	int err;

	err = glk_cache_pin(cache, addr, true, &pin);
	if (err)
		return err;
	if (size > pin.size || addr - pin.base > pin.size - size)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%zu bytes from %#lx on reach over the end of the block", size,
			(unsigned long)addr);
	else if (glk_arena_of(pin.range)->ops->inside)
		err = glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"the block at %#lx %s", (unsigned long)pin.base,
			glk_arena_of(pin.range)->ops->inside);
	else if (!(cache->node->caps & GLAKE_CAP_DMABUF))
		err = glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"GPU %d or its driver makes no dma-bufs", cache->device);
	else
		err = glk_share_dmabuf(
			cache->drv, addr, size, pin.count, ret_fd, ret_offset);
	if (err)
		glk_cache_unpin(cache, pin.base);
	return err;
}

int glake_dmabuf(
	struct glake *ctx, const void *ptr, size_t size, int *ret_fd, size_t *ret_offset)
{
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_owner(ctx, ptr, &cache);
	if (err)
		return err;
	if (!size || !ret_fd || !ret_offset)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"a dma-buf of 0 bytes, or no place for it");
	cancel = glk_cancel_off();
	err = dmabuf(cache, (uint64_t)(uintptr_t)ptr, size, ret_fd, ret_offset);
	glk_cancel_restore(cancel);
	return err;
}

/* So that all drivers say the same of a descriptor that is none. */
static int check_fds(const struct glake_piece *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (pieces[i].fd >= 0 && fcntl(pieces[i].fd, F_GETFD) >= 0)
			continue;
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"piece %zu: descriptor %d is not open", i, pieces[i].fd);
	}
	return 0;
}

int glake_import(struct glake *ctx, int device, const struct glake_piece *pieces,
	size_t count, size_t size, void **ret_ptr)
{
	struct glk_context *context;
	struct glk_cache *cache;
	uint64_t addr = 0;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!pieces || !count || count > GLAKE_PIECES_MAX || !ret_ptr)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%zu pieces, 1 to %zu and a place for the address are right",
			pieces ? count : 0, GLAKE_PIECES_MAX);
	cancel = glk_cancel_off();
	err = check_fds(pieces, count);
	if (!err)
		err = glk_import(&cache->imports, pieces, count, size, &addr);
	glk_cancel_restore(cancel);
	if (!err)
		*ret_ptr = (void *)(uintptr_t)addr;
	return err;
}

int glake_import_end(struct glake *ctx, void *ptr, struct CUstream_st *stream)
{
	struct glk_context *context;
	int err, cancel;

	err = glk_context_get(ctx, &context);
	if (err) /* a forked child: the memory is the parent's */
		return err == -ENODEV ? 0 : err;
	cancel = glk_cancel_off();
	err = -ENOENT;
	for (int i = 0; i < context->devices && err == -ENOENT; i++) {
		struct glk_imports *imports = &context->caches[i].imports;

		/* what is attached is an import too, and the broker is to know */
		err = glk_detach(
			context->lessee, imports, (uint64_t)(uintptr_t)ptr, stream);
		if (err == -ENOENT)
			err = glk_import_end(imports, (uint64_t)(uintptr_t)ptr, stream);
	}
	glk_cancel_restore(cancel);
	if (err != -ENOENT)
		return err;
	return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
		"nothing was imported at %p, or it was ended before", ptr);
}

int glake_peer_access(struct glake *ctx, int device, int peer, int on)
{
	struct glk_context *context;
	struct glk_cache *cache, *other;
	bool can = false;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (!err)
		err = glk_context_device(ctx, peer, &context, &other);
	if (err)
		return err;
	if (device == peer)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"GPU %d has access to its own memory", device);
	err = context->drv->ops->peer_can(context->drv, device, peer, &can);
	if (err)
		return err;
	if (!can && on)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"GPU %d cannot reach the memory of GPU %d", peer, device);
	cancel = glk_cancel_off();
	err = glk_cache_peer(cache, peer, on != 0);
	glk_cancel_restore(cancel);
	return err;
}

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

/* Of a process without a context: as the file and the environment say. */
static struct glk_quota_rules quota_rules;
static pthread_once_t quota_once = PTHREAD_ONCE_INIT;

static void ignore(const struct glake_conf_finding *finding, void *arg)
{
	(void)finding;
	(void)arg;
}

static void read_quota(void)
{
	struct glk_conf *conf = glk_region_new(sizeof(*conf));

	if (!conf)
		return;
	if (!glk_context_conf(NULL, ignore, NULL, false, conf))
		quota_rules = glk_quota_rules(conf);
	glk_region_free(conf, sizeof(*conf));
}

static int check_uuid(const char *uuid)
{
	pthread_once(&quota_once, read_quota);
	return uuid && *uuid ? 0
			     : glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no UUID of a GPU");
}

int glake_quota_get(const char *uuid, uint64_t memory, struct glake_quota *ret_quota)
{
	struct glake_quota quota = {.sz = sizeof(quota)};
	int err = check_uuid(uuid);

	if (!err)
		err = glk_sized_out(ret_quota, &quota, sizeof(quota));
	if (err)
		return err;
	glk_quota_get(&quota_rules, uuid, memory, &quota);
	return glk_sized_out(ret_quota, &quota, sizeof(quota));
}

int glake_quota_pass(const char *uuid, uint64_t memory, int64_t bytes)
{
	int err = check_uuid(uuid);

	return err ? err : glk_quota_pass(&quota_rules, uuid, memory, bytes);
}

int glake_lease_get(struct glake *ctx, int device, struct glake_lease *ret_lease)
{
	struct glake_lease lease = {.sz = sizeof(lease)};
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_device(ctx, device, &context, &cache);

	if (err)
		return err;
	err = glk_sized_out(ret_lease, &lease, sizeof(lease));
	if (err)
		return err;
	glk_lessee_get(context->lessee, device, &lease);
	return glk_sized_out(ret_lease, &lease, sizeof(lease));
}
