/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public functions: keys in order, structures of other sizes, findings, answers. */
#include "unit/base/conf_found.h"

#include <glake/conf.h>

static void keys(void)
{
	struct glake_conf_key key = {.sz = sizeof(key)};
	struct {
		size_t sz;
		const char *section;
	} older = {.sz = sizeof(older)};
	const char *range;
	size_t count = 0;

	is_int(glake_conf_key_get(0, &key), 0, "the first key");
	is_str(key.section, "log", "section");
	is_str(key.key, "level", "name");
	is_str(key.type, "choice", "type");
	is_str(key.default_value, "warning", "default");
	is_str(key.range, "none, error, warning, info, debug", "range");
	has_str(key.help, "Which messages", "help");
	range = key.range;
	for (; !glake_conf_key_get(count, &key); count++)
		ok(*key.section && *key.key && *key.type && *key.range && *key.help,
			"%s.%s is described", key.section, key.key);
	is_int(count, GLK_CONF_COUNT, "as many as the table has");
	is_int(glake_conf_key_get(count, &key), -ENOENT, "none past the last");
	is_int(glake_conf_key_get(SIZE_MAX, &key), -ENOENT, "none far behind it");
	glake_conf_key_get(0, &key);
	ok(key.range == range, "strings stay where they are");
	is_int(glake_conf_key_get(0, NULL), -EINVAL, "NULL");
	key.sz = 0;
	is_int(glake_conf_key_get(0, &key), -EINVAL, "no size");
	is_int(glake_conf_key_get(0, (struct glake_conf_key *)&older), 0,
		"an older program");
	is_str(older.section, "log", "gets what it knows");
}

static void check(void)
{
	struct glake_options options = {.sz = sizeof(options), .conf_file = found_path};

	write_text("[pool]\nbudget = much\nbugdet = 1\n");
	found_none();
	is_int(glake_conf_check(&options, on_finding, &found), -EINVAL, "a broken file");
	is_found(0, -EINVAL, 2, "pool.budget", "'much' is not a size");
	is_found(1, 0, 3, "pool.bugdet", "did you mean");
	is_int(glake_conf_check(&options, NULL, NULL), -EINVAL, "without a function");
	write_text("[pool]\nbudget = 1GiB\n");
	found_none();
	is_int(glake_conf_check(&options, on_finding, &found), 0, "a file that is right");
	is_int(found.count, 0, "without findings");
	chmod(found_path, 0666);
	is_int(glake_conf_check(&options, NULL, NULL), -EACCES,
		"one that others can write");
	unlink(found_path);
	is_int(glake_conf_check(&options, NULL, NULL), -ENOENT, "one that is missing");
	options.no_conf_file = 1;
	is_int(glake_conf_check(&options, NULL, NULL), 0, "one that is not wanted");
	options.sz = 1;
	is_int(glake_conf_check(&options, NULL, NULL), -EINVAL, "options without a size");
	has_str(glake_conf_path(), "/glake.conf", "the installed file");
}

static void value_is(struct glake *ctx, enum glk_conf_id id, const char *text, int origin,
	int line, const char *source)
{
	struct glake_conf_value value = {.sz = sizeof(value)};

	is_int(glake_conf_value_get(ctx, id, &value), 0, "a value");
	is_str(value.text, text, "as text");
	ok(value.origin == origin && value.line == line, "origin %d, line %d (%d, %d)",
		origin, line, value.origin, value.line);
	is_str(value.source, source, "source");
}

static void values(void)
{
	static const char *const settings[] = {
		"driver.backend=soft", "soft.memory=64MiB", NULL};
	struct glake_options options = {
		.sz = sizeof(options), .conf_file = found_path, .settings = settings};
	struct glake_conf_value value = {.sz = sizeof(value)};
	struct glake *ctx;

	write_text("[pool]\nbudget = 32MiB\n");
	setenv("GLAKE_MAP_ALIASES", "3", 1);
	if (!is_int(glake_open(&options, &ctx), 0, "a context"))
		return;
	clear_environment();
	unlink(found_path);
	value_is(ctx, GLK_CONF_soft_memory, "64MiB", GLAKE_CONF_OPTION, 0, "");
	value_is(ctx, GLK_CONF_map_aliases, "3", GLAKE_CONF_ENV, 0, "GLAKE_MAP_ALIASES");
	value_is(ctx, GLK_CONF_pool_budget, "32MiB", GLAKE_CONF_FILE, 2, found_path);
	value_is(ctx, GLK_CONF_pool_small_page, "2MiB", GLAKE_CONF_DEFAULT, 0, "");
	is_int(glake_conf_value_get(ctx, GLK_CONF_COUNT, &value), -ENOENT,
		"past the last");
	is_int(glake_conf_value_get(ctx, 0, NULL), -EINVAL, "NULL");
	value.sz = 1;
	is_int(glake_conf_value_get(ctx, 0, &value), -EINVAL, "no size");
	value.sz = sizeof(value);
	glake_close(ctx, NULL);
	is_int(glake_conf_value_get(ctx, 0, &value), -ESTALE, "a closed context");

	write_text("[pool]\nbudget = 4GiB\n");
	glk_conf_path_set(found_path);
	value_is(NULL, GLK_CONF_pool_budget, "4GiB", GLAKE_CONF_FILE, 2, found_path);
	value_is(NULL, GLK_CONF_map_aliases, "8", GLAKE_CONF_DEFAULT, 0, "");
	write_text("[pool]\nbudget = 4 apples\n");
	is_int(glake_conf_value_get(NULL, 0, &value), -EINVAL,
		"a configuration that is wrong");
	glk_conf_path_set(NULL);
}

static void sizes(void)
{
	struct glake_error error = {.sz = sizeof(error)};
	uint64_t bytes = 7;

	is_int(glake_size_parse("1.5 GB", &bytes), 0, "a size");
	is_int((int64_t)bytes, 3 * GLK_GIB / 2, "in bytes");
	is_int(glake_size_parse("1.5 apples", &bytes), -EINVAL, "no size");
	glake_last_error(&error);
	has_str(error.text, "'1.5 apples' is not a size; right is a number of bytes, K,",
		"says so");
	is_int(glake_size_parse("99999999T", &bytes), -ERANGE, "too large a one");
	is_int(glake_size_parse("", &bytes), -EINVAL, "nothing");
	is_int(glake_size_parse(NULL, &bytes), -EINVAL, "no text");
	is_int(glake_size_parse("1", NULL), -EINVAL, "no place");
	is_int((int64_t)bytes, 3 * GLK_GIB / 2, "and nothing is written");
}

int main(void)
{
	tap_plan_later();
	clear_environment();
	make_folder();
	keys();
	check();
	values();
	sizes();
	return tap_done();
}
