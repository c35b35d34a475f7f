/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Origins and which of them wins, keys that must fit one another, and what goes to the log. */
#include "base/conf.h"

#include "base/log.h"
#include "conf_found.h"

static struct glk_conf conf;

static int read_options(const struct glake_options *options)
{
	found_none();
	return glk_conf_read(options, on_finding, &found, &conf);
}

static int read_settings(const char *const *settings)
{
	struct glake_options options = {
		.sz = sizeof(options), .no_conf_file = 1, .settings = settings};

	return read_options(&options);
}

static void is_from(enum glk_conf_id id, int origin, int line, const char *source)
{
	ok(conf.from[id].origin == origin && conf.from[id].line == line,
		"origin %d, line %d (%d, %d)", origin, line, conf.from[id].origin,
		conf.from[id].line);
	is_str(conf.from[id].source, source, "and its source");
}

static void precedence(void)
{
	static const char *const settings[] = {
		"soft.gpus=5", "map.aliases=9", "soft.gpus=6", NULL};
	struct glake_options options = {.sz = sizeof(options), .conf_file = found_path};

	write_text("[soft]\ngpus = 2\nnodes = 3\n[pool]\nbudget = 1GiB\n");
	is_int(read_options(&options), 0, "the file");
	is_int(conf.soft_gpus, 2, "over the default");
	is_from(GLK_CONF_soft_gpus, GLAKE_CONF_FILE, 2, found_path);
	is_from(GLK_CONF_map_aliases, GLAKE_CONF_DEFAULT, 0, "");
	setenv("GLAKE_SOFT_GPUS", "4", 1);
	setenv("GLAKE_POOL_BUDGET", "", 1);
	is_int(read_options(&options), 0, "a budget of nothing");
	is_int(conf.pool_budget, GLK_GIB, "sets none");
	is_from(GLK_CONF_pool_budget, GLAKE_CONF_FILE, 5, found_path);
	setenv("GLAKE_POOL_BUDGET", "2GiB", 1);
	is_int(read_options(&options), 0, "and the environment");
	is_int(conf.soft_gpus, 4, "over the file");
	is_from(GLK_CONF_soft_gpus, GLAKE_CONF_ENV, 0, "GLAKE_SOFT_GPUS");
	is_int(conf.pool_budget, 2 * GLK_GIB, "as often as it is set");
	is_from(GLK_CONF_soft_nodes, GLAKE_CONF_FILE, 3, found_path);
	options.settings = settings;
	is_int(read_options(&options), 0, "and the options");
	is_int(conf.soft_gpus, 6, "over both, the last of them");
	is_from(GLK_CONF_soft_gpus, GLAKE_CONF_OPTION, 0, "");
	is_from(GLK_CONF_pool_budget, GLAKE_CONF_ENV, 0, "GLAKE_POOL_BUDGET");
	is_from(GLK_CONF_soft_nodes, GLAKE_CONF_FILE, 3, found_path);
	is_int(found.count, 0, "without a finding");
	options.no_conf_file = 1;
	is_int(read_options(&options), 0, "no file at all");
	is_int(conf.soft_nodes, 1, "leaves its keys at their defaults");
	is_from(GLK_CONF_soft_nodes, GLAKE_CONF_DEFAULT, 0, "");
	options.backend = GLAKE_BACKEND_SOFT;
	is_int(read_options(&options), 0, "a backend of the options");
	is_int(conf.driver_backend, GLAKE_BACKEND_SOFT, "becomes the key");
	is_from(GLK_CONF_driver_backend, GLAKE_CONF_OPTION, 0, "");
	clear_environment();
}

static void environment(void)
{
	setenv("GLAKE_SOFT_GPUS", "many", 1);
	setenv("GLAKE_MAP_ALIASES", "", 1);
	is_int(read_settings(NULL), -EINVAL, "bad values in the environment");
	is_found(0, -EINVAL, 0, "soft.gpus", "'many' is not a whole number");
	is_str(found.at[0].file, "GLAKE_SOFT_GPUS", "the variable is named");
	is_found(1, -EINVAL, 0, "map.aliases", "'' is not a whole number");
	is_int(found.count, 2, "both of them");
	clear_environment();

	setenv("GLAKE_POOL_large_page", "1", 1);
	setenv("GLAKE_MODEL", "x", 1);
	setenv("GLAKE_POOLS_X", "x", 1);
	setenv("GLAKE_HOME", "x", 1);
	setenv("POOL_BUDGET", "x", 1);
	setenv("GLAKE_POOL_BUDGET_AND_A_NAME_THAT_IS_LONGER_THAN_THAT_OF_ANY_KEY_THERE_IS",
		"x", 1);
	is_int(read_settings(NULL), 0, "variables of no key");
	is_int(found.count, 1, "are warned of where they were meant for one");
	is_found(0, 0, 0, "",
		"no key has this variable; did you mean GLAKE_POOL_LARGE_PAGE?");
	is_str(found.at[0].file, "GLAKE_POOL_large_page", "it is named");
	is_int(conf.pool_large_page, 0, "and set nothing");
	clear_environment();
}

static void misspelled_is(const char *variable, const char *text)
{
	setenv(variable, "1", 1);
	is_int(read_settings(NULL), 0, "a misspelled variable");
	is_int(found.count, 1, "is warned of");
	is_found(0, 0, 0, "", text);
	is_str(found.at[0].file, variable, "named");
	clear_environment();
}

static void misspelled(void)
{
	misspelled_is("GLAKE_POOL_BUGDET",
		"no key has this variable; did you mean GLAKE_POOL_BUDGET?");
	misspelled_is("GLAKE_POLL_BUDGET",
		"no key has this variable; did you mean GLAKE_POOL_BUDGET?");
	misspelled_is("GLAKE_BUDGET",
		"no key has this variable; did you mean GLAKE_POOL_BUDGET?");
	misspelled_is("GLAKE_LOGLEVEL",
		"no key has this variable; did you mean GLAKE_LOG_LEVEL?");
	misspelled_is("GLAKE_TRACE_QUICKLY", "no key has this variable");
}

/* What a program would have where nobody says anything. */
static void defaults(void)
{
	static const char *const own[] = {
		"soft.gpus=3", "pool.budget=3G", "map.aliases=3", NULL};
	static const char *const bad[] = {"soft.gpus=3", "soft.gpsu=3", NULL};
	static const char *const settings[] = {"map.aliases=9", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.conf_file = found_path,
		.defaults = own,
		.settings = settings};
	struct glk_conf before = {0};
	struct glk_conf_reading reading = {.options = &options, .ret_defaults = &before};

	write_text("[soft]\ngpus = 2\n");
	setenv("GLAKE_POOL_BUDGET", "2 GB", 1);
	is_int(read_options(&options), 0, "defaults of the program");
	is_int(conf.soft_gpus, 2, "are below the file");
	is_int(conf.pool_budget, 2 * GLK_GIB, "the environment");
	is_int(conf.map_aliases, 9, "and the settings");
	is_int(found.count, 0, "without a finding");
	is_int(glk_conf_read_as(&reading, &conf), 0, "asked for by themselves");
	ok(before.soft_gpus == 3 && before.map_aliases == 3 &&
			before.pool_budget == 3 * GLK_GIB,
		"they are told as they were");
	clear_environment();
	options.no_conf_file = 1;
	is_int(read_options(&options), 0, "alone");
	is_int(conf.soft_gpus, 3, "they count");
	is_from(GLK_CONF_soft_gpus, GLAKE_CONF_DEFAULT, 0, "");
	options.defaults = bad;
	is_int(read_options(&options), -EINVAL, "a key that is none");
	is_found(0, -EINVAL, 0, "soft.gpsu", "unknown key; did you mean soft.gpus?");
}

static void settings(void)
{
	static const char *const bad[] = {"soft.gpus=0", "gpus=1", "soft.gpus", "", "=",
		".=", "sofd.gpus=1", "a.b.c=1", "pool.budget=1=2", NULL};
	static const char *const equals[] = {"driver.fault=map:nth=3", NULL};
	struct glake_error error = {.sz = sizeof(error)};

	is_int(read_settings(bad), -EINVAL, "bad settings");
	is_found(0, -EINVAL, 0, "soft.gpus", "'0' is out of range; right is 1 ... 64");
	is_str(found.at[0].file, "", "they come from no file");
	is_found(1, -EINVAL, 0, "", "'gpus=1' is not of the form section.key=value");
	is_found(2, -EINVAL, 0, "", "'soft.gpus' is not of the form");
	is_found(3, -EINVAL, 0, "", "'' is not of the form");
	is_found(4, -EINVAL, 0, "", "'=' is not of the form");
	is_found(5, -EINVAL, 0, "", "unknown key");
	is_found(6, -EINVAL, 0, "sofd.gpus", "unknown key; did you mean soft.gpus?");
	is_found(7, -EINVAL, 0, "a.b.c", "unknown key");
	is_found(8, -EINVAL, 0, "pool.budget", "'1=2' is not a size");
	is_int(found.count, 9, "all of them");
	glake_last_error(&error);
	is_str(error.text, "soft.gpus: '0' is out of range; right is 1 ... 64",
		"the record has the first");
	is_int(read_settings(equals), 0, "only the first = separates");
	is_str(conf.driver_fault, "map:nth=3", "the others belong to the value");

	glk_conf_init(&conf);
	is_int(glk_conf_set(&conf, "pool.budget=1GiB"), 0, "one key alone");
	is_int(conf.pool_budget, GLK_GIB, "is set");
	is_from(GLK_CONF_pool_budget, GLAKE_CONF_OPTION, 0, "");
	is_int(glk_conf_set(&conf, "pool.budget=x"), -EINVAL, "or not");
	is_int(conf.pool_budget, GLK_GIB, "and then stays");
	glake_last_error(&error);
	has_str(error.text, "pool.budget: 'x' is not a size", "with a record");
	is_int(glk_conf_set(&conf, "pool.bugdet=1"), -EINVAL, "an unknown key");
}

static void together(void)
{
	static const char *const odd[] = {
		"pool.small_page=3MiB", "pool.large_page=12MiB", NULL};
	static const char *const bad[] = {"pool.small_page=3MiB", "soft.gpus=0", NULL};
	static const char *const small[] = {"pool.large_page=2MiB", NULL};
	static const char *const uneven[] = {"pool.large_page=14MiB", NULL};
	static const char *const equal[] = {
		"pool.large_page=4MiB", "pool.small_page=4MiB", NULL};
	static const char *const large[] = {"pool.large_page=64MiB", NULL};
	struct glake_options options = {.sz = sizeof(options), .conf_file = found_path};

	is_int(read_settings(odd), -EINVAL, "slots that are no power of two");
	is_found(0, -EINVAL, 0, "pool.small_page", "not a power of two");
	is_int(read_settings(bad), -EINVAL, "and a value that is none");
	is_found(0, -EINVAL, 0, "soft.gpus", "'0' is out of range");
	is_int(found.count, 1, "what keys are together is not looked at then");
	is_int(read_settings(uneven), 0, "seven slots a page");
	is_int(read_settings(small), 0, "as large as the small page");
	is_int(read_settings(equal), 0, "both larger");
	is_int(read_settings(large), 0, "one larger");

	write_text("[pool]\n\nsmall_page = 8MiB\nlarge_page = 4MiB\n");
	is_int(read_options(&options), -EINVAL, "large below small");
	is_found(0, -EINVAL, 4, "pool.large_page",
		"no multiple of pool.small_page, which is 8MiB");
	write_text("[pool]\n\nsmall_page = 4MiB\n");
	options.settings = small;
	is_int(read_options(&options), -EINVAL, "an option against the file");
	is_found(0, -EINVAL, 0, "pool.large_page",
		"no multiple of pool.small_page, which is 4MiB");
	write_text("[pool]\nlarge_page = 2MiB\n");
	options.settings = NULL;
	setenv("GLAKE_POOL_SMALL_PAGE", "4MiB", 1);
	is_int(read_options(&options), -EINVAL, "a variable against the file");
	is_found(0, -EINVAL, 0, "pool.small_page",
		"no part of pool.large_page, which is 2MiB");
	is_str(found.at[0].file, "GLAKE_POOL_SMALL_PAGE", "is where it went wrong");
	clear_environment();
}

static void options_of(void)
{
	struct {
		struct glake_options known;
		long more;
	} newer = {.known = {.sz = sizeof(newer), .no_conf_file = 1}};
	struct glake_options options = {.sz = 0};

	is_int(read_options(&options), -EINVAL, "options without a size");
	options = (struct glake_options){.sz = sizeof(options), .backend = 3};
	is_int(read_options(&options), -EINVAL, "an unknown backend");
	options = (struct glake_options){.sz = sizeof(options), .backend = -1};
	is_int(read_options(&options), -EINVAL, "and another");
	is_int(read_options(&newer.known), 0, "options of a newer program");
	newer.more = 1;
	is_int(read_options(&newer.known), -E2BIG, "that asks for something newer");
	options = (struct glake_options){
		.sz = offsetof(struct glake_options, no_fork_hooks),
		.no_conf_file = 1,
		.conf_file = "/nonexistent"};
	is_int(read_options(&options), 0, "options of an older program");
	glk_conf_path_set("/nonexistent/glake.conf");
	is_int(read_options(NULL), 0, "no options");
	glk_conf_path_set(NULL);
}

static int level_seen;

static void silent(int level, const char *line, void *arg)
{
	level_seen = level;
	(void)line;
	(void)arg;
}

static void logged(void)
{
	struct glake_options options = {.sz = sizeof(options), .conf_file = found_path};

	write_text("[soft]\ngpsu = 3\n[log]\nlevel = warning\n");
	tap_expect_log(1);
	is_int(glk_conf_read(&options, NULL, NULL, &conf), 0,
		"a warning without a function");
	has_str(tap.last_log, "glake.conf:2: soft.gpsu: unknown key", "goes to the log");
	ok(glk_log_wants(GLAKE_LOG_WARNING), "at the level of the same file");
	glake_log_hook(silent, NULL, GLAKE_LOG_NONE);
	glk_log_level_set(GLAKE_LOG_NONE);
	glk_conf_read(&options, NULL, NULL, &conf);
	is_int(level_seen, GLAKE_LOG_WARNING, "which stands below what was found");
	glk_log_level_set(GLAKE_LOG_NONE);
	glake_log_hook(tap_log, NULL, GLAKE_LOG_WARNING);
	tap_expect_log(2);
	write_text("[soft]\ngpus = 0\nnodes = 0\n");
	is_int(glk_conf_read(&options, NULL, NULL, &conf), -EINVAL, "all errors");
	has_str(tap.last_log, "glake.conf:3: soft.nodes: '0' is out of range",
		"are logged");
}

int main(void)
{
	tap_plan_later();
	clear_environment();
	make_folder();
	precedence();
	environment();
	misspelled();
	defaults();
	settings();
	together();
	options_of();
	logged();
	return tap_done();
}
