/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which blocks of a mirror are open, and how often: the users of a page do not say whose they are,
 * for blocks share pages. A table with open addressing; room for one more is made before a block
 * is opened, so that nothing fails when it is.
 */
#include "share/mirror.h"

#include <errno.h>

#define ROOM_MIN 128 /* what a page of the host holds */

static size_t bytes(size_t room)
{
	return room * sizeof(struct glk_mirror_block);
}

static size_t home(const struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size)
{
	uint64_t x = addr ^ size * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
	x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	return (x ^ x >> 33) & (blocks->room - 1);
}

/* Its place, or the free one where it would be. */
static struct glk_mirror_block *find(
	const struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size)
{
	size_t i = home(blocks, addr, size);

	while (blocks->at[i].opens &&
		(blocks->at[i].addr != addr || blocks->at[i].size != size))
		i = (i + 1) & (blocks->room - 1);
	return &blocks->at[i];
}

int glk_mirror_blocks_room(struct glk_mirror_blocks *blocks)
{
	struct glk_mirror_blocks new = {.count = blocks->count};

	/* a quarter stays free */
	if (blocks->count + 1 <= blocks->room / 4 * 3)
		return 0;
	new.room = blocks->room ? blocks->room * 2 : ROOM_MIN;
	new.at = glk_region_new(bytes(new.room));
	if (!new.at)
		return -ENOMEM;
	for (size_t i = 0; i < blocks->room; i++) {
		const struct glk_mirror_block *block = &blocks->at[i];

		if (block->opens)
			*find(&new, block->addr, block->size) = *block;
	}
	glk_mirror_blocks_free(blocks);
	*blocks = new;
	return 0;
}

void glk_mirror_blocks_add(struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size)
{
	struct glk_mirror_block *block = find(blocks, addr, size);

	blocks->count += !block->opens;
	block->addr = addr;
	block->size = size;
	block->opens++;
}

bool glk_mirror_blocks_has(
	const struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size)
{
	return blocks->count && find(blocks, addr, size)->opens;
}

bool glk_mirror_blocks_take(
	struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size)
{
	struct glk_mirror_block *block = blocks->count ? find(blocks, addr, size) : NULL;
	size_t mask = blocks->room - 1, hole, i;

	if (!block || !block->opens)
		return false;
	if (--block->opens)
		return true;
	blocks->count--;
	/* those behind it that a search would not reach across the hole come forward */
	hole = (size_t)(block - blocks->at);
	for (i = (hole + 1) & mask; blocks->at[i].opens; i = (i + 1) & mask) {
		size_t from = home(blocks, blocks->at[i].addr, blocks->at[i].size);

		if (((i - from) & mask) < ((i - hole) & mask))
			continue;
		blocks->at[hole] = blocks->at[i];
		hole = i;
	}
	blocks->at[hole].opens = 0;
	return true;
}

void glk_mirror_blocks_free(struct glk_mirror_blocks *blocks)
{
	glk_region_free(blocks->at, bytes(blocks->room));
	*blocks = (struct glk_mirror_blocks){0};
}
