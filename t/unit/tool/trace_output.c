/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A file that has its name when it is complete, and not before. */
#include "t/tap.h"
#include "tool/trace_tool.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/glake-output-XXXXXX";
static char path[64];

static const char *content(void)
{
	static char text[16];
	FILE *file = fopen(path, "re");
	size_t size;

	if (!file)
		return NULL;
	size = fread(text, 1, sizeof(text) - 1, file);
	text[size] = '\0';
	fclose(file);
	return text;
}

static int make(const char *text, bool good)
{
	struct trace_output output;
	int err = trace_output_open(&output, path);

	if (err)
		return err;
	fputs(text, output.file);
	return trace_output_close(&output, good);
}

static void test_file(void)
{
	struct trace_output output;
	struct stat stat;

	umask(022);
	is_int(trace_output_open(&output, path), 0, "opened");
	ok(!content(), "there is no such file yet");
	fputs("new", output.file);
	is_int(trace_output_close(&output, true), 0, "complete");
	is_str(content(), "new", "now there is");
	ok(!lstat(path, &stat) && (stat.st_mode & 0777) == 0644, "as readable as others");
	is_int(make("newer", false), 0, "another one that fails");
	is_str(content(), "new", "leaves what was there");
	is_int(make("newest", true), 0, "one that does not");
	is_str(content(), "newest", "replaces it");
	unlink(path);
	is_int(rmdir(folder), 0, "nothing else is left");
	is_int(make("x", true), -ENOENT, "a folder that is not there");
}

/* A device keeps its place. */
static void test_device(void)
{
	struct trace_output output;
	struct stat stat;
	int err;

	snprintf(path, sizeof(path), "/dev/full");
	is_int(make("x", true), -ENOSPC, "a full disk");
	snprintf(path, sizeof(path), "/dev/null");
	is_int(make("x", true), 0, "no file");
	ok(!lstat(path, &stat) && S_ISCHR(stat.st_mode), "is one afterwards neither");
	err = trace_output_open(&output, NULL);
	ok(!err && output.file == stdout && !trace_output_close(&output, true),
		"standard output stays open");
}

int main(void)
{
	if (!mkdtemp(folder))
		tap_bail("no folder for the test");
	snprintf(path, sizeof(path), "%s/out", folder);
	tap_plan(15);
	test_file();
	test_device();
	return tap_done();
}
