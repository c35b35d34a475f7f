/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_UNPICKLE_STORE_H
#define GLK_TOOL_UNPICKLE_STORE_H

/* The memory of what is read from a pickle. Inside of it. */
#include "tool/unpickle.h"

#define UNPICKLE_MEMORY_MAX ((size_t)1 << 30)

/* Things of one size, numbered from 1, that are not given back one by one. */
struct pile {
	void *at;
	size_t size, count, room;
};

struct unpickle {
	struct pile dicts, members, lists, items;
	size_t bytes; /* of all piles, those of the reader too */
	struct unpickle_value root;
};

static inline void *pile_at(const struct pile *pile, size_t number)
{
	return (char *)pile->at + (number - 1) * pile->size;
}

/* All 0 or -EFBIG, -ENOMEM. One more; *ret_number may be NULL. */
int pile_add(
	struct unpickle *u, struct pile *pile, const void *from, uint32_t *ret_number);
int unpickle_new_dict(struct unpickle *u, struct unpickle_value *ret_value);
int unpickle_new_list(struct unpickle *u, struct unpickle_value *ret_value);
/* Into what is another kind of value nothing goes. */
int unpickle_append(
	struct unpickle *u, struct unpickle_value list, struct unpickle_value value);
int unpickle_set(struct unpickle *u, struct unpickle_value dict,
	struct unpickle_value key, struct unpickle_value value);

#endif
