/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl conf show: one line a key, with the value that holds and the place it came from.
 * Without a context the library tells what a program would run with that is opened now, so
 * this reads the same files and variables and needs no GPU.
 */
#include "tool/conf.h"

#include "base/conf_table.h"
#include "base/json.h"
#include "tool/info.h"
#include "tool/tool.h"

#include <glake/conf.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const struct option long_options[] = {
	{"default", no_argument, NULL, 'd'},
	{"help-keys", no_argument, NULL, 'k'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

/* "pool.budget", or GLAKE_POOL_BUDGET, or "pool" for all keys of the section. */
static bool is_named(const char *name, size_t index, const struct glake_conf_key *key)
{
	size_t length = strlen(key->section);
	char variable[GLK_CONF_VARIABLE_MAX];

	glk_conf_variable(glk_conf_key(index), variable, sizeof(variable));
	if (!strcmp(name, variable))
		return true;
	if (strncmp(name, key->section, length))
		return false;
	return !name[length] ||
		(name[length] == '.' && !strcmp(name + length + 1, key->key));
}

int conf_next(const struct conf_wanted *wanted, size_t *index,
	struct glake_conf_key *ret_key, struct glake_conf_value *ret_value)
{
	for (;;) {
		bool named = !*wanted->names;
		int err;

		*ret_key = (struct glake_conf_key){.sz = sizeof(*ret_key)};
		*ret_value = (struct glake_conf_value){.sz = sizeof(*ret_value)};
		if (glake_conf_key_get(*index, ret_key))
			return 0;
		for (char **name = wanted->names; *name; name++)
			named |= is_named(*name, *index, ret_key);
		++*index;
		if (!named)
			continue;
		snprintf(ret_value->text, sizeof(ret_value->text), "%s",
			ret_key->default_value);
		err = wanted->defaults
			? 0
			: glake_conf_value_get(NULL, *index - 1, ret_value);
		return err ? err : 1;
	}
}

void conf_print_words(const char *text)
{
	size_t column = 0, length;

	for (; *text; text += length, text += strspn(text, " ")) {
		length = strcspn(text, " ");
		if (!column || column + 1 + length > 80) {
			printf("%s   ", column ? "\n" : "");
			column = 3;
		}
		printf(" %.*s", (int)length, text);
		column += 1 + length;
	}
	putchar('\n');
}

void conf_print_origin(const struct glake_conf_value *value)
{
	if (value->origin == GLAKE_CONF_FILE)
		printf("%s:%d\n", value->source, value->line);
	else if (value->origin == GLAKE_CONF_ENV)
		printf("%s\n", value->source);
	else
		printf("%s\n", info_origin(value->origin));
}

int conf_next_shown(const struct conf_wanted *wanted, size_t *index,
	struct glake_conf_key *ret_key, struct glake_conf_value *ret_value)
{
	int err;

	do
		err = conf_next(wanted, index, ret_key, ret_value);
	while (err > 0 && !*wanted->names && glk_conf_key(*index - 1)->test &&
		ret_value->origin == GLAKE_CONF_DEFAULT);
	return err;
}

static int print_table(const struct conf_wanted *wanted)
{
	struct glake_conf_value value;
	struct glake_conf_key key;
	int name_width = 3, value_width = 5, err, width;
	char name[128];

	/* Widths first, which also finds out whether there is anything to print. */
	for (size_t i = 0; (err = conf_next_shown(wanted, &i, &key, &value)) > 0;) {
		width = (int)(strlen(key.section) + 1 + strlen(key.key));
		name_width = width > name_width ? width : name_width;
		width = (int)strlen(value.text);
		value_width = width > value_width ? width : value_width;
	}
	if (err)
		return err;
	/* A long text shall not push all origins off the screen. */
	value_width = value_width > 24 ? 24 : value_width;
	printf("%-*s  %-*s  ORIGIN\n", name_width, "KEY", value_width, "VALUE");
	for (size_t i = 0; (err = conf_next_shown(wanted, &i, &key, &value)) > 0;) {
		snprintf(name, sizeof(name), "%s.%s", key.section, key.key);
		printf("%-*s  %-*s  ", name_width, name, value_width,
			*value.text ? value.text : "-");
		conf_print_origin(&value);
		if (!wanted->explain)
			continue;
		conf_print_words(key.help);
		printf("    %s: %s\n", key.type, key.range);
		printf("    default: %s\n%s\n",
			*key.default_value ? key.default_value : "-",
			key.live ? "    may change while the program runs\n" : "");
	}
	if (!err && !wanted->defaults && !*wanted->names)
		info_print_conf_file("\nFile: ");
	return err;
}

int conf_print_json(const struct conf_wanted *wanted)
{
	struct glake_conf_value value;
	struct glake_conf_key key;
	char variable[GLK_CONF_VARIABLE_MAX];
	const char *function;
	struct glk_json json;
	size_t i = 0;
	int err;

	/* An error comes with the first key, before anything was written. */
	err = conf_next(wanted, &i, &key, &value);
	if (err < 0)
		return err;
	glk_json_init(&json, stdout, 2);
	glk_json_array(&json);
	for (; err > 0; err = conf_next(wanted, &i, &key, &value)) {
		glk_json_object(&json);
		glk_json_add_text(&json, "section", key.section);
		glk_json_add_text(&json, "key", key.key);
		glk_json_add_text(&json, "type", key.type);
		glk_json_add_text(&json, "value", value.text);
		glk_json_add_text(&json, "default", key.default_value);
		glk_json_add_text(&json, "origin", info_origin(value.origin));
		glk_json_add_text(&json, "source", value.source);
		glk_json_add_int(&json, "line", value.line);
		glk_json_add_text(&json, "range", key.range);
		glk_json_add_text(&json, "help", key.help);
		glk_conf_variable(glk_conf_key(i - 1), variable, sizeof(variable));
		glk_json_add_text(&json, "environment", variable);
		function = glk_conf_changed_by(i - 1);
		glk_json_add_text(&json, "changed_by", function ? function : "");
		glk_json_key(&json, "live");
		glk_json_bool(&json, key.live);
		glk_json_key(&json, "test");
		glk_json_bool(&json, glk_conf_key(i - 1)->test);
		glk_json_end(&json);
	}
	glk_json_end(&json);
	return glk_json_fini(&json) ? -EIO : err;
}

/* What was probably meant by a name that is not known: a key, or a section. No idea: no text. */
static void add_nearest(const char *name, char *text, size_t size)
{
	const char *dot = strchr(name, '.'), *section;
	char before[64];
	int id = -1;

	snprintf(before, sizeof(before), "%.*s", dot ? (int)(dot - name) : 0, name);
	section = dot ? glk_conf_nearest_section(before) : NULL;
	if (!strncmp(name, "GLAKE_", strlen("GLAKE_")))
		glk_conf_misspelled(name, &id);
	else
		id = glk_conf_nearest(section ? section : "", dot ? dot + 1 : name);
	if (id < 0 && !section)
		section = glk_conf_nearest_section(name);
	if (id >= 0)
		snprintf(text, size, "; did you mean %s.%s?",
			glk_conf_key((size_t)id)->section, glk_conf_key((size_t)id)->key);
	else if (section)
		snprintf(text, size, "; did you mean %s?", section);
}

int conf_check_names(const char *command, char **names)
{
	struct glake_conf_key key = {.sz = sizeof(key)};
	char nearest[128] = "";
	bool known;

	for (; *names; names++) {
		known = false;
		for (size_t i = 0; !known && !glake_conf_key_get(i, &key); i++)
			known = is_named(*names, i, &key);
		if (known)
			continue;
		add_nearest(*names, nearest, sizeof(nearest));
		return glk_tool_usage(
			command, "there is no key or section '%s'%s", *names, nearest);
	}
	return 0;
}

int conf_status(int err)
{
	if (!err)
		return GLK_TOOL_OK;
	/* -EIO: which the end of the program explains */
	if (err != -EIO) {
		glk_tool_say_error("the configuration is not right", err);
		glk_tool_say("'glakectl conf check' tells all that is wrong");
	}
	return GLK_TOOL_FAILED;
}

int conf_show(int argc, char **argv)
{
	struct conf_wanted wanted = {.defaults = false};
	bool json = false;
	int c;

	while ((c = glk_tool_option(argc, argv, long_options)) != -1) {
		switch (c) {
		case 'd':
			wanted.defaults = true;
			break;
		case 'k':
			wanted.explain = true;
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			conf_print_help();
			return GLK_TOOL_OK;
		default:
			return GLK_TOOL_USAGE;
		}
	}
	wanted.names = argv + optind;
	if (conf_check_names(CONF_SHOW, wanted.names))
		return GLK_TOOL_USAGE;
	return conf_status(json ? conf_print_json(&wanted) : print_table(&wanted));
}
