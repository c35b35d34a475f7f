/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A GPU that is shut lends nothing that it has not counted, whoever asks at that moment. */
#include "base/conf.h"
#include "pool/pool.h"
#include "unit/fakedrv.h"

#include <sched.h>

#define PAGE ((size_t)2 << 20)

static struct fake fake;
static struct glk_conf conf;
static struct glk_pool pool;
static struct glk_node *node, *lender;
static glk_atomic(uint32_t) round_no, done;
static uint64_t handle;
static bool had, slow;
static uint32_t rounds = 3000;

/* Where threads take turns. */
static void pause_if(bool wanted)
{
	if (wanted)
		sched_yield();
}

static void *borrow(void *arg)
{
	for (uint32_t i = 1; i <= rounds; i++) {
		while (glk_load_acquire(&round_no) !=
			i) /* pairs with: the release in main */
			pause_if(slow);
		had = !glk_lend_make(node, PAGE, &handle);
		glk_store_release(&done, i); /* pairs with: the acquire in main */
	}
	return NULL;
}

int main(void)
{
	static const int ids[] = {0, 1};
	uint32_t uncounted = 0, lent = 0;
	pthread_t thread;

	tap_plan_later();
	slow = tap_on_valgrind();
	if (slow)
		rounds = 100;
	glk_conf_init(&conf);
	if (glk_pool_init(&pool, fake_init(&fake), &conf, 2, 2, ids))
		tap_bail("no pool");
	lender = glk_pool_gpu(&pool, 1);
	node = glk_pool_host(&pool, 0);
	node->lender = lender;
	lender->lends = PAGE;
	glk_store_relaxed(&lender->dry, INT64_MAX);
	is_int(glk_lend_make(node, PAGE, &handle), -ENOMEM, "who has none lends none");
	glk_lend_wet(lender);
	glk_store_relaxed(&node->apart, INT64_MAX);
	glk_store_relaxed(&node->apart_since, glk_load_relaxed(&lender->wet));
	is_int(glk_lend_make(node, PAGE, &handle), -ENOMEM, "nor to whom it failed");
	glk_lend_wet(lender);
	is_int(glk_lend_make(node, PAGE, &handle), 0, "a page is lent");
	is_int((int64_t)glk_lend_lent(lender), PAGE, "and counted");
	is_int(glk_lend_make(node, PAGE, &handle), -ENOMEM, "that is all");
	fake.drv.ops->release(&fake.drv, handle);
	glk_lend_end(node, PAGE);
	glk_lend_shut(lender, true);
	is_int(glk_lend_make(node, PAGE, &handle), -ENOMEM, "who is shut lends nothing");
	is_int((int64_t)glk_lend_lent(lender), 0, "nor counts what was refused");
	pthread_create(&thread, NULL, borrow, NULL);
	for (uint32_t i = 1; i <= rounds; i++) {
		uint64_t counted;

		glk_lend_shut(lender, false);
		glk_store_release(&round_no, i); /* pairs with: the acquire in borrow */
		for (volatile uint32_t spin = i % 64; spin; spin--)
			;
		glk_lend_shut(lender, true);
		counted = glk_lend_lent(lender);
		while (glk_load_acquire(&done) !=
			i) /* pairs with: the release in borrow */
			pause_if(slow);
		uncounted += had && !counted;
		lent += had;
		if (!had)
			continue;
		fake.drv.ops->release(&fake.drv, handle);
		glk_lend_end(node, PAGE);
	}
	pthread_join(thread, NULL);
	is_int(uncounted, 0, "no page comes from who was shut without being counted");
	tap_note("%u of %u were lent", lent, rounds);
	is_int((int64_t)glk_lend_lent(lender), 0, "all of it is back");
	is_int((int64_t)fake.broken, 0, "no rule of the driver was broken");
	glk_pool_fini(&pool);
	fake_fini(&fake);
	return tap_done();
}
