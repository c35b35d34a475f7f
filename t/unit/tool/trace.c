/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files into traces: rows are counted as an editor does, and lenient skips what it may. */
#include "tool/trace.h"
#include "t/tap.h"

#include <errno.h>
#include <lzma.h>
#include <unistd.h>

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"

static char folder[] = "/tmp/glake-trace-XXXXXX";
static char path[64];
static char message[TRACE_MESSAGE_MAX];
static struct trace trace;

static void store(const char *name, const void *bytes, size_t size)
{
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	if (!file || fwrite(bytes, 1, size, file) != size || fclose(file))
		tap_bail("no file for the test");
}

static int load(const char *text, bool lenient)
{
	int err;

	store("a.csv", text, strlen(text));
	message[0] = '\0';
	trace_fini(&trace);
	err = trace_load(path, lenient, &TRACE_LIMITS, message, sizeof(message), &trace);
	unlink(path);
	return err;
}

static void test_good(void)
{
	is_int(load(HEADER "0,1,allocate,0x1,5,0\n0,2,free,0x1,5,0\n", false), 0,
		"two rows");
	is_int(trace.count, 2, "two events");
	is_int(trace.rows, 2, "rows are counted without the header");
	is_str(trace.name, "a", "the name is the file's");
	is_int(load("Thread,Time,Action,Pointer,Size,Stream\r\n0,1,allocate,0x1,5,0\r\n",
		       false),
		0, "line ends of DOS");
	is_int(load(HEADER "0,1,allocate,0x1,5,0", false), 0, "no line end at the end");
	is_int(trace.count, 1, "counts the row");
}

static void test_bad(void)
{
	static char too_long[3000];

	is_int(load("", false), -ENODATA, "an empty file");
	has_str(message, "a.csv: the file is empty", "says so");
	is_int(load(HEADER, false), -ENODATA, "no row");
	is_int(load("0,1,allocate,0x1,5,0\n", true), -EINVAL,
		"no header, lenient or not");
	has_str(message, "a.csv:1: this is no allocation trace", "says so");
	is_int(load("Time,Thread,Action,Pointer,Size,Stream\n", false), -EINVAL,
		"columns in another order");
	is_int(load(HEADER "0,1,allocate,0x1,5,0\nx\n", false), -EINVAL, "a broken row");
	has_str(message, "a.csv:3: broken row", "names the row");
	is_int(load(HEADER "0,1,allocate,0x1,5,0\n0,2,fre,0x1,5,0\n", false), -EINVAL,
		"an unknown action");
	has_str(message, "a.csv:3: unknown action 'fre'", "names the row");
	is_int(load(HEADER "0,2,free,0x1,5,0\n", false), -EINVAL, "an unknown pointer");
	has_str(message, "a.csv:2: free of 0x1", "names the row");
	is_int(load(HEADER "\n", false), -EINVAL, "an empty row");
	strcpy(too_long, HEADER "0,1,allocate,0x1,5,0\n");
	memset(too_long + strlen(too_long), '7', 2000);
	is_int(load(too_long, false), -EINVAL, "a row that is too long");
	has_str(message, "a.csv:3: broken row: longer", "names the row");
}

static void test_lenient(void)
{
	is_int(load(HEADER "x\n0,1,allocate,0x1,5,0\n0,2,free,0x2,5,0\n0,2,fre,0x1,5,0\n"
			   "0,1,allocate,0x1,6,0\n0,3,free,0x1,5,0\n",
		       true),
		0, "lenient takes a trace with four wrong rows");
	is_int(trace.skipped, 4, "counts them");
	is_int(trace.count, 2, "and keeps the others");
	is_int(trace.rows, 6, "of six");
	is_int(load(HEADER "x\n", true), -ENODATA, "nothing right in it at all");
}

static void test_cut_off(void)
{
	static const char text[] = HEADER "0,1,allocate,0x1,5,0\n0,2,allocate,0x2,5,0\n";
	static char rows[200000];
	static uint8_t packed[200000];
	size_t size = 0, length = 0;
	int err;

	length = (size_t)sprintf(rows, "%s", text);
	for (int i = 3; i < 4000; i++)
		length += (size_t)sprintf(rows + length, "0,%d,allocate,0x%x,%d,0\n", i,
			i, i * 7919 % 10007);
	if (lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, NULL, (const uint8_t *)rows,
		    length, packed, &size, sizeof(packed)))
		tap_bail("xz");
	store("b.csv.xz", packed, size / 2);
	trace_fini(&trace);
	err = trace_load(path, false, &TRACE_LIMITS, message, sizeof(message), &trace);
	is_int(err, -ENODATA, "half an archive");
	has_str(message, "the xz archive is cut off", "says so");
	is_int(trace.count, 0, "gives nothing");
	err = trace_load(path, true, &TRACE_LIMITS, message, sizeof(message), &trace);
	is_int(err, 0, "but is taken by lenient");
	ok(trace.count > 500 && trace.count < 3500, "with what came before");
	ok(trace.broken, "and marked");
	is_str(trace.name, "b", "the name is without both endings");
	unlink(path);
}

int main(void)
{
	if (!mkdtemp(folder))
		tap_bail("no folder for the test");
	tap_plan(34);
	test_good();
	test_bad();
	test_lenient();
	test_cut_off();
	trace_fini(&trace);
	rmdir(folder);
	return tap_done();
}
