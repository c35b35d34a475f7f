/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_SLAB_H
#define GLK_BASE_SLAB_H

/*
 * Memory for the library's own tables. It never comes from malloc, since glake may sit under
 * malloc, and never from user memory, so no kernel on the GPU can reach it.
 *
 * Two shapes:
 *  - a region: one anonymous mapping that is reserved whole and touched as it is used
 *  - a slab: a region cut into slots of one size, addressed by index. Slots are type-stable:
 *    a stale index reads an old object, never unmapped memory, until the slab is ended
 *
 * Progress	get, put: lock-free. Cost: about 10 ns uncontended
 * Failure	every call can fail; glk_region_fail_after() makes it do so in tests
 */
#include "base/atomic.h"
#include "base/idstack.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct glk_slab {
	char *base;
	size_t slot;		   /* bytes */
	uint32_t max;		   /* highest index that may be given */
	glk_atomic(uint32_t) used; /* indices given at least once */
	glk_atomic(uint32_t) live;
	struct glk_idnode *links;
	struct glk_idstack free;
};

/* NULL and a NOMEM_HOST record when the system refuses. Zeroed, aligned to an OS page. */
void *glk_region_new(size_t size);
void glk_region_free(void *region, size_t size);

/* 0, -EINVAL (slot 0, max 0 or above GLK_ID_MAX), -ENOMEM. */
int glk_slab_init(struct glk_slab *slab, size_t slot, uint32_t max);
/* Unmaps all slots. Takes a slab that was never initialised or is zeroed. */
void glk_slab_fini(struct glk_slab *slab);

/* An index from 1, its slot zeroed on first use only; 0 and a LIMIT record when full. */
uint32_t glk_slab_get(struct glk_slab *slab);
void glk_slab_put(struct glk_slab *slab, uint32_t id);

static inline void *glk_slab_at(const struct glk_slab *slab, uint32_t id)
{
	return slab->base + (size_t)id * slab->slot;
}

/* Fields that the caller is about to set, of a slot that it got. Builds with the address sanitizer fill
 * them with junk, so that one which is forgotten is not right by chance: a slot is zero at first. */
static inline void glk_slab_spoil(void *from, size_t size)
{
#if defined(__SANITIZE_ADDRESS__)
	memset(from, 0xa5, size);
#else
	(void)from;
	(void)size;
#endif
}

/* Bytes of a slab that were ever in use; slots above were never touched. */
static inline uint64_t glk_slab_bytes(const struct glk_slab *slab)
{
	return (uint64_t)glk_load_relaxed(&slab->used) *
		(slab->slot + sizeof(struct glk_idnode));
}

/* Bytes of address space that regions of this process hold now. */
uint64_t glk_region_bytes(void);

/* For tests: the n-th region from now on, and all after it, cannot be had; 0 switches off. */
void glk_region_fail_after(uint32_t n);

#endif
