/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The lines of a configuration file, through libinih. That library splits a line into key
 * and value well, but as distributions build it: it cuts lines at 200 bytes into several, its
 * handler learns no line numbers, it tells of the first malformed line only, it takes an
 * indented line for more of the value above, and it says nothing of sections without keys.
 * So the function that hands it the lines counts them, looks at sections, drops indents and
 * refuses what would be cut, and it knows of each line whether the handler was called for it.
 *
 * Lines end with LF or CR LF, the last one also with nothing. Comments may be of any length.
 */
#include "base/conf_reader.h"
#include "base/conf_table.h"

#include <errno.h>
#include <ini.h>
#include <string.h>

struct lines {
	struct glk_conf_reader *reader;
	const char *text;
	size_t size, at;
	int line;
	bool waiting; /* the handler was not called yet for a line that needs it */
	bool skip;    /* in a section that is not known or malformed */
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* "[name]", behind it nothing but a comment. */
static bool section_name(const char *s, size_t size, char *ret_name, size_t name_size)
{
	const char *end = memchr(s, ']', size), *at;
	size_t length;

	if (!end)
		return false;
	for (at = end + 1; at < s + size && is_blank(*at); at++)
		;
	if (at < s + size && *at != ';' && *at != '#')
		return false;
	length = (size_t)(end - s) - 1;
	if (length >= name_size)
		length = name_size - 1;
	memcpy(ret_name, s + 1, length);
	ret_name[length] = '\0';
	return true;
}

static void at_section(struct lines *lines, const char *s, size_t size)
{
	char name[GLK_CONF_SHOWN_MAX], shown[GLK_CONF_SHOWN_MAX];
	const char *near;

	lines->skip = true;
	if (!section_name(s, size, name, sizeof(name))) {
		glk_conf_report(lines->reader, -EINVAL, "",
			"a section is written as [name], alone on its line");
		return;
	}
	lines->skip = !glk_conf_section(name);
	if (!lines->skip)
		return;
	near = glk_conf_nearest_section(name);
	glk_conf_show(name, shown, sizeof(shown));
	glk_conf_report(lines->reader, 0, "", "unknown section [%s]%s%s%s", shown,
		near ? "; did you mean [" : "", near ? near : "", near ? "]?" : "");
}

/* Moves to the next line, its end and the blanks around it stripped; false at the end. */
static bool step(struct lines *lines, const char **ret_line, size_t *ret_size)
{
	const char *s = lines->text + lines->at, *end;

	if (lines->at >= lines->size)
		return false;
	end = memchr(s, '\n', lines->size - lines->at);
	lines->at = end ? (size_t)(end - lines->text) + 1 : lines->size;
	if (!end)
		end = lines->text + lines->size;
	lines->reader->line = ++lines->line;
	if (lines->line == 1 && end - s >= 3 && !memcmp(s, "\xef\xbb\xbf", 3))
		s += 3;
	if (end > s && end[-1] == '\r')
		end--;
	while (s < end && is_blank(*s))
		s++;
	while (end > s && is_blank(end[-1]))
		end--;
	*ret_line = s;
	*ret_size = (size_t)(end - s);
	return true;
}

static bool has_control(const char *s, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (((unsigned char)s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f)
			return true;
	}
	return false;
}

/* The reader that libinih calls, in the manner of fgets. */
static char *next_line(char *buffer, int size, void *stream)
{
	struct lines *lines = stream;
	const char *s;
	size_t length;

	if (lines->waiting)
		glk_conf_report(lines->reader, -EINVAL, "",
			"neither a comment nor [section] nor key = value");
	lines->waiting = false;
	while (step(lines, &s, &length)) {
		if (!length || *s == ';' || *s == '#')
			continue;
		if (has_control(s, length)) {
			glk_conf_report(lines->reader, -EINVAL, "",
				"has a control character; lines end with LF or CR LF");
			continue;
		}
		if (*s == '[')
			at_section(lines, s, length);
		if (*s == '[' && lines->skip)
			continue;
		if (length >= (size_t)size) {
			glk_conf_report(lines->reader, -EINVAL, "",
				"has %zu bytes; %d is the most for a line", length,
				size - 1);
			continue;
		}
		memcpy(buffer, s, length);
		buffer[length] = '\0';
		lines->waiting = *s != '[';
		return buffer;
	}
	return NULL;
}

static int on_value(void *arg, const char *section, const char *name, const char *value)
{
	struct lines *lines = arg;

	lines->waiting = false;
	if (!*name)
		glk_conf_report(lines->reader, -EINVAL, "", "no key before the value");
	else if (!lines->skip)
		glk_conf_assign_named(lines->reader, section, name, value, 0);
	return 1;
}

void glk_conf_read_lines(struct glk_conf_reader *reader, const char *text, size_t size)
{
	struct lines lines = {.reader = reader, .text = text, .size = size};

	/* Its answer is the line of the first malformed line, which is reported already. */
	ini_parse_stream(next_line, &lines, on_value, &lines);
	reader->line = 0;
}
