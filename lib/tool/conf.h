/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_CONF_H
#define GLK_TOOL_CONF_H

/* The parts of glakectl conf; conf.c has the help for all of them. */
#include <stdbool.h>
#include <stddef.h>

#define CONF_SHOW    "conf show"
#define CONF_EXPLAIN "conf explain"

struct glake_conf_key;
struct glake_conf_value;

void conf_print_help(void);

/* glakectl conf show and explain; they return the exit status. */
int conf_show(int argc, char **argv);
int conf_explain(int argc, char **argv);

/* Which keys are wanted, and how. */
struct conf_wanted {
	bool defaults, explain;
	char **names; /* NULL at their end; none of them: all keys */
};

/*
 * The next key that is wanted from *index on, which moves behind it. 1; 0 past the last; -errno
 * with a record when the configuration is not right, which leaves the key without a value.
 */
int conf_next(const struct conf_wanted *wanted, size_t *index,
	struct glake_conf_key *ret_key, struct glake_conf_value *ret_value);

/* The same of those that a list for people has: without names keys of tests are not, unless one is set. */
int conf_next_shown(const struct conf_wanted *wanted, size_t *index,
	struct glake_conf_key *ret_key, struct glake_conf_value *ret_value);

/* All that is wanted, as JSON. 0 or -errno, -EIO when it could not be written. */
int conf_print_json(const struct conf_wanted *wanted);
/* Words in lines of 80, behind four blanks. */
void conf_print_words(const char *text);
/* Where a value came from. */
void conf_print_origin(const struct glake_conf_value *value);

/* 0, or 2 after a message when a name is neither a key, nor its variable, nor a section. */
int conf_check_names(const char *command, char **names);
/* The exit status of what conf_next and conf_print_json answer, after a message. */
int conf_status(int err);

#endif
