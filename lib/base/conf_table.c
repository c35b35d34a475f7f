/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Parser, `conf show`, manual page and shipped file must never disagree about a key, so all
 * of them read this one array, made from conf_keys.h.
 */
#include "base/conf_table.h"

#include "base/parse.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct glk_conf_key keys[GLK_CONF_COUNT] = {
#define ROW(section, key, type, field, value, min, max, choices, help, live, test)       \
	{#section, #key, GLK_TYPE_##type, offsetof(struct glk_conf, field), value, min,  \
		max, choices, help, live, test},
#define GLK_KEY(...)	  ROW(__VA_ARGS__, false, false)
#define GLK_LIVE_KEY(...) ROW(__VA_ARGS__, true, false)
#define GLK_TEST_KEY(...) ROW(__VA_ARGS__, false, true)
#include "base/conf_keys.h"
#undef GLK_KEY
#undef ROW
};

const struct glk_conf_key *glk_conf_key(size_t id)
{
	return id < GLK_CONF_COUNT ? &keys[id] : NULL;
}

const char *glk_conf_changed_by(size_t id)
{
	static const char *const functions[GLK_CONF_COUNT] = {
		[GLK_CONF_pool_budget] = "glake_budget_set",
		[GLK_CONF_pool_peers] = "glake_peer_access",
	};

	if (id >= GLK_CONF_COUNT)
		return NULL;
	return !functions[id] && keys[id].live ? "glake_conf_set" : functions[id];
}

const char *glk_conf_type_name(enum glk_conf_type type)
{
	static const char *const names[] = {
		[GLK_TYPE_BOOL] = "bool",
		[GLK_TYPE_INT] = "int",
		[GLK_TYPE_SIZE] = "size",
		[GLK_TYPE_SHARE] = "size or part",
		[GLK_TYPE_TIME] = "time",
		[GLK_TYPE_CHOICE] = "choice",
		[GLK_TYPE_RATIO] = "ratio",
		[GLK_TYPE_TEXT] = "text",
	};

	return names[type];
}

int glk_conf_choice(const struct glk_conf_key *key, int index, const char **ret_name)
{
	const char *name = key->choices;

	while (index-- && name) {
		name = strchr(name, ',');
		name = name ? name + 1 : NULL;
	}
	if (!name)
		return 0;
	*ret_name = name;
	return (int)strcspn(name, ",");
}

void glk_conf_range(const struct glk_conf_key *key, char *buffer, size_t size)
{
	char min[GLK_FORMAT_MAX], max[GLK_FORMAT_MAX];
	const char *name;
	size_t at = 0;
	int length;

	switch (key->type) {
	case GLK_TYPE_BOOL:
		snprintf(buffer, size, "yes, no");
		return;
	case GLK_TYPE_INT:
		snprintf(buffer, size, "%" PRId64 " ... %" PRId64, key->min, key->max);
		return;
	case GLK_TYPE_SIZE:
	case GLK_TYPE_SHARE:
		glk_format_size((uint64_t)key->min, min, sizeof(min));
		glk_format_size((uint64_t)key->max, max, sizeof(max));
		break;
	case GLK_TYPE_TIME:
		glk_format_time(key->min, min, sizeof(min));
		glk_format_time(key->max, max, sizeof(max));
		break;
	case GLK_TYPE_CHOICE:
		for (int i = 0; (length = glk_conf_choice(key, i, &name)) && at < size;
			i++)
			at += (size_t)snprintf(buffer + at, size - at, "%s%.*s",
				i ? ", " : "", length, name);
		return;
	case GLK_TYPE_RATIO:
		snprintf(buffer, size, "%s%s%g ... %g", key->choices,
			*key->choices ? ", " : "", (double)key->min / 1000,
			(double)key->max / 1000);
		return;
	case GLK_TYPE_TEXT:
		snprintf(buffer, size, "%d characters at most", GLK_CONF_TEXT_MAX - 1);
		return;
	}
	snprintf(buffer, size, "%s ... %s%s", min, max,
		key->type == GLK_TYPE_SHARE ? ", or above 0% to 100%" : "");
}

void glk_conf_variable(const struct glk_conf_key *key, char *buffer, size_t size)
{
	snprintf(buffer, size, "GLAKE_%s_%s", key->section, key->key);
	for (; *buffer; buffer++) {
		if (*buffer >= 'a' && *buffer <= 'z')
			*buffer = (char)(*buffer - 'a' + 'A');
	}
}

int glk_conf_find(const char *section, const char *key)
{
	for (int i = 0; i < GLK_CONF_COUNT; i++) {
		if (!strcmp(keys[i].section, section) && !strcmp(keys[i].key, key))
			return i;
	}
	return -1;
}

const char *glk_conf_section(const char *section)
{
	for (int i = 0; i < GLK_CONF_COUNT; i++) {
		if (!strcmp(keys[i].section, section))
			return keys[i].section;
	}
	return NULL;
}

#define NAME_MAX_LENGTH 48

static bool same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Optimal string alignment. */
size_t glk_conf_distance(const char *a, const char *b)
{
	size_t rows[3][NAME_MAX_LENGTH + 1], columns = strlen(b), cost;
	size_t *above = rows[0], *row = rows[1], *spare = rows[2], *older;

	if (strlen(a) > NAME_MAX_LENGTH || columns > NAME_MAX_LENGTH)
		return SIZE_MAX;
	for (size_t j = 0; j <= columns; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		older = above;
		above = row;
		row = spare;
		spare = older;
		row[0] = i + 1;
		for (size_t j = 1; j <= columns; j++) {
			cost = above[j - 1] + !same(a[i], b[j - 1]);
			cost = least(cost, least(above[j], row[j - 1]) + 1);
			if (i && j > 1 && same(a[i], b[j - 2]) &&
				same(a[i - 1], b[j - 1]))
				cost = least(cost, older[j - 2] + 1);
			row[j] = cost;
		}
	}
	return row[columns];
}

/* A third of the letters may be wrong, not more, else the suggestion is noise. */
static size_t tolerance(const char *name)
{
	return strlen(name) / 3 + 1;
}

int glk_conf_nearest(const char *section, const char *key)
{
	size_t best = tolerance(key), far;
	int found = -1;

	for (int i = 0; i < GLK_CONF_COUNT; i++) {
		far = glk_conf_distance(key, keys[i].key);
		if (!strcmp(keys[i].section, section) && far < best) {
			best = far;
			found = i;
		}
	}
	/* Else the right key in the wrong section. */
	for (int i = 0; i < GLK_CONF_COUNT && found < 0; i++) {
		if (!glk_conf_distance(key, keys[i].key))
			found = i;
	}
	return found;
}

const char *glk_conf_nearest_section(const char *section)
{
	size_t best = tolerance(section) + 1, far;
	const char *found = NULL;

	for (int i = 0; i < GLK_CONF_COUNT; i++) {
		far = glk_conf_distance(section, keys[i].section);
		if (far < best) {
			best = far;
			found = keys[i].section;
		}
	}
	return found;
}

/* Begins a variable of this key's section, as GLAKE_POOL_? */
static bool in_section(const char *variable, const char *known, const char *section)
{
	return !strncmp(variable, known, strlen("GLAKE__") + strlen(section));
}

bool glk_conf_misspelled(const char *variable, int *ret_id)
{
	const size_t skip = strlen("GLAKE_");
	size_t best = strlen(variable + skip) / 4 + 1, far;
	char known[GLK_CONF_VARIABLE_MAX];
	bool ours = false;
	int found = -1;

	for (int i = 0; i < GLK_CONF_COUNT; i++) {
		glk_conf_variable(&keys[i], known, sizeof(known));
		if (!strcmp(variable, known))
			return false;
		ours |= in_section(variable, known, keys[i].section);
		far = glk_conf_distance(variable + skip, known + skip);
		/* GLAKE_BUDGET: its section is missing */
		if (!glk_conf_distance(variable + skip, keys[i].key))
			far = 1;
		if (far < best) {
			best = far;
			found = i;
		}
	}
	*ret_id = found;
	return ours || found >= 0;
}
