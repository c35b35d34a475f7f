/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Opening and closing a context, and what a forked child forgets. It stands above all other files of
 * this folder, since what they keep of a context begins and ends with it.
 */
#include "api/context.h"
#include "api/second.h"
#include "api/served.h"
#include "api/uvm.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rcu.h"
#include "base/sized.h"
#include "base/thread.h"
#include "guard/guard.h"
#include "numa/topology.h"
#include "soft/open.h"
#include "tier/tier.h"

#include <errno.h>
#include <string.h>

/* In a forked child nothing of the parent's is used any more. */
static void forked(void)
{
	glk_contexts_forked();
	glk_socket_forked();
	glk_managed_forked();
	glk_trace_forked();
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

/* A broker wants memory for others. */
static void give_way(void *of, int device, uint64_t bytes, int64_t until)
{
	glk_cache_give(&((struct glk_context *)of)->caches[device], bytes, until);
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

	glk_lessee_stop(context->lessee);
	glk_trace_close(glk_load_relaxed(&context->trace), glk_clock_ns());
	while (context->stopped_count)
		glk_trace_close(context->stopped[--context->stopped_count], 0);
	for (int i = 0; i < context->devices; i++)
		glk_guard_fini(&context->caches[i]);
	glk_io_fini(&context->io);
	err = end_caches(context, context->devices, ret_live);
	glk_pool_fini(&context->pool);
	failed = glk_drv_close(context->drv);
	/* all memory is with the driver */
	glk_lessee_free(context->lessee);
	if (context->has_quota)
		glk_quota_end();
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
	struct glk_quota_rules rules;
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
	err = glk_context_may_open();
	if (err)
		return err;
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
	if (!err && context->conf.security_level == 3)
		err = glk_cipher_able();
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
	rules = glk_quota_rules(&context->conf);
	err = glk_quota_begin(&context->pool, &rules, &context->has_quota);
	if (!err)
		err = glk_lessee_new(&context->pool, &context->conf, give_way, context,
			&context->lessee);
	for (int i = 0; i < context->devices && !err; i++)
		err = glk_guard_set(&context->caches[i], context->conf.guard_mode,
			(uint64_t)context->conf.guard_rate);
	for (int i = 0; i < context->devices && !err; i++)
		err = glk_guard_level(
			&context->caches[i], (int)context->conf.security_level);
	if (!err)
		err = glk_context_publish(context, &handle);
	if (err) {
		take_down(context, &live);
		return err;
	}
	context->looks = glk_guard_looks_new(
		context->caches, context->devices, context->conf.guard_look);
	glk_socket_begin(handle, context);
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
	if (err)
		return err;
	if (glk_thread_current->asked)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"a function that makes room closes what asks it: see glake_shortage_set(3)");
	glk_socket_end(ctx);
	err = glk_context_withdraw(ctx, &context);
	if (err)
		return err;
	glk_guard_looks_end(context->looks);
	glk_managed_end(context);
	glk_copy_jobs_leave(ctx, context);
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
