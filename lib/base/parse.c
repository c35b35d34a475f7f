/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A size that is read wrongly costs more than one that is refused: "8MB" taken for 8 MiB or
 * for 8 bytes would be found out hours later. So there is one spelling for each unit, and
 * anything else is an error that the caller explains.
 *
 * Sizes and times are exact: a fraction is kept as digits and multiplied by its unit, never
 * as a double.
 */
#include "base/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct unit {
	const char *name;
	uint64_t size;
};

/* Largest first, as the writers need them. */
static const struct unit size_units[] = {
	{"TiB", UINT64_C(1) << 40},
	{"GiB", UINT64_C(1) << 30},
	{"MiB", UINT64_C(1) << 20},
	{"KiB", UINT64_C(1) << 10},
	{"B", 1},
	{"", 1},
	{NULL, 0},
};

static const struct unit time_units[] = {
	{"s", 1000000000},
	{"ms", 1000000},
	{"us", 1000},
	{"ns", 1},
	{NULL, 0},
};

/* Reads one digit or more and moves behind them. */
static int digits(const char **text, uint64_t *ret_value, int *ret_count)
{
	uint64_t value = 0;
	int count = 0;

	for (; **text >= '0' && **text <= '9'; (*text)++, count++) {
		if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
			__builtin_add_overflow(value, (uint64_t)(**text - '0'), &value))
			return -ERANGE;
	}
	if (!count)
		return -EINVAL;
	*ret_value = value;
	*ret_count = count;
	return 0;
}

/* Reads "3" as 3 + 0/1 and "3.25" as 3 + 25/100. */
static int decimal(const char **text, uint64_t *ret_whole, uint64_t *ret_part,
	uint64_t *ret_scale, int *ret_count)
{
	uint64_t part = 0, scale = 1;
	int err, count, behind = 0;

	err = digits(text, ret_whole, &count);
	if (err)
		return err;
	if (**text == '.') {
		(*text)++;
		err = digits(text, &part, &behind);
		if (err)
			return err;
		if (behind > 19)
			return -ERANGE;
		for (int i = 0; i < behind; i++)
			scale *= 10;
	}
	*ret_part = part;
	*ret_scale = scale;
	*ret_count = count + behind;
	return 0;
}

static int with_unit(const char *text, const struct unit *units, uint64_t *ret_value)
{
	uint64_t whole, part, scale;
	int err, count;

	err = decimal(&text, &whole, &part, &scale, &count);
	if (err)
		return err;
	while (units->name && strcmp(text, units->name))
		units++;
	if (!units->name && *text)
		return -EINVAL;
	if (!units->name && (whole || part))
		return -EINVAL;
	if (units->size <= 1 && scale > 1)
		return -EINVAL;
	if (__builtin_mul_overflow(whole, units->size, &whole) ||
		__builtin_mul_overflow(part, units->size, &part) ||
		__builtin_add_overflow(whole, part / scale, ret_value))
		return -ERANGE;
	return 0;
}

int glk_parse_size(const char *text, uint64_t *ret_bytes)
{
	uint64_t bytes;
	int err = with_unit(text, size_units, &bytes);

	if (!err)
		*ret_bytes = bytes;
	return err;
}

int glk_parse_time(const char *text, int64_t *ret_ns)
{
	uint64_t ns;
	int err = with_unit(text, time_units, &ns);

	if (err)
		return err;
	if (ns > INT64_MAX)
		return -ERANGE;
	*ret_ns = (int64_t)ns;
	return 0;
}

int glk_parse_ratio(const char *text, double *ret_ratio)
{
	uint64_t whole, part, scale;
	int err, count;

	if (*text++ != 'x')
		return -EINVAL;
	err = decimal(&text, &whole, &part, &scale, &count);
	if (err)
		return err;
	if (*text || (!whole && !part))
		return -EINVAL;
	if (count > 15)
		return -ERANGE;
	/* Both are whole numbers below 2^53, so the one rounding is that of the division. */
	*ret_ratio = (double)(whole * scale + part) / (double)scale;
	return 0;
}

int glk_parse_bool(const char *text, bool *ret_value)
{
	static const char *const names[] = {
		"no", "yes", "false", "true", "off", "on", "0", "1"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcmp(text, names[i]))
			continue;
		*ret_value = i & 1;
		return 0;
	}
	return -EINVAL;
}

int glk_parse_int(const char *text, int64_t *ret_value)
{
	bool negative = *text == '-';
	uint64_t value;
	int err, count;

	text += negative;
	err = digits(&text, &value, &count);
	if (err)
		return err;
	if (*text)
		return -EINVAL;
	if (value > (uint64_t)INT64_MAX + negative)
		return -ERANGE;
	*ret_value = negative ? (int64_t)-value : (int64_t)value;
	return 0;
}

void glk_format_size(uint64_t bytes, char *buffer, size_t size)
{
	const struct unit *unit = size_units;

	while (unit->size > 1 && (bytes < unit->size || bytes % unit->size))
		unit++;
	snprintf(buffer, size, "%" PRIu64 "%s", bytes / unit->size,
		unit->size > 1 ? unit->name : "");
}

void glk_format_time(int64_t ns, char *buffer, size_t size)
{
	const struct unit *unit = time_units;
	const int64_t value = ns;

	while (unit->size > 1 && value % (int64_t)unit->size)
		unit++;
	snprintf(buffer, size, "%" PRId64 "%s", value / (int64_t)unit->size,
		value ? unit->name : "");
}
