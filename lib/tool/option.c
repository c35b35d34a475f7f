/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Options of all commands. The same name means the same everywhere: --driver chooses what the
 * library runs on, --conf sets a key of glake.conf(5). A mistake is told in one line that
 * names the command, what was given and what would be right.
 *
 * From them a command comes to its context. A person without a GPU is told once that the figures
 * are those of the software device.
 */
#include "tool/tool.h"

#include "base/conf_table.h"
#include "base/parse.h"

#include <glake/conf.h>
#include <glake/context.h>
#include <glake/info.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 32 /* of a word that is misspelt */

/* Makes the short form ":hqV..." that getopt wants from the table of long options; with a '+' in front
 * they end where another word comes. */
static void short_options(
	const struct option *options, bool before, char *buffer, size_t size)
{
	size_t at = 0;

	if (before)
		buffer[at++] = '+';
	buffer[at++] = ':';
	for (; options->name && at + 3 < size; options++) {
		if (options->val <= ' ' || options->val > '~')
			continue;
		buffer[at++] = (char)options->val;
		if (options->has_arg == required_argument)
			buffer[at++] = ':';
	}
	buffer[at] = '\0';
}

const char *glk_tool_nearest(const char *word, const char *name, const char *best)
{
	size_t far = glk_conf_distance(word, name);

	if (far > strlen(word) / 3 + 1 || far >= strlen(name) ||
		(best && glk_conf_distance(word, best) <= far))
		return best;
	return name;
}

/* A long option as it was typed. */
static void say_unknown(
	const char *command, const char *typed, const struct option *options)
{
	const char *equals = strchr(typed, '='), *best = NULL;
	char word[WORD_MAX + 1];

	snprintf(word, sizeof(word), "%.*s",
		equals ? (int)(equals - typed) - 2 : WORD_MAX, typed + 2);
	for (; options->name; options++)
		best = glk_tool_nearest(word, options->name, best);
	if (best)
		glk_tool_usage(command, "unknown option '%s', is it --%s", typed, best);
	else
		glk_tool_usage(command, "unknown option '%s'", typed);
}

static int next_option(int argc, char **argv, const struct option *options, bool before)
{
	char shorts[64];
	int c;

	short_options(options, before, shorts, sizeof(shorts));
	opterr = 0;
	c = getopt_long(argc, argv, shorts, options, NULL);
	if (c == ':')
		glk_tool_usage(
			argv[0], "option '%s' needs an argument", argv[optind - 1]);
	else if (c == '?' && !optopt)
		say_unknown(argv[0], argv[optind - 1], options);
	else if (c == '?' && strchr(argv[optind - 1], '='))
		glk_tool_usage(argv[0], "'%s': it takes no argument", argv[optind - 1]);
	else if (c == '?')
		glk_tool_usage(argv[0], "unknown option '-%c'", optopt);
	return c == ':' ? '?' : c;
}

int glk_tool_option(int argc, char **argv, const struct option *options)
{
	return next_option(argc, argv, options, false);
}

int glk_tool_option_before(int argc, char **argv, const struct option *options)
{
	return next_option(argc, argv, options, true);
}

static int set_driver(
	struct glk_tool_context *wanted, const char *command, const char *text)
{
	if (!strcmp(text, "auto"))
		wanted->backend = GLAKE_BACKEND_AUTO;
	else if (!strcmp(text, "soft"))
		wanted->backend = GLAKE_BACKEND_SOFT;
	else if (!strcmp(text, "cuda"))
		wanted->backend = GLAKE_BACKEND_CUDA;
	else
		return glk_tool_usage(
			command, "--driver is auto, soft or cuda, not '%s'", text);
	return 0;
}

int glk_tool_add_setting(
	struct glk_tool_context *wanted, const char *command, const char *text)
{
	if (!strchr(text, '='))
		return glk_tool_usage(
			command, "--conf takes SECTION.KEY=VALUE, not '%s'", text);
	if (wanted->count == GLK_TOOL_SETTINGS_MAX)
		return glk_tool_usage(
			command, "more than %d settings", GLK_TOOL_SETTINGS_MAX);
	wanted->settings[wanted->count++] = text;
	return 0;
}

int glk_tool_take_option(struct glk_tool_context *wanted, const char *command, int c)
{
	switch (c) {
	case 'd':
		return set_driver(wanted, command, optarg);
	case 'c':
		return glk_tool_add_setting(wanted, command, optarg);
	case 'j':
		wanted->json = true;
		return 0;
	case 'q':
		wanted->quiet = true;
		return 0;
	default:
		return GLK_TOOL_USAGE;
	}
}

int glk_tool_read_count(const char *command, const char *option, const char *text,
	int64_t max, unsigned *ret_count)
{
	int64_t value;

	if (glk_parse_int(text, &value) || value < 1 || value > max)
		return glk_tool_usage(command,
			"%s takes a number from 1 to %lld, not '%s'", option,
			(long long)max, text);
	*ret_count = (unsigned)value;
	return 0;
}

int glk_tool_read_gpu(const char *command, const char *text, int *ret_gpu)
{
	int64_t gpu;

	if (glk_parse_int(text, &gpu) || gpu < 0 || gpu >= GLK_TOOL_GPUS)
		return glk_tool_usage(command,
			"--gpu takes a number from 0 to %d, not '%s'", GLK_TOOL_GPUS - 1,
			text);
	*ret_gpu = (int)gpu;
	return 0;
}

static void say_fallback(struct glake *ctx)
{
	struct glake_driver driver = {.sz = sizeof(driver)};
	static bool said;

	if (said || glake_driver_get(ctx, &driver) || !driver.fallback[0])
		return;
	said = true;
	glk_tool_say("no GPU is used, this is the software device: %s", driver.fallback);
}

int glk_tool_open(const struct glk_tool_context *wanted, struct glake **ret_ctx)
{
	struct glake_options options = {
		.sz = sizeof(options),
		.backend = wanted->backend,
		.no_soft_warning = 1, /* say_fallback does */
		.settings = wanted->settings,
	};
	int err = glake_open(&options, ret_ctx);

	if (err)
		glk_tool_say_error("the library did not open", err);
	else if (!wanted->quiet)
		say_fallback(*ret_ctx);
	return err;
}

int glk_tool_value(struct glake *ctx, const char *section, const char *key,
	struct glake_conf_value *ret_value)
{
	struct glake_conf_key known = {.sz = sizeof(known)};
	size_t at = 0;
	int err;

	while (!(err = glake_conf_key_get(at, &known)) &&
		(strcmp(known.section, section) || strcmp(known.key, key)))
		at++;
	ret_value->sz = sizeof(*ret_value);
	return err ? err : glake_conf_value_get(ctx, at, ret_value);
}

const char *glk_tool_backend_name(struct glake *ctx)
{
	return glake_backend(ctx) == GLAKE_BACKEND_CUDA ? "cuda" : "soft";
}
