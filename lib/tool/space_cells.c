/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From runs to a picture: kinds of runs, and cells of the kind that has most of each. */
#include "tool/space.h"

#include "tool/figure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Streams, of those that have most, that are told apart. */
#define STREAMS 8

/* ---- Kinds ---- */

enum {
	HOLE = 0, /* of all ways to look at it */
	UNUSED,	  /* by stream and by size: memory that no block uses */
	FIRST,	  /* the first stream or size */
};

static void add_kind(struct space_kinds *kinds, char letter, const char *name)
{
	struct space_kind *kind = &kinds->kind[kinds->count++];

	*kind = (struct space_kind){.letter = letter};
	snprintf(kind->name, sizeof(kind->name), "%s", name);
}

static const struct {
	char letter;
	const char *name;
} states[] = {
	{'.', "no memory"},
	{'L', "live"},
	{'H', "live on the host"},
	{'A', "away"},
	{'q', "quick"},
	{'i', "idle"},
	{'m', "limbo"},
	{'r', "rest of pages"},
	{'-', "alias"},
	{'x', "leaving"},
};

static unsigned by_state(const struct glake_run *run)
{
	static const unsigned char of[GLAKE_RUN_STATES] = {[GLAKE_RUN_LIVE] = 1,
		[GLAKE_RUN_AWAY] = 3,
		[GLAKE_RUN_QUICK] = 4,
		[GLAKE_RUN_IDLE] = 5,
		[GLAKE_RUN_LIMBO] = 6,
		[GLAKE_RUN_REST] = 7,
		[GLAKE_RUN_ALIAS] = 8,
		[GLAKE_RUN_LEAVING] = 9,
		[GLAKE_RUN_HOLE] = HOLE};

	if (run->state == GLAKE_RUN_LIVE && run->host_bytes > run->gpu_bytes)
		return 2;
	return of[run->state];
}

/* Upper ends of the sizes. */
static const struct {
	uint64_t most;
	char letter;
	const char *name;
} sizes[] = {
	{UINT64_C(4) << 10, '1', "to 4 KiB"},
	{UINT64_C(64) << 10, '2', "to 64 KiB"},
	{UINT64_C(1) << 20, '3', "to 1 MiB"},
	{UINT64_C(8) << 20, '4', "to 8 MiB"},
	{UINT64_C(64) << 20, '5', "to 64 MiB"},
	{UINT64_C(512) << 20, '6', "to 512 MiB"},
	{UINT64_MAX, '7', "above"},
};

static bool has_block(const struct glake_run *run)
{
	return run->state == GLAKE_RUN_LIVE ||
		(run->state == GLAKE_RUN_AWAY && !(run->flags & GLAKE_RUN_BARE));
}

static bool has_memory(const struct glake_run *run)
{
	return run->state != GLAKE_RUN_HOLE && run->state != GLAKE_RUN_ALIAS &&
		run->state != GLAKE_RUN_LEAVING;
}

static unsigned kind_of(const struct space_kinds *kinds, const struct glake_run *run)
{
	unsigned i = 0;

	if (kinds->by == SPACE_BY_STATE)
		return by_state(run);
	if (!has_block(run))
		return has_memory(run) ? UNUSED : HOLE;
	if (kinds->by == SPACE_BY_SIZE) {
		while (run->asked > sizes[i].most)
			i++;
		return FIRST + i;
	}
	for (i = FIRST; i + 1 < kinds->count; i++) {
		if (kinds->kind[i].stream == (uintptr_t)run->stream)
			break;
	}
	return i;
}

/* Live bytes of a stream. Those of a program are few; of more than a table has room for the rest is
 * told as one. */
#define TABLE 4096

struct stream {
	uint64_t handle, bytes;
};

static int more_first(const void *a, const void *b)
{
	const struct stream *one = a, *other = b;

	if (one->bytes != other->bytes)
		return one->bytes < other->bytes ? 1 : -1;
	return one->handle < other->handle ? -1 : one->handle > other->handle;
}

static size_t sum_streams(const struct space_gpu *gpu, struct stream *table)
{
	size_t count = 0, last = 0;

	for (size_t i = 0; i < gpu->count; i++) {
		uint64_t handle = (uintptr_t)gpu->runs[i].stream;

		if (!has_block(&gpu->runs[i]))
			continue;
		if (!count || table[last].handle != handle) {
			last = 0;
			while (last < count && table[last].handle != handle)
				last++;
			if (last == TABLE) {
				last = 0;
				continue;
			}
			if (last == count)
				table[count++] = (struct stream){.handle = handle};
		}
		table[last].bytes += gpu->runs[i].size;
	}
	qsort(table, count, sizeof(*table), more_first);
	return count;
}

static void add_streams(const struct space_gpu *gpu, struct space_kinds *kinds)
{
	struct stream *table = calloc(TABLE, sizeof(*table));
	size_t count = table ? sum_streams(gpu, table) : 0;
	char name[24];

	for (size_t i = 0; i < count && i < STREAMS; i++) {
		snprintf(name, sizeof(name),
			table[i].handle ? "stream %llx" : "default stream",
			(unsigned long long)table[i].handle);
		add_kind(kinds, (char)('A' + i), name);
		kinds->kind[kinds->count - 1].stream = table[i].handle;
	}
	add_kind(kinds, 'Z', "other streams");
	free(table);
}

void space_kinds(const struct space_gpu *gpu, enum space_by by, struct space_kinds *ret)
{
	*ret = (struct space_kinds){.by = by};
	if (by == SPACE_BY_STATE) {
		for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++)
			add_kind(ret, states[i].letter, states[i].name);
	} else {
		add_kind(ret, '.', "no memory");
		add_kind(ret, '-', "used by no block");
	}
	if (by == SPACE_BY_STREAM)
		add_streams(gpu, ret);
	for (size_t i = 0; by == SPACE_BY_SIZE && i < sizeof(sizes) / sizeof(*sizes); i++)
		add_kind(ret, sizes[i].letter, sizes[i].name);
	for (size_t i = 0; i < gpu->count; i++)
		ret->kind[kind_of(ret, &gpu->runs[i])].bytes += gpu->runs[i].size;
}

/* ---- Cells ---- */

/* Rows of a picture in the making; with no cells they are only counted. */
struct pen {
	struct space_picture *picture;
	uint64_t row;  /* bytes of a row */
	uint64_t from; /* address where the row under way begins */
	bool open;
	uint64_t count; /* rows */
	/* Of the cell under way. */
	unsigned cell;
	uint64_t sum[SPACE_KINDS_MAX];
};

static void end_cell(struct pen *pen)
{
	struct space_row *row = &pen->picture->rows[pen->count - 1];
	unsigned most = 0;

	for (unsigned k = 1; k < SPACE_KINDS_MAX; k++)
		most = pen->sum[k] > pen->sum[most] ? k : most;
	row->kind[pen->cell] = (unsigned char)most;
	row->used = pen->cell + 1;
	memset(pen->sum, 0, sizeof(pen->sum));
}

static void end_row(struct pen *pen)
{
	uint64_t sum = 0;

	for (unsigned k = 0; k < SPACE_KINDS_MAX; k++)
		sum += pen->sum[k];
	if (pen->open && pen->picture->rows && sum)
		end_cell(pen);
	pen->open = false;
}

static void begin_row(struct pen *pen, uint64_t address, uint64_t gap)
{
	struct space_picture *p = pen->picture;

	end_row(pen);
	pen->open = !gap;
	pen->from = address;
	pen->cell = 0;
	if (p->rows)
		p->rows[pen->count] = (struct space_row){.address = address,
			.gap = gap,
			.kind = p->cells + (size_t)pen->count * p->columns};
	pen->count++;
}

static void draw(struct pen *pen, uint64_t at, uint64_t end, unsigned kind)
{
	struct space_picture *p = pen->picture;

	if (!p->rows) {
		/* whole rows are counted at once */
		uint64_t more = (end - 1 - pen->from) / pen->row;

		pen->count += more;
		pen->from += more * pen->row;
		return;
	}
	while (at < end) {
		uint64_t cell, left;

		if (at - pen->from >= pen->row)
			begin_row(pen, pen->from + pen->row, 0);
		cell = (at - pen->from) / p->cell;
		if (cell != pen->cell) {
			end_cell(pen);
			pen->cell = (unsigned)cell;
		}
		left = p->cell - (at - pen->from) % p->cell;
		left = left < end - at ? left : end - at;
		pen->sum[kind] += left;
		at += left;
	}
}

/* Runs of one kind, side by side, as long as they go. */
static void draw_all(
	struct pen *pen, const struct space_gpu *gpu, const struct space_kinds *kinds)
{
	uint64_t end = 0;

	for (size_t i = 0; i < gpu->count;) {
		unsigned kind = kind_of(kinds, &gpu->runs[i]);
		uint64_t at = gpu->runs[i].address, gap = at - end;

		end = at + gpu->runs[i].size;
		for (i++; i < gpu->count && gpu->runs[i].address == end &&
			kind_of(kinds, &gpu->runs[i]) == kind;
			i++)
			end += gpu->runs[i].size;
		if (!kind && end - at >= 2 * pen->row) {
			begin_row(pen, at, end - at);
			continue;
		}
		if (!pen->open || gap)
			begin_row(pen, at, 0);
		draw(pen, at, end, kind);
	}
	end_row(pen);
}

/* Rows that there have to be: those of addresses that do not follow each other. */
static uint64_t count_pieces(const struct space_gpu *gpu)
{
	uint64_t count = 0, end = 0;

	for (size_t i = 0; i < gpu->count; i++) {
		count += gpu->runs[i].address != end;
		end = gpu->runs[i].address + gpu->runs[i].size;
	}
	return count;
}

static uint64_t count_rows(const struct space_gpu *gpu, const struct space_kinds *kinds,
	struct space_picture *picture)
{
	struct pen pen = {.picture = picture, .row = picture->cell * picture->columns};

	draw_all(&pen, gpu, kinds);
	return pen.count;
}

int space_draw(const struct space_gpu *gpu, const struct space_kinds *kinds,
	unsigned columns, unsigned most, struct space_picture *ret)
{
	struct space_picture p = {.columns = columns, .cell = GLAKE_GRAIN};
	uint64_t count = count_rows(gpu, kinds, &p), limit = most + 2 * count_pieces(gpu);
	struct pen pen;

	while (count > limit && p.cell < UINT64_C(1) << 50) {
		p.cell *= 2;
		count = count_rows(gpu, kinds, &p);
	}
	p.rows = calloc(count + 1, sizeof(*p.rows));
	p.cells = calloc(count + 1, columns);
	if (!p.rows || !p.cells) {
		space_picture_free(&p);
		return -ENOMEM;
	}
	pen = (struct pen){.picture = &p, .row = p.cell * columns};
	draw_all(&pen, gpu, kinds);
	p.count = (unsigned)pen.count;
	*ret = p;
	return 0;
}

void space_picture_free(struct space_picture *picture)
{
	free(picture->rows);
	free(picture->cells);
}
