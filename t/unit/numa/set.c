/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The kernel's list notation: read strictly, written back the same. */
#include "numa/sysfs.h"
#include "tap.h"

#include <errno.h>

static void reads(const char *text, unsigned int count, int first)
{
	struct glk_numa_set set = {.word = {~UINT64_C(0)}};
	char back[256];

	is_int(glk_numa_set_parse(text, 1024, &set), 0, text);
	is_int(glk_numa_set_count(&set), count, "its count");
	is_int(glk_numa_set_next(&set, 0), first, "its first");
	glk_numa_set_format(&set, back, sizeof(back));
	is_str(back, text, "written back");
}

static void refuses(const char *text, int err)
{
	struct glk_numa_set set = {.word = {5}};

	is_int(glk_numa_set_parse(text, 64, &set), err, text);
	is_int((int64_t)set.word[0], 5, "nothing was written");
}

int main(void)
{
	struct glk_numa_set set;
	char text[12], tiny[1];

	tap_plan_later();
	reads("", 0, -1);
	reads("0", 1, 0);
	reads("0-63", 64, 0);
	reads("7,63-64,200-202,1023", 7, 7);
	refuses(",", -EBADMSG);
	refuses("1,", -EBADMSG);
	refuses("1,,2", -EBADMSG);
	refuses("3-1", -EBADMSG);
	refuses("-1", -EBADMSG);
	refuses("1-", -EBADMSG);
	refuses("0x3", -EBADMSG);
	refuses("1 2", -EBADMSG);
	refuses("0-6:2", -EBADMSG);
	refuses("64", -ERANGE);
	refuses("0-64", -ERANGE);
	refuses("99999999999999999999", -ERANGE);
	refuses("garbage", -EBADMSG);

	is_int(glk_numa_set_parse("8191", UINT32_MAX, &set), 0,
		"the highest bit there is");
	is_int(glk_numa_set_next(&set, 8191), 8191, "is found");
	is_int(glk_numa_set_next(&set, 8192), -1, "and nothing after it");
	is_int(glk_numa_set_parse("8192", UINT32_MAX, &set), -ERANGE,
		"one above is refused");
	ok(!glk_numa_set_has(&set, 8192), "and never set");

	is_int(glk_numa_set_parse("1,20-30,400", 1024, &set), 0,
		"a list for a small buffer");
	glk_numa_set_format(&set, text, sizeof(text));
	is_str(text, "1,20-30,400", "that just fits");
	glk_numa_set_format(&set, text, sizeof(text) - 1);
	is_str(text, "1,20-30", "is cut at a range");
	glk_numa_set_format(&set, tiny, sizeof(tiny));
	is_str(tiny, "", "or to nothing");
	return tap_done();
}
