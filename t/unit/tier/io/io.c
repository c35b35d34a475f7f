/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which GPUs lend their links, as io.lend names them. */
#include "tier/io/io.h"

#include "tap.h"

#include <errno.h>

static void lends(const char *text, uint64_t want)
{
	uint64_t lend = 77;

	ok(!glk_io_lend(text, 8, &lend) && lend == want, "'%s'", text);
	is_int(glk_io_lend_check(text), 0, "  may be said");
}

static void refused(const char *text)
{
	struct glake_error error = {.sz = sizeof(error)};
	uint64_t lend = 77;

	is_int(glk_io_lend(text, 8, &lend), -EINVAL, text);
	is_int((int64_t)lend, 77, "  says nothing");
	glake_last_error(&error);
	has_str(error.text, "it is 'all', or numbers of GPUs", "  which is told");
}

/* From io.least on the others relay a copy of a GPU that they lend to. */
static void relays(void)
{
	const struct glk_io io = {.lend = 13, .least = 1000};

	is_int((int64_t)glk_io_relays(&io, 2, 1000), 9,
		"a copy that is just large enough");
	is_int((int64_t)glk_io_relays(&io, 2, 999), 0, "a smaller one");
	is_int((int64_t)glk_io_relays(&io, 1, 1000), 13,
		"one of a GPU that does not lend");
	is_int((int64_t)glk_io_relays(NULL, 1, 1000), 0, "where nobody lends");
}

int main(void)
{
	static const char *const wrong[] = {"x", "-1", "-", "1-", "3-1", "1,", ",1",
		"1,,2", "1 2", "0-", "0x1", "1-2-3", "all,1"};
	char text[32];

	tap_plan_later();
	lends("all", 0xff);
	lends("", 0);
	lends("0", 1);
	lends("2-2", 4);
	lends("0,2-3", 13);
	lends("7,0-1", 0x83);
	lends("5-9", 0xe0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		refused(wrong[i]);
	snprintf(text, sizeof(text), "0-%d", GLK_IO_GPUS - 1);
	lends(text, 0xff);
	snprintf(text, sizeof(text), "0-%d", GLK_IO_GPUS);
	refused(text);
	snprintf(text, sizeof(text), "%d", GLK_IO_GPUS);
	refused(text);
	relays();
	return tap_done();
}
