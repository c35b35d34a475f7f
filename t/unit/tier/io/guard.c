/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who guards the thread that feeds copies: it writes the words of the turn that it gives up, and none of a turn
 * that has ended, however close the two are.
 */
#include "seed.h"
#include "tap.h"

#include "base/clock.h"
#include "tier/io/feed.h"

#include <sys/mman.h>

#define PATIENCE_NS 400000
#define PAGE	    4096

static struct glk_feeder feeder;
static glk_drv_word *words;
static uint64_t rolled;

static void pass(int64_t ns)
{
	int64_t since = glk_clock_ns();

	while (glk_clock_ns() - since < ns)
		;
}

/* A turn that takes so long, and a copy that begins with each word right after it. Words that are wrong. */
static int turn(int64_t ns, bool until_given_up, int *given_up)
{
	int wrong = 0;
	bool was;

	/* the guard has to wait for the page */
	madvise(words, PAGE, MADV_DONTNEED);
	glk_guard_wake(&feeder);
	glk_guard_enter(&feeder);
	pass(ns);
	while (until_given_up && !glk_guard_gave_up(&feeder))
		;
	was = glk_guard_leave(&feeder, false);
	*given_up += was;
	for (int i = GLK_FEEDS - 1; i >= 0; i--)
		wrong += (glk_load_acquire(&words[i]) ==
				 glk_load_relaxed(&feeder.value[i])) != was;
	for (int i = GLK_FEEDS - 1; i >= 0; i--)
		glk_add_relaxed(&feeder.value[i], 1);
	pass(30000);
	for (int i = 0; i < GLK_FEEDS; i++)
		wrong +=
			glk_load_acquire(&words[i]) == glk_load_relaxed(&feeder.value[i]);
	return wrong;
}

int main(void)
{
	int wrong = 0, given_up = 0, rounds = tap_on_valgrind() ? 20 : 200;

	tap_plan_later();
	rolled = seed_thread(seed_start(), 0);
	words = mmap(
		NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (words == MAP_FAILED)
		tap_bail("no page");
	feeder.words = words;
	for (int i = 0; i < GLK_FEEDS; i++)
		glk_store_relaxed(&feeder.value[i], 1);
	if (glk_guard_start(&feeder))
		tap_bail("no guard");
	wrong = turn(2000000, false, &given_up);
	is_int(wrong + given_up, 0, "half a minute is waited");
	glk_store_relaxed(&feeder.patience, PATIENCE_NS);
	for (int i = 0; i < rounds; i++)
		wrong += turn(0, true, &given_up);
	is_int(given_up, rounds, "each turn that takes longer than that is given up");
	is_int(wrong, 0, "with all words, and none of a copy that comes next");
	for (int i = 0; i < 2 * rounds; i++)
		wrong += turn(PATIENCE_NS + (int64_t)(seed_next(&rolled) % PATIENCE_NS),
			false, &given_up);
	is_int(wrong, 0, "or none, where it ends at that moment");
	tap_note("%d of %d were given up", given_up - rounds, 2 * rounds);
	glk_guard_stop(&feeder);
	return tap_done();
}
