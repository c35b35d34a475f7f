/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that are out: their pages are listed, and serve nobody else until they are back. */
#include "unit/cache/rig.h"

#include <errno.h>

#define PAGE (8 * MIB)

static struct glk_pin pin(struct rig *rig, uint64_t addr)
{
	struct glk_pin pin;

	if (glk_cache_pin(&rig->cache, addr, false, &pin))
		tap_bail(rig_error().text);
	return pin;
}

static int unpin(struct rig *rig, uint64_t addr)
{
	return glk_cache_unpin(&rig->cache, addr);
}

static uint64_t physical(struct rig *rig, uint64_t addr)
{
	uint64_t page = 0;
	size_t offset;

	return glk_soft_physical(rig->drv, addr, &page, &offset) ? 0 : page;
}

/* Whether the list has each byte of a block once, in order, where the device has it. */
static bool lists(struct rig *rig, uint64_t addr, size_t size)
{
	struct glk_pin list = pin(rig, addr);
	uint64_t at = addr, page;
	size_t offset;
	bool fine = list.base == addr && list.size == size;
	struct glk_pin again = list;

	for (uint32_t i = 0; i < list.count; i++) {
		struct glk_share_page p = glk_pin_page(&list, i), back;

		/* in whatever order */
		glk_pin_page(&again, list.count - 1);
		back = glk_pin_page(&again, i);
		fine &= back.handle == p.handle && back.length == p.length;

		fine &= p.length && p.offset + p.length <= p.size && p.handle;
		fine &= !i || !p.offset;
		fine &= i + 1 == list.count || p.offset + p.length == p.size;
		fine &= !glk_soft_physical(rig->drv, at, &page, &offset) &&
			offset == p.offset;
		fine &= p.able == GLK_PAGE_EXPORT_FD;
		at += p.length;
	}
	unpin(rig, addr);
	return fine && at == addr + size;
}

static void test_lists(void)
{
	static const size_t sizes[] = {1, 512, 4096, 300 * 1024, 1 * MIB, 1 * MIB + 1,
		3 * MIB, 4 * MIB - 511, 5 * MIB, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 77};
	uint64_t addr[16];
	bool fine = true;
	struct rig rig;

	rig_open(&rig, NULL);
	rig_stream(&rig);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		fine &= lists(&rig, rig_alloc(&rig, sizes[i], rig.stream[0]), sizes[i]);
		/* begun in the middle of a page */
		fine &= lists(&rig, rig_alloc(&rig, sizes[i], rig.stream[0]), sizes[i]);
	}
	ok(fine, "the pages of blocks of all sizes");
	ok(lists(&rig, rig_single(&rig, 10 * MIB, rig.stream[0]), 10 * MIB),
		"a contiguous one");
	for (int i = 0; i < 16; i++)
		addr[i] = rig_alloc(&rig, PAGE, rig.stream[0]);
	for (int i = 0; i < 16; i += 2)
		rig_free(&rig, addr[i], rig.stream[0]);
	ok(lists(&rig, rig_alloc(&rig, 7 * PAGE, rig.stream[0]), 7 * PAGE),
		"a stitched one");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 36);
}

static void test_answers(void)
{
	struct glake_block block;
	struct glk_pin list;
	struct rig rig;
	uint64_t addr, other;

	rig_open(&rig, NULL);
	is_int(glk_cache_pin(&rig.cache, 4096, false, &list), -EINVAL,
		"nothing before the first request");
	rig_stream(&rig);
	addr = rig_alloc(&rig, 3 * PAGE, rig.stream[0]);
	other = rig_alloc(&rig, 3 * PAGE, rig.stream[0]);
	is_int(glk_cache_pin(&rig.cache, addr + 512, false, &list), -EINVAL, "an inside");
	has_str(rig_error().text, "512 bytes inside a block", "  says so");
	is_int(glk_cache_pin(&rig.cache, addr + PAGE, true, &list), 0,
		"where insides are meant");
	is_int((int64_t)(list.base - addr), 0, "  it is the block");
	is_int(unpin(&rig, addr + 2 * PAGE), 0, "  and goes by an inside too");
	is_int(unpin(&rig, addr), -EINVAL, "one that is not out");
	has_str(rig_error().text, "is not out", "  says so");
	pin(&rig, addr);
	pin(&rig, addr);
	glk_cache_query(&rig.cache, addr, &block);
	is_int(block.exports, 2, "query tells how often it is out");
	is_int(block.can, GLAKE_CAN_EXPORT, "and what it can do");
	is_int(rig_free(&rig, addr, rig.stream[0]), 0, "freed");
	is_int(glk_cache_free(&rig.cache, addr, rig.stream[0]), -EINVAL, "freed again");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  is a double free");
	is_int(glk_cache_query(&rig.cache, addr, &block), -EINVAL, "it is no block");
	is_int(glk_cache_pin(&rig.cache, addr, true, &list), -EINVAL,
		"nor can it go out");
	is_int(glk_cache_use(&rig.cache, addr, rig.stream[0]), -EINVAL, "nor be used");
	is_int((int64_t)rig_figures(&rig).live_blocks, 1, "one block is live");
	is_int(unpin(&rig, addr), 0, "back once");
	is_int(unpin(&rig, addr), 0, "back twice");
	is_int(unpin(&rig, addr), -EINVAL, "no more");
	is_int(rig_free(&rig, other, rig.stream[0]), 0, "the other is freed");
	is_int(unpin(&rig, other), -EINVAL, "and was never out");
	is_int(unpin(&rig, (uint64_t)&rig), -EINVAL, "nor was this");
	is_int(rig_error().error_class, GLAKE_ERROR_NOT_MINE, "  which is no block");
	addr = rig_single(&rig, 5 * MIB, rig.stream[0]);
	glk_cache_query(&rig.cache, addr, &block);
	is_int(block.can, GLAKE_CAN_EXPORT | GLAKE_CAN_CONTIGUOUS, "one handle");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void test_most(void)
{
	const struct glk_range *range;
	struct glk_extent *e;
	struct glk_pin list;
	struct rig rig;
	uint64_t addr;

	rig_open(&rig, NULL);
	rig_stream(&rig);
	addr = rig_alloc(&rig, PAGE, rig.stream[0]);
	list = pin(&rig, addr);
	range = glk_cache_range(&rig.cache, addr);
	e = glk_extent_at(&rig.cache.arena.map, glk_lookup_around(range, addr));
	glk_store_relaxed(&e->pins, INT32_MAX - 1);
	is_int(glk_cache_pin(&rig.cache, addr, false, &list), 0, "the last time");
	is_int(glk_cache_pin(&rig.cache, addr, false, &list), -ENOMEM, "once more");
	is_int(rig_error().error_class, GLAKE_ERROR_LIMIT, "is a limit");
	is_int(rig_free(&rig, addr, rig.stream[0]), 0, "freed");
	glk_store_relaxed(&e->pins, UINT32_C(1) << 31 | 1);
	is_int(unpin(&rig, addr), 0, "the last one");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Freed while it is out: the addresses and pages are had by nobody, however short memory is. */
static void hold(const char *what, size_t size, uint32_t flags)
{
	uint64_t addr = 0, pages[64], used = 0, got;
	size_t count = 0;
	bool apart = true;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=96MiB", NULL});
	rig_stream(&rig);
	if (rig_try(&rig, size, rig.stream[0], flags, &addr))
		tap_bail("no block");
	for (size_t at = 0; at < size; at += 2 * MIB)
		pages[count++] = physical(&rig, addr + at);
	pin(&rig, addr);
	rig_free(&rig, addr, rig.stream[0]);
	ok(rig_is_sound(&rig), "%s", what);
	for (size_t n = 0; n < 200; n++) {
		size_t bytes = (n % 5 + 1) * 3 * MIB >> n % 3;

		if (rig_try(&rig, bytes, rig.stream[0],
			    n % 7 ? 0 : GLAKE_ALLOC_CONTIGUOUS, &got))
			break;
		used += bytes;
		apart &= got + bytes <= addr || got >= addr + size;
		for (size_t at = 0; at < bytes; at += 512 * 1024) {
			/* those at its ends may be others' too */
			for (size_t i = 0; i < count; i++)
				apart &= physical(&rig, got + at) != pages[i] ||
					pages[i] == pages[0] ||
					pages[i] == pages[count - 1];
		}
	}
	ok(apart, "  serves nobody else while memory is used up");
	ok(used < 96 * MIB - size, "  which it is sooner");
	is_int(unpin(&rig, addr), 0, "  then it is back");
	is_int(rig_try(&rig, size, rig.stream[0], flags, &got), 0, "  and can be had");
	ok(got == addr, "  at its address");
	is_sound(&rig, "  the books agree");
	(void)rig_end(&rig);
}

/* The streams that used it are waited for when it comes back, and not before. */
static void test_order(void)
{
	uint64_t addr, again;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){
			"soft.streams=stepped", "stream.internal_dependencies=no", NULL});
	rig_stream(&rig);
	rig_stream(&rig);
	rig_stream(&rig);
	addr = rig_alloc(&rig, 5 * PAGE, rig.stream[0]);
	is_int(glk_cache_use(&rig.cache, addr, rig.stream[1]), 0,
		"used before it is out");
	pin(&rig, addr);
	is_int(glk_cache_use(&rig.cache, addr, rig.stream[2]), 0, "and after");
	rig_work(&rig, addr, 5 * PAGE, rig.stream[2]);
	rig_free(&rig, addr, rig.stream[0]);
	is_int(unpin(&rig, addr), 0, "back with work queued");
	again = rig_alloc(&rig, 5 * PAGE, rig.stream[1]);
	ok(again != addr, "that work is not waited for by a stream: other memory");
	glk_soft_run_all(rig.drv);
	glk_event_ask(&rig.cache.streams);
	rig_free(&rig, again, rig.stream[1]);
	ok(rig_alloc(&rig, 5 * PAGE, rig.stream[2]), "one that did the work");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* Not out any more and then freed: nothing is special about it but that it goes to no bin. */
static void test_back(void)
{
	struct rig rig;
	uint64_t addr;

	rig_open(&rig, NULL);
	rig_stream(&rig);
	addr = rig_alloc(&rig, 3 * MIB, rig.stream[0]);
	pin(&rig, addr);
	unpin(&rig, addr);
	is_int(glk_cache_use(&rig.cache, addr, rig.stream[0]), 0, "used");
	is_int(rig_free(&rig, addr, rig.stream[0]), 0, "freed");
	is_int((int64_t)rig_figures(&rig).quick, 0, "in no bin");
	ok(rig_alloc(&rig, 3 * MIB, rig.stream[0]) == addr, "and had again");
	pin(&rig, addr);
	is_int(glk_cache_free_after(&rig.cache, addr, NULL, 0), 0, "freed behind events");
	is_int((int64_t)rig_figures(&rig).quick, 3 * MIB, "it stays");
	is_int(unpin(&rig, addr), 0, "until it is back");
	is_int((int64_t)rig_figures(&rig).quick, 0, "then it goes");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A pool of a graph does not end while memory of it is out, nor before somebody looks. */
static void test_graph(void)
{
	uint64_t addr, page;
	uint64_t released;
	struct rig rig;

	rig_open(&rig, NULL);
	rig_stream(&rig);
	rig_begin(&rig, 5, rig.stream[0]);
	rig_capture(&rig, rig.stream[0]);
	addr = rig_alloc(&rig, 2 * PAGE, rig.stream[0]);
	rig_drop(&rig, rig_capture_end(&rig, rig.stream[0]));
	rig_end_pool(&rig, 5);
	page = physical(&rig, addr);
	pin(&rig, addr);
	is_int(rig_free(&rig, addr, rig.stream[0]), 0, "freed");
	is_int(rig_release(&rig, 5), 0, "the pool is released");
	ok(page && physical(&rig, addr) == page, "the page is where it was");
	is_int((int64_t)rig_figures(&rig).pools, 1, "the pool is there");
	is_sound(&rig, "the books agree");
	glk_cache_trim(&rig.cache, SIZE_MAX, false, &released);
	is_int((int64_t)rig_figures(&rig).pools, 1, "whoever looks for what has ended");
	is_int(unpin(&rig, addr), 0, "back");
	is_int((int64_t)rig_figures(&rig).pools, 1, "which ends no pool");
	glk_cache_trim(&rig.cache, SIZE_MAX, false, &released);
	is_int((int64_t)rig_figures(&rig).pools, 0, "now it has ended");
	is_int((int64_t)physical(&rig, addr), 0, "with its addresses");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	test_lists();
	test_answers();
	test_most();
	hold("large and freed while it is out", 5 * PAGE, 0);
	hold("small", 4096, 0);
	hold("medium", 3 * MIB, 0);
	hold("contiguous", 12 * MIB, GLAKE_ALLOC_CONTIGUOUS);
	test_order();
	test_back();
	test_graph();
	return tap_done();
}
