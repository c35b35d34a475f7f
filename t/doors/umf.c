/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The provider under the real framework: its own checks of what a provider is, its functions over
 * it, and its disjoint pool with several threads, all on the software device.
 */
#include "tap.h"

#ifdef GLK_HAVE_UMF
#include <glake/glake.h>
#include <glake/umf.h>

#include <errno.h>
#include <pthread.h>
#include <umf.h>
#include <umf/memory_pool.h>
#include <umf/memory_provider_ops.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>

#define MIB	((size_t)1 << 20)
#define THREADS 4
#define ROUNDS	200

static struct glake *open_soft(void)
{
	const char *const settings[] = {"pool.budget=64MiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glake *ctx = NULL;

	if (glake_open(&options, &ctx))
		tap_bail("no context on the software device");
	return ctx;
}

static uint64_t live(struct glake *ctx)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	return glake_stats_get(ctx, 0, &stats) ? 99 : stats.live_blocks;
}

static umf_memory_provider_handle_t provide(struct glake *ctx)
{
	struct glake_umf_params params = {.sz = sizeof(params), .ctx = ctx};
	umf_memory_provider_handle_t provider = NULL;

	is_int(umfMemoryProviderCreate(glake_umf_ops(), &params, &provider),
		UMF_RESULT_SUCCESS, "the framework takes the provider");
	return provider;
}

static void functions(struct glake *ctx)
{
	umf_memory_provider_handle_t provider = provide(ctx);
	struct glake_block about = {.sz = sizeof(about)};
	const char *name = NULL;
	void *ptr = NULL, *other = NULL;
	size_t size = 0;

	is_int(umfMemoryProviderGetName(provider, &name), UMF_RESULT_SUCCESS, "a name");
	is_str(name, "glake", "the name");
	is_int(umfMemoryProviderGetMinPageSize(provider, NULL, &size), 0, "a page size");
	is_int((int64_t)size, (int64_t)GLAKE_GRAIN, "the grain");
	is_int(umfMemoryProviderGetRecommendedPageSize(provider, MIB, &size), 0,
		"and another");
	ok(size >= 2 * MIB, "of pages");
	is_int(umfMemoryProviderAlloc(provider, 3 * MIB, 256, &ptr), 0, "memory");
	is_int(glake_query(ctx, ptr, &about), 0, "of the context that was given");
	is_int((int64_t)about.size, 3 * (int64_t)MIB, "as much as was asked for");
	is_int(umfMemoryProviderAlloc(provider, 1000, 0, &other), 0, "of any alignment");
	ok(ptr != other, "another block");
	is_int((int64_t)live(ctx), 2, "two blocks");
	is_int(umfMemoryProviderFree(provider, ptr, 3 * MIB), 0, "freed");
	is_int(umfMemoryProviderFree(provider, other, 1000), 0, "and the other");
	is_int(umfMemoryProviderFree(provider, NULL, 0), 0, "NULL is nothing");
	is_int((int64_t)live(ctx), 0, "no block is left");
	is_int(umfMemoryProviderDestroy(provider), 0, "destroyed");
	is_int(glake_device_count(ctx) > 0, 1, "the context is still open");
}

static void refusals(struct glake *ctx)
{
	umf_memory_provider_handle_t provider = provide(ctx), none = NULL;
	struct glake_umf_params params = {.sz = sizeof(params), .ctx = ctx, .device = 77};
	struct {
		struct glake_umf_params known;
		uint64_t more;
	} newer = {{.sz = sizeof(newer), .ctx = ctx}, 1};
	const char *text = "";
	void *ptr = NULL;
	int32_t err = 0;
	size_t size;

	is_int(umfMemoryProviderAlloc(provider, 256 * MIB, 0, &ptr),
		UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC, "more than there is");
	is_int(umfMemoryProviderGetLastNativeError(provider, &text, &err), 0, "and why");
	is_int(err, -ENOMEM, "the errno value");
	has_str(text, "GPU 0", "the sentence");
	ok(!ptr, "nothing was given");
	is_int(umfMemoryProviderAlloc(provider, MIB, 4 * MIB, &ptr),
		UMF_RESULT_ERROR_INVALID_ALIGNMENT, "an alignment above 2 MiB");
	is_int(umfMemoryProviderAlloc(provider, MIB, 4096, &ptr), 0, "one of 4 KiB");
	is_int((int64_t)((uintptr_t)ptr % 4096), 0, "is met");
	is_int(umfMemoryProviderFree(provider, ptr, MIB), 0, "and freed");
	ptr = NULL;
	is_int(umfMemoryProviderAlloc(provider, 0, 0, &ptr),
		UMF_RESULT_ERROR_INVALID_ARGUMENT, "no bytes");
	is_int(umfMemoryProviderFree(provider, &ptr, 8),
		UMF_RESULT_ERROR_INVALID_ARGUMENT, "memory of somebody else");
	is_int(umfMemoryProviderAlloc(provider, MIB, 0, &ptr), 0, "memory");
	is_int(umfMemoryProviderPurgeLazy(provider, ptr, MIB),
		UMF_RESULT_ERROR_NOT_SUPPORTED, "pages stay");
	is_int(umfMemoryProviderFree(provider, (char *)ptr + 512, 8),
		UMF_RESULT_ERROR_INVALID_ARGUMENT, "the inside of a block");
	is_int(umfMemoryProviderFree(provider, ptr, MIB), 0, "freed");
	is_int(umfMemoryProviderGetIPCHandleSize(provider, &size),
		UMF_RESULT_ERROR_NOT_SUPPORTED, "no handles for other processes");
	is_int(umfMemoryProviderCreate(glake_umf_ops(), &params, &none),
		UMF_RESULT_ERROR_INVALID_ARGUMENT, "a GPU that is not there");
	params.device = 0;
	params.sz = 1;
	is_int(umfMemoryProviderCreate(glake_umf_ops(), &params, &none),
		UMF_RESULT_ERROR_INVALID_ARGUMENT, "parameters of another version");
	is_int(umfMemoryProviderCreate(glake_umf_ops(), &newer, &none),
		UMF_RESULT_ERROR_INVALID_ARGUMENT, "unknown content");
	ok(!none, "no provider");
	newer.more = 0;
	is_int(umfMemoryProviderCreate(glake_umf_ops(), &newer, &none), 0,
		"a larger structure with none");
	is_int(umfMemoryProviderDestroy(none), 0, "is a provider");
	is_int(umfMemoryProviderDestroy(provider), 0, "destroyed");
}

static void many(struct glake *ctx)
{
	static umf_memory_provider_handle_t all[GLAKE_UMF_PROVIDERS + 1];
	struct glake_umf_params params = {.sz = sizeof(params), .ctx = ctx};
	int made = 0, gone = 0, i;

	for (i = 0; i < GLAKE_UMF_PROVIDERS; i++)
		made += !umfMemoryProviderCreate(glake_umf_ops(), &params, &all[i]);
	is_int(made, GLAKE_UMF_PROVIDERS, "as many providers as there can be");
	is_int(umfMemoryProviderCreate(glake_umf_ops(), &params, &all[i]),
		UMF_RESULT_ERROR_OUT_OF_RESOURCES, "and one more");
	for (i = 0; i < GLAKE_UMF_PROVIDERS; i++)
		gone += !umfMemoryProviderDestroy(all[i]);
	is_int(gone, GLAKE_UMF_PROVIDERS, "all go");
	is_int(umfMemoryProviderCreate(glake_umf_ops(), &params, &all[0]), 0,
		"there is room again");
	umfMemoryProviderDestroy(all[0]);
}

static void closed(void)
{
	struct glake *ctx = open_soft();
	umf_memory_provider_handle_t provider = provide(ctx);
	void *ptr = NULL;

	is_int(umfMemoryProviderAlloc(provider, MIB, 0, &ptr), 0, "memory");
	tap_expect_log(1); /* of the stream that the provider has */
	glake_close(ctx, NULL);
	is_int(umfMemoryProviderAlloc(provider, MIB, 0, &ptr),
		UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC, "none of a closed context");
	is_int(umfMemoryProviderDestroy(provider), 0, "whose provider ends all the same");
}

static void *work(void *arg)
{
	umf_memory_pool_handle_t pool = arg;
	void *blocks[8] = {NULL};
	uintptr_t failed = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		void **block = &blocks[i % 8];

		failed += umfPoolFree(pool, *block) != UMF_RESULT_SUCCESS;
		*block = umfPoolMalloc(pool, 64 + 7919 * (i % 13) % 100000);
		failed += !*block;
	}
	for (int i = 0; i < 8; i++)
		failed += umfPoolFree(pool, blocks[i]) != UMF_RESULT_SUCCESS;
	return (void *)failed;
}

static void pool(struct glake *ctx, const umf_memory_pool_ops_t *ops, void *params,
	const char *what)
{
	umf_memory_provider_handle_t provider = provide(ctx), found = NULL;
	umf_memory_pool_handle_t made = NULL;
	struct glake_block about = {.sz = sizeof(about)};
	pthread_t threads[THREADS];
	uintptr_t failed = 0;
	void *ptr, *said;

	is_int(umfPoolCreate(
		       ops, provider, params, UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &made),
		0, what);
	if (!made)
		return;
	ptr = umfPoolMalloc(made, 100000);
	is_int(glake_query(ctx, ptr, &about), 0, "  its memory is glake's");
	is_int(umfPoolGetMemoryProvider(made, &found), 0, "  over the provider");
	ok(found == provider, "  that was given");
	is_int(umfPoolFree(made, ptr), 0, "  freed");
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, made);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &said);
		failed += (uintptr_t)said;
	}
	is_int((int64_t)failed, 0, "  four threads got and gave back");
	is_int(umfPoolDestroy(made), 0, "  destroyed");
	is_int((int64_t)live(ctx), 0, "  with all of its memory");
}

int main(void)
{
	umf_disjoint_pool_params_handle_t params = NULL;
	umf_memory_provider_handle_t provider = NULL;
	struct glake *ctx = open_soft();
	void *ptr = NULL;

	tap_plan_later();
	tap_note("operations of version %d.%d",
		UMF_MAJOR_VERSION((int)UMF_PROVIDER_OPS_VERSION_CURRENT),
		UMF_MINOR_VERSION((int)UMF_PROVIDER_OPS_VERSION_CURRENT));
	functions(ctx);
	refusals(ctx);
	many(ctx);
	pool(ctx, umfProxyPoolOps(), NULL, "the pool that keeps nothing");
	umfDisjointPoolParamsCreate(&params);
	umfDisjointPoolParamsSetSlabMinSize(params, 64 << 10);
	umfDisjointPoolParamsSetMaxPoolableSize(params, MIB);
	umfDisjointPoolParamsSetCapacity(params, 4);
	umfDisjointPoolParamsSetMinBucketSize(params, 64);
	pool(ctx, umfDisjointPoolOps(), params,
		"the pool for memory that it may not touch");
	umfDisjointPoolParamsDestroy(params);
	is_int(glake_close(ctx, NULL), 0, "the context is closed");
	closed();
	is_int(umfMemoryProviderCreate(glake_umf_ops(), NULL, &provider), 0,
		"a provider with a context of its own");
	is_int(umfMemoryProviderAlloc(provider, MIB, 0, &ptr), 0, "has memory");
	is_int(umfMemoryProviderFree(provider, ptr, MIB), 0, "takes it back");
	is_int(umfMemoryProviderDestroy(provider), 0, "and closes it");
	return tap_done();
}
#else
int main(void)
{
	tap_skip_all(
		"no headers of the Unified Memory Framework 1.2: see t/doors/meson.build");
}
#endif
