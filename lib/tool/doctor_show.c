/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The report of glakectl doctor: on a terminal broken to its width, in a pipe a check and an
 * advice to a line, so that grep finds both whole.
 */
#include "tool/doctor.h"

#include "base/json.h"

#include <glake/context.h>

#include <stdio.h>
#include <string.h>

#define FRONT  30 /* columns for a status and a name before the text */
#define NARROW 64 /* below this the text has lines of its own */
#define INDENT 4
#define LEAST  20 /* columns for words; a narrower terminal breaks them itself */

const char *doctor_status_name(enum doctor_status status)
{
	static const char *const names[] = {"ok", "note", "problem"};

	return names[status];
}

/* Words from column `indent` on, where later lines begin too. */
static void print_words(const char *text, unsigned int indent, unsigned int columns)
{
	size_t column = indent, length;

	for (; *text; text += length, text += strspn(text, " ")) {
		length = strcspn(text, " ");
		if (column > indent && columns && column + 1 + length > columns) {
			printf("\n%*s", (int)indent, "");
			column = indent;
		} else if (column > indent) {
			putchar(' ');
			column++;
		}
		printf("%.*s", (int)length, text);
		column += length;
	}
	putchar('\n');
}

static void print_check(const struct doctor_check *check, unsigned int columns)
{
	bool narrow = columns && columns < NARROW;
	unsigned int indent = narrow ? INDENT : FRONT;
	int n;

	if (columns && columns < indent + LEAST)
		columns = indent + LEAST;
	n = printf("  %-7s  %s", doctor_status_name(check->status), check->name);
	if (narrow || n >= (int)indent)
		printf("\n%*s", (int)indent, "");
	else
		printf("%*s", (int)indent - n, "");
	print_words(check->text, indent, columns);
	if (!*check->advice)
		return;
	printf("%*s> ", (int)indent, "");
	print_words(check->advice, indent + 2, columns);
}

static void print_verdict(const struct doctor *doctor, unsigned int columns)
{
	size_t problems = doctor_count(doctor, DOCTOR_PROBLEM);
	size_t notes = doctor_count(doctor, DOCTOR_NOTE);
	char text[128];

	snprintf(text, sizeof(text),
		"This machine is %sfit for glake: %zu problem%s, %zu note%s",
		problems ? "not " : "", problems, problems == 1 ? "" : "s", notes,
		notes == 1 ? "" : "s");
	putchar('\n');
	print_words(text, 0, columns);
}

void doctor_print_report(const struct doctor *doctor, unsigned int columns)
{
	const char *part = NULL;

	printf("glake %s\n", glake_version_string());
	for (size_t i = 0; i < doctor->count; i++) {
		const struct doctor_check *check = &doctor->checks[i];

		if (part != check->part)
			printf("\n%s\n", check->part);
		part = check->part;
		print_check(check, columns);
	}
	if (doctor->left_out) {
		putchar('\n');
		print_words("There is more than fits into this report.", 0, columns);
	}
	print_verdict(doctor, columns);
}

int doctor_print_json(const struct doctor *doctor)
{
	struct glk_json json;

	glk_json_init(&json, stdout, 2);
	glk_json_array(&json);
	for (size_t i = 0; i < doctor->count; i++) {
		const struct doctor_check *check = &doctor->checks[i];

		glk_json_object(&json);
		glk_json_add_text(&json, "name", check->name);
		glk_json_add_text(&json, "status", doctor_status_name(check->status));
		glk_json_add_text(&json, "text", check->text);
		glk_json_add_text(&json, "advice", check->advice);
		glk_json_end(&json);
	}
	glk_json_end(&json);
	return glk_json_fini(&json) ? 1 : 0;
}
