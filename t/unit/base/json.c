/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Texts are compared byte for byte with what RFC 8259 allows. */
#include "base/json.h"
#include "tap.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *text;
static size_t text_size;

static struct glk_json begin(int indent)
{
	struct glk_json json;

	free(text);
	text = NULL;
	glk_json_init(&json, open_memstream(&text, &text_size), indent);
	return json;
}

static int end(struct glk_json *json)
{
	int err = glk_json_fini(json);

	fclose(json->file);
	return err;
}

static void escapes(const char *bytes, size_t size, const char *want, const char *what)
{
	struct glk_json json = begin(0);

	glk_json_bytes(&json, bytes, size);
	end(&json);
	is_str(text, want, what);
}

#define ESCAPES(bytes, want, what)                                                       \
	escapes(bytes, sizeof(bytes) - 1, "\"" want "\"\n", what)
#define FFFD "\xef\xbf\xbd"

static void texts(void)
{
	ESCAPES("", "", "empty");
	ESCAPES("a\"b\\c/", "a\\\"b\\\\c/", "quote and backslash");
	ESCAPES("\b\f\n\r\t", "\\b\\f\\n\\r\\t", "controls with a name");
	ESCAPES("\x01\x1f\x7f", "\\u0001\\u001f\x7f", "controls without");
	ESCAPES("a\0b", "a\\u0000b", "a zero byte");
	ESCAPES("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
		"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "two, three and four bytes");
	ESCAPES("\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
		"\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
		"the first and last of each length");
	ESCAPES("\xff-\x80-\xc3", FFFD "-" FFFD "-" FFFD, "bytes that begin nothing");
	ESCAPES("\xc0\xaf", FFFD FFFD, "a slash in two bytes");
	ESCAPES("\xe0\x80\xaf", FFFD FFFD FFFD, "a slash in three bytes");
	ESCAPES("\xf0\x80\x80\xaf", FFFD FFFD FFFD FFFD, "a slash in four bytes");
	ESCAPES("\xed\xa0\x80", FFFD FFFD FFFD, "half of a surrogate pair");
	ESCAPES("\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD, "past the last plane");
	ESCAPES("\xe2\x82", FFFD FFFD, "cut off");
	ESCAPES("\xe2\x82\"", FFFD FFFD "\\\"",
		"cut off by a quote, which stays escaped");
}

static void is_double(double value, const char *want)
{
	struct glk_json json = begin(0);

	glk_json_double(&json, value);
	end(&json);
	text[strcspn(text, "\n")] = 0;
	is_str(text, want, want);
	if (isfinite(value))
		ok(strtod(text, NULL) == value, "reads back as the same double");
}

/* A locale that is made here, as localedef of glibc writes it: most systems have none with such a point. */
static void foreign_point(void)
{
	static const struct {
		uint32_t magic, count, at[6]; /* in the file */
		char point[8], none[8];
	} locale = {0x20031115 ^ LC_NUMERIC, 6, {32, 40, 40, 40, 40, 40}, "\xd9\xab", ""};
	char root[128], folder[136], path[160];
	struct glk_json json = begin(0);
	FILE *file;
	bool is_made;

	if (!mkdtemp(tap_template(root, sizeof(root), "json")))
		tap_bail("no folder for the test");
	snprintf(folder, sizeof(folder), "%s/x", root);
	snprintf(path, sizeof(path), "%s/LC_NUMERIC", folder);
	if (setenv("LOCPATH", root, 1) || mkdir(folder, 0700) ||
		!(file = fopen(path, "we")) ||
		fwrite(&locale, sizeof(locale), 1, file) != 1 || fclose(file))
		tap_bail("no locale");
	is_made = setlocale(LC_NUMERIC, "x") &&
		!strcmp(localeconv()->decimal_point, locale.point);
	glk_json_double(&json, 0.30000000000000004);
	end(&json);
	if (is_made)
		is_str(text, "0.30000000000000004\n", "a decimal point of two bytes");
	else
		tap_skip("a decimal point of two bytes", "no locales of glibc");
	setlocale(LC_NUMERIC, "C");
	unlink(path);
	rmdir(folder);
	rmdir(root);
}

static void numbers(void)
{
	struct glk_json json = begin(0);

	glk_json_array(&json);
	glk_json_uint(&json, UINT64_MAX);
	glk_json_int(&json, INT64_MIN);
	glk_json_int(&json, 0);
	glk_json_figure(&json, 1.0 / 3, 4);
	glk_json_figure(&json, 123456, 3);
	glk_json_figure(&json, -INFINITY, 3);
	glk_json_end(&json);
	end(&json);
	is_str(text,
		"[18446744073709551615,-9223372036854775808,0,0.3333,1.23e+05,null]\n",
		"integers to the ends, figures");
	is_double(0, "0");
	is_double(-0.5, "-0.5");
	is_double(0.1, "0.1");
	is_double(0.1 + 0.2, "0.30000000000000004");
	is_double(1.004, "1.004");
	is_double(5e-324, "4.94065645841247e-324");
	is_double(1.7976931348623157e308, "1.7976931348623157e+308");
	is_double(NAN, "null");
	is_double(INFINITY, "null");
}

static void shapes(void)
{
	struct glk_json json = begin(2);

	glk_json_object(&json);
	glk_json_add_text(&json, "name", "a");
	glk_json_add_text(&json, "none", NULL);
	glk_json_add_bool(&json, "yes", true);
	glk_json_key(&json, "list");
	glk_json_array(&json);
	glk_json_object(&json);
	glk_json_end(&json);
	glk_json_array(&json);
	glk_json_end(&json);
	glk_json_bool(&json, false);
	glk_json_end(&json);
	glk_json_add_uint(&json, "after", 1);
	glk_json_end(&json);
	is_int(end(&json), 0, "written");
	is_str(text,
		"{\n  \"name\": \"a\",\n  \"none\": null,\n  \"yes\": true,\n"
		"  \"list\": [\n    {},\n    [],\n    false\n  ],\n  \"after\": 1\n}\n",
		"indented");

	json = begin(0);
	glk_json_array(&json);
	for (int i = 1; i < GLK_JSON_DEPTH_MAX; i++)
		glk_json_array(&json);
	for (int i = 0; i < GLK_JSON_DEPTH_MAX; i++)
		glk_json_end(&json);
	is_int(end(&json), 0, "as deep as it goes");
	is_int(strlen(text), 2 * GLK_JSON_DEPTH_MAX + 1, "every bracket");
}

static void wrong_value(struct glk_json *json)
{
	glk_json_object(json);
	glk_json_int(json, 1);
}

static void wrong_key(struct glk_json *json)
{
	glk_json_array(json);
	glk_json_key(json, "k");
}

static void wrong_second(struct glk_json *json)
{
	glk_json_int(json, 1);
	glk_json_int(json, 2);
}

static void wrong_end(struct glk_json *json)
{
	glk_json_object(json);
	glk_json_end(json);
	glk_json_end(json);
}

static void wrong_no_value(struct glk_json *json)
{
	glk_json_object(json);
	glk_json_key(json, "k");
	glk_json_end(json);
}

static void wrong_open(struct glk_json *json)
{
	glk_json_object(json);
}

static void wrong_nothing(struct glk_json *json)
{
}

static void wrong_depth(struct glk_json *json)
{
	for (int i = 0; i <= GLK_JSON_DEPTH_MAX; i++)
		glk_json_array(json);
}

/* With asserts a wrong order ends the process, without them the end says so. */
static void is_wrong(void (*use)(struct glk_json *json), const char *what)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		FILE *null = fopen("/dev/null", "we");
		struct glk_json json;

		if (!null || !freopen("/dev/null", "w", stderr))
			_exit(1);
		glk_json_init(&json, null, 0);
		use(&json);
		_exit(glk_json_fini(&json) == -EINVAL ? 7 : 0);
	}
	waitpid(pid, &status, 0);
	ok((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) ||
			(WIFEXITED(status) && WEXITSTATUS(status) == 7),
		"%s is noticed", what);
}

static void stays_wrong(void)
{
	struct glk_json json = begin(0);

	glk_json_int(&json, 1);
	json.wrong = true;
	is_int(end(&json), -EINVAL, "what was wrong once is so at the end");
	json = begin(0);
	json.wrong = true;
	glk_json_int(&json, 1);
	fclose(json.file);
	is_str(text, "", "and no more is written");
}

static void full(void)
{
	FILE *file = fopen("/dev/full", "we");
	struct glk_json json;

	if (!file) {
		tap_skip("a full disk", "no /dev/full");
		return;
	}
	glk_json_init(&json, file, 0);
	glk_json_int(&json, 1);
	is_int(glk_json_fini(&json), -EIO, "a full disk");
	fclose(file);
}

int main(void)
{
	tap_plan_later();
	texts();
	numbers();
	foreign_point();
	shapes();
	is_wrong(wrong_value, "a value without a key");
	is_wrong(wrong_key, "a key in an array");
	is_wrong(wrong_second, "a second value");
	is_wrong(wrong_end, "an end too many");
	is_wrong(wrong_no_value, "a key without a value");
	is_wrong(wrong_open, "an object left open");
	is_wrong(wrong_nothing, "no value at all");
	is_wrong(wrong_depth, "one level too deep");
	stays_wrong();
	full();
	free(text);
	return tap_done();
}
