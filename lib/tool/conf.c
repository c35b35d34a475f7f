/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl conf: the configuration before and after it meets a program. `check` says what is
 * wrong with a file and what would be right; `show` says which values hold and where each of
 * them came from, which is the first question when a program does not do what its
 * configuration file says; `explain` tells what a key means. None touches a GPU.
 *
 * Findings are printed as compilers do, so that editors can jump to them.
 */
#include "tool/tool.h"

#include "base/conf_table.h"
#include "base/json.h"

#include <glake/conf.h>
#include <glake/context.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK	"conf check"
#define SHOW	"conf show"
#define EXPLAIN "conf explain"

static const struct option check_options[] = {
	{"conf", required_argument, NULL, 'c'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl conf check [OPTION]... [FILE]\n"
	"       glakectl conf show [OPTION]... [KEY]...\n"
	"       glakectl conf explain [OPTION]... [KEY]...\n"
	"\n"
	"check reads the configuration as a program would that opens glake: FILE (the\n"
	"installed one unless given), then the environment. It reports each mistake with file\n"
	"and line. Exit status: 0 no errors, perhaps warnings; 1 errors; 2 wrong usage.\n"
	"\n"
	"show prints the values that such a program would run with, and their origins: all\n"
	"keys, or those that are named, as pool.budget, GLAKE_POOL_BUDGET or pool.\n"
	"\n"
	"explain tells all about the keys that are named: meaning, type, range, default, value\n"
	"and origin, variable, and what changes it at run time. Without a KEY it lists them.\n"
	"\n"
	"  -c, --conf KEY=VALUE  check: as if the program set this key too; repeatable\n"
	"  -d, --default         show: the defaults alone\n"
	"  -k, --help-keys       show: each key's meaning and range too\n"
	"  -j, --json            the report as JSON\n"
	"  -h, --help            this text\n";

static void conf_print_help(void)
{
	fputs(help, stdout);
}

/* Which keys are wanted, and how. */
struct conf_wanted {
	bool defaults, explain;
	char **names; /* NULL at their end; none of them: all keys */
};

struct check {
	const char *file;
	struct glk_json *json; /* NULL: for a person */
	unsigned int errors, warnings;
};

static void print_finding(const struct glake_conf_finding *finding)
{
	printf("%s", *finding->file ? finding->file : "--conf");
	if (finding->line)
		printf(":%d", finding->line);
	printf(": %s: %s%s%s\n", finding->error ? "error" : "warning", finding->key,
		*finding->key ? ": " : "", finding->text);
}

static void on_finding(const struct glake_conf_finding *finding, void *arg)
{
	struct check *check = arg;

	if (finding->error)
		check->errors++;
	else
		check->warnings++;
	if (!check->json) {
		print_finding(finding);
		return;
	}
	glk_json_object(check->json);
	glk_json_add_text(check->json, "severity", finding->error ? "error" : "warning");
	glk_json_add_text(check->json, "file", finding->file);
	glk_json_add_int(check->json, "line", finding->line);
	glk_json_add_text(check->json, "key", finding->key);
	glk_json_add_text(check->json, "text", finding->text);
	glk_json_end(check->json);
}

static void print_summary(const struct check *check, bool installed)
{
	const char *absent = "";

	if (installed && access(check->file, F_OK))
		absent = ": there is no such file, which is no mistake";
	if (check->errors)
		printf("%s: %u error%s, %u warning%s\n", check->file, check->errors,
			check->errors == 1 ? "" : "s", check->warnings,
			check->warnings == 1 ? "" : "s");
	else if (check->warnings)
		printf("%s%s; ok, with %u warning%s\n", check->file, absent,
			check->warnings, check->warnings == 1 ? "" : "s");
	else
		printf("%s%s; ok\n", check->file, absent);
}

static int run_check(const char *file, const char *const *settings, bool as_json)
{
	struct glake_options options = {
		.sz = sizeof(options), .conf_file = file, .settings = settings};
	struct check check = {.file = file ? file : glake_conf_path()};
	struct glk_json json;
	int err;

	if (as_json) {
		check.json = &json;
		glk_json_init(&json, stdout, 2);
		glk_json_object(&json);
		glk_json_add_text(&json, "file", check.file);
		glk_json_key(&json, "findings");
		glk_json_array(&json);
	}
	err = glake_conf_check(&options, on_finding, &check);
	if (as_json) {
		glk_json_end(&json);
		glk_json_add_uint(&json, "errors", check.errors);
		glk_json_add_uint(&json, "warnings", check.warnings);
		glk_json_add_bool(&json, "ok", !err);
		glk_json_end(&json);
		if (glk_json_fini(&json))
			return GLK_TOOL_FAILED;
	} else if (!err || check.errors) {
		print_summary(&check, !file);
	}
	if (err && !check.errors)
		glk_tool_say_error(check.file, err);
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static int check_command(int argc, char **argv)
{
	/* Holds the settings alone: nothing is opened. */
	struct glk_tool_context wanted = {.count = 0};
	bool json = false;
	int c, status = 0;

	while (!status && (c = glk_tool_option(argc, argv, check_options)) != -1) {
		switch (c) {
		case 'c':
			status = glk_tool_add_setting(&wanted, CHECK, optarg);
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
	if (status)
		return status;
	if (argc - optind > 1)
		return glk_tool_usage(
			CHECK, "one FILE is expected, not also '%s'", argv[optind + 1]);
	return run_check(argv[optind], wanted.settings, json);
}

/*
 * glakectl conf show: one line a key, with the value that holds and the place it came from.
 * Without a context the library tells what a program would run with that is opened now, so
 * this reads the same files and variables and needs no GPU.
 */

static const struct option show_options[] = {
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

/*
 * The next key that is wanted from *index on, which moves behind it. 1; 0 past the last; -errno
 * with a record when the configuration is not right, which leaves the key without a value.
 */
static int conf_next(const struct conf_wanted *wanted, size_t *index,
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

/* Words in lines of 80, behind four blanks. */
static void conf_print_words(const char *text)
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

const char *glk_tool_origin(int origin)
{
	switch (origin) {
	case GLAKE_CONF_DEFAULT:
		return "default";
	case GLAKE_CONF_FILE:
		return "file";
	case GLAKE_CONF_ENV:
		return "environment";
	case GLAKE_CONF_OPTION:
		return "option";
	}
	return "?";
}

static void conf_print_origin(const struct glake_conf_value *value)
{
	if (value->origin == GLAKE_CONF_FILE)
		printf("%s:%d\n", value->source, value->line);
	else if (value->origin == GLAKE_CONF_ENV)
		printf("%s\n", value->source);
	else
		printf("%s\n", glk_tool_origin(value->origin));
}

/* The same of those that a list for people has: without names keys of tests are not, unless one is set. */
static int conf_next_shown(const struct conf_wanted *wanted, size_t *index,
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
		printf("\nFile: %s%s\n", glake_conf_path(),
			access(glake_conf_path(), F_OK) ? ", which is not there" : "");
	return err;
}

/* All that is wanted, as JSON. 0 or -errno, -EIO when it could not be written. */
static int conf_print_json(const struct conf_wanted *wanted)
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
		glk_json_add_text(&json, "origin", glk_tool_origin(value.origin));
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

/* 0, or 2 after a message when a name is neither a key, nor its variable, nor a section. */
static int conf_check_names(const char *command, char **names)
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

/* The exit status of what conf_next and conf_print_json answer, after a message. */
static int conf_status(int err)
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

/* What `show` and `explain` are asked for. 0; -1: it is done, with an exit status. */
static int conf_read(int argc, char **argv, const char *command,
	const struct option *options, struct conf_wanted *wanted, bool *json,
	int *ret_status)
{
	int c;

	*ret_status = GLK_TOOL_USAGE;
	while ((c = glk_tool_option(argc, argv, options)) != -1) {
		switch (c) {
		case 'd':
			wanted->defaults = true;
			break;
		case 'k':
			wanted->explain = true;
			break;
		case 'j':
			*json = true;
			break;
		case 'h':
			conf_print_help();
			*ret_status = GLK_TOOL_OK;
			return -1;
		default:
			return -1;
		}
	}
	wanted->names = argv + optind;
	return conf_check_names(command, wanted->names) ? -1 : 0;
}

static int conf_show(int argc, char **argv)
{
	struct conf_wanted wanted = {.defaults = false};
	bool json = false;
	int status;

	if (conf_read(argc, argv, SHOW, show_options, &wanted, &json, &status))
		return status;
	return conf_status(json ? conf_print_json(&wanted) : print_table(&wanted));
}

/*
 * glakectl conf explain: all that there is to know about a key. Without a name it lists the keys,
 * each with the first sentence of its help, for who looks for one by what it does.
 */

static const struct option explain_options[] = {
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

#define SENTENCE_MAX 1024

/* Up to the point, or to what only adds to it. */
static void print_first_sentence(const char *sentence)
{
	char text[SENTENCE_MAX];
	size_t length = 0;

	while (sentence[length] &&
		!(strchr(".;", sentence[length]) &&
			(!sentence[length + 1] || sentence[length + 1] == ' ')))
		length++;
	snprintf(text, sizeof(text), "%.*s", (int)length, sentence);
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

static int conf_explain(int argc, char **argv)
{
	struct conf_wanted wanted = {.explain = true};
	bool json = false;
	int status;

	if (conf_read(argc, argv, EXPLAIN, explain_options, &wanted, &json, &status))
		return status;
	if (json)
		return conf_status(conf_print_json(&wanted));
	if (*wanted.names)
		return conf_status(print_keys(&wanted));
	print_list();
	return GLK_TOOL_OK;
}

int glk_tool_conf(int argc, char **argv)
{
	static char check_name[] = CHECK, show_name[] = SHOW;
	static char explain_name[] = EXPLAIN;
	const char *what = argc > 1 ? argv[1] : NULL;

	if (!what)
		return glk_tool_usage("conf", "'check', 'show' or 'explain' is missing");
	if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
		conf_print_help();
		return GLK_TOOL_OK;
	}
	if (!strcmp(what, "check")) {
		argv[1] = check_name;
		return check_command(argc - 1, argv + 1);
	}
	if (!strcmp(what, "show")) {
		argv[1] = show_name;
		return conf_show(argc - 1, argv + 1);
	}
	if (!strcmp(what, "explain")) {
		argv[1] = explain_name;
		return conf_explain(argc - 1, argv + 1);
	}
	return glk_tool_usage(
		"conf", "'check', 'show' or 'explain' is expected, not '%s'", what);
}
