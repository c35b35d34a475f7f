/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The configuration of a context, read once: defaults, those of the program, file, environment,
 * options, later over earlier. The result is a plain structure, so nobody looks up a key by name
 * while memory is given out, and each value knows where it came from.
 *
 * Every source is read to its end, also after an error, so that all mistakes are reported
 * together; nothing is returned unless all of it is right.
 */
#include "base/conf.h"

#include "base/atomic.h"
#include "base/conf_path.h"
#include "base/conf_reader.h"
#include "base/conf_table.h"
#include "base/error.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/sized.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static glk_atomic(const char *) other_path;

const char *glk_conf_path(void)
{
	/* acquire: pairs with the release in glk_conf_path_set */
	const char *path = glk_load_acquire(&other_path);

	return path ? path : GLK_CONF_PATH;
}

void glk_conf_path_set(const char *path)
{
	/* release: pairs with the acquire in glk_conf_path */
	glk_store_release(&other_path, path);
}

void glk_conf_init(struct glk_conf *conf)
{
	char why[GLAKE_ERROR_TEXT_MAX];
	const struct glk_conf_key *key;
	int err;

	memset(conf, 0, sizeof(*conf));
	for (size_t id = 0; (key = glk_conf_key(id)); id++) {
		err = glk_conf_parse(
			conf, (enum glk_conf_id)id, key->default_value, why, sizeof(why));
		assert(!err);
		(void)err;
	}
}

/* Warns of GLAKE_POOL_BUGDET=... and GLAKE_POLL_BUDGET=..., but not of what nobody means for us. */
static void check_variable(struct glk_conf_reader *reader, const char *entry)
{
	char variable[GLK_CONF_VARIABLE_MAX], meant[GLK_CONF_VARIABLE_MAX];
	size_t length = strcspn(entry, "=");
	int id;

	if (strncmp(entry, "GLAKE_", 6) || length >= sizeof(variable))
		return;
	memcpy(variable, entry, length);
	variable[length] = '\0';
	if (!glk_conf_misspelled(variable, &id) || !secure_getenv(variable))
		return;
	reader->source = variable;
	if (id < 0) {
		glk_conf_report(reader, 0, "", "no key has this variable");
		return;
	}
	glk_conf_variable(glk_conf_key((size_t)id), meant, sizeof(meant));
	glk_conf_report(
		reader, 0, "", "no key has this variable; did you mean %s?", meant);
}

static void read_environment(struct glk_conf_reader *reader)
{
	char variable[GLK_CONF_VARIABLE_MAX];
	const struct glk_conf_key *key;
	const char *text;

	reader->origin = GLAKE_CONF_ENV;
	reader->source = variable;
	for (size_t id = 0; (key = glk_conf_key(id)); id++) {
		glk_conf_variable(key, variable, sizeof(variable));
		text = secure_getenv(variable);
		if (text)
			glk_conf_assign(reader, (enum glk_conf_id)id, text);
	}
	for (char **entry = environ; entry && *entry; entry++)
		check_variable(reader, *entry);
	reader->source = "";
}

/* "section.key=value" from the program, which should know the keys: an error if not. */
static void read_setting(struct glk_conf_reader *reader, const char *setting)
{
	char name[2 * GLK_CONF_SHOWN_MAX], shown[GLK_CONF_SHOWN_MAX];
	size_t length = strcspn(setting, "=");
	char *point;

	snprintf(name, sizeof(name), "%.*s",
		(int)(length < sizeof(name) ? length : sizeof(name)), setting);
	point = strchr(name, '.');
	if (!setting[length] || !point) {
		glk_conf_show(setting, shown, sizeof(shown));
		glk_conf_report(reader, -EINVAL, "",
			"'%s' is not of the form section.key=value", shown);
		return;
	}
	*point = '\0';
	glk_conf_assign_named(reader, name, point + 1, setting + length + 1, -EINVAL);
}

/* Places the reading where a key was set. */
static void go_to(struct glk_conf_reader *reader, enum glk_conf_id id)
{
	reader->line = reader->conf->from[id].line;
	reader->source = reader->conf->from[id].source;
}

/* What this library was built without. */
static void check_built(struct glk_conf_reader *reader)
{
	(void)reader;
#ifndef GLK_XXHASH
	if (reader->conf->tier_verify) {
		go_to(reader, GLK_CONF_tier_verify);
		glk_conf_report(reader, -EOPNOTSUPP, "tier.verify",
			"needs a library that was built with xxhash.h (Debian's libxxhash-dev), "
			"which this one was not");
	}
#endif
#ifndef GLK_SODIUM
	if (reader->conf->security_level == 3) {
		go_to(reader, GLK_CONF_security_level);
		glk_conf_report(reader, -EOPNOTSUPP, "security.level",
			"3 needs a library that was built with sodium.h (Debian's "
			"libsodium-dev), which this one was not");
	}
#endif
#ifndef GLK_LZ4
	if (reader->conf->tier_compress == GLK_TIER_COMPRESS_LZ4) {
		go_to(reader, GLK_CONF_tier_compress);
		glk_conf_report(reader, -EOPNOTSUPP, "tier.compress",
			"needs a library that was built with lz4.h (Debian's liblz4-dev), which "
			"this one was not");
	}
#endif
}

/* What the range of one key cannot say. */
static void check_together(struct glk_conf_reader *reader)
{
	const enum glk_conf_id small = GLK_CONF_pool_small_page,
			       large = GLK_CONF_pool_large_page;
	const struct glk_conf *conf = reader->conf;
	char text[GLK_FORMAT_MAX];

	if (conf->pool_small_page & (conf->pool_small_page - 1)) {
		go_to(reader, small);
		glk_conf_report(reader, -EINVAL, "pool.small_page",
			"not a power of two; 2MiB, 4MiB and 8MiB are");
		return;
	}
	if (conf->security_level == 3 && conf->tier_place != GLK_TIER_PLACE_GPU) {
		go_to(reader, GLK_CONF_tier_place);
		glk_conf_report(reader, -EINVAL, "tier.place",
			"nothing lies on the host in place with security.level=3, so that only "
			"gpu fits that");
		return;
	}
	if (!(conf->pool_large_page % conf->pool_small_page))
		return;
	/* The stronger origin is the one that was meant to fit the other. */
	if (conf->from[small].origin > conf->from[large].origin) {
		go_to(reader, small);
		glk_format_size(conf->pool_large_page, text, sizeof(text));
		glk_conf_report(reader, -EINVAL, "pool.small_page",
			"no part of pool.large_page, which is %s", text);
	} else {
		go_to(reader, large);
		glk_format_size(conf->pool_small_page, text, sizeof(text));
		glk_conf_report(reader, -EINVAL, "pool.large_page",
			"no multiple of pool.small_page, which is %s", text);
	}
}

static int read_all(const struct glake_options *options, struct glk_conf_reader *reader,
	struct glk_conf *ret_defaults)
{
	static const char *const backends[] = {"auto", "soft", "cuda"};
	const char *path = options->conf_file ? options->conf_file : glk_conf_path();
	int err = 0;

	glk_conf_init(reader->conf);
	reader->origin = GLAKE_CONF_DEFAULT;
	for (size_t i = 0; options->defaults && options->defaults[i]; i++)
		read_setting(reader, options->defaults[i]);
	if (ret_defaults)
		*ret_defaults = *reader->conf;
	if (!options->no_conf_file)
		err = glk_conf_read_file(reader, path, options->conf_file);
	read_environment(reader);
	reader->origin = GLAKE_CONF_OPTION;
	for (size_t i = 0; options->settings && options->settings[i]; i++)
		read_setting(reader, options->settings[i]);
	if (options->backend != GLAKE_BACKEND_AUTO)
		glk_conf_assign(
			reader, GLK_CONF_driver_backend, backends[options->backend]);
	if (!reader->err && !err)
		check_together(reader);
	if (!reader->err && !err)
		check_built(reader);
	return err ? err : reader->err;
}

static void to_log(const struct glake_conf_finding *finding, void *arg)
{
	char line[16] = "";

	(void)arg;
	if (finding->line)
		snprintf(line, sizeof(line), ":%d", finding->line);
	glk_log(finding->error ? GLAKE_LOG_ERROR : GLAKE_LOG_WARNING, "%s%s%s%s%s%s",
		finding->file, line, *finding->file ? ": " : "", finding->key,
		*finding->key ? ": " : "", finding->text);
}

int glk_conf_read_as(const struct glk_conf_reading *reading, struct glk_conf *ret_conf)
{
	struct glake_options known = {.sz = sizeof(known)};
	struct glk_conf conf, again;
	struct glk_conf_reader reader = {.conf = &conf,
		.fn = reading->fn,
		.arg = reading->arg,
		.forms = reading->forms,
		.is_check = reading->is_check,
		.source = ""};
	struct glk_conf_reader logging = {
		.conf = &again, .fn = to_log, .forms = reading->forms, .source = ""};
	int err;

	err = reading->options ? glk_sized_in(reading->options, &known, sizeof(known))
			       : 0;
	if (err)
		return err;
	if (known.backend < GLAKE_BACKEND_AUTO || known.backend > GLAKE_BACKEND_CUDA)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "backend %d of the options",
			known.backend);
	err = read_all(&known, &reader, reading->ret_defaults);
	if (reader.findings && !reading->fn) {
		/* What is found may stand before the line that asks for messages. */
		glk_log_level_set(conf.log_level);
		read_all(&known, &logging, NULL);
	}
	conf.no_soft_warning = known.no_soft_warning;
	if (!err)
		*ret_conf = conf;
	return err;
}

int glk_conf_read_again(const struct glk_conf_reading *reading,
	const struct glk_conf *defaults, struct glk_conf *ret_conf)
{
	const struct glake_options *options = reading->options;
	struct glk_conf_reader reader = {.conf = ret_conf,
		.fn = reading->fn,
		.arg = reading->arg,
		.forms = reading->forms,
		.is_check = true,
		.source = ""};
	const char *path = options->conf_file ? options->conf_file : glk_conf_path();
	int err;

	*ret_conf = *defaults;
	if (options->no_conf_file)
		return 0;
	err = glk_conf_read_file(&reader, path, options->conf_file);
	if (!reader.err && !err)
		check_together(&reader);
	return err ? err : reader.err;
}

int glk_conf_read(const struct glake_options *options, glake_conf_finding_fn fn,
	void *arg, struct glk_conf *ret_conf)
{
	struct glk_conf_reading reading = {.options = options, .fn = fn, .arg = arg};

	return glk_conf_read_as(&reading, ret_conf);
}

int glk_conf_set(struct glk_conf *conf, const char *setting)
{
	struct glk_conf_reader reader = {
		.conf = conf, .origin = GLAKE_CONF_OPTION, .source = ""};

	read_setting(&reader, setting);
	return reader.err;
}
