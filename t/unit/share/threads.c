/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads that give blocks away, free them at the same time, import them, and change who may
 * use them, beside one that allocates as if nothing were.
 */
#include "unit/cache/rig.h"

#include "cache/ahead.h"
#include "seed.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#define THREADS 6
#define MOST	32
#define MANY	100

static struct rig rig;
static uint64_t seed;
static int rounds;
static glk_atomic(uint64_t) odd; /* answers that should not be */
static glk_atomic(uint64_t) lent, met;

/* A block that several threads pin and unpin and one frees. */
static glk_atomic(uint64_t) shared;

static void expect(bool fine, const char *what)
{
	if (fine)
		return;
	glk_add_relaxed(&odd, 1);
	tap_note("%s: %s", what, rig_error().text);
}

/* Out, imported, ended, back; freed somewhere in between. */
static void lend(uint64_t *state, struct CUstream_st *stream)
{
	uint64_t addr = 0, other = 0, when = seed_below(state, 3);
	struct glake_piece piece[MOST];
	struct glk_pin pin;

	if (rig_try(&rig, 1 + seed_below(state, 20 * MIB), stream,
		    seed_below(state, 6) ? 0 : GLAKE_ALLOC_CONTIGUOUS, &addr))
		return; /* the others have it all */
	expect(!glk_cache_pin(&rig.cache, addr, false, &pin), "pin");
	if (!when)
		expect(!rig_free(&rig, addr, stream), "free");
	expect(!glk_share_export(rig.drv, glk_pin_page, &pin, pin.count, piece),
		"export");
	expect(!glk_import(&rig.cache.imports, piece, pin.count, pin.size, &other),
		"import");
	for (uint32_t i = 0; i < pin.count; i++)
		close(piece[i].fd);
	if (when == 1)
		expect(!rig_free(&rig, addr, stream), "free");
	*(volatile char *)(uintptr_t)other = (char)seed_below(state, 100);
	expect(*(volatile char *)(uintptr_t)addr == *(volatile char *)(uintptr_t)other,
		"one memory");
	expect(!glk_import_end(&rig.cache.imports, other, stream), "end of an import");
	expect(!glk_cache_unpin(&rig.cache, addr), "unpin");
	glk_add_relaxed(&lent, 1);
	if (when == 2)
		expect(!rig_free(&rig, addr, stream), "free");
}

/*
 * The same block in all hands, now and then freed by one of them. A pin may find it freed, and
 * while another one is made it is not live for a moment.
 */
static void meet(uint64_t *state, struct CUstream_st *stream)
{
	uint64_t addr = glk_load_acquire(&shared);
	struct glk_pin pin;

	if (!addr)
		return;
	if (!glk_cache_pin(&rig.cache, addr, seed_below(state, 2), &pin)) {
		glk_add_relaxed(&met, 1);
		/* as long as it is pinned no other block is there */
		if (!seed_below(state, 400) && glk_cas_acq_rel(&shared, &addr, 0)) {
			while (rig_free(&rig, addr, stream))
				;
		}
		expect(!glk_cache_unpin(&rig.cache, pin.base), "unpin of all");
	}
}

/* Whether this thread has to go on, for so many to have been out. */
static bool lends(unsigned number)
{
	return number && number < 4 && glk_load_relaxed(&lent) <= MANY;
}

static void *run(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;
	uint64_t state = seed_thread(seed, number), addr[4] = {0};
	struct CUstream_st *stream = rig.stream[number];

	/* where there are few rounds, until many were out, however often there was no memory */
	for (int n = 0; n < rounds || (lends(number) && n < 100 * rounds); n++) {
		if (number == 0) {
			glk_cache_peer(&rig.cache, 1, n & 1);
			continue;
		}
		if (number < 4) {
			lend(&state, stream);
			continue;
		}
		for (int i = 0; i < 40; i++) {
			uint64_t *a = &addr[seed_below(&state, 4)];

			if (*a)
				expect(!rig_free(&rig, *a, stream), "free of a hit");
			if (rig_try(&rig, 3 * MIB, stream, 0, a))
				*a = 0;
		}
		meet(&state, stream);
	}
	for (int i = 0; i < 4; i++) {
		if (addr[i])
			rig_free(&rig, addr[i], stream);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	uint64_t addr;

	seed = seed_start();
	rounds = tap_on_valgrind() ? 60 : 1200; /* one thread at a time there */
	tap_plan_later();
	rig_open(&rig,
		(const char *const[]){
			"soft.gpus=2", "pool.budget=400MiB", "pool.ahead=64MiB", NULL});
	for (int i = 0; i < THREADS; i++)
		rig_stream(&rig);
	addr = rig_alloc(&rig, 9 * MIB, rig.stream[0]);
	glk_store_release(&shared, addr);
	for (unsigned i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i))
			tap_bail("no threads");
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	is_int((int64_t)glk_load_relaxed(&odd), 0, "no answer is odd");
	tap_note("%" PRIu64 " blocks were out and came back, one %" PRIu64 " times",
		glk_load_relaxed(&lent), glk_load_relaxed(&met));
	ok(glk_load_relaxed(&lent) > MANY, "many blocks were out");
	glk_ahead_stop(&rig.cache);
	is_sound(&rig, "the books agree");
	is_int((int64_t)rig.cache.arena.held, 0, "nothing is held");
	is_int((int64_t)rig_figures(&rig).live_blocks, glk_load_relaxed(&shared) ? 1 : 0,
		"nothing is live but what was never freed");
	rig_close(&rig, glk_load_relaxed(&shared) ? 1 : 0);
	return tap_done();
}
