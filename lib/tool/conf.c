/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl conf: the configuration before and after it meets a program. `check` says what is
 * wrong with a file and what would be right; `show` says which values hold and where each of
 * them came from, which is the first question when a program does not do what its
 * configuration file says; `explain` tells what a key means. None touches a GPU.
 *
 * Findings are printed as compilers do, so that editors can jump to them.
 */
#include "tool/conf.h"

#include "base/json.h"
#include "tool/tool.h"

#include <glake/conf.h>
#include <glake/context.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK "conf check"

static const struct option long_options[] = {
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

void conf_print_help(void)
{
	fputs(help, stdout);
}

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

	while (!status && (c = glk_tool_option(argc, argv, long_options)) != -1) {
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

int glk_tool_conf(int argc, char **argv)
{
	static char check_name[] = CHECK, show_name[] = CONF_SHOW;
	static char explain_name[] = CONF_EXPLAIN;
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
