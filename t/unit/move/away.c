/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks go away and come back with what was in them, whatever happens to their memory meanwhile. */
#include "move/away.h"

#include "unit/cache/plan_parts.h"

#include <time.h>

static struct rig rig;
static struct CUstream_st *a, *b;

static void set_up(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
}

static int spill(const struct held *h, struct CUstream_st *stream)
{
	return glk_cache_spill(&rig.cache, h->addr, stream);
}

static int fetch(const struct held *h, struct CUstream_st *stream)
{
	return glk_cache_fetch(&rig.cache, h->addr, stream);
}

static bool is_away(const struct held *h)
{
	struct glake_block block = {.sz = sizeof(block)};

	return !glk_cache_query(&rig.cache, h->addr + h->size / 2, &block) &&
		block.base == (void *)h->addr && block.away == h->size && !block.pages;
}

/* Two blocks where there is memory for one. */
static void takes_turns(void)
{
	struct glake_stats s;
	struct held one, two;
	int torn = 0;

	set_up(NULL);
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
	is_int(plan_take(&rig, &one, 40 * MIB, a), 0, "a block");
	is_int(spill(&one, a), 0, "goes away");
	ok(is_away(&one), "which is told");
	is_sound(&rig, "the books agree");
	is_int(plan_take(&rig, &two, 41 * MIB, a), 0, "another one has its memory");
	ok(plan_overlap(&one, &two) == false, "and not its addresses");
	s = rig_figures(&rig);
	is_int((int64_t)s.away, 40 << 20, "bytes that are away");
	is_int((int64_t)s.away_blocks, 1, "of a block");
	ok(s.reserved <= 50 * MIB && s.live == 81 * MIB, "more is live than is held");
	for (int i = 0; i < 4; i++) {
		struct held *out = i % 2 ? &one : &two, *in = i % 2 ? &two : &one;

		torn += spill(out, a) != 0 || fetch(in, a) != 0 || !has_marks(in);
		in->mark += 1 << 10;
		write_marks(in);
	}
	ok(!torn, "they take turns, and keep what was written");
	is_sound(&rig, "the books agree");
	s = rig_figures(&rig);
	is_int((int64_t)s.spills, 5, "they were spilled");
	is_int((int64_t)s.fetches, 4, "and fetched");
	ok(s.host_held && s.host_held <= 128 * MIB, "by way of the host");
	ok(plan_drop(&rig, &two, a), "the one here is freed");
	is_int(rig_free(&rig, one.addr, a), 0, "and the one away");
	is_int(rig_free(&rig, one.addr, a), -EINVAL, "which is none any more");
	s = rig_figures(&rig);
	ok(!s.away && !s.away_blocks && !s.live, "nothing is away or live");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* What is copied is what was written by all work queued before, and others have the memory behind that.
 * The device judges who touches it when. */
static void goes_in_order(void)
{
	struct held one, two;

	set_up((const char *const[]){"soft.streams=stepped", "policy.bins=0", NULL});
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
	plan_take(&rig, &one, 40 * MIB, a);
	glk_soft_run_all(rig.drv);
	rig_work(&rig, one.addr, one.size, b);
	glk_cache_use(&rig.cache, one.addr, b);
	is_int(spill(&one, a), 0, "a block goes away with work on two streams queued");
	is_int(rig_try(&rig, 45 * MIB, b, 0, &two.addr), 0,
		"another stream has its memory");
	two.size = 45 * MIB;
	rig_work(&rig, two.addr, two.size, b);
	is_int(rig_free(&rig, two.addr, b), 0, "gives it back");
	is_int(fetch(&one, a), 0, "and the block is had again, before anything has run");
	rig_work(&rig, one.addr, one.size, a);
	is_sound(&rig, "the books agree");
	glk_soft_run_all(rig.drv);
	ok(has_marks(&one), "what was written is there");
	is_int(fetch(&one, a), -EALREADY, "it is here");
	is_int(spill(&one, b), 0, "it goes again");
	is_int(spill(&one, b), -EALREADY, "once");
	is_int(rig_free(&rig, one.addr, b), 0, "and is freed behind that");
	is_sound(&rig, "the books agree");
	glk_soft_run_all(rig.drv);
	rig_close(&rig, 0);
}

/* A block that was fetched on its own stream goes to its bin as before. */
static void keeps_its_bin(void)
{
	struct held one, same;

	set_up(NULL);
	for (int other = 0; other < 2; other++) {
		uint64_t hits;

		plan_take(&rig, &one, 300 << 10, a);
		spill(&one, a);
		fetch(&one, other ? b : a);
		same = one;
		hits = rig_figures(&rig).hits;
		plan_drop(&rig, &one, a);
		plan_take(&rig, &one, same.size, a);
		if (other)
			ok(one.addr && rig_figures(&rig).hits == hits,
				"one fetched on another stream merges when it is freed");
		else
			ok(one.addr, "one fetched on its own may come from its bin");
		plan_drop(&rig, &one, a);
	}
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* One on a page of its own comes back to one. */
static void contiguous(void)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct held one = {.size = 10 * MIB, .mark = 5}, two;

	set_up(NULL);
	one.addr = rig_single(&rig, one.size, a);
	write_marks(&one);
	is_int(spill(&one, a), 0, "a contiguous block goes");
	is_int(plan_take(&rig, &two, 30 * MIB, a), 0, "others have memory");
	is_int(fetch(&one, a), 0, "it comes back");
	ok(!glk_cache_query(&rig.cache, one.addr, &block) && block.pages == 1 &&
			(block.flags & GLAKE_ALLOC_CONTIGUOUS),
		"to one page");
	is_sound(&rig, "the books agree");
	ok(plan_drop(&rig, &two, a) && plan_drop(&rig, &one, a), "with what was written");
	rig_close(&rig, 0);
}

static void refuses(void)
{
	struct held small, one;
	struct glk_pin pin;
	uint64_t inside;
	uint32_t graph;

	set_up(NULL);
	plan_take(&rig, &small, 600, a);
	plan_take(&rig, &one, 9 * MIB, a);
	is_int(spill(&small, a), -EINVAL, "a small block does not move");
	is_int(glk_cache_spill(&rig.cache, one.addr + 512, a), -EINVAL, "nor its inside");
	is_int(glk_cache_spill(&rig.cache, 4096, a), -EINVAL, "nor what is nobody's");
	is_int(glk_cache_pin(&rig.cache, one.addr, false, &pin), 0, "one that is out");
	is_int(spill(&one, a), -EBUSY, "stays");
	is_int(glk_cache_unpin(&rig.cache, one.addr), 0, "until it is back");
	is_int(spill(&one, a), 0, "then it goes");
	is_int(glk_cache_pin(&rig.cache, one.addr, false, &pin), -EBUSY,
		"and has no pages for others");
	is_int(glk_cache_use(&rig.cache, one.addr, b), 0, "a stream may be named");
	ok(is_away(&one), "it is away all the same");
	rig_capture(&rig, b);
	is_int(fetch(&one, b), -EBUSY, "it does not come on a stream that captures");
	graph = rig_capture_end(&rig, b);
	ok(graph, "which goes on");
	rig_drop(&rig, graph);
	is_int(fetch(&one, b), 0, "after that it does");
	is_int(rig_begin(&rig, 1, a), 0, "a pool of graphs");
	rig_capture(&rig, a);
	inside = rig_alloc(&rig, 9 * MIB, a);
	graph = rig_capture_end(&rig, a);
	rig_end_pool(&rig, 1);
	is_int(glk_cache_spill(&rig.cache, inside, a), -EBUSY, "keeps its blocks");
	rig_free(&rig, inside, a);
	rig_drop(&rig, graph);
	rig_release(&rig, 1);
	ok(plan_drop(&rig, &one, a) && plan_drop(&rig, &small, a), "nothing was lost");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Each call of the driver fails once. */
static void every_call_fails(void)
{
	static const char *const calls[] = {"copy", "host_lock", "event_new",
		"event_record", "stream_wait", "stream_new", "create", "map",
		"set_access", "device_info"};

	if (tap_one_thread_takes_long())
		return;
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		int failed = 0, torn = 0;
		bool struck = true;

		for (int nth = 1; nth < (tap_on_valgrind() ? 3 : 7) && struck; nth++) {
			struct held one, two;
			char rule[64];

			set_up((const char *const[]){
				"policy.bins=0", "pool.large_page=4MiB", NULL});
			glk_store_relaxed(&rig.cache.node->budget, 17 * MIB);
			plan_take(&rig, &one, 15 * MIB, a);
			snprintf(rule, sizeof(rule), "%s:nth=%d:err=EIO", calls[i], nth);
			glk_fault_set(rig.drv, rule);
			if (spill(&one, b)) {
				failed++;
				torn += is_away(&one) || !has_marks(&one) ||
					!rig_is_sound(&rig);
				torn += spill(&one, b) != 0;
			}
			torn += plan_take(&rig, &two, 10 * MIB, b) &&
				plan_take(&rig, &two, 10 * MIB, b);
			torn += !plan_drop(&rig, &two, b);
			if (fetch(&one, b)) {
				failed++;
				torn += !is_away(&one) || !rig_is_sound(&rig);
				torn += fetch(&one, b) != 0;
			}
			struck = rig_struck(&rig);
			glk_fault_set(rig.drv, "off");
			torn += !rig_is_sound(&rig) || !plan_drop(&rig, &one, b);
			rig_close(&rig, 0);
			tap_expect_log(tap.logs - tap.expected);
		}
		ok(!torn, "%s fails, %d times with an answer", calls[i], failed);
	}
}

static void suspends(void)
{
	struct glake_suspended did;
	struct held list[40];
	struct glk_pin pin;
	uint64_t addr = 0;
	int torn = 0;

	set_up(NULL);
	is_int(glk_cache_resume(&rig.cache, false, &did), -EINVAL,
		"nothing is suspended");
	for (size_t i = 0; i < 40; i++)
		torn += plan_take(&rig, &list[i],
				i % 4 ? (i * 200 + 300) << 10 : 600 * (i + 1),
				i % 3 ? a : b) != 0;
	torn += !plan_drop(&rig, &list[5], a) || !plan_drop(&rig, &list[6], b);
	ok(!torn, "blocks of all sizes");
	glk_cache_pin(&rig.cache, list[7].addr, false, &pin);
	is_int(spill(&list[9], a), 0, "one is away already");
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "the GPU is suspended");
	is_int((int64_t)did.stayed_blocks, 1, "what is out stays");
	is_int((int64_t)did.moved_blocks, 40 - 2 - 10 - 2,
		"all others but the small ones go");
	ok(rig_figures(&rig).reserved < 24 * MIB, "nearly all memory is given back");
	is_sound(&rig, "the books agree");
	is_int(rig_try(&rig, 600, a, 0, &addr), -EAGAIN, "no request is served");
	is_int(rig_try(&rig, 30 * MIB, b, 0, &addr), -EAGAIN, "of any size");
	is_int(rig_begin(&rig, 1, a), -EAGAIN, "nor a pool of graphs");
	is_int(fetch(&list[9], a), -EAGAIN, "no block is fetched");
	is_int(rig_free(&rig, list[10].addr, a), 0, "blocks may be freed");
	is_int(rig_free(&rig, list[0].addr, b), 0, "of any kind");
	list[10].addr = list[0].addr = 0;
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "again");
	is_int((int64_t)did.moved_blocks, 0, "nothing is left to do");
	glk_store_relaxed(&rig.cache.node->budget, 40 * MIB);
	is_int(glk_cache_resume(&rig.cache, false, &did), -ENOMEM,
		"without room they do not come back");
	ok(did.moved_blocks > 0, "but some");
	is_int(rig_try(&rig, 600, a, 0, &addr), -EAGAIN, "the GPU is suspended still");
	glk_store_relaxed(&rig.cache.node->budget, UINT64_MAX);
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "with room they do");
	ok(is_away(&list[9]), "but the one that was away before");
	is_int(fetch(&list[9], a), 0, "which is fetched");
	is_sound(&rig, "the books agree");
	glk_cache_unpin(&rig.cache, list[7].addr);
	for (int i = 0; i < 40; i++)
		torn += !plan_drop(&rig, &list[i], i % 3 ? a : b);
	ok(!torn, "all have what was written");
	addr = rig_alloc(&rig, 600, a);
	ok(addr && !rig_free(&rig, addr, a) && rig_alloc(&rig, 600, a) == addr,
		"bins serve again");
	rig_free(&rig, addr, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A stream that is named while a block is away counts when it is freed. */
static void named_while_away(void)
{
	struct held one, two = {.size = 200 << 10};

	set_up((const char *const[]){"soft.streams=stepped", "policy.bins=1MiB", NULL});
	plan_take(&rig, &one, 260 << 10, a);
	is_int(spill(&one, a), 0, "a block goes");
	is_int(glk_cache_use(&rig.cache, one.addr, b), 0, "a stream is named");
	is_int(fetch(&one, a), 0, "it comes back on its own");
	glk_soft_run_all(rig.drv);
	rig_work(&rig, one.addr, one.size, b);
	is_int(rig_free(&rig, one.addr, a), 0, "and is freed there");
	for (int i = 0; i < 4; i++) {
		two.addr = rig_alloc(&rig, 260 << 10, a);
		rig_work(&rig, two.addr, 260 << 10, a);
		rig_free(&rig, two.addr, a);
	}
	glk_soft_run_all(rig.drv);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A resumption that fails half way: what came back is freed, or goes again, behind its copy. */
static void fails_half_way(void)
{
	struct glake_suspended did;
	struct held list[6];
	int torn = 0;

	set_up((const char *const[]){"soft.streams=stepped", "policy.bins=0", NULL});
	for (int i = 0; i < 6; i++)
		torn += plan_take(&rig, &list[i], 10 * MIB, a) != 0;
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "suspended");
	glk_store_relaxed(&rig.cache.node->budget, 34 * MIB);
	is_int(glk_cache_resume(&rig.cache, false, &did), -ENOMEM,
		"too little to resume");
	is_int((int64_t)did.moved_blocks, 3, "but for some");
	torn += rig_free(&rig, list[0].addr, a) != 0;
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "suspended again");
	is_int((int64_t)did.moved_blocks, 2, "with what was back");
	glk_store_relaxed(&rig.cache.node->budget, UINT64_MAX);
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "and resumed");
	is_int((int64_t)did.moved_blocks, 5, "with all there is");
	glk_soft_run_all(rig.drv);
	for (int i = 1; i < 6; i++)
		torn += !plan_drop(&rig, &list[i], a);
	is_int(torn, 0, "all have what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* One that is held for a moment by somebody else is waited for. */
static void *let_go_later(void *arg)
{
	struct glk_extent *e = arg;
	struct timespec some = {.tv_nsec = 30000000};

	nanosleep(&some, NULL);
	glk_word_let_go(&e->word);
	return NULL;
}

static void waits_for_holders(void)
{
	struct glake_suspended did;
	struct glk_extent *e;
	pthread_t thread;
	struct held one;

	set_up(NULL);
	plan_take(&rig, &one, 9 * MIB, a);
	for (int turn = 0; turn < 3; turn++) {
		e = glk_lookup_hold(glk_cache_range(&rig.cache, one.addr), one.addr);
		if (!e)
			tap_bail("it cannot be held");
		pthread_create(&thread, NULL, let_go_later, e);
		if (!turn)
			is_int(spill(&one, a) || fetch(&one, a), 0,
				"a block that is held");
		else if (turn == 1)
			is_int(glk_cache_suspend(&rig.cache, false, &did), 0,
				"suspended");
		else
			is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
		if (turn)
			is_int((int64_t)did.moved_blocks, 1, "with that block");
		pthread_join(thread, NULL);
	}
	ok(plan_drop(&rig, &one, a), "it has what was written");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	takes_turns();
	goes_in_order();
	keeps_its_bin();
	contiguous();
	refuses();
	every_call_fails();
	suspends();
	named_while_away();
	fails_half_way();
	waits_for_holders();
	return tap_done();
}
