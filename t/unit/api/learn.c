/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The order of fetches is learned from the last step, where the configuration wants it. */
#define SIZE (2 * MIB)
#include "cache/learn.h"
#include "cache/prefetch.h"
#include "seed.h"
#include "tier_parts.h"

#define LAYERS 12

static char *layer[LAYERS];
static uint64_t rolled;
static bool resumed; /* which brings back what a hint had brought before */

/* Room for some of the layers. */
static void begin(const char *learn)
{
	open_soft("soft.streams=stepped",
		(const char *const[]){learn, "pool.large_page=2MiB", "pool.budget=16MiB",
			"tier.prefetch_spare=1MiB", "tier.prefetch_window=4MiB", NULL});
	for (int i = 0; i < LAYERS; i++)
		layer[i] = give_away(i);
}

static void end(void)
{
	for (int i = 0; i < LAYERS; i++)
		glake_free(ctx, layer[i], a);
	close_soft();
}

/* It is had, used and sent away again. Whether it had come before. */
static bool use(int i, int *torn)
{
	bool came = !is_away(layer[i]);
	int err = glake_fetch(ctx, layer[i], a);

	*torn += err && !(resumed && err == -EALREADY);
	work(layer[i]);
	run();
	*torn += !has_mark(layer[i], i);
	*torn += glake_spill(ctx, layer[i], a) != 0;
	run();
	return came;
}

static int quiet(void)
{
	struct glake_returned did = {.sz = sizeof(did)};

	return glake_quiet(ctx, 0, &did);
}

/* All of them in an order. How many had come before. */
static int step(const int *order, int count, int *torn)
{
	int came = 0;

	for (int i = 0; i < count; i++)
		came += use(order[i], torn);
	*torn += quiet() != 0;
	run();
	return came;
}

static void one_way(void)
{
	int order[LAYERS], torn = 0;

	for (int i = 0; i < LAYERS; i++)
		order[i] = i;
	begin("tier.learn=yes");
	is_int(step(order, LAYERS, &torn), 0, "the first step: nothing is known");
	is_int((int64_t)(stats().learn_hits + stats().learn_misses), 0, "nor judged");
	is_int(step(order, LAYERS, &torn), LAYERS, "in the second one all come before");
	is_int((int64_t)stats().learn_hits, LAYERS, "which are hits");
	is_int((int64_t)stats().learn_misses, 0, "all");
	step(order, LAYERS, &torn);
	is_int((int64_t)stats().prefetches, 2 * LAYERS + 2,
		"two steps' came, and what the next one begins with");
	for (int i = 0; i < LAYERS; i++)
		order[i] = LAYERS - 1 - i;
	step(order, LAYERS, &torn);
	ok(stats().learn_misses > 0, "another order");
	is_int(step(order, LAYERS, &torn), LAYERS, "is learned");
	is_int(quiet(), 0, "a step without a fetch");
	is_int(step(order, LAYERS, &torn), LAYERS, "teaches nothing");
	ok(!torn, "all is whole");
	end();
}

/* As a model is trained: forward, and backward. */
static void there_and_back(void)
{
	int order[2 * LAYERS], torn = 0;

	for (int i = 0; i < LAYERS; i++)
		order[i] = order[2 * LAYERS - 1 - i] = i;
	begin("tier.learn=yes");
	step(order, 2 * LAYERS, &torn);
	step(order, 2 * LAYERS, &torn);
	is_int((int64_t)stats().learn_hits, (int64_t)(2 * LAYERS), "there and back");
	is_int((int64_t)stats().learn_misses, 0, "all are hits");
	ok(!torn, "all is whole");
	end();
}

static void off(void)
{
	int order[3] = {0, 1, 2}, torn = 0;

	begin("tier.learn=no");
	step(order, 3, &torn);
	is_int(step(order, 3, &torn), 0, "nothing comes before without the key");
	ok(!stats().prefetches && !stats().learn_hits && !stats().learn_misses,
		"nothing is counted");
	ok(!context->caches[0].learn && !torn, "or kept");
	end();
}

/* What was expected and not fetched. */
static void not_fetched(void)
{
	int order[LAYERS], torn = 0, came = 0;
	struct glake_ticket *ticket = NULL;
	struct glk_hints *hints;
	struct glk_hint *h;

	for (int i = 0; i < LAYERS; i++)
		order[i] = i;
	begin("tier.learn=yes");
	step(order, LAYERS, &torn);
	/* the window has room for two; the program's own word counts more */
	is_int(glake_prefetch(ctx, layer[5], a, 0, 0, &ticket), 0, "the program's hint");
	use(0, &torn);
	glake_free(ctx, layer[1], a);
	layer[1] = give_away(1);
	is_int(quiet(), 0, "a short step");
	hints = context->caches[0].hints;
	h = glk_hint_find(hints, (uintptr_t)layer[7]);
	ok(!h || h->state != GLK_HINT_QUEUED, "no hint of the step before waits");
	is_int((int64_t)(stats().prefetch_queued > 1), 0, "nor another one");
	ok(glk_hint_find(hints, (uintptr_t)layer[5]) != NULL, "but that of the program");
	ok(stats().prefetch_useless > 0, "which is told");
	run();
	for (int i = 0; i < LAYERS; i++)
		came += use(i, &torn);
	ok(came > 0, "some had come");
	glake_ticket_close(ticket);
	ok(!torn, "all is whole");
	end();
}

/* More than a step has. */
static void too_long(void)
{
	int torn = 0;

	open_soft("soft.streams=worker", (const char *const[]){"tier.learn=yes", NULL});
	layer[0] = give(0);
	for (int i = 0; i < GLK_LEARN_STEP + 100; i++)
		torn += glake_fetch(ctx, layer[0], a) != -EALREADY;
	is_int(quiet(), 0, "a step that is too long");
	is_int(error_class(), GLAKE_ERROR_BUSY, "the record is that of the fetch");
	for (int i = 0; i < GLK_LEARN_STEP + 100; i++)
		torn += glake_fetch(ctx, layer[0], a) != -EALREADY;
	is_int((int64_t)stats().learn_hits, GLK_LEARN_STEP, "is known by its beginning");
	is_int((int64_t)stats().learn_misses, 100, "and not beyond");
	ok(!torn, "blocks that are here");
	glake_free(ctx, layer[0], a);
	close_soft();
}

static uint64_t judged(void)
{
	return stats().learn_hits + stats().learn_misses;
}

/* Steps without an order, blocks that come and go, a suspension. */
static void random_steps(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	int torn = 0, rounds = tap_storms_take_long() ? 40 : 200;

	begin("tier.learn=yes");
	/* few rounds may have no step that could be judged by the one before */
	for (int i = 0; i < rounds || (!judged() && i < 50 * rounds); i++) {
		int at = (int)(seed_next(&rolled) % LAYERS);
		unsigned what = (unsigned)(seed_next(&rolled) % 16);

		if (!what) {
			torn += quiet() != 0;
		} else if (what == 1) {
			glake_free(ctx, layer[at], a);
			layer[at] = give_away(at);
		} else if (what == 2) {
			torn += glake_suspend(ctx, 0, &did) != 0;
			torn += glake_resume(ctx, 0, &did) != 0;
			resumed = true;
		} else {
			use(at, &torn);
		}
	}
	ok(!torn, "random steps: all is whole");
	ok(judged() > 0, "hits and misses: %llu, %llu",
		(unsigned long long)stats().learn_hits,
		(unsigned long long)stats().learn_misses);
	end();
}

int main(void)
{
	tap_plan_later();
	rolled = seed_thread(seed_start(), 0);
	one_way();
	there_and_back();
	off();
	not_fetched();
	too_long();
	random_steps();
	return tap_done();
}
