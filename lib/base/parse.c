/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sizes are of memory, which is counted in powers of 1024 by whoever sells it and by systemd, Slurm,
 * PostgreSQL and Docker: so 24G, 24GB, 24Gi and 24GiB are one size here, in capitals or not, and
 * no spelling of a unit means another one. Whatever is no spelling of one is an error that the
 * caller explains. A time has one spelling for each unit, for there an m could be two.
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
	{"", 1},
};

static const struct unit time_units[] = {
	{"s", 1000000000},
	{"ms", 1000000},
	{"us", 1000},
	{"ns", 1},
	{NULL, 0},
};

/* What is written: 3.25 is 3 and 25/100. */
struct number {
	uint64_t whole, part, scale;
	int digits;
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

static int decimal(const char **text, struct number *ret)
{
	struct number number = {.scale = 1};
	int err, behind = 0;

	err = digits(text, &number.whole, &number.digits);
	if (err)
		return err;
	if (**text == '.') {
		(*text)++;
		err = digits(text, &number.part, &behind);
		if (err)
			return err;
		if (behind > 19)
			return -ERANGE;
		for (int i = 0; i < behind; i++)
			number.scale *= 10;
	}
	number.digits += behind;
	*ret = number;
	return 0;
}

static int times(const struct number *number, uint64_t unit, uint64_t *ret_value)
{
	uint64_t whole, part;

	if (unit <= 1 && number->scale > 1)
		return -EINVAL;
	if (__builtin_mul_overflow(number->whole, unit, &whole) ||
		__builtin_mul_overflow(number->part, unit, &part) ||
		__builtin_add_overflow(whole, part / number->scale, ret_value))
		return -ERANGE;
	return 0;
}

/* Whether the text goes on with this letter, in capitals or not; if so moves behind it. */
static bool take(const char **text, char letter)
{
	bool is = (**text | 0x20) == letter;

	*text += is;
	return is;
}

/* Bytes of "", "B", "k", "KB", "Ki", "KiB" and so on; 0 for what is no unit. */
static uint64_t size_unit(const char *text)
{
	static const char letters[] = "kmgt";
	uint64_t unit = 1;

	for (int i = 0; letters[i] && unit == 1; i++)
		unit = take(&text, letters[i]) ? UINT64_C(1024) << 10 * i : 1;
	if (unit > 1)
		take(&text, 'i');
	take(&text, 'b');
	return *text ? 0 : unit;
}

int glk_parse_size(const char *text, uint64_t *ret_bytes)
{
	struct number number;
	uint64_t unit;
	int err;

	err = decimal(&text, &number);
	if (err)
		return err;
	if (text[0] == ' ' && text[1])
		text++;
	unit = size_unit(text);
	return unit ? times(&number, unit, ret_bytes) : -EINVAL;
}

int glk_parse_time(const char *text, int64_t *ret_ns)
{
	const struct unit *unit = time_units;
	struct number number;
	uint64_t ns;
	int err;

	err = decimal(&text, &number);
	if (err)
		return err;
	while (unit->name && strcmp(text, unit->name))
		unit++;
	/* only 0 needs none */
	if (!unit->name && (*text || number.whole || number.part))
		return -EINVAL;
	err = times(&number, unit->size, &ns);
	if (err)
		return err;
	if (ns > INT64_MAX)
		return -ERANGE;
	*ret_ns = (int64_t)ns;
	return 0;
}

int glk_parse_ratio(const char *text, double *ret_ratio)
{
	struct number number;
	int err;

	if (*text++ != 'x')
		return -EINVAL;
	err = decimal(&text, &number);
	if (err)
		return err;
	if (*text || (!number.whole && !number.part))
		return -EINVAL;
	if (number.digits > 15)
		return -ERANGE;
	/* Both are whole numbers below 2^53, so the one rounding is that of the division. */
	*ret_ratio = (double)(number.whole * number.scale + number.part) /
		(double)number.scale;
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
	snprintf(buffer, size, "%" PRIu64 "%s", bytes / unit->size, unit->name);
}

struct glk_said glk_say_bytes(uint64_t bytes)
{
	const struct unit *unit = size_units;
	const size_t size = sizeof(struct glk_said);
	struct glk_said said;
	uint64_t hundredths;

	while (unit->size > 1 && bytes < unit->size)
		unit++;
	hundredths = bytes % unit->size * 100 / unit->size;
	if (unit->size == 1)
		snprintf(said.text, size, "%" PRIu64 " byte%s", bytes,
			bytes == 1 ? "" : "s");
	else if (bytes % unit->size)
		snprintf(said.text, size, "%" PRIu64 ".%02u %s", bytes / unit->size,
			(unsigned)hundredths, unit->name);
	else
		snprintf(said.text, size, "%" PRIu64 " %s", bytes / unit->size,
			unit->name);
	return said;
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
