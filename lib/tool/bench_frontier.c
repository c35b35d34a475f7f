/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The frontier as a picture: for each job a panel, in it a mark for each variant, memory to the
 * right and driver time upwards, both on logarithmic axes, because what is saved and what is
 * paid are factors. A line joins the variants that no other one beats in both; the one further
 * left needs less memory, the one further down less time.
 *
 * Labels are placed one by one where they cover nothing, nearest first, and a thin line leads
 * to those that had to move away.
 */
#include "tool/bench.h"

#include "tool/figure.h"
#include "tool/svg.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define PANEL_WIDTH  560.0
#define PANEL_HEIGHT 380.0
#define LEFT	     64.0
#define RIGHT	     16.0
#define TOP	     48.0
#define BOTTOM	     48.0
#define TITLE	     64.0 /* above the panels */
#define MARK	     4.5
#define GAP	     2.5 /* around marks and labels */
#define LETTER	     6.2 /* width of a letter of a label, about */
#define BOLD	     6.9
#define LINE	     14.0

struct box {
	double x, y, width, height;
};

struct panel {
	FILE *file;
	const struct bench_policy *policy;
	const struct bench_outcome *outcome;
	double x, y;				  /* upper left corner */
	double x_low, x_high, y_low, y_high;	  /* logarithms at the ends of the axes */
	struct box taken[2 * BENCH_VARIANTS_MAX]; /* by the marks, then by the labels */
	struct {
		double x, y;
	} front[BENCH_VARIANTS_MAX]; /* corners of the dashed line */
	size_t corners;
};

/* What is above live, in percent; one page more or less is drawn at the end of the axis. */
static double memory_of(const struct bench_outcome *outcome)
{
	double percent = (outcome->over_live - 1) * 100;

	return log10(percent > 0.01 ? percent : 0.01);
}

static double time_of(const struct bench_outcome *outcome)
{
	return log10(outcome->total_ms > 0.1 ? outcome->total_ms : 0.1);
}

static double x_of(const struct panel *panel, double memory)
{
	return panel->x + LEFT +
		(memory - panel->x_low) / (panel->x_high - panel->x_low) *
		(PANEL_WIDTH - LEFT - RIGHT);
}

static double y_of(const struct panel *panel, double time)
{
	return panel->y + PANEL_HEIGHT - BOTTOM -
		(time - panel->y_low) / (panel->y_high - panel->y_low) *
		(PANEL_HEIGHT - TOP - BOTTOM);
}

static void widen(double *low, double *high, double value)
{
	*low = value < *low ? value : *low;
	*high = value > *high ? value : *high;
}

/* The next tick, 1, 2 or 5 of a power of ten, at or below a value, or at or above it. */
static double tick_beside(double value, bool above)
{
	static const double steps[] = {0, 0.30103, 0.69897, 1};
	double power = floor(value), best = above ? power + 1 : power;

	for (int i = 0; i < 4; i++) {
		double tick = power + steps[i];

		if (above ? tick >= value && tick < best : tick <= value && tick > best)
			best = tick;
	}
	return best;
}

/* With room for labels; both ends are ticks. */
static void choose_axes(struct panel *panel)
{
	double width;

	panel->x_low = panel->x_high = memory_of(&panel->outcome[0]);
	panel->y_low = panel->y_high = time_of(&panel->outcome[0]);
	for (size_t i = 1; i < panel->policy->variants; i++) {
		widen(&panel->x_low, &panel->x_high, memory_of(&panel->outcome[i]));
		widen(&panel->y_low, &panel->y_high, time_of(&panel->outcome[i]));
	}
	width = panel->x_high - panel->x_low;
	panel->x_low = tick_beside(panel->x_low - 0.05 * width - 0.03, false);
	panel->x_high = tick_beside(panel->x_high + 0.1 * width + 0.03, true);
	width = panel->y_high - panel->y_low;
	panel->y_low = tick_beside(panel->y_low - 0.05 * width - 0.03, false);
	panel->y_high = tick_beside(panel->y_high + 0.05 * width + 0.03, true);
}

/* Ticks at 1, 2, 5 of each power of ten. */
static void put_ticks(struct panel *panel, bool across)
{
	static const double steps[] = {1, 2, 5};
	double low = across ? panel->x_low : panel->y_low;
	double high = across ? panel->x_high : panel->y_high;
	double left = panel->x + LEFT, right = panel->x + PANEL_WIDTH - RIGHT;
	double top = panel->y + TOP, bottom = panel->y + PANEL_HEIGHT - BOTTOM;

	for (int i = 3 * (int)floor(low); i <= 3 * (int)ceil(high); i++) {
		int power = (int)floor(i / 3.0);
		double size = steps[i - 3 * power] * pow(10, power), value = log10(size),
		       at;

		if (value < low - 0.001 || value > high + 0.001)
			continue;
		at = across ? x_of(panel, value) : y_of(panel, value);
		fprintf(panel->file,
			"<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
			"y2=\"%.1f\"/>\n",
			across ? at : left, across ? top : at, across ? at : right,
			across ? bottom : at);
		svg_begin_text(panel->file, across ? at : left - 6,
			across ? bottom + 16 : at + 4, "quiet", across ? "middle" : "end",
			"font-size=\"11\"");
		fprintf(panel->file, "%s</text>\n", figure_count(size).text);
	}
}

static void put_frame(struct panel *panel, const char *name)
{
	double x = panel->x, y = panel->y;

	fprintf(panel->file, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"600\">", x + LEFT,
		y + TOP - 12);
	svg_text(panel->file, name);
	fprintf(panel->file, "</text>\n");
	put_ticks(panel, true);
	put_ticks(panel, false);
	fprintf(panel->file,
		"<path class=\"axis\" fill=\"none\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n"
		"<text class=\"quiet\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">reserved "
		"above live, %%</text>\n"
		"<text class=\"quiet\" text-anchor=\"middle\" transform=\"translate(%.1f %.1f) "
		"rotate(-90)\">driver, ms</text>\n",
		x + LEFT, y + TOP, y + PANEL_HEIGHT - BOTTOM, x + PANEL_WIDTH - RIGHT,
		x + (LEFT + PANEL_WIDTH - RIGHT) / 2, y + PANEL_HEIGHT - 12, x + 18,
		y + (TOP + PANEL_HEIGHT - BOTTOM) / 2);
}

static bool is_beaten(const struct panel *panel, size_t which)
{
	const struct bench_outcome *a = &panel->outcome[which];

	for (size_t i = 0; i < panel->policy->variants; i++) {
		const struct bench_outcome *b = &panel->outcome[i];

		if (b->over_live <= a->over_live && b->total_ms <= a->total_ms &&
			(b->over_live < a->over_live || b->total_ms < a->total_ms))
			return true;
	}
	return false;
}

/* The unbeaten ones from left to right. */
static void put_frontier(struct panel *panel)
{
	double last = 0;

	for (;;) {
		const struct bench_outcome *next = NULL;

		for (size_t i = 0; i < panel->policy->variants; i++) {
			const struct bench_outcome *o = &panel->outcome[i];

			if (o->over_live > last && !is_beaten(panel, i) &&
				(!next || o->over_live < next->over_live))
				next = o;
		}
		if (!next)
			break;
		last = next->over_live;
		panel->front[panel->corners].x = x_of(panel, memory_of(next));
		panel->front[panel->corners].y = y_of(panel, time_of(next));
		panel->corners++;
	}
	fprintf(panel->file, "<path class=\"front\" d=\"");
	for (size_t i = 0; i < panel->corners; i++)
		fprintf(panel->file, "%c%.1f %.1f", i ? 'L' : 'M', panel->front[i].x,
			panel->front[i].y);
	fprintf(panel->file, "\"/>\n");
}

static void put_mark(struct panel *panel, size_t which, double x, double y)
{
	const char *setting = panel->policy->variant[which].setting;
	const struct bench_outcome *outcome = &panel->outcome[which];

	if (setting && !strncmp(setting, "pool.", 5))
		fprintf(panel->file,
			"<rect class=\"pages\" x=\"%.1f\" y=\"%.1f\" width=\"%g\" "
			"height=\"%g\"><title>",
			x - MARK, y - MARK, 2 * MARK, 2 * MARK);
	else
		fprintf(panel->file,
			"<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%g\"><title>",
			setting ? "policy" : "default", x, y, setting ? MARK : MARK + 2);
	svg_text(panel->file, panel->policy->variant[which].name);
	fprintf(panel->file, ": %.2f %% above live, %s</title></%s>\n",
		(outcome->over_live - 1) * 100, figure_ns(outcome->total_ms * 1e6).text,
		setting && !strncmp(setting, "pool.", 5) ? "rect" : "circle");
}

/* The default is drawn last, so that none hides it. */
static void put_marks(struct panel *panel)
{
	for (size_t i = panel->policy->variants; i-- > 0;) {
		double x = x_of(panel, memory_of(&panel->outcome[i]));
		double y = y_of(panel, time_of(&panel->outcome[i]));
		double reach = (i ? MARK : MARK + 2) + GAP;

		put_mark(panel, i, x, y);
		panel->taken[i] =
			(struct box){x - reach, y - reach, 2 * reach, 2 * reach};
	}
}

static double overlap(const struct box *a, const struct box *b)
{
	double width = fmin(a->x + a->width, b->x + b->width) - fmax(a->x, b->x);
	double height = fmin(a->y + a->height, b->y + b->height) - fmax(a->y, b->y);

	return width > 0 && height > 0 ? width * height : 0;
}

/* How much of the dashed line a box would cover, by points on it. */
static double crossed(const struct panel *panel, const struct box *box)
{
	double points = 0;

	for (size_t i = 0; i + 1 < panel->corners; i++) {
		for (int k = 0; k < 32; k++) {
			double part = k / 32.0;
			double x = panel->front[i].x * (1 - part) +
				panel->front[i + 1].x * part;
			double y = panel->front[i].y * (1 - part) +
				panel->front[i + 1].y * part;

			points += x > box->x && x < box->x + box->width && y > box->y &&
				y < box->y + box->height;
		}
	}
	return points;
}

/* The line that leads from a mark to its label: from the rim of the one to the rim of the other,
 * which is far enough away to need one if this is true. */
static bool lead_of(const struct panel *panel, size_t which, const struct box *box,
	double *from, double *to)
{
	const struct box *mark = &panel->taken[which];
	double x = mark->x + mark->width / 2, y = mark->y + mark->height / 2, away;

	to[0] = fmax(box->x - 1, fmin(x, box->x + box->width + 1));
	to[1] = fmax(box->y, fmin(y, box->y + box->height));
	away = hypot(to[0] - x, to[1] - y);
	from[0] = x + (to[0] - x) / fmax(away, 1) * (mark->width / 2 - GAP);
	from[1] = y + (to[1] - y) / fmax(away, 1) * (mark->width / 2 - GAP);
	return away > mark->width / 2 + 8;
}

/* What a lead would run over: marks and labels of others, by points on it. */
static double run_over(const struct panel *panel, size_t which, const struct box *box)
{
	size_t variants = panel->policy->variants;
	double from[2], to[2], points = 0;

	if (!lead_of(panel, which, box, from, to))
		return 0;
	for (int k = 1; k < 16; k++) {
		double x = from[0] + (to[0] - from[0]) * k / 16;
		double y = from[1] + (to[1] - from[1]) * k / 16;

		for (size_t i = 0; i < 2 * variants; i++) {
			const struct box *other = &panel->taken[i];

			points += i % variants != which && x > other->x &&
				x < other->x + other->width && y > other->y &&
				y < other->y + other->height;
		}
	}
	return points;
}

/* How bad a place for a label is: what it covers, what of it lies outside, and its lead. */
static double cost_of(const struct panel *panel, size_t which, const struct box *box)
{
	struct box inside = {panel->x + LEFT, panel->y + TOP, PANEL_WIDTH - LEFT - RIGHT,
		PANEL_HEIGHT - TOP - BOTTOM};
	double cost = 4 * (box->width * box->height - overlap(box, &inside));
	size_t variants = panel->policy->variants;

	for (size_t i = 0; i < 2 * variants; i++)
		if (i != variants + which)
			cost += 4 * overlap(box, &panel->taken[i]);
	return cost + 10 * crossed(panel, box) + 15 * run_over(panel, which, box);
}

/* The best place around the mark, in growing circles, to the right first. */
static void place_label(struct panel *panel, size_t which)
{
	const char *name = panel->policy->variant[which].name;
	const struct box *mark = &panel->taken[which];
	double width = (which ? LETTER : BOLD) * (double)strlen(name) + 2 * GAP;
	double least = INFINITY;
	struct box best = {0};

	for (int ring = 0; ring < 10; ring++) {
		for (int i = 0; i < 24; i++) {
			double turn = (i % 2 ? 1 : -1) * ((i + 1) / 2) * M_PI / 12;
			double reach = mark->width / 2 + 1 + 9 * ring;
			struct box box = {.width = width, .height = LINE};
			double cost;

			box.x = mark->x + mark->width / 2 + cos(turn) * reach -
				(1 - cos(turn)) / 2 * width;
			box.y = mark->y + mark->height / 2 +
				sin(turn) * (reach + LINE / 2) - LINE / 2;
			/* a label further away had better be worth it */
			cost = cost_of(panel, which, &box) + 8 * ring;
			if (cost >= least)
				continue;
			least = cost;
			best = box;
		}
	}
	panel->taken[panel->policy->variants + which] = best;
}

static void put_lead(struct panel *panel, size_t which)
{
	double from[2], to[2];

	if (lead_of(panel, which, &panel->taken[panel->policy->variants + which], from,
		    to))
		fprintf(panel->file,
			"<line class=\"lead\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
			from[0], from[1], to[0], to[1]);
}

static void put_label(struct panel *panel, size_t which)
{
	const struct box *box = &panel->taken[panel->policy->variants + which];

	svg_begin_text(panel->file, box->x + box->width / 2, box->y + LINE - 3.5, "halo",
		"middle",
		which ? "font-size=\"11\"" : "font-size=\"11\" font-weight=\"600\"");
	svg_text(panel->file, panel->policy->variant[which].name);
	fprintf(panel->file, "</text>\n");
}

/* Each finds its place among the others, a few times, for the first knew of none. */
static void put_labels(struct panel *panel)
{
	for (int round = 0; round < 6; round++)
		for (size_t i = 0; i < panel->policy->variants; i++)
			place_label(panel, i);
	for (size_t i = 0; i < panel->policy->variants; i++)
		put_lead(panel, i);
	for (size_t i = 0; i < panel->policy->variants; i++)
		put_label(panel, i);
}

static void put_panel(FILE *file, const struct bench_policy *policy, size_t which)
{
	struct panel panel = {.file = file,
		.policy = policy,
		.outcome = policy->trace[which].outcome,
		.x = (double)(which % 2) * PANEL_WIDTH,
		.y = TITLE + (double)(which / 2) * PANEL_HEIGHT};

	choose_axes(&panel);
	put_frame(&panel, policy->trace[which].name);
	put_frontier(&panel);
	put_marks(&panel);
	put_labels(&panel);
}

static void draw(FILE *file, const struct bench_policy *policy)
{
	size_t columns = policy->traces > 1 ? 2 : 1, rows = (policy->traces + 1) / 2;
	const struct svg_style style = {.width = (double)columns * PANEL_WIDTH,
		.height = TITLE + (double)rows * PANEL_HEIGHT,
		.light = ".default { fill: #cf222e } .policy { fill: #0969da }\n"
			 ".pages { fill: #cf5a00 }\n"
			 ".front { stroke: #59636e; stroke-dasharray: 4 3; fill: none }\n"
			 ".lead { stroke: #8c959f; stroke-width: 0.7 }\n",
		.dark = ".default { fill: #ff7b72 } .policy { fill: #58a6ff }\n"
			".pages { fill: #ffa657 } .front { stroke: #9198a1 }\n"
			".lead { stroke: #6e7681 }\n"};

	svg_head(file, &style, "Memory against driver time, by policy");
	svg_begin_text(
		file, LEFT, 30, "", "start", "font-size=\"18\" font-weight=\"600\"");
	fprintf(file, "Memory against driver time, by policy</text>\n");
	svg_begin_text(file, LEFT, 50, "quiet", "start", "");
	fprintf(file,
		"%u passes over each job; the dashed line joins what nothing beats in both"
		"</text>\n",
		policy->passes);
	for (size_t i = 0; i < policy->traces; i++)
		put_panel(file, policy, i);
	fputs("</svg>\n", file);
}

int bench_plot_policy(const struct bench_policy *policy, const char *path)
{
	FILE *file = fopen(path, "we");
	int err = 0;

	if (!file) {
		err = -errno;
		glk_tool_say("%s: %s", path, strerror(-err));
		return err;
	}
	draw(file, policy);
	if (ferror(file))
		err = -EIO;
	if (fclose(file) && !err)
		err = -errno;
	if (err)
		glk_tool_say("%s: could not be written: %s", path, strerror(-err));
	return err;
}
