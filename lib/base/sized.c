/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program and the library are updated apart from each other, so the structures between
 * them carry their size. An older program hands over less than we know: zero stands for what
 * it could not say. A newer one hands over more: that is fine as long as it says nothing
 * there, for else we would silently not do what it asked, or leave it with what was in its
 * memory for an answer.
 */
#include "base/sized.h"

#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static int size_of(const void *user, size_t *ret_size)
{
	size_t sz;

	if (!user)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "a structure is NULL");
	memcpy(&sz, user, sizeof(sz));
	if (sz < sizeof(size_t))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"sz of a structure is %zu bytes; set it to sizeof the structure",
			sz);
	*ret_size = sz;
	return 0;
}

/* What the program says beyond what is known here must be nothing. */
static int check_rest(const void *user, size_t sz, size_t known)
{
	const unsigned char *bytes = user;

	if (sz > GLK_SIZED_MAX)
		return glk_error(-E2BIG, GLAKE_ERROR_INVAL,
			"sz of a structure is %zu bytes, of which %zu are known here", sz,
			known);
	for (size_t i = known; i < sz; i++) {
		if (bytes[i])
			return glk_error(-E2BIG, GLAKE_ERROR_INVAL,
				"byte %zu of a structure is not 0, but only %zu are known; "
				"the program was built for a newer glake",
				i, known);
	}
	return 0;
}

int glk_sized_in(const void *in, void *out, size_t known)
{
	size_t sz;
	int err;

	assert(known >= sizeof(size_t) && known <= GLK_SIZED_MAX);
	err = size_of(in, &sz);
	if (!err)
		err = check_rest(in, sz, known);
	if (err)
		return err;
	memset(out, 0, known);
	memcpy(out, in, sz < known ? sz : known);
	memcpy(out, &known, sizeof(known));
	return 0;
}

int glk_sized_out(void *user, const void *structure, size_t known)
{
	size_t sz, copied;
	int err;

	assert(known >= sizeof(size_t));
	err = size_of(user, &sz);
	if (!err)
		err = check_rest(user, sz, known);
	if (err)
		return err;
	copied = sz < known ? sz : known;
	memcpy((char *)user + sizeof(sz), (const char *)structure + sizeof(sz),
		copied - sizeof(sz));
	return 0;
}
