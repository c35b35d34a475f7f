/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The blocks that are live at a place in a trace, with the rows that allocated them: what a row says
 * of a block is judged by the rows before it. Entries are used again, so it stays as small as the live
 * set.
 */
#include "tool/trace_tool.h"

#include <errno.h>
#include <stdlib.h>

#define CAPACITY_MIN 1024
#define NO_MEMORY    "no memory for the live blocks"

static int grow(struct trace_live *live)
{
	size_t capacity = live->capacity ? 2 * live->capacity : CAPACITY_MIN;
	struct trace_live_block *block;

	if (live->used < live->capacity)
		return 0;
	block = realloc(live->block, capacity * sizeof(*block));
	if (!block)
		return -ENOMEM;
	live->block = block;
	live->capacity = capacity;
	return 0;
}

static int add(
	struct trace_live *live, const struct trace_row *row, char *message, size_t size)
{
	uint32_t at = live->unused;

	if (trace_table_find(&live->blocks, row->pointer) >= 0)
		return trace_refuse(message, size, row, "live");
	if (!at && grow(live))
		return trace_fail(message, size, -ENOMEM, NO_MEMORY);
	if (!at)
		at = (uint32_t)live->used + 1;
	if (trace_table_add(&live->blocks, row->pointer, at))
		return trace_fail(message, size, -ENOMEM, NO_MEMORY);
	if (at > live->used)
		live->used++;
	else
		live->unused = live->block[at - 1].next;
	live->block[at - 1] =
		(struct trace_live_block){.row = *row, .number = ++live->given};
	live->bytes[row->device] += row->size;
	if (live->bytes[row->device] > live->peak[row->device])
		live->peak[row->device] = live->bytes[row->device];
	return 0;
}

static int take(struct trace_live *live, const struct trace_row *row, char *message,
	size_t size, uint64_t *ret_size)
{
	int64_t at = trace_table_find(&live->blocks, row->pointer);

	if (at < 0)
		return trace_refuse(message, size, row, "not live");
	trace_table_remove(&live->blocks, row->pointer);
	*ret_size = live->block[at - 1].row.size;
	live->bytes[row->device] -= *ret_size;
	live->block[at - 1].number = 0;
	live->block[at - 1].next = live->unused;
	live->unused = (uint32_t)at;
	return 0;
}

int trace_live_row(struct trace_live *live, const struct trace_row *row, char *message,
	size_t size, uint64_t *ret_size)
{
	*ret_size = row->size;
	if (row->action == TRACE_ALLOCATE)
		return add(live, row, message, size);
	if (row->action == TRACE_FREE)
		return take(live, row, message, size, ret_size);
	return 0;
}

void trace_live_fini(struct trace_live *live)
{
	trace_table_fini(&live->blocks);
	free(live->block);
	live->block = NULL;
}
