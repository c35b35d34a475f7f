/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reports for people. A report is read again from its JSON, so that what it has is what is shown,
 * whoever made it. Texts in it may be those of others, and shall not steer the terminal.
 */
#include "tool/report.h"

#include "tool/figure.h"
#include "tool/tool.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_MAX 48
#define CELL_MAX    512
#define HEAD_MAX    256
#define WIDTH	    80 /* of a table that goes into no terminal; a wider one goes on below */
#define PARTS	    2 /* and where it is wider than so many, each row has lines of its own */
#define ROWS_MAX    100
#define GAP	    2
#define HEAD	    26 /* of a line */

struct cell {
	char text[CELL_MAX];
	bool left; /* it is no number */
};

static const struct unit {
	const char *end, *name; /* a name: it stands behind the number */
	double ns;		/* 0: it is no time */
} units[] = {{"_bytes", NULL, 0}, {"_ns", NULL, 1}, {"_us", NULL, 1e3},
	{"_ms", NULL, 1e6}, {"_s", NULL, 1e9}, {"_gbs", "GB/s", 0}, {"_percent", "%", 0}};

static const struct unit *unit_of(const char *name)
{
	size_t length = name ? strlen(name) : 0;

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		size_t end = strlen(units[i].end);

		if (length > end && !strcmp(name + length - end, units[i].end))
			return &units[i];
	}
	return NULL;
}

/* What a name says before its unit, in words. */
static const char *head_of(const char *name, char head[HEAD_MAX])
{
	const struct unit *unit = unit_of(name);
	size_t length = strlen(name) - (unit ? strlen(unit->end) : 0);

	snprintf(head, HEAD_MAX, "%.*s", (int)length, name);
	for (char *c = head; *c; c++)
		*c = *c == '_' ? ' ' : *c < ' ' || *c > '~' ? '?' : *c;
	return head;
}

static struct json_object *member(struct json_object *of, const char *name)
{
	struct json_object *found = NULL;

	json_object_object_get_ex(of, name, &found);
	return found;
}

static bool is(struct json_object *value, enum json_type type)
{
	return json_object_get_type(value) == type;
}

/* An object, or a list of such, which is no figure. */
static bool is_deep(struct json_object *value)
{
	if (is(value, json_type_array))
		return is(json_object_array_get_idx(value, 0), json_type_object);
	return is(value, json_type_object) && !member(value, "median");
}

static struct figure number_text(const struct unit *unit, struct json_object *value)
{
	double number = json_object_get_double(value);
	struct figure figure;

	if (unit && unit->ns > 0)
		return figure_ns(number * unit->ns);
	if (unit && !unit->name)
		return figure_bytes(json_object_get_uint64(value));
	if (!unit && is(value, json_type_int))
		return figure_count(number);
	snprintf(figure.text, sizeof(figure.text), unit ? "%.4g %s" : "%.6g", number,
		unit ? unit->name : "");
	return figure;
}

static void put(struct cell *cell, const char *text)
{
	size_t used = strlen(cell->text);

	snprintf(cell->text + used, sizeof(cell->text) - used, "%s", text);
}

static void put_value(
	struct cell *cell, const struct unit *unit, struct json_object *value)
{
	switch (json_object_get_type(value)) {
	case json_type_null:
		put(cell, "-");
		break;
	case json_type_boolean:
		put(cell, json_object_get_boolean(value) ? "yes" : "no");
		break;
	case json_type_string:
		cell->left = true;
		put(cell, json_object_get_string(value));
		break;
	case json_type_object:
		put_value(cell, unit, member(value, "median"));
		break;
	case json_type_array:
		cell->left = true;
		for (size_t i = 0; i < json_object_array_length(value); i++) {
			put(cell, i ? " " : "");
			put_value(cell, unit, json_object_array_get_idx(value, i));
		}
		break;
	default:
		put(cell, number_text(unit, value).text);
	}
}

/* What tells one thing from others is no figure. */
static bool is_number(const char *name)
{
	static const char *const names[] = {"pid", "thread", "version", "line", "lane"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* `of`: the object that it is a member of, which has the unit where the name has none; or NULL. */
static struct cell cell_of(const char *name, const char *of, struct json_object *value)
{
	const struct unit *unit = unit_of(name);
	struct cell cell = {.left = false};

	if (is(value, json_type_int) && is_number(name))
		put(&cell, json_object_get_string(value));
	else
		put_value(&cell, unit ? unit : unit_of(of), value);
	for (char *c = cell.text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	put(&cell, *cell.text ? "" : "-");
	return cell;
}

/* ---- Lines ---- */

static void print_line(int indent, const char *name, const char *text)
{
	char head[HEAD_MAX];

	printf("%*s%-*s %s\n", indent, "", HEAD - indent, head_of(name, head), text);
}

/* An object of counts is one line: those that are not 0. */
static bool is_counts(struct json_object *object)
{
	if (!is(object, json_type_object))
		return false;
	json_object_object_foreach(object, name, value)
	{
		if (!is(value, json_type_int) || unit_of(name))
			return false;
	}
	return true;
}

static void print_counts(int indent, const char *name, struct json_object *object)
{
	struct cell cell = {.left = true};

	json_object_object_foreach(object, key, value)
	{
		if (!json_object_get_int64(value))
			continue;
		put(&cell, *cell.text ? ", " : "");
		put(&cell, key);
		put(&cell, " ");
		put(&cell, number_text(NULL, value).text);
	}
	print_line(indent, name, *cell.text ? cell.text : "none");
}

static void print_lines(struct json_object *object, const char *of, int indent)
{
	if (!is(object, json_type_object))
		return; /* a row without it */
	json_object_object_foreach(object, name, value)
	{
		if (!is_deep(value))
			print_line(indent, name, cell_of(name, of, value).text);
		else if (is_counts(value))
			print_counts(indent, name, value);
	}
}

/* ---- Tables ---- */

struct table {
	struct json_object *rows;
	const char *of; /* the object of each row that is shown; NULL: the row itself */
	const char *column[COLUMNS_MAX];
	size_t width[COLUMNS_MAX], count;
	size_t all, most; /* columns of the terminal: wanted, and there */
	bool left[COLUMNS_MAX];
};

static struct json_object *row_of(const struct table *table, size_t i)
{
	struct json_object *row = json_object_array_get_idx(table->rows, i);

	return table->of ? member(row, table->of) : row;
}

static void add_cell(struct table *table, const char *name, struct json_object *value)
{
	struct cell cell = cell_of(name, table->of, value);
	size_t at = 0, width = strlen(cell.text);
	char head[HEAD_MAX];

	while (at < table->count && strcmp(table->column[at], name))
		at++;
	if (at == COLUMNS_MAX)
		return;
	if (at == table->count) {
		table->column[table->count++] = name;
		table->width[at] = strlen(head_of(name, head));
	}
	if (width > table->width[at])
		table->width[at] = width;
	table->left[at] |= cell.left;
}

/* Columns of all rows, in the order in which they are met. */
static void measure(struct table *table)
{
	for (size_t i = 0; i < json_object_array_length(table->rows); i++) {
		struct json_object *row = row_of(table, i);

		if (!is(row, json_type_object))
			continue;
		json_object_object_foreach(row, name, value)
		{
			if (!is_deep(value))
				add_cell(table, name, value);
		}
	}
	for (size_t c = 0; c < table->count; c++)
		table->all += table->width[c] + GAP;
}

static size_t find_width(void)
{
	struct winsize size;

	return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col ? size.ws_col
								       : WIDTH;
}

/* A row, or with -1 the heads, of the columns up to `end`, the last of which is not filled up. */
static void print_row(const struct table *table, int row, size_t first, size_t end)
{
	char head[HEAD_MAX];

	for (size_t c = first; c < end; c++) {
		const char *name = table->column[c];
		int width = (int)table->width[c];
		struct cell cell = {.left = false};

		if (row >= 0)
			cell = cell_of(name, table->of,
				member(row_of(table, (size_t)row), name));
		else
			put(&cell, head_of(name, head));
		if (table->left[c])
			width = c + 1 == end ? 0 : -width;
		printf("%*s%*s", GAP, "", width, cell.text);
	}
	putchar('\n');
}

/* Columns that there is room for beside each other, be it for the begin of words at the very end; where the
 * next ones begin. */
static size_t print_part(const struct table *table, size_t first)
{
	size_t width = 5, end = first, next;

	for (; end < table->count; end++) {
		bool words = end + 1 == table->count && table->left[end];

		next = width + GAP + (words ? 0 : table->width[end]);
		if (end > first && next > table->most)
			break;
		width = next;
	}
	printf("%5s", "");
	print_row(table, -1, first, end);
	for (size_t i = 0; i < json_object_array_length(table->rows) && i < ROWS_MAX;
		i++) {
		printf("%5zu", i + 1);
		print_row(table, (int)i, first, end);
	}
	return end;
}

/* Rows, or with `of` an object of each. */
static void print_rows(struct json_object *rows, const char *of, const char *title)
{
	struct table table = {.rows = rows, .of = of, .most = find_width()};
	size_t count = json_object_array_length(rows);
	char head[HEAD_MAX];

	measure(&table);
	printf("\n%s%s%s\n", title, of ? ", " : "", of ? head_of(of, head) : "");
	for (size_t at = 0; at < table.count && table.all <= PARTS * table.most;)
		at = print_part(&table, at);
	for (size_t i = 0; i < count && i < ROWS_MAX && table.all > PARTS * table.most;
		i++) {
		printf("%5zu\n", i + 1);
		print_lines(row_of(&table, i), of, 6);
	}
	if (count > ROWS_MAX)
		printf("%5s  and %zu more, which --json has\n", "", count - ROWS_MAX);
}

static void print_table(struct json_object *rows, const char *title)
{
	print_rows(rows, NULL, title);
	json_object_object_foreach(json_object_array_get_idx(rows, 0), name, value)
	{
		if (is_deep(value))
			print_rows(rows, name, title);
	}
}

static void print_object(struct json_object *object, const char *of, const char *title)
{
	char whole[2 * HEAD_MAX], head[HEAD_MAX];

	if (*title)
		printf("\n%s\n", title);
	print_lines(object, of, 2);
	json_object_object_foreach(object, name, value)
	{
		snprintf(whole, sizeof(whole), "%s%s%s", title, *title ? ", " : "",
			head_of(name, head));
		if (is(value, json_type_array) && is_deep(value))
			print_table(value, whole);
		else if (is_deep(value) && !is_counts(value))
			print_object(value, name, whole);
	}
}

/* ---- */

int report_begin(struct report *report, bool for_programs)
{
	*report = (struct report){.file = NULL};
	if (!for_programs)
		report->file = open_memstream(&report->text, &report->size);
	if (!for_programs && !report->file) {
		glk_tool_say("%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	glk_json_init(&report->json, report->file ? report->file : stdout, 2);
	return 0;
}

int report_end(struct report *report)
{
	struct json_object *all = NULL;
	int err = glk_json_fini(&report->json);

	if (!report->file)
		return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
	if (!fclose(report->file) && !err)
		all = json_tokener_parse(report->text);
	if (all)
		print_object(all, NULL, "");
	else
		glk_tool_say("%s", strerror(ENOMEM));
	json_object_put(all);
	free(report->text);
	return all ? GLK_TOOL_OK : GLK_TOOL_FAILED;
}
