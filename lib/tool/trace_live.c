/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The blocks that are live at a place in a trace, and their sizes: what a row says of a block is
 * judged by the rows before it. Entries are used again, so it stays as small as the live set.
 */
#include "tool/trace_tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CAPACITY_MIN 1024

static int no_memory(char *message, size_t size)
{
	snprintf(message, size, "no memory for the live blocks");
	return -ENOMEM;
}

static int refuse(
	char *message, size_t size, const struct trace_row *row, const char *why)
{
	snprintf(message, size, "%s of 0x%llx, which is %s",
		row->action == TRACE_FREE ? "free" : "allocate",
		(unsigned long long)row->pointer, why);
	return -EINVAL;
}

static int grow(struct trace_live *live)
{
	size_t capacity = live->capacity ? 2 * live->capacity : CAPACITY_MIN;
	uint64_t *sizes;

	if (live->used < live->capacity)
		return 0;
	sizes = realloc(live->sizes, capacity * sizeof(*sizes));
	if (!sizes)
		return -ENOMEM;
	live->sizes = sizes;
	live->capacity = capacity;
	return 0;
}

static int add(
	struct trace_live *live, const struct trace_row *row, char *message, size_t size)
{
	uint32_t at = live->unused;

	if (trace_table_find(&live->blocks, row->pointer) >= 0)
		return refuse(message, size, row, "live");
	if (!at && grow(live))
		return no_memory(message, size);
	if (!at)
		at = (uint32_t)live->used + 1;
	if (trace_table_add(&live->blocks, row->pointer, at))
		return no_memory(message, size);
	if (at > live->used)
		live->used++;
	else
		live->unused = (uint32_t)live->sizes[at - 1];
	live->sizes[at - 1] = row->size;
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
		return refuse(message, size, row, "not live");
	trace_table_remove(&live->blocks, row->pointer);
	*ret_size = live->sizes[at - 1];
	live->bytes[row->device] -= *ret_size;
	live->sizes[at - 1] = live->unused;
	live->unused = (uint32_t)at;
	return 0;
}

bool trace_live_idle(const struct trace_live *live, const struct trace_row *row)
{
	if (row->kind)
		return false;
	if (row->action == TRACE_ALLOCATE)
		return !row->size;
	return row->action == TRACE_FREE && (!row->size || !row->pointer) &&
		trace_table_find(&live->blocks, row->pointer) < 0;
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
	free(live->sizes);
	live->sizes = NULL;
}
