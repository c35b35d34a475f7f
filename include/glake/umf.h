/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_UMF_H
#define GLAKE_UMF_H

#include <stddef.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

/*
 * GPU memory of glake as a memory provider of the Unified Memory Framework, in libumf-glake.so:
 *
 *	struct glake_umf_params params = {.sz = sizeof(params), .ctx = ctx};
 *	umf_memory_provider_handle_t provider;
 *
 *	umfMemoryProviderCreate(glake_umf_ops(), &params, &provider);
 *
 * The framework knows no streams, so memory comes as from cudaMalloc: all streams may use it at
 * once, for which a request may wait for what used it before, and a free waits for the GPU. Pools
 * of the framework that keep what they get make both rare. Its pools that write their books into
 * the memory, as the scalable one, are for host memory.
 *
 * GLAKE_GRAIN is the page size it is told. An alignment above GLAKE_ALIGN_MAX is refused with
 * UMF_RESULT_ERROR_INVALID_ALIGNMENT. What the library refuses is
 * UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY for NOMEM_HOST, UMF_RESULT_ERROR_INVALID_ARGUMENT for
 * -EINVAL, and else UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC: the errno value and the sentence
 * are those of umfMemoryProviderGetLastNativeError. There are no handles for other processes: see
 * share.h.
 */
struct glake;
struct umf_memory_provider_ops_t; /* of umf/memory_provider_ops.h, version 1.2 */

/* Providers that there can be at a time. */
#define GLAKE_UMF_PROVIDERS 64

/* What a provider is made with. */
struct glake_umf_params {
	size_t sz; /* sizeof(struct glake_umf_params) */
	/* A context, borrowed until the provider is destroyed; NULL: one of its own, by the
	 * configuration. */
	struct glake *ctx;
	int device;   /* GPU number, from 0 */
	int reserved; /* 0 */
};

/*
 * The operations, for umfMemoryProviderCreate with a struct glake_umf_params or with NULL, which
 * stands for all zeroes. They stay as they are. Finalising a provider with a context of its own
 * closes that; a borrowed one keeps the blocks that were not freed. Parameters of a newer header
 * with unknown content, and any that make no sense, are UMF_RESULT_ERROR_INVALID_ARGUMENT; one
 * provider more than there can be is UMF_RESULT_ERROR_OUT_OF_RESOURCES.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT const struct umf_memory_provider_ops_t *glake_umf_ops(void);

GLAKE_END_DECLS

#endif
