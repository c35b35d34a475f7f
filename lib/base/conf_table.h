/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_CONF_TABLE_H
#define GLK_BASE_CONF_TABLE_H

/*
 * The keys of conf_keys.h as data: to look up, to describe, to suggest. Needs nothing of the
 * library but base/parse, so that the generator of the manual page is made of it too.
 */
#include "base/conf.h"

enum glk_conf_type {
	GLK_TYPE_BOOL,
	GLK_TYPE_INT,
	GLK_TYPE_SIZE,
	GLK_TYPE_SHARE,
	GLK_TYPE_TIME,
	GLK_TYPE_CHOICE,
	GLK_TYPE_RATIO,
	GLK_TYPE_TEXT,
};

struct glk_conf_key {
	const char *section, *key;
	enum glk_conf_type type;
	size_t offset; /* of its field in struct glk_conf */
	const char *default_value;
	int64_t min, max;    /* of INT, SIZE, SHARE and TIME; of RATIO in thousandths */
	const char *choices; /* of CHOICE, comma-separated; of RATIO a word for 0 */
	const char *help;
	bool live; /* may change while the program runs, by glake_conf_set */
	bool test; /* for tests and measurements alone */
};

/* NULL past the last. In the order of the table, sections together. */
const struct glk_conf_key *glk_conf_key(size_t id);

/* As "size". */
const char *glk_conf_type_name(enum glk_conf_type type);

/* What a value may be, as "2MiB ... 64MiB" or "auto, soft, cuda". */
#define GLK_CONF_RANGE_MAX 128
void glk_conf_range(const struct glk_conf_key *key, char *buffer, size_t size);

/* The choice number `index`, not ended by zero: its length, 0 past the last. */
int glk_conf_choice(const struct glk_conf_key *key, int index, const char **ret_name);

/* The public function that changes a key while the program runs, the nearest one if there are two;
 * NULL: it is read when a context is opened, and stays. */
const char *glk_conf_changed_by(size_t id);

/* The environment variable of a key. */
#define GLK_CONF_VARIABLE_MAX 64
void glk_conf_variable(const struct glk_conf_key *key, char *buffer, size_t size);

/* The id of a key, or -1. */
int glk_conf_find(const char *section, const char *key);

/* The name as the table has it, or NULL. */
const char *glk_conf_section(const char *section);

/* Letters to insert, delete, replace, and neighbours to exchange, whatever their case; SIZE_MAX for a name
 * longer than any key's. */
size_t glk_conf_distance(const char *a, const char *b);

/* What was probably meant by a name that is not known; -1 and NULL for no idea. */
int glk_conf_nearest(const char *section, const char *key);
const char *glk_conf_nearest_section(const char *section);

/* Whether a variable that begins with GLAKE_ is one of no key and yet meant for one: that of a
 * section, or nearly that of a key, whose id it gives; -1 for no idea. */
bool glk_conf_misspelled(const char *variable, int *ret_id);

#endif
