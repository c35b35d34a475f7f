/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table of contexts, which lives as long as the process; an entry holds the handle of its
 * context while that is open. No handle is given twice, and closing takes it out before anything is
 * taken down, so that one kept too long finds nothing.
 */
#include "api/context.h"

#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>

#include <glake/version.h>

/* No handle has index 0, and the entry of that index holds none: NULL is not found there. */
struct glk_context_entry glk_contexts[1 << GLK_CONTEXT_INDEX_BITS] = {{.handle = 1}};

static struct glk_lock table_lock = GLK_LOCK_INIT(GLK_RANK_CONTEXT);

static uint64_t serial; /* of the context opened last; under the lock of the table */

static int stale(struct glake *handle)
{
	return glk_error(
		-ESTALE, GLAKE_ERROR_STALE, "%p is no open context", (void *)handle);
}

static int of_parent(void)
{
	return glk_error(-ENODEV, GLAKE_ERROR_FORKED,
		"this is a forked child: the GPUs belong to its parent");
}

static int is_told(void)
{
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"a function that is told of moves calls the library: see glake_move_watch(3)");
}

/* The handle of an open entry, or 0. */
static uint64_t held(struct glk_context_entry *entry)
{
	return glk_load_relaxed(&entry->open);
}

/* This is a forked child, and a context was open when it was. */
static bool is_heir;

void glk_contexts_forked(void)
{
	for (size_t i = 1; i <= GLAKE_CONTEXT_MAX; i++) {
		uint64_t handle = held(&glk_contexts[i]);

		if (handle) {
			glk_contexts[i].parent = handle;
			glk_io_forked(&glk_contexts[i].context->io);
		}
		is_heir |= handle != 0;
		glk_store_relaxed(&glk_contexts[i].handle, 0);
		glk_store_relaxed(&glk_contexts[i].recorded, 0);
		glk_store_relaxed(&glk_contexts[i].open, 0);
	}
}

int glk_context_may_open(void)
{
	return is_heir ? of_parent() : 0;
}

int glk_context_get(struct glake *handle, struct glk_context **ret_context)
{
	if (glk_thread_current->told)
		return is_told();
	*ret_context = glk_context_find(handle);
	if (!*ret_context)
		*ret_context = glk_context_recorded(handle);
	if (*ret_context)
		return 0;
	/* which of the two it is may have changed in between; pairs with: the release in glk_context_publish */
	if (handle &&
		glk_load_acquire(&glk_context_entry(handle)->open) == (uintptr_t)handle) {
		*ret_context = glk_context_entry(handle)->context;
		return 0;
	}
	if (!handle || glk_context_entry(handle)->parent != (uintptr_t)handle)
		return stale(handle);
	return of_parent();
}

int glk_context_device(struct glake *handle, int device, struct glk_context **ret_context,
	struct glk_cache **ret_cache)
{
	int err = glk_context_get(handle, ret_context);

	if (err)
		return err;
	if (device < 0 || device >= (*ret_context)->devices)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"there is no GPU %d; the context has %d", device,
			(*ret_context)->devices);
	*ret_cache = &(*ret_context)->caches[device];
	return 0;
}

int glk_context_owner(struct glake *handle, const void *ptr, struct glk_cache **ret_cache)
{
	struct glk_context *context;
	int err = glk_context_get(handle, &context);

	if (err)
		return err;
	*ret_cache = glk_context_cache(context, (uint64_t)(uintptr_t)ptr);
	return *ret_cache ? 0
			  : glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
				    "%p is not memory of this context", ptr);
}

int glk_context_publish(struct glk_context *context, struct glake **ret_handle)
{
	uint64_t handle;
	int err = -EMFILE;

	glk_lock(&table_lock);
	for (uint64_t i = 1; i <= GLAKE_CONTEXT_MAX; i++) {
		struct glk_context_entry *entry = &glk_contexts[i];

		if (held(entry))
			continue;
		entry->context = context;
		entry->caches = context->caches;
		entry->devices = (unsigned)context->devices;
		context->serial = ++serial;
		entry->generation++;
		handle = entry->generation << GLK_CONTEXT_INDEX_BITS | i;
		glk_store_release(&entry->open, handle); /* pairs with: glk_context_get */
		/* pairs with: the acquires in glk_context_find and glk_context_recorded */
		if (glk_load_relaxed(&context->trace))
			glk_store_release(&entry->recorded, handle);
		else
			glk_store_release(&entry->handle, handle);
		*ret_handle = (struct glake *)(uintptr_t)handle;
		err = 0;
		break;
	}
	glk_unlock(&table_lock);
	if (err)
		glk_error(err, GLAKE_ERROR_LIMIT,
			"%d contexts are open, the most there can be", GLAKE_CONTEXT_MAX);
	return err;
}

int glk_context_withdraw(struct glake *handle, struct glk_context **ret_context)
{
	struct glk_context_entry *entry = glk_context_entry(handle);
	int err = -ESTALE;

	glk_lock(&table_lock);
	if (handle && held(entry) == (uintptr_t)handle) {
		*ret_context = entry->context;
		/* pairs with: glk_context_find, glk_context_recorded */
		glk_store_release(&entry->handle, 0);
		glk_store_release(&entry->recorded, 0);
		glk_store_release(&entry->open, 0);
		err = 0;
	}
	glk_unlock(&table_lock);
	return err ? stale(handle) : 0;
}

int glake_device_count(struct glake *ctx)
{
	struct glk_context *context;
	int err = glk_context_get(ctx, &context);

	return err ? err : context->devices;
}

int glake_backend(struct glake *ctx)
{
	struct glk_context *context;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	return strcmp(glk_drv_name(context->drv), "cuda") ? GLAKE_BACKEND_SOFT
							  : GLAKE_BACKEND_CUDA;
}

uint32_t glake_version(void)
{
	return GLAKE_VERSION;
}

const char *glake_version_string(void)
{
	return GLAKE_VERSION_STRING;
}
