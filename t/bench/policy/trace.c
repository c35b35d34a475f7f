/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads an allocation trace in RMM's log format, packed by xz, into operations on numbered
 * blocks. Blocks that live at its end are freed there in the order they were given, so that a
 * pass leaves nothing.
 */
#include "policy.h"

#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE (1u << 22)

void trace_add(struct trace *t, uint32_t id, uint64_t size)
{
	if (t->ops == t->room) {
		t->room = t->room ? 2 * t->room : 65536;
		t->op = realloc(t->op, t->room * sizeof(*t->op));
		if (!t->op)
			abort();
	}
	t->op[t->ops++] = (struct op){id, size};
	if (size && id >= t->blocks)
		t->blocks = id + 1;
}

void trace_finish(struct trace *t)
{
	uint64_t *size = calloc(t->blocks, sizeof(*size)), live = 0;

	if (!size)
		abort();
	for (size_t i = 0; i < t->ops; i++) {
		const struct op *op = &t->op[i];

		if (op->size) {
			live += size[op->id] = op->size;
			if (live > t->peak)
				t->peak = live;
		} else {
			live -= size[op->id];
			size[op->id] = 0;
		}
	}
	for (uint32_t id = 0; id < t->blocks; id++)
		if (size[id])
			trace_add(t, id, 0);
	free(size);
}

static char *inflate(FILE *f, size_t *ret_len)
{
	static uint8_t in[65536];
	lzma_stream z = LZMA_STREAM_INIT;
	size_t room = 1 << 24, len = 0;
	char *out = malloc(room + 1);
	lzma_ret r = lzma_stream_decoder(&z, UINT64_MAX, LZMA_CONCATENATED);
	lzma_action action = LZMA_RUN;

	while (out && r == LZMA_OK) {
		if (!z.avail_in) {
			z.next_in = in;
			z.avail_in = fread(in, 1, sizeof(in), f);
			action = z.avail_in ? LZMA_RUN : LZMA_FINISH;
		}
		if (len == room)
			out = realloc(out, (room *= 2) + 1);
		if (!out)
			break;
		z.next_out = (uint8_t *)out + len;
		z.avail_out = room - len;
		r = lzma_code(&z, action);
		len = room - z.avail_out;
	}
	lzma_end(&z);
	if (out)
		out[len] = 0;
	*ret_len = len;
	return out;
}

struct entry {
	uint64_t pointer;
	uint32_t id;
};

static struct entry *entry_of(struct entry *table, uint64_t pointer)
{
	uint64_t h = (pointer * 0x9e3779b97f4a7c15u) >> 42;

	while (table[h].pointer && table[h].pointer != pointer)
		h = (h + 1) % TABLE;
	table[h].pointer = pointer;
	return &table[h];
}

static void row(struct trace *t, struct entry *table, char *line)
{
	char *field[6] = {line};
	int n = 1;

	for (char *c = line; *c && n < 6; c++)
		if (*c == ',') {
			*c = 0;
			field[n++] = c + 1;
		}
	if (n < 6 || (field[2][0] != 'a' && field[2][0] != 'f'))
		return;
	t->job_s = strtod(field[1], NULL) / 1e6;

	struct entry *e = entry_of(table, strtoull(field[3], NULL, 16));

	if (field[2][0] == 'a') {
		e->id = t->blocks;
		trace_add(t, e->id, strtoull(field[4], NULL, 10));
	} else {
		trace_add(t, e->id, 0);
	}
}

int trace_load(struct trace *t, const char *path)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	FILE *f = fopen(path, "rb");
	size_t len;

	if (!f)
		return -1;
	snprintf(t->name, sizeof(t->name), "%.*s", (int)strcspn(name, "."), name);

	char *text = inflate(f, &len), *save = NULL;
	struct entry *table = calloc(TABLE, sizeof(*table));

	fclose(f);
	if (!text || !table)
		abort();
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
		row(t, table, l);
	free(table);
	free(text);
	trace_finish(t);
	return t->ops ? 0 : -1;
}
