/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A memory provider of the Unified Memory Framework. It stands beside the library and does not
 * link the framework, which calls it.
 *
 * Each provider has a stream of its own that never has work: what is asked for on it may be used
 * everywhere, once the stream has been waited for in case memory came behind the work of another.
 * What is freed has been used up when the GPU was waited for, as with cuMemFree.
 */
#include "front/wait.h"

#include <glake/umf.h>

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <umf/memory_provider_ops.h>

#define CACHE_LINE 128 /* of the GPUs' second level; transfers are of 32 and up */

struct provider {
	struct glake *ctx;
	struct CUstream_st *idle;
	int device;
	bool used, owned; /* this row; the context */
};

/* Rows are taken and left under the lock, and read by those who have got one. */
static struct provider providers[GLAKE_UMF_PROVIDERS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What get_last_native_error shows; may be loaded late, so not of the static kind. */
static _Thread_local struct glake_error last __attribute__((tls_model("global-dynamic")));

static umf_result_t result_of(int err)
{
	if (!err)
		return UMF_RESULT_SUCCESS;
	last.sz = sizeof(last);
	if (glake_last_error(&last) || last.err != err)
		last = (struct glake_error){.sz = sizeof(last), .err = err};
	if (err == -ENOMEM && last.error_class == GLAKE_ERROR_NOMEM_HOST)
		return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
	if (err == -EINVAL)
		return UMF_RESULT_ERROR_INVALID_ARGUMENT;
	return UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
}

static struct provider *take_row(void)
{
	struct provider *found = NULL;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < GLAKE_UMF_PROVIDERS && !found; i++) {
		if (!providers[i].used)
			found = &providers[i];
	}
	if (found)
		found->used = true;
	pthread_mutex_unlock(&lock);
	return found;
}

static void leave_row(struct provider *row)
{
	pthread_mutex_lock(&lock);
	*row = (struct provider){0};
	pthread_mutex_unlock(&lock);
}

/* Of a smaller structure the rest is 0; of a larger one the rest has to be. */
static bool read_params(const void *params, struct glake_umf_params *ret_asked)
{
	const unsigned char *bytes = params;
	struct glake_umf_params asked = {0};
	size_t sz = sizeof(asked);

	if (params)
		memcpy(&sz, params, sizeof(sz));
	if (sz < sizeof(sz))
		return false;
	if (params)
		memcpy(&asked, params, sz < sizeof(asked) ? sz : sizeof(asked));
	for (size_t i = sizeof(asked); i < sz; i++) {
		if (bytes[i])
			return false;
	}
	*ret_asked = asked;
	return !asked.reserved;
}

static umf_result_t initialize(const void *params, void **ret_provider)
{
	struct glake_umf_params asked;
	struct provider *row;
	int err = 0;

	if (!ret_provider || !read_params(params, &asked))
		return UMF_RESULT_ERROR_INVALID_ARGUMENT;
	row = take_row();
	if (!row)
		return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
	row->ctx = asked.ctx;
	row->device = asked.device;
	row->owned = !asked.ctx;
	if (row->owned)
		err = glake_open(NULL, &row->ctx);
	if (err)
		goto leave;
	err = glake_stream_new(row->ctx, row->device, &row->idle);
	if (err)
		goto close;
	*ret_provider = row;
	return UMF_RESULT_SUCCESS;
close:
	if (row->owned)
		glake_close(row->ctx, NULL);
leave:
	leave_row(row);
	return result_of(err);
}

static umf_result_t finalize(void *provider)
{
	struct provider *row = provider;
	int err = glake_stream_free(row->ctx, row->device, row->idle);

	if (row->owned)
		err = glake_close(row->ctx, NULL);
	if (err == -ESTALE) /* a borrowed context that was closed before has freed all */
		err = 0;
	leave_row(row);
	return result_of(err);
}

static umf_result_t allocate(
	void *provider, size_t size, size_t alignment, void **ret_ptr)
{
	struct provider *row = provider;
	void *ptr = NULL;
	int err;

	if (!ret_ptr)
		return UMF_RESULT_ERROR_INVALID_ARGUMENT;
	if (alignment > GLAKE_ALIGN_MAX || (alignment & (alignment - 1)))
		return UMF_RESULT_ERROR_INVALID_ALIGNMENT;
	err = glake_alloc(row->ctx, row->device, size, row->idle,
		(uint32_t)alignment & GLAKE_ALLOC_ALIGN, &ptr);
	if (err)
		return result_of(err);
	if (!glk_front_wait(row->ctx, row->device, row->idle)) {
		glake_free(row->ctx, ptr, row->idle);
		return result_of(-EIO);
	}
	*ret_ptr = ptr;
	return UMF_RESULT_SUCCESS;
}

static umf_result_t give_back(void *provider, void *ptr, size_t size)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct provider *row = provider;
	int err;

	(void)size; /* a block knows its own */
	if (!ptr)
		return UMF_RESULT_SUCCESS;
	err = glake_query(row->ctx, ptr, &block);
	if (err)
		return result_of(err);
	if (!glk_front_wait(row->ctx, block.device, NULL))
		return result_of(-EIO);
	return result_of(glake_free_after(row->ctx, ptr, NULL, 0));
}

static umf_result_t last_native_error(
	void *provider, const char **ret_text, int32_t *ret_err)
{
	(void)provider;
	if (!ret_text || !ret_err)
		return UMF_RESULT_ERROR_INVALID_ARGUMENT;
	*ret_text = last.text;
	*ret_err = last.err;
	return UMF_RESULT_SUCCESS;
}

static umf_result_t recommended_page_size(void *provider, size_t size, size_t *ret_size)
{
	struct glake_device gpu = {.sz = sizeof(gpu)};
	struct provider *row = provider;
	int err = ret_size ? glake_device_get(row->ctx, row->device, &gpu) : -EINVAL;

	(void)size;
	if (!err)
		*ret_size = gpu.granularity_recommended;
	return result_of(err);
}

/* Blocks of any multiple of the grain are cut without waste, and lie at such addresses. */
static umf_result_t min_page_size(void *provider, const void *ptr, size_t *ret_size)
{
	(void)provider;
	(void)ptr;
	if (!ret_size)
		return UMF_RESULT_ERROR_INVALID_ARGUMENT;
	*ret_size = GLAKE_GRAIN;
	return UMF_RESULT_SUCCESS;
}

static umf_result_t name(void *provider, const char **ret_name)
{
	(void)provider;
	if (!ret_name)
		return UMF_RESULT_ERROR_INVALID_ARGUMENT;
	*ret_name = "glake";
	return UMF_RESULT_SUCCESS;
}

static umf_result_t cache_line_size(void *provider, size_t *ret_size)
{
	(void)provider;
	if (!ret_size)
		return UMF_RESULT_ERROR_INVALID_ARGUMENT;
	*ret_size = CACHE_LINE;
	return UMF_RESULT_SUCCESS;
}

const struct umf_memory_provider_ops_t *glake_umf_ops(void)
{
	static const umf_memory_provider_ops_t ops = {
		.version = UMF_PROVIDER_OPS_VERSION_CURRENT,
		.initialize = initialize,
		.finalize = finalize,
		.alloc = allocate,
		.free = give_back,
		.get_last_native_error = last_native_error,
		.get_recommended_page_size = recommended_page_size,
		.get_min_page_size = min_page_size,
		.get_name = name,
		.get_cache_line_size = cache_line_size,
	};

	return &ops;
}
