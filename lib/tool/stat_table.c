/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table of glakectl stat. It knows no figure: it shows what the process has, in its order, by
 * the unit that each name ends with, so that it fits a library of another version.
 */
#include "tool/stat.h"

#include "tool/figure.h"
#include "tool/process.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS 6
#define STREAM	"stream_"

struct column {
	const char *head;
	struct json_object *object;
};

static bool ends_with(const char *name, const char *end)
{
	size_t length = strlen(name), behind = strlen(end);

	return length > behind && !strcmp(name + length - behind, end);
}

static struct figure value_text(const char *name, struct json_object *value)
{
	struct figure none = {.text = "-"};

	if (ends_with(name, "_ratio") &&
		json_object_get_type(value) == json_type_double) {
		struct figure ratio;

		snprintf(ratio.text, sizeof(ratio.text), "%.4f",
			json_object_get_double(value));
		return ratio;
	}
	if (json_object_get_type(value) != json_type_int)
		return none;
	if (ends_with(name, "_bytes"))
		return figure_bytes(json_object_get_uint64(value));
	if (ends_with(name, "_ns"))
		return figure_ns((double)json_object_get_uint64(value));
	return figure_count((double)json_object_get_uint64(value));
}

static struct json_object *value_of(
	const struct column *column, const char *name, const char *part)
{
	struct json_object *value = NULL;

	json_object_object_get_ex(column->object, name, &value);
	if (part && json_object_get_type(value) == json_type_object)
		json_object_object_get_ex(value, part, &value);
	return value;
}

/* A row: one figure of all columns, `part` of it where it is several; with `some` none where all are 0. */
static void print_row(const struct column *columns, size_t count, const char *name,
	const char *part, bool some)
{
	char whole[80];
	size_t zeroes = 0;

	for (size_t i = 0; some && i < count; i++)
		zeroes += json_object_get_double(value_of(&columns[i], name, part)) == 0;
	if (zeroes == count)
		return;
	snprintf(whole, sizeof(whole), "%s%s%s", name, part ? "." : "", part ? part : "");
	for (char *c = whole; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	printf("  %-37s", whole);
	for (size_t i = 0; i < count; i++) {
		printf(" %13s", value_text(name, value_of(&columns[i], name, part)).text);
	}
	puts("");
}

/* Those of streams have tables of their own, and so have times. */
static bool is_elsewhere(const char *name, struct json_object *value)
{
	return stat_has_times(value) ||
		(json_object_get_type(value) == json_type_object &&
			!strncmp(name, STREAM, strlen(STREAM)));
}

static void print_columns(const struct column *columns, size_t count, bool some)
{
	printf("  %-37s", "");
	for (size_t i = 0; i < count; i++)
		printf(" %13s", columns[i].head);
	puts("");
	json_object_object_foreach(columns[0].object, name, value)
	{
		enum json_type type = json_object_get_type(value);

		if (is_elsewhere(name, value))
			continue;
		if (type == json_type_object) {
			json_object_object_foreach(value, part, ignored)
			{
				(void)ignored;
				print_row(columns, count, name, part, some);
			}
		} else if ((type == json_type_int || type == json_type_double ||
				   type == json_type_null) &&
			strcmp(name, "gpu") && strcmp(name, "context")) {
			print_row(columns, count, name, NULL, some);
		}
	}
}

/* A row for each stream, a column for each figure of streams. */
static void print_streams(struct json_object *gpu)
{
	struct json_object *column[COLUMNS], *names = NULL, *of;
	const char *column_name[COLUMNS];
	size_t count = 0;
	char word[32];

	json_object_object_foreach(gpu, name, value)
	{
		if (count == COLUMNS || stat_has_times(value) ||
			!is_elsewhere(name, value))
			continue;
		names = value;
		column_name[count] = name;
		column[count++] = value;
	}
	if (!names)
		return;
	printf("\n  GPU %-5u%-17s", (unsigned)process_number(gpu, "gpu") & 0xffff,
		" streams");
	for (size_t i = 0; i < count; i++)
		printf(" %13.13s", column_name[i] + strlen(STREAM));
	puts("");
	json_object_object_foreach(names, stream, ignored)
	{
		(void)ignored;
		snprintf(word, sizeof(word), "%s", stream);
		for (char *c = word; *c; c++)
			if (*c < ' ' || *c > '~')
				*c = '?';
		printf("    %-24s", word);
		for (size_t i = 0; i < count; i++) {
			of = NULL;
			json_object_object_get_ex(column[i], stream, &of);
			printf(" %13s", value_text(column_name[i], of).text);
		}
		puts("");
	}
}

/* What is of one GPU alone. */
static void print_gpu(struct json_object *gpu, bool times)
{
	char head[32];

	if (json_object_get_type(gpu) != json_type_object)
		return;
	print_streams(gpu);
	if (!times)
		return;
	snprintf(head, sizeof(head), "GPU %u times",
		(unsigned)process_number(gpu, "gpu") & 0xffff);
	puts("");
	stat_print_times(gpu, head);
}

static void print_context(struct json_object *context, bool times, bool some)
{
	struct json_object *gpus = process_array(context, "gpus");
	size_t count = gpus ? json_object_array_length(gpus) : 0;
	struct column columns[COLUMNS];
	char heads[COLUMNS][16], driver[16];

	process_word(context, "driver", driver, sizeof(driver));
	printf("\nContext %u, driver %s%s\n",
		(unsigned)process_number(context, "context"), driver,
		count ? "" : ": no GPU is in use");
	for (size_t from = 0; from < count; from += COLUMNS) {
		size_t here = count - from < COLUMNS ? count - from : COLUMNS;

		for (size_t i = 0; i < here; i++) {
			columns[i].object = json_object_array_get_idx(gpus, from + i);
			snprintf(heads[i], sizeof(heads[i]), "GPU %u",
				(unsigned)process_number(columns[i].object, "gpu") &
					0xffff);
			columns[i].head = heads[i];
		}
		if (json_object_get_type(columns[0].object) == json_type_object)
			print_columns(columns, here, some);
	}
	for (size_t i = 0; i < count; i++)
		print_gpu(json_object_array_get_idx(gpus, i), times);
	if (count)
		puts("");
	columns[0] = (struct column){"all GPUs", context};
	if (json_object_get_type(context) == json_type_object)
		print_columns(columns, 1, some);
	if (times && json_object_get_type(context) == json_type_object) {
		puts("");
		stat_print_times(context, "times");
	}
}

void stat_print_table(struct json_object *stats, bool times, bool all)
{
	struct json_object *contexts = process_array(stats, "contexts");
	size_t count = contexts ? json_object_array_length(contexts) : 0;
	char program[64], version[32];

	process_word(stats, "program", program, sizeof(program));
	process_word(stats, "version", version, sizeof(version));
	printf("Process %d, %s, glake %s\n", (int)process_number(stats, "pid"), program,
		version);
	for (size_t i = 0; i < count; i++)
		print_context(json_object_array_get_idx(contexts, i), times, !all);
	if (count && !all)
		puts("\nFigures that are 0 are left out: --all has them.");
}
