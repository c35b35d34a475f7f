/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl conf explain: all that there is to know about a key. Without a name it lists the keys,
 * each with the first sentence of its help, for who looks for one by what it does.
 */
#include "tool/conf.h"

#include "base/conf_table.h"
#include "tool/tool.h"

#include <glake/conf.h>

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const struct option long_options[] = {
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

#define SENTENCE_MAX 1024

/* Up to the point, or to what only adds to it. */
static void print_first_sentence(const char *help)
{
	char text[SENTENCE_MAX];
	size_t length = 0;

	while (help[length] &&
		!(strchr(".;", help[length]) &&
			(!help[length + 1] || help[length + 1] == ' ')))
		length++;
	snprintf(text, sizeof(text), "%.*s", (int)length, help);
	conf_print_words(text);
}

static void print_list(void)
{
	const struct glk_conf_key *key;
	const char *section = "";

	for (size_t id = 0; (key = glk_conf_key(id)); id++) {
		if (*section && strcmp(section, key->section))
			putchar('\n');
		section = key->section;
		printf("%s.%s\n", section, key->key);
		print_first_sentence(key->help);
	}
}

static void print_value(const struct glake_conf_value *value, bool known)
{
	if (!known) {
		printf("    value:        not known\n");
		return;
	}
	printf("    value:        %s, ", *value->text ? value->text : "-");
	conf_print_origin(value);
}

static void print_key(size_t id, const struct glake_conf_key *key)
{
	const char *function = glk_conf_changed_by(id);
	char variable[GLK_CONF_VARIABLE_MAX];

	glk_conf_variable(glk_conf_key(id), variable, sizeof(variable));
	printf("    type:         %s\n", key->type);
	printf("    range:        %s\n", key->range);
	printf("    default:      %s\n", *key->default_value ? key->default_value : "-");
	printf("    environment:  %s\n", variable);
	if (key->live)
		printf("    at run time:  %s%s changes it, config.set does at the socket\n",
			strcmp(function, "glake_conf_set") ? "glake_conf_set or " : "",
			function);
	else if (function)
		printf("    at run time:  %s changes it\n", function);
	else
		printf("    at run time:  as it was when the program opened glake\n");
}

/* Goes on where the configuration is not right: what a key means is known all the same. */
static int print_keys(const struct conf_wanted *wanted)
{
	struct glake_conf_value value;
	struct glake_conf_key key;
	int err, wrong = 0, shown = 0;
	size_t i = 0;

	while ((err = conf_next_shown(wanted, &i, &key, &value))) {
		wrong = err < 0 ? err : wrong;
		printf("%s%s.%s\n", shown++ ? "\n" : "", key.section, key.key);
		conf_print_words(key.help);
		print_value(&value, err > 0);
		print_key(i - 1, &key);
	}
	return wrong;
}

int conf_explain(int argc, char **argv)
{
	struct conf_wanted wanted = {.explain = true};
	bool json = false;
	int c;

	while ((c = glk_tool_option(argc, argv, long_options)) != -1) {
		switch (c) {
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
	if (conf_check_names(CONF_EXPLAIN, wanted.names))
		return GLK_TOOL_USAGE;
	if (json)
		return conf_status(conf_print_json(&wanted));
	if (*wanted.names)
		return conf_status(print_keys(&wanted));
	print_list();
	return GLK_TOOL_OK;
}
