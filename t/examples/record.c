/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Records what it asks for, to be replayed by glakectl: record TRACE. A program that was not made
 * for it records with GLAKE_TRACE_FILE in its environment.
 */
#include "must.h"

#include <glake/glake.h>

#define BLOCKS 64
#define STEPS  20

int main(int argc, char **argv)
{
	struct glake_options options = {.sz = sizeof(options)};
	const char *settings[] = {NULL, NULL};
	struct CUstream_st *stream;
	char setting[4096];
	struct glake *ctx;
	void *block[BLOCKS];

	if (argc != 2) {
		fprintf(stderr, "usage: record TRACE\n");
		return 2;
	}
	snprintf(setting, sizeof(setting), "trace.file=%s", argv[1]);
	settings[0] = setting;
	options.settings = settings;
	must(glake_open(&options, &ctx));
	must(glake_stream_new(ctx, 0, &stream));
	for (size_t step = 0; step < STEPS; step++) {
		for (size_t i = 0; i < BLOCKS; i++)
			must(glake_alloc(ctx, 0, (i + 1) << 14, stream, 0, &block[i]));
		for (size_t i = 0; i < BLOCKS; i++)
			must(glake_free(ctx, block[i], stream));
	}
	must(glake_stream_free(ctx, 0, stream));
	must(glake_close(ctx, NULL));
	return 0;
}
