/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What glake_conf_check says is what glake_open does: for every key, with values that are right and
 * values that are wrong, from a file, the environment and the program.
 */
#include "context.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];
static int right, wrong, differ;

static void ignore(const struct glake_conf_finding *finding, void *arg)
{
	*(int *)arg += finding->error != 0;
}

static void compare(const struct glake_options *options, const char *what)
{
	struct glake *ctx = NULL;
	int errors = 0, checked = glake_conf_check(options, ignore, &errors),
	    opened = glake_open(options, &ctx);

	glake_close(ctx, NULL);
	right += !opened;
	wrong += opened != 0;
	if (checked == opened && !checked == !errors)
		return;
	differ++;
	tap_note("%s: %d with %d errors, opened: %d", what, checked, errors, opened);
}

static void write_file(const char *section, const char *key, const char *value)
{
	FILE *file = fopen(path, "we");

	if (!file || fprintf(file, "[%s]\n%s = %s\n", section, key, value) < 0 ||
		fclose(file))
		tap_bail("no file");
}

/* From one place after the other, which read with the same functions: each key comes from each of them. */
static void from_a_place(const struct glake_conf_key *key, const char *value)
{
	static unsigned place;
	const char *settings[] = {NULL, NULL};
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};
	char setting[400], variable[80];

	snprintf(setting, sizeof(setting), "%s.%s=%s", key->section, key->key, value);
	if (place++ % 3 == 0) {
		settings[0] = setting;
		options.settings = settings;
		compare(&options, setting);
		return;
	}
	if (place % 3 == 0) {
		write_file(key->section, key->key, value);
		options.no_conf_file = 0;
		options.conf_file = path;
		compare(&options, setting);
		return;
	}
	snprintf(variable, sizeof(variable), "GLAKE_%s_%s", key->section, key->key);
	for (char *c = variable; *c; c++)
		*c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
	setenv(variable, value, 1);
	compare(&options, setting);
	unsetenv(variable);
}

/* Both ends of a range, or each choice, and what stands beside it. */
static void of_range(const struct glake_conf_key *key)
{
	char range[128], more[140], *rest = range, *value;

	snprintf(range, sizeof(range), "%s", key->range);
	while ((value = strsep(&rest, ","))) {
		char *end = strstr(value, " ... ");

		value += strspn(value, " ");
		if (end) {
			*end = '\0';
			from_a_place(key, end + 5);
			snprintf(more, sizeof(more), "1%s", end + 5);
			from_a_place(key, more);
			snprintf(more, sizeof(more), "-%s", value);
			from_a_place(key, more);
		}
		from_a_place(key, value);
		snprintf(more, sizeof(more), "%sx", value);
		from_a_place(key, more);
	}
}

static void every_key(void)
{
	static const char *const values[] = {"", "x", "-1", "0", "1", "3", "yes", "3MiB",
		"1.5", "1 GB", "99999999999999999999", "map:nth", "map:nth=3;", "%q",
		"a%", "trailing;", "a\tb"};
	struct glake_conf_key key = {.sz = sizeof(key)};
	char longest[130];
	size_t keys = 0;

	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	for (; !glake_conf_key_get(keys, &key); keys++) {
		/* would be recorded */
		bool files = !strcmp(key.section, "trace") && !strcmp(key.key, "file");

		for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
			if (!files || !*values[i] || strchr(values[i], '%'))
				from_a_place(&key, values[i]);
		from_a_place(&key, longest);
		if (!files)
			of_range(&key);
	}
	ok(keys > 40, "%zu keys", keys);
	ok(right > 130 && wrong > 500, "%d times right, %d times wrong", right, wrong);
	is_int(differ, 0, "and always found out");
}

/* Keys that do not go together. */
static void together(void)
{
	static const char *const pairs[][3] = {
		{"pool.small_page=4MiB", "pool.large_page=6MiB"},
		{"pool.small_page=8MiB", "pool.large_page=4MiB"},
		{"pool.small_page=4MiB", "pool.large_page=8MiB"},
		{"soft.gpus=64", "soft.nodes=64"},
		{"soft.memory=4MiB", "pool.large_page=1GiB"},
		{"map.span=1GiB", "pool.large_page=1GiB"},
		{"map.extents=16", "pool.pages=1"},
		{"pool.budget=1", "pool.ahead=16TiB"},
		{"trace.file=/nonexistent/%p", "trace.size=1MiB"},
	};
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};

	differ = 0;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		options.settings = pairs[i];
		compare(&options, pairs[i][0]);
	}
	is_int(differ, 0, "keys that do not go together are found out too");
}

static void in_a_file(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .conf_file = path};

	differ = 0;
	compare(&options, "a file");
	chmod(path, 0666);
	compare(&options, "a file for all to write");
	chmod(path, 0644);
	options.conf_file = "/nonexistent/glake.conf";
	compare(&options, "no file");
	options.conf_file = "/";
	compare(&options, "a folder");
	options.conf_file = "/dev/null";
	compare(&options, "a device");
	is_int(differ, 0, "files are judged alike");
}

int main(void)
{
	int fd;

	tap_plan_later();
	fd = mkstemp(tap_template(path, sizeof(path), "conf"));
	if (fd < 0)
		tap_bail("no file");
	close(fd);
	glake_log_hook(NULL, NULL, 0);
	setenv("GLAKE_LOG_LEVEL", "none", 1);
	setenv("XDG_RUNTIME_DIR", path,
		1); /* no directory: nothing is left in that of the user */
	every_key();
	together();
	in_a_file();
	unlink(path);
	return tap_done();
}
