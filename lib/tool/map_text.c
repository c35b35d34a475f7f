/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The address space in a terminal: a letter a cell, on a ground of its colour where there are
 * colours, so that it reads the same with them and without.
 */
#include "tool/map.h"

#include "tool/figure.h"
#include "tool/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 24

/* In front of each row, where there is room for it: an address. */
#define GUTTER	   13
#define GUTTER_MIN 48

/* Grounds of the 256 that terminals know, all for black letters; a hole has none. */
static const unsigned char grounds[3][SPACE_KINDS_MAX] = {
	{0, 78, 180, 141, 222, 117, 209, 152, 250, 203},
	{0, 250, 78, 117, 222, 180, 141, 209, 152, 203, 247},
	{0, 250, 224, 222, 186, 150, 114, 78, 71},
};

/* ---- Words that break where the line ends ---- */

struct line {
	unsigned width, used;
};

static void put_words(struct line *line, const char *text)
{
	unsigned length = (unsigned)strlen(text);

	if (line->used && line->used + 2 + length > line->width) {
		putchar('\n');
		line->used = 0;
	} else if (line->used) {
		fputs("  ", stdout);
		line->used += 2;
	}
	fputs(text, stdout);
	line->used += length;
}

static void end_line(struct line *line)
{
	if (line->used)
		putchar('\n');
	line->used = 0;
}

/* ---- */

struct page {
	enum space_by by;
	unsigned width;
	bool colour;
};

static void put_letter(const struct page *page, const struct space_kinds *kinds,
	unsigned kind, unsigned *painted)
{
	unsigned ground = page->colour ? grounds[page->by][kind] : 0;

	if (ground != *painted) {
		if (ground)
			printf("\033[30;48;5;%um", ground);
		else
			fputs("\033[m", stdout);
	}
	*painted = ground;
	putchar(kinds->kind[kind].letter);
}

static void put_legend(const struct page *page, const struct space_kinds *kinds)
{
	struct line line = {.width = page->width};
	char text[64], bytes[32];

	for (unsigned k = 0; k < kinds->count; k++) {
		const struct space_kind *kind = &kinds->kind[k];
		unsigned painted = 0, length;

		if (!kind->bytes)
			continue;
		snprintf(bytes, sizeof(bytes), "%s", figure_bytes(kind->bytes).text);
		length = (unsigned)snprintf(text, sizeof(text), " %s,", kind->name);
		if (line.used && line.used + 4 + length + strlen(bytes) > line.width)
			end_line(&line);
		if (line.used)
			line.used += (unsigned)printf("  ");
		put_letter(page, kinds, k, &painted);
		fputs(painted ? "\033[m" : "", stdout);
		line.used += 2 + length + (unsigned)strlen(bytes);
		/* too long for a line of its own */
		printf("%s%s%s", text, line.used > line.width ? "\n  " : " ", bytes);
	}
	end_line(&line);
}

static void put_row(const struct page *page, const struct space_kinds *kinds,
	const struct space_row *row, bool gutter)
{
	struct line line = {.width = page->width};
	unsigned painted = 0;
	char text[64];

	if (row->gap) {
		snprintf(text, sizeof(text), "%s", figure_bytes(row->gap).text);
		fputs(gutter ? "             ~" : "~", stdout);
		line.used = gutter ? GUTTER + 1 : 1;
		put_words(&line, text);
		put_words(&line, "without memory");
		putchar('\n');
		return;
	}
	if (gutter)
		printf("%12" PRIx64 " ", row->address);
	for (unsigned i = 0; i < row->used; i++)
		put_letter(page, kinds, row->kind[i], &painted);
	puts(painted ? "\033[m" : "");
}

static void put_head(const struct page *page, const struct space_gpu *gpu, uint64_t cell)
{
	struct line line = {.width = page->width};
	char text[64];

	snprintf(text, sizeof(text), "Context %u, GPU %d:", gpu->context, gpu->gpu);
	put_words(&line, text);
	snprintf(text, sizeof(text), "%s held,", figure_bytes(gpu->reserved).text);
	put_words(&line, text);
	snprintf(text, sizeof(text), "%s live", figure_bytes(space_live(gpu)).text);
	put_words(&line, text);
	if (cell) {
		snprintf(text, sizeof(text), "(a letter is %s)", figure_bytes(cell).text);
		put_words(&line, text);
	}
	end_line(&line);
}

static void print_gpu(const struct page *page, const struct space_gpu *gpu)
{
	bool gutter = page->width >= GUTTER_MIN;
	struct space_picture picture;
	struct space_kinds kinds;

	putchar('\n');
	space_kinds(gpu, page->by, &kinds);
	if (!gpu->count ||
		space_draw(gpu, &kinds, page->width - (gutter ? GUTTER : 0), ROWS,
			&picture)) {
		put_head(page, gpu, 0);
		if (gpu->count)
			glk_tool_say("no memory for the picture");
		return;
	}
	put_head(page, gpu, picture.cell);
	for (unsigned i = 0; i < picture.count; i++)
		put_row(page, &kinds, &picture.rows[i], gutter);
	put_legend(page, &kinds);
	space_picture_free(&picture);
}

int map_print_text(
	const struct space *space, enum space_by by, unsigned width, bool colour)
{
	struct page page = {.by = by, .width = width, .colour = colour};
	struct line line = {.width = width};
	char text[96];

	snprintf(text, sizeof(text), "Process %d,", (int)space->pid);
	put_words(&line, text);
	snprintf(text, sizeof(text), "%s,", space->program);
	put_words(&line, text);
	snprintf(text, sizeof(text), "glake %s", space->version);
	put_words(&line, text);
	end_line(&line);
	if (!space->count)
		puts("No GPU is in use.");
	for (size_t i = 0; i < space->count; i++)
		print_gpu(&page, &space->gpus[i]);
	return GLK_TOOL_OK;
}
