/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is told of a request that was refused, and what telling it costs. */
#include "rig.h"

#include "base/clock.h"

#include <stdlib.h>

static char text[GLK_REFUSAL_TEXT];

static const char *told(struct rig *rig, int form)
{
	size_t length = 0;

	text[0] = '\0';
	if (glk_refusal_text(&rig->cache, form, text, &length))
		return "";
	return strlen(text) == length ? text : "of another length";
}

static void refuse(
	struct rig *rig, size_t size, struct CUstream_st *stream, uint32_t flags)
{
	uint64_t addr;

	is_int(rig_try(rig, size, stream, flags, &addr), -ENOMEM, "refused");
}

static void by_a_budget(void)
{
	struct CUstream_st *a, *b;
	uint64_t budget;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=100MiB", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	is_str(told(&rig, GLAKE_REFUSAL_WHOLE), "", "of none nothing is told");
	for (int i = 0; i < 3; i++)
		rig_alloc(&rig, 20 * MIB, a);
	for (int i = 0; i < 5; i++)
		rig_alloc(&rig, 4 * MIB - 100, b);
	refuse(&rig, 40 * MIB, b, 0);
	has_str(rig_error().text, "GPU 0 has no room for",
		"the sentence of the error is as it was");
	has_str(told(&rig, GLAKE_REFUSAL_WHOLE), rig_error().text,
		"and is in the report");
	has_str(text, "GPU 0 refused 40 MiB on stream 0x", "what was asked");
	has_str(text, ", refusal 1:", "which one it is");
	has_str(text, "of a budget of 100 MiB; the driver had", "what is held");
	has_str(text, "in 8 live blocks", "the blocks");
	has_str(text, "on the last rung: pages that nobody uses were given back",
		"where it stopped");
	has_str(text, "up to 32 MiB: 60 MiB in 3\n  up to 4 MiB:",
		"sizes, those that have most first");
	has_str(text, "Live blocks by stream:\n  stream 0x", "streams");
	has_str(text, ": 60 MiB in 3\n  stream 0x", "likewise");
	has_str(told(&rig, GLAKE_REFUSAL_ADVICE),
		"pool.budget=", "a budget would have helped");
	has_str(text, "tier.place=host", "or memory of the host");
	ok(!strchr(text, '\n'), "in one line");
	budget =
		strtoull(strstr(text, "pool.budget=") + strlen("pool.budget="), NULL, 10);
	glk_store_relaxed(&rig.cache.node->budget, budget * MIB - 4 * MIB);
	refuse(&rig, 40 * MIB, b, 0);
	glk_store_relaxed(&rig.cache.node->budget, budget * MIB);
	rig_free(&rig, rig_alloc(&rig, 40 * MIB, b), b);
	ok(budget < 140, "and does: %" PRIu64 " MiB, and not much less", budget);
	refuse(&rig, 200 * MIB, a, 0);
	has_str(told(&rig, GLAKE_REFUSAL_WHOLE), "at once: it is more than",
		"too much for ever");
	refuse(&rig, 50 * MIB, a, GLAKE_ALLOC_CONTIGUOUS);
	has_str(told(&rig, GLAKE_REFUSAL_WHOLE), ", contiguous, refusal 4",
		"a contiguous one");
	ok(!strstr(told(&rig, GLAKE_REFUSAL_ADVICE), "tier.place"),
		"which no host serves");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 8);
}

static void by_the_host(void)
{
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){
			"pool.budget=20MiB", "tier.place=host", "tier.host=30MiB", NULL});
	rig_alloc(&rig, 20 * MIB, NULL);
	rig_alloc(&rig, 20 * MIB, NULL);
	refuse(&rig, 15 * MIB, NULL, 0);
	has_str(told(&rig, GLAKE_REFUSAL_WHOLE), "on the last rung, memory of the host",
		"the host is full");
	has_str(text, "of which 20 MiB lie on the host", "what lies there");
	has_str(told(&rig, GLAKE_REFUSAL_ADVICE),
		"tier.host=", "more of it would have helped");
	rig_close(&rig, 2);
}

static void by_a_pool(void)
{
	struct CUstream_st *a;
	uint64_t addr;
	uint32_t graph;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=60MiB", NULL});
	a = rig_stream(&rig);
	rig_begin(&rig, 1, a);
	rig_capture(&rig, a);
	addr = rig_alloc(&rig, 40 * MIB, a);
	rig_free(&rig, addr, a);
	graph = rig_capture_end(&rig, a);
	rig_end_pool(&rig, 1);
	refuse(&rig, 30 * MIB, NULL, 0);
	has_str(told(&rig, GLAKE_REFUSAL_WHOLE), "40 MiB are of 1 pools of graphs",
		"a pool has the memory");
	has_str(text,
		"40 MiB are idle, in 1 pieces, the largest 40 MiB: not enough for it",
		"and what lies idle");
	has_str(told(&rig, GLAKE_REFUSAL_ADVICE),
		"glake_pool_release() of graphs that are done, 40 MiB",
		"its release would have helped");
	rig_drop(&rig, graph);
	rig_release(&rig, 1);
	rig_close(&rig, 0);
}

static void by_a_limit(void)
{
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.pages=8", NULL});
	for (uint64_t addr; !rig_try(&rig, 7 * MIB, NULL, 0, &addr);)
		;
	has_str(told(&rig, GLAKE_REFUSAL_WHOLE), "a limit was reached", "a limit");
	has_str(text, "pool.pages", "which the sentence names");
	glk_cache_fini(&rig.cache, &(size_t){0});
	glk_pool_fini(&rig.pool);
	glk_drv_close(rig.drv);
}

/* A program that finds out what there is by asking for too much. */
static void of_managed(void)
{
	static const char *const settings[] = {"soft.memory=64MiB", "tier.managed=96MiB",
		"tier.managed_chunk=16MiB", NULL};
	struct rig rig;
	uint64_t addr = 0;

	rig_open(&rig, settings);
	is_int(rig_try(&rig, 40 * MIB, NULL, GLAKE_ALLOC_MANAGED, &addr), 0,
		"a managed block");
	refuse(&rig, 40 * MIB, NULL, GLAKE_ALLOC_MANAGED);
	has_str(told(&rig, GLAKE_REFUSAL_ADVICE), "GLAKE_ALLOC_MANAGED_OVER", "insists");
	has_str(told(&rig, GLAKE_REFUSAL_ADVICE), "glake_trim()", "or gives chunks back");
	ok(!strstr(told(&rig, GLAKE_REFUSAL_ADVICE), "tier.place"),
		"the host is no help");
	has_str(told(&rig, GLAKE_REFUSAL_WHOLE), "40 MiB of managed memory are held",
		"what there is");
	refuse(&rig, 80 * MIB, NULL, GLAKE_ALLOC_MANAGED | GLAKE_ALLOC_MANAGED_OVER);
	has_str(told(&rig, GLAKE_REFUSAL_ADVICE), "tier.managed", "names the key");
	ok(!strstr(told(&rig, GLAKE_REFUSAL_ADVICE), "MANAGED_OVER"),
		"who insists did so");
	is_int(rig_free(&rig, addr, NULL), 0, "freed");
	rig_close(&rig, 0);
}

static void in_a_loop(void)
{
	int64_t begun, took;
	uint64_t addr, most;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=20MiB", NULL});
	rig_alloc(&rig, 10 * MIB, NULL);
	begun = glk_clock_ns();
	for (int i = 0; i < 2000; i++)
		rig_try(&rig, 15 * MIB + (size_t)i, NULL, 0, &addr);
	took = glk_clock_ns() - begun;
	most = 1 + (uint64_t)(took / GLK_REFUSAL_EVERY_NS);
	is_int((int64_t)rig.cache.refusal.count, 2000, "each refusal is counted");
	ok(rig.cache.refusal.walk.count >= 1 && rig.cache.refusal.walk.count <= most,
		"%" PRIu64 " walks, of %" PRIu64 " at most", rig.cache.refusal.walk.count,
		most);
	is_int((int64_t)rig.cache.refusal.asked, 15 * MIB + 1999,
		"the last one is told of");
	rig_close(&rig, 1);
}

/* More blocks than a walk goes to. */
static void of_many(void)
{
	uint64_t addr;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"map.extents=500000", NULL});
	for (int i = 0; i < GLK_REFUSAL_RUNS + 1000; i++)
		if (rig_try(&rig, 512, NULL, 0, &addr))
			tap_bail("no block");
	refuse(&rig, 2048 * MIB, NULL, 0);
	is_int((int64_t)rig.cache.refusal.walk.runs, GLK_REFUSAL_RUNS,
		"so many runs are walked");
	has_str(told(&rig, GLAKE_REFUSAL_WHOLE),
		"of the first 100000 runs of addresses; there are more", "which is told");
	rig_close(&rig, GLK_REFUSAL_RUNS + 1000);
}

int main(void)
{
	tap_plan_later();
	by_a_budget();
	by_the_host();
	by_a_pool();
	by_a_limit();
	of_managed();
	in_a_loop();
	of_many();
	return tap_done();
}
