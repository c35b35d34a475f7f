/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The address space as a picture in a file: a GPU below the other, cells in rows, a legend. */
#include "tool/map.h"

#include "tool/figure.h"
#include "tool/svg.h"
#include "tool/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 216
#define ROWS	48

/* In units of the picture. */
#define WIDTH  1000.0
#define LEFT   120.0
#define CELL   4.0
#define HEIGHT 14.0 /* of a row */
#define STEP   15.0
#define HEAD   44.0 /* of a GPU, above its rows */
#define TAIL   34.0 /* a line of a legend */
#define LEGEND 4    /* kinds in a line */

/* Colours of kinds: by state, by stream, by size; on light ground and on dark. */
static const char *const light[3][SPACE_KINDS_MAX] = {
	{"#eef1f4", "#2f9e5b", "#b8860b", "#8250df", "#e3b341", "#5aa2e0", "#e0703a",
		"#8fb9b0", "#b1bac4", "#cf222e"},
	{"#eef1f4", "#b1bac4", "#2f9e5b", "#3b82d0", "#e3b341", "#b8860b", "#8250df",
		"#e0703a", "#8fb9b0", "#cf222e", "#8c959f"},
	{"#eef1f4", "#b1bac4", "#f6d7c3", "#eec17a", "#cfc25c", "#9bbf65", "#5cae69",
		"#2b8f63", "#1b6b55"},
};
static const char *const dark[3][SPACE_KINDS_MAX] = {
	{"#161b22", "#3fb950", "#d29922", "#a371f7", "#e3b341", "#58a6ff", "#f0883e",
		"#56a396", "#6e7681", "#f85149"},
	{"#161b22", "#6e7681", "#3fb950", "#58a6ff", "#e3b341", "#d29922", "#a371f7",
		"#f0883e", "#56a396", "#f85149", "#8b949e"},
	{"#161b22", "#6e7681", "#6b4a3a", "#8f6a2e", "#8f8a35", "#6c9a48", "#45a35e",
		"#3fc98a", "#8ff0c0"},
};

struct drawing {
	FILE *file;
	enum space_by by;
	double y;
	struct space_kinds *kinds;
	struct space_picture *pictures;
};

static void write_rules(char *buffer, size_t size, const char *const *colours)
{
	size_t at = 0;

	for (unsigned k = 0; k < SPACE_KINDS_MAX && colours[k] && at + 32 < size; k++)
		at += (size_t)snprintf(
			buffer + at, size - at, ".k%u { fill: %s }\n", k, colours[k]);
}

static unsigned legend_lines(const struct space_kinds *kinds)
{
	unsigned count = 0;

	for (unsigned k = 0; k < kinds->count; k++)
		count += kinds->kind[k].bytes > 0;
	return (count + LEGEND - 1) / LEGEND;
}

static double height_of(const struct drawing *d, size_t i)
{
	return HEAD + d->pictures[i].count * STEP + legend_lines(&d->kinds[i]) * TAIL;
}

static void put_row(struct drawing *d, const struct space_row *row)
{
	unsigned from = 0;

	if (row->gap) {
		svg_begin_text(
			d->file, LEFT, d->y + 11, "quiet", "start", "font-size=\"11\"");
		fprintf(d->file, "%s without memory</text>\n",
			figure_bytes(row->gap).text);
		d->y += STEP;
		return;
	}
	svg_begin_text(d->file, LEFT - 10, d->y + 11, "quiet", "end", "font-size=\"11\"");
	fprintf(d->file, "%" PRIx64 "</text>\n", row->address);
	for (unsigned i = 1; i <= row->used; i++) {
		if (i < row->used && row->kind[i] == row->kind[from])
			continue;
		fprintf(d->file,
			"<rect class=\"k%u\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/>\n",
			row->kind[from], LEFT + from * CELL, d->y, (i - from) * CELL,
			HEIGHT);
		from = i;
	}
	d->y += STEP;
}

static void put_legend(struct drawing *d, const struct space_kinds *kinds)
{
	unsigned shown = 0;

	for (unsigned k = 0; k < kinds->count; k++) {
		double x = LEFT + shown % LEGEND * (WIDTH - LEFT) / LEGEND;

		if (!kinds->kind[k].bytes)
			continue;
		fprintf(d->file,
			"<rect class=\"k%u\" x=\"%g\" y=\"%g\" width=\"12\" height=\"12\"/>\n",
			k, x, d->y + 10);
		svg_begin_text(d->file, x + 18, d->y + 20, "", "start", "");
		svg_text(d->file, kinds->kind[k].name);
		fprintf(d->file, ", %s</text>\n",
			figure_bytes(kinds->kind[k].bytes).text);
		if (++shown % LEGEND == 0)
			d->y += TAIL;
	}
	d->y += shown % LEGEND ? TAIL : 0;
}

static void put_gpu(struct drawing *d, const struct space_gpu *gpu, size_t i)
{
	svg_begin_text(d->file, LEFT, d->y + 30, "", "start", "font-weight=\"600\"");
	fprintf(d->file, "Context %u, GPU %d: %s held, %s live</text>\n", gpu->context,
		gpu->gpu, figure_bytes(gpu->reserved).text,
		figure_bytes(space_live(gpu)).text);
	svg_begin_text(d->file, LEFT + COLUMNS * CELL, d->y + 30, "quiet", "end",
		"font-size=\"11\"");
	fprintf(d->file, "a row is %s</text>\n",
		figure_bytes(d->pictures[i].cell * COLUMNS).text);
	d->y += HEAD;
	for (unsigned r = 0; r < d->pictures[i].count; r++)
		put_row(d, &d->pictures[i].rows[r]);
	put_legend(d, &d->kinds[i]);
}

static void put_all(struct drawing *d, const struct space *space)
{
	struct svg_style style = {.width = WIDTH, .height = 60};
	char light_rules[1024], dark_rules[1024], title[160];

	for (size_t i = 0; i < space->count; i++)
		style.height += height_of(d, i);
	write_rules(light_rules, sizeof(light_rules), light[d->by]);
	write_rules(dark_rules, sizeof(dark_rules), dark[d->by]);
	style.light = light_rules;
	style.dark = dark_rules;
	snprintf(title, sizeof(title), "Address space of process %d, %s", (int)space->pid,
		space->program);
	svg_head(d->file, &style, title);
	svg_begin_text(
		d->file, LEFT, 28, "", "start", "font-size=\"16\" font-weight=\"600\"");
	svg_text(d->file, title);
	fputs("</text>\n", d->file);
	d->y = 40;
	for (size_t i = 0; i < space->count; i++)
		put_gpu(d, &space->gpus[i], i);
	fputs("</svg>\n", d->file);
}

static int draw_all(struct drawing *d, const struct space *space)
{
	int err = 0;

	d->kinds = calloc(space->count + 1, sizeof(*d->kinds));
	d->pictures = calloc(space->count + 1, sizeof(*d->pictures));
	if (!d->kinds || !d->pictures)
		return -ENOMEM;
	for (size_t i = 0; i < space->count && !err; i++) {
		space_kinds(&space->gpus[i], d->by, &d->kinds[i]);
		err = space_draw(
			&space->gpus[i], &d->kinds[i], COLUMNS, ROWS, &d->pictures[i]);
	}
	return err;
}

int map_write_svg(const struct space *space, enum space_by by, const char *path)
{
	struct drawing d = {.by = by};
	int err = draw_all(&d, space);

	if (!err && !(d.file = fopen(path, "we")))
		err = -errno;
	if (!err) {
		put_all(&d, space);
		if (ferror(d.file))
			err = -EIO;
		if (fclose(d.file) && !err)
			err = -errno;
	}
	for (size_t i = 0; d.pictures && i < space->count; i++)
		space_picture_free(&d.pictures[i]);
	free(d.pictures);
	free(d.kinds);
	if (err)
		glk_tool_say("%s: %s", path, strerror(-err));
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}
