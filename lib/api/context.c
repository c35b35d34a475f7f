/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Opening and closing. Contexts lie in a table that lives as long as the process; an entry
 * holds the handle of its context while that is open. No handle is given twice, and closing
 * takes it out before anything is taken down, so that one kept too long finds nothing.
 */
#include "api/context.h"

#include "api/copy_job.h"
#include "api/second.h"
#include "api/served.h"
#include "api/uvm.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rcu.h"
#include "base/sized.h"
#include "base/thread.h"
#include "numa/topology.h"
#include "soft/open.h"
#include "tier/tier.h"

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

/* In a forked child nothing of the parent's is used any more. */
static void forked(void)
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
	glk_served_forked();
	glk_managed_forked();
	glk_trace_forked();
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
	/* which of the two it is may have changed in between; pairs with: the release in publish */
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

static int publish(struct glk_context *context, struct glake **ret_handle)
{
	uint64_t handle;
	int err = -EMFILE;

	glk_lock(&table_lock);
	for (uint64_t i = 1; i <= GLAKE_CONTEXT_MAX; i++) {
		struct glk_context_entry *entry = &glk_contexts[i];

		if (held(entry))
			continue;
		entry->context = context;
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

/* Takes a context out of the table; NULL if the handle is stale. */
static struct glk_context *withdraw(struct glake *handle)
{
	struct glk_context_entry *entry = glk_context_entry(handle);
	struct glk_context *context = NULL;

	glk_lock(&table_lock);
	if (handle && held(entry) == (uintptr_t)handle) {
		context = entry->context;
		/* pairs with: glk_context_find, glk_context_recorded */
		glk_store_release(&entry->handle, 0);
		glk_store_release(&entry->recorded, 0);
		glk_store_release(&entry->open, 0);
	}
	glk_unlock(&table_lock);
	return context;
}

/* The NUMA node near each GPU, and the most of the host's memory that is had for one where nothing was
 * configured: half of it. */
static int host_nodes(const struct glk_context *context, int *ret_ids, uint64_t *ret_most)
{
	bool soft = !strcmp(glk_drv_name(context->drv), "soft");
	struct glk_topology *topology;
	uint64_t most = 0;
	int err = 0;

	if (glk_topology_new(NULL, &topology))
		topology = NULL;
	for (size_t i = 0; topology && i < glk_topology_count(topology); i++)
		most += glk_topology_at(topology, i)->memory / 2;
	for (int i = 0; i < context->devices && !err; i++) {
		struct glake_device info = {.sz = sizeof(info)};

		err = context->drv->ops->device_info(context->drv, i, &info);
		ret_ids[i] = soft || !topology
			? info.numa_node
			: glk_topology_nearest(topology, info.numa_node);
	}
	if (topology)
		glk_topology_free(topology);
	*ret_most = most;
	return err;
}

static size_t caches_bytes(const struct glk_context *context)
{
	return (size_t)context->devices * sizeof(*context->caches);
}

/* Ends the caches made so far, in reverse. */
static int end_caches(struct glk_context *context, int made, size_t *ret_live)
{
	int err = 0;

	*ret_live = 0;
	while (made--) {
		size_t live;
		int failed = glk_cache_fini(&context->caches[made], &live);

		*ret_live += live;
		err = err ? err : failed;
	}
	glk_region_free(context->caches, caches_bytes(context));
	return err;
}

static int make_caches(struct glk_context *context)
{
	int ids[GLK_NODES_MAX / 2], made, err;
	uint64_t most = 0;
	size_t live;

	err = context->drv->ops->device_count(context->drv, &context->devices);
	if (err)
		return err;
	if (context->devices <= GLK_NODES_MAX / 2)
		err = host_nodes(context, ids, &most);
	if (!err)
		err = glk_pool_init(&context->pool, context->drv, &context->conf,
			context->devices, context->devices, ids);
	if (err)
		return err;
	context->host_most = most;
	for (int i = 0; !context->conf.tier_host && most && i < context->devices; i++)
		glk_store_relaxed(&glk_pool_host(&context->pool, i)->budget, most);
	context->caches = glk_region_new(caches_bytes(context));
	if (!context->caches) {
		err = -ENOMEM;
		goto pool;
	}
	err = glk_io_init(&context->io, context->drv, &context->pool, &context->conf,
		context->devices);
	if (err)
		goto region;
	for (made = 0; made < context->devices; made++) {
		err = glk_cache_init(&context->caches[made], context->drv, &context->pool,
			&context->conf, made);
		if (err)
			goto caches;
		context->caches[made].hostpool.half = most;
		context->caches[made].io = &context->io;
	}
	return 0;
caches:
	end_caches(context, made, &live);
	glk_io_fini(&context->io);
	goto pool;
region:
	glk_region_free(context->caches, caches_bytes(context));
pool:
	glk_pool_fini(&context->pool);
	return err;
}

static int take_down(struct glk_context *context, size_t *ret_live)
{
	int err, failed;

	glk_trace_close(glk_load_relaxed(&context->trace), glk_clock_ns());
	while (context->stopped_count)
		glk_trace_close(context->stopped[--context->stopped_count], 0);
	glk_io_fini(&context->io);
	err = end_caches(context, context->devices, ret_live);
	glk_pool_fini(&context->pool);
	failed = glk_drv_close(context->drv);
	glk_region_free(context, sizeof(*context));
	return err ? err : failed;
}

/* A context that cannot be recorded works all the same: the log says why. */
static void start_trace(struct glk_context *context)
{
	struct glk_trace_options options = {
		.file = context->conf.trace_file, .size = context->conf.trace_size};
	struct glk_trace *trace = NULL;

	if (*options.file && !glk_context_trace(context, &options, &trace))
		glk_store_relaxed(&context->trace, trace);
}

int glake_open(const struct glake_options *options, struct glake **ret_ctx)
{
	struct glake_options none = {.sz = sizeof(none)};
	struct glk_context *context;
	struct glake *handle;
	size_t live;
	int err;

	if (!ret_ctx)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the context");
	if (options) {
		err = glk_sized_in(options, &none, sizeof(none));
		if (err)
			return err;
	}
	if (is_heir)
		return of_parent();
	glk_fork_at_child(forked);
	err = glk_rcu_init(none.no_fork_hooks);
	if (err)
		return err;
	context = glk_region_new(sizeof(*context));
	if (!context)
		return -ENOMEM;
	err = glk_context_configure(context, &none);
	if (err)
		goto region;
	if (context->conf.tier_compress == GLK_TIER_COMPRESS_LZ4)
		err = glk_pack_able();
	if (err)
		goto region;
	glk_log_level_set(context->conf.log_level);
	glk_second_warn();
	err = glk_drv_open(
		&context->conf, context->why, sizeof(context->why), &context->drv);
	if (err)
		goto region;
	err = make_caches(context);
	if (err)
		goto driver;
	start_trace(context);
	err = publish(context, &handle);
	if (err) {
		take_down(context, &live);
		return err;
	}
	glk_served_begin(handle, context);
	*ret_ctx = handle;
	return 0;
driver:
	glk_drv_close(context->drv);
region:
	glk_region_free(context, sizeof(*context));
	return err;
}

int glake_close(struct glake *ctx, size_t *ret_leaked)
{
	struct glk_context *context;
	size_t live = 0;
	int err = 0;

	err = ctx ? glk_context_get(ctx, &context) : 0;
	if (!ctx || err == -ENODEV) {
		/* In a forked child the memory is the parent's, the tables here go with the
		 * process, and a lock may be held by a thread that is none of this process. */
		if (ret_leaked)
			*ret_leaked = 0;
		return 0;
	}
	if (err == -EBUSY) /* by a function that is told of a move */
		return err;
	if (!err && glk_thread_current->asked)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"a function that makes room closes what asks it: see glake_shortage_set(3)");
	if (!err)
		glk_served_end(ctx);
	context = err ? NULL : withdraw(ctx);
	if (!context)
		return stale(ctx);
	glk_managed_end(context);
	glk_copy_jobs_leave(ctx, context);
	glk_io_still(&context->io);
	/* no thread begins a copy once the GPUs were waited for */
	for (int i = 0; i < context->devices; i++)
		glk_cache_still(&context->caches[i]);
	for (int i = 0; i < context->devices; i++) {
		if (glk_load_acquire(&context->caches[i].started))
			context->drv->ops->device_sync(context->drv, i);
	}
	err = take_down(context, &live);
	if (ret_leaked)
		*ret_leaked = live;
	return err;
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
