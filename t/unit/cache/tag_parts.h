/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_TAG_PARTS_H
#define GLK_UNIT_CACHE_TAG_PARTS_H

/* What the tests of tags share: a rig with two streams, blocks of a tag, and what is told of both. */
#include "cache/tag/tag.h"
#include "plan_parts.h"

#define TAG   0x101u
#define OTHER 0x102u

static struct rig rig;
static struct CUstream_st *a, *b;
static struct glake_suspended did;

static inline int take(
	struct held *h, size_t size, uint32_t tag, struct CUstream_st *stream)
{
	int err;

	rig_set_tag(&rig, tag);
	err = plan_take(&rig, h, size, stream);
	rig_set_tag(&rig, 0);
	return err;
}

static inline struct glake_tag told(uint32_t id)
{
	struct glake_tag tag = {.sz = sizeof(tag)};

	if (glk_cache_tag_get(&rig.cache, id, &tag))
		tap_bail("no tag");
	return tag;
}

#endif
