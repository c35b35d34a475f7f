/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is told of a request that was refused, and what telling it costs. */
#include "rig.h"

#include "base/clock.h"

#include <stdlib.h>
#include <unistd.h>

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

/* What is said to the log, joined again. */
static void join(int level, const char *line, void *arg)
{
	char *joined = arg;
	size_t used = strlen(joined);

	if (level == GLAKE_LOG_INFO)
		snprintf(joined + used, GLK_REFUSAL_TEXT - used, "%s\n", line);
}

/* What would help is what there is. */
static void without_a_budget(void)
{
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.memory=128MiB", NULL});
	rig_alloc(&rig, 96 * MIB, NULL);
	refuse(&rig, 64 * MIB, NULL, 0);
	has_str(rig_error().text, "held with no budget set", "no budget");
	has_str(rig_error().text,
		"; fewer live blocks here, or less in other programs, would help",
		"so that a larger one is not told of");
	rig_close(&rig, 1);
}

static int take_all(struct glk_quota *quota, uint64_t bytes, bool may_call)
{
	(void)quota;
	(void)bytes;
	(void)may_call;
	return 0;
}

static void put_all(struct glk_quota *quota, uint64_t bytes)
{
	(void)quota;
	(void)bytes;
}

static uint64_t room;

static uint64_t has_room(const struct glk_quota *quota)
{
	(void)quota;
	return room;
}

static void tell_it(struct glk_quota *quota, char *why, size_t size)
{
	(void)quota;
	snprintf(why, size, "it is the quota");
}

/* A quota is the reason where it has no room, and not where the GPU has none. */
static void by_a_quota(void)
{
	struct glk_quota quota = {take_all, put_all, has_room, tell_it};
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.memory=128MiB", NULL});
	rig_alloc(&rig, 96 * MIB, NULL);
	rig.cache.node->quota = &quota;
	room = 100 * MIB;
	refuse(&rig, 64 * MIB, NULL, 0);
	has_str(rig_error().text, "it is the quota", "a quota is told of");
	room = 1024 * MIB;
	refuse(&rig, 64 * MIB, NULL, 0);
	has_str(rig_error().text, "held with no budget set", "one with room is not");
	rig_close(&rig, 1);
}

static void in_the_log(void)
{
	static char joined[GLK_REFUSAL_TEXT];
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=100MiB", NULL});
	rig_alloc(&rig, 20 * MIB, NULL);
	glake_log_hook(join, joined, GLAKE_LOG_INFO);
	refuse(&rig, 90 * MIB, NULL, 0);
	glake_log_hook(tap_log, NULL, GLAKE_LOG_WARNING);
	has_str(told(&rig, GLAKE_REFUSAL_WHOLE), "refused 90 MiB", "a report");
	ok(strchr(joined, '\n') && strstr(joined, strchr(text, '\n')),
		"is in the log, line by line");
	tap_note("%s", joined);
	rig_close(&rig, 1);
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

/* Of sixty streams ten have more than the others, in turn: each is told with what it has. */
static void by_streams(void)
{
	enum { MANY = 60, TOLD = GLK_REFUSAL_OWNERS };
	uint64_t block[MANY], more[TOLD], wrong = 0;
	struct rig rig;

	rig_open(
		&rig, (const char *const[]){"pool.budget=300MiB", "policy.bins=0", NULL});
	for (int i = 0; i < MANY; i++)
		block[i] = rig_alloc(&rig, 2 * MIB, rig_stream(&rig));
	for (int from = 0; from < MANY; from += TOLD) {
		const struct glk_owner *told = rig.cache.refusal.walk.streams;

		for (int i = 0; i < TOLD; i++)
			more[i] = rig_alloc(
				&rig, (size_t)(i + 1) * MIB, rig.stream[from + i]);
		refuse(&rig, 200 * MIB, NULL, 0);
		for (int i = 0; i < TOLD; i++) {
			const struct glk_owner *o = &told[TOLD - 1 - i];

			wrong += o->name != (uintptr_t)rig.stream[from + i] ||
				o->count != 2 || o->bytes != (size_t)(i + 3) * MIB;
			rig_free(&rig, more[i], rig.stream[from + i]);
		}
		/* until the next one walks, too */
		usleep(GLK_REFUSAL_EVERY_NS / 1000);
	}
	is_int((int64_t)wrong, 0, "those that have most are told, whoever they are");
	for (int i = 0; i < MANY; i++)
		rig_free(&rig, block[i], rig.stream[i]);
	rig_close(&rig, 0);
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

static const char *printed(const struct glk_refusal *r, int form)
{
	size_t length = glk_refusal_print(r, 3, form, 5000000000, text, sizeof(text));

	return strlen(text) == length ? text : "of another length";
}

/* A GPU without a budget whose driver tells nothing, of which all is in blocks that are in use. */
static struct glk_refusal bare(void)
{
	return (struct glk_refusal){.count = 7,
		.at = 4000000000,
		.asked = 8 * MIB,
		.stream = 0xab,
		.lacked = 8 * MIB,
		.why = {.error_class = GLAKE_ERROR_NOMEM_DEVICE, .text = "there is none"},
		.stats = {.budget = UINT64_MAX,
			.reserved = 6 * MIB,
			.live = 5 * MIB,
			.live_blocks = 2,
			.largest_hole = 2 * MIB},
		.host_budget = UINT64_MAX};
}

/* Each line where there is something to be told, and no other. */
static void in_lines(void)
{
	struct glk_refusal r = bare();

	is_str(printed(&r, GLAKE_REFUSAL_WHOLE),
		"GPU 3 refused 8 MiB on stream 0xab, refusal 7:\n"
		"  there is none\n"
		"What there is:\n"
		"  6 MiB are held\n"
		"  5 MiB in 2 live blocks\n"
		"  the largest hole between blocks has 2 MiB of addresses\n"
		"Where it stopped:\n"
		"  on the last rung: pages that nobody uses were given back, bins "
		"emptied, streams waited for; the host was not asked\n"
		"What would have helped:\n"
		"  a smaller request\n",
		"a GPU of which nothing else is known");
	r.graph = true;
	r.flags = GLAKE_ALLOC_CONTIGUOUS;
	r.stats = (struct glake_stats){.budget = 100 * MIB,
		.reserved = 90 * MIB,
		.live = 70 * MIB,
		.live_blocks = 9,
		.away = MIB,
		.placed = 2 * MIB,
		.pools = 4,
		.pool_held = 3 * MIB,
		.host_held = 5 * MIB,
		.managed_held = 32 * MIB,
		.managed = 30 * MIB,
		.free_pages = 8 * MIB};
	r.walk.at = 3000000000;
	r.walk.runs = GLK_REFUSAL_RUNS;
	r.walk.device_total = 1024 * MIB;
	r.walk.device_free = 10 * MIB;
	r.walk.late = 0xcd;
	r.walk.pieces[GLAKE_RUN_REST] = (struct glk_pieces){11, 9 * MIB, 6 * MIB};
	r.walk.pieces[GLAKE_RUN_QUICK] = (struct glk_pieces){12, 7 * MIB, 5 * MIB};
	r.walk.pieces[GLAKE_RUN_IDLE] = (struct glk_pieces){13, 8 * MIB, 4 * MIB};
	r.walk.pieces[GLAKE_RUN_LIMBO] = (struct glk_pieces){14, 6 * MIB, 3 * MIB};
	r.walk.sizes[0] = (struct glk_owner){16 * MIB, 4, 60 * MIB};
	r.walk.sizes[1] = (struct glk_owner){4 * MIB, 5, 10 * MIB};
	r.walk.streams[0] = (struct glk_owner){0xab, 9, 70 * MIB};
	r.large = true;
	is_str(printed(&r, GLAKE_REFUSAL_WHOLE),
		"GPU 3 refused 8 MiB on stream 0xab, contiguous, for a graph, refusal 7:\n"
		"  there is none\n"
		"What there is:\n"
		"  90 MiB are held, of a budget of 100 MiB; the driver had 10 MiB free of "
		"1 GiB\n"
		"  70 MiB in 9 live blocks, of which 1 MiB are away, of which 2 MiB lie on "
		"the host\n"
		"  9 MiB are the rest of pages that live blocks use, in 11 pieces, the "
		"largest 6 MiB: too small, or no room for new pages beside them\n"
		"  7 MiB are freed blocks in the bins of their streams, in 12 pieces, the "
		"largest 5 MiB\n"
		"  8 MiB are idle, in 13 pieces, the largest 4 MiB: not enough for it\n"
		"  6 MiB wait for work on streams, in 14 pieces, the largest 3 MiB\n"
		"    one of them is 0xcd\n"
		"  3 MiB are of 4 pools of graphs, which keep them until they are "
		"released\n"
		"  the largest hole between blocks has 0 bytes of addresses\n"
		"  5 MiB of the host are held\n"
		"  32 MiB of managed memory are held, 30 MiB in live blocks\n"
		"Where it stopped:\n"
		"  on the last rung of a pool of graphs, which waits for nobody\n"
		"What would have helped:\n"
		"  a block that is not contiguous; glake_pool_release() of graphs that are "
		"done, 3 MiB; a smaller pool.large_page: 9 MiB are the rest of pages; fewer "
		"live blocks, or glake_spill() or GLAKE_ADVICE_COLD for some that are not "
		"used for a while\n"
		"Live blocks by size, those first that have most:\n"
		"  up to 16 MiB: 60 MiB in 4\n"
		"  up to 4 MiB: 10 MiB in 5\n"
		"Live blocks by stream:\n"
		"  stream 0xab: 70 MiB in 9\n"
		"  pieces and blocks are of the first 100000 runs of addresses; there are "
		"more\n"
		"  pieces and blocks as of 1000 ms before that\n"
		"This was 1000 ms ago.\n",
		"one of which all is known");
	is_int((int64_t)glk_refusal_print(&r, 3, GLAKE_REFUSAL_WHOLE, 0, text, 100), 99,
		"a text ends where there is no more room");
	is_int((int64_t)strlen(text), 99, "with its zero");
}

static void advised(const struct glk_refusal *r, const char *want, const char *what)
{
	is_str(printed(r, GLAKE_REFUSAL_ADVICE), want, what);
}

static void by_what_helps(void)
{
	struct glk_refusal r = bare();

	advised(&r, "a smaller request", "where nothing else would have helped");
	r.stats.budget = 13 * MIB;
	advised(&r, "pool.budget=14MiB, or glake_budget_set()",
		"a budget that is too small");
	r.stats.budget = 14 * MIB;
	advised(&r, "a smaller request", "not one that is as large as that");
	r.stats.budget = 13 * MIB;
	r.walk.device_total = 1024 * MIB;
	r.walk.device_free = 8 * MIB - 1;
	advised(&r, "a smaller request", "nor where the GPU has no more");
	r.walk.device_free++;
	r.may_place = true;
	advised(&r,
		"pool.budget=14MiB, or glake_budget_set(); tier.place=host, for memory of "
		"the host where the GPU has none",
		"both of two");
	r.graph = true;
	advised(&r, "pool.budget=14MiB, or glake_budget_set()",
		"the host is none for graphs");
	r = bare();
	r.places = true;
	advised(&r, "a smaller request", "the host has no more");
	r.host_budget = 8 * MIB - 1;
	advised(&r, "tier.host=8MiB", "or may not be used for more");
	r.host_budget++;
	advised(&r, "a smaller request", "unless it may be used for as much");
	r = bare();
	r.stats.live = 8 * MIB + 1000;
	r.stats.away = 1000;
	advised(&r,
		"fewer live blocks, or glake_spill() or GLAKE_ADVICE_COLD for some that are "
		"not used for a while",
		"as many bytes in live blocks");
	r.stats.placed = 1;
	advised(&r, "a smaller request", "those that lie elsewhere are no use");
	r.walk.pieces[GLAKE_RUN_REST].bytes = 8 * MIB - 1;
	advised(&r, "a smaller request",
		"nor is less than it asks for in the rest of pages");
	r.walk.pieces[GLAKE_RUN_REST].bytes++;
	advised(&r,
		"blocks that stay for long asked for side by side, or with a tag of their own: "
		"8 MiB are the rest of pages",
		"as much as it asks for is, where pages are as small as they may be");
	r.large = true;
	advised(&r, "a smaller pool.large_page: 8 MiB are the rest of pages",
		"and where they are not");
	r.walk.pieces[GLAKE_RUN_REST].bytes = 0;
	r.flags = GLAKE_ALLOC_CONTIGUOUS;
	r.stats.free_pages = 8 * MIB - 1;
	advised(&r, "a smaller request", "or less in pages that are free");
	r.flags = GLAKE_ALLOC_MANAGED;
	advised(&r, "GLAKE_ALLOC_MANAGED_OVER, for more than is free on the GPU",
		"managed memory may be more than there is");
	r.flags |= GLAKE_ALLOC_MANAGED_OVER;
	r.stats.budget = 13 * MIB;
	advised(&r, "a smaller request", "where it is already a budget is of no use");
	r.stats.managed = 1;
	r.stats.managed_held = 16 * MIB;
	r.why.error_class = GLAKE_ERROR_LIMIT;
	advised(&r,
		"a larger tier.managed, or the limit that the sentence above names; fewer "
		"live blocks of managed memory, then glake_trim(): chunks with any are kept "
		"whole, 16 MiB in all",
		"but where a limit was reached, or blocks are live");
	r.flags = 0;
	advised(&r, "the limit that the sentence above names", "a limit");
	r.why.error_class = GLAKE_ERROR_ADDRESS;
	advised(&r, "a larger map.span", "addresses");
}

static void stopped(const struct glk_refusal *r, const char *want, const char *what)
{
	has_str(printed(r, GLAKE_REFUSAL_WHOLE), want, what);
}

static void by_where_it_stopped(void)
{
	struct glk_refusal r = bare();

	r.stats.budget = r.walk.device_total = r.asked;
	stopped(&r, "on the last rung: pages", "as much as the GPU may hold");
	r.asked++;
	stopped(&r, "at once: it is more than", "a byte more");
	r.stats.budget++;
	stopped(&r, "at once: it is more than", "or more than it has");
	r.walk.device_total++;
	stopped(&r, "on the last rung: pages", "but not more than that");
	r.places = true;
	stopped(&r, "on the last rung, memory of the host", "the host was asked");
	r.flags = GLAKE_ALLOC_MANAGED;
	stopped(&r, "where a chunk of managed memory is had", "managed memory");
	r.why.error_class = GLAKE_ERROR_LIMIT;
	stopped(&r, "before memory was looked for", "a limit");
	r.why.error_class = GLAKE_ERROR_ADDRESS;
	stopped(&r, "before memory was looked for", "addresses");
}

int main(void)
{
	tap_plan_later();
	in_lines();
	by_what_helps();
	by_where_it_stopped();
	without_a_budget();
	by_a_quota();
	in_the_log();
	by_a_budget();
	by_streams();
	by_the_host();
	by_a_pool();
	by_a_limit();
	of_managed();
	in_a_loop();
	of_many();
	return tap_done();
}
