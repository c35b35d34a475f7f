/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_PICKLE_H
#define GLK_TOOL_PICKLE_H

/*
 * A writer of Python's pickles, protocol 2, for what holds nothing but dicts, lists, texts and whole
 * numbers. It streams: a dict is keys and values by turns, a list its items. Items of long lists go
 * in batches, for readers that put a batch on their stack.
 *
 * A wrong order, and what could not be written, is told by pickle_end().
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PICKLE_DEPTH_MAX 16

struct pickle {
	FILE *file;
	unsigned depth;
	bool wrong;
	struct {
		bool is_list;
		uint64_t count; /* of items, or of keys and values */
	} open[PICKLE_DEPTH_MAX];
};

void pickle_begin(struct pickle *pickle, FILE *file);
void pickle_dict(struct pickle *pickle);
void pickle_list(struct pickle *pickle);
/* Ends the dict or the list that was begun last. */
void pickle_close(struct pickle *pickle);
/* Names the list or the dict that was closed last, to be the same one again later. */
void pickle_keep(struct pickle *pickle, uint32_t name);
void pickle_again(struct pickle *pickle, uint32_t name);
/* UTF-8. */
void pickle_text(struct pickle *pickle, const char *text);
void pickle_int(struct pickle *pickle, int64_t number);
/* 0; -EIO; -EINVAL after use in a wrong order. The file stays open. */
int pickle_end(struct pickle *pickle);

/* A key with its value. */
static inline void pickle_add_int(struct pickle *pickle, const char *key, uint64_t number)
{
	pickle_text(pickle, key);
	pickle_int(pickle, (int64_t)number);
}

static inline void pickle_add_text(
	struct pickle *pickle, const char *key, const char *text)
{
	pickle_text(pickle, key);
	pickle_text(pickle, text);
}

#endif
