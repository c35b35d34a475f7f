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
	is_str(key.default_value, "none", "default");
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

int main(void)
{
	tap_plan_later();
	clear_environment();
	make_folder();
	keys();
	check();
	return tap_done();
}
