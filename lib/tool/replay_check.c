/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contents of blocks during a replay: one block in sixteen is marked at its first and last words
 * when it was given, and looked at when it is freed. So memory that two blocks have at once, and
 * contents that a move has lost, are found. It is done from the host, where the memory of the
 * software device lies.
 */
#include "tool/replay_worker.h"

#define EVERY 16u

/* Blocks that are too small for two words have none. */
static bool is_marked(const struct replay_run *run, uint32_t block, uint64_t size)
{
	return run->check && block % EVERY == 0 && size >= 2 * sizeof(uint64_t);
}

/* Another one for each block, pass and place. */
static uint64_t mark_of(const struct replay_run *run, uint32_t block, uint64_t at)
{
	return ((uint64_t)run->pass << 32 | block) * UINT64_C(0x9e3779b97f4a7c15) ^ at;
}

static uint64_t last_word(uint64_t size)
{
	return (size - sizeof(uint64_t)) & ~(uint64_t)(sizeof(uint64_t) - 1);
}

void replay_check_mark(
	const struct replay_run *run, uint32_t block, uintptr_t ptr, uint64_t size)
{
	if (!is_marked(run, block, size))
		return;
	*(uint64_t *)ptr = mark_of(run, block, 0);
	*(uint64_t *)(ptr + last_word(size)) = mark_of(run, block, last_word(size));
}

bool replay_check_is_whole(
	const struct replay_run *run, uint32_t block, uintptr_t ptr, uint64_t size)
{
	return !is_marked(run, block, size) ||
		(*(uint64_t *)ptr == mark_of(run, block, 0) &&
			*(uint64_t *)(ptr + last_word(size)) ==
				mark_of(run, block, last_word(size)));
}
