/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Opens contexts as the words on its command line ask for: auto, soft, cuda; default, a program
 * of no use without CUDA that leaves the last word to its configuration; quiet, one that says
 * itself what it runs on. Prints for each what it got.
 */
#include <stdio.h>
#include <string.h>

#include <glake/glake.h>

static struct glake_options options_of(const char *word)
{
	static const char *const defaults[] = {"driver.backend=cuda", NULL};
	struct glake_options options = {.sz = sizeof(options)};

	if (!strcmp(word, "soft"))
		options.backend = GLAKE_BACKEND_SOFT;
	else if (!strcmp(word, "cuda"))
		options.backend = GLAKE_BACKEND_CUDA;
	else if (!strcmp(word, "default"))
		options.defaults = defaults;
	else if (!strcmp(word, "quiet"))
		options.no_soft_warning = 1;
	return options;
}

int main(int count, char **words)
{
	for (int i = 1; i < count; i++) {
		struct glake_options options = options_of(words[i]);
		struct glake *ctx;
		void *block;

		if (glake_open(&options, &ctx)) {
			puts("refused");
			continue;
		}
		puts(glake_backend(ctx) == GLAKE_BACKEND_CUDA ? "cuda" : "soft");
		if (glake_alloc(ctx, 0, 1 << 20, NULL, 0, &block) ||
			glake_free(ctx, block, NULL))
			puts("no memory");
		glake_close(ctx, NULL);
	}
	return 0;
}
