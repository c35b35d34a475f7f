/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One value of the configuration: text to field, field to text. A value that is not right is
 * answered with a sentence that says what would be.
 *
 * What a reading finds is handed out, all of it, since who repairs a file wants to do it once; the
 * first error becomes the thread's record. Texts of others (files, the environment) are shown in
 * printable ASCII only, so that no file can play with the terminal of who checks it.
 */
#include "base/atomic.h"
#include "base/conf_reader.h"
#include "base/conf_table.h"
#include "base/error.h"
#include "base/parse.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void glk_conf_show(const char *text, char *buffer, size_t size)
{
	size_t length = strlen(text), at = 0;

	for (; at < length && at < size - 1; at++)
		buffer[at] = text[at] >= ' ' && text[at] <= '~' ? text[at] : '?';
	buffer[at] = '\0';
	if (at < length)
		memcpy(buffer + size - 4, "...", 3);
}

static void *field_of(struct glk_conf *conf, const struct glk_conf_key *key)
{
	return (char *)conf + key->offset;
}

static int parse_choice(const struct glk_conf_key *key, const char *text, int *ret_choice)
{
	const char *name;
	int length;

	for (int i = 0; (length = glk_conf_choice(key, i, &name)); i++) {
		if (strlen(text) != (size_t)length || memcmp(text, name, (size_t)length))
			continue;
		*ret_choice = i;
		return 0;
	}
	return -EINVAL;
}

static int parse_text(const char *text, char *ret_text)
{
	if (strlen(text) >= GLK_CONF_TEXT_MAX)
		return -ERANGE;
	for (const char *s = text; *s; s++) {
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return -EINVAL;
	}
	strcpy(ret_text, text);
	return 0;
}

/* Sizes, also of a share, times and integers, with their range. */
static int parse_number(
	const struct glk_conf_key *key, const char *text, int64_t *ret_number)
{
	int64_t number = 0;
	uint64_t bytes = 0;
	int err;

	switch (key->type) {
	case GLK_TYPE_SIZE:
	case GLK_TYPE_SHARE:
		err = glk_parse_size(text, &bytes);
		if (!err && bytes > INT64_MAX)
			err = -ERANGE;
		number = (int64_t)bytes;
		break;
	case GLK_TYPE_TIME:
		err = glk_parse_time(text, &number);
		break;
	default:
		err = glk_parse_int(text, &number);
	}
	if (!err && (number < key->min || number > key->max))
		err = -ERANGE;
	if (!err)
		*ret_number = number;
	return err;
}

static int parse_ratio(
	const struct glk_conf_key *key, const char *text, double *ret_ratio)
{
	char shown[GLK_CONF_TEXT_MAX];
	double ratio;
	int err;

	if (*key->choices && !strcmp(text, key->choices)) {
		*ret_ratio = 0;
		return 0;
	}
	/* with or without the x that tells ratios from sizes elsewhere */
	snprintf(shown, sizeof(shown), "%s%s", *text == 'x' ? "" : "x", text);
	err = glk_parse_ratio(shown, &ratio);
	if (err)
		return err;
	if (ratio * 1000 < (double)key->min || ratio * 1000 > (double)key->max)
		return -ERANGE;
	*ret_ratio = ratio;
	return 0;
}

#define PARTS 1000000 /* of a whole */

/* "80%" or "0.8", where a size has no point without a unit. */
static int parse_part(const char *text, size_t *ret_share)
{
	size_t length = strlen(text);
	bool hundredths = length && text[length - 1] == '%';
	char shown[GLK_CONF_TEXT_MAX];
	double part;
	int err;

	snprintf(shown, sizeof(shown), "x%.*s", (int)(length - hundredths), text);
	err = glk_parse_ratio(shown, &part);
	if (err)
		return err;
	if (hundredths)
		part /= 100;
	if (part * PARTS < 0.5 || part > 1)
		return -ERANGE;
	*ret_share = GLK_CONF_PART | (size_t)(part * PARTS + 0.5);
	return 0;
}

/* Nothing is as good as 0. */
static int parse_share(
	const struct glk_conf_key *key, const char *text, size_t *ret_share)
{
	size_t plain = strspn(text, "0123456789.");
	int64_t number = 0;
	int err;

	if (text[plain] == '%' || (!text[plain] && strchr(text, '.')))
		return parse_part(text, ret_share);
	err = *text ? parse_number(key, text, &number) : 0;
	if (!err)
		*ret_share = (size_t)number;
	return err;
}

size_t glk_conf_share(size_t share, size_t whole)
{
	if (share & GLK_CONF_PART)
		return (size_t)((double)whole * (double)(share & ~GLK_CONF_PART) / PARTS);
	return share ? share : SIZE_MAX;
}

static void format_share(size_t share, char *buffer, size_t size)
{
	if (share & GLK_CONF_PART)
		snprintf(buffer, size, "%g%%",
			(double)(share & ~GLK_CONF_PART) * 100 / PARTS);
	else
		glk_format_size(share, buffer, size);
}

static void explain(const struct glk_conf_key *key, const char *text, int err,
	char *ret_why, size_t size)
{
	static const char *const wrong[] = {
		[GLK_TYPE_BOOL] = "neither yes nor no",
		[GLK_TYPE_INT] = "not a whole number",
		[GLK_TYPE_SIZE] = "not a size",
		[GLK_TYPE_SHARE] = "not a size, nor a part",
		[GLK_TYPE_TIME] = "not a time",
		[GLK_TYPE_CHOICE] = "none of the choices",
		[GLK_TYPE_RATIO] = "not a ratio",
		[GLK_TYPE_TEXT] = "not printable",
	};
	static const char *const units[] = {
		[GLK_TYPE_SIZE] = " in bytes, K, M, G or T, as 24G or 1.5GiB",
		[GLK_TYPE_SHARE] = ", as 24G, 1.5GiB, 80% or 0.8",
		[GLK_TYPE_TIME] = " in ns, us, ms or s, as 15us",
		[GLK_TYPE_RATIO] = ", as 1.005",
		[GLK_TYPE_TEXT] = "",
	};
	char range[GLK_CONF_RANGE_MAX], shown[GLK_CONF_SHOWN_MAX];
	const char *unit = units[key->type];

	glk_conf_range(key, range, sizeof(range));
	glk_conf_show(text, shown, sizeof(shown));
	snprintf(ret_why, size, "'%s' is %s; right is %s%s", shown,
		err == -ERANGE ? "out of range" : wrong[key->type], range,
		unit && err != -ERANGE ? unit : "");
}

int glk_conf_parse(struct glk_conf *conf, enum glk_conf_id id, const char *text,
	char *ret_why, size_t size)
{
	const struct glk_conf_key *key = glk_conf_key(id);
	void *field = field_of(conf, key);
	int64_t number = 0;
	int err = 0;

	switch (key->type) {
	case GLK_TYPE_BOOL:
		err = glk_parse_bool(text, field);
		break;
	case GLK_TYPE_INT:
	case GLK_TYPE_TIME:
		err = parse_number(key, text, field);
		break;
	case GLK_TYPE_SIZE:
		err = parse_number(key, text, &number);
		if (!err)
			*(size_t *)field = (size_t)number;
		break;
	case GLK_TYPE_SHARE:
		err = parse_share(key, text, field);
		break;
	case GLK_TYPE_CHOICE:
		err = parse_choice(key, text, field);
		break;
	case GLK_TYPE_RATIO:
		err = parse_ratio(key, text, field);
		break;
	case GLK_TYPE_TEXT:
		err = parse_text(text, field);
		break;
	}
	if (err)
		explain(key, text, err, ret_why, size);
	return err ? -EINVAL : 0;
}

/* "file:line: key: ", of which the end of a long file name matters most. */
static void place(
	const struct glk_conf_reader *reader, const char *key, char *buffer, size_t size)
{
	const char *source = reader->source;
	char line[16] = "";

	if (reader->line)
		snprintf(line, sizeof(line), ":%d", reader->line);
	snprintf(buffer, size, "%s%s%s%s%s%s", strlen(source) > 80 ? "..." : "",
		strlen(source) > 80 ? source + strlen(source) - 77 : source, line,
		*source ? ": " : "", key, *key ? ": " : "");
}

void glk_conf_report(
	struct glk_conf_reader *reader, int err, const char *key, const char *format, ...)
{
	struct glake_conf_finding finding = {.sz = sizeof(finding)};
	char text[GLAKE_ERROR_TEXT_MAX], at[GLAKE_ERROR_TEXT_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (err && !reader->err) {
		place(reader, key, at, sizeof(at));
		glk_error(err, err == -EACCES ? GLAKE_ERROR_PERM : GLAKE_ERROR_CONFIG,
			"%s%s", at, text);
		reader->err = err;
	}
	if (++reader->findings > GLK_CONF_FINDINGS_MAX || !reader->fn)
		return;
	if (reader->findings == GLK_CONF_FINDINGS_MAX)
		snprintf(text, sizeof(text), "and more; these are the first %d",
			GLK_CONF_FINDINGS_MAX - 1);
	finding.error = err;
	finding.line = reader->line;
	finding.file = reader->source;
	finding.key = key;
	finding.text = text;
	reader->fn(&finding, reader->arg);
}

/* The last bytes of a long name say more than the first. */
static void keep_source(const char *source, char *ret_source, size_t size)
{
	size_t length = strlen(source);

	if (length < size)
		memcpy(ret_source, source, length + 1);
	else
		snprintf(ret_source, size, "...%s", source + length - (size - 4));
}

/* Whether a text has its form; else why not. */
static bool has_form(const struct glk_conf_reader *reader, enum glk_conf_id id,
	const char *text, char *ret_why, size_t size)
{
	const struct glk_conf_form *form = reader->forms;
	struct glake_error error = {.sz = sizeof(error)};

	while (form && form->check && form->id != id)
		form++;
	if (!form || !form->check || !*text || !form->check(text))
		return true;
	glake_last_error(&error);
	snprintf(ret_why, size, "%s", error.text);
	return false;
}

void glk_conf_assign(
	struct glk_conf_reader *reader, enum glk_conf_id id, const char *text)
{
	const struct glk_conf_key *key = glk_conf_key(id);
	struct glk_conf *conf = reader->conf;
	char name[GLK_CONF_SHOWN_MAX], why[GLAKE_ERROR_TEXT_MAX];

	/* as in GLAKE_POOL_BUDGET=, which says that none is set */
	if (!*text && key->type == GLK_TYPE_SHARE)
		return;
	snprintf(name, sizeof(name), "%s.%s", key->section, key->key);
	if (glk_conf_parse(conf, id, text, why, sizeof(why)) ||
		!has_form(reader, id, text, why, sizeof(why))) {
		glk_conf_report(reader, -EINVAL, name, "%s", why);
		return;
	}
	if (reader->origin == GLAKE_CONF_FILE && conf->from[id].origin == GLAKE_CONF_FILE)
		glk_conf_report(reader, 0, name, "given in line %d too; this one counts",
			conf->from[id].line);
	conf->from[id].origin = (int)reader->origin;
	conf->from[id].line = reader->line;
	keep_source(reader->source, conf->from[id].source, sizeof(conf->from[id].source));
}

void glk_conf_report_unknown(
	struct glk_conf_reader *reader, int err, const char *section, const char *key)
{
	const char *known = glk_conf_section(section);
	char name[2 * GLK_CONF_SHOWN_MAX], shown_section[GLK_CONF_SHOWN_MAX],
		shown_key[GLK_CONF_SHOWN_MAX];
	int id;

	glk_conf_show(section, shown_section, sizeof(shown_section));
	glk_conf_show(key, shown_key, sizeof(shown_key));
	snprintf(name, sizeof(name), "%s%s%s", shown_section, *section ? "." : "",
		shown_key);
	if (!known)
		known = glk_conf_nearest_section(section);
	id = glk_conf_nearest(known ? known : "", key);
	if (id >= 0)
		glk_conf_report(reader, err, name, "unknown key; did you mean %s.%s?",
			glk_conf_key((size_t)id)->section, glk_conf_key((size_t)id)->key);
	else
		glk_conf_report(reader, err, name, "unknown key");
}

void glk_conf_assign_named(struct glk_conf_reader *reader, const char *section,
	const char *key, const char *text, int err)
{
	int id = glk_conf_find(section, key);

	if (id >= 0)
		glk_conf_assign(reader, (enum glk_conf_id)id, text);
	else
		glk_conf_report_unknown(reader, err, section, key);
}

void glk_conf_format(
	const struct glk_conf *conf, enum glk_conf_id id, char *buffer, size_t size)
{
	const struct glk_conf_key *key = glk_conf_key(id);
	const void *field = (const char *)conf + key->offset;
	const char *name = "";
	int length;

	switch (key->type) {
	case GLK_TYPE_BOOL:
		snprintf(buffer, size, "%s", *(const bool *)field ? "yes" : "no");
		break;
	case GLK_TYPE_INT:
		snprintf(buffer, size, "%" PRId64, *(const int64_t *)field);
		break;
	case GLK_TYPE_SIZE:
		glk_format_size(*(const size_t *)field, buffer, size);
		break;
	case GLK_TYPE_SHARE:
		format_share(*(const size_t *)field, buffer, size);
		break;
	case GLK_TYPE_TIME:
		glk_format_time(*(const int64_t *)field, buffer, size);
		break;
	case GLK_TYPE_CHOICE:
		length = glk_conf_choice(key, *(const int *)field, &name);
		snprintf(buffer, size, "%.*s", length, name);
		break;
	case GLK_TYPE_RATIO:
		if (*(const double *)field > 0)
			snprintf(buffer, size, "%g", *(const double *)field);
		else
			snprintf(buffer, size, "%s", key->choices);
		break;
	case GLK_TYPE_TEXT:
		snprintf(buffer, size, "%s", (const char *)field);
		break;
	}
}

typedef glk_atomic(double) live_ratio;

_Static_assert(sizeof(live_ratio) == sizeof(double),
	"an atomic one lies where a plain one does");

/* With auto: while memory is plenty, and while it is short, and the parts of all memory that are held
 * then; a straight line between. */
#define PLENTY	     1.10
#define SHORT	     1.005
#define PLENTY_UP_TO 0.5
#define SHORT_FROM   0.9

static double target_set(const struct glk_conf *conf)
{
	return glk_load_relaxed((const live_ratio *)&conf->policy_target);
}

bool glk_conf_target_is_auto(const struct glk_conf *conf)
{
	return !(target_set(conf) > 0);
}

double glk_conf_target(const struct glk_conf *conf, double held)
{
	double set = target_set(conf);

	if (set > 0)
		return set;
	if (held <= PLENTY_UP_TO)
		return PLENTY;
	if (held >= SHORT_FROM)
		return SHORT;
	return PLENTY -
		(held - PLENTY_UP_TO) * (PLENTY - SHORT) / (SHORT_FROM - PLENTY_UP_TO);
}

void glk_conf_take(
	struct glk_conf *conf, enum glk_conf_id id, const struct glk_conf *from)
{
	const struct glk_conf_key *key = glk_conf_key(id);
	const void *value = (const char *)from + key->offset;
	void *field = field_of(conf, key);

	switch (key->type) {
	case GLK_TYPE_BOOL:
		glk_poke_relaxed((bool *)field, *(const bool *)value);
		break;
	case GLK_TYPE_INT:
	case GLK_TYPE_TIME:
		glk_poke_relaxed((int64_t *)field, *(const int64_t *)value);
		break;
	case GLK_TYPE_SIZE:
	case GLK_TYPE_SHARE:
		glk_poke_relaxed((size_t *)field, *(const size_t *)value);
		break;
	case GLK_TYPE_CHOICE:
		glk_poke_relaxed((int *)field, *(const int *)value);
		break;
	case GLK_TYPE_RATIO:
		glk_store_relaxed((live_ratio *)field, *(const double *)value);
		break;
	case GLK_TYPE_TEXT:
		assert(false); /* none is live */
		return;
	}
	conf->from[id] = from->from[id];
}
