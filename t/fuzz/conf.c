/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes as a configuration file: no crash, and what must hold of every reading.
 *
 *	CC=clang meson setup build-fuzz -Dfuzz=true && ninja -C build-fuzz t/fuzz/fuzz-conf
 *	build-fuzz/t/fuzz/fuzz-conf -max_len=4096 -max_total_time=60
 */
#include "base/conf_reader.h"
#include "base/conf_table.h"
#include "base/parse.h"

#include <glake/error.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                  \
	do {                                                                             \
		if (!(condition))                                                        \
			abort();                                                         \
	} while (0)

struct seen {
	int last_line, errors;
};

static void on_finding(const struct glake_conf_finding *finding, void *arg)
{
	struct seen *seen = arg;

	/* Findings come in the order of the lines, in printable ASCII. */
	MUST(finding->line >= seen->last_line);
	seen->last_line = finding->line;
	seen->errors += finding->error != 0;
	MUST(*finding->text);
	for (const char *s = finding->text; *s; s++)
		MUST(*s >= ' ' && *s <= '~');
	for (const char *s = finding->key; *s; s++)
		MUST(*s >= ' ' && *s <= '~');
}

/* A value that was taken is in its range, and its text is taken as the same value. */
static void check_value(const struct glk_conf *conf, enum glk_conf_id id)
{
	char text[GLK_CONF_TEXT_MAX], again[GLK_CONF_TEXT_MAX], why[256];
	struct glk_conf other;

	glk_conf_format(conf, id, text, sizeof(text));
	glk_conf_init(&other);
	MUST(!glk_conf_parse(&other, id, text, why, sizeof(why)));
	glk_conf_format(&other, id, again, sizeof(again));
	MUST(!strcmp(text, again));
}

static void check_file(const uint8_t *data, size_t size)
{
	struct seen seen = {.last_line = 0};
	struct glk_conf conf;
	struct glk_conf_reader reader = {.conf = &conf,
		.fn = on_finding,
		.arg = &seen,
		.origin = GLAKE_CONF_FILE,
		.source = "fuzz"};
	char *text = calloc(1, size + 1);

	MUST(text);
	memcpy(text, data, size);
	glk_conf_init(&conf);
	glk_conf_read_lines(&reader, text);
	free(text);
	MUST(!reader.err || seen.errors || reader.findings > GLK_CONF_FINDINGS_MAX);
	for (enum glk_conf_id id = 0; id < GLK_CONF_COUNT; id++) {
		MUST(conf.from[id].line >= 0 && (size_t)conf.from[id].line <= size);
		check_value(&conf, id);
	}
}

static void check_values(const char *text)
{
	char again[GLK_FORMAT_MAX];
	uint64_t bytes, bytes_again;
	int64_t ns, ns_again, number;
	double ratio;
	bool yes;

	if (!glk_parse_size(text, &bytes)) {
		glk_format_size(bytes, again, sizeof(again));
		MUST(!glk_parse_size(again, &bytes_again) && bytes_again == bytes);
	}
	if (!glk_parse_time(text, &ns)) {
		glk_format_time(ns, again, sizeof(again));
		MUST(ns >= 0 && !glk_parse_time(again, &ns_again) && ns_again == ns);
	}
	if (!glk_parse_ratio(text, &ratio))
		MUST(ratio > 0 && ratio < 1e15);
	if (!glk_parse_int(text, &number))
		MUST(number == strtoll(text, NULL, 10));
	glk_parse_bool(text, &yes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct glk_conf conf;
	char text[256];

	/* The file is checked for these before its lines are read. */
	if (size <= GLK_CONF_FILE_MAX && !memchr(data, '\0', size))
		check_file(data, size);
	if (size < sizeof(text)) {
		memcpy(text, data, size);
		text[size] = '\0';
		check_values(text);
		glk_conf_init(&conf);
		glk_conf_set(&conf, text);
	}
	return 0;
}
