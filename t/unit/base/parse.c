/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Each reader with what it takes, what it refuses, and the last value that fits. */
#include "base/parse.h"
#include "tap.h"

#include <errno.h>

static void size_is(const char *text, uint64_t want)
{
	uint64_t got = ~want;
	int err = glk_parse_size(text, &got);

	ok(!err && got == want, "size '%s' is %" PRIu64 " (%d, %" PRIu64 ")", text, want,
		err, got);
}

static void size_bad(const char *text, int want)
{
	uint64_t got = 77;
	int err = glk_parse_size(text, &got);

	ok(err == want && got == 77, "size '%s' is refused with %d (%d)", text, want,
		err);
}

static void sizes(void)
{
	size_is("0", 0);
	size_is("512", 512);
	size_is("512B", 512);
	size_is("1KiB", 1024);
	size_is("8MiB", 8388608);
	size_is("1.5GiB", 1610612736);
	size_is("140GiB", UINT64_C(140) << 30);
	size_is("16TiB", UINT64_C(16) << 40);
	size_is("0.5KiB", 512);
	size_is("1.3GiB", 1395864371);
	size_is("007KiB", 7168);
	size_is("18446744073709551615", UINT64_MAX);
	size_is("16777215TiB", UINT64_C(16777215) << 40);
	size_bad("18446744073709551616", -ERANGE);
	size_bad("99999999999999999999999", -ERANGE);
	size_bad("16777216TiB", -ERANGE);
	size_bad("1.00000000000000000000KiB", -ERANGE);
	size_bad("", -EINVAL);
	size_bad("MiB", -EINVAL);
	size_bad("-1", -EINVAL);
	size_bad("+1", -EINVAL);
	size_bad(" 1", -EINVAL);
	size_bad("1 ", -EINVAL);
	size_bad("8MiBs", -EINVAL);
	size_bad("8  MiB", -EINVAL);
	size_bad("8\tMiB", -EINVAL);
	size_bad("8MiB ", -EINVAL);
	size_bad("8MBi", -EINVAL);
	size_bad("8iB", -EINVAL);
	size_bad("8KM", -EINVAL);
	size_bad("8P", -EINVAL);
	size_bad("8kk", -EINVAL);
	size_bad("0x10", -EINVAL);
	size_bad("1.5", -EINVAL);
	size_bad("1.5B", -EINVAL);
	size_bad("1.MiB", -EINVAL);
	size_bad(".5MiB", -EINVAL);
	size_bad("1.5.5MiB", -EINVAL);
	size_bad("1,5MiB", -EINVAL);
	size_bad("1e3", -EINVAL);
	size_bad("1.5 b", -EINVAL);
}

/* One size, as many as write it. */
static void spellings(void)
{
	static const char *const many[] = {"24G", "24GB", "24GiB", "24Gi", "24 GiB",
		"24 G", "24 GB", "24g", "24gb", "24gib", "24gB", "24GIB", "24.0G",
		"24576M", "24576MB", "25165824k", "25165824KiB", "0.0234375T",
		"25769803776", "25769803776B", "25769803776 b"};

	for (size_t i = 0; i < sizeof(many) / sizeof(*many); i++)
		size_is(many[i], UINT64_C(24) << 30);
	size_is("0MB", 0);
	size_is("1.5 TiB", UINT64_C(3) << 39);
}

static void said_is(uint64_t bytes, const char *want)
{
	is_str(glk_say_bytes(bytes).text, want, "in a sentence");
}

static void said(void)
{
	said_is(0, "0 bytes");
	said_is(1, "1 byte");
	said_is(1023, "1023 bytes");
	said_is(1024, "1 KiB");
	said_is(8388608, "8 MiB");
	said_is(1610612736, "1.50 GiB");
	said_is(1610612737, "1.50 GiB");
	said_is((UINT64_C(1) << 31) - 1, "1.99 GiB");
	said_is(UINT64_C(140) << 30, "140 GiB");
	said_is(UINT64_MAX, "16777215.99 TiB");
}

static void time_is(const char *text, int64_t want)
{
	int64_t got = ~want;
	int err = glk_parse_time(text, &got);

	ok(!err && got == want, "time '%s' is %" PRId64 " (%d, %" PRId64 ")", text, want,
		err, got);
}

static void time_bad(const char *text, int want)
{
	int64_t got = 77;
	int err = glk_parse_time(text, &got);

	ok(err == want && got == 77, "time '%s' is refused with %d (%d)", text, want,
		err);
}

static void times(void)
{
	time_is("0", 0);
	time_is("0s", 0);
	time_is("2700ns", 2700);
	time_is("2.7us", 2700);
	time_is("1.5ms", 1500000);
	time_is("3s", INT64_C(3000000000));
	time_is("0.123456789s", 123456789);
	time_is("0.0005us", 0);
	time_is("9223372036854775807ns", INT64_MAX);
	time_bad("9223372036854775808ns", -ERANGE);
	time_bad("9223372037s", -ERANGE);
	time_bad("99999999999999999999s", -ERANGE);
	time_bad("5", -EINVAL);
	time_bad("0.5", -EINVAL);
	time_bad("0.5ns", -EINVAL);
	time_bad("-1us", -EINVAL);
	time_bad("1m", -EINVAL);
	time_bad("1us ", -EINVAL);
	time_bad("us", -EINVAL);
	time_bad("", -EINVAL);
}

static void ratio_is(const char *text, double want)
{
	double got = -1;
	int err = glk_parse_ratio(text, &got);

	ok(!err && got == want, "ratio '%s' is %.17g (%d, %.17g)", text, want, err, got);
}

static void ratio_bad(const char *text, int want)
{
	double got = 77;
	int err = glk_parse_ratio(text, &got);

	ok(err == want && got == 77, "ratio '%s' is refused with %d (%d)", text, want,
		err);
}

static void ratios(void)
{
	ratio_is("x1.02", 1.02);
	ratio_is("x1", 1);
	ratio_is("x0.7", 0.7);
	ratio_is("x1.03", 1.03);
	ratio_is("x12345678.1234567", 12345678.1234567);
	ratio_is("x0.00000000000001", 1e-14);
	ratio_bad("x123456789.1234567", -ERANGE);
	ratio_bad("x99999999999999999999", -ERANGE);
	ratio_bad("x0", -EINVAL);
	ratio_bad("x0.00", -EINVAL);
	ratio_bad("1.02", -EINVAL);
	ratio_bad("X1.02", -EINVAL);
	ratio_bad("x", -EINVAL);
	ratio_bad("", -EINVAL);
	ratio_bad("x-1", -EINVAL);
	ratio_bad("x1,5", -EINVAL);
	ratio_bad("x1.", -EINVAL);
	ratio_bad("x1.5x", -EINVAL);
	ratio_bad("xinf", -EINVAL);
	ratio_bad("xnan", -EINVAL);
}

static void bools(void)
{
	static const char *const yes[] = {"yes", "true", "on", "1"};
	static const char *const no[] = {"no", "false", "off", "0"};
	static const char *const bad[] = {
		"", "YES", "y", "2", "00", "yess", " yes", "enable"};
	bool got = false;

	for (int i = 0; i < 4; i++) {
		got = false;
		ok(!glk_parse_bool(yes[i], &got) && got, "bool '%s'", yes[i]);
		ok(!glk_parse_bool(no[i], &got) && !got, "bool '%s'", no[i]);
	}
	for (int i = 0; i < 8; i++) {
		got = true;
		ok(glk_parse_bool(bad[i], &got) == -EINVAL && got, "bool '%s' is refused",
			bad[i]);
	}
}

static void int_is(const char *text, int64_t want)
{
	int64_t got = ~want;
	int err = glk_parse_int(text, &got);

	ok(!err && got == want, "int '%s' (%d, %" PRId64 ")", text, err, got);
}

static void int_bad(const char *text, int want)
{
	int64_t got = 77;
	int err = glk_parse_int(text, &got);

	ok(err == want && got == 77, "int '%s' is refused with %d (%d)", text, want, err);
}

static void ints(void)
{
	int_is("0", 0);
	int_is("-0", 0);
	int_is("08", 8);
	int_is("64", 64);
	int_is("-5", -5);
	int_is("9223372036854775807", INT64_MAX);
	int_is("-9223372036854775808", INT64_MIN);
	int_bad("9223372036854775808", -ERANGE);
	int_bad("-9223372036854775809", -ERANGE);
	int_bad("18446744073709551616", -ERANGE);
	int_bad("", -EINVAL);
	int_bad("-", -EINVAL);
	int_bad("--1", -EINVAL);
	int_bad("+1", -EINVAL);
	int_bad("1 ", -EINVAL);
	int_bad("1.0", -EINVAL);
	int_bad("0x1", -EINVAL);
	int_bad("1KiB", -EINVAL);
}

static void formats(void)
{
	static const uint64_t exact[] = {0, 1, 1023, 1024, 1025, 8388608, 1610612736,
		UINT64_MAX, UINT64_C(1) << 63, (UINT64_C(1) << 40) + 512};
	static const int64_t ns[] = {
		0, 1, 999, 1000, 1500, 600000, 1000000000, INT64_MAX, INT64_C(1) << 62};
	char text[GLK_FORMAT_MAX];
	uint64_t size;
	int64_t time;

	glk_format_size(8388608, text, sizeof(text));
	is_str(text, "8MiB", "8 MiB");
	glk_format_size(1610612736, text, sizeof(text));
	is_str(text, "1536MiB", "no fractions");
	glk_format_size(0, text, sizeof(text));
	is_str(text, "0", "nothing");
	glk_format_size(1000, text, sizeof(text));
	is_str(text, "1000", "bytes");
	glk_format_time(2700, text, sizeof(text));
	is_str(text, "2700ns", "2.7 us");
	glk_format_time(600000, text, sizeof(text));
	is_str(text, "600us", "600 us");
	glk_format_time(0, text, sizeof(text));
	is_str(text, "0", "no time");
	for (size_t i = 0; i < sizeof(exact) / sizeof(*exact); i++) {
		glk_format_size(exact[i], text, sizeof(text));
		size = ~exact[i];
		ok(!glk_parse_size(text, &size) && size == exact[i], "%s there and back",
			text);
	}
	for (size_t i = 0; i < sizeof(ns) / sizeof(*ns); i++) {
		glk_format_time(ns[i], text, sizeof(text));
		time = ~ns[i];
		ok(!glk_parse_time(text, &time) && time == ns[i], "%s there and back",
			text);
	}
	glk_format_size(8388608, text, 3);
	is_str(text, "8M", "a buffer too small is not overrun");
}

int main(void)
{
	tap_plan_later();
	sizes();
	spellings();
	said();
	times();
	ratios();
	bools();
	ints();
	formats();
	return tap_done();
}
