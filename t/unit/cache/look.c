/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads that ask about live blocks, pin and mark them, while others allocate and free beside
 * them, so that extents merge, slots of small blocks come and go and pages are mapped anew, and
 * while pools of graphs begin and go with their tables. A block that is live all the time is always
 * found as what it is; whatever else is found was a block once.
 */
#include "unit/cache/rig.h"

#include "cache/ahead.h"
#include "seed.h"

#include <sched.h>

#define LOOKERS 2
#define WORKERS 3
#define THREADS (LOOKERS + WORKERS)
#define KEPT	24
#define SHOWN	64

static struct rig rig;
static uint64_t seed;
static int rounds;
static glk_atomic(uint64_t) odd; /* answers that should not be */
static glk_atomic(uint64_t) found, missed, pools;
static glk_atomic(int) working;

/* Blocks that are live all the time. */
static struct {
	uint64_t addr;
	size_t size;
} kept[KEPT];

/* Where blocks were lately; they may be anything by now. */
static glk_atomic(uint64_t) shown[SHOWN];

static void expect(bool fine, const char *what)
{
	if (fine)
		return;
	glk_add_relaxed(&odd, 1);
	tap_note("%s: %s", what, rig_error().text);
}

static size_t some_size(uint64_t *state)
{
	static const size_t most[] = {4096, 256 << 10, 1 << 20, 5 << 20, 24 << 20};

	return 1 + seed_below(state, most[seed_below(state, 5)]);
}

static bool is_block(const struct glake_block *block, uint64_t addr)
{
	uint64_t base = (uint64_t)(uintptr_t)block->base;

	return addr - base < block->given && block->size && block->size <= block->given &&
		block->given % 512 == 0 && block->pages && block->page_size &&
		block->pages <= block->given / (2 * MIB) + 2;
}

static void query_kept(uint64_t *state)
{
	uint64_t i = seed_below(state, KEPT);
	uint64_t addr = kept[i].addr + seed_below(state, kept[i].size);
	struct glake_block block = {0};

	expect(!glk_cache_query(&rig.cache, addr, &block) &&
			(uint64_t)(uintptr_t)block.base == kept[i].addr &&
			block.size == kept[i].size && is_block(&block, addr) &&
			block.stream == rig.stream[0],
		"a block that is live");
}

static void use_kept(uint64_t *state)
{
	uint64_t i = seed_below(state, KEPT);
	struct CUstream_st *stream = rig.stream[seed_below(state, THREADS)];

	expect(!glk_cache_use(&rig.cache, kept[i].addr, stream), "a use");
}

static void pin_kept(uint64_t *state)
{
	uint64_t i = seed_below(state, KEPT), sum = 0;
	struct glk_pin pin;

	if (glk_cache_pin(&rig.cache, kept[i].addr + seed_below(state, kept[i].size),
		    true, &pin)) {
		expect(false, "a pin");
		return;
	}
	for (uint32_t n = 0; n < pin.count; n++) {
		struct glk_share_page p = glk_pin_page(&pin, n);

		sum += p.length;
		expect(p.offset + p.length <= p.size && p.handle, "a page");
	}
	expect(pin.base == kept[i].addr && pin.size == kept[i].size && sum == pin.size,
		"what is pinned");
	expect(!glk_cache_unpin(&rig.cache, pin.base), "an unpin");
}

static void query_any(uint64_t *state)
{
	uint64_t addr = glk_load_acquire(&shown[seed_below(state, SHOWN)]);
	struct glake_block block;
	struct glk_pin pin;

	if (!addr)
		return;
	addr += seed_below(state, 2) * seed_below(state, 2 * MIB);
	if (glk_cache_query(&rig.cache, addr, &block)) {
		glk_add_relaxed(&missed, 1);
	} else {
		glk_add_relaxed(&found, 1);
		expect(is_block(&block, addr), "a block that was there");
	}
	/* a refusal looks as well */
	if (!seed_below(state, 8) && !glk_cache_pin(&rig.cache, addr + 1, false, &pin))
		expect(false, "an odd address");
}

static void *look(void *arg)
{
	uint64_t state = seed_thread(seed, (unsigned)(uintptr_t)arg);

	while (glk_load_relaxed(&working)) {
		query_kept(&state);
		query_any(&state);
		query_any(&state);
		if (!seed_below(&state, 4))
			use_kept(&state);
		if (!seed_below(&state, 4))
			pin_kept(&state);
	}
	return NULL;
}

static void show(uint64_t *state, uint64_t addr)
{
	glk_store_release(&shown[seed_below(state, SHOWN)], addr);
}

/* One's own block, which nobody else frees. */
static void check_own(uint64_t *state, uint64_t addr, size_t size)
{
	uint64_t at = addr + seed_below(state, size);
	struct glake_block block = {0};

	expect(!glk_cache_query(&rig.cache, at, &block) &&
			(uint64_t)(uintptr_t)block.base == addr && block.size == size &&
			is_block(&block, at),
		"an own block");
}

/* Those who look have met blocks of others, and places where they were: in few rounds they may have met
 * nobody. */
static bool answered(void)
{
	return glk_load_relaxed(&found) > 10 && glk_load_relaxed(&missed) > 10;
}

static void churn(uint64_t *state, struct CUstream_st *stream)
{
	uint64_t addr[24] = {0}, unused;
	size_t size[24];

	for (int n = 0; n < rounds || (!answered() && n < 100 * rounds); n++) {
		uint64_t i = seed_below(state, 24);

		if (addr[i]) {
			check_own(state, addr[i], size[i]);
			if (!seed_below(state, 8))
				use_kept(state);
			expect(!rig_free(&rig, addr[i], stream), "a free");
			addr[i] = 0;
		}
		size[i] = some_size(state);
		if (rig_try(&rig, size[i], stream,
			    seed_below(state, 12) ? 0 : GLAKE_ALLOC_CONTIGUOUS,
			    &addr[i])) {
			addr[i] = 0;
			continue;
		}
		show(state, addr[i]);
		if (!seed_below(state, 200))
			glk_cache_trim(&rig.cache, 64 * MIB, &unused);
	}
	for (int i = 0; i < 24; i++) {
		if (addr[i])
			rig_free(&rig, addr[i], stream);
	}
}

/* Any thread's requests go to the pool; so it is this one's stream alone. */
static bool is_mine(struct CUstream_st *stream, void *arg)
{
	return stream == arg;
}

static void pool(uint64_t *state, struct CUstream_st *stream)
{
	for (int n = 0; n < rounds / 20 || (!answered() && n < 5 * rounds); n++) {
		uint64_t addr[8] = {0};
		size_t size[8];
		struct glake_pool_id id = rig_id((uint64_t)n + 1);
		struct glk_graph_begin begin = {
			.id = id, .filter = is_mine, .arg = stream, .stream = stream};

		expect(!glk_graph_begin(&rig.cache, &begin), "a pool");
		for (int i = 0; i < 8; i++) {
			size[i] = some_size(state);
			if (rig_try(&rig, size[i], stream, 0, &addr[i])) {
				addr[i] = 0;
				continue;
			}
			show(state, addr[i]);
			check_own(state, addr[i], size[i]);
		}
		expect(!glk_graph_end(&rig.cache, id), "its end");
		for (int i = 0; i < 8; i++) {
			if (!addr[i])
				continue;
			expect(!glk_cache_use(&rig.cache, addr[i], stream),
				"a use in a pool");
			expect(!rig_free(&rig, addr[i], stream), "a free in a pool");
		}
		expect(!glk_graph_release(&rig.cache, id), "its release");
		glk_add_relaxed(&pools, 1);
	}
}

static void *work(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;
	uint64_t state = seed_thread(seed, number);

	if (number == LOOKERS)
		pool(&state, rig.stream[number]);
	else
		churn(&state, rig.stream[number]);
	glk_sub_relaxed(&working, 1);
	return NULL;
}

static void keep(void)
{
	uint64_t state = seed_thread(seed, 99), between[KEPT];

	for (int i = 0; i < KEPT; i++) {
		kept[i].size = some_size(&state);
		kept[i].addr = rig_alloc(&rig, kept[i].size, rig.stream[0]);
		between[i] = rig_alloc(&rig, some_size(&state), rig.stream[0]);
		if (!kept[i].addr || !between[i])
			tap_bail("no memory");
	}
	for (int i = 0; i < KEPT; i++)
		rig_free(&rig, between[i], rig.stream[0]);
}

static glk_atomic(bool) released;

static void *release(void *arg)
{
	if (glk_graph_release(arg, rig_id(1)))
		tap_bail("no release");
	glk_store_release(&released, true);
	return NULL;
}

/* Who found the addresses of a pool in time reads its tables, however quickly it goes. */
static void stays_for_a_look(void)
{
	struct glk_range *range;
	struct glk_look look;
	struct glk_live live;
	pthread_t thread;
	uint64_t addr;

	rig_open(&rig, NULL);
	rig_stream(&rig);
	if (rig_begin_for(&rig, 1, is_mine, rig.stream[0]))
		tap_bail("no pool");
	addr = rig_alloc(&rig, 3 * MIB, rig.stream[0]);
	rig_end_pool(&rig, 1);
	look = glk_look_begin(&rig.cache);
	range = glk_cache_range(&rig.cache, addr);
	ok(range && glk_lookup_live(range, addr + 5, &live), "a block of a pool");
	rig_free(&rig, addr, rig.stream[0]);
	if (pthread_create(&thread, NULL, release, &rig.cache))
		tap_bail("no thread");
	while (glk_cache_range(&rig.cache, addr))
		sched_yield();
	/* time enough for one that does not wait */
	for (int i = 0; i < 1000 && !glk_load_acquire(&released); i++)
		sched_yield();
	ok(!glk_load_acquire(&released), "the pool is about to go, and waits");
	ok(!glk_live_is_still(&live) && !glk_lookup_live(range, addr, &live),
		"its tables are there");
	glk_look_end(&rig.cache, &look);
	pthread_join(thread, NULL);
	ok(glk_load_acquire(&released), "it goes after the look");
	rig_close(&rig, 0);
}

int main(void)
{
	pthread_t threads[THREADS];

	seed = seed_start();
	rounds = tap_on_valgrind() ? 200 : 4000; /* one thread at a time there */
	tap_plan_later();
	stays_for_a_look();
	rig_open(&rig, (const char *const[]){"soft.memory=4GiB", "map.span=32GiB", NULL});
	for (int i = 0; i < THREADS; i++)
		rig_stream(&rig);
	keep();
	glk_store_relaxed(&working, WORKERS);
	for (unsigned i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, i < LOOKERS ? look : work,
			    (void *)(uintptr_t)i))
			tap_bail("no threads");
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	is_int((int64_t)glk_load_relaxed(&odd), 0, "no answer is odd");
	tap_note("%" PRIu64 " blocks of others found, %" PRIu64 " not; %" PRIu64 " pools",
		glk_load_relaxed(&found), glk_load_relaxed(&missed),
		glk_load_relaxed(&pools));
	ok(answered(), "both answers were given");
	for (int i = 0; i < KEPT; i++)
		rig_free(&rig, kept[i].addr, rig.stream[0]);
	glk_ahead_stop(&rig.cache);
	is_sound(&rig, "the books agree");
	is_int((int64_t)rig_figures(&rig).live_blocks, 0, "nothing is live");
	rig_close(&rig, 0);
	return tap_done();
}
