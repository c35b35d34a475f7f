/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contents that lie with another GPU, from the inside: what is hashed and compressed of them, before and after
 * that GPU wanted its memory back, and blocks that are in the hands of somebody then.
 */
#include "api/context.h"
#include "move/away.h"
#include "soft/fault.h"
#include "tap.h"
#include "tier/lz4.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

static struct glake *ctx;
static struct glk_cache *cache;

/* GPU 0, whose contents lie with GPU 1; further settings, of which those that are NULL end them. */
static void set_up(const char *one, const char *two)
{
	const char *const settings[] = {"soft.memory=1GiB", "map.span=16GiB",
		"soft.gpus=2", "soft.host_memory=1GiB", "driver.fault=off", "tier.peer=1",
		"tier.away=peer", one, two, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glk_context *context;

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context))
		tap_bail("no context");
	cache = &context->caches[0];
}

static struct glake_error record(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error;
}

static unsigned char *take(size_t size)
{
	void *ptr = NULL;

	if (glake_alloc(ctx, 0, size, NULL, 0, &ptr))
		tap_bail("no block");
	memset(ptr, 5, size);
	return ptr;
}

static bool holds(const unsigned char *ptr, size_t size)
{
	return ptr[0] == 5 && !memcmp(ptr, ptr + 1, size - 1);
}

static struct glk_extent *extent_of(const void *ptr)
{
	const struct glk_range *range = glk_cache_range(cache, (uintptr_t)ptr);

	return glk_extent_at(range->map, glk_lookup_first(range, (uintptr_t)ptr));
}

/* A byte of the part of a content that lies with the other GPU, or of the rest. */
static unsigned char *byte_of(const void *ptr, bool afar)
{
	const struct glk_store *store = &cache->mover.store;
	uint32_t run = first_run_of(&cache->arena, extent_of(ptr));

	while (run && glk_store_is_afar(store, glk_store_at(store, run)) != afar)
		run = glk_store_at(store, run)->next;
	if (!run)
		tap_bail("there is no such part");
	return (unsigned char *)store->piece[glk_store_at(store, run)->piece].base +
		glk_store_at(store, run)->first * GLK_STORE_CHUNK;
}

static uint64_t figure(size_t at)
{
	struct glake_stats s = {.sz = sizeof(s)};

	glake_stats_get(ctx, 0, &s);
	return *(const uint64_t *)(const void *)((const char *)&s + at);
}

#define FIGURE(name) figure(offsetof(struct glake_stats, name))

/* What lies on the host is hashed, what lies with the other GPU is not, until it goes to the host. */
static void is_verified(void)
{
	unsigned char *one, *there;

	set_up("tier.verify=yes", "tier.peer_room=64MiB");
	one = take(80 * MIB);
	is_int(glake_spill(ctx, one, NULL), 0, "a content goes");
	there = byte_of(one, false);
	*there ^= 4;
	tap_expect_log(1);
	is_int(glake_fetch(ctx, one, NULL), -EIO, "of which a bit on the host turns");
	is_int(record().error_class, GLAKE_ERROR_CORRUPT, "  which is found");
	*there ^= 4;
	there = byte_of(one, true);
	*there ^= 4;
	is_int(glake_fetch(ctx, one, NULL), 0, "a bit with the other GPU is not");
	ok(!holds(one, 80 * MIB), "  as the manual says");
	memset(one, 5, 80 * MIB);
	is_int(glake_spill(ctx, one, NULL), 0, "it goes again");
	is_int(glake_suspend(ctx, 1, NULL), 0, "the lender is suspended");
	is_int((int64_t)FIGURE(store_peer), 0, "all of it is on the host");
	there = byte_of(one, false);
	*there ^= 4;
	tap_expect_log(1);
	is_int(glake_fetch(ctx, one, NULL), -EIO, "where any bit is found");
	*there ^= 4;
	is_int(glake_fetch(ctx, one, NULL), 0, "and what it was comes");
	ok(holds(one, 80 * MIB), "as it was");
	glake_free(ctx, one, NULL);
	is_int(sound_close(ctx, NULL), 0, "closed");
}

/* The part on the host keeps its hash where the rest finds no room there, and is looked at before the rest
 * comes to it. */
static void stays_verified(void)
{
	unsigned char *one, *there;

	set_up("tier.verify=yes", "tier.peer_room=64MiB");
	one = take(80 * MIB);
	is_int(glake_spill(ctx, one, NULL), 0, "a content goes to both");
	is_int(glake_conf_set(ctx, "tier.host", "64MiB"), 0, "the host has no more room");
	is_int(glake_suspend(ctx, 1, NULL), 0, "the lender is suspended");
	is_int((int64_t)(FIGURE(store_peer_used) / MIB), 64, "what is there stays");
	there = byte_of(one, false);
	*there ^= 4;
	tap_expect_log(1);
	is_int(glake_fetch(ctx, one, NULL), -EIO,
		"a bit on the host that turns is found");
	is_int(glake_conf_set(ctx, "tier.host", "512MiB"), 0, "the host has room");
	tap_expect_log(1);
	is_int(glake_suspend(ctx, 1, NULL), 0, "the lender is suspended again");
	is_int((int64_t)(FIGURE(store_peer_used) / MIB), 64, "what is there stays");
	tap_expect_log(1);
	is_int(glake_fetch(ctx, one, NULL), -EIO, "the bit is found still");
	*there ^= 4;
	is_int(glake_suspend(ctx, 1, NULL), 0, "once it is right");
	is_int((int64_t)FIGURE(store_peer_used), 0, "  all goes to the host");
	is_int(glake_fetch(ctx, one, NULL), 0, "and comes");
	ok(holds(one, 80 * MIB), "as it was");
	glake_free(ctx, one, NULL);
	is_int(sound_close(ctx, NULL), 0, "closed");
}

/* Ten minutes at the most. */
static bool await(uint64_t bytes)
{
	for (int i = 0; i < 300000 && FIGURE(packed) != bytes; i++)
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	return FIGURE(packed) == bytes;
}

/* What lies on the host alone is compressed, and what has come there since. */
static void is_compressed(void)
{
	unsigned char *one, *both, *host;

	if (glk_pack_able()) {
		tap_skip("what lies on the host is compressed", "the library has no lz4");
		return;
	}
	set_up("tier.compress=lz4", "tier.compress_rest=0s");
	if (!cache->host) {
		ok(true, "nothing is compressed here");
		sound_close(ctx, NULL);
		return;
	}
	glk_lend_shut(cache->host->peer->lender, true);
	host = take(16 * MIB);
	is_int(glake_spill(ctx, host, NULL), 0, "a content of the host");
	ok(await(16 * MIB), "is compressed");
	glk_lend_shut(cache->host->peer->lender, false);
	cache->host->peer->lender->lends = 64 * MIB;
	one = take(40 * MIB);
	both = take(40 * MIB);
	is_int(glake_spill(ctx, one, NULL) | glake_spill(ctx, both, NULL), 0, "two more");
	is_int((int64_t)(FIGURE(store_peer_used) / MIB), 64, "lie with the other GPU");
	is_int(glake_fetch_range(ctx, host, 0, 4 * MIB, NULL, NULL), 0,
		"a part of the first comes");
	is_int((int64_t)FIGURE(packed), 0,
		"so that it is what it was, and nothing is compressed");
	is_int((int64_t)(FIGURE(store_peer_used) / MIB), 64, "nor there what was not");
	is_int(glake_suspend(ctx, 1, NULL), 0, "the lender is suspended");
	ok(await(80 * MIB), "what has come to the host is compressed");
	is_int(glake_resume(ctx, 1, NULL), 0, "resumed");
	is_int(glake_fetch(ctx, one, NULL) | glake_fetch(ctx, both, NULL) |
			glake_fetch(ctx, host, NULL),
		0, "all come back");
	ok(holds(one, 40 * MIB) && holds(both, 40 * MIB) && holds(host, 16 * MIB),
		"as they were");
	glake_free(ctx, one, NULL);
	glake_free(ctx, both, NULL);
	glake_free(ctx, host, NULL);
	is_int(sound_close(ctx, NULL), 0, "closed");
}

/* A block in somebody's hands stays where it is; its lender does not wait for ever. */
static void is_held(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glk_moving moving;
	unsigned char *one, *two;

	set_up("policy.bins=0", "tier.verify=no");
	one = take(40 * MIB);
	two = take(40 * MIB);
	is_int(glake_spill(ctx, one, NULL) | glake_spill(ctx, two, NULL), 0, "two go");
	glk_lock(&cache->lock);
	ok(glk_away_take(cache, extent_of(one), &moving), "somebody has one");
	glk_unlock(&cache->lock);
	is_int(glk_cache_vacate(cache), -EBUSY, "so that it stays");
	is_int((int64_t)(FIGURE(store_peer_used) / MIB), 40, "where it is, alone");
	is_int(glake_suspend(ctx, 1, &did), 0, "the lender is suspended all the same");
	is_int((int64_t)(did.stayed / MIB), 64, "and told so");
	glk_lock(&cache->lock);
	glk_away_let_go(cache, extent_of(one), &moving);
	glk_unlock(&cache->lock);
	is_int(glake_suspend(ctx, 1, &did), 0, "when it is let go");
	is_int((int64_t)did.stayed, 0, "nothing stays");
	is_int(glake_fetch(ctx, one, NULL) | glake_fetch(ctx, two, NULL), 0, "both come");
	ok(holds(one, 40 * MIB) && holds(two, 40 * MIB), "as they were");
	glake_free(ctx, one, NULL);
	glake_free(ctx, two, NULL);
	is_int(sound_close(ctx, NULL), 0, "closed");
}

/* Those that are away are looked for in steps, between which others have the lock. */
static void goes_step_by_step(void)
{
	enum { BLOCKS = 1000 };
	uint64_t steps;
	void *small;
	char *one;

	set_up("policy.bins=0", "tier.verify=no");
	for (int i = 0; i < BLOCKS; i++) {
		if (glake_alloc(ctx, 0, 512 << 10, NULL, 0, &small))
			tap_bail("no block");
	}
	one = (char *)take(40 * MIB);
	is_int(glake_spill(ctx, one, NULL), 0, "one block of many goes");
	steps = cache->plans.steps;
	is_int(glk_cache_vacate(cache), 0, "and comes to the host");
	steps = cache->plans.steps - steps;
	ok(steps >= BLOCKS, "of %d, among which others had the lock: %llu steps", BLOCKS,
		(unsigned long long)steps);
	is_int(sound_close(ctx, NULL), 0, "closed");
}

/* A lender without memory is asked by each content, and no more often by a suspension. */
static void is_full(void)
{
	enum { BLOCKS = 24 };
	struct glake_suspended did = {.sz = sizeof(did)};
	uint64_t calls, failed;
	void *block[BLOCKS];

	set_up("policy.bins=0", "tier.verify=no");
	for (int i = 0; i < BLOCKS; i++)
		block[i] = take(4 * MIB);
	glk_fault_set(cache->drv, "create:p=1000000:err=ENOMEM");
	is_int(glake_suspend(ctx, 0, &did), 0, "suspended, with a lender that is full");
	glk_fault_count(cache->drv, &calls, &failed);
	glk_fault_set(cache->drv, "off");
	is_int((int64_t)(did.moved / MIB), 4 * BLOCKS, "all go to the host");
	ok(failed && failed < BLOCKS, "the lender was not asked for each");
	is_int(glake_resume(ctx, 0, &did), 0, "resumed");
	for (int i = 0; i < BLOCKS; i++)
		glake_free(ctx, block[i], NULL);
	is_int(sound_close(ctx, NULL), 0, "closed");
}

int main(void)
{
	tap_plan_later();
	/* in the others one thread does all */
	if (tap_one_thread_takes_long()) {
		is_compressed();
		return tap_done();
	}
	if (tap_has_xxhash()) {
		is_verified();
		stays_verified();
	} else {
		tap_skip("what lies on the host is hashed",
			"the library was built without xxhash.h");
	}
	is_compressed();
	is_held();
	goes_step_by_step();
	is_full();
	return tap_done();
}
