/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Figures for people: digits, units, and where one unit gives way to the next. */
#include "tool/figure.h"
#include "t/tap.h"

static const struct {
	uint64_t bytes;
	const char *text;
} sizes[] = {
	{0, "0 B"},
	{1023, "1023 B"},
	{1024, "1.00 KiB"},
	{10 * 1024 + 512, "10.5 KiB"},
	{UINT64_C(100) << 20, "100 MiB"},
	{(UINT64_C(1) << 30) - 1, "1.00 GiB"},
	{UINT64_C(59761773836), "55.7 GiB"},
	{UINT64_MAX, "16.0 EiB"},
};

static const struct {
	double ns;
	const char *text;
} times[] = {
	{0, "0 ns"},
	{999.4, "999 ns"},
	{999.6, "1.00 us"},
	{12345, "12.3 us"},
	{999600, "1.00 ms"},
	{31.2e9, "31.2 s"},
	{5400e9, "5400 s"},
};

static const struct {
	double value;
	const char *text;
} counts[] = {{0, "0"}, {999, "999"}, {1000, "1 000"}, {29646, "29 646"}, {0.25, "0.25"},
	{1234567, "1 234 567"}, {1000.5, "1000.5"}, {1e15, "1e+15"}};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

int main(void)
{
	tap_plan((int)(COUNT(sizes) + COUNT(times) + COUNT(counts)));
	for (size_t i = 0; i < COUNT(sizes); i++)
		is_str(figure_bytes(sizes[i].bytes).text, sizes[i].text, "a size");
	for (size_t i = 0; i < COUNT(times); i++)
		is_str(figure_ns(times[i].ns).text, times[i].text, "a time");
	for (size_t i = 0; i < COUNT(counts); i++)
		is_str(figure_count(counts[i].value).text, counts[i].text, "a count");
	return tap_done();
}
