/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Every answer of the tool has a form for programs, and some figures come with names that
 * others chose (files, GPUs, values of a configuration). So escaping must be right for any
 * bytes, and it is done in one place.
 *
 * Invariants	`ends` holds the closing character of each open container; `some` and `keyed`
 *		are about the innermost one, and `some` is true again when one was closed,
 *		since its parent then has a member.
 * Locale	the host may have set a decimal comma; numbers are written with a point.
 * Cost		no memory of its own; a byte at a time into the FILE's buffer.
 */
#include "base/json.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool rightly(struct glk_json *json, bool right)
{
	assert(right);
	json->wrong |= !right;
	return !json->wrong;
}

static void line(struct glk_json *json)
{
	if (!json->indent)
		return;
	putc('\n', json->file);
	for (int i = 0; i < json->depth * json->indent; i++)
		putc(' ', json->file);
}

/* What comes before a value: nothing behind its key, else a comma and a line. */
static bool before_value(struct glk_json *json)
{
	bool in_object = json->depth && json->ends[json->depth - 1] == '}';

	if (!rightly(json, in_object ? json->keyed : json->depth || !json->done))
		return false;
	json->done = true;
	if (json->depth && !in_object) {
		if (json->some)
			putc(',', json->file);
		line(json);
	}
	json->some = true;
	json->keyed = false;
	return true;
}

size_t glk_json_utf8_length(const unsigned char *s, size_t left)
{
	uint32_t code;
	size_t length;

	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if (length > left)
		return 0;
	code = s[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3fu);
	}
	/* Too long a form, a half of a surrogate pair, past the last plane. */
	if ((length == 3 && code < 0x800) || (length == 4 && code < 0x10000) ||
		(code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
		return 0;
	return length;
}

static void escaped(FILE *file, unsigned char c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *at = memchr(from, c, sizeof(from) - 1);

	if (at)
		fprintf(file, "\\%c", to[at - from]);
	else
		fprintf(file, "\\u%04x", c);
}

/* What needs no other form goes out in one: a file may have no buffer. */
static void quoted(FILE *file, const char *bytes, size_t size)
{
	const unsigned char *s = (const unsigned char *)bytes;
	size_t begin = 0, i = 0;

	putc('"', file);
	while (i < size) {
		size_t length = glk_json_utf8_length(s + i, size - i);

		if (length && s[i] >= 0x20 && s[i] != '"' && s[i] != '\\') {
			i += length;
			continue;
		}
		fwrite(s + begin, 1, i - begin, file);
		if (length)
			escaped(file, s[i]);
		else
			fputs("\xef\xbf\xbd", file);
		begin = ++i;
	}
	fwrite(s + begin, 1, i - begin, file);
	putc('"', file);
}

void glk_json_init(struct glk_json *json, FILE *file, int indent)
{
	*json = (struct glk_json){.file = file, .indent = indent};
}

int glk_json_fini(struct glk_json *json)
{
	if (!rightly(json, json->done && !json->depth))
		return -EINVAL;
	putc('\n', json->file);
	return fflush(json->file) || ferror(json->file) ? -EIO : 0;
}

static void open_container(struct glk_json *json, char begin, char end)
{
	if (!rightly(json, json->depth < GLK_JSON_DEPTH_MAX) || !before_value(json))
		return;
	putc(begin, json->file);
	json->ends[json->depth++] = end;
	json->some = false;
}

void glk_json_object(struct glk_json *json)
{
	open_container(json, '{', '}');
}

void glk_json_array(struct glk_json *json)
{
	open_container(json, '[', ']');
}

void glk_json_end(struct glk_json *json)
{
	bool some = json->some;

	if (!rightly(json, json->depth && !json->keyed))
		return;
	json->depth--;
	if (some)
		line(json);
	putc(json->ends[json->depth], json->file);
	json->some = true;
}

void glk_json_key(struct glk_json *json, const char *key)
{
	bool in_object = json->depth && json->ends[json->depth - 1] == '}';

	if (!rightly(json, in_object && !json->keyed))
		return;
	if (json->some)
		putc(',', json->file);
	line(json);
	quoted(json->file, key, strlen(key));
	fputs(json->indent ? ": " : ":", json->file);
	json->keyed = true;
}

void glk_json_bytes(struct glk_json *json, const char *bytes, size_t size)
{
	if (before_value(json))
		quoted(json->file, bytes, size);
}

void glk_json_text(struct glk_json *json, const char *text)
{
	if (text)
		glk_json_bytes(json, text, strlen(text));
	else
		glk_json_null(json);
}

void glk_json_bool(struct glk_json *json, bool value)
{
	if (before_value(json))
		fputs(value ? "true" : "false", json->file);
}

void glk_json_int(struct glk_json *json, int64_t value)
{
	if (before_value(json))
		fprintf(json->file, "%" PRId64, value);
}

void glk_json_uint(struct glk_json *json, uint64_t value)
{
	if (before_value(json))
		fprintf(json->file, "%" PRIu64, value);
}

void glk_json_null(struct glk_json *json)
{
	if (before_value(json))
		fputs("null", json->file);
}

/* Writes a number made by printf, whatever stands for the decimal point in this locale. */
static void number(struct glk_json *json, const char *text)
{
	bool foreign = false;

	for (const char *s = text; *s; s++) {
		bool known = strchr("0123456789+-e", *s);

		if (known)
			putc(*s, json->file);
		else if (!foreign)
			putc('.', json->file);
		foreign = !known;
	}
}

void glk_json_figure(struct glk_json *json, double value, int digits)
{
	char text[48];

	if (!isfinite(value)) {
		glk_json_null(json);
		return;
	}
	if (!before_value(json))
		return;
	snprintf(text, sizeof(text), "%.*g", digits < 17 ? digits : 17, value);
	number(json, text);
}

void glk_json_double(struct glk_json *json, double value)
{
	char text[48];
	int digits = 15;

	if (isfinite(value)) {
		/* 15 digits always survive; 17 always tell two doubles apart. */
		for (; digits < 17; digits++) {
			snprintf(text, sizeof(text), "%.*g", digits, value);
			if (strtod(text, NULL) == value)
				break;
		}
	}
	glk_json_figure(json, value, digits);
}
