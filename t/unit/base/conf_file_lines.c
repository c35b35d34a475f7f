/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lines of a file: what each finding says and where, and lines as long as they may be. */
#include "conf_found.h"

static struct glk_conf conf;

static void findings(void)
{
	static const char text[] = "# a comment\n"			/* 1 */
				   "\n"					/* 2 */
				   "budget = 1GiB\n"			/* 3 */
				   "[pool]\n"				/* 4 */
				   "bugdet = 1GiB\n"			/* 5 */
				   "budget = 8MX\n"			/* 6 */
				   "  large_page = 16MiB ; why\n"	/* 7 */
				   "no value here\n"			/* 8 */
				   "[drixyz]\n"				/* 9 */
				   "budget = nonsense, not looked at\n" /* 10 */
				   "[soft\n"				/* 11 */
				   "gpus = nor here\n"			/* 12 */
				   "[soft] # yes\n"			/* 13 */
				   "gpus: 65\n"				/* 14 */
				   "gpus = 3\n"				/* 15 */
				   "gpus = 4\n"				/* 16 */
				   "large_page = 2MiB\n"		/* 17 */
				   "= 5\n"				/* 18 */
				   "[zzzzzz]\n"				/* 19 */
				   "[log] x\n"				/* 20 */
				   "[driver]\n"				/* 21 */
				   "check = maybe\n"			/* 22 */
				   "backend = opencl\n"			/* 23 */
				   "quite_unknown = 1\n"		/* 24 */
				   "a\x1b[2Jb = 1\n"			/* 25 */
				   "fault = a\xff\xfe";			/* 26 */
	struct glake_error error = {.sz = sizeof(error)};

	conf.soft_gpus = 77;
	is_int(read_text(text, &conf), -EINVAL, "a file with errors is refused");
	is_int(conf.soft_gpus, 77, "and nothing of it is returned");
	is_found(0, 0, 3, "budget", "unknown key; did you mean pool.budget?");
	is_found(1, 0, 5, "pool.bugdet", "unknown key; did you mean pool.budget?");
	is_found(2, -EINVAL, 6, "pool.budget",
		"'8MX' is not a size, nor a part; right is 0 ... 16TiB, or above 0% to 100%");
	is_found(3, -EINVAL, 8, "", "neither a comment nor [section] nor key = value");
	is_found(4, 0, 9, "", "unknown section [drixyz]; did you mean [driver]?");
	is_found(5, -EINVAL, 11, "", "a section is written as [name]");
	is_found(6, -EINVAL, 14, "soft.gpus", "'65' is out of range; right is 1 ... 64");
	is_found(7, 0, 16, "soft.gpus", "given in line 15 too; this one counts");
	is_found(8, 0, 17, "soft.large_page",
		"unknown key; did you mean pool.large_page?");
	is_found(9, -EINVAL, 18, "", "no key before the value");
	is_found(10, 0, 19, "", "unknown section [zzzzzz]");
	ok(!strstr(found.at[10].text, "mean"), "without a far-fetched suggestion");
	is_found(11, -EINVAL, 20, "", "a section is written as [name]");
	is_found(12, -EINVAL, 22, "driver.check",
		"'maybe' is neither yes nor no; right is yes, no");
	is_found(13, -EINVAL, 23, "driver.backend",
		"'opencl' is none of the choices; right is auto, soft, cuda");
	is_found(14, 0, 24, "driver.quite_unknown", "unknown key");
	is_found(15, -EINVAL, 25, "", "has a control character");
	is_int(found.count, 16, "and that is all");
	is_str(found.at[0].file, found_path, "the file is named");
	glake_last_error(&error);
	is_int(error.err, -EINVAL, "the record is there");
	is_int(error.error_class, GLAKE_ERROR_CONFIG, "as one of the configuration");
	has_str(error.text, "glake.conf:6: pool.budget: '8MX'", "about the first error");
}

/* The end of a long name of a file is what the record has room for. */
static void long_name(void)
{
	char path[256], want[128];
	struct glake_options options = {.sz = sizeof(options), .conf_file = path};
	struct glake_error error = {.sz = sizeof(error)};
	int dots = 0;

	write_text("[pool]\nbudget = 1\x7f\n");
	while (dots < 80)
		dots += snprintf(path + dots, sizeof(path) - (size_t)dots, "/.");
	snprintf(path + dots, sizeof(path) - (size_t)dots, "%s", found_path);
	found_none();
	is_int(glk_conf_read(&options, on_finding, &found, &conf), -EINVAL,
		"a byte that cannot be shown");
	is_found(0, -EINVAL, 2, "", "has a control character");
	glake_last_error(&error);
	snprintf(want, sizeof(want), "...%s:2: ", path + strlen(path) - 77);
	ok(!strncmp(error.text, want, strlen(want)), "in a file of a long name");
}

static void forms(void)
{
	is_int(read_text("\xef\xbb\xbf[soft]\r\ngpus = 5\r\n\r\n[pool]\r\nbudget=1GiB",
		       &conf),
		0, "a BOM, CR LF, no end of the last line");
	is_int(found.count, 0, "without a finding");
	is_int(conf.soft_gpus, 5, "first value");
	is_int(conf.pool_budget, GLK_GIB, "last value");
	is_int(conf.from[GLK_CONF_soft_gpus].line, 2, "line of the first");
	is_int(conf.from[GLK_CONF_pool_budget].line, 5, "line of the last");
	is_int(conf.from[GLK_CONF_pool_budget].origin, GLAKE_CONF_FILE, "origin");
	is_str(conf.from[GLK_CONF_pool_budget].source, found_path, "source");
	is_int(conf.from[GLK_CONF_map_span].origin, GLAKE_CONF_DEFAULT,
		"origin of another");
	is_str(conf.from[GLK_CONF_map_span].source, "", "source of another");

	is_int(read_text("[soft]\n\tgpus = 5\n\t nodes = 2\n", &conf), 0,
		"indented lines");
	is_int(conf.soft_nodes, 2, "are lines of their own");
	is_int(found.count, 0, "without a finding");
	is_int(read_text("", &conf), 0, "an empty file");
	is_int(read_text("\n", &conf), 0, "an empty line");
	is_int(read_text("[pool]", &conf), 0, "a section alone");
	is_int(read_text("[soft]\rgpus = 5\r", &conf), -EINVAL, "lines ended by CR");
	is_found(0, -EINVAL, 1, "", "lines end with LF or CR LF");
	is_int(read_text("[driver]\nfault = map:nth=3;create:from=10 ; twice\n", &conf),
		0, "a value with = and :");
	is_str(conf.driver_fault, "map:nth=3;create:from=10",
		"a semicolon begins a comment only behind a blank");
	is_int(read_text("[pool]\nbudget = 8MiB # no comment\n", &conf), -EINVAL,
		"a hash behind a value is part of it");
}

/* "[driver]\nfault = xxx" with a second line of `length` bytes, then another key. */
static void line_of(size_t length, const char *end)
{
	char text[1024] = "[driver]\nfault = ";
	size_t at = strlen(text), head = strlen("fault = ");

	/* Blanks in the middle: the value itself has its own maximum. */
	memset(text + at, ' ', length - head);
	text[at + length - head - 1] = 'x';
	snprintf(text + at + length - head, sizeof(text) - at - (length - head),
		"%s[soft]%sgpus = 7%s", end, end, end);
	read_text(text, &conf);
}

static void long_lines(void)
{
	static const char *const ends[] = {"\n", "\r\n"};
	char text[1024];

	for (int i = 0; i < 2; i++) {
		for (size_t length = 197; length <= 199; length++) {
			memset(&conf, 0, sizeof(conf));
			line_of(length, ends[i]);
			ok(!found.count && conf.soft_gpus == 7 &&
					conf.driver_fault[0] == 'x',
				"a line of %zu bytes is read", length);
		}
		for (size_t length = 200; length <= 202; length++) {
			memset(&conf, 0, sizeof(conf));
			line_of(length, ends[i]);
			snprintf(text, sizeof(text), "has %zu bytes; 199 is the most",
				length);
			is_found(0, -EINVAL, 2, "", text);
			is_int(found.count, 1,
				"and nothing else: no piece of it is a line");
		}
	}
	snprintf(text, sizeof(text), "# %0700d\n[soft] ; %0200d\ngpus = 3\n", 0, 0);
	is_int(read_text(text, &conf), -EINVAL, "a section line is a line");
	is_found(0, -EINVAL, 2, "", "199 is the most");
	snprintf(text, sizeof(text), "# %0700d\n[soft]\ngpus = 3\n", 0);
	is_int(read_text(text, &conf), 0, "a comment may be longer");
	is_int(found.count, 0, "without a finding");
	is_int(conf.soft_gpus, 3, "and hides nothing");
	is_int(conf.from[GLK_CONF_soft_gpus].line, 3, "nor shifts a line");
	snprintf(text, sizeof(text), "[%0100d]\nx = 1\n[soft]\n%0100d = 1\n", 0, 0);
	is_int(read_text(text, &conf), 0, "long names are unknown names");
	is_found(0, 0, 1, "", "unknown section [000");
	is_int(found.at[1].line, 4, "and reported");
	is_int(strlen(found.at[1].key), strlen("soft.") + 63,
		"at a length that can be read");
	has_str(found.at[1].key, "00...", "which shows");
	is_int(found.count, 2, "and no more");
}

static void flood(void)
{
	static char text[60000];

	for (size_t i = 0; i + 3 < sizeof(text); i += 2)
		memcpy(text + i, "x\n", 3);
	is_int(read_text(text, &conf), -EINVAL, "thousands of mistakes");
	is_int(found.count, 100, "are reported up to a maximum");
	has_str(found.at[99].text, "and more", "which the last one says");
}

int main(void)
{
	tap_plan_later();
	clear_environment();
	make_folder();
	findings();
	long_name();
	forms();
	long_lines();
	flood();
	return tap_done();
}
