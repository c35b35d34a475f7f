/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Growth under a budget, what failures leave behind, the order of the free list. */
#include "base/conf.h"
#include "pool/pool.h"
#include "unit/fakedrv.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define SMALL  MIB(2)
#define LARGE  MIB(8)

static struct fake fake;
static struct glk_conf conf;
static struct glk_pool pool;
static struct glk_node *node;

static void start(uint64_t budget, int64_t pages)
{
	glk_conf_init(&conf);
	conf.pool_budget = budget;
	conf.pool_pages = pages;
	conf.pool_large_page = LARGE;
	if (glk_pool_init(&pool, fake_init(&fake), &conf, 1, 0, NULL))
		tap_bail("no pool");
	node = glk_pool_gpu(&pool, 0);
}

static void stop(const char *what)
{
	is_int((int64_t)fake.broken, 0, what);
	glk_pool_fini(&pool);
	fake_fini(&fake);
}

static uint64_t held(void)
{
	return glk_load_relaxed(&node->held);
}

static uint64_t free_bytes(enum glk_class class)
{
	return glk_load_relaxed(&node->free_bytes[class]);
}

static uint32_t grow(uint64_t size)
{
	uint32_t page = 0;

	return glk_node_grow(node, size, &page) ? 0 : page;
}

static void test_budget(void)
{
	uint32_t page = 77;

	start(MIB(12), 100);
	is_int(grow(SMALL), 1, "a small page");
	is_int(grow(LARGE), 2, "a large page");
	is_int((int64_t)held(), (int64_t)MIB(10), "10 MiB held");
	is_int((int64_t)fake.held, (int64_t)MIB(10), "as the driver says");
	is_int((int64_t)glk_page_at(&pool, 2)->size, (int64_t)MIB(8),
		"the page has its size");
	ok(glk_node_has_room(node, MIB(2)), "room for what just fits");
	ok(!glk_node_has_room(node, MIB(2) + 1), "and not for a byte more");
	ok(!glk_node_has_room(node, UINT64_MAX), "nor for everything");

	is_int(glk_node_grow(node, MIB(2) + 1, &page), -ENOMEM,
		"a byte above the budget");
	is_int(page, 77, "gives no page");
	is_int((int64_t)fake.calls[FAKE_CREATE], 2, "and asks no driver");
	is_int(fake_class(), 0, "without a record");
	is_int((int64_t)held(), (int64_t)MIB(10), "nothing more is held");
	is_int(grow(MIB(2)), 3, "the last byte of it");
	ok(glk_node_has_room(node, 0) && !glk_node_has_room(node, 1), "now it is full");

	glk_store_relaxed(&node->budget, MIB(4));
	ok(!glk_node_has_room(node, 0), "no room above a budget that was lowered");
	is_int(glk_node_grow(node, SMALL, &page), -ENOMEM, "nor growth");
	glk_store_relaxed(&node->budget, UINT64_MAX);
	is_int(grow(SMALL), 4, "without a budget it goes on");
	is_int(glk_node_grow(node, UINT64_MAX, &page), -ENOMEM,
		"sizes do not wrap round the budget");
	is_int((int64_t)glk_load_relaxed(&node->peak), (int64_t)MIB(14),
		"the peak is noted");
	for (uint32_t id = 1; id <= 4; id++)
		is_int(glk_node_release(node, id), 0, "release");
	is_int((int64_t)held(), 0, "nothing is held");
	is_int((int64_t)glk_load_relaxed(&node->peak), (int64_t)MIB(14),
		"the peak stays");
	stop("budget: no rule broken");
}

static void test_fresh(void)
{
	struct glk_page *p;
	uint32_t id;

	start(0, 10);
	id = grow(SMALL);
	p = glk_page_at(&pool, id);
	p->use = (struct glk_use){.streams = 3, .tick = 9};
	p->in_use = 5;
	p->first_alias = 5;
	p->aliases = 1;
	p->aliases = 0;
	glk_node_release(node, id);
	is_int((int64_t)glk_page_generation(p), 1, "a generation ended");
	is_int(grow(LARGE), id, "its descriptor serves again");
	ok(!p->use.streams && !p->use.tick, "with no use");
	ok(p->in_use == GLK_NO_SLOT && p->first_alias == GLK_NO_SLOT && !p->aliases,
		"with no mapping");
	ok(p->class == GLK_CLASS_LARGE && p->node == 0 && p->size == MIB(8),
		"with its class, node and size");
	is_int(glk_page_state(p), GLK_PAGE_OWNED, "owned");
	glk_node_release(node, id);
	stop("a page that comes again: no rule broken");
}

/* Growth that fails at the driver or for want of descriptors. */
static void test_refused(void)
{
	static const int errors[] = {-ENOMEM, -EIO, -ENODEV};
	uint32_t page = 77, live;

	start(MIB(64), 4);
	grow(SMALL);
	live = glk_load_relaxed(&pool.pages.live);
	for (unsigned i = 0; i < 3; i++) {
		fake_fail(&fake, FAKE_CREATE, 1, errors[i], false);
		is_int(glk_node_grow(node, LARGE, &page), errors[i],
			"the driver's error is passed on");
		is_int((int64_t)held(), (int64_t)MIB(2), "the bytes are given back");
		is_int(glk_load_relaxed(&pool.pages.live), live, "and the descriptor");
	}
	is_int(page, 77, "no page was given");
	is_int((int64_t)glk_load_relaxed(&node->peak), (int64_t)MIB(2), "no peak either");
	for (int i = 0; i < 3; i++)
		ok(grow(SMALL), "a page, up to the last descriptor");
	is_int(glk_node_grow(node, SMALL, &page), -ENOMEM, "one above");
	is_int(fake_class(), GLAKE_ERROR_LIMIT, "is a limit, not a want of memory");
	is_int((int64_t)held(), (int64_t)MIB(8), "and holds nothing more");
	is_int((int64_t)fake.calls[FAKE_CREATE], 7, "nor was the driver asked");
	for (uint32_t id = 1; id <= 4; id++)
		glk_node_release(node, id);
	stop("refusals: no rule broken");
}

static void test_lost(void)
{
	uint32_t a, b, c;

	start(MIB(64), 10);
	a = grow(LARGE);
	b = grow(SMALL);
	c = grow(SMALL);
	fake_fail(&fake, FAKE_RELEASE, 1, -EIO, false);
	is_int(glk_node_release(node, a), -EIO, "the driver keeps a page");
	is_int(glk_page_state(glk_page_at(&pool, a)), GLK_PAGE_LOST, "it is lost");
	is_int((int64_t)glk_load_relaxed(&node->lost), (int64_t)MIB(8), "and counted");
	is_int((int64_t)held(), (int64_t)MIB(12), "and held, for it takes memory");
	glk_node_lose(node, b);
	is_int(glk_page_state(glk_page_at(&pool, b)), GLK_PAGE_LOST,
		"a page lost by its owner");
	is_int((int64_t)glk_load_relaxed(&node->lost), (int64_t)MIB(10), "counted too");
	glk_node_lose(node, b);
	glk_node_lose(node, a);
	is_int((int64_t)glk_load_relaxed(&node->lost), (int64_t)MIB(10), "once");
	is_int(glk_node_release(node, a), -EIO, "a lost page cannot be released");
	is_int(fake_class(), GLAKE_ERROR_CORRUPT, "class of the record");
	has_str(fake_text(), "LOST", "which names the state");
	glk_node_put(node, a);
	is_int((int64_t)free_bytes(GLK_CLASS_LARGE), 0, "nor put on a list");
	ok(!glk_node_take(node, GLK_CLASS_LARGE), "or taken from it");
	ok(grow(SMALL) > c, "its descriptor is not used again");
	stop("lost pages: no rule broken");
}

static void test_list(void)
{
	uint32_t id[4], large;

	start(0, 10);
	for (int i = 0; i < 4; i++)
		id[i] = grow(SMALL);
	large = grow(LARGE);
	for (int i = 0; i < 4; i++)
		glk_node_put(node, id[i]);
	glk_node_put(node, large);
	is_int((int64_t)free_bytes(GLK_CLASS_SMALL), 4 * (int64_t)SMALL,
		"four small pages are free");
	is_int((int64_t)free_bytes(GLK_CLASS_LARGE), (int64_t)LARGE, "and a large one");
	is_int(glk_page_state(glk_page_at(&pool, id[0])), GLK_PAGE_FREE, "free by state");
	is_int(glk_node_release(node, id[0]), -EIO,
		"what lies on a list is not released");
	is_int(glk_page_state(glk_page_at(&pool, id[0])), GLK_PAGE_FREE,
		"and stays there");
	glk_node_put(node, id[0]);
	is_int((int64_t)free_bytes(GLK_CLASS_SMALL), 4 * (int64_t)SMALL, "nor put twice");
	for (int i = 3; i >= 0; i--)
		is_int(glk_node_take(node, GLK_CLASS_SMALL), id[i], "last in, first out");
	is_int(glk_node_take(node, GLK_CLASS_SMALL), 0, "no more");
	is_int((int64_t)free_bytes(GLK_CLASS_SMALL), 0, "none is free");
	is_int(glk_page_state(glk_page_at(&pool, id[0])), GLK_PAGE_OWNED, "owned again");
	is_int(glk_node_take(node, GLK_CLASS_LARGE), large, "classes lie apart");
	for (int i = 0; i < 4; i++)
		glk_node_put(node, id[i]);
	glk_node_put(node, large);
	stop("free lists: no rule broken");
}

static void test_drain(void)
{
	start(0, 20);
	for (int i = 0; i < 6; i++)
		glk_node_put(node, grow(SMALL));
	is_int((int64_t)glk_node_drain(node, GLK_CLASS_SMALL, 0), 0,
		"nothing is asked for");
	is_int((int64_t)glk_node_drain(node, GLK_CLASS_SMALL, 1), (int64_t)MIB(2),
		"a byte takes a page");
	is_int((int64_t)glk_node_drain(node, GLK_CLASS_SMALL, MIB(4)), (int64_t)MIB(4),
		"two pages to the byte");
	is_int((int64_t)glk_node_drain(node, GLK_CLASS_LARGE, MIB(4)), 0,
		"none of the other class");
	fake_fail(&fake, FAKE_RELEASE, 2, -EIO, false);
	is_int((int64_t)glk_node_drain(node, GLK_CLASS_SMALL, UINT64_MAX),
		(int64_t)MIB(4), "what the driver keeps is not counted as given back");
	is_int((int64_t)glk_load_relaxed(&node->lost), (int64_t)MIB(2), "but as lost");
	is_int((int64_t)held(), (int64_t)MIB(2), "and held");
	is_int((int64_t)free_bytes(GLK_CLASS_SMALL), 0, "the list is empty");
	is_int((int64_t)fake.pages, 1, "as the driver says");
	stop("drain: no rule broken");
}

/* Pages of sizes that are neither small nor large lie together. */
static void test_other(void)
{
	static const uint64_t sizes[] = {MIB(4), MIB(14), MIB(128), MIB(6)};
	uint32_t id[4];

	start(0, 20);
	ok(glk_node_class(node, SMALL) == GLK_CLASS_SMALL &&
			glk_node_class(node, LARGE) == GLK_CLASS_LARGE &&
			glk_node_class(node, MIB(4)) == GLK_CLASS_OTHER &&
			glk_node_class(node, MIB(128)) == GLK_CLASS_OTHER,
		"classes by size");
	for (int i = 0; i < 4; i++) {
		id[i] = grow(sizes[i]);
		ok(glk_page_at(&pool, id[i])->size == sizes[i] &&
				glk_page_at(&pool, id[i])->class == GLK_CLASS_OTHER,
			"a page of another size");
		glk_node_put(node, id[i]);
	}
	is_int((int64_t)free_bytes(GLK_CLASS_OTHER), (int64_t)MIB(152), "all are free");
	is_int((int64_t)glk_node_free(node), (int64_t)MIB(152), "as the sum says");
	glk_node_put(node, grow(SMALL));
	is_int((int64_t)glk_node_free(node), (int64_t)MIB(154),
		"which counts all classes");
	for (int i = 3; i > 1; i--)
		is_int(glk_node_take(node, GLK_CLASS_OTHER), id[i],
			"last in, first out, whatever size");
	is_int((int64_t)free_bytes(GLK_CLASS_OTHER), (int64_t)MIB(18), "the others stay");
	glk_node_put(node, id[2]);
	is_int((int64_t)glk_node_drain(node, GLK_CLASS_OTHER, MIB(130)),
		(int64_t)MIB(142), "drained page by page");
	is_int((int64_t)free_bytes(GLK_CLASS_OTHER), (int64_t)MIB(4), "one is left");
	glk_node_release(node, id[3]);
	stop("other sizes: no rule broken");
}

/* The driver kept a mapping: the page serves on, and cannot be released. */
static void test_kept(void)
{
	uint32_t id;

	start(0, 10);
	id = grow(MIB(14));
	glk_page_at(&pool, id)->kept = true;
	glk_node_put(node, id);
	is_int(glk_node_take(node, GLK_CLASS_OTHER), id, "it may lie on a list");
	glk_node_put(node, id);
	is_int((int64_t)glk_node_drain(node, GLK_CLASS_OTHER, 1), 0,
		"nothing is given back");
	is_int(glk_page_state(glk_page_at(&pool, id)), GLK_PAGE_LOST, "it is lost");
	is_int((int64_t)glk_load_relaxed(&node->lost), (int64_t)MIB(14), "and counted");
	is_int((int64_t)held(), (int64_t)MIB(14), "and held");
	is_int((int64_t)fake.calls[FAKE_RELEASE], 0, "the driver is not asked");
	is_int((int64_t)glk_node_free(node), 0, "nothing is free");
	stop("a kept mapping: no rule broken");
}

/* A source that counts what it is asked for. */
static uint64_t claimed;
static int refusal;

static int claim(struct glk_node *of, uint64_t size, bool calls)
{
	if (!calls)
		return -ENOMEM;
	claimed += size;
	return 0;
}

static void unclaim(struct glk_node *of, uint64_t size, bool calls)
{
	claimed -= size;
}

static int make(struct glk_node *of, size_t size, uint64_t *ret_handle, uint8_t *ret_able)
{
	return refusal ? refusal : glk_node_make(of, size, ret_handle, ret_able);
}

static void test_source(void)
{
	static const struct glk_source source = {
		.claim = claim, .unclaim = unclaim, .make = make};
	uint32_t page[2], none;

	start(MIB(40), 100);
	node->source = &source;
	is_int(glk_node_claim(node, MIB(2)), -ENOMEM, "a claim asks nobody");
	page[0] = grow(SMALL);
	page[1] = grow(LARGE);
	ok(page[0] && page[1], "pages of a source");
	is_int((int64_t)claimed, (int64_t)(SMALL + LARGE), "which has counted them");
	is_int((int64_t)held(), 0, "as the budget of the node has not");
	refusal = -EIO;
	is_int(glk_node_grow(node, SMALL, &none), -EIO, "one that it cannot make");
	is_int((int64_t)claimed, (int64_t)(SMALL + LARGE), "counts no more");
	refusal = 0;
	is_int(glk_node_release(node, page[1]), 0, "a page goes");
	is_int((int64_t)claimed, (int64_t)SMALL, "and is told to it");
	glk_node_release(node, page[0]);
	is_int((int64_t)claimed, 0, "as all are");
	node->source = &glk_source_driver;
	stop("nothing is broken");
}

int main(void)
{
	tap_plan_later();
	test_budget();
	test_fresh();
	test_refused();
	test_lost();
	test_list();
	test_drain();
	test_other();
	test_kept();
	test_source();
	return tap_done();
}
