/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What bench copy measured as a picture: a panel for each way, in it a line for each number of links,
 * GB/s against the size of the copy, which grows by factors. Dashed: while the memory of the GPUs that lend is
 * busy, and beside the title by how much that memory was slowed at most.
 */
#include "tool/bench.h"

#include "tool/figure.h"
#include "tool/svg.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define PANEL  360.0 /* width of one, with what is around it */
#define HEIGHT 400.0
#define LEFT   52.0
#define RIGHT  20.0
#define TOP    92.0
#define BOTTOM 64.0
#define TICKS  5 /* of rates, at most */

static const char *const titles[BENCH_COPY_WAYS] = {
	[BENCH_COPY_DOWN] = "to the GPU",
	[BENCH_COPY_UP] = "to the host",
	[BENCH_COPY_BOTH] = "both at once",
};

/* Lines by links, from 1 to BENCH_COPY_LINKS: on light ground and on dark. */
static const char light[] = ".l1 { stroke: #59636e } .l2 { stroke: #5aa2e0 }\n"
			    ".l3 { stroke: #2f9e5b } .l4 { stroke: #e0703a }\n"
			    ".l5 { stroke: #8250df } .l6 { stroke: #b8860b }\n"
			    ".l7 { stroke: #cf222e } .l8 { stroke: #1b6b55 }\n"
			    ".line { fill: none; stroke-width: 2 }\n"
			    ".dash { stroke-dasharray: 7 4 }\n";
static const char dark[] = ".l1 { stroke: #9198a1 } .l2 { stroke: #58a6ff }\n"
			   ".l3 { stroke: #3fb950 } .l4 { stroke: #f0883e }\n"
			   ".l5 { stroke: #a371f7 } .l6 { stroke: #e3b341 }\n"
			   ".l7 { stroke: #f85149 } .l8 { stroke: #8ff0c0 }\n";

struct picture {
	FILE *file;
	const struct bench_copy *copy;
	double left;	  /* of the panel */
	double low, high; /* logarithms of the smallest and the largest size */
	double top, step; /* of the rates */
};

static double x_of(const struct picture *p, size_t bytes)
{
	double share = p->high > p->low
		? (log2((double)bytes) - p->low) / (p->high - p->low)
		: 0;

	return p->left + LEFT + share * (PANEL - LEFT - RIGHT);
}

static double y_of(const struct picture *p, double rate)
{
	return HEIGHT - BOTTOM - rate / p->top * (HEIGHT - TOP - BOTTOM);
}

/* One, two or five of a power of ten, so that there are few of them up to the highest rate. */
static double step_for(double highest)
{
	static const double parts[] = {1, 2, 5, 10};
	double power = pow(10, floor(log10(highest / TICKS)));

	for (int i = 0; i < 4; i++)
		if (parts[i] * power * TICKS >= highest)
			return parts[i] * power;
	return 10 * power;
}

static void choose_axes(struct picture *p)
{
	double highest = 1e-3;

	p->low = p->high = log2((double)p->copy->cases[0].bytes);
	for (unsigned i = 0; i < p->copy->count; i++) {
		const struct bench_copy_case *c = &p->copy->cases[i];

		p->low = fmin(p->low, log2((double)c->bytes));
		p->high = fmax(p->high, log2((double)c->bytes));
		for (int way = 0; way < BENCH_COPY_WAYS; way++)
			highest = fmax(
				highest, fmax(c->rate[way].median, c->beside[way].rate));
	}
	p->step = step_for(highest);
	p->top = p->step * ceil(highest / p->step);
}

static void put_text(const struct picture *p, double x, double y, const char *class,
	const char *anchor, const char *text)
{
	svg_begin_text(p->file, x, y, class, anchor, "");
	svg_text(p->file, text);
	fputs("</text>\n", p->file);
}

/* Every other size has its name: they are a power of four apart. */
static void put_axes(const struct picture *p, const char *title)
{
	double right = p->left + PANEL - RIGHT;
	char text[32];

	put_text(p, p->left + LEFT, TOP - 14, "", "start", title);
	for (double rate = 0; rate <= p->top * 1.001; rate += p->step) {
		fprintf(p->file,
			"<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
			rate > 0 ? "grid" : "axis", p->left + LEFT, right, y_of(p, rate),
			y_of(p, rate));
		snprintf(text, sizeof(text), "%g", rate);
		put_text(p, p->left + LEFT - 6, y_of(p, rate) + 4, "quiet", "end", text);
	}
	for (double at = p->low; at <= p->high + 0.5; at += 4)
		put_text(p, x_of(p, (size_t)exp2(at)), HEIGHT - BOTTOM + 18, "quiet",
			"middle", figure_bytes((uint64_t)exp2(at)).text);
}

static void put_line(const struct picture *p, int way, int links, bool beside)
{
	fprintf(p->file, "<polyline class=\"line%s l%d\" points=\"",
		beside ? " dash" : "", links);
	for (unsigned i = 0; i < p->copy->count; i++) {
		const struct bench_copy_case *c = &p->copy->cases[i];

		if (c->links == links)
			fprintf(p->file, "%.1f,%.1f ", x_of(p, c->bytes),
				y_of(p,
					beside ? c->beside[way].rate
					       : c->rate[way].median));
	}
	fputs("\"/>\n", p->file);
}

static bool is_beside(const struct bench_copy *copy)
{
	return copy->count && copy->cases[copy->count - 1].memory > 0;
}

static void put_slowed(const struct picture *p, int way)
{
	double most = -100;
	char text[64];

	for (unsigned i = 0; i < p->copy->count; i++)
		if (p->copy->cases[i].memory > 0)
			most = fmax(most, p->copy->cases[i].beside[way].memory_slowed);
	snprintf(text, sizeof(text), "memory up to %.0f %% slower", most);
	put_text(p, p->left + PANEL - RIGHT, TOP - 14, "quiet", "end", text);
}

static int most_links(const struct bench_copy *copy)
{
	return copy->count ? copy->cases[copy->count - 1].links : 0;
}

static void put_legend(const struct picture *p)
{
	char text[32];
	double x = LEFT;

	for (int links = 1; links <= most_links(p->copy); links++, x += 84) {
		fprintf(p->file,
			"<line class=\"line l%d\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
			"y2=\"%.1f\"/>\n",
			links, x, x + 20, HEIGHT - 22, HEIGHT - 22);
		snprintf(text, sizeof(text), "%d link%s", links, links > 1 ? "s" : "");
		put_text(p, x + 26, HEIGHT - 18, "", "start", text);
	}
}

static void draw(struct picture *p)
{
	struct svg_style style = {.width = BENCH_COPY_WAYS * PANEL,
		.height = HEIGHT,
		.light = light,
		.dark = dark};
	char note[128];

	svg_head(p->file, &style, "Copies between the host and a GPU");
	put_text(p, LEFT, 28, "", "start", "Copies between the host and a GPU");
	snprintf(note, sizeof(note),
		"GB/s against the size of a copy, medians of %u rounds", p->copy->rounds);
	put_text(p, LEFT, 48, "quiet", "start", note);
	for (int way = 0; way < BENCH_COPY_WAYS; way++) {
		p->left = way * PANEL;
		put_axes(p, titles[way]);
		for (int links = 1; links <= most_links(p->copy); links++)
			put_line(p, way, links, false);
		for (int links = 2; is_beside(p->copy) && links <= most_links(p->copy);
			links++)
			put_line(p, way, links, true);
		if (is_beside(p->copy))
			put_slowed(p, way);
	}
	put_legend(p);
	if (is_beside(p->copy))
		put_text(p, BENCH_COPY_WAYS * PANEL - RIGHT, 28, "quiet", "end",
			"dashed: the memory of the GPUs that lend is busy");
	fputs("</svg>\n", p->file);
}

int bench_plot_copy(const struct bench_copy *copy, const char *path)
{
	struct picture p = {.file = fopen(path, "we"), .copy = copy};
	int err = 0;

	if (!p.file) {
		err = -errno;
		glk_tool_say("%s: %s", path, strerror(-err));
		return err;
	}
	choose_axes(&p);
	draw(&p);
	if (ferror(p.file))
		err = -EIO;
	if (fclose(p.file) && !err)
		err = -errno;
	if (err)
		glk_tool_say("%s: could not be written: %s", path, strerror(-err));
	return err;
}
