/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A table from pointers to block numbers. A trace names blocks by the addresses they had when
 * it was recorded, and the same address names many blocks one after another; loading needs
 * one look-up and one change a row, over as many keys as blocks are live at once.
 *
 * Open addressing, linear steps, at most half full. A removal moves later keys of the run up
 * instead of leaving marks, so a trace of any length keeps runs short.
 */
#include "tool/trace.h"

#include <errno.h>
#include <stdlib.h>

#define CAPACITY_MIN 64

static size_t home(const struct trace_table *table, uint64_t key)
{
	/* Addresses differ in their middle bits; the product brings them to the top. */
	return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) &
		(table->capacity - 1);
}

/* The slot of the key, or the empty one where it would go. */
static size_t seek(const struct trace_table *table, uint64_t key)
{
	size_t at = home(table, key);

	while (table->slots[at].value && table->slots[at].key != key)
		at = (at + 1) & (table->capacity - 1);
	return at;
}

int64_t trace_table_find(const struct trace_table *table, uint64_t key)
{
	if (!table->capacity)
		return -1;
	return (int64_t)table->slots[seek(table, key)].value - 1;
}

static int grow(struct trace_table *table)
{
	struct trace_table bigger = {
		.capacity = table->capacity ? table->capacity * 2 : CAPACITY_MIN,
		.count = table->count,
	};

	bigger.slots = calloc(bigger.capacity, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < table->capacity; i++) {
		if (table->slots[i].value)
			bigger.slots[seek(&bigger, table->slots[i].key)] =
				table->slots[i];
	}
	free(table->slots);
	*table = bigger;
	return 0;
}

int trace_table_add(struct trace_table *table, uint64_t key, uint32_t value)
{
	int err;

	if (table->count * 2 >= table->capacity) {
		err = grow(table);
		if (err)
			return err;
	}
	table->slots[seek(table, key)] =
		(struct trace_slot){.key = key, .value = value + 1};
	table->count++;
	return 0;
}

void trace_table_remove(struct trace_table *table, uint64_t key)
{
	size_t mask = table->capacity - 1;
	size_t hole = seek(table, key);
	size_t at = hole;

	for (;;) {
		at = (at + 1) & mask;
		if (!table->slots[at].value)
			break;
		/* It may fill the hole unless its home lies between the two. */
		if (((at - home(table, table->slots[at].key)) & mask) >=
			((at - hole) & mask)) {
			table->slots[hole] = table->slots[at];
			hole = at;
		}
	}
	table->slots[hole].value = 0;
	table->count--;
}

void trace_table_fini(struct trace_table *table)
{
	free(table->slots);
	*table = (struct trace_table){0};
}
