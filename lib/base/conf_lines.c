/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The lines of a configuration file:
 *
 *	; a comment, or # a comment, of any length
 *	[section]
 *	key = value ; a comment
 *
 * Lines end with LF or CR LF, the last one also with nothing; blanks at both ends do not count,
 * ':' is as good as '='. Every line is read by itself, so that all mistakes are found, each with
 * its line. No library does it: libinih as distributions build it tells of the first mistake only
 * and of no line numbers, and cuts lines at 200 bytes.
 */
#include "base/conf_reader.h"
#include "base/conf_table.h"

#include <errno.h>
#include <string.h>

#define LINE_MOST 199

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Without the blanks at its ends. */
static char *strip(char *s)
{
	char *end = s + strlen(s);

	while (is_blank(*s))
		s++;
	while (end > s && is_blank(end[-1]))
		end--;
	*end = '\0';
	return s;
}

/* The first of these characters, or where the text ends: at a semicolon behind a blank. */
static char *find(char *s, const char *chars)
{
	for (bool blank = false; *s && !strchr(chars, *s) && !(blank && *s == ';'); s++)
		blank = is_blank(*s);
	return s;
}

/* The section that begins; NULL if it is none, and what is in it is not looked at. */
static const char *read_section(struct glk_conf_reader *reader, char *line)
{
	char *end = strchr(line, ']'), *rest = end ? strip(end + 1) : NULL;
	char shown[GLK_CONF_SHOWN_MAX];
	const char *known, *near;

	if (!end || (*rest && *rest != ';' && *rest != '#')) {
		glk_conf_report(reader, -EINVAL, "",
			"a section is written as [name], alone on its line");
		return NULL;
	}
	*end = '\0';
	known = glk_conf_section(line + 1);
	if (known)
		return known;
	near = glk_conf_nearest_section(line + 1);
	glk_conf_show(line + 1, shown, sizeof(shown));
	glk_conf_report(reader, 0, "", "unknown section [%s]%s%s%s", shown,
		near ? "; did you mean [" : "", near ? near : "", near ? "]?" : "");
	return NULL;
}

static void read_value(struct glk_conf_reader *reader, const char *section, char *line)
{
	char *equals = find(line, "=:");
	const char *key;

	if (*equals != '=' && *equals != ':') {
		glk_conf_report(reader, -EINVAL, "",
			"neither a comment nor [section] nor key = value");
		return;
	}
	*find(equals + 1, "") = '\0';
	*equals = '\0';
	key = strip(line);
	if (!*key)
		glk_conf_report(reader, -EINVAL, "", "no key before the value");
	else if (section)
		glk_conf_assign_named(reader, section, key, strip(equals + 1), 0);
}

static bool has_control(const char *s)
{
	for (; *s; s++) {
		if (((unsigned char)*s < ' ' && *s != '\t') || *s == 0x7f)
			return true;
	}
	return false;
}

/* A line without its end; it is changed on the way. */
static void read_line(struct glk_conf_reader *reader, const char **section, char *line)
{
	size_t length;

	line = strip(line);
	length = strlen(line);
	if (!length || *line == ';' || *line == '#')
		return;
	if (has_control(line)) {
		glk_conf_report(reader, -EINVAL, "",
			"has a control character; lines end with LF or CR LF");
		return;
	}
	if (length > LINE_MOST)
		glk_conf_report(reader, -EINVAL, "",
			"has %zu bytes; %d is the most for a line", length, LINE_MOST);
	else if (*line == '[')
		*section = read_section(reader, line);
	else
		read_value(reader, *section, line);
}

void glk_conf_read_lines(struct glk_conf_reader *reader, char *text)
{
	const char *section = "";
	size_t length;
	bool more;

	if (!strncmp(text, "\xef\xbb\xbf", 3))
		text += 3;
	for (reader->line = 1; *text; reader->line++) {
		length = strcspn(text, "\n");
		more = text[length];
		text[length] = '\0';
		if (length && text[length - 1] == '\r')
			text[length - 1] = '\0';
		read_line(reader, &section, text);
		text += length + more;
	}
	reader->line = 0;
}
