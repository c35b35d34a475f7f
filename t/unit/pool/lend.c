/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a GPU lends is had before memory of the host. One that is shut lends nothing that it has not counted, whoever asks
 * at that moment. */
#include "base/conf.h"
#include "pool/pool.h"
#include "unit/fakedrv.h"

#include <sched.h>

#define PAGE ((size_t)2 << 20)

static struct fake fake;
static struct glk_conf conf;
static struct glk_pool pool;
static struct glk_node *peer, *lender;
static glk_atomic(uint32_t) round_no, done;
static uint64_t handle;
static uint8_t able;
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
		had = !glk_source_make(peer, PAGE, &handle, &able);
		glk_store_release(&done, i); /* pairs with: the acquire in main */
	}
	return NULL;
}

/* Who asks the host has what is lent first, and each page goes back to where it is from. */
static void comes_first(void)
{
	struct glk_node *host = glk_pool_host(&pool, 0);
	uint32_t lent, own;

	glk_store_release(&peer->borrows, true); /* pairs with: glk_node_lender */
	if (glk_node_grow(host, PAGE, &lent) || glk_node_grow(host, PAGE, &own))
		tap_bail("no pages");
	is_int(glk_page_at(&pool, lent)->node, peer->index, "a page is lent");
	is_int(glk_page_at(&pool, own)->node, host->index, "then there is the host");
	is_int((int64_t)glk_load_relaxed(&peer->held), PAGE, "each has its own");
	is_int((int64_t)glk_load_relaxed(&host->held), PAGE, "as its books say");
	is_int((int64_t)glk_lend_lent(lender), PAGE, "and the lender's");
	glk_node_put(host, lent);
	glk_node_put(host, own);
	is_int((int64_t)glk_node_free(peer), PAGE, "one is free at the peer");
	is_int((int64_t)glk_node_free(host), 2 * PAGE, "and with the host's two");
	is_int(glk_node_take(host, GLK_CLASS_SMALL), lent, "what is lent is had first");
	is_int(glk_node_take(host, GLK_CLASS_SMALL), own, "then the other one");
	is_int(glk_node_take(peer, GLK_CLASS_SMALL), 0, "a peer has nothing else");
	glk_node_put(host, lent);
	glk_node_put(host, own);
	is_int((int64_t)glk_node_drain(peer, GLK_CLASS_SMALL, UINT64_MAX), PAGE,
		"what is lent goes alone");
	is_int((int64_t)glk_lend_lent(lender), 0, "to its lender");
	glk_store_release(&peer->borrows, false);
	if (glk_node_grow(host, PAGE, &lent))
		tap_bail("no page");
	is_int(glk_page_at(&pool, lent)->node, host->index, "without it there is none");
	glk_node_release(host, lent);
	glk_node_empty(host);
	is_int((int64_t)(glk_load_relaxed(&host->held) + glk_load_relaxed(&peer->held)),
		0, "nothing is held");
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
	peer = glk_pool_host(&pool, 0)->peer;
	peer->lender = lender;
	lender->lends = PAGE;
	glk_store_relaxed(&lender->dry, INT64_MAX);
	is_int(glk_source_make(peer, PAGE, &handle, &able), -ENOMEM,
		"who has none lends none");
	glk_lend_wet(lender);
	glk_store_relaxed(&peer->apart, INT64_MAX);
	glk_store_relaxed(&peer->apart_since, glk_load_relaxed(&lender->wet));
	is_int(glk_source_make(peer, PAGE, &handle, &able), -ENOMEM,
		"nor to whom it failed");
	glk_lend_wet(lender);
	is_int(glk_source_make(peer, PAGE, &handle, &able), 0, "a page is lent");
	is_int((int64_t)glk_lend_lent(lender), PAGE, "and counted");
	is_int(glk_source_make(peer, PAGE, &handle, &able), -ENOMEM, "that is all");
	fake.drv.ops->release(&fake.drv, handle);
	glk_source_end(peer, PAGE);
	comes_first();
	glk_lend_shut(lender, true);
	is_int(glk_source_make(peer, PAGE, &handle, &able), -ENOMEM,
		"who is shut lends nothing");
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
		glk_source_end(peer, PAGE);
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
