/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Figures for people. One place decides how many digits they have, so that columns of a
 * report line up and the same value looks the same everywhere.
 */
#include "tool/figure.h"

#include <stdio.h>

static int decimals(double value)
{
	return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

struct figure figure_bytes(uint64_t bytes)
{
	static const char *const units[] = {
		"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	struct figure figure;
	unsigned unit = 0;

	for (; value >= 1023.5 && unit < 6; unit++)
		value /= 1024;
	snprintf(figure.text, sizeof(figure.text), "%.*f %s", unit ? decimals(value) : 0,
		value, units[unit]);
	return figure;
}

struct figure figure_ns(double ns)
{
	struct figure figure;

	if (ns < 999.5)
		snprintf(figure.text, sizeof(figure.text), "%.0f ns", ns);
	else if (ns < 999.5e3)
		snprintf(figure.text, sizeof(figure.text), "%.*f us", decimals(ns / 1e3),
			ns / 1e3);
	else if (ns < 999.5e6)
		snprintf(figure.text, sizeof(figure.text), "%.*f ms", decimals(ns / 1e6),
			ns / 1e6);
	else
		snprintf(figure.text, sizeof(figure.text), "%.*f s", decimals(ns / 1e9),
			ns / 1e9);
	return figure;
}

struct figure figure_count(double value)
{
	struct figure figure;
	size_t at = 0, length;
	char digits[32];

	/* small, too large to be exact, or no whole number */
	if (value < 1000 || value >= 1e15 || value != (double)(uint64_t)value) {
		snprintf(figure.text, sizeof(figure.text), "%g", value);
		return figure;
	}
	length = (size_t)snprintf(digits, sizeof(digits), "%.0f", value);
	for (size_t i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0)
			figure.text[at++] = ' ';
		figure.text[at++] = digits[i];
	}
	figure.text[at] = '\0';
	return figure;
}
