/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory is touched before somebody waits for it, with threads and without. */
#include "tier/piece.h"

#include "tap.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE (((size_t)8 << 20) + ((size_t)64 << 10)) /* the last slice is a short one */
#define COUNT 6

static char *base[COUNT];

static void map_all(void)
{
	for (unsigned i = 0; i < COUNT; i++) {
		base[i] = mmap(NULL, PIECE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (base[i] == MAP_FAILED)
			tap_bail("no addresses");
	}
}

static void unmap_all(void)
{
	for (unsigned i = 0; i < COUNT; i++)
		munmap(base[i], PIECE);
}

/* OS pages of a piece that are there. */
static size_t there(unsigned piece)
{
	static unsigned char pages[PIECE / 4096];
	size_t count = 0, page = (size_t)sysconf(_SC_PAGESIZE);

	if (mincore(base[piece], PIECE, pages))
		tap_bail("mincore");
	for (size_t i = 0; i < PIECE / page; i++)
		count += pages[i] & 1;
	return count * page;
}

/* Older systems touch when they lock. */
static bool touches(void)
{
	void *page = mmap(
		NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool yes = !madvise(page, 4096, 23 /* MADV_POPULATE_WRITE */);

	munmap(page, 4096);
	return yes;
}

static void touches_all(const char *how, unsigned wanted, unsigned most)
{
	struct glk_touch touch;
	int missing = 0;

	map_all();
	glk_touch_begin(&touch, base, COUNT, PIECE, wanted);
	ok(touch.crew.threads <= most, "%s: %u threads beside the caller", how,
		touch.crew.threads);
	for (uint32_t i = 0; i < COUNT; i++) {
		missing += glk_touch_wait(&touch, i) != 0;
		missing += touches() && there(i) != PIECE;
	}
	glk_touch_end(&touch);
	ok(!missing, "%s: what was waited for is there", how);
	unmap_all();
}

/* The caller alone, where the process has one processor. */
static void alone(void)
{
	cpu_set_t all, one;

	if (sched_getaffinity(0, sizeof(all), &all))
		tap_bail("no affinity");
	CPU_ZERO(&one);
	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &all))
			continue;
		CPU_SET(i, &one);
		break;
	}
	sched_setaffinity(0, sizeof(one), &one);
	touches_all("on one processor", GLK_TOUCH_THREADS, 0);
	sched_setaffinity(0, sizeof(all), &all);
}

static void ends_early(void)
{
	struct glk_touch touch;

	map_all();
	glk_touch_begin(&touch, base, COUNT, PIECE, GLK_TOUCH_THREADS);
	is_int(glk_touch_wait(&touch, 1), 0, "the second one first");
	glk_touch_end(&touch);
	unmap_all();
	map_all();
	glk_touch_begin(&touch, base, COUNT, PIECE, GLK_TOUCH_THREADS);
	glk_touch_end(&touch);
	unmap_all();
	ok(touch.crew.threads == 0, "no thread is left of one that ends at once");
}

/* A hole stands for memory that the system does not have: both are ENOMEM. */
static void is_refused(void)
{
	struct glk_touch touch;

	if (!touches()) {
		tap_skip("what the system refuses",
			"this kernel touches no memory when asked to");
		return;
	}
	map_all();
	munmap(base[2] + PIECE / 2, 4096);
	glk_touch_begin(&touch, base, COUNT, PIECE, GLK_TOUCH_THREADS);
	is_int(glk_touch_wait(&touch, 0), 0, "the one before it is there");
	is_int(glk_touch_wait(&touch, 2), -ENOMEM,
		"one for which there is no memory is told");
	is_int(glk_touch_wait(&touch, 3), 0, "the one behind it is there");
	glk_touch_end(&touch);
	unmap_all();
}

int main(void)
{
	tap_real_memory();
	tap_plan_later();
	touches_all("as it comes", GLK_TOUCH_THREADS + 1, GLK_TOUCH_THREADS);
	touches_all("with one thread", 1, 1);
	touches_all("with none", 0, 0);
	alone();
	ends_early();
	is_refused();
	return tap_done();
}
