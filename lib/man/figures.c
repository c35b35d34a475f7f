/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes what people and tests read about the figures from the one table of them, so that it cannot
 * fall behind. It runs on the machine that builds and is not installed.
 *
 *	figures page HEAD TAIL	the manual page: HEAD, one entry a figure, TAIL
 *	figures list		a line a figure: name, kind, unit, whose, and what several are told apart by
 */
#include "watch/figures.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {"gauge", "counter", "histogram"};
static const char *const units[] = {"number", "bytes", "ns", "ratio"};

struct writer {
	bool page;
	int device;	  /* of the figure before */
	const char *name; /* of that one */
};

static void print_list(const struct glake_figure *figure)
{
	printf("%s %s %s %s %s\n", figure->name, kinds[figure->kind], units[figure->unit],
		figure->device < 0 ? "context" : "gpu",
		figure->label ? figure->label : "-");
}

static void print_entry(const struct glake_figure *figure)
{
	printf(".It Va %s Pq %s", figure->name, kinds[figure->kind]);
	if (figure->label)
		printf(", by %s", figure->label);
	printf("\n%s\n", figure->help);
}

static int take(const struct glk_figures_context *context,
	const struct glake_figure *figure, void *arg)
{
	struct writer *writer = arg;

	(void)context;
	if (writer->name == figure->name)
		return 0;
	if (writer->page && writer->device != figure->device)
		printf("%s.Ss Of %s\n.Bl -tag -width Ds\n", writer->name ? ".El\n" : "",
			figure->device < 0 ? "a context" : "a GPU");
	writer->name = figure->name;
	writer->device = figure->device;
	if (writer->page)
		print_entry(figure);
	else
		print_list(figure);
	return 0;
}

/* All that there are, with one GPU, stream and node. */
static void walk(bool page)
{
	static struct glk_figures_gpu gpu = {.survey.streams = 1};
	static const struct glk_figures_node node;
	const struct glk_figures_context context = {
		.driver = "", .gpus = &gpu, .count = 1, .nodes = &node, .node_count = 1};
	const struct glk_figures all = {.contexts = &context, .count = 1};
	struct writer writer = {.page = page, .device = -2};

	if (!page)
		puts("# SPDX-License-"
		     "Identifier: LGPL-2.1-or-later");
	glk_figures_walk(&all, take, &writer);
	if (page)
		puts(".El");
}

static int copy(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[512];

	if (!file) {
		perror(path);
		return 1;
	}
	while (fgets(line, sizeof(line), file))
		fputs(line, stdout);
	return fclose(file);
}

int main(int argc, char **argv)
{
	int err = 0;

	if (argc == 4 && !strcmp(argv[1], "page")) {
		err = copy(argv[2]);
		walk(true);
		err = err ? err : copy(argv[3]);
	} else if (argc == 2 && !strcmp(argv[1], "list")) {
		walk(false);
	} else {
		fputs("usage: figures page HEAD TAIL | figures list\n", stderr);
		return 2;
	}
	return err || fflush(stdout) || ferror(stdout);
}
