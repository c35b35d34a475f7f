/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_BLOCK_H
#define GLK_MOVE_BLOCK_H

/* What everybody may ask of a block. */
#include "move/gpu.h"

/* For one that is held: it goes to no bin when it is freed, as if it were marked with a stream. */
void glk_block_to_no_bin(struct glk_extent *e);
/* The use of a block that was claimed, and of all work that was queued on its streams and on one more
 * until now; 0 for no such. Under the lock. */
struct glk_use glk_block_use(
	struct glk_cache *cache, const struct glk_extent *e, uint32_t stream);
/* Says why the address is not that of a live block: -EINVAL. */
int glk_block_refuse(struct glk_cache *cache, uint64_t addr) GLK_COLD;
/* Pins of a live or claimed block, and whether it is out. */
#define GLK_PINS_MOST ((UINT32_C(1) << 30) - 1)

static inline uint32_t glk_pin_count(const struct glk_extent *e)
{
	/* pairs with: the release in pin() */
	if (glk_load_acquire(&e->bin) != GLK_BIN_PINNED)
		return 0;
	return glk_load_relaxed(&e->pins) & GLK_PINS_MOST;
}

static inline bool glk_pin_is_out(const struct glk_extent *e)
{
	return glk_pin_count(e) > 0;
}

#endif
