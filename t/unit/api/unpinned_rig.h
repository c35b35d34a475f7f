/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_API_UNPINNED_RIG_H
#define GLK_UNIT_API_UNPINNED_RIG_H

/* A context with threads that copy, memory of the host that is not locked, and a block of that size. */
#include "unit/api/copy_rig.h"

#include <sched.h>

#define BIG (26 * MIB + 12) /* more than the buffers hold at a time */

static unsigned char *plain, *back, *block;

#define SOFT "soft.memory=128MiB", "map.span=4GiB"
#define CREW SOFT, "io.threads=3"

static inline void open_crew(const char *const *settings)
{
	void *ptr = NULL;

	begin(settings);
	if (glake_alloc(ctx, 0, BIG, stream, 0, &ptr))
		tap_bail("no block");
	block = ptr;
}

static inline void close_crew(void)
{
	glake_free(ctx, block, stream);
	end();
}

/* Bytes that went through the buffers of the first GPU. */
static inline uint64_t through(int turn)
{
	return context->io.bounce.drv
		? glk_load_relaxed(&context->io.bounce.ring[0][turn].bytes)
		: 0;
}

/* To and from odd addresses, with guards. Whether all bytes are right. */
static inline bool there_and_back(size_t bytes)
{
	size_t a = EDGE + dice() % 100, b = EDGE + dice() % 100, c = EDGE + dice() % 100;
	unsigned char before[2 * EDGE], after[2 * EDGE];

	fill(plain, bytes + 200);
	memset(back + c - EDGE, 0xa5, bytes + 2 * EDGE);
	memcpy(before, block + b - EDGE, EDGE);
	memcpy(before + EDGE, block + b + bytes, EDGE);
	if (glake_copy(ctx, block + b, plain + a, bytes, stream, 0, NULL) ||
		glake_copy(ctx, back + c, block + b, bytes, stream, 0, NULL) ||
		sync_stream())
		return false;
	memcpy(after, block + b - EDGE, EDGE);
	memcpy(after + EDGE, block + b + bytes, EDGE);
	for (size_t i = 0; i < EDGE; i++)
		if (back[c - 1 - i] != 0xa5 || back[c + bytes + i] != 0xa5)
			return false;
	return !memcmp(back + c, plain + a, bytes) &&
		!memcmp(before, after, sizeof(before));
}

static inline void unpinned_start(void)
{
	copy_rig_start();
	plain = mmap(NULL, 2 * (BIG + MIB), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (plain == MAP_FAILED)
		tap_bail("no memory");
	back = plain + BIG + MIB;
}

#endif
