/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FLOW_AWAY_PEER_H
#define GLK_FLOW_AWAY_PEER_H

/* What the tests of contents that lie with another GPU share: a context whose GPU 1 lends to GPU 0, and blocks
 * in which each word says where it is. */
#include "context.h"

#define ROOM                                                                             \
	"soft.gpus=2", "soft.memory=512MiB", "soft.host_memory=1GiB",                    \
		"tier.host=512MiB", "tier.away=peer", "tier.peer=1", "policy.bins=0"

static struct glake *ctx;
static struct CUstream_st *stream, *other;

static inline void set_up(const char *const *settings)
{
	ctx = flow_open(settings);
	glake_stream_new(ctx, 0, &stream);
	glake_stream_new(ctx, 1, &other);
}

static inline void tear_down(size_t leaked)
{
	glake_stream_free(ctx, 0, stream);
	glake_stream_free(ctx, 1, other);
	flow_close(ctx, leaked);
}

/* Odd pages, so that words lie at other places of each part that is moved. */
#define WORDS ((size_t)9 * 4096)

/* Each word says where it is. */
static inline void write_words(void *ptr, size_t size)
{
	for (size_t i = 0; i + 8 <= size; i += WORDS)
		*(uintptr_t *)((char *)ptr + i) = (uintptr_t)ptr + i;
}

static inline void *take(struct glake *in, int device, size_t size)
{
	void *ptr = NULL;

	if (glake_alloc(in, device, size, NULL, 0, &ptr))
		tap_bail(flow_error().text);
	write_words(ptr, size);
	return ptr;
}

static inline bool holds(const void *ptr, size_t size)
{
	for (size_t i = 0; i + 8 <= size; i += WORDS)
		if (*(const uintptr_t *)((const char *)ptr + i) != (uintptr_t)ptr + i)
			return false;
	return true;
}

static inline struct glake_block about(const void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glake_query(ctx, ptr, &block))
		tap_bail(flow_error().text);
	return block;
}

static inline int64_t mib(uint64_t bytes)
{
	return (int64_t)(bytes / MIB);
}

#endif
