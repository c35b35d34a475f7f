/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The values of a pickle: dicts and lists as chains through arrays that grow.
 *
 * Cost		32 bytes an item of a list or a member of a dict that is kept
 */
#include "tool/unpickle_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct member {
	struct unpickle_value value;
	uint32_t word, next;
};

struct item {
	struct unpickle_value value;
	uint32_t next, unused;
};

struct list {
	uint32_t first, last;
};

int pile_add(
	struct unpickle *u, struct pile *pile, const void *from, uint32_t *ret_number)
{
	size_t room = pile->room ? 2 * pile->room : 256, more = room - pile->room;
	void *at;

	if (pile->count == pile->room) {
		if (more * pile->size > UNPICKLE_MEMORY_MAX - u->bytes)
			return -EFBIG;
		at = realloc(pile->at, room * pile->size);
		if (!at)
			return -ENOMEM;
		u->bytes += more * pile->size;
		pile->at = at;
		pile->room = room;
	}
	memcpy(pile_at(pile, ++pile->count), from, pile->size);
	if (ret_number)
		*ret_number = (uint32_t)pile->count;
	return 0;
}

int unpickle_new_dict(struct unpickle *u, struct unpickle_value *ret_value)
{
	const uint32_t none = 0;

	u->dicts.size = sizeof(none);
	*ret_value = (struct unpickle_value){.type = UNPICKLE_DICT};
	return pile_add(u, &u->dicts, &none, &ret_value->at);
}

int unpickle_new_list(struct unpickle *u, struct unpickle_value *ret_value)
{
	const struct list none = {0};

	u->lists.size = sizeof(none);
	*ret_value = (struct unpickle_value){.type = UNPICKLE_LIST};
	return pile_add(u, &u->lists, &none, &ret_value->at);
}

/* Of no use in a list. */
static bool is_empty(const struct unpickle *u, struct unpickle_value value)
{
	return value.type == UNPICKLE_NOTHING ||
		(value.type == UNPICKLE_TEXT && !value.at) ||
		(value.type == UNPICKLE_DICT &&
			!*(const uint32_t *)pile_at(&u->dicts, value.at));
}

int unpickle_append(
	struct unpickle *u, struct unpickle_value list, struct unpickle_value value)
{
	const struct item item = {.value = value};
	struct list *to;
	uint32_t at;
	int err;

	if (list.type != UNPICKLE_LIST || is_empty(u, value))
		return 0;
	u->items.size = sizeof(item);
	err = pile_add(u, &u->items, &item, &at);
	if (err)
		return err;
	to = pile_at(&u->lists, list.at);
	if (to->last)
		((struct item *)pile_at(&u->items, to->last))->next = at;
	else
		to->first = at;
	to->last = at;
	return 0;
}

int unpickle_set(struct unpickle *u, struct unpickle_value dict,
	struct unpickle_value key, struct unpickle_value value)
{
	struct member member = {.value = value, .word = key.at};
	struct member *other;
	uint32_t at;
	int err;

	if (dict.type != UNPICKLE_DICT || key.type != UNPICKLE_TEXT || !key.at)
		return 0;
	u->members.size = sizeof(member);
	member.next = *(uint32_t *)pile_at(&u->dicts, dict.at);
	/* of each word there is one, so that a dict is as short as the list of words */
	for (at = member.next; at; at = other->next) {
		other = pile_at(&u->members, at);
		if (other->word == key.at) {
			other->value = value;
			return 0;
		}
	}
	err = pile_add(u, &u->members, &member, &at);
	if (!err)
		*(uint32_t *)pile_at(&u->dicts, dict.at) = at;
	return err;
}

struct unpickle_value unpickle_root(const struct unpickle *u)
{
	return u->root;
}

struct unpickle_value unpickle_member(
	const struct unpickle *u, struct unpickle_value dict, unsigned word)
{
	uint32_t at = 0;

	if (dict.type == UNPICKLE_DICT)
		at = *(const uint32_t *)pile_at(&u->dicts, dict.at);
	while (at) {
		const struct member *member = pile_at(&u->members, at);

		if (member->word == word)
			return member->value;
		at = member->next;
	}
	return (struct unpickle_value){0};
}

size_t unpickle_items(const struct unpickle *u)
{
	return u->items.count;
}

uint32_t unpickle_item(const struct unpickle *u, struct unpickle_value list,
	uint32_t place, struct unpickle_value *ret_value)
{
	const struct item *item;
	uint32_t at = 0;

	if (list.type == UNPICKLE_LIST)
		at = place ? ((const struct item *)pile_at(&u->items, place))->next
			   : ((const struct list *)pile_at(&u->lists, list.at))->first;
	if (!at)
		return 0;
	item = pile_at(&u->items, at);
	*ret_value = item->value;
	return at;
}

void unpickle_free(struct unpickle *u)
{
	if (!u)
		return;
	free(u->dicts.at);
	free(u->members.at);
	free(u->lists.at);
	free(u->items.at);
	free(u);
}
