/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl trace cut: a part of a trace that stands for itself. Rows before it are followed, so that
 * it is known what is live where it begins: that is allocated again there, in the order in which it
 * was. A part by streams has the blocks that were asked for on them, whoever frees or uses them.
 */
#include "tool/trace_tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool has_stream(const struct trace_cut *cut, uint64_t stream)
{
	const struct trace_tool_options *options = cut->options;
	size_t i = 0;

	while (i < options->streams && options->stream[i] != stream)
		i++;
	return !options->streams || i < options->streams;
}

static int by_number(const void *a, const void *b)
{
	const struct trace_live_block *x = *(const struct trace_live_block *const *)a;
	const struct trace_live_block *y = *(const struct trace_live_block *const *)b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* Puts a row for each live block, in the order of their allocations. */
static int put_live(struct trace_cut *cut, bool frees, int64_t ns, size_t *count,
	char *message, size_t size)
{
	const struct trace_live_block **live =
		calloc(cut->live.used + 1, sizeof(const void *));
	size_t found = 0;
	int err = 0;

	if (!live)
		return trace_fail(
			message, size, -ENOMEM, "no memory for the live blocks");
	for (size_t i = 0; i < cut->live.used; i++)
		if (cut->live.block[i].number)
			live[found++] = &cut->live.block[i];
	qsort(live, found, sizeof(const void *), by_number);
	for (size_t i = 0; i < found && !err; i++) {
		struct trace_row row = live[i]->row;
		uint64_t bytes = row.size;

		if (frees) {
			row.action = TRACE_FREE;
			row.kind = row.kind ? GLAKE_TRACE_FREE : 0;
			row.size = row.kind ? 0 : row.size;
		}
		err = cut->put(cut->arg, &row, ns, bytes, message, size);
	}
	*count = found;
	free(live);
	return err;
}

static bool is_before(const struct trace_cut *cut, int64_t ns)
{
	return ns < cut->options->from_ns || cut->number < cut->options->first;
}

static bool is_behind(const struct trace_cut *cut, int64_t ns)
{
	const struct trace_tool_options *options = cut->options;

	return (options->to_ns && ns >= options->to_ns) ||
		(options->last && cut->number > options->last);
}

int trace_cut_row(struct trace_cut *cut, const struct trace_row *row, int64_t ns,
	uint64_t bytes, char *message, size_t size)
{
	bool is_known =
		row->pointer && trace_table_find(&cut->live.blocks, row->pointer) >= 0;
	bool is_named = row->action == TRACE_FREE || row->kind == GLAKE_TRACE_USE;
	uint64_t freed;
	int err = 0;

	/* whose events follow */
	if (row->kind == GLAKE_TRACE_THREAD)
		return cut->put(cut->arg, row, cut->last_ns, bytes, message, size);
	cut->number++;
	if (is_behind(cut, ns))
		return 0;
	if (is_named ? !is_known : !has_stream(cut, row->stream))
		return 0;
	if (!is_before(cut, ns) && !cut->begun) {
		cut->begun = true;
		cut->base_ns = cut->options->from_ns ? cut->options->from_ns : ns;
		err = put_live(cut, false, 0, &cut->opened, message, size);
	}
	if (!err)
		err = trace_live_row(&cut->live, row, message, size, &freed);
	if (err || is_before(cut, ns))
		return err;
	cut->last_ns = ns - cut->base_ns;
	return cut->put(cut->arg, row, cut->last_ns, bytes, message, size);
}

int trace_cut_end(struct trace_cut *cut, char *message, size_t size)
{
	if (!cut->begun || !cut->options->frees)
		return 0;
	return put_live(cut, true, cut->last_ns, &cut->freed, message, size);
}

void trace_cut_fini(struct trace_cut *cut)
{
	trace_live_fini(&cut->live);
}
