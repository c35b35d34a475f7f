/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl conf show: one line a key, with the value that holds and the place it came from.
 * Without a context the library tells what a program would run with that is opened now, so
 * this reads the same files and variables and needs no GPU.
 */
#include "tool/conf.h"

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

struct show {
	bool defaults, explain;
	char **names; /* NULL at their end; none of them: all keys */
};

/* "pool.budget", or "pool" for all keys of the section. */
static bool is_named(const char *name, const struct glake_conf_key *key)
{
	size_t length = strlen(key->section);

	if (strncmp(name, key->section, length))
		return false;
	return !name[length] ||
		(name[length] == '.' && !strcmp(name + length + 1, key->key));
}

/*
 * The next key to show from *index on, which moves behind it. 1; 0 past the last; -errno with
 * a record when the configuration is not right.
 */
static int next(const struct show *show, size_t *index, struct glake_conf_key *ret_key,
	struct glake_conf_value *ret_value)
{
	for (;;) {
		bool wanted = !*show->names;
		int err;

		*ret_key = (struct glake_conf_key){.sz = sizeof(*ret_key)};
		*ret_value = (struct glake_conf_value){.sz = sizeof(*ret_value)};
		if (glake_conf_key_get(*index, ret_key))
			return 0;
		for (char **name = show->names; *name; name++)
			wanted |= is_named(*name, ret_key);
		++*index;
		if (!wanted)
			continue;
		snprintf(ret_value->text, sizeof(ret_value->text), "%s",
			ret_key->default_value);
		err = show->defaults ? 0
				     : glake_conf_value_get(NULL, *index - 1, ret_value);
		return err ? err : 1;
	}
}

static void print_words(const char *text)
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

static void print_origin(const struct glake_conf_value *value)
{
	if (value->origin == GLAKE_CONF_FILE)
		printf("%s:%d\n", value->source, value->line);
	else if (value->origin == GLAKE_CONF_ENV)
		printf("%s\n", value->source);
	else
		printf("%s\n", info_origin(value->origin));
}

static int print_table(const struct show *show)
{
	struct glake_conf_value value;
	struct glake_conf_key key;
	int name_width = 3, value_width = 5, err, width;
	char name[128];

	/* Widths first, which also finds out whether there is anything to print. */
	for (size_t i = 0; (err = next(show, &i, &key, &value)) > 0;) {
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
	for (size_t i = 0; (err = next(show, &i, &key, &value)) > 0;) {
		snprintf(name, sizeof(name), "%s.%s", key.section, key.key);
		printf("%-*s  %-*s  ", name_width, name, value_width,
			*value.text ? value.text : "-");
		print_origin(&value);
		if (!show->explain)
			continue;
		print_words(key.help);
		printf("    %s: %s\n", key.type, key.range);
		printf("    default: %s\n\n",
			*key.default_value ? key.default_value : "-");
	}
	if (!err && !show->defaults && !*show->names)
		info_print_conf_file("\nFile: ");
	return err;
}

static int print_json(const struct show *show)
{
	struct glake_conf_value value;
	struct glake_conf_key key;
	struct glk_json json;
	size_t i = 0;
	int err;

	/* An error comes with the first key, before anything was written. */
	err = next(show, &i, &key, &value);
	if (err < 0)
		return err;
	glk_json_init(&json, stdout, 2);
	glk_json_array(&json);
	for (; err > 0; err = next(show, &i, &key, &value)) {
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
		glk_json_end(&json);
	}
	glk_json_end(&json);
	return glk_json_fini(&json) ? -EIO : err;
}

/* The first name that is neither a key nor a section, or NULL. */
static const char *unknown_name(char **names)
{
	struct glake_conf_key key = {.sz = sizeof(key)};
	bool known;

	for (; *names; names++) {
		known = false;
		for (size_t i = 0; !known && !glake_conf_key_get(i, &key); i++)
			known = is_named(*names, &key);
		if (!known)
			return *names;
	}
	return NULL;
}

int conf_show(int argc, char **argv)
{
	struct show show = {.defaults = false};
	const char *unknown;
	bool json = false;
	int c, err;

	while ((c = glk_tool_option(argc, argv, long_options)) != -1) {
		switch (c) {
		case 'd':
			show.defaults = true;
			break;
		case 'k':
			show.explain = true;
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
	show.names = argv + optind;
	unknown = unknown_name(show.names);
	if (unknown)
		return glk_tool_usage(
			CONF_SHOW, "there is no key or section '%s'", unknown);
	err = json ? print_json(&show) : print_table(&show);
	if (err == -EIO)
		return GLK_TOOL_FAILED; /* which the end of the program explains */
	if (err) {
		glk_tool_say_error("the configuration is not right", err);
		glk_tool_say("'glakectl conf check' tells all that is wrong");
	}
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}
