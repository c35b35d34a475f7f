/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A library that is there, one that is not, one that lacks a function, and none at all. */
#include "base/late.h"

#include "tap.h"

#include <errno.h>

struct functions {
	__typeof__(strlen) *length;
	__typeof__(strcmp) *compare;
};

static void missing(const char *library, const char *const *names, const char *want)
{
	struct functions functions = {.compare = strcmp};
	struct glake_error error = {.sz = sizeof(error)};

	is_int(glk_late_load(library, names, 2, &functions), -ENOENT, "not to be had");
	ok(!functions.length && functions.compare == strcmp, "nothing is written");
	glake_last_error(&error);
	has_str(error.text, library, "the library is named");
	has_str(error.text, want, "and what is missing");
	is_int(error.error_class, GLAKE_ERROR_UNSUPPORTED, "the class");
}

int main(void)
{
	static const char *const names[] = {"strlen", "strcmp"};
	static const char *const odd[] = {"strlen", "glake_no_such_function"};
	struct functions functions = {0};

	tap_plan_later();
	is_int(glk_late_load("libc.so.6", names, 2, &functions), 0,
		"a library that is there");
	ok(functions.length && functions.length("four") == 4,
		"the first of its functions");
	ok(functions.compare && !functions.compare("a", "a"), "and the second");
	functions.length = NULL;
	is_int(glk_late_load("libglake-nothing.so.8 libc.so.6 libglake-nothing.so.7",
		       names, 2, &functions),
		0, "one of several that is there");
	ok(functions.length && functions.length("four") == 4, "its function");
	missing("libglake-nothing.so.8 libglake-nothing.so.7", names,
		"libglake-nothing.so.7: cannot open");
	missing("libc.so.6", odd, "glake_no_such_function");
	missing("libglake-nothing.so.7", names, "cannot be loaded: ");
	glk_late_hide(1);
	missing("libc.so.6", names, "it is not there");
	glk_late_hide(0);
	is_int(glk_late_load("libc.so.6", names, 2, &functions), 0, "there again");
	return tap_done();
}
