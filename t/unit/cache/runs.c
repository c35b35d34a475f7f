/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The walk of addresses: each state, walks that are cut and go on, blocks that move under it. */
#include "rig.h"

#include "seed.h"

#include <glake/elastic.h>

#define MOST 4096

struct list {
	struct glake_run run[MOST];
	unsigned count, stop; /* ends the walk behind so many; 0: never */
};

static int take(const struct glake_run *run, void *arg)
{
	struct list *list = arg;

	if (list->count == MOST)
		tap_bail("too many runs");
	list->run[list->count++] = *run;
	return list->count == list->stop;
}

static int walk(struct rig *rig, uint64_t from, struct list *list)
{
	return glk_cache_walk(&rig->cache, from, UINT64_MAX, take, list);
}

/* The run that holds an address. */
static const struct glake_run *at(struct rig *rig, uint64_t addr)
{
	static struct list list;

	list.count = 0;
	walk(rig, 0, &list);
	for (unsigned i = 0; i < list.count; i++) {
		if (addr - list.run[i].address < list.run[i].size)
			return &list.run[i];
	}
	tap_bail("no run");
	return NULL;
}

#define is_state(rig, addr, s, what) is_int(at(rig, addr)->state, s, what)

static void each_state(void)
{
	struct CUstream_st *a, *b;
	uint64_t one, two, three, small;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"soft.streams=stepped", "policy.bins=4MiB", NULL});
	is_int(walk(&rig, 0, &(struct list){0}), 0,
		"a GPU that was not used has no runs");
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	one = rig_alloc(&rig, 9 * MIB + 100, a);
	two = rig_alloc(&rig, 20 * MIB, b);
	three = rig_alloc(&rig, 3 * MIB, b);
	small = rig_alloc(&rig, 1000, a);
	is_state(&rig, one, GLAKE_RUN_LIVE, "a block");
	is_int((int64_t)at(&rig, one)->asked, 9 * MIB + 100, "as it was asked for");
	is_int((int64_t)at(&rig, one)->size, 9 * MIB + 512, "as it was given");
	ok(at(&rig, one)->stream == a && at(&rig, two)->stream == b, "their streams");
	is_int((int64_t)at(&rig, two)->gpu_bytes, 20 << 20, "memory behind it");
	ok(at(&rig, two)->large_bytes >= 8 * MIB, "some of it in large pages");
	is_int(at(&rig, small)->flags, GLAKE_RUN_SMALL, "a small one");
	is_state(&rig, small + 1024, GLAKE_RUN_REST, "the rest of its page");
	rig_free(&rig, three, b);
	is_state(&rig, three, GLAKE_RUN_QUICK, "a freed one in a bin");
	is_int((int64_t)at(&rig, three)->asked, 0, "of which nobody asked anything");
	rig_work(&rig, two, 20 * MIB, b);
	rig_free(&rig, two, b);
	is_state(&rig, two + 8 * MIB, GLAKE_RUN_LIMBO, "freed with work on it");
	ok(at(&rig, two + 8 * MIB)->stream == b, "whose that is");
	for (int i = 0; i < 2; i++) {
		glk_lock(&rig.cache.lock);
		glk_event_poll(&rig.cache.streams);
		glk_unlock(&rig.cache.lock);
		glk_soft_run_all(rig.drv);
	}
	glk_lock(&rig.cache.lock);
	glk_event_poll(&rig.cache.streams);
	glk_unlock(&rig.cache.lock);
	is_state(&rig, two + 8 * MIB, GLAKE_RUN_IDLE, "when that has passed");
	ok(!glk_cache_spill(&rig.cache, one, a), "a block goes to the host");
	is_state(&rig, one, GLAKE_RUN_AWAY, "and is away");
	is_int((int64_t)at(&rig, one)->asked, 9 * MIB + 100, "with what was asked for");
	ok(!glk_cache_fetch(&rig.cache, one, a), "it comes back");
	is_state(&rig, one, GLAKE_RUN_LIVE, "and lives");
	glk_soft_run_all(rig.drv);
	glk_cache_trim(&rig.cache, 0, false, &three);
	is_state(&rig, two + 8 * MIB, GLAKE_RUN_HOLE, "what is given back leaves a hole");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Of several streams that used a block one that is not done is told. */
static void who_is_late(void)
{
	struct CUstream_st *s[2];
	struct rig rig;
	uint64_t addr;

	for (int i = 0; i < 2; i++) {
		rig_open(&rig,
			(const char *const[]){
				"soft.streams=stepped", "policy.bins=0", NULL});
		s[0] = rig_stream(&rig);
		s[1] = rig_stream(&rig);
		addr = rig_alloc(&rig, 20 * MIB, s[0]);
		glk_cache_use(&rig.cache, addr, s[1]);
		for (int n = 0; n < 2; n++) {
			if (glk_soft_work(rig.drv, 0, s[n], addr, 20 * MIB, false))
				tap_bail(rig_error().text);
		}
		rig_free(&rig, addr, s[0]);
		glk_event_poll(&rig.cache.streams);
		rig.drv->ops->stream_sync(rig.drv, 0, s[i]);
		glk_event_poll(&rig.cache.streams);
		is_state(&rig, addr, GLAKE_RUN_LIMBO, "one of two is done");
		ok(at(&rig, addr)->stream == s[!i], "the other one is told");
		is_sound(&rig, "the books agree");
		rig_close(&rig, 0);
	}
}

/* The bytes between members do not count. */
static bool is_same(const struct glake_run *a, const struct glake_run *b)
{
	return a->address == b->address && a->size == b->size && a->state == b->state &&
		a->arena == b->arena && a->flags == b->flags && a->stream == b->stream &&
		a->asked == b->asked && a->gpu_bytes == b->gpu_bytes &&
		a->host_bytes == b->host_bytes && a->large_bytes == b->large_bytes &&
		a->placed == b->placed;
}

/* A random heap: the same from every cut on, without gaps. */
static void cut_anywhere(uint64_t seed)
{
	static struct list whole, parts;
	static uint64_t held[300];
	uint64_t state = seed_thread(seed, 1), from = 0;
	bool gap = false, same;
	struct rig rig;
	int err;

	rig_open(&rig, NULL);
	for (int n = 0; n < 3000; n++) {
		uint64_t *h = &held[seed_below(&state, 300)];
		size_t size = seed_below(&state, 2) ? 1 + seed_below(&state, 20000)
						    : 1 + seed_below(&state, 5 * MIB);

		if (*h)
			rig_free(&rig, *h, NULL);
		if (*h || rig_try(&rig, size, NULL, 0, h))
			*h = 0;
	}
	walk(&rig, 0, &whole);
	for (unsigned i = 1; i < whole.count; i++)
		gap |= whole.run[i - 1].address + whole.run[i - 1].size !=
			whole.run[i].address;
	ok(!gap && whole.count > 100, "%u runs without a gap", whole.count);
	is_int((int64_t)whole.run[0].address, (int64_t)rig.cache.arena.map.range[0].base,
		"from the first address");
	do {
		parts.stop = parts.count + 1 + (unsigned)seed_below(&state, 7);
		err = walk(&rig, from, &parts);
		from = parts.run[parts.count - 1].address +
			parts.run[parts.count - 1].size;
	} while (err);
	same = parts.count == whole.count;
	for (unsigned i = 0; same && i < whole.count; i++)
		same = is_same(&parts.run[i], &whole.run[i]);
	ok(same, "a walk that is cut anywhere and goes on is the whole one");
	for (unsigned i = 0; i < whole.count; i += 9) {
		const struct glake_run *r = &whole.run[i];

		if (r->size < 1024)
			continue;
		parts.count = 0;
		parts.stop = 1;
		walk(&rig, r->address + 512, &parts);
		same &= parts.run[0].address == r->address + 512 &&
			parts.run[0].size == r->size - 512 &&
			parts.run[0].state == r->state &&
			!(parts.run[0].flags & GLAKE_RUN_PART) ==
				(r->state > GLAKE_RUN_QUICK);
	}
	ok(same, "from inside of a run the rest of it is told");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 300; i++)
		if (held[i])
			rig_free(&rig, held[i], NULL);
	rig_close(&rig, 0);
}

/* Many pages that are shared are told in turns: others have the lock between two of them. */
static void told_in_turns(void)
{
	const struct glk_portion front = {0, 2048 * MIB};
	const struct glk_sharing s = {0, 4096 * MIB, 2048 * MIB};
	const struct glk_shares shares = {.pages = &s, .count = 1};
	static struct list list;
	struct CUstream_st *a;
	uint64_t addr, bytes, shared = 0, longest = 0;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.memory=4GiB", "map.span=32GiB", NULL});
	a = rig_stream(&rig);
	if (glk_cache_elastic(&rig.cache, 8192 * MIB, a, GLAKE_ALLOC_ELASTIC, &addr) ||
		glk_cache_commit(&rig.cache, addr, &front, 1, a, &bytes) ||
		glk_cache_share(&rig.cache, addr, &shares, a))
		tap_bail(rig_error().text);
	walk(&rig, 0, &list);
	for (unsigned i = 0; i < list.count; i++) {
		const struct glake_run *r = &list.run[i];

		shared += r->flags & GLAKE_RUN_SHARED ? r->size : 0;
		if (r->state == GLAKE_RUN_LIVE && r->size > longest)
			longest = r->size;
	}
	is_int((int64_t)shared, 2048 * (int64_t)MIB, "all that is shared is told");
	ok(longest < 2048 * MIB, "in more than one turn");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

int main(void)
{
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	each_state();
	who_is_late();
	cut_anywhere(seed);
	told_in_turns();
	return tap_done();
}
