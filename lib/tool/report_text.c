/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Texts of a page. Names come from files and from programs that were recorded, so they may be
 * anything; what is written here is a text and nothing else, wherever it stands in the page.
 */
#include "tool/report.h"

#include "base/json.h"

#include <string.h>

/* Controls, and what turns the direction of the text around. */
static bool is_unwanted(const unsigned char *s, size_t length)
{
	if (length == 1)
		return *s < ' ' || *s == 0x7f;
	if (length == 2)
		return s[0] == 0xc2 && s[1] < 0xa0;
	if (length != 3 || s[0] != 0xe2)
		return false;
	return (s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) ||
		(s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9);
}

void report_put_text(FILE *file, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t left = strlen(text);

	while (left) {
		size_t length = glk_json_utf8_length(s, left);
		size_t step = length ? length : 1;

		if (!length || is_unwanted(s, length))
			fputs("\xef\xbf\xbd", file);
		else if (strchr("<>&\"'", *s))
			fprintf(file, "&#%d;", *s);
		else
			fwrite(s, 1, length, file);
		s += step;
		left -= step;
	}
}

void report_put_figure(FILE *file, struct figure figure)
{
	for (const char *at = figure.text; *at; at++) {
		if (*at == ' ')
			fputs("&#160;", file);
		else
			fputc(*at, file);
	}
}

void report_put_count(FILE *file, uint64_t count)
{
	report_put_figure(file, figure_count((double)count));
}

void report_put_bytes(FILE *file, uint64_t bytes)
{
	report_put_figure(file, figure_bytes(bytes));
}

void report_put_bar(FILE *file, double share)
{
	fprintf(file, "<td class=\"bar\" style=\"--w:%.1f%%\">", share * 100);
}

void report_put_table(FILE *file, const char *caption, const char *const *columns)
{
	fprintf(file,
		"<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">"
		"<table><caption>%s</caption>\n<thead><tr>",
		caption, caption);
	for (; *columns; columns++)
		fprintf(file, "<th scope=\"col\">%s</th>", *columns);
	fputs("</tr></thead>\n<tbody>\n", file);
}
