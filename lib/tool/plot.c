/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The timeline as a picture: one SVG file that needs nothing else, with the figures that
 * belong under it, readable on light and on dark ground. What lies between the two curves is
 * shaded, for that is what an allocator holds and nobody uses.
 *
 * Both curves are steps: nothing changes between two events.
 */
#include "tool/replay.h"

#include "tool/figure.h"
#include "tool/svg.h"

#include <errno.h>
#include <string.h>

#define WIDTH  960.0
#define HEIGHT 460.0
#define LEFT   72.0
#define RIGHT  24.0
#define TOP    92.0
#define BOTTOM 56.0
#define TICK   44.0  /* ticks of time closer than this would touch */
#define LABEL  230.0 /* the width of the longest label of a peak, about */
#define LEAD   14.0
#define BESIDE 6.0

struct plot {
	FILE *file;
	const struct replay_result *result;
	double seconds, bytes; /* at the far ends of the axes */
	double unit, step;     /* of the axis of memory, bytes */
	const char *unit_name;
	double limit; /* bytes; 0: none is drawn */
};

/* The highest point of a curve, the first time that it is reached. */
struct peak {
	double seconds;
	uint64_t bytes;
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

static uint64_t bytes_of(const struct replay_sample *sample, bool reserved)
{
	return reserved ? sample->reserved : sample->live;
}

static struct peak peak_of(const struct plot *plot, bool reserved)
{
	const struct replay_result *result = plot->result;
	struct peak peak = {0};

	for (size_t i = 0; i < result->samples; i++) {
		const struct replay_sample *sample = &result->sample[i];

		if (bytes_of(sample, reserved) > peak.bytes)
			peak = (struct peak){
				seconds_of(plot, sample), bytes_of(sample, reserved)};
	}
	return peak;
}

static void put_head(const struct plot *plot)
{
	const struct svg_style style = {.width = WIDTH,
		.height = HEIGHT,
		.light =
			".live { stroke: #0969da; fill: none; stroke-width: 1.5 }\n"
			".area { fill: #0969da; fill-opacity: 0.22 }\n"
			".between { fill: #cf5a00; fill-opacity: 0.16; fill-rule: evenodd }\n"
			".reserved { stroke: #cf5a00; fill: none; stroke-width: 1.8 }\n"
			".limit { stroke: #cf222e; stroke-dasharray: 6 4; stroke-width: 1.2 }\n"
			".dot-live { fill: #0969da } .dot-reserved { fill: #cf5a00 }\n",
		.dark = ".live { stroke: #58a6ff } .area { fill: #58a6ff }\n"
			".reserved { stroke: #ffa657 } .between { fill: #ffa657 }\n"
			".limit { stroke: #ff7b72 }\n"
			".dot-live { fill: #58a6ff } .dot-reserved { fill: #ffa657 }\n"};
	char title[sizeof(plot->result->trace->name) + 64];

	snprintf(title, sizeof(title), "%s: live and reserved GPU memory",
		plot->result->trace->name);
	svg_head(plot->file, &style, title);
	svg_begin_text(plot->file, LEFT, 28, "", "start",
		"font-size=\"18\" font-weight=\"600\"");
	svg_text(plot->file, title);
	fprintf(plot->file, "</text>\n");
}

static void put_summary(const struct plot *plot)
{
	const struct replay_result *result = plot->result;
	const struct trace *trace = result->trace;

	svg_begin_text(plot->file, LEFT, 48, "quiet", "start", "");
	fprintf(plot->file, "%s events on %s; ", figure_count((double)trace->count).text,
		result->backend[0] == 's' ? "the software device" : "CUDA");
	fprintf(plot->file, "peak live %s, ", figure_bytes(trace->peak_live).text);
	fprintf(plot->file, "peak reserved %s, x%.4f",
		figure_bytes(result->peak_reserved).text,
		trace->peak_live
			? (double)result->peak_reserved / (double)trace->peak_live
			: 0);
	if (result->budget != UINT64_MAX)
		fprintf(plot->file, "; limit %s", figure_bytes(result->budget).text);
	fprintf(plot->file, "</text>\n");
}

static void put_legend(const struct plot *plot)
{
	static const struct {
		const char *line, *area, *text;
		double width;
	} entries[] = {{"live", "area", "live", 66},
		{NULL, "between", "reserved, not live", 156},
		{"reserved", NULL, "reserved", 96}, {"limit", NULL, "limit", 66}};
	size_t count = plot->limit > 0 ? 4 : 3;
	double x = WIDTH - RIGHT;

	for (size_t i = 0; i < count; i++)
		x -= entries[i].width;
	for (size_t i = 0; i < count; x += entries[i++].width) {
		double y = entries[i].area ? 60 : 65;

		if (entries[i].area)
			fprintf(plot->file,
				"<rect class=\"%s\" x=\"%g\" y=\"60\" width=\"24\" "
				"height=\"10\"/>\n",
				entries[i].area, x);
		if (entries[i].line)
			fprintf(plot->file,
				"<line class=\"%s\" x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\"/>\n",
				entries[i].line, x, y, x + 24, y);
		svg_begin_text(plot->file, x + 30, 70, "", "start", "");
		fprintf(plot->file, "%s</text>\n", entries[i].text);
	}
}

static void put_y_axis(const struct plot *plot)
{
	size_t ticks = (size_t)(plot->bytes / plot->step + 0.5);

	for (size_t i = 0; i <= ticks; i++) {
		double y = y_of(plot, (double)i * plot->step);

		fprintf(plot->file,
			"<line class=\"%s\" x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\"/>\n",
			i ? "grid" : "axis", LEFT, y, WIDTH - RIGHT, y);
		svg_begin_text(plot->file, LEFT - 8, y + 4.5, "quiet", "end", "");
		fprintf(plot->file, "%s</text>\n",
			figure_count((double)i * plot->step / plot->unit).text);
	}
	svg_begin_text(plot->file, LEFT - 8, TOP - 18, "quiet", "end", "");
	fprintf(plot->file, "%s</text>\n", plot->unit_name);
}

static void put_time(const struct plot *plot, double seconds, const char *text)
{
	double x = x_of(plot, seconds), y = HEIGHT - BOTTOM;

	fprintf(plot->file,
		"<line class=\"axis\" x1=\"%.1f\" y1=\"%g\" x2=\"%.1f\" y2=\"%g\"/>\n", x,
		y, x, y + 5);
	svg_begin_text(plot->file, x, y + 20, "quiet", "middle", "");
	fprintf(plot->file, "%s</text>\n", text);
}

/* Round times, and the end of the job as it is. */
static void put_x_axis(const struct plot *plot)
{
	double unit = plot->seconds < 0.001 ? 1e-6 : plot->seconds < 1 ? 1e-3 : 1;
	const char *name = plot->seconds < 0.001 ? "us" : plot->seconds < 1 ? "ms" : "s";
	double step = figure_round_up(plot->seconds / unit / 10) * unit;
	double end = x_of(plot, plot->seconds);
	char last[24];

	for (int i = 0; end - x_of(plot, i * step) >= TICK; i++)
		put_time(plot, i * step, figure_count(i * step / unit).text);
	snprintf(last, sizeof(last), "%.3g", plot->seconds / unit);
	put_time(plot, plot->seconds,
		plot->seconds / unit < 1000
			? last
			: figure_count((double)(uint64_t)(plot->seconds / unit)).text);
	svg_begin_text(plot->file, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "quiet",
		"middle", "");
	fprintf(plot->file, "time of the job, %s</text>\n", name);
}

/* From the origin to the end of the job; closed along the axis where it is an area. */
static void put_steps(const struct plot *plot, bool reserved, bool area)
{
	const struct replay_result *result = plot->result;

	fprintf(plot->file, "M%.1f %.1f", x_of(plot, 0), y_of(plot, 0));
	for (size_t i = 0; i < result->samples; i++) {
		const struct replay_sample *sample = &result->sample[i];

		fprintf(plot->file, "H%.1fV%.1f", x_of(plot, seconds_of(plot, sample)),
			y_of(plot, (double)bytes_of(sample, reserved)));
	}
	fprintf(plot->file, "H%.1f", x_of(plot, plot->seconds));
	if (area)
		fprintf(plot->file, "V%.1fZ", y_of(plot, 0));
}

static void put_curves(const struct plot *plot)
{
	/* what is in one of the two areas and not in both */
	fprintf(plot->file, "<path class=\"between\" d=\"");
	put_steps(plot, true, true);
	put_steps(plot, false, true);
	fprintf(plot->file,
		"\"><title>reserved, not live</title></path>\n"
		"<path class=\"area\" d=\"");
	put_steps(plot, false, true);
	fprintf(plot->file, "\"/>\n<path class=\"live\" d=\"");
	put_steps(plot, false, false);
	fprintf(plot->file,
		"\"><title>live</title></path>\n"
		"<path class=\"reserved\" d=\"");
	put_steps(plot, true, false);
	fprintf(plot->file, "\"><title>reserved</title></path>\n");
}

static void put_limit(const struct plot *plot)
{
	double y = y_of(plot, plot->limit);

	fprintf(plot->file,
		"<line class=\"limit\" x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\"/>\n",
		LEFT, y, WIDTH - RIGHT, y);
	svg_begin_text(plot->file, LEFT + BESIDE, y - 6, "halo", "start", "");
	fprintf(plot->file, "limit %s</text>\n", figure_bytes(plot->result->budget).text);
}

/* A dot, and beside it what it is; to its left where there is no room to the right. */
static void put_peak(const struct plot *plot, const struct peak *peak, const char *name,
	double label_y)
{
	double x = x_of(plot, peak->seconds), y = y_of(plot, (double)peak->bytes);
	bool left = x + LEAD + LABEL > WIDTH - RIGHT;

	fprintf(plot->file,
		"<circle class=\"dot-%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", name, x,
		y);
	svg_begin_text(plot->file, left ? x - LEAD : x + LEAD, label_y, "halo",
		left ? "end" : "start", "");
	fprintf(plot->file, "peak %s %s</text>\n", name, figure_bytes(peak->bytes).text);
}

/* That of reserved above its curve, and above the limit if that is near; that of live below. */
static void put_peaks(const struct plot *plot)
{
	struct peak live = peak_of(plot, false), reserved = peak_of(plot, true);
	double above = y_of(plot, (double)reserved.bytes) - 8;
	double limit = plot->limit > 0 ? y_of(plot, plot->limit) : 0;
	double below = y_of(plot, (double)live.bytes) + 18;

	if (limit > above - 14 && limit < above + 14)
		above = limit - 6;
	/* the words of the limit stand at the axis */
	if (limit > above - 20 && limit < above + 26 &&
		x_of(plot, reserved.seconds) < LEFT + LABEL)
		above = y_of(plot, (double)reserved.bytes) + 18;
	if (below < above + 18 && below > above - 18)
		below = above + 18;
	if (below > HEIGHT - BOTTOM - 4)
		below = y_of(plot, (double)live.bytes) - 8;
	put_peak(plot, &live, "live", below);
	put_peak(plot, &reserved, "reserved", above);
}

/* The axis of memory ends with a tick above everything that is drawn. */
static void choose_axes(struct plot *plot)
{
	const struct replay_result *result = plot->result;
	uint64_t highest = result->peak_reserved;
	size_t ticks;

	if (result->trace->peak_live > highest)
		highest = result->trace->peak_live;
	/* a limit far away would make the rest small */
	if (result->budget / 2 <= highest)
		plot->limit = (double)result->budget;
	if (plot->limit > (double)highest)
		highest = result->budget;
	if (!highest)
		highest = 1;
	plot->unit_name = figure_unit(highest, &plot->unit);
	plot->step = figure_round_up((double)highest / plot->unit / 8) * plot->unit;
	ticks = (size_t)((double)highest * 1.06 / plot->step) + 1;
	plot->bytes = (double)ticks * plot->step;
	plot->seconds =
		result->trace->job_us ? (double)result->trace->job_us / 1e6 : 1e-6;
}

static void draw(struct plot *plot)
{
	choose_axes(plot);
	put_head(plot);
	put_summary(plot);
	put_legend(plot);
	put_curves(plot);
	put_y_axis(plot);
	put_x_axis(plot);
	if (plot->limit > 0)
		put_limit(plot);
	put_peaks(plot);
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
