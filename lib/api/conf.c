/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The configuration, key by key, for tools and for programs that embed the library: see
 * glake/conf.h. Keys are described from the table, so this file knows none of them by name.
 */
#include <glake/conf.h>

#include "api/context.h"
#include "base/conf.h"
#include "base/conf_table.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/sized.h"
#include "driver/driver.h"
#include "watch/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

/* Ranges are put into words once, since callers may keep the strings. */
static char ranges[GLK_CONF_COUNT][GLK_CONF_RANGE_MAX];
static pthread_once_t ranges_once = PTHREAD_ONCE_INIT;

static void fill_ranges(void)
{
	for (size_t id = 0; id < GLK_CONF_COUNT; id++)
		glk_conf_range(glk_conf_key(id), ranges[id], sizeof(ranges[id]));
}

int glake_conf_key_get(size_t index, struct glake_conf_key *ret_key)
{
	const struct glk_conf_key *key = glk_conf_key(index);
	struct glake_conf_key known = {0};

	if (!key)
		return -ENOENT;
	pthread_once(&ranges_once, fill_ranges);
	known.section = key->section;
	known.key = key->key;
	known.type = glk_conf_type_name(key->type);
	known.default_value = key->default_value;
	known.range = ranges[index];
	known.help = key->help;
	return glk_sized_out(ret_key, &known, sizeof(known));
}

/* What rooms above the configuration ask of a text. */
static const struct glk_conf_form forms[] = {
	{GLK_CONF_driver_fault, glk_drv_fault_check},
	{GLK_CONF_trace_file, glk_trace_name_check},
	{0},
};

int glk_context_conf(const struct glake_options *options, glake_conf_finding_fn fn,
	void *arg, bool is_check, struct glk_conf *ret_conf)
{
	struct glk_conf_reading reading = {.options = options,
		.fn = fn,
		.arg = arg,
		.forms = forms,
		.is_check = is_check};

	return glk_conf_read_as(&reading, ret_conf);
}

static void ignore(const struct glake_conf_finding *finding, void *arg)
{
	(void)finding;
	(void)arg;
}

static void fill_value(
	const struct glk_conf *conf, size_t id, struct glake_conf_value *ret)
{
	ret->origin = conf->from[id].origin;
	ret->line = conf->from[id].line;
	snprintf(ret->source, sizeof(ret->source), "%s", conf->from[id].source);
	glk_conf_format(conf, (enum glk_conf_id)id, ret->text, sizeof(ret->text));
}

int glake_conf_value_get(
	struct glake *ctx, size_t index, struct glake_conf_value *ret_value)
{
	struct glake_conf_value known = {0};
	struct glk_context *context;
	struct glk_conf conf;
	int err;

	if (index >= GLK_CONF_COUNT)
		return -ENOENT;
	if (ctx) {
		err = glk_context_get(ctx, &context);
		if (!err)
			fill_value(&context->conf, index, &known);
	} else {
		err = glk_context_conf(NULL, ignore, NULL, false, &conf);
		if (!err)
			fill_value(&conf, index, &known);
	}
	return err ? err : glk_sized_out(ret_value, &known, sizeof(known));
}

int glake_conf_check(
	const struct glake_options *options, glake_conf_finding_fn fn, void *arg)
{
	struct glk_conf conf;

	return glk_context_conf(options, fn ? fn : ignore, arg, true, &conf);
}

int glake_size_parse(const char *text, uint64_t *ret_bytes)
{
	char shown[32];
	int err;

	if (!text || !ret_bytes)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no text, or no place for a size");
	err = glk_parse_size(text, ret_bytes);
	if (!err)
		return 0;
	snprintf(shown, sizeof(shown), "%s", text);
	return glk_error(err, GLAKE_ERROR_INVAL,
		"'%s' is %s; right is a number of bytes, K, M, G or T, as 24G or 1.5GiB", shown,
		err == -ERANGE ? "too large" : "not a size");
}

const char *glake_conf_path(void)
{
	return glk_conf_path();
}
