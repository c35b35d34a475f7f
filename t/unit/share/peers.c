/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of a GPU in the hands of another one: all of it, or none. */
#include "unit/cache/rig.h"

#include <errno.h>

#define PAGE (8 * MIB)

/* A kernel of GPU 1, which the device refuses where it has no right. */
static bool reaches(struct rig *rig, uint64_t addr, size_t size)
{
	return !glk_soft_work(rig->drv, 1, NULL, addr, size, true);
}

static uint64_t peers(struct rig *rig)
{
	return glk_load_relaxed(&rig->cache.node->peers);
}

/* Blocks of all kinds, stitched and shared pages, in a pool of a graph too. */
struct scene {
	uint64_t small, medium, large, single, stitched, graph;
};

#define SIZES(X, s)                                                                      \
	X((s)->small, 4096)                                                              \
	X((s)->medium, 3 * MIB)                                                          \
	X((s)->large, 5 * PAGE)                                                          \
	X((s)->single, 10 * MIB)                                                         \
	X((s)->stitched, 3 * PAGE)                                                       \
	X((s)->graph, 6 * MIB)

static void prepare(struct rig *rig, struct scene *s)
{
	uint64_t addr[6];

	rig_stream(rig);
	s->small = rig_alloc(rig, 4096, rig->stream[0]);
	s->medium = rig_alloc(rig, 3 * MIB, rig->stream[0]);
	for (int i = 0; i < 6; i++)
		addr[i] = rig_alloc(rig, PAGE, rig->stream[0]);
	for (int i = 0; i < 6; i += 2)
		rig_free(rig, addr[i], rig->stream[0]);
	s->stitched = rig_alloc(rig, 3 * PAGE, rig->stream[0]);
	s->large = rig_alloc(rig, 5 * PAGE, rig->stream[0]);
	s->single = rig_single(rig, 10 * MIB, rig->stream[0]);
	rig_capture(rig, rig->stream[0]);
	s->graph = rig_alloc(rig, 6 * MIB, rig->stream[0]);
	rig_drop(rig, rig_capture_end(rig, rig->stream[0]));
}

/* How many of the blocks GPU 1 reaches. */
static int count(struct rig *rig, const struct scene *s)
{
	int found = 0;

#define X(addr, size) found += reaches(rig, addr, size);
	SIZES(X, s)
#undef X
	return found;
}

static const char *const settings[] = {"soft.gpus=2", "pool.budget=200MiB", NULL};

static void test_on_and_off(void)
{
	struct scene s;
	struct rig rig;
	uint64_t calls, later;

	rig_open(&rig, settings);
	prepare(&rig, &s);
	is_int(count(&rig, &s), 0, "nothing is within reach");
	is_int(glk_cache_peer(&rig.cache, 1, true), 0, "GPU 1 may");
	is_int((int64_t)peers(&rig), 2, "it is a peer");
	is_int(count(&rig, &s), 6, "all that is mapped is within reach");
	later = rig_alloc(&rig, 7 * PAGE, rig.stream[0]);
	ok(reaches(&rig, later, 7 * PAGE), "and what is mapped later");
	later = rig_single(&rig, 5 * MIB, rig.stream[0]);
	ok(reaches(&rig, later, 5 * MIB), "a contiguous one too");
	calls = rig_calls(&rig, GLAKE_CALL_SET_ACCESS);
	is_int(glk_cache_peer(&rig.cache, 1, true), 0, "once more");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_SET_ACCESS) - calls), 0,
		"costs nothing");
	glk_soft_run_all(rig.drv);
	is_int(glk_cache_peer(&rig.cache, 1, false), 0, "GPU 1 may no longer");
	is_int((int64_t)peers(&rig), 0, "it is none");
	is_int(count(&rig, &s), 0, "nothing is within reach");
	later = rig_alloc(&rig, PAGE, rig.stream[0]);
	ok(!reaches(&rig, later, PAGE), "nor what is mapped later");
	is_sound(&rig, "the books agree");
	rig_free(&rig, s.graph, rig.stream[0]);
	rig_close(&rig, 11);
}

/* Pages that a thread makes meanwhile. */
static void test_ahead(void)
{
	bool all = true;
	uint64_t addr;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.gpus=2", "pool.ahead=64MiB", NULL});
	rig_stream(&rig);
	for (int i = 0; i < 40; i++) {
		addr = rig_alloc(&rig, 2 * PAGE, rig.stream[0]);
		if (i % 8 == 0)
			all &= !glk_cache_peer(&rig.cache, 1, i % 16 == 0);
		all &= reaches(&rig, addr, 2 * PAGE) == (i % 16 < 8);
		glk_soft_run_all(rig.drv);
	}
	ok(all, "pages ahead are within reach as all others are");
	rig_close(&rig, 40);
}

static void test_from_the_start(void)
{
	struct rig rig;
	uint64_t addr;

	rig_open(&rig, (const char *const[]){"soft.gpus=3", "pool.peers=all", NULL});
	rig_stream(&rig);
	/* one cache of three GPUs is open here */
	is_int((int64_t)peers(&rig), 0, "a pool of one GPU has no peers");
	rig_close(&rig, 0);

	rig_open(&rig, (const char *const[]){"soft.gpus=2", NULL});
	rig_stream(&rig);
	is_int(glk_cache_peer(&rig.cache, 1, true), 0, "before the first request");
	addr = rig_alloc(&rig, 5 * PAGE, rig.stream[0]);
	ok(reaches(&rig, addr, 5 * PAGE), "it holds for that one");
	rig_close(&rig, 1);
}

/* Each call that is made fails, once and from then on; the state is that of before. */
static void test_faults(bool on)
{
	static const char *const ways[] = {"set_access:nth=%d", "set_access:from=%d"};
	bool same = true, recovers = true, struck = true;
	uint64_t passed = 0, failed = 0;
	int runs = 0, err;
	struct scene s;
	struct rig rig;
	char fault[64];

	rig_open(&rig, settings);
	prepare(&rig, &s);
	if (!on && glk_cache_peer(&rig.cache, 1, true))
		tap_bail("no peer");
	for (int n = 1; struck; n++, runs++) {
		snprintf(fault, sizeof(fault), ways[0], n);
		glk_soft_run_all(rig.drv);
		glk_fault_set(rig.drv, fault);
		err = glk_cache_peer(&rig.cache, 1, on);
		glk_fault_count(rig.drv, &passed, &failed);
		glk_fault_set(rig.drv, "off");
		struck = failed > 0;
		if (!struck)
			break;
		same &= err == -EIO && count(&rig, &s) == (on ? 0 : 6) &&
			(peers(&rig) == 0) == on;
		glk_soft_run_all(rig.drv);
	}
	ok(same, "%s: each call fails, and nothing has changed, %d runs",
		on ? "given" : "taken", runs);
	is_int(count(&rig, &s), on ? 6 : 0, "without a fault it is done");
	glk_soft_run_all(rig.drv);
	/* the way back fails too: told, and mended by the next change */
	snprintf(fault, sizeof(fault), ways[1], runs);
	glk_fault_set(rig.drv, fault);
	tap_expect_log(1);
	is_int(glk_cache_peer(&rig.cache, 1, !on), -EIO, "and all calls from one on");
	glk_fault_set(rig.drv, "off");
	ok((peers(&rig) == 0) == !on, "what is mapped later is as before");
	recovers &= !glk_cache_peer(&rig.cache, 1, !on);
	recovers &= count(&rig, &s) == (on ? 0 : 6);
	ok(recovers, "the next change puts it right");
	is_sound(&rig, "the books agree");
	glk_soft_run_all(rig.drv);
	rig_free(&rig, s.graph, rig.stream[0]);
	rig_close(&rig, 8);
}

int main(void)
{
	tap_plan_later();
	test_on_and_off();
	test_ahead();
	test_from_the_start();
	test_faults(true);
	test_faults(false);
	return tap_done();
}
