/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that lie on the host come to the GPU, where the program says so. */
#include "plan_parts.h"

#include <sched.h>

static struct rig rig;
static struct CUstream_st *a, *b;

/* A GPU with a budget, and a host with another. */
static void set_up(size_t budget, const char *setting)
{
	const char *settings[] = {"tier.place=host", "tier.host=512MiB",
		"soft.host_memory=512MiB", "policy.bins=0", setting, NULL};

	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, budget);
}

static uint64_t placed(const struct held *h)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glk_cache_query(&rig.cache, h->addr + h->size / 2, &block) ||
		block.base != (void *)h->addr)
		return UINT64_MAX;
	return block.placed;
}

static int fetch(const struct held *h, struct CUstream_st *stream)
{
	return glk_cache_fetch(&rig.cache, h->addr, stream);
}

static struct glake_returned quiet(int err)
{
	struct glake_returned did = {0};

	is_int(glk_cache_quiet(&rig.cache, &did), err, "a quiet point");
	is_sound(&rig, "the books agree");
	return did;
}

/* A block of the GPU, and what it has no room for. */
static void fill(size_t budget, struct held *one, struct held *two, size_t size)
{
	set_up(budget, NULL);
	plan_take(&rig, one, budget - MIB, a);
	plan_take(&rig, two, size, a);
	is_int((int64_t)placed(two), (int64_t)size, "a block lies on the host");
}

static void comes_back(void)
{
	struct held one, two, three;
	struct glake_stats s;

	fill(40 * MIB, &one, &two, 33 * MIB + 700);
	is_int(fetch(&two, a), -ENOMEM, "there is no room for it");
	is_int((int64_t)placed(&two), (int64_t)two.size, "it is where it was");
	is_sound(&rig, "the books agree");
	plan_drop(&rig, &one, a);
	is_int(fetch(&two, b), 0, "when there is it comes to the GPU");
	is_int((int64_t)placed(&two), 0, "and is on the host no longer");
	ok(has_marks(&two), "with what was written, at its addresses");
	s = rig_figures(&rig);
	is_int((int64_t)s.placed, 0, "no bytes on the host");
	is_int((int64_t)s.placed_blocks, 0, "no block");
	is_int((int64_t)s.returned, (int64_t)two.size, "so many came back");
	is_int((int64_t)s.returned_blocks, 1, "of a block");
	is_int((int64_t)s.reserved, 40 << 20, "the GPU holds more");
	is_int((int64_t)s.unmapped, 34 << 20, "so many bytes of mappings went");
	is_sound(&rig, "the books agree");
	is_int(fetch(&two, b), -EALREADY, "it is here");
	write_marks(&two);
	rig_work(&rig, two.addr, two.size, b);
	glk_soft_run_all(rig.drv);
	write_marks(&two);
	ok(plan_drop(&rig, &two, b), "it is freed");
	is_sound(&rig, "the books agree");
	is_int(plan_take(&rig, &three, 38 * MIB, a), 0, "another request");
	is_int((int64_t)placed(&three), 0, "has the pages of the GPU that it had");
	ok(plan_drop(&rig, &three, a), "and keeps them");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Behind all work that is known, which is waited for; and what was freed between blocks is not run over. */
static void in_order(void)
{
	struct held one, two;

	set_up(40 * MIB, "soft.streams=stepped");
	plan_take(&rig, &one, 39 * MIB, a);
	plan_take(&rig, &two, 30 * MIB, a);
	rig_free(&rig, one.addr, a);
	rig_work(&rig, two.addr, 15 * MIB, a);
	rig_work(&rig, two.addr + 15 * MIB, 15 * MIB, b);
	is_int(glk_cache_use(&rig.cache, two.addr, b), 0, "a stream uses it");
	is_int(fetch(&two, a), 0, "it comes behind that");
	is_int((int64_t)placed(&two), 0, "to the GPU");
	write_marks(&two);
	rig_work(&rig, two.addr, two.size, b);
	is_int(rig_free(&rig, two.addr, a), 0, "and is freed while it is used");
	is_int(plan_take(&rig, &one, 39 * MIB, a), 0,
		"others have its pages behind that");
	glk_soft_run_all(rig.drv);
	rig_free(&rig, one.addr, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Pages that a block shares with others stay, unless the program is at a quiet point. */
static void shares(void)
{
	struct held one, list[6], small[3];
	struct glake_suspended suspended;
	struct glake_returned did;
	int torn = 0;

	set_up(80 * MIB, NULL);
	plan_take(&rig, &one, 79 * MIB, a);
	for (int i = 0; i < 6; i++)
		torn += plan_take(&rig, &list[i], 3 * MIB + 512, a) != 0;
	for (int i = 0; i < 3; i++)
		torn += plan_take(&rig, &small[i], 1000 * ((size_t)i + 1), a) != 0;
	plan_drop(&rig, &one, a);
	is_int(fetch(&small[0], a), -EBUSY, "a small block shares its page");
	has_str(rig_error().text, "glake_quiet", "which a quiet point moves");
	is_int(fetch(&list[1], a), 0, "a block comes");
	is_int(glk_cache_suspend(&rig.cache, false, &suspended), 0,
		"a suspension leaves it");
	is_int((int64_t)(suspended.stayed + placed(&list[1])), (int64_t)list[1].size,
		"with what it has on the GPU");
	is_int(glk_cache_resume(&rig.cache, false, &suspended), 0, "and ends");
	ok(placed(&list[1]) > 0 && placed(&list[1]) < list[1].size,
		"but for its ends, of %zu bytes", (size_t)placed(&list[1]));
	is_int(fetch(&list[1], a), -EBUSY, "which are others' too");
	is_sound(&rig, "the books agree");
	did = quiet(0);
	is_int((int64_t)did.left, 0, "nothing is left on the host");
	is_int((int64_t)did.returned_blocks, 9, "all came");
	is_int((int64_t)rig_figures(&rig).returned, (int64_t)(6 * list[0].size + 6000),
		"each byte once");
	for (int i = 0; i < 6; i++)
		torn += !plan_drop(&rig, &list[i], i & 1 ? a : b);
	for (int i = 0; i < 3; i++)
		torn += !plan_drop(&rig, &small[i], a);
	is_int(torn, 0, "with what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void refuses(void)
{
	struct glake_returned did;
	struct glk_pin pin;
	struct held one, two;
	uint32_t graph;

	fill(40 * MIB, &one, &two, 31 * MIB);
	plan_drop(&rig, &one, a);
	rig_begin(&rig, 1, b);
	rig_capture(&rig, b);
	is_int(fetch(&two, b), -EBUSY, "not on a stream that captures");
	is_int(glk_cache_quiet(&rig.cache, &did), -EBUSY, "nor is that a quiet point");
	is_int(rig_error().error_class, GLAKE_ERROR_CAPTURE, "class of the record");
	graph = rig_capture_end(&rig, b);
	rig_end_pool(&rig, 1);
	rig_drop(&rig, graph);
	is_int(glk_cache_pin(&rig.cache, two.addr, false, &pin), 0,
		"a block that is out");
	is_int(fetch(&two, b), -EBUSY, "stays");
	did = quiet(0);
	is_int((int64_t)did.left, 31 << 20, "at a quiet point too");
	is_int(glk_cache_unpin(&rig.cache, two.addr), 0, "it is out no more");
	did = quiet(0);
	is_int((int64_t)did.left, 0, "then it comes");
	is_int(glk_cache_pin(&rig.cache, two.addr, false, &pin), 0, "it may go out");
	is_int(rig_free(&rig, two.addr, a), 0, "and be freed meanwhile");
	is_sound(&rig, "the books agree");
	glk_cache_unpin(&rig.cache, two.addr);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* The first quiet point has no stream to copy on. */
static void has_no_stream(void)
{
	struct held one;

	set_up(40 * MIB, NULL);
	plan_take(&rig, &one, MIB, a);
	glk_fault_set(rig.drv, "stream_new:nth=1:err=EIO");
	quiet(-EIO);
	glk_fault_set(rig.drv, "off");
	quiet(0);
	ok(plan_drop(&rig, &one, a), "nothing was done to a block");
	rig_close(&rig, 0);
}

static void *fetch_it(void *arg)
{
	const struct held *h = arg;

	return fetch(h, b) ? arg : NULL;
}

/* All windows are in use, by others or for good. */
static void waits_for_window(void)
{
	struct glk_window *windows = rig.cache.windows;
	struct held one, two;
	pthread_t thread;
	void *failed;

	fill(40 * MIB, &one, &two, 15 * MIB);
	plan_drop(&rig, &one, a);
	for (int i = 0; i < GLK_WINDOWS; i++)
		windows[i] = (struct glk_window){.taken = true, .kept = 1};
	is_int(fetch(&two, b), -EIO, "the driver keeps what lies in all windows");
	is_int((int64_t)placed(&two), (int64_t)two.size, "it is where it was");
	is_sound(&rig, "the books agree");
	windows[5].kept = 0;
	pthread_create(&thread, NULL, fetch_it, &two);
	/* it has its pages, and cannot have the window */
	do {
		glk_lock(&rig.cache.lock);
		if (rig.cache.arena.map.space->claims)
			break;
		glk_unlock(&rig.cache.lock);
		sched_yield();
	} while (true);
	ok(windows[5].taken, "one is somebody's");
	windows[5].taken = false;
	pthread_cond_broadcast(&rig.cache.moved);
	glk_unlock(&rig.cache.lock);
	pthread_join(thread, &failed);
	ok(!failed && !placed(&two), "who gives it back lets the block come");
	for (int i = 0; i < GLK_WINDOWS; i++) {
		windows[i].taken = false;
		windows[i].kept = 0;
	}
	ok(plan_drop(&rig, &two, b), "with what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	comes_back();
	waits_for_window();
	in_order();
	shares();
	refuses();
	has_no_stream();
	return tap_done();
}
