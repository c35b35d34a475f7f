/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Programs with an older, the same and a newer header. */
#include "base/sized.h"
#include "tap.h"

#include <errno.h>
#include <glake/error.h>

struct known {
	size_t sz;
	uint64_t a, b;
};

struct newer {
	size_t sz;
	uint64_t a, b, c;
};

struct older {
	size_t sz;
	uint64_t a;
};

static void in(void)
{
	struct glake_error error = {.sz = sizeof(error)};
	struct known out = {.a = 77};
	struct older older = {.sz = sizeof(older), .a = 1};
	struct known same = {.sz = sizeof(same), .a = 1, .b = 2};
	struct newer newer = {.sz = sizeof(newer), .a = 3, .b = 4};
	size_t bad;

	is_int(glk_sized_in(NULL, &out, sizeof(out)), -EINVAL, "NULL");
	glake_last_error(&error);
	is_int(error.error_class, GLAKE_ERROR_INVAL, "with a record");
	bad = 0;
	is_int(glk_sized_in(&bad, &out, sizeof(out)), -EINVAL, "sz 0");
	bad = sizeof(size_t) - 1;
	is_int(glk_sized_in(&bad, &out, sizeof(out)), -EINVAL, "sz below its own size");
	bad = SIZE_MAX;
	is_int(glk_sized_in(&bad, &out, sizeof(out)), -E2BIG, "sz beyond reason");
	bad = GLK_SIZED_MAX + 1;
	is_int(glk_sized_in(&bad, &out, sizeof(out)), -E2BIG, "one above the most");
	is_int(out.a, 77, "nothing written on failure");

	is_int(glk_sized_in(&same, &out, sizeof(out)), 0, "the same size");
	ok(out.sz == sizeof(out) && out.a == 1 && out.b == 2, "copied");
	is_int(glk_sized_in(&older, &out, sizeof(out)), 0, "an older program");
	ok(out.sz == sizeof(out) && out.a == 1 && out.b == 0, "the rest is zero");
	is_int(glk_sized_in(&newer, &out, sizeof(out)), 0,
		"a newer one that asks nothing new");
	ok(out.sz == sizeof(out) && out.a == 3 && out.b == 4, "copied");
	newer.c = (uint64_t)1 << 63;
	out.a = 77;
	is_int(glk_sized_in(&newer, &out, sizeof(out)), -E2BIG, "and one that does");
	is_int(out.a, 77, "nothing written");
	bad = sizeof(size_t);
	is_int(glk_sized_in(&bad, &out, sizeof(out)), 0, "a sz and nothing else");
	ok(out.a == 0 && out.b == 0, "is all zeroes");
}

static void out(void)
{
	struct known known = {.sz = 1, .a = 5, .b = 6};
	struct {
		struct older user;
		uint64_t behind;
	} older = {{.sz = sizeof(older.user)}, 99};
	struct newer newer = {.sz = sizeof(newer)};
	size_t bad = 3;

	is_int(glk_sized_out(NULL, &known, sizeof(known)), -EINVAL, "out: NULL");
	is_int(glk_sized_out(&bad, &known, sizeof(known)), -EINVAL, "out: sz too small");
	is_int(glk_sized_out(&older, &known, sizeof(known)), 0, "out: an older program");
	ok(older.user.sz == sizeof(older.user) && older.user.a == 5,
		"gets what it knows");
	is_int(older.behind, 99, "and no more");
	is_int(glk_sized_out(&newer, &known, sizeof(known)), 0, "out: a newer one");
	ok(newer.sz == sizeof(newer) && newer.a == 5 && newer.b == 6, "gets all");
	is_int(newer.c, 0, "and nothing where we know nothing");
	newer = (struct newer){.sz = sizeof(newer), .c = 99};
	is_int(glk_sized_out(&newer, &known, sizeof(known)), -E2BIG,
		"out: bytes that we do not know and that are not 0");
	ok(newer.a == 0 && newer.c == 99, "are not touched, nor is the rest");
	bad = GLK_SIZED_MAX + 1;
	is_int(glk_sized_out(&bad, &known, sizeof(known)), -E2BIG, "out: a sz too large");
}

int main(void)
{
	tap_plan_later();
	in();
	out();
	return tap_done();
}
