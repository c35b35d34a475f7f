/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The timeline as a picture: one SVG file that needs nothing else, with the figures that
 * belong under it, readable on light and on dark ground.
 *
 * Both curves are steps: nothing changes between two events.
 */
#include "tool/replay.h"

#include "tool/figure.h"
#include "tool/svg.h"

#include <errno.h>
#include <string.h>

#define WIDTH  960.0
#define HEIGHT 440.0
#define LEFT   72.0
#define RIGHT  24.0
#define TOP    84.0
#define BOTTOM 56.0

struct plot {
	FILE *file;
	const struct replay_result *result;
	double seconds, bytes; /* at the far ends of the axes */
};

static double x_of(const struct plot *plot, double seconds)
{
	return LEFT + seconds / plot->seconds * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct plot *plot, double bytes)
{
	return HEIGHT - BOTTOM - bytes / plot->bytes * (HEIGHT - TOP - BOTTOM);
}

static double seconds_of(const struct plot *plot, const struct replay_sample *sample)
{
	return (double)plot->result->trace->times_us[sample->event] / 1e6;
}

static void put_head(const struct plot *plot)
{
	svg_head(plot->file, WIDTH, HEIGHT,
		".live { stroke: #0969da; fill: none; stroke-width: 1.5 }\n"
		".area { fill: #0969da; fill-opacity: 0.22 }\n"
		".reserved { stroke: #cf5a00; fill: none; stroke-width: 1.8 }\n",
		".live { stroke: #58a6ff } .area { fill: #58a6ff }\n"
		".reserved { stroke: #ffa657 }\n");
}

static void put_title(const struct plot *plot)
{
	const struct replay_result *result = plot->result;
	const struct trace *trace = result->trace;

	fprintf(plot->file,
		"<text x=\"%g\" y=\"28\" font-size=\"18\" font-weight=\"600\">", LEFT);
	svg_text(plot->file, trace->name);
	fprintf(plot->file, ": live and reserved GPU memory</text>\n");
	fprintf(plot->file, "<text class=\"quiet\" x=\"%g\" y=\"48\">", LEFT);
	fprintf(plot->file, "%zu events on %s; ", trace->count,
		result->backend[0] == 's' ? "the software device" : "CUDA");
	fprintf(plot->file, "peak live %s, ", figure_bytes(trace->peak_live).text);
	fprintf(plot->file, "peak reserved %s, x%.4f</text>\n",
		figure_bytes(result->peak_reserved).text,
		(double)result->peak_reserved / (double)trace->peak_live);
}

static void put_legend(const struct plot *plot)
{
	static const char *const names[] = {"live", "reserved"};
	double x = WIDTH - RIGHT - 180;

	for (int i = 0; i < 2; i++, x += 80) {
		if (!i)
			fprintf(plot->file,
				"<rect class=\"area\" x=\"%g\" y=\"60\" width=\"24\" "
				"height=\"10\"/>\n",
				x);
		fprintf(plot->file,
			"<line class=\"%s\" x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\"/>\n"
			"<text x=\"%g\" y=\"70\">%s</text>\n",
			names[i], x, i ? 65.0 : 60.0, x + 24, i ? 65.0 : 60.0, x + 30,
			names[i]);
	}
}

static void put_y_axis(const struct plot *plot)
{
	double unit;
	const char *name = figure_unit((uint64_t)plot->bytes, &unit);
	double step = figure_round_up(plot->bytes / unit / 8);

	for (int i = 0; i * step * unit <= plot->bytes; i++) {
		double y = y_of(plot, i * step * unit);

		fprintf(plot->file,
			"<line class=\"%s\" x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\"/>\n"
			"<text class=\"quiet\" x=\"%g\" y=\"%.1f\" "
			"text-anchor=\"end\">%g</text>\n",
			i ? "grid" : "axis", LEFT, y, WIDTH - RIGHT, y, LEFT - 8, y + 4.5,
			i * step);
	}
	fprintf(plot->file,
		"<text class=\"quiet\" x=\"%g\" y=\"%g\" text-anchor=\"end\">%s</text>\n",
		LEFT - 8, TOP - 12, name);
}

static void put_x_axis(const struct plot *plot)
{
	double unit = plot->seconds < 0.001 ? 1e-6 : plot->seconds < 1 ? 1e-3 : 1;
	const char *name = plot->seconds < 0.001 ? "us" : plot->seconds < 1 ? "ms" : "s";
	double step = figure_round_up(plot->seconds / unit / 10);
	double y = HEIGHT - BOTTOM;

	for (int i = 0; i * step * unit <= plot->seconds; i++) {
		double x = x_of(plot, i * step * unit);

		fprintf(plot->file,
			"<line class=\"axis\" x1=\"%.1f\" y1=\"%g\" x2=\"%.1f\" y2=\"%g\"/>\n"
			"<text class=\"quiet\" x=\"%.1f\" y=\"%g\" "
			"text-anchor=\"middle\">%g</text>\n",
			x, y, x, y + 5, x, y + 20, i * step);
	}
	fprintf(plot->file,
		"<text class=\"quiet\" x=\"%g\" y=\"%g\" text-anchor=\"middle\">time of the "
		"job, %s</text>\n",
		(LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, name);
}

static void put_curve(
	const struct plot *plot, const char *class, bool reserved, bool area)
{
	const struct replay_result *result = plot->result;

	fprintf(plot->file, "<path class=\"%s\" d=\"M%.1f %.1f", class, x_of(plot, 0),
		y_of(plot, 0));
	for (size_t i = 0; i < result->samples; i++) {
		const struct replay_sample *sample = &result->sample[i];
		uint64_t bytes = reserved ? sample->reserved : sample->live;

		fprintf(plot->file, "H%.1fV%.1f", x_of(plot, seconds_of(plot, sample)),
			y_of(plot, (double)bytes));
	}
	fprintf(plot->file, "H%.1f", x_of(plot, plot->seconds));
	if (area)
		fprintf(plot->file, "V%.1fZ", y_of(plot, 0));
	fprintf(plot->file, "\"/>\n");
}

static void draw(struct plot *plot)
{
	const struct replay_result *result = plot->result;
	uint64_t highest = result->peak_reserved;

	if (result->trace->peak_live > highest)
		highest = result->trace->peak_live;
	plot->bytes = (double)highest * 1.04;
	plot->seconds =
		result->trace->job_us ? (double)result->trace->job_us / 1e6 : 1e-6;
	put_head(plot);
	put_title(plot);
	put_legend(plot);
	put_y_axis(plot);
	put_x_axis(plot);
	put_curve(plot, "area", false, true);
	put_curve(plot, "live", false, false);
	put_curve(plot, "reserved", true, false);
	fputs("</svg>\n", plot->file);
}

int replay_plot(const struct replay_result *result, const char *path)
{
	struct plot plot = {.result = result, .file = fopen(path, "we")};
	int err = 0;

	if (!plot.file) {
		err = -errno;
		glk_tool_say("%s: %s", path, strerror(-err));
		return err;
	}
	draw(&plot);
	if (ferror(plot.file))
		err = -EIO;
	if (fclose(plot.file) && !err)
		err = -errno;
	if (err)
		glk_tool_say("%s: could not be written: %s", path, strerror(-err));
	return err;
}
