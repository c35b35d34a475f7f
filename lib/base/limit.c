/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A kind has a place in a table of a fixed size, found by its address; a library has fewer kinds
 * than places, and one that finds none is not limited. A while begins with the first message that
 * comes after the last while. Nothing is ordered by these words; they only have to be whole.
 */
#include "base/limit.h"

#include "base/atomic.h"

#include <stddef.h>

#define KINDS 128 /* a power of two */

static struct kind {
	glk_atomic(const char *) format;
	glk_atomic(int64_t) since;  /* the while began */
	glk_atomic(uint32_t) count; /* in it */
} kinds[KINDS];

static struct kind *find(const char *format)
{
	size_t at = (size_t)((uintptr_t)format * UINT64_C(0x9e3779b97f4a7c15) >> 57);
	const char *there;

	for (size_t i = 0; i < KINDS; i++, at = (at + 1) % KINDS) {
		there = NULL;
		if (glk_load_relaxed(&kinds[at].format) == format ||
			glk_cas_acq_rel(&kinds[at].format, &there, format) ||
			there == format)
			return &kinds[at];
	}
	return NULL;
}

enum glk_limit glk_limit_ask(const char *format, int64_t now_ns, uint32_t *ret_left_out)
{
	struct kind *kind = find(format);
	uint32_t count;
	int64_t since;

	*ret_left_out = 0;
	if (!kind)
		return GLK_LIMIT_SAY;
	since = glk_load_relaxed(&kind->since);
	if ((!since || now_ns - since >= GLK_LIMIT_NS) &&
		glk_cas_acq_rel(&kind->since, &since, now_ns)) {
		count = glk_xchg_acq_rel(&kind->count, 1);
		if (count > GLK_LIMIT_LINES)
			*ret_left_out = count - GLK_LIMIT_LINES;
		return GLK_LIMIT_SAY;
	}
	count = glk_add_relaxed(&kind->count, 1) + 1;
	if (count > GLK_LIMIT_LINES)
		return GLK_LIMIT_LEAVE_OUT;
	return count == GLK_LIMIT_LINES ? GLK_LIMIT_LAST : GLK_LIMIT_SAY;
}
