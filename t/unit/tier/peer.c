/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pieces of a store that another GPU lends: had before the host's, given back, and kept by the driver. */
#include "tier/tier.h"

#include "base/clock.h"
#include "base/conf.h"
#include "soft/fault.h"
#include "soft/open.h"
#include "tap.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#define MIB ((uint64_t)1 << 20)

static struct glk_lock lock;
static struct glk_drv *drv;
static struct glk_pool pool;
static struct glk_node *host, *other, *lender;
static struct glk_store store;

static void begin(uint64_t room)
{
	lender->lends = room;
	host->peer->lender = lender;
	glk_store_relaxed(&host->peer->stows, true);
	if (glk_store_init(&store, drv, &lock, 0, 0, host))
		tap_bail("no store");
	glk_lock(&lock);
}

/* Nothing is held of anybody. */
static void end(int want)
{
	glk_unlock(&lock);
	is_int(glk_store_fini(&store), want, "the end of it");
	is_int((int64_t)(glk_lend_lent(lender) + glk_load_relaxed(&lender->held) +
		       glk_load_relaxed(&host->peer->held) +
		       glk_load_relaxed(&host->held)),
		0, "nothing is held");
}

static bool rests(void *arg)
{
	return !arg;
}

static int64_t mib(uint64_t bytes)
{
	return (int64_t)(bytes / MIB);
}

static void come_first(void)
{
	uint32_t one, two, three;

	begin(128 * MIB);
	is_int(glk_store_take(&store, 100 * MIB, true, &one), 0, "a content");
	is_int(mib(store.lent), 128, "lies in what is lent");
	is_int(mib(store.lent_used), 100, "which knows how much");
	is_int(mib(store.held + store.used), 0, "and not on the host");
	is_int(mib(glk_store_at(&store, one)->afar), 100, "all of it");
	is_int(mib(glk_lend_lent(lender)), 128, "the lender tells of it");
	is_int(glk_store_take(&store, 50 * MIB, true, &two), 0, "another");
	is_int(mib(glk_store_at(&store, two)->afar), 28, "has the rest of that");
	is_int(mib(store.used), 22, "and the host");
	is_int(glk_store_take(&store, 10 * MIB, false, &three), 0,
		"one for the host alone");
	is_int(mib(glk_store_at(&store, three)->afar), 0, "lies there");
	glk_store_put(&store, one, 0);
	glk_store_put(&store, three, 0);
	is_int(glk_store_take(&store, 30 * MIB, false, &three), 0,
		"also where there is room");
	is_int(mib(glk_store_at(&store, three)->afar), 0, "in what is lent");
	glk_store_give(&store, rests, NULL);
	is_int(mib(store.lent), 64, "a piece that nobody uses goes back");
	is_int(mib(glk_lend_lent(lender)), 64, "to its lender");
	glk_store_put(&store, two, 0);
	glk_store_give(&store, rests, &two);
	is_int(mib(store.lent), 64, "while a copy may be under way none does");
	is_int(glk_store_take(&store, 20 * MIB, true, &one), 0, "it serves again");
	is_int(mib(glk_store_at(&store, one)->afar), 20, "  from where it is");
	glk_store_put(&store, one, 0);
	glk_store_put(&store, three, 0);
	glk_store_trim(&store, 0, rests, NULL);
	is_int(mib(store.lent), 64, "a trim of the host leaves it");
	end(0);
}

/* A lender that is shut, or that the configuration has no more, gets nothing new. */
static void none_come(void)
{
	uint32_t one, two;

	begin(128 * MIB);
	is_int(glk_store_take(&store, 10 * MIB, true, &one), 0, "a content");
	glk_lend_shut(lender, true);
	is_int(glk_store_take(&store, 10 * MIB, true, &two), 0,
		"while the lender is shut");
	is_int(mib(glk_store_at(&store, two)->afar), 0, "one lies on the host");
	ok(!glk_store_borrow(&store), "and it lends nothing");
	is_int(mib(store.lent), 64, "nor is anything counted");
	glk_lend_shut(lender, false);
	glk_store_put(&store, two, 0);
	glk_store_relaxed(&host->peer->stows, false);
	is_int(glk_store_take(&store, 10 * MIB, true, &two), 0, "where the key says so");
	is_int(mib(glk_store_at(&store, two)->afar), 0, "it does too");
	glk_store_put(&store, one, 0);
	glk_store_put(&store, two, 0);
	end(0);
}

/* A content that is cut knows what is left of it there. */
static void is_cut(void)
{
	struct glk_store_rest rest;
	uint32_t one;

	begin(64 * MIB);
	is_int(glk_store_take(&store, 96 * MIB, true, &one), 0, "a content in both");
	is_int(mib(glk_store_at(&store, one)->afar), 64, "most of it with the lender");
	rest = glk_store_cut(
		&store, one, 32 * MIB, 48 * MIB, 0, glk_slab_get(&store.runs));
	is_int(mib(glk_store_afar(&store, rest.before) +
		       glk_store_afar(&store, rest.behind)),
		mib(store.lent_used), "what is left there is told");
	is_int(mib(glk_store_at(&store, rest.before)->afar +
		       glk_store_at(&store, rest.behind)->afar),
		mib(store.lent_used), "  and noted");
	is_int(mib(store.lent_used + store.used), 80, "and takes its room");
	glk_store_put(&store, rest.before, 0);
	glk_store_put(&store, rest.behind, 0);
	end(0);
}

/* One that does not fill its last chunk has no more with the lender than it has. */
static void is_odd(void)
{
	const uint64_t sizes[] = {1, GLK_STORE_CHUNK - 1, 5 * MIB + 100, 64 * MIB - 1};
	uint32_t one;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		begin(64 * MIB);
		is_int(glk_store_take(&store, sizes[i], true, &one), 0, "an odd content");
		is_int((int64_t)glk_store_at(&store, one)->afar, (int64_t)sizes[i],
			"  is with the lender, and no more");
		glk_store_put(&store, one, 0);
		end(0);
	}
}

/* Each call that makes one fails: the host has the content, and nothing is held of the lender. */
static void cannot_be_made(void)
{
	static const char *const rules[] = {"create:nth=1:err=ENOMEM",
		"create:nth=1:err=EIO", "reserve:nth=1:err=ENOMEM", "map:nth=1:err=EIO",
		"set_access:nth=1:err=EIO"};
	uint32_t one;

	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
		begin(64 * MIB);
		glk_fault_set(drv, rules[i]);
		is_int(glk_store_take(&store, 10 * MIB, true, &one), 0, rules[i]);
		glk_fault_set(drv, "off");
		is_int(mib(glk_store_at(&store, one)->afar), 0, "  it lies on the host");
		is_int(mib(store.lent + glk_lend_lent(lender)), 0,
			"  and nothing is lent");
		glk_store_put(&store, one, 0);
		glk_lend_wet(lender);
		is_int(glk_store_take(&store, 10 * MIB, true, &one), 0, "  the next one");
		is_int(mib(glk_store_at(&store, one)->afar), 10, "  lies there again");
		glk_store_put(&store, one, 0);
		end(0);
	}
	for (int i = 0; i < 2; i++) {
		begin(64 * MIB);
		tap_expect_log(1);
		glk_fault_set(drv,
			i ? "set_access:nth=1:err=EPERM" : "create:nth=1:err=ENODEV");
		is_int(glk_store_take(&store, 10 * MIB, true, &one), 0, "a refusal");
		glk_fault_set(drv, "off");
		glk_store_put(&store, one, 0);
		is_int(glk_store_take(&store, 10 * MIB, true, &one), 0,
			"is the last question");
		is_int(mib(glk_store_at(&store, one)->afar), 0, "  all goes to the host");
		glk_store_put(&store, one, 0);
		end(0);
	}
}

static int64_t refused(void)
{
	uint64_t calls, failed = 0;

	glk_fault_count(drv, &calls, &failed);
	return (int64_t)failed;
}

static uint64_t afar_of_next(void)
{
	uint64_t afar;
	uint32_t one;

	if (glk_store_take(&store, MIB, true, &one))
		tap_bail("no content");
	afar = glk_store_at(&store, one)->afar;
	glk_store_put(&store, one, 0);
	return afar;
}

/* Until when that is, of who has failed. */
static void let_alone(int64_t until)
{
	if (glk_load_relaxed(&lender->dry))
		glk_store_relaxed(&lender->dry, until);
	if (glk_load_relaxed(&host->peer->apart))
		glk_store_relaxed(&host->peer->apart, until);
}

/* Whether another GPU has something lent meanwhile. */
static bool others_have(void)
{
	uint64_t handle;
	uint8_t able;

	other->lender = lender;
	if (glk_source_make(other, 2 * MIB, &handle, &able))
		return false;
	drv->ops->release(drv, handle);
	glk_source_end(other, 2 * MIB);
	return true;
}

/* A driver that has none is not asked for each content, but when there may be some. `own`: it is the one who asks
 * that has failed. */
static void is_left_alone(const char *rule, bool own)
{
	int64_t since = glk_clock_ns();
	uint64_t afar = 0;
	uint32_t page;

	begin(64 * MIB);
	if (glk_node_grow(lender, 2 * MIB, &page))
		tap_bail("no page");
	glk_fault_set(drv, rule);
	for (int i = 0; i < 40000; i++)
		afar += afar_of_next();
	ok(refused() >= 1 && refused() <= 1 + (glk_clock_ns() - since) / GLK_LEND_DRY_NS,
		"%s: 40000 contents ask %d times", rule, (int)refused());
	is_int(mib(afar), 0, "and lie on the host");
	glk_fault_set(drv, rule);
	is_int(glk_node_release(lender, page), 0, "memory of the lender goes back");
	afar_of_next();
	is_int(refused(), 1, "then it is asked again");
	let_alone(glk_clock_ns());
	afar_of_next();
	is_int(refused(), 2, "and when a while has passed");
	glk_fault_set(drv, "off");
	let_alone(INT64_MAX);
	ok(!afar_of_next(), "not before");
	is_int(others_have(), own, own ? "another GPU is" : "nor is another GPU");
	let_alone(glk_clock_ns());
	is_int(mib(afar_of_next()), 1, "when it has some it lends again");
	end(0);
}

/* What is mapped without rights, and stays so, is nobody's and is counted. */
static void is_barred(void)
{
	begin(128 * MIB);
	tap_expect_log(1);
	glk_fault_set(drv, "set_access:nth=1:err=EIO;unmap:from=1:len=2:err=EIO");
	is_int(mib(afar_of_next()), 0, "a piece that has no rights and is not unmapped");
	glk_fault_set(drv, "off");
	is_int(mib(glk_lend_lent(lender)), 64, "stays lent");
	glk_lend_wet(lender);
	is_int(mib(afar_of_next()), 1, "the next content lies in another one");
	is_int(mib(glk_lend_lent(lender)), 128, "  beside that");
	glk_fault_set(drv, "unmap:from=1:len=2:err=EIO");
	glk_store_give(&store, rests, NULL);
	is_int(mib(glk_lend_lent(lender)), 128,
		"what the driver keeps stays, without a word");
	glk_fault_set(drv, "off");
	glk_store_give(&store, rests, NULL);
	is_int(mib(glk_lend_lent(lender)), 0, "until it does not");
	end(0);
}

/* What the driver keeps is had back by a later call. */
static void are_kept(void)
{
	uint32_t one;

	begin(64 * MIB);
	is_int(glk_store_take(&store, 10 * MIB, true, &one), 0, "a content");
	glk_store_put(&store, one, 0);
	glk_fault_set(drv, "unmap:nth=1:err=EIO");
	glk_store_give(&store, rests, NULL);
	is_int(mib(store.lent), 64, "a piece that cannot be unmapped stays");
	is_int(glk_store_take(&store, 10 * MIB, true, &one), 0, "and serves");
	is_int(mib(glk_store_at(&store, one)->afar), 10, "  a content");
	glk_store_put(&store, one, 0);
	glk_fault_set(drv, "release:nth=1:err=EIO");
	glk_store_give(&store, rests, NULL);
	is_int(mib(glk_lend_lent(lender)), 64,
		"memory that cannot be released stays lent");
	is_int(glk_store_take(&store, 10 * MIB, true, &one), 0, "and serves nobody");
	is_int(mib(glk_store_at(&store, one)->afar), 0, "  any more");
	glk_store_put(&store, one, 0);
	glk_fault_set(drv, "off");
	glk_store_give(&store, rests, NULL);
	is_int(mib(store.lent + glk_lend_lent(lender)), 0, "until it can");
	glk_fault_set(drv, "set_access:nth=1:err=EIO;release:nth=1:err=EIO");
	is_int(glk_store_take(&store, 10 * MIB, true, &one), 0,
		"neither mapped nor released");
	glk_fault_set(drv, "off");
	is_int(mib(glk_lend_lent(lender)), 64, "a piece stays lent");
	is_int(mib(glk_store_at(&store, one)->afar), 0, "and serves nobody");
	glk_store_put(&store, one, 0);
	end(0);
}

/* One of them does not hold up the others. */
static void is_kept(void)
{
	uint32_t one;

	begin(256 * MIB);
	is_int(glk_store_take(&store, 256 * MIB, true, &one), 0,
		"a content of four pieces");
	glk_store_put(&store, one, 0);
	glk_fault_set(drv, "unmap:nth=1:err=EIO");
	glk_store_give(&store, rests, NULL);
	is_int(mib(glk_lend_lent(lender)), 64, "one is kept by the driver, and no other");
	glk_fault_set(drv, "off");
	glk_store_give(&store, rests, NULL);
	is_int(mib(glk_lend_lent(lender)), 0, "until it is not");
	end(0);
}

/* The driver's call that gives the first rights waits until it may go on. */
static const struct glk_drv_ops *below;
static glk_atomic(bool) go_on;

static int late_access(struct glk_drv *at, uint64_t addr, size_t bytes,
	const struct glk_grant *grants, size_t count)
{
	while (!glk_load_acquire(&go_on)) /* pairs with: the release in comes_late */
		sched_yield();
	return below->set_access(at, addr, bytes, grants, count);
}

static void *take_one(void *arg)
{
	glk_lock(&lock);
	if (glk_store_take(&store, 10 * MIB, true, arg))
		tap_bail("no content");
	glk_unlock(&lock);
	return NULL;
}

/* A lender that is shut while a piece is being made has it back. */
static void comes_late(void)
{
	struct glk_drv_ops late = *drv->ops;
	pthread_t thread;
	uint32_t one;

	begin(128 * MIB);
	below = drv->ops;
	late.set_access = late_access;
	drv->ops = &late;
	glk_unlock(&lock);
	pthread_create(&thread, NULL, take_one, &one);
	while (glk_lend_lent(lender) < 64 * MIB)
		sched_yield();
	glk_lend_shut(lender, true);
	glk_store_release(&go_on, true); /* pairs with: the acquire in late_access */
	pthread_join(thread, NULL);
	glk_lock(&lock);
	drv->ops = below;
	is_int(mib(glk_store_at(&store, one)->afar), 0,
		"where the lender is shut meanwhile a content lies on the host");
	is_int(mib(glk_lend_lent(lender)), 0, "and nothing is lent for it");
	is_int(mib(store.lent), 0, "  as the store knows");
	glk_lend_shut(lender, false);
	glk_store_put(&store, one, 0);
	end(0);
}

int main(void)
{
	static const int ids[] = {0, 0};
	struct glk_conf conf;

	glk_conf_init(&conf);
	glk_conf_set(&conf, "driver.backend=soft");
	glk_conf_set(&conf, "driver.fault=off");
	glk_conf_set(&conf, "soft.gpus=2");
	if (glk_drv_open(&conf, NULL, 0, &drv) ||
		glk_pool_init(&pool, drv, &conf, 2, 2, ids))
		tap_bail("no software device");
	glk_lock_init(&lock, GLK_RANK_DEVICE);
	lender = glk_pool_gpu(&pool, 1);
	host = glk_pool_host(&pool, 0);
	other = glk_pool_host(&pool, 1)->peer;
	tap_plan_later();
	come_first();
	none_come();
	is_cut();
	is_odd();
	cannot_be_made();
	is_left_alone("create:from=1:err=ENOMEM", false);
	is_left_alone("create:from=1:err=EIO", false);
	is_left_alone("set_access:from=1:err=ENOMEM", true);
	is_barred();
	are_kept();
	is_kept();
	comes_late();
	glk_pool_fini(&pool);
	is_int(glk_drv_close(drv), 0, "nothing is left at the device");
	return tap_done();
}
