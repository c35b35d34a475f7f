/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pairs COUNT SIZE[,OTHER] [PLUGIN]: allocates and frees a block that many times on one stream, of two
 * sizes by turns if OTHER is named. Blocks of up to 256 KiB come from the quick bins, larger ones from the lookaside list; with
 * policy.bins=0 these miss and find a place that is mapped. For whoever counts what a pair costs from outside;
 * exit status 3 if one was no hit, or with that setting was, or if something was mapped. With the plug-in for PyTorch through that, on the stream of all.
 *
 * A last one of each size lies between two stores to a place whose address is printed, for whoever watches which memory
 * they touch.
 */
#include <glake/glake.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Before the count begins: the first few requests carve blocks ahead, or map. */
#define WARM 64

static volatile long mark;

/* Of the plug-in. */
static void *(*torch_alloc)(size_t, int, struct CUstream_st *);
static void (*torch_free)(void *, size_t, int, struct CUstream_st *);

static int open_plugin(const char *path, struct glake **ret_ctx)
{
	void *plugin = dlopen(path, RTLD_NOW);
	struct glake *(*context)(void);

	if (!plugin)
		return 1;
	*(void **)&torch_alloc = dlsym(plugin, "glake_torch_alloc");
	*(void **)&torch_free = dlsym(plugin, "glake_torch_free");
	*(void **)&context = dlsym(plugin, "glake_torch_context");
	*ret_ctx = context();
	return !*ret_ctx;
}

static int run(
	struct glake *ctx, struct CUstream_st *stream, long count, const size_t sizes[2])
{
	void *ptr;

	for (long i = 0; torch_alloc && i < count; i++) {
		ptr = torch_alloc(sizes[i & 1], 0, stream);
		torch_free(ptr, sizes[i & 1], 0, stream);
	}
	for (long i = 0; !torch_alloc && i < count; i++) {
		if (glake_alloc(ctx, 0, sizes[i & 1], stream, 0, &ptr) ||
			glake_free(ctx, ptr, stream))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT};
	struct glake_stats before = {.sz = sizeof(before)}, after = before;
	struct CUstream_st *stream = NULL;
	uint64_t hits, called, most;
	struct glake *ctx;
	size_t sizes[2];
	char *behind;
	long count;

	if (argc != 3 && argc != 4)
		return 2;
	count = atol(argv[1]);
	sizes[0] = sizes[1] = strtoul(argv[2], &behind, 10);
	if (*behind == ',')
		sizes[1] = strtoul(behind + 1, NULL, 10);
	if (argc == 4 ? open_plugin(argv[3], &ctx)
		      : glake_open(&options, &ctx) || glake_stream_new(ctx, 0, &stream))
		return 1;
	if (run(ctx, stream, WARM, sizes) || glake_stats_get(ctx, 0, &before) ||
		run(ctx, stream, count, sizes) || glake_stats_get(ctx, 0, &after))
		return 1;
	printf("%jx\n", (uintmax_t)(uintptr_t)&mark);
	mark = 1;
	if (run(ctx, stream, 2, sizes))
		return 1;
	mark = 2;
	hits = after.hits - before.hits;
	called = after.called - before.called;
	most = getenv("GLAKE_POLICY_BINS") ? 0 : (uint64_t)count;
	if (hits != most || called) {
		fprintf(stderr, "%llu hits of %ld, %llu requests called the driver\n",
			(unsigned long long)hits, count, (unsigned long long)called);
		return 3;
	}
	if (torch_alloc) /* its context is never closed */
		return 0;
	if (glake_stream_free(ctx, 0, stream) || glake_close(ctx, NULL))
		return 1;
	return 0;
}
