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
#define LETTER	     6.3 /* width of a letter of a label, about */
#define LINE	     12.0

struct box {
	double x, y, width, height;
};

struct panel {
	FILE *file;
	const struct bench_policy *policy;
	const struct bench_outcome *outcome;
	double x, y;			     /* upper left corner */
	double x_low, x_high, y_low, y_high; /* logarithms at the ends of the axes */
	struct box taken[2 * BENCH_VARIANTS_MAX];
	size_t count;
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
	panel->x_low -= 0.08 * width + 0.05;
	panel->x_high += 0.14 * width + 0.05;
	width = panel->y_high - panel->y_low;
	panel->y_low -= 0.08 * width + 0.05;
	panel->y_high += 0.08 * width + 0.05;
}

/* Ticks at 1, 2, 5 of each power of ten. */
static void put_ticks(struct panel *panel, bool across)
{
	static const double steps[] = {1, 2, 5};
	double low = across ? panel->x_low : panel->y_low;
	double high = across ? panel->x_high : panel->y_high;
	double x = panel->x, y = panel->y + PANEL_HEIGHT - BOTTOM;

	for (int power = (int)floor(low) - 1; power <= (int)ceil(high); power++) {
		for (int i = 0; i < 3; i++) {
			double value = log10(steps[i]) + power, at;

			if (value < low || value > high)
				continue;
			at = across ? x_of(panel, value) : y_of(panel, value);
			if (across)
				fprintf(panel->file,
					"<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" "
					"x2=\"%.1f\" y2=\"%.1f\"/>\n<text class=\"quiet\" "
					"x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" "
					"font-size=\"11\">%g</text>\n",
					at, panel->y + TOP, at, y, at, y + 16,
					pow(10, value));
			else
				fprintf(panel->file,
					"<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" "
					"x2=\"%.1f\" y2=\"%.1f\"/>\n<text class=\"quiet\" "
					"x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" "
					"font-size=\"11\">%g</text>\n",
					x + LEFT, at, x + PANEL_WIDTH - RIGHT, at,
					x + LEFT - 6, at + 4, pow(10, value));
		}
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

/* The default is drawn last, so that none hides it. */
static void put_marks(struct panel *panel)
{
	for (size_t i = panel->policy->variants; i-- > 0;) {
		const char *setting = panel->policy->variant[i].setting;
		double x = x_of(panel, memory_of(&panel->outcome[i]));
		double y = y_of(panel, time_of(&panel->outcome[i]));

		if (setting && !strncmp(setting, "pool.", 5))
			fprintf(panel->file,
				"<rect class=\"pages\" x=\"%.1f\" y=\"%.1f\" width=\"%g\" "
				"height=\"%g\"/>\n",
				x - MARK, y - MARK, 2 * MARK, 2 * MARK);
		else
			fprintf(panel->file,
				"<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%g\"/>\n",
				setting ? "policy" : "default", x, y,
				setting ? MARK : MARK + 2);
		panel->taken[panel->count++] = (struct box){
			x - MARK - 1, y - MARK - 1, 2 * MARK + 2, 2 * MARK + 2};
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

/* How bad a place is: what it covers, and what of it lies outside. */
static double cost_of(const struct panel *panel, const struct box *box)
{
	struct box inside = {panel->x + LEFT, panel->y + TOP, PANEL_WIDTH - LEFT - RIGHT,
		PANEL_HEIGHT - TOP - BOTTOM};
	double cost = 4 * (box->width * box->height - overlap(box, &inside));

	for (size_t i = 0; i < panel->count; i++)
		cost += overlap(box, &panel->taken[i]);
	return cost + 10 * crossed(panel, box);
}

static void put_label(struct panel *panel, size_t which)
{
	const char *name = panel->policy->variant[which].name;
	double x = x_of(panel, memory_of(&panel->outcome[which]));
	double y = y_of(panel, time_of(&panel->outcome[which]));
	double width = LETTER * (double)strlen(name), least = INFINITY, far = 0;
	struct box best = {0};

	/* around the mark, in growing circles, to the right first */
	for (int ring = 0; ring < 7 && least > 8 * ring; ring++) {
		for (int i = 0; i < 16; i++) {
			double turn = (i % 2 ? 1 : -1) * ((i + 1) / 2) * M_PI / 8;
			double reach = MARK + 4 + 11 * ring;
			struct box box = {.width = width, .height = LINE};
			double cost;

			box.x = x + cos(turn) * reach - (1 - cos(turn)) / 2 * width;
			box.y = y + sin(turn) * reach - LINE / 2;
			/* a label further away had better be worth it */
			cost = cost_of(panel, &box) + 8 * ring;
			if (cost >= least)
				continue;
			least = cost;
			best = box;
			far = ring;
		}
	}
	panel->taken[panel->count++] = best;
	if (far > 0)
		fprintf(panel->file,
			"<line class=\"lead\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
			x, y, fmax(best.x, fmin(x, best.x + width)), best.y + LINE / 2);
	fprintf(panel->file, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"11\"%s>", best.x,
		best.y + LINE - 2.5, which ? "" : " font-weight=\"600\"");
	svg_text(panel->file, name);
	fprintf(panel->file, "</text>\n");
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
	for (size_t i = 0; i < policy->variants; i++)
		put_label(&panel, i);
}

static void draw(FILE *file, const struct bench_policy *policy)
{
	size_t columns = policy->traces > 1 ? 2 : 1, rows = (policy->traces + 1) / 2;

	svg_head(file, (double)columns * PANEL_WIDTH, TITLE + (double)rows * PANEL_HEIGHT,
		".default { fill: #cf222e } .policy { fill: #0969da }\n"
		".pages { fill: #cf5a00 }\n"
		".front { stroke: #59636e; stroke-dasharray: 4 3; fill: none }\n"
		".lead { stroke: #8c959f; stroke-width: 0.7 }\n",
		".default { fill: #ff7b72 } .policy { fill: #58a6ff }\n"
		".pages { fill: #ffa657 } .front { stroke: #9198a1 }\n"
		".lead { stroke: #6e7681 }\n");
	fprintf(file,
		"<text x=\"%g\" y=\"30\" font-size=\"18\" font-weight=\"600\">Memory against "
		"driver time, by policy</text>\n"
		"<text class=\"quiet\" x=\"%g\" y=\"50\">%u passes over each job; the dashed line "
		"joins what nothing beats in both</text>\n",
		LEFT, LEFT, policy->passes);
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
