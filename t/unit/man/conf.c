/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the generator wrote: the file that is installed says nothing but the defaults, with
 * and without its comments, and the manual page names every key and is accepted by mandoc.
 *
 *	unit-man-conf GLAKE.CONF GLAKE.CONF.5
 */
#include "base/conf_table.h"
#include "unit/base/conf_found.h"

static char text[1 << 16];

static size_t read_whole(const char *path)
{
	FILE *file = fopen(path, "re");
	size_t size;

	if (!file)
		tap_bail("a generated file is missing");
	size = fread(text, 1, sizeof(text) - 1, file);
	text[size] = '\0';
	fclose(file);
	return size;
}

/* Takes the ';' from keys, which stand at the begin of their lines. */
static int uncomment(char *s)
{
	int count = 0;

	for (; *s; s = strchr(s, '\n') + 1) {
		if (*s == ';') {
			*s = ' ';
			count++;
		}
	}
	return count;
}

static void installed_file(const char *path)
{
	const struct glk_conf_key *key;
	struct glk_conf conf, defaults;
	char got[GLK_CONF_TEXT_MAX];
	int users = 0;

	glk_conf_init(&defaults);
	for (size_t id = 0; (key = glk_conf_key(id)); id++)
		users += !key->test;
	ok(read_whole(path) < 64 << 10, "the installed file may be read");
	is_int(read_text(text, &conf), 0, "it is right");
	is_int(found.count, 0, "nothing is found in it");
	ok(!memcmp(&conf, &defaults, sizeof(conf)), "it changes nothing");
	is_int(uncomment(text), users, "every key of users stands in a comment");
	is_int(read_text(text, &conf), 0, "without the comment marks it is right too");
	is_int(found.count, 0, "nothing is found in it");
	for (enum glk_conf_id id = 0; (key = glk_conf_key(id)); id++) {
		glk_conf_format(&conf, id, got, sizeof(got));
		if (key->test)
			is_int(conf.from[id].origin, GLAKE_CONF_DEFAULT,
				"one of tests does not");
		else
			ok(conf.from[id].origin == GLAKE_CONF_FILE &&
					!strcmp(got, key->default_value),
				"%s.%s is given at its default", key->section, key->key);
	}
}

static void manual_page(const char *path)
{
	char command[512], line[512], item[256], variable[GLK_CONF_VARIABLE_MAX];
	const struct glk_conf_key *key;
	FILE *lint;
	int complaints = 0;

	read_whole(path);
	ok(strstr(text, ".Sh KEYS OF TESTS\n") < strstr(text, ".It Ic gpus "),
		"keys of tests stand at the end");
	for (size_t id = 0; (key = glk_conf_key(id)); id++) {
		glk_conf_variable(key, variable, sizeof(variable));
		snprintf(item, sizeof(item), ".It Ic %s Pq %s, Ev %s\n", key->key,
			glk_conf_type_name(key->type), variable);
		ok(strstr(text, item), "the page has %s.%s", key->section, key->key);
	}
	ok(!strchr(text, '@'), "nothing is left to be filled in");
	if (system("command -v mandoc >/dev/null")) {
		tap_skip("mandoc -Tlint", "mandoc is not installed");
		return;
	}
	/* Other pages of ours need not be installed on the machine that builds. */
	snprintf(command, sizeof(command),
		"mandoc -Tlint '%s' | grep -v 'referenced manual not found'", path);
	lint = popen(command, "re");
	while (lint && fgets(line, sizeof(line), lint)) {
		tap_note("%.*s", (int)strcspn(line, "\n"), line);
		complaints++;
	}
	ok(lint && pclose(lint) >= 0 && !complaints, "mandoc -Tlint has no complaint");
}

int main(int argc, char **argv)
{
	if (argc != 3)
		tap_skip_all("needs the two generated files as arguments");
	tap_plan_later();
	clear_environment();
	make_folder();
	installed_file(argv[1]);
	manual_page(argv[2]);
	return tap_done();
}
