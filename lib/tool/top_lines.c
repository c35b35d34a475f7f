/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table of glakectl top as text. Where a line is narrow the columns that say least go first; at
 * 20 columns a process still has its number and what it holds.
 */
#include "tool/figure.h"
#include "tool/top.h"

#include <stdio.h>
#include <string.h>

struct cell {
	char text[256];
};

static void put_bytes(struct cell *cell, uint64_t bytes)
{
	if (bytes)
		snprintf(cell->text, sizeof(cell->text), "%s", figure_bytes(bytes).text);
}

static void put_rate(struct cell *cell, bool known, double rate)
{
	if (!known)
		return;
	if (rate >= 1e6)
		snprintf(cell->text, sizeof(cell->text), "%.1fM", rate / 1e6);
	else if (rate >= 1e4)
		snprintf(cell->text, sizeof(cell->text), "%.1fk", rate / 1e3);
	else
		snprintf(cell->text, sizeof(cell->text), "%.*f", rate < 10 && rate > 0,
			rate);
}

static void pid(const struct top_row *row, struct cell *cell)
{
	snprintf(cell->text, sizeof(cell->text), "%d", row->pid);
}

static void program(const struct top_row *row, struct cell *cell)
{
	snprintf(cell->text, sizeof(cell->text), "%s", row->program);
}

static void gpu(const struct top_row *row, struct cell *cell)
{
	if (row->gpu >= 0)
		snprintf(cell->text, sizeof(cell->text), "%d", row->gpu);
}

static void live(const struct top_row *row, struct cell *cell)
{
	put_bytes(cell, row->live);
}

static void reserved(const struct top_row *row, struct cell *cell)
{
	put_bytes(cell, row->reserved);
}

static void ratio(const struct top_row *row, struct cell *cell)
{
	if (row->live)
		snprintf(cell->text, sizeof(cell->text), "%.*f",
			row->reserved > 99 * row->live ? 0 : 2,
			(double)row->reserved / (double)row->live);
}

static void away(const struct top_row *row, struct cell *cell)
{
	put_bytes(cell, row->away);
}

static void placed(const struct top_row *row, struct cell *cell)
{
	put_bytes(cell, row->placed);
}

static void host(const struct top_row *row, struct cell *cell)
{
	put_bytes(cell, row->host_held);
}

static void allocs(const struct top_row *row, struct cell *cell)
{
	put_rate(cell, row->known, row->allocs_s);
}

static void misses(const struct top_row *row, struct cell *cell)
{
	put_rate(cell, row->known, row->misses_s);
}

static void hit(const struct top_row *row, struct cell *cell)
{
	if (row->known && row->hit >= 0)
		snprintf(cell->text, sizeof(cell->text), "%.1f", 100 * row->hit);
}

/* What was climbed since the last look. */
static void ladder(const struct top_row *row, struct cell *cell)
{
	size_t at = 0;

	for (size_t i = 0; i < row->rungs && at < sizeof(cell->text); i++)
		if (row->rung[i].since)
			at += (size_t)snprintf(cell->text + at, sizeof(cell->text) - at,
				"%s%s %llu", at ? ", " : "", row->rung[i].name,
				(unsigned long long)row->rung[i].since);
}

/* In the order that they stand in; `rank` is that in which they find room. */
static const struct column {
	const char *head;
	int width, rank; /* width 0: all that is left, from the left */
	bool left;
	void (*put)(const struct top_row *row, struct cell *cell);
} columns[] = {
	{"PID", 7, 0, false, pid},
	{"PROGRAM", 16, 5, true, program},
	{"GPU", 3, 2, false, gpu},
	{"LIVE", 9, 3, false, live},
	{"RESERVED", 9, 1, false, reserved},
	{"RATIO", 5, 4, false, ratio},
	{"AWAY", 9, 9, false, away},
	{"PLACED", 9, 10, false, placed},
	{"HOST", 9, 11, false, host},
	{"ALLOC/S", 7, 6, false, allocs},
	{"MISS/S", 7, 8, false, misses},
	{"HIT%", 5, 7, false, hit},
	{"LADDER", 10, 12, true, ladder},
};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

/* Which of them there is room for: a bit each. */
static unsigned choose(int width)
{
	unsigned chosen = 0;

	for (int rank = 0; rank < (int)COLUMNS; rank++)
		for (size_t i = 0; i < COLUMNS; i++) {
			if (columns[i].rank != rank)
				continue;
			if (width < columns[i].width)
				return chosen;
			width -= columns[i].width + 1;
			chosen |= 1u << i;
		}
	return chosen;
}

/* Pads or cuts the line to what there is; no blanks at its end. */
static void end_line(char *line, size_t at)
{
	while (at && line[at - 1] == ' ')
		at--;
	line[at] = '\0';
}

static int clamp(int width)
{
	return width < 1 ? 1 : width >= TOP_WIDTH_MAX ? TOP_WIDTH_MAX - 1 : width;
}

static void print(const struct top_row *row, int width, char *line)
{
	unsigned chosen;
	size_t at = 0, room = (size_t)clamp(width);

	chosen = choose((int)room);
	memset(line, ' ', room);
	for (size_t i = 0; i < COLUMNS; i++) {
		const struct column *column = &columns[i];
		size_t length, most = (size_t)column->width;
		struct cell cell = {0};

		if (!(chosen >> i & 1) || at >= room)
			continue;
		if (row)
			column->put(row, &cell);
		else
			snprintf(cell.text, sizeof(cell.text), "%s", column->head);
		if (i + 1 == COLUMNS || most > room - at)
			most = room - at;
		length = strnlen(cell.text, most);
		memcpy(line + at + (column->left ? 0 : most - length), cell.text, length);
		at += most + 1;
	}
	/* too narrow even for a number: as much of it as there is room for */
	if (!chosen && row)
		snprintf(line, room + 1, "%d", row->pid);
	end_line(line, chosen ? room : strnlen(line, room));
}

void top_head_line(int width, char *line)
{
	print(NULL, width, line);
}

void top_row_line(const struct top_row *row, int width, char *line)
{
	if (!row->err)
		print(row, width, line);
	else if (snprintf(line, (size_t)clamp(width) + 1, "%7d %s", row->pid, row->why) <
		0)
		*line = '\0';
}

void top_sum_line(const struct top_sample *sample, int width, char *line)
{
	uint64_t live_sum = 0, reserved_sum = 0, away_sum = 0;

	for (size_t i = 0; i < sample->count; i++) {
		live_sum += sample->rows[i].live;
		reserved_sum += sample->rows[i].reserved;
		away_sum += sample->rows[i].away;
	}
	snprintf(line, (size_t)clamp(width) + 1,
		"%zu process%s, %s live, %s reserved, %s away", sample->processes,
		sample->processes == 1 ? "" : "es", figure_bytes(live_sum).text,
		figure_bytes(reserved_sum).text, figure_bytes(away_sum).text);
}

bool top_detail_line(const struct top_row *row, int index, int width, char *line)
{
	size_t room = (size_t)clamp(width) + 1;
	const struct top_rung *rung;

	switch (index) {
	case 0:
		snprintf(line, room, "GPU %d: %s live, %s reserved", row->gpu,
			figure_bytes(row->live).text, figure_bytes(row->reserved).text);
		return row->gpu >= 0;
	case 1:
		snprintf(line, room, "  away %s, placed %s, host held %s",
			figure_bytes(row->away).text, figure_bytes(row->placed).text,
			figure_bytes(row->host_held).text);
		return true;
	case 2:
		snprintf(line, room, "  allocs %s, hits %s, misses %s",
			figure_count((double)row->allocs).text,
			figure_count((double)row->hits).text,
			figure_count((double)row->misses).text);
		return true;
	default:
		if ((size_t)index - 3 >= row->rungs)
			return false;
		rung = &row->rung[index - 3];
		snprintf(line, room, "  %s %s, %llu since", rung->name,
			figure_count((double)rung->count).text,
			(unsigned long long)rung->since);
		return true;
	}
}

const char *top_sort_name(enum top_sort sort)
{
	static const char *const names[] = {
		[TOP_SORT_RESERVED] = "reserved",
		[TOP_SORT_LIVE] = "live",
		[TOP_SORT_RATIO] = "ratio",
		[TOP_SORT_ALLOCS] = "allocs",
		[TOP_SORT_MISSES] = "misses",
		[TOP_SORT_PID] = "pid",
	};

	return names[sort];
}

void top_print_table(const struct top_sample *sample)
{
	char line[TOP_WIDTH_MAX];

	top_head_line(160, line);
	puts(line);
	for (size_t i = 0; i < sample->count; i++) {
		top_row_line(&sample->rows[i], 160, line);
		puts(line);
	}
}
