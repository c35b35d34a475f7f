/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What people are shown of a report: units by the ends of names, tables, and nothing that steers a terminal. */
#include "tool/report.h"
#include "t/tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char shown[16384];

/* What a report of JSON looks like. */
static void show(void (*add)(struct glk_json *json))
{
	struct report report;
	FILE *file = tmpfile();
	int out = dup(1), status;
	size_t length;

	fflush(stdout);
	dup2(fileno(file), 1);
	status = report_begin(&report, false);
	glk_json_object(&report.json);
	add(&report.json);
	glk_json_end(&report.json);
	status = status ? status : report_end(&report);
	fflush(stdout);
	dup2(out, 1);
	close(out);
	rewind(file);
	length = fread(shown, 1, sizeof(shown) - 1, file);
	shown[length] = '\0';
	fclose(file);
	is_int(status, 0, "it is shown");
}

static void has(const char *part)
{
	ok(strstr(shown, part), "it has '%s' in\n%s", part, shown);
}

static void add_figures(struct glk_json *json)
{
	glk_json_add_text(json, "trace", "a\033[2Jb");
	glk_json_add_uint(json, "peak_live_bytes", UINT64_C(3) << 29);
	glk_json_add_figure(json, "job_s", 2.5, 6);
	glk_json_add_uint(json, "wait_ns", 1500);
	glk_json_add_uint(json, "events", 29646);
	glk_json_add_uint(json, "pid", 29646);
	glk_json_add_bool(json, "ok", true);
	glk_json_key(json, "budget_bytes");
	glk_json_null(json);
	glk_json_key(json, "malloc_ns");
	glk_json_object(json);
	glk_json_add_uint(json, "min", 10);
	glk_json_add_uint(json, "median", 20);
	glk_json_add_uint(json, "max", 30);
	glk_json_end(json);
	glk_json_key(json, "ladder");
	glk_json_object(json);
	glk_json_add_uint(json, "limbo", 0);
	glk_json_add_uint(json, "spill_host", 12);
	glk_json_end(json);
}

static void add_rows(struct glk_json *json)
{
	glk_json_key(json, "repeats");
	glk_json_array(json);
	for (unsigned i = 0; i < 102; i++) {
		glk_json_object(json);
		glk_json_add_uint(json, "wall_ns", 1000 * i);
		glk_json_add_text(json, "name", i ? "b" : "longer");
		glk_json_key(json, "calls");
		glk_json_object(json);
		glk_json_add_uint(json, "create", i);
		glk_json_end(json);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add_names(struct glk_json *json, unsigned count)
{
	char name[40];

	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "a_name_of_length_%u", i);
		glk_json_add_uint(json, name, i);
	}
}

static void add_wide(struct glk_json *json)
{
	glk_json_key(json, "rows");
	glk_json_array(json);
	glk_json_object(json);
	add_names(json, 8);
	glk_json_end(json);
	glk_json_end(json);
}

/* So wide that each row has lines of its own, and one row has not what the first has. */
static void add_uneven(struct glk_json *json)
{
	glk_json_key(json, "rows");
	glk_json_array(json);
	for (unsigned row = 0; row < 3; row++) {
		glk_json_object(json);
		glk_json_add_uint(json, "at", row);
		if (row != 1) {
			glk_json_key(json, "deep");
			glk_json_object(json);
			add_names(json, 12);
			glk_json_end(json);
		}
		glk_json_end(json);
	}
	glk_json_end(json);
}

int main(void)
{
	size_t longest = 0;

	tap_plan(23);
	show(add_figures);
	has("  trace                    a?[2Jb\n");
	has("  peak live                1.50 GiB\n");
	has("  job                      2.50 s\n");
	has("  wait                     1.50 us\n");
	has("  events                   29 646\n");
	has("  pid                      29646\n");
	has("  ok                       yes\n");
	has("  budget                   -\n");
	has("  malloc                   20 ns\n");
	has("  ladder                   spill_host 12\n");
	ok(!strchr(shown, '\033'), "nothing that a terminal obeys");
	show(add_rows);
	has("\nrepeats\n          wall  name\n    1     0 ns  longer\n    2  1.00 us  b\n");
	has("\nrepeats, calls\n       create\n    1       0\n    2       1\n");
	has("  100  99.0 us  b\n       and 2 more, which --json has\n");
	show(add_wide);
	has("a name of length 2\n    1                   0");
	has("a name of length 7\n    1                   6");
	show(add_uneven);
	has("    2\n    3\n      a name of length 0 ");
	show(add_wide);
	for (char *line = strtok(shown, "\n"); line; line = strtok(NULL, "\n"))
		longest = strlen(line) > longest ? strlen(line) : longest;
	ok(longest <= 80, "no line is longer than a terminal: %zu", longest);
	return tap_done();
}
