/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How many mappings the process has. The kernel allows vm.max_map_count of them, 65530 by
 * default, and a page of the software device with rights may need two. A device that took the
 * last ones would leave a program whose own malloc fails, so it stops while a sixteenth of them,
 * 1024 at least, is free.
 *
 * Design	the kernel tells the number only as the lines of /proc/self/maps, 0.4 to 0.7 us
 *		each. What the devices of the process have is known exactly from their books, so
 *		lines are counted now and then, to learn what the others have:
 *		- before the first mapping;
 *		- after as many new mappings as half of what there should be, 1024 at least,
 *		  so that a new mapping pays for two lines;
 *		- where the limit seems to be reached: the program may have given some back.
 *		  As long as it has not, the next counts come after 1, 2, 4 refusals, up to
 *		  256, or after 1/4 s, or when the process has so many pages of addresses less
 *		  (/proc/self/statm) that those could have been the mappings that are missed
 * Guarantees	none: others in the process take mappings and tell nobody. The reserve is there
 *		for what they take between two counts. An unmap may split a mapping of the
 *		kernel and is never refused: it too takes from the reserve
 * Without	vm.max_map_count: its default counts. /proc/self/maps: the kernel alone says no
 * Threads	any; under the lock of a device, or of none. Devices share the account, and what
 *		they read of it may be a few calls old
 * Cost		some nanoseconds; a refusal 2 us; a count of 65 000 lines 30 to 45 ms
 */
#include "soft/state.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define LIMIT_DEFAULT 65530 /* DEFAULT_MAX_MAP_COUNT of Linux */
#define RESERVE_PART  16
#define RESERVE_MIN   1024
#define COUNT_PART    2	   /* of all mappings: so many new ones until the next count */
#define COUNT_MIN     1024 /* well below the smallest reserve of the default limit */
#define ROOM_PART     64   /* of the limit: with so much room the limit is not near */
#define VAIN_MAX      9	   /* then a count in 256 refusals */
#define COUNT_OLD_NS  INT64_C(250000000) /* six times what the longest count takes */

static struct {
	glk_atomic(int64_t) own;    /* mappings of the devices */
	glk_atomic(int64_t) others; /* the remaining ones, as last counted */
	glk_atomic(int64_t) limit, most;
	glk_atomic(int64_t) made;     /* new mappings since the count */
	glk_atomic(int64_t) refusals; /* since the count */
	glk_atomic(int64_t) vain; /* counts for refusals that stayed, one after another */
	glk_atomic(int64_t) counted_ns, pages; /* when, and what the process had */
} maps;

/* Neither malloc nor stdio, which may want a mapping. The kernel gives a page at a time. */
static int64_t lines_count(void)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	int64_t lines = 0;
	char text[4096];
	ssize_t length;

	if (fd < 0)
		return -errno;
	while ((length = read(fd, text, sizeof(text))) != 0) {
		if (length < 0 && errno == EINTR)
			continue;
		if (length < 0) {
			lines = -errno;
			break;
		}
		for (ssize_t i = 0; i < length; i++)
			lines += text[i] == '\n';
	}
	close(fd);
	return lines;
}

/* The number that a file of the system begins with; 0 where it cannot be read. */
static int64_t number_read(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[24] = "";
	int64_t number = 0;

	if (fd >= 0) {
		if (read(fd, text, sizeof(text) - 1) > 0)
			number = strtoll(text, NULL, 10);
		close(fd);
	}
	return number;
}

static int64_t limit_read(void)
{
	int64_t limit = number_read("/proc/sys/vm/max_map_count");

	return limit > 0 ? limit : LIMIT_DEFAULT;
}

/* Pages of addresses that the process has, of which a mapping that goes takes one at least. */
static int64_t pages_read(void)
{
	return number_read("/proc/self/statm");
}

static int64_t reserve_of(int64_t limit)
{
	int64_t reserve = limit / RESERVE_PART;

	if (reserve < RESERVE_MIN)
		reserve = RESERVE_MIN;
	return reserve < limit / 2 ? reserve : limit / 2;
}

/* What is left for devices. */
static int64_t room(void)
{
	return glk_load_relaxed(&maps.most) - glk_load_relaxed(&maps.others) -
		glk_load_relaxed(&maps.own);
}

static void count(void)
{
	int64_t lines = lines_count(), limit = limit_read();

	glk_store_relaxed(&maps.limit, limit);
	glk_store_relaxed(
		&maps.most, lines < 0 ? INT64_MAX / 2 : limit - reserve_of(limit));
	glk_store_relaxed(&maps.others, lines - glk_load_relaxed(&maps.own));
	glk_store_relaxed(&maps.made, 0);
	glk_store_relaxed(&maps.refusals, 0);
	glk_store_relaxed(&maps.pages, pages_read());
	glk_store_relaxed(&maps.counted_ns, glk_clock_ns());
}

/* Whether so many new mappings are not to be allowed on the last count. */
static bool is_due(int64_t more)
{
	int64_t made = glk_add_relaxed(&maps.made, more) + more;
	int64_t all = glk_load_relaxed(&maps.own) + glk_load_relaxed(&maps.others);

	return !glk_load_relaxed(&maps.limit) ||
		made >= (all / COUNT_PART > COUNT_MIN ? all / COUNT_PART : COUNT_MIN);
}

/* Nor to be refused: so many more could have room if all that went since were mappings. */
static bool is_old(int64_t more)
{
	int64_t refusals = glk_add_relaxed(&maps.refusals, 1) + 1;

	return refusals >= (INT64_C(1) << glk_load_relaxed(&maps.vain)) / 2 ||
		glk_clock_ns() - glk_load_relaxed(&maps.counted_ns) > COUNT_OLD_NS ||
		room() + glk_load_relaxed(&maps.pages) - pages_read() >= more;
}

int glk_soft_maps_room(int64_t more)
{
	int64_t limit, vain = glk_load_relaxed(&maps.vain);
	bool due;

	if (more <= 0)
		return 0;
	due = is_due(more);
	if (due)
		count();
	if (room() < more && !due && is_old(more)) {
		count();
		if (room() < more && vain < VAIN_MAX)
			glk_store_relaxed(&maps.vain, vain + 1);
	}
	limit = glk_load_relaxed(&maps.limit);
	if (vain && room() >= limit / ROOM_PART)
		glk_store_relaxed(&maps.vain, 0);
	if (room() >= more)
		return 0;
	return glk_error_native(-ENOMEM, GLAKE_ERROR_LIMIT, "mmap", ENOMEM,
		"the process has used up its maps, see vm.max_map_count: the last %lld of "
		"%lld are left to the program",
		(long long)reserve_of(limit), (long long)limit);
}

void glk_soft_maps_note(struct soft *soft, int64_t more)
{
	soft->maps += more;
	glk_add_relaxed(&maps.own, more);
}

void glk_soft_maps_refused(void)
{
	if (room() > 0)
		glk_store_relaxed(&maps.limit, 0);
}
