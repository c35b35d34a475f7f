/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The configuration, key by key, for tools and for programs that embed the library: see
 * glake/conf.h. Keys are described from the table, so this file knows none of them by name.
 */
#include <glake/conf.h>

#include "api/context.h"
#include "base/conf.h"
#include "base/conf_reader.h"
#include "base/conf_table.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/sized.h"
#include "driver/driver.h"
#include "guard/guard.h"
#include "share/publish.h"
#include "soft/open.h"
#include "watch/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <glake/memory.h>

/* Between those who change a value of a context and who wants to know it. */
static struct glk_lock live_lock = GLK_LOCK_INIT(GLK_RANK_CONF);

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
	known.live = key->live;
	return glk_sized_out(ret_key, &known, sizeof(known));
}

/* What rooms above the configuration ask of a text. */
static const struct glk_conf_form forms[] = {
	{GLK_CONF_driver_fault, glk_drv_fault_check},
	{GLK_CONF_io_lend, glk_io_lend_check},
	{GLK_CONF_share_broker, glk_lessee_check},
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

int glk_context_configure(
	struct glk_context *context, const struct glake_options *options)
{
	struct glk_conf_reading reading = {
		.options = options, .forms = forms, .ret_defaults = &context->defaults};

	if (options->conf_file &&
		snprintf(context->conf_file, sizeof(context->conf_file), "%s",
			options->conf_file) >= (int)sizeof(context->conf_file))
		return glk_error(-ENOENT, GLAKE_ERROR_CONFIG,
			"the name of the file has more than %d bytes", PATH_MAX - 1);
	context->no_conf_file = options->no_conf_file;
	return glk_conf_read_as(&reading, &context->conf);
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

void glk_context_value(
	struct glk_context *context, size_t id, struct glake_conf_value *ret_value)
{
	glk_lock(&live_lock);
	fill_value(&context->conf, id, ret_value);
	glk_unlock(&live_lock);
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
			glk_context_value(context, index, &known);
	} else {
		err = glk_context_conf(NULL, ignore, NULL, false, &conf);
		if (!err)
			fill_value(&conf, index, &known);
	}
	return err ? err : glk_sized_out(ret_value, &known, sizeof(known));
}

/* With the lock. */
static void put_budget(struct glk_context *context, int device, size_t bytes)
{
	glk_store_relaxed(&context->caches[device].node->budget, bytes);
	glk_context_record(context, GLAKE_TRACE_BUDGET, device, bytes, 0, NULL);
}

void glk_context_budget(struct glk_context *context, int device, size_t bytes)
{
	glk_lock(&live_lock);
	context->has_budget[device] = true;
	put_budget(context, device, bytes);
	glk_unlock(&live_lock);
}

/* Where the value of a live key is kept beside the configuration; 0, or -errno and nothing is
 * changed. With the lock. */
static int apply(
	struct glk_context *context, enum glk_conf_id id, const struct glk_conf *conf)
{
	bool host = conf->tier_place != GLK_TIER_PLACE_GPU;
	bool file = conf->from[id].origin <= GLAKE_CONF_FILE;
	uint64_t most = conf->tier_host ? conf->tier_host : context->host_most;
	int err = 0;

	for (int i = 0; i < context->devices; i++)
		if (id == GLK_CONF_tier_place && host && !context->caches[i].host)
			return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
				"tier.place: GPU %d has no memory of the host near it",
				i);
	for (int i = 0; i < context->devices; i++)
		if (id == GLK_CONF_tier_place && host &&
			glk_load_relaxed(&context->caches[i].encrypts))
			return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
				"tier.place: nothing lies on the host in place with "
				"security.level=3, as on GPU %d",
				i);
	if (id == GLK_CONF_share_quota && conf->share_quota && !context->has_quota)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"share.quota: the context was opened without one, nor with "
			"share.quota_file");
	if (id == GLK_CONF_log_level)
		glk_log_level_set(conf->log_level);
	if (id == GLK_CONF_share_quota)
		glk_quota_set(conf->share_quota);
	for (int i = 0; i < context->devices; i++) {
		struct glk_cache *cache = &context->caches[i];

		if (id == GLK_CONF_pool_budget && !(file && context->has_budget[i]))
			put_budget(context, i,
				glk_conf_share(conf->pool_budget, cache->memory));
		else if (id == GLK_CONF_tier_place)
			glk_poke_relaxed(&cache->places, cache->host && host);
		else if (id == GLK_CONF_tier_host && cache->host)
			glk_store_relaxed(&cache->host->budget, most ? most : UINT64_MAX);
		else if (id == GLK_CONF_guard_mode || id == GLK_CONF_guard_rate)
			err = err ? err
				  : glk_guard_set(cache, conf->guard_mode,
					    (uint64_t)conf->guard_rate);
		else if (id == GLK_CONF_pool_rest)
			glk_rest_set(cache, conf->pool_rest);
		if (id == GLK_CONF_tier_place || id == GLK_CONF_tier_away)
			glk_beside_lend(cache, conf->tier_place == GLK_TIER_PLACE_PEER,
				conf->tier_away == GLK_TIER_AWAY_PEER);
	}
	return err;
}

/* The key of a name, if it may change while the program runs. */
static int find_live(const char *name, enum glk_conf_id *ret_id)
{
	struct glk_conf_reader reader = {.source = ""};
	char section[GLK_CONF_SHOWN_MAX] = "";
	const char *point = strchr(name, '.');
	int id = -1;

	if (point && (size_t)(point - name) < sizeof(section)) {
		memcpy(section, name, (size_t)(point - name));
		id = glk_conf_find(section, point + 1);
	}
	if (id < 0) {
		glk_conf_report_unknown(
			&reader, -ENOENT, section, point ? point + 1 : name);
		return -ENOENT;
	}
	if (!glk_conf_key((size_t)id)->live)
		return glk_error(-EPERM, GLAKE_ERROR_CONFIG,
			"%s cannot change while the program runs: it is read when a "
			"context is opened",
			name);
	*ret_id = (enum glk_conf_id)id;
	return 0;
}

int glake_conf_set(struct glake *ctx, const char *key, const char *text)
{
	struct glk_conf_reader reader = {.origin = GLAKE_CONF_OPTION, .source = ""};
	struct glk_context *context;
	struct glk_conf conf;
	enum glk_conf_id id;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	if (!key || !text)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no key, or no value");
	err = find_live(key, &id);
	if (err)
		return err;
	/* which is to be unset, and not to be left as it is */
	if (!*text && glk_conf_key(id)->type == GLK_TYPE_SHARE)
		text = "0";
	glk_lock(&live_lock);
	conf = context->conf;
	reader.conf = &conf;
	glk_conf_assign(&reader, id, text);
	err = reader.err;
	if (!err)
		err = apply(context, id, &conf);
	if (!err)
		glk_conf_take(&context->conf, id, &conf);
	glk_unlock(&live_lock);
	return err;
}

/* Takes over a key of the file if it may change and nobody stronger has set it. With the lock. */
static int take_over(
	struct glk_context *context, enum glk_conf_id id, const struct glk_conf *conf)
{
	char now[GLK_CONF_TEXT_MAX], then[GLK_CONF_TEXT_MAX];
	int err = 0;

	if (!glk_conf_key(id)->live || context->conf.from[id].origin > GLAKE_CONF_FILE)
		return 0;
	glk_conf_format(&context->conf, id, now, sizeof(now));
	glk_conf_format(conf, id, then, sizeof(then));
	if (strcmp(now, then))
		err = apply(context, id, conf);
	if (!err)
		glk_conf_take(&context->conf, id, conf);
	return err;
}

/* Tells of a key that the file gives another value, which it has when a context is opened. */
static void tell_later(const struct glk_context *context, struct glk_conf_reader *reader,
	enum glk_conf_id id)
{
	char now[GLK_CONF_TEXT_MAX], then[GLK_CONF_TEXT_MAX], name[64];
	const struct glk_conf_key *key = glk_conf_key(id);

	if (key->live || context->conf.from[id].origin > GLAKE_CONF_FILE)
		return;
	glk_conf_format(&context->conf, id, now, sizeof(now));
	glk_conf_format(reader->conf, id, then, sizeof(then));
	if (!strcmp(now, then))
		return;
	reader->line = reader->conf->from[id].line;
	reader->source = reader->conf->from[id].source;
	snprintf(name, sizeof(name), "%s.%s", key->section, key->key);
	glk_conf_report(reader, 0, name,
		"it stays '%s' here, and is '%s' for a context that is opened next", now,
		then);
}

int glake_conf_reload(struct glake *ctx, glake_conf_finding_fn fn, void *arg)
{
	struct glake_options options = {.sz = sizeof(options)};
	struct glk_conf_reading reading = {
		.options = &options, .fn = fn ? fn : ignore, .arg = arg, .forms = forms};
	struct glk_conf conf;
	struct glk_conf_reader reader = {
		.conf = &conf, .fn = reading.fn, .arg = arg, .source = ""};
	struct glk_context *context;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	options.no_conf_file = context->no_conf_file;
	options.conf_file = *context->conf_file ? context->conf_file : NULL;
	err = glk_conf_read_again(&reading, &context->defaults, &conf);
	if (err)
		return err;
	glk_lock(&live_lock);
	for (size_t id = 0; id < GLK_CONF_COUNT && !err; id++)
		err = take_over(context, (enum glk_conf_id)id, &conf);
	glk_unlock(&live_lock);
	for (size_t id = 0; id < GLK_CONF_COUNT && !err; id++)
		tell_later(context, &reader, (enum glk_conf_id)id);
	return err;
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
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "no text, or no place for a size");
	err = glk_parse_size(text, ret_bytes);
	if (!err)
		return 0;
	snprintf(shown, sizeof(shown), "%s", text);
	return glk_error(err, GLAKE_ERROR_INVAL,
		"'%s' is %s; right is a number of bytes, K, M, G or T, as 24G or 1.5GiB",
		shown, err == -ERANGE ? "too large" : "not a size");
}

const char *glake_conf_path(void)
{
	return glk_conf_path();
}
