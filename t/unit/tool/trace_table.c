/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The pointer table against an array that holds the same, under random changes. */
#include "t/tap.h"
#include "tool/trace.h"

#define KEYS  1500
#define STEPS 200000

static uint64_t random_state = 88172645463325252u;

static uint64_t random_next(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Neighbours, as the addresses of small blocks are, and few enough to meet in one run. */
static uint64_t key_of(size_t i)
{
	return UINT64_C(0x7f5727e00000) + i * 512;
}

static void test_random(void)
{
	static int64_t model[KEYS];
	struct trace_table table = {0};
	size_t count = 0, wrong = 0;

	for (size_t i = 0; i < KEYS; i++)
		model[i] = -1;
	for (uint32_t step = 0; step < STEPS; step++) {
		size_t i = random_next() % KEYS;

		wrong += trace_table_find(&table, key_of(i)) != model[i];
		if (model[i] >= 0) {
			trace_table_remove(&table, key_of(i));
			model[i] = -1;
			count--;
		} else {
			wrong += trace_table_add(&table, key_of(i), step) != 0;
			model[i] = step;
			count++;
		}
		wrong += table.count != count;
	}
	for (size_t i = 0; i < KEYS; i++)
		wrong += trace_table_find(&table, key_of(i)) != model[i];
	is_int(wrong, 0, "the table agrees with the model");
	ok(table.capacity >= 2 * table.count, "it is at most half full");
	trace_table_fini(&table);
}

int main(void)
{
	struct trace_table table = {0};

	tap_plan(7);
	is_int(trace_table_find(&table, 5), -1, "nothing in an empty table");
	is_int(trace_table_add(&table, 0, 0), 0, "key 0 with value 0");
	is_int(trace_table_find(&table, 0), 0, "is found");
	trace_table_remove(&table, 0);
	is_int(trace_table_find(&table, 0), -1, "and gone when removed");
	trace_table_fini(&table);
	is_int(trace_table_find(&table, 0), -1, "a table that ended is empty");
	test_random();
	return tap_done();
}
