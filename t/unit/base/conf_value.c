/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every key at both ends of its range and one beyond, and each type with what it refuses. */
#include "base/conf_reader.h"
#include "base/conf_table.h"
#include "base/parse.h"
#include "tap.h"

#include <errno.h>

static struct glk_conf conf;
static char why[256];

static int set(enum glk_conf_id id, const char *text)
{
	*why = '\0';
	return glk_conf_parse(&conf, id, text, why, sizeof(why));
}

static void refused(enum glk_conf_id id, const char *text, const char *want)
{
	struct glk_conf before = conf;
	char shown[GLK_CONF_SHOWN_MAX];

	glk_conf_show(text, shown, sizeof(shown));
	ok(set(id, text) == -EINVAL && !memcmp(&before, &conf, sizeof(conf)),
		"%s refuses '%s'", glk_conf_key(id)->key, shown);
	has_str(why, want, "and says why");
}

static void taken(enum glk_conf_id id, const char *text, const char *want)
{
	char got[GLK_CONF_TEXT_MAX];
	int err = set(id, text);

	glk_conf_format(&conf, id, got, sizeof(got));
	ok(!err && !strcmp(got, want), "%s takes '%s' as %s (%d, %s)",
		glk_conf_key(id)->key, text, want, err, got);
}

static void number(
	const struct glk_conf_key *key, int64_t value, char *ret_text, size_t size)
{
	if (key->type == GLK_TYPE_SIZE)
		snprintf(ret_text, size, "%" PRId64 "B", value);
	else
		snprintf(ret_text, size, "%" PRId64 "%s", value,
			key->type == GLK_TYPE_TIME ? "ns" : "");
}

/* The numbers of the table, at their ends. */
static void ends(void)
{
	const struct glk_conf_key *key;
	char text[64], exact[64];

	for (enum glk_conf_id id = 0; (key = glk_conf_key(id)); id++) {
		if (key->type == GLK_TYPE_SIZE) {
			glk_format_size((uint64_t)key->max, exact, sizeof(exact));
			taken(id, exact, exact);
			glk_format_size((uint64_t)key->min, exact, sizeof(exact));
		} else if (key->type == GLK_TYPE_TIME) {
			glk_format_time(key->max, exact, sizeof(exact));
			taken(id, exact, exact);
			glk_format_time(key->min, exact, sizeof(exact));
		} else if (key->type == GLK_TYPE_INT) {
			snprintf(exact, sizeof(exact), "%" PRId64, key->max);
			taken(id, exact, exact);
			snprintf(exact, sizeof(exact), "%" PRId64, key->min);
		} else {
			continue;
		}
		taken(id, exact, exact);
		number(key, (int64_t)((uint64_t)key->max + 1), text, sizeof(text));
		refused(id, text, "is out of range; right is ");
		has_str(why, exact, "with the lower end");
		number(key, (int64_t)((uint64_t)key->min - 1), text, sizeof(text));
		refused(id, text,
			key->min || key->type == GLK_TYPE_INT
				? "is out of range; right is "
				: "'-1");
	}
}

/* What the table says must be true of itself. */
static void defaults(void)
{
	const struct glk_conf_key *key;
	char text[GLK_CONF_TEXT_MAX];

	glk_conf_init(&conf);
	for (enum glk_conf_id id = 0; (key = glk_conf_key(id)); id++) {
		glk_conf_format(&conf, id, text, sizeof(text));
		ok(!strcmp(text, key->default_value), "default of %s.%s is '%s' ('%s')",
			key->section, key->key, key->default_value, text);
		ok(key->help[strlen(key->help) - 1] == '.', "its help is a sentence");
		ok(conf.from[id].origin == GLAKE_CONF_DEFAULT && !conf.from[id].line &&
				!*conf.from[id].source,
			"its origin is the default");
	}
	is_int(conf.pool_small_page, 2 * GLK_MIB, "a size");
	ok(!(conf.policy_target > 0), "a ratio that has a word for 0");
	is_int(conf.soft_cost_reserve, 2700, "a time");
	is_int(conf.soft_gpus, 1, "a number");
	is_int(conf.driver_check, false, "a bool");
	is_int(conf.soft_streams, GLK_SOFT_STREAMS_WORKER, "a choice");
	is_str(conf.driver_fault, "", "a text");
}

static void types(void)
{
	char text[GLK_CONF_TEXT_MAX + 1];

	taken(GLK_CONF_driver_check, "yes", "yes");
	taken(GLK_CONF_driver_check, "off", "no");
	taken(GLK_CONF_driver_check, "1", "yes");
	refused(GLK_CONF_driver_check, "maybe",
		"'maybe' is neither yes nor no; right is yes, no");
	refused(GLK_CONF_driver_check, "", "'' is neither");

	taken(GLK_CONF_soft_gpus, "08", "8");
	refused(GLK_CONF_soft_gpus, "four",
		"'four' is not a whole number; right is 1 ... 64");
	refused(GLK_CONF_soft_gpus, "1.5", "not a whole number");
	refused(GLK_CONF_soft_gpus, "99999999999999999999",
		"out of range; right is 1 ... 64");
	refused(GLK_CONF_soft_gpus, "", "not a whole number");

	taken(GLK_CONF_pool_budget, "1.5GiB", "1536MiB");
	taken(GLK_CONF_pool_budget, "1024KiB", "1MiB");
	taken(GLK_CONF_pool_budget, "123", "123");
	taken(GLK_CONF_pool_budget, "24 GB", "24GiB");
	taken(GLK_CONF_pool_budget, "80%", "80%");
	taken(GLK_CONF_pool_budget, "0.8", "80%");
	taken(GLK_CONF_pool_budget, "33.25%", "33.25%");
	taken(GLK_CONF_pool_budget, "1.0", "100%");
	taken(GLK_CONF_pool_budget, "", "0");
	refused(GLK_CONF_pool_budget, "8GX",
		"'8GX' is not a size, nor a part; right is 0 ... 16TiB, or above 0% to 100%, as "
		"24G, 1.5GiB, 80% or 0.8");
	refused(GLK_CONF_pool_budget, "101%",
		"out of range; right is 0 ... 16TiB, or above 0%");
	refused(GLK_CONF_pool_budget, "0%", "nor a part");
	refused(GLK_CONF_pool_budget, "0.00000001", "out of range");
	refused(GLK_CONF_pool_budget, "1.5", "out of range");
	refused(GLK_CONF_pool_budget, "%", "nor a part");
	refused(GLK_CONF_pool_budget, "80%%", "nor a part");
	is_int((int64_t)glk_conf_share(GLK_CONF_PART | 800000, 1000), 800,
		"bytes of a part");
	is_int((int64_t)glk_conf_share(1 << 20, 1000), 1 << 20, "of a size");
	ok(glk_conf_share(0, 1000) == SIZE_MAX, "no bound");
	refused(GLK_CONF_soft_memory, "8GX",
		"'8GX' is not a size; right is 4MiB ... 16TiB in bytes, K, M, G or T, as 24G or 1.5GiB");
	refused(GLK_CONF_pool_budget, "99999999999999999999TiB", "out of range");
	refused(GLK_CONF_pool_budget, "18446744073709551615", "out of range");

	taken(GLK_CONF_soft_cost_map, "0.6us", "600ns");
	taken(GLK_CONF_soft_cost_map, "1000us", "1ms");
	taken(GLK_CONF_soft_cost_map, "0", "0");
	refused(GLK_CONF_soft_cost_map, "600",
		"'600' is not a time; right is 0 ... 1s in ns, us, ms or s, as 15us");

	taken(GLK_CONF_policy_target, "x1.005", "1.005");
	taken(GLK_CONF_policy_target, "1", "1");
	taken(GLK_CONF_policy_target, "100", "100");
	taken(GLK_CONF_policy_target, "auto", "auto");
	refused(GLK_CONF_policy_target, "0.999", "out of range; right is ");
	refused(GLK_CONF_policy_target, "100.001", "out of range; right is ");
	refused(GLK_CONF_policy_target, "two", "'two' is not a ratio");

	taken(GLK_CONF_log_level, "debug", "debug");
	is_int(conf.log_level, GLAKE_LOG_DEBUG,
		"levels of the log are their own numbers");
	taken(GLK_CONF_log_level, "none", "none");
	taken(GLK_CONF_driver_backend, "cuda", "cuda");
	is_int(conf.driver_backend, GLAKE_BACKEND_CUDA, "so are backends");
	taken(GLK_CONF_soft_streams, "stepped", "stepped");
	is_int(conf.soft_streams, GLK_SOFT_STREAMS_STEPPED, "and what streams do");
	refused(GLK_CONF_log_level, "deb",
		"'deb' is none of the choices; right is none, error, warning, info, debug");
	refused(GLK_CONF_log_level, "error,warning", "none of the choices");
	refused(GLK_CONF_log_level, "", "none of the choices");
	refused(GLK_CONF_log_level, "DEBUG", "none of the choices");

	memset(text, 'x', sizeof(text));
	text[GLK_CONF_TEXT_MAX] = '\0';
	refused(GLK_CONF_driver_fault, text,
		"xxx...' is out of range; right is 127 characters");
	text[GLK_CONF_TEXT_MAX - 1] = '\0';
	taken(GLK_CONF_driver_fault, text, text);
	taken(GLK_CONF_driver_fault, "", "");
	refused(GLK_CONF_driver_fault, "a\nb", "'a?b' is not printable");
	refused(GLK_CONF_driver_fault, "a\x1b[2J", "'a?[2J' is not printable");
	refused(GLK_CONF_driver_fault, "a\x7f", "'a?' is not printable");
}

static void shown(void)
{
	char buffer[8];

	glk_conf_show("1234567", buffer, sizeof(buffer));
	is_str(buffer, "1234567", "what fits is shown as it is");
	glk_conf_show("12345678", buffer, sizeof(buffer));
	is_str(buffer, "1234...", "what does not is cut");
}

static void ranges(void)
{
	char range[GLK_CONF_RANGE_MAX];

	glk_conf_range(glk_conf_key(GLK_CONF_soft_memory), range, sizeof(range));
	is_str(range, "4MiB ... 16TiB", "range of a size");
	glk_conf_range(glk_conf_key(GLK_CONF_soft_gpus), range, sizeof(range));
	is_str(range, "1 ... 64", "of a number");
	glk_conf_range(glk_conf_key(GLK_CONF_soft_cost_map), range, sizeof(range));
	is_str(range, "0 ... 1s", "of a time");
	glk_conf_range(glk_conf_key(GLK_CONF_driver_check), range, sizeof(range));
	is_str(range, "yes, no", "of a bool");
	glk_conf_range(glk_conf_key(GLK_CONF_driver_backend), range, sizeof(range));
	is_str(range, "auto, soft, cuda", "of a choice");
	glk_conf_range(glk_conf_key(GLK_CONF_driver_backend), range, 8);
	is_str(range, "auto, s", "a buffer too small is not overrun");
	ok(!glk_conf_key(GLK_CONF_COUNT), "no key past the last");
	ok(!glk_conf_changed_by(GLK_CONF_COUNT), "nor a function that changes it");
}

int main(void)
{
	tap_plan_later();
	defaults();
	ends();
	types();
	shown();
	ranges();
	return tap_done();
}
