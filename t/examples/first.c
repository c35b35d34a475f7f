/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The program of README: a block, and what it costs. */
#include <glake/glake.h>
#include <stdio.h>

int main(void)
{
	/* no software device in its place, unless the configuration says that it is meant */
	const char *cuda[] = {"driver.backend=cuda", NULL};
	struct glake_options options = {.sz = sizeof(options), .defaults = cuda};
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct glake_error error = {.sz = sizeof(error)};
	struct CUstream_st *stream = NULL; /* a cudaStream_t goes in as it is */
	struct glake *ctx = NULL;
	void *tensor = NULL;
	int err = glake_open(&options, &ctx);

	if (!err)
		err = glake_alloc(ctx, 0, 48 << 20, stream, 0, &tensor);
	if (!err)
		err = glake_stats_get(ctx, 0, &stats);
	if (!err)
		printf("%llu bytes live on %llu bytes of pages\n",
			(unsigned long long)stats.live,
			(unsigned long long)stats.reserved);
	else if (!glake_last_error(&error))
		fprintf(stderr, "glake: %s\n", error.text);
	if (tensor)
		glake_free(ctx, tensor, stream);
	glake_close(ctx, NULL);
	return err != 0;
}
