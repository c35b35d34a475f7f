/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_UNPICKLE_H
#define GLK_TOOL_UNPICKLE_H

/*
 * A reader of Python's pickles, protocols 2 to 5, for what holds dicts, lists, texts and whole numbers.
 * Nothing of a file is run: what names a function or a class becomes a value of no kind, but for the
 * marks that the C++ side of PyTorch puts on its dicts and lists, which are left away.
 *
 * Of texts those alone are told apart that the caller knows, and of dicts those members alone are
 * kept whose keys it knows, so that call stacks, of which a snapshot mostly consists, take no room.
 */
#include "tool/trace.h"

enum unpickle_type {
	UNPICKLE_NOTHING = 0, /* None, and all that is of no use */
	UNPICKLE_INT,
	UNPICKLE_TEXT, /* the number of a known word, from 1; 0: another one */
	UNPICKLE_DICT,
	UNPICKLE_LIST, /* or a tuple, or a set */
};

struct unpickle_value {
	uint32_t type;
	uint32_t at;	 /* of a dict or a list; of a text the word */
	uint64_t number; /* of an int, in two's complement */
};

/* What is read, and the memory that it is kept in. */
struct unpickle;

/* 0, or -errno with a sentence: -EINVAL (it is no such pickle), -EFBIG, -ENOMEM, as
 * trace_source_read(). `words` ends with NULL and stays; `begin` was read from the source. */
int unpickle_read(struct trace_source *source, const char *begin, size_t begin_size,
	const char *const *words, char *message, size_t size, struct unpickle **ret);
void unpickle_free(struct unpickle *u);

struct unpickle_value unpickle_root(const struct unpickle *u);
/* The member of a dict by its known key, the last of that; NOTHING for what is no dict or has none. */
struct unpickle_value unpickle_member(
	const struct unpickle *u, struct unpickle_value dict, unsigned word);
/* Items of a list by turns: 0 begins, and the place of the next comes; 0: there is none. Those that
 * are NOTHING, unknown texts, and dicts without a known key are left out. */
uint32_t unpickle_item(const struct unpickle *u, struct unpickle_value list,
	uint32_t place, struct unpickle_value *ret_value);
/* Those of all lists. A list that a pickle names in many places is one. */
size_t unpickle_items(const struct unpickle *u);

/* Whether bytes begin as a pickle does. */
bool unpickle_is(const char *bytes, size_t size);

#endif
