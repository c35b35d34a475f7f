/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_SEALED_H
#define GLK_CACHE_SEALED_H

/* Blocks come to stand on sealed pages: see seal.h. */
#include "cache/cache.h"

/* A piece that begins at a slot has the page which another one of it came with. 0 or an error. */
int glk_seal_come(struct glk_arena *arena, struct glk_extent *e, uint32_t slot);
/* A piece has come with a page of its own, which others will have too. */
void glk_seal_came(
	struct glk_arena *arena, struct glk_extent *e, uint32_t slot, uint32_t word);
/* The block stands on so many sealed pages, one behind the other from a slot on. Likewise. */
int glk_seal_stand(struct glk_arena *arena, struct glk_extent *e, uint32_t slot,
	const uint32_t *pages, uint32_t count);
/* It does not write a run of slots any more, while it is claimed. Gives the lock up. */
void glk_seal_promise(const struct glk_arena *arena, uint32_t slot, uint32_t count);

/* elastic.c, under the lock: another elastic block of an arena, of which nothing is committed. */
int glk_elastic_beside(struct glk_arena *arena, uint32_t on, struct CUstream_st *stream,
	uint32_t slots, uint64_t *ret_addr);
/* elastic.c, in a block that is claimed: portions are committed, all or none, as glk_elastic_commit() does; and those
 * of which nothing was committed before go again: bytes that exist no more. */
int glk_elastic_come(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_portion *portions, size_t count, uint32_t how,
	uint64_t *ret_wants);
uint64_t glk_elastic_go(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_portion *portions, size_t count);
/* elastic.c: the books of one that is freed, of which other ranges keep so many bytes. */
void glk_elastic_end(struct glk_arena *arena, const struct glk_extent *e, uint64_t stay);

#endif
