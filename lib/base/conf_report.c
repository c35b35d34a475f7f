/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a reading of the configuration finds, and how a value gets its place. All findings
 * are handed out, since who repairs a file wants to do it once; the first error becomes the
 * thread's record. Texts of others (files, the environment) are shown in printable ASCII
 * only, so that no file can play with the terminal of who checks it.
 */
#include "base/conf_reader.h"
#include "base/conf_table.h"
#include "base/error.h"

#include <errno.h>
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
