/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The timeline in characters: columns are time, each as high as the most live memory in it,
 * topped up to what was reserved then. The gap between the two is what an allocator wastes.
 */
#include "tool/replay.h"

#include "tool/figure.h"

#define WIDTH  68
#define HEIGHT 14

struct column {
	uint64_t live, reserved;
};

static void fill_columns(const struct replay_result *result, struct column *columns)
{
	const struct trace *trace = result->trace;
	struct column last = {0};
	size_t next = 0;

	for (size_t x = 0; x < WIDTH; x++) {
		bool fresh = true;

		/* A column without a sample goes on as the last one ended. */
		columns[x] = last;
		for (; next < result->samples; next++) {
			const struct replay_sample *sample = &result->sample[next];
			double share = trace->job_us
				? (double)trace->times_us[sample->event] /
					(double)trace->job_us
				: 0;

			if (share * WIDTH >= (double)(x + 1) && x + 1 < WIDTH)
				break;
			last = (struct column){sample->live, sample->reserved};
			if (fresh || last.live > columns[x].live)
				columns[x].live = last.live;
			if (fresh || last.reserved > columns[x].reserved)
				columns[x].reserved = last.reserved;
			fresh = false;
		}
	}
}

/* The character of a cell: how much of it the live and the reserved memory fill. */
static const char *cell(double live, double reserved, bool utf8)
{
	static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

	if (!utf8)
		return live >= 0.5 ? "#" : reserved >= 0.5 ? ":" : " ";
	if (live <= 0.0625)
		return reserved >= 0.5 ? "░" : " ";
	return blocks[live >= 1 ? 8 : (int)(live * 8 + 0.5)];
}

static void print_row(
	const struct column *columns, int row, double cell_bytes, bool utf8, FILE *file)
{
	double floor = row * cell_bytes;

	for (int x = 0; x < WIDTH; x++)
		fputs(cell(((double)columns[x].live - floor) / cell_bytes,
			      ((double)columns[x].reserved - floor) / cell_bytes, utf8),
			file);
}

void replay_print_chart(const struct replay_result *result, bool utf8, FILE *file)
{
	struct column columns[WIDTH];
	uint64_t highest = 1;
	double unit, top;
	const char *name;

	fill_columns(result, columns);
	for (int x = 0; x < WIDTH; x++) {
		if (columns[x].reserved > highest)
			highest = columns[x].reserved;
	}
	name = figure_unit(highest, &unit);
	top = (double)highest / unit;
	fprintf(file, "  %8s\n", name);
	for (int row = HEIGHT - 1; row >= 0; row--) {
		if (row == HEIGHT - 1 || row == HEIGHT / 2 - 1)
			fprintf(file, "  %8.3g ", top * (row + 1) / HEIGHT);
		else
			fprintf(file, "  %8s ", "");
		fputs(utf8 ? "│" : "|", file);
		print_row(columns, row, top * unit / HEIGHT, utf8, file);
		fputc('\n', file);
	}
	fprintf(file, "  %8s %s", "0", utf8 ? "└" : "+");
	for (int x = 0; x < WIDTH; x++)
		fputs(utf8 ? "─" : "-", file);
	fprintf(file, "\n  %8s  0 s %*s\n", "", WIDTH - 5,
		figure_ns((double)result->trace->job_us * 1e3).text);
	fprintf(file, "  %8s  %s live   %s reserved (first repeat)\n\n", "",
		utf8 ? "█" : "#", utf8 ? "░" : ":");
}
