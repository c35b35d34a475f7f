/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One row of the log that RAPIDS Memory Manager writes:
 *
 *	Thread,Time,Action,Pointer,Size,Stream
 *
 * Writers differ. Time is HH:MM:SS.uuuuuu in RMM's own logs and plain microseconds in others;
 * Pointer is hexadecimal with or without 0x, or (nil); Stream is a decimal number, or a
 * pointer with 0x. Everything else is an error with a sentence: a trace that is read wrongly
 * gives figures that look right.
 */
#include "tool/trace.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char trace_header[] = "Thread,Time,Action,Pointer,Size,Stream";

enum column { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, COLUMNS };

static const char *const names[COLUMNS] = {
	"Thread", "Time", "Action", "Pointer", "Size", "Stream"};

int trace_fail(char *message, size_t size, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(message, size, format, args);
	va_end(args);
	return err;
}

struct field {
	const char *text;
	size_t length;
};

static bool is(const struct field *field, const char *text)
{
	return field->length == strlen(text) && !memcmp(field->text, text, field->length);
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 16;
}

/* All of the field, digits alone. */
static bool number(const struct field *field, int base, uint64_t *ret_value)
{
	uint64_t value = 0;

	if (!field->length)
		return false;
	for (size_t i = 0; i < field->length; i++) {
		int digit = digit_value(field->text[i]);

		if (digit >= base ||
			__builtin_mul_overflow(value, (uint64_t)base, &value) ||
			__builtin_add_overflow(value, (uint64_t)digit, &value))
			return false;
	}
	*ret_value = value;
	return true;
}

static bool has_0x(const struct field *field)
{
	return field->length > 2 && field->text[0] == '0' &&
		(field->text[1] == 'x' || field->text[1] == 'X');
}

static bool hexadecimal(const struct field *field, uint64_t *ret_value)
{
	struct field rest = *field;

	if (has_0x(field))
		rest = (struct field){field->text + 2, field->length - 2};
	return number(&rest, 16, ret_value);
}

/* Decimal unless it says otherwise. */
static bool handle(const struct field *field, uint64_t *ret_value)
{
	return has_0x(field) ? hexadecimal(field, ret_value)
			     : number(field, 10, ret_value);
}

static bool pointer(const struct field *field, uint64_t *ret_value)
{
	if (is(field, "(nil)") || is(field, "nullptr")) {
		*ret_value = 0;
		return true;
	}
	return hexadecimal(field, ret_value);
}

/* HH:MM:SS with up to six digits of a fraction behind '.' or ':'. */
static bool clock_time(const struct field *field, int64_t *ret_us)
{
	static const int64_t limits[4] = {24, 60, 61, 1000000};
	static const int64_t weights[4] = {3600000000, 60000000, 1000000, 1};
	int64_t parts[4] = {0};
	size_t part = 0, digits = 0;

	for (size_t i = 0; i < field->length; i++) {
		char c = field->text[i];

		if (c >= '0' && c <= '9' && digits < (part == 3 ? 6 : 2)) {
			parts[part] = parts[part] * 10 + (c - '0');
			digits++;
		} else if (digits && part < 3 && (c == ':' || (c == '.' && part == 2))) {
			part++;
			digits = 0;
		} else {
			return false;
		}
	}
	if (part < 2 || !digits)
		return false;
	for (; part == 3 && digits < 6; digits++)
		parts[3] *= 10;
	*ret_us = 0;
	for (size_t i = 0; i < 4; i++) {
		if (parts[i] >= limits[i])
			return false;
		*ret_us += parts[i] * weights[i];
	}
	return true;
}

static bool time_of_row(const struct field *field, int64_t *ret_us)
{
	uint64_t value;

	if (memchr(field->text, ':', field->length))
		return clock_time(field, ret_us);
	if (!number(field, 10, &value) || value > INT64_MAX)
		return false;
	*ret_us = (int64_t)value;
	return true;
}

static bool action(const struct field *field, enum trace_action *ret_action)
{
	if (is(field, "allocate"))
		*ret_action = TRACE_ALLOCATE;
	else if (is(field, "free"))
		*ret_action = TRACE_FREE;
	else if (is(field, "allocate failure"))
		*ret_action = TRACE_FAILURE;
	else
		return false;
	return true;
}

static bool all_digits(const struct field *field)
{
	for (size_t i = 0; i < field->length; i++) {
		if (digit_value(field->text[i]) >= 10)
			return false;
	}
	return field->length > 0;
}

/* Copies a field for a message, with what cannot be shown as '?'. */
static const char *shown(const struct field *field, char *buffer, size_t size)
{
	size_t length = field->length < size - 1 ? field->length : size - 1;

	for (size_t i = 0; i < length; i++) {
		char c = field->text[i];

		buffer[i] = c >= ' ' && c <= '~' ? c : '?';
	}
	buffer[length] = '\0';
	return buffer;
}

static int split(const char *line, size_t length, struct field *fields)
{
	const char *end = line + length;
	int count = 0;

	for (;;) {
		const char *comma = memchr(line, ',', (size_t)(end - line));
		const char *stop = comma ? comma : end;

		if (count < COLUMNS)
			fields[count] = (struct field){line, (size_t)(stop - line)};
		count++;
		if (!comma)
			return count;
		line = comma + 1;
	}
}

int trace_row_parse(const char *line, size_t length, char *message, size_t size,
	struct trace_row *ret_row)
{
	struct field fields[COLUMNS];
	int count = split(line, length, fields);
	struct trace_row row = {0};
	enum column bad;
	char text[48];

	if (count != COLUMNS)
		return trace_fail(message, size, -EINVAL,
			"broken row: %d columns instead of %d", count, COLUMNS);
	if (!handle(&fields[THREAD], &row.thread))
		bad = THREAD;
	else if (!time_of_row(&fields[TIME], &row.time_us))
		bad = TIME;
	else if (!action(&fields[ACTION], &row.action))
		bad = ACTION;
	else if (!pointer(&fields[POINTER], &row.pointer))
		bad = POINTER;
	else if (!number(&fields[SIZE], 10, &row.size))
		bad = SIZE;
	else if (!handle(&fields[STREAM], &row.stream))
		bad = STREAM;
	else
		bad = COLUMNS;
	if (bad == COLUMNS) {
		*ret_row = row;
		return 0;
	}
	shown(&fields[bad], text, sizeof(text));
	if (bad == ACTION)
		return trace_fail(message, size, -EINVAL,
			"unknown action '%s': it is allocate, free or allocate failure",
			text);
	if (all_digits(&fields[bad]))
		return trace_fail(message, size, -EINVAL,
			"broken row: %s is %s, too large for 64 bits", names[bad], text);
	return trace_fail(
		message, size, -EINVAL, "broken row: %s is '%s'", names[bad], text);
}

bool trace_row_idle(const struct trace_row *row, const struct trace_table *live)
{
	if (row->kind)
		return false;
	if (row->action == TRACE_ALLOCATE)
		return !row->size;
	return row->action == TRACE_FREE && (!row->size || !row->pointer) &&
		trace_table_find(live, row->pointer) < 0;
}

int trace_refuse(char *message, size_t size, const struct trace_row *row, const char *why)
{
	return trace_fail(message, size, -EINVAL, "%s of 0x%llx, which is %s",
		row->action == TRACE_FREE ? "free" : "allocate",
		(unsigned long long)row->pointer, why);
}
