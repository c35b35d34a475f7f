/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that lie in memory of the host, since the GPU had no room for them. */
#include "plan_parts.h"

static struct rig rig;
static struct CUstream_st *a, *b;

/* A GPU with a budget, and a host with another. */
static void set_up(size_t budget, const char *setting)
{
	const char *settings[] = {"tier.place=host", "tier.host=64MiB", setting, NULL};

	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, budget);
}

static bool is_placed(uint64_t addr, size_t size)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glk_cache_query(&rig.cache, addr + size / 2, &block))
		return false;
	return block.base == (void *)addr && block.placed == size && !block.away &&
		block.device == 0 && block.pages;
}

static bool is_here(uint64_t addr)
{
	struct glake_block block = {.sz = sizeof(block)};

	return !glk_cache_query(&rig.cache, addr, &block) && !block.placed;
}

static void is_refused(uint64_t size, int class, const char *text, const char *what)
{
	uint64_t addr = 77;

	is_int(rig_try(&rig, size, a, 0, &addr), -ENOMEM, what);
	is_int(rig_error().error_class, class, "class of the record");
	has_str(rig_error().text, text, "which says why");
	is_int((int64_t)addr, 77, "and nothing is given");
}

static void not_unless_asked(void)
{
	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
	is_refused(60 * MIB, GLAKE_ERROR_NOMEM_DEVICE, "GPU 0",
		"by default a request beyond the budget is refused");
	is_int((int64_t)rig_figures(&rig).placed, 0, "nothing lies elsewhere");
	rig_close(&rig, 0);
}

static int take_run(const struct glake_run *run, void *arg)
{
	*(struct glake_run *)arg = *run;
	return 1;
}

static void beyond_the_budget(void)
{
	struct held one, two, three, small;
	struct glake_run rest = {0};
	struct glake_stats s;

	set_up(50 * MIB, NULL);
	is_int(plan_take(&rig, &one, 40 * MIB, a), 0, "a block");
	ok(is_here(one.addr), "of the GPU");
	is_int(plan_take(&rig, &two, 30 * MIB, a), 0, "one that the GPU has no room for");
	ok(is_placed(two.addr, two.size), "lies on the host, and says so");
	is_int(plan_take(&rig, &small, 1000, a), 0, "a small one");
	ok(is_here(small.addr), "finds room on the GPU");
	is_sound(&rig, "the books agree");
	glk_cache_walk(&rig.cache, two.addr + 10 * MIB, UINT64_MAX, take_run, &rest);
	ok(rest.asked == 20 * MIB && rest.placed == 20 * MIB,
		"what is walked of a block lies on the host");
	s = rig_figures(&rig);
	ok(s.reserved <= 50 * MIB, "the budget holds");
	is_int((int64_t)s.placed, 30 << 20, "bytes on the host");
	is_int((int64_t)s.placed_blocks, 1, "of a block");
	is_int((int64_t)s.host_held, 30 << 20, "in so many of pages");
	is_int((int64_t)s.live, (70 << 20) + 1000, "all of it is live");
	is_int((int64_t)s.rungs[GLAKE_RUNG_SPILL_HOST], 1, "a rung was climbed");
	is_refused(35 * MIB, GLAKE_ERROR_NOMEM_HOST, "tier.host",
		"what neither has room for is refused");
	is_refused(65 * MIB, GLAKE_ERROR_NOMEM_HOST, "64 MiB of the host are the most",
		"as is what is larger than both");
	ok(has_marks(&one) && has_marks(&two) && has_marks(&small),
		"what was written is there");
	ok(plan_drop(&rig, &one, a), "memory of the GPU is freed");
	is_int(plan_take(&rig, &three, 36 * MIB, a), 0, "another request");
	ok(is_here(three.addr), "has it");
	ok(plan_drop(&rig, &two, a), "what lies on the host is freed");
	is_int(rig_free(&rig, two.addr, a), -EINVAL, "nobody has it any more");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Idle pages of the host are taken before new ones are made, in stream order, and given back by a trim. */
static void in_order(void)
{
	uint64_t given, creates, first, second;

	set_up(10 * MIB, "soft.streams=stepped");
	first = rig_alloc(&rig, 20 * MIB, a);
	rig_work(&rig, first, 20 * MIB, a);
	is_int(rig_free(&rig, first, a), 0, "a block is freed with work queued on it");
	creates = rig_calls(&rig, GLAKE_CALL_CREATE);
	second = rig_alloc(&rig, 20 * MIB, b);
	ok(is_placed(second, 20 * MIB), "the next one lies on the host as well");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_CREATE) - creates), 0,
		"no page is made");
	rig_work(&rig, second, 20 * MIB, b);
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, second, b), 0, "it is freed");
	is_sound(&rig, "the books agree");
	glk_cache_trim(&rig.cache, 0, false, &given);
	is_int((int64_t)rig_figures(&rig).host_held, 20 << 20,
		"its pages wait for the work on them");
	glk_soft_run_all(rig.drv);
	is_int(glk_cache_trim(&rig.cache, 0, true, &given), 0,
		"then a trim of the GPU alone");
	is_int((int64_t)rig_figures(&rig).host_held, 20 << 20, "lets the host keep them");
	is_int(glk_cache_trim(&rig.cache, 0, false, &given), 0, "and a trim of all");
	is_int((int64_t)rig_figures(&rig).host_held, 0, "gives them back");
	is_int((int64_t)given, 0, "which tells of memory of the GPU alone");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* It has nowhere to go, and stays through a suspension of its GPU. */
static void stays(void)
{
	struct glake_suspended did = {0};
	struct held one, two;

	set_up(30 * MIB, "tier.host=512MiB");
	plan_take(&rig, &one, 25 * MIB, a);
	plan_take(&rig, &two, 26 * MIB, a);
	is_int(glk_cache_spill(&rig.cache, two.addr, a), -EALREADY,
		"a block on the host goes nowhere");
	has_str(rig_error().text, "lies in memory of the host",
		"for that is where it is");
	is_int(glk_cache_fetch(&rig.cache, two.addr, a), -ENOMEM,
		"nor to a GPU that is full");
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "the GPU is suspended");
	is_int((int64_t)did.moved, 25 << 20, "what it had goes away");
	is_int((int64_t)did.stayed_blocks, 0, "nothing stays on it");
	ok(is_placed(two.addr, two.size) && has_marks(&two), "the block is where it was");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "the GPU has nothing");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "the GPU is resumed");
	ok(has_marks(&one) && has_marks(&two), "all is there");
	plan_drop(&rig, &one, a);
	plan_drop(&rig, &two, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Both count against the same bytes of the host. */
static void shares_its_budget(void)
{
	struct held one, two;

	set_up(30 * MIB, "tier.host=100MiB");
	plan_take(&rig, &one, 25 * MIB, a);
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "a block goes away");
	plan_take(&rig, &two, 28 * MIB, a);
	is_refused(40 * MIB, GLAKE_ERROR_NOMEM_HOST, "100 MiB",
		"what it is kept in is not there for others");
	rig_free(&rig, one.addr, a);
	rig_free(&rig, two.addr, a);
	is_int(rig_try(&rig, 28 * MIB, a, 0, &two.addr), 0, "the GPU's are had again");
	is_int(rig_try(&rig, 40 * MIB, a, 0, &one.addr), 0,
		"and those when they are free");
	ok(is_placed(one.addr, 40 * MIB), "for a block");
	is_int(glk_cache_spill(&rig.cache, two.addr, a), -ENOMEM, "which keeps them");
	rig_free(&rig, one.addr, a);
	is_int(glk_cache_spill(&rig.cache, two.addr, a), 0, "until it is freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* No size is too large to be refused. */
static void too_large(void)
{
	static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 511, SIZE_MAX - 4095,
		(size_t)1 << 63, (size_t)1 << 45};
	uint64_t addr;

	rig_open(&rig, (const char *const[]){"tier.place=host", NULL});
	a = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, 10 * MIB);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		ok(rig_try(&rig, sizes[i], a, 0, &addr) == -ENOMEM, "%zu bytes",
			sizes[i]);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Who refuses is told, and what is lost; a peak is of what was held. */
static void figures(void)
{
	uint64_t addr, given;

	set_up(10 * MIB, "soft.host_memory=8MiB");
	rig_alloc(&rig, 10 * MIB, a);
	is_refused(20 * MIB, GLAKE_ERROR_NOMEM_HOST, "of 8388608 bytes are free",
		"a request beyond what the node has");
	ok(!strstr(rig_error().text, "tier.host"), "and not what tier.host allows");
	glk_fault_set(rig.drv, "host_lock:p=1000000:err=ENOMEM");
	is_int(glk_cache_spill(&rig.cache, rig_alloc(&rig, 1 * MIB, a), a), -EALREADY,
		"one on the host goes nowhere");
	glk_fault_set(rig.drv, "off");
	rig_close(&rig, 2);

	set_up(10 * MIB, "policy.bins=0");
	addr = rig_alloc(&rig, 10 * MIB, a);
	glk_fault_set(rig.drv, "host_lock:p=1000000:err=ENOMEM");
	is_int(glk_cache_spill(&rig.cache, addr, a), -ENOMEM,
		"memory that is not locked");
	is_int((int64_t)rig_figures(&rig).peak_host_held, 0, "was not held");
	addr = rig_alloc(&rig, 16 * MIB, a);
	rig_free(&rig, addr, a);
	glk_fault_set(rig.drv, "release:p=1000000:err=EIO");
	is_int(glk_cache_trim(&rig.cache, 0, false, &given), -EIO,
		"pages are not taken back");
	glk_fault_set(rig.drv, "off");
	is_int((int64_t)rig_figures(&rig).lost, 16 << 20, "and are lost");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
	tap_expect_log(tap.logs - tap.expected);
}

/* What is served behind a wait for the GPU is served so where the host has nothing to give. */
static void waits_last(void)
{
	uint64_t addr = 0, part[64];
	int n = 0, served = 0;

	rig_open(&rig,
		(const char *const[]){"tier.place=host", "soft.streams=stepped",
			"map.span=1GiB", "policy.bins=0", "soft.memory=2GiB", RIG_DONE,
			NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	while (n < 64 && (part[n] = rig_alloc(&rig, 16 * MIB, a)))
		n++;
	for (int i = 0; i < n; i++) {
		rig_work(&rig, part[i], 16 * MIB, a);
		rig_free(&rig, part[i], a);
	}
	is_int(rig_try(&rig, 32 * MIB, b, 0, &addr), 0, "no other addresses");
	rig_close(&rig, 1);

	set_up(2 * MIB, "tier.host=2MiB");
	for (n = 0; n < 64 && (addr = rig_alloc(&rig, 100 << 10, a)); n++)
		part[n] = addr;
	for (int i = 0; i < n; i += 2)
		rig_free(&rig, part[i], a);
	for (int i = 0; i < n; i += 2)
		served += !rig_try(&rig, 100 << 10, b, 0, &addr);
	is_int(served, (n + 1) / 2, "no other memory on the GPU or the host");
	is_sound(&rig, "the books agree");
	rig_close(&rig, (size_t)n);
}

/* Blocks of every kind, and those that may not. */
static void kinds(void)
{
	struct glake_block block = {.sz = sizeof(block)};
	uint64_t small, single, addr;
	uint32_t graph;

	set_up(4 * MIB, NULL);
	addr = rig_alloc(&rig, 4 * MIB, a);
	small = rig_alloc(&rig, 700, a);
	ok(is_placed(small, 700), "a small block on the host");
	single = rig_single(&rig, 5 * MIB, a);
	ok(!single, "a contiguous one is refused: it is for others");
	rig.cache.node->caps |= GLAKE_CAP_DMABUF;
	ok(!glk_cache_query(&rig.cache, small, &block) && !block.can,
		"what lies on the host cannot leave the process");
	is_sound(&rig, "the books agree");
	rig_begin(&rig, 1, b);
	rig_capture(&rig, b);
	is_int(rig_try(&rig, 5 * MIB, b, 0, &addr), -ENOMEM,
		"a pool of graphs has memory of the GPU alone");
	graph = rig_capture_end(&rig, b);
	rig_end_pool(&rig, 1);
	rig_drop(&rig, graph);
	glk_soft_run_all(rig.drv);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* What the driver refuses on the host is the answer, and nothing is left of it. */
static void faults(void)
{
	static const char *const calls[] = {"reserve", "create", "map", "set_access"};
	uint64_t addr;
	int err;

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		char rule[64];

		set_up(10 * MIB, NULL);
		rig_alloc(&rig, 10 * MIB, a);
		snprintf(rule, sizeof(rule), "%s:p=1000000:err=EIO", calls[i]);
		glk_fault_set(rig.drv, rule);
		err = rig_try(&rig, 20 * MIB, a, 0, &addr);
		ok(err == -EIO || err == -ENOMEM, "%s fails: %d", calls[i], err);
		glk_fault_set(rig.drv, "off");
		is_sound(&rig, "the books agree");
		is_int(rig_try(&rig, 20 * MIB, a, 0, &addr), 0,
			"the next request is served");
		is_sound(&rig, "the books agree");
		tap_expect_log(tap.logs - tap.expected);
		rig_close(&rig, 2);
	}
}

/* A driver that has no such memory is asked once, and the GPU's shortage is the answer. */
static void not_to_be_had(void)
{
	uint64_t creates;

	set_up(10 * MIB, NULL);
	rig_alloc(&rig, 10 * MIB, a);
	glk_fault_set(rig.drv, "create:p=1000000:err=EOPNOTSUPP");
	for (int i = 0; i < 2; i++) {
		creates = rig_calls(&rig, GLAKE_CALL_CREATE);
		is_refused(20 * MIB, GLAKE_ERROR_NOMEM_DEVICE, "GPU 0",
			i ? "the next request is too" : "a request is refused");
		ok((rig_calls(&rig, GLAKE_CALL_CREATE) > creates) == !i,
			i ? "and nobody asks" : "after the driver was asked");
		tap_expect_log(!i);
	}
	glk_fault_set(rig.drv, "off");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* Pages of the host that nobody uses, and work may: room for a content is not had by trying for ever. */
static void is_busy_still(void)
{
	uint64_t here, there;

	set_up(20 * MIB, "soft.streams=stepped");
	here = rig_alloc(&rig, 20 * MIB, a);
	there = rig_alloc(&rig, 30 * MIB, a);
	ok(here && is_placed(there, 30 * MIB), "a block lies on the host");
	rig_work(&rig, there, 30 * MIB, a);
	is_int(rig_free(&rig, there, a), 0, "freed behind work");
	is_int(glk_cache_spill(&rig.cache, here, b), -ENOMEM,
		"none of it can go for another");
	glk_soft_run_all(rig.drv);
	is_int(glk_cache_spill(&rig.cache, here, b), 0, "when the work is done all can");
	glk_soft_run_all(rig.drv);
	is_int(rig_free(&rig, here, b), 0, "freed where it is");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	not_unless_asked();
	beyond_the_budget();
	in_order();
	stays();
	shares_its_budget();
	kinds();
	too_large();
	figures();
	waits_last();
	faults();
	not_to_be_had();
	is_busy_still();
	return tap_done();
}
