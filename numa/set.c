/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sets of CPUs and nodes, and the kernel's list notation for them. A fixed array of set: a
 * set can be copied, compared and held on the stack, and no number in a file can make it grow.
 */
#include "numa/sysfs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

unsigned int glk_numa_set_count(const struct glk_numa_set *set)
{
	unsigned int count = 0;

	for (size_t i = 0; i < GLK_NUMA_SET_MAX / 64; i++)
		count += (unsigned int)__builtin_popcountll(set->word[i]);
	return count;
}

int glk_numa_set_next(const struct glk_numa_set *set, unsigned int from)
{
	for (unsigned int i = from / 64; i < GLK_NUMA_SET_MAX / 64; i++) {
		uint64_t word = set->word[i];

		if (i == from / 64)
			word &= ~UINT64_C(0) << (from % 64);
		if (word)
			return (int)(i * 64 + (unsigned int)__builtin_ctzll(word));
	}
	return -1;
}

/* One number of a list, below max; moves *at behind it. */
static int parse_one(const char **at, unsigned int max, unsigned int *ret_number)
{
	const char *p = *at;
	unsigned int n = 0;

	if (*p < '0' || *p > '9')
		return -EBADMSG;
	for (; *p >= '0' && *p <= '9'; p++) {
		n = n * 10 + (unsigned int)(*p - '0');
		if (n >= max)
			return -ERANGE;
	}
	*at = p;
	*ret_number = n;
	return 0;
}

int glk_numa_set_parse(const char *text, unsigned int max, struct glk_numa_set *ret_set)
{
	struct glk_numa_set set = {0};
	const char *at = text;
	unsigned int first, last;
	int err;

	if (max > GLK_NUMA_SET_MAX)
		max = GLK_NUMA_SET_MAX;
	while (*at) {
		err = parse_one(&at, max, &first);
		if (err)
			return err;
		last = first;
		if (*at == '-') {
			at++;
			err = parse_one(&at, max, &last);
			if (err)
				return err;
		}
		if (last < first || (*at && *at != ','))
			return -EBADMSG;
		for (unsigned int n = first; n <= last; n++)
			glk_numa_set_add(&set, n);
		if (*at == ',' && !*++at)
			return -EBADMSG;
	}
	*ret_set = set;
	return 0;
}

void glk_numa_set_format(const struct glk_numa_set *set, char *text, size_t size)
{
	size_t used = 0;
	int first;

	if (!size)
		return;
	*text = 0;
	first = glk_numa_set_next(set, 0);
	while (first >= 0) {
		unsigned int last = (unsigned int)first;
		char range[32];
		int n;

		while (glk_numa_set_has(set, last + 1))
			last++;
		if (last == (unsigned int)first)
			n = snprintf(
				range, sizeof(range), "%s%d", used ? "," : "", first);
		else
			n = snprintf(range, sizeof(range), "%s%d-%u", used ? "," : "",
				first, last);
		if (n < 0 || used + (size_t)n >= size)
			return;
		memcpy(text + used, range, (size_t)n + 1);
		used += (size_t)n;
		first = glk_numa_set_next(set, last + 1);
	}
}
