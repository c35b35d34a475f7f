/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes what people read about the configuration from the one table of keys, so that it
 * cannot fall behind: the manual page, and the file that is installed. It runs on the machine
 * that builds and is not installed.
 *
 *	conf page HEAD TAIL	the manual page: HEAD, one entry a key, TAIL
 *	conf file		the file, every key of users at its default in a comment
 */
#include "base/conf_table.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PAGE_WIDTH 72
#define FILE_WIDTH 90

/* One word for mdoc(7), where a point or an apostrophe at the begin of a line is a request. */
static void print_roff_word(const char *word, size_t length, bool first)
{
	if (first && (*word == '.' || *word == '\''))
		fputs("\\&", stdout);
	for (size_t i = 0; i < length; i++) {
		if (word[i] == '\\')
			fputs("\\e", stdout);
		else if (word[i] == '\'')
			fputs("\\(aq", stdout);
		else
			putchar(word[i]);
	}
}

/* Words in lines that are not too long, each sentence from a line of its own. */
static void print_roff(const char *text)
{
	size_t column = 0, length;

	for (; *text; text += length, text += strspn(text, " ")) {
		length = strcspn(text, " ");
		if (column && column + 1 + length > PAGE_WIDTH) {
			putchar('\n');
			column = 0;
		}
		if (column)
			putchar(' ');
		print_roff_word(text, length, !column);
		column += 1 + length;
		if (text[length - 1] == '.' && text[length]) {
			putchar('\n');
			column = 0;
		}
	}
	putchar('\n');
}

static void print_key(size_t id, const struct glk_conf_key *key)
{
	char range[GLK_CONF_RANGE_MAX], variable[GLK_CONF_VARIABLE_MAX];
	const char *function = glk_conf_changed_by(id);

	glk_conf_range(key, range, sizeof(range));
	glk_conf_variable(key, variable, sizeof(variable));
	printf(".It Ic %s Pq %s, Ev %s\n", key->key, glk_conf_type_name(key->type),
		variable);
	print_roff(key->help);
	if (key->type == GLK_TYPE_CHOICE || key->type == GLK_TYPE_BOOL)
		printf("One of %s.\n", range);
	else
		printf("Range: %s.\n", range);
	if (*key->default_value)
		printf("Default:\n.Li %s .\n", key->default_value);
	if (key->live)
		printf("While the program runs,\n.Xr glake_conf_set 3\nchanges it, and "
		       "at its socket\n.Ql config.set .\n");
	if (key->live && strcmp(function, "glake_conf_set"))
		printf("For one GPU\n.Xr %s 3\nchanges it.\n", function);
	if (function && !key->live)
		printf("While the program runs,\n.Xr %s 3\nchanges it.\n", function);
}

static int copy(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[512];

	if (!file) {
		perror(path);
		return 1;
	}
	while (fgets(line, sizeof(line), file))
		fputs(line, stdout);
	return fclose(file);
}

/* The keys of users, or those of tests. */
static void print_keys(bool test)
{
	const struct glk_conf_key *key;
	const char *section = "";

	for (size_t id = 0; (key = glk_conf_key(id)); id++) {
		if (key->test != test)
			continue;
		if (strcmp(section, key->section)) {
			if (*section)
				puts(".El");
			section = key->section;
			printf(".Ss Section %s\n.Bl -tag -width Ds\n", section);
		}
		print_key(id, key);
	}
	puts(".El");
}

static int print_page(const char *head, const char *tail)
{
	if (copy(head))
		return 1;
	print_keys(false);
	puts(".Sh KEYS OF TESTS");
	print_roff(
		"These are for tests and measurements: of the software device, which is there where a "
		"program is to run without a GPU, and of the library. The installed file leaves them out, "
		"and they may change.");
	print_keys(true);
	return copy(tail);
}

/* Prints words behind "# ", in lines of FILE_WIDTH. */
static void print_comment(const char *text)
{
	size_t column = 0, length;

	for (; *text; text += length, text += strspn(text, " ")) {
		length = strcspn(text, " ");
		if (!column || column + 1 + length > FILE_WIDTH) {
			printf("%s#", column ? "\n" : "");
			column = 1;
		}
		printf(" %.*s", (int)length, text);
		column += 1 + length;
	}
	putchar('\n');
}

static void print_file(void)
{
	const struct glk_conf_key *key;
	char range[GLK_CONF_RANGE_MAX];
	const char *section = "";

	print_comment(
		"The configuration of glake; see glake.conf(5). Every key stands here at its "
		"default: to change one, take the ';' away. 'glakectl conf check' tells "
		"what is wrong with this file, 'glakectl conf show' what holds. The "
		"environment variable GLAKE_<SECTION>_<KEY> wins over this file, and the "
		"program over both.");
	for (size_t id = 0; (key = glk_conf_key(id)); id++) {
		if (key->test)
			continue;
		if (strcmp(section, key->section)) {
			section = key->section;
			printf("\n[%s]\n", section);
		}
		glk_conf_range(key, range, sizeof(range));
		putchar('\n');
		print_comment(key->help);
		printf("# %s: %s\n", glk_conf_type_name(key->type), range);
		printf(";%s =%s%s\n", key->key, *key->default_value ? " " : "",
			key->default_value);
	}
}

int main(int argc, char **argv)
{
	int err = 0;

	if (argc == 4 && !strcmp(argv[1], "page")) {
		err = print_page(argv[2], argv[3]);
	} else if (argc == 2 && !strcmp(argv[1], "file")) {
		print_file();
	} else {
		fputs("usage: conf page HEAD TAIL | conf file\n", stderr);
		return 2;
	}
	return err || fflush(stdout) || ferror(stdout);
}
