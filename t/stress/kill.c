/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads killed at any instruction of a hit, and the books afterwards: the map verifies, each
 * of them took one block at most with it, and every other byte can be had and given back. The
 * public face of this is t/flow/trouble_kill.
 */
#include "seed.h"
#include "unit/cache/rig.h"

#include <pthread.h>
#include <time.h>

#define KILLS 2000
#define BATCH 4
#define LARGE (3 * MIB)

static struct rig rig;

/* Only what may be cancelled at any instruction is called from here on. */
static void *hit_for_ever(void *arg)
{
	static const size_t size[] = {512, 4096, LARGE, 300 << 10};
	int i = 0, unused;
	uint64_t addr;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &unused);
	for (;; i++) {
		if (!glk_cache_alloc(&rig.cache, size[i % 4], arg, 0, &addr))
			glk_cache_free(&rig.cache, addr, arg);
	}
	return NULL;
}

static void kill_some(uint64_t *state)
{
	pthread_t thread[BATCH];

	/* two on a stream of their own, two on one */
	for (int i = 0; i < BATCH; i++)
		if (pthread_create(
			    &thread[i], NULL, hit_for_ever, rig.stream[i < 2 ? i : 2]))
			tap_bail("no thread");
	for (int i = 0; i < BATCH; i++) {
		struct timespec time = {.tv_nsec = (long)seed_below(state, 300000)};

		nanosleep(&time, NULL);
		pthread_cancel(thread[i]);
	}
	for (int i = 0; i < BATCH; i++)
		pthread_join(thread[i], NULL);
}

static uint64_t apart(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

int main(void)
{
	struct glake_stats told, seen;
	uint64_t state, unused, addr;
	int odd = 0, refused = 0;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	tap_skip_all("a sanitizer does not follow a thread that ends at any instruction");
#endif
	if (tap_on_valgrind())
		tap_skip_all("valgrind runs one thread at a time");
	tap_plan_later();
	state = seed_thread(seed_start(), 0);
	rig_open(&rig,
		(const char *const[]){"soft.memory=32GiB", "map.span=512GiB",
			"pool.pages=65536", NULL});
	for (int i = 0; i < 3; i++)
		rig_stream(&rig);
	for (int kills = BATCH; kills <= KILLS; kills += BATCH) {
		kill_some(&state);
		addr = rig_alloc(&rig, LARGE, rig.stream[2]);
		refused += !addr || rig_free(&rig, addr, rig.stream[2]);
		if (kills % 100)
			continue;
		if (map_verify(&rig.cache.arena.map)) {
			odd++;
			tap_note("%s", rig_error().text);
		}
		told = rig_figures(&rig);
		seen = rig_walk(&rig);
		odd += apart(told.live_blocks, seen.live_blocks) > (unsigned)kills ||
			apart(told.given, seen.given) > (uint64_t)kills * LARGE ||
			seen.live_blocks > (unsigned)kills;
		odd += told.reserved != seen.reserved || told.mapped != seen.mapped ||
			told.free_extents != seen.free_extents || told.lost;
		if (kills % 500)
			continue;
		/* with the bins empty, what is neither live nor free is what was lost */
		odd += glk_cache_trim(&rig.cache, 0, false, &unused) != 0;
		seen = rig_walk(&rig);
		tap_note("%d killed: %" PRIu64 " bytes live, %" PRIu64
			 " in nobody's hands, %" PRIu64 " held",
			kills, seen.live, seen.quick, seen.reserved);
		odd += seen.live + seen.quick > (uint64_t)kills * LARGE ||
			map_verify(&rig.cache.arena.map);
	}
	is_int(odd, 0, "the books agree but for what was in the hands of the killed");
	is_int(refused, 0, "others are served");
	is_int(rig_end(&rig).device, 0, "nothing is left at the device");
	return tap_done();
}
