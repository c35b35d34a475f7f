/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where the pages of a request come from, in which order, and that all are had or none. */
#include "unit/cache/rig.h"

#define PAGE (8 * MIB)

#define NEED(class, count)                                                               \
	((struct glk_need){.pages[GLK_CLASS_##class] = (count), .least = GLK_CLASS_LARGE})

static struct rig rig;
static struct CUstream_st *a, *b;

static void begin(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
}

/* A request of a stream for pages alone. */
static int get(struct CUstream_st *stream, const struct glk_need *need,
	struct glk_supply *ret_supply)
{
	struct glk_request request = {0};
	uint32_t id;
	int err;

	if (glk_stream_get(&rig.cache.streams, stream, NULL, &id))
		tap_bail("no stream");
	glk_lock(&rig.cache.lock);
	request.stream = glk_stream_enter(&rig.cache.streams, id);
	err = glk_supply_get(&rig.cache.arena, &request, need, ret_supply);
	glk_unlock(&rig.cache.lock);
	return err;
}

static void put_back(struct glk_supply *supply)
{
	glk_lock(&rig.cache.lock);
	glk_supply_put_back(&rig.cache.arena, supply);
	glk_unlock(&rig.cache.lock);
}

/* A page that is mapped nowhere. */
static uint32_t make_free(size_t size)
{
	uint32_t page;

	if (glk_node_grow(rig.cache.node, size, &page))
		tap_bail("no page");
	glk_node_put(rig.cache.node, page);
	return page;
}

static uint32_t count(const struct glk_supply *supply, enum glk_class class)
{
	uint32_t pages = 0;

	for (uint32_t id = supply->page[class]; id;
		id = glk_page_next(&rig.cache.arena.map, id))
		pages++;
	return pages;
}

/* Pages of a list that keep mappings. */
static uint32_t count_idle(uint32_t list)
{
	uint32_t count = 0;

	for (; list; list = glk_page_next(&rig.cache.arena.map, list))
		count += glk_map_page(&rig.cache.arena.map, list)->aliases > 0;
	return count;
}

static uint64_t creates(void)
{
	return rig_calls(&rig, GLAKE_CALL_CREATE);
}

/* Large blocks apart: the first `count` large pages are idle, as many again are in use. */
static void leave_idle(int count, struct CUstream_st *stream)
{
	uint64_t addr[32];

	for (int i = 0; i < 2 * count; i++)
		addr[i] = rig_alloc(&rig, PAGE, stream);
	for (int i = 0; i < 2 * count; i += 2)
		rig_free(&rig, addr[i], stream);
	rig_flush(&rig);
	is_int(rig.cache.arena.map.space->of[0].idle_slots, (uint64_t)count * 4,
		"idle pages, apart");
}

/* Pages that are mapped nowhere, then new ones up to the target, then idle ones. */
static void in_order(void)
{
	const struct glk_need need = NEED(LARGE, 5);
	struct glk_supply got;
	uint64_t calls, made;
	uint32_t page;

	begin(NULL);
	leave_idle(4, a);
	page = make_free(PAGE);
	calls = rig_all_calls(&rig);
	made = creates();
	is_int(get(a, &NEED(LARGE, 1), &got), 0, "a page");
	is_int(got.page[GLK_CLASS_LARGE], page, "one that is mapped nowhere goes first");
	is_int(rig_all_calls(&rig) - calls, 0, "without a call of the driver");
	put_back(&got);
	is_sound(&rig, "put back, the books agree");

	is_int(get(a, &need, &got), 0, "five pages");
	is_int(count(&got, GLK_CLASS_LARGE), 5, "of one size");
	is_int(creates() - made, 1, "new ones, as far as 16 MiB above what was live");
	is_int(count_idle(got.page[GLK_CLASS_LARGE]), 3,
		"the rest is idle ones, with their mappings");
	is_int(rig_calls(&rig, GLAKE_CALL_MAP), 8, "nothing is mapped");
	put_back(&got);
	is_int(rig_figures(&rig).free_pages, 6 * PAGE, "put back, all can be had");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 4);
}

/* Past the target idle pages of another size are broken up, and not without need. */
static void past_target(const char *target, uint64_t reserved, uint64_t releases)
{
	struct glk_supply got;

	begin((const char *const[]){target, NULL});
	leave_idle(16, a);
	is_int(rig_figures(&rig).reserved, 256 * MIB, "256 MiB were live");
	glk_event_poll(&rig.cache.streams); /* as the search of a place does */
	is_int(get(a, &NEED(SMALL, 12), &got), 0, "12 small pages");
	is_int(got.slots, 12, "all of them");
	is_int(rig_figures(&rig).reserved, reserved, target);
	is_int(rig_calls(&rig, GLAKE_CALL_RELEASE), releases, "large pages that went");
	put_back(&got);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 16);
}

/* Small pages in place of large ones, and none made in vain. */
static void stands_in(void)
{
	const struct glk_need need = NEED(LARGE, 2);
	struct glk_supply got;
	uint64_t made;

	begin((const char *const[]){"pool.budget=64MiB", NULL});
	rig_alloc(&rig, 40 * MIB, a);
	for (int i = 0; i < 10; i++)
		make_free(2 * MIB);
	is_int(rig_figures(&rig).reserved, 60 * MIB, "no room for a large page");
	made = creates();
	is_int(get(a, &need, &got), 0, "two are wanted");
	is_int(count(&got, GLK_CLASS_LARGE), 0, "neither is large");
	is_int(got.slots, 8, "small ones stand in");
	is_int(creates() - made, 0, "as many as there are");
	put_back(&got);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);

	begin((const char *const[]){"pool.budget=64MiB", NULL});
	rig_alloc(&rig, 40 * MIB, a);
	for (int i = 0; i < 5; i++)
		make_free(2 * MIB);
	make_free(10 * MIB);
	made = creates();
	is_int(get(a, &need, &got), 0, "two, with five small pages there");
	is_int(count(&got, GLK_CLASS_LARGE) * 4 + got.slots, 8, "not a slot too many");
	ok(rig_figures(&rig).reserved <= 64 * MIB, "the budget holds");
	put_back(&got);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);

	/* and a block on such pages */
	begin((const char *const[]){"pool.budget=64MiB", NULL});
	rig_alloc(&rig, 40 * MIB, a);
	for (int i = 0; i < 10; i++)
		make_free(2 * MIB);
	ok(rig_alloc(&rig, 16 * MIB, a), "a block on eight small pages");
	is_int(rig_figures(&rig).free_pages, 4 * MIB, "two are left");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Of idle pages, those that need no stream wait go first. */
static void prefers_own(void)
{
	uint64_t addr[8], wide;

	begin((const char *const[]){"pool.budget=64MiB", "soft.streams=stepped", NULL});
	for (int i = 0; i < 8; i++) {
		addr[i] = rig_alloc(&rig, PAGE, i % 4 ? a : b);
		rig_work(&rig, addr[i], PAGE, i % 4 ? a : b);
	}
	/* of B first; the blocks between stay, so that no place has two of them */
	rig_free(&rig, addr[0], b);
	rig_free(&rig, addr[4], b);
	rig_free(&rig, addr[2], a);
	rig_free(&rig, addr[6], a);
	wide = rig_alloc(&rig, 2 * PAGE, a);
	ok(wide, "a block for A");
	is_int(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 0,
		"from its own pages, though those of B were idle for longer");
	rig_work(&rig, wide, 2 * PAGE, a);
	wide = rig_alloc(&rig, 2 * PAGE, a);
	ok(wide, "and one more");
	is_int(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 1,
		"from those of B, behind one wait for both");
	rig_work(&rig, wide, 2 * PAGE, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 6);
}

/* For a contiguous block: one page of its size, and no more. */
static void takes_one(void)
{
	struct glk_need need = NEED(OTHER, 1);
	struct glk_supply got;
	uint64_t addr[3], calls;

	/* memory is held as the target allows, so that none is made */
	begin((const char *const[]){"pool.budget=18MiB", "map.aliases=1", NULL});
	for (int i = 0; i < 3; i++)
		addr[i] = rig_single(&rig, 6 * MIB, a);
	for (int i = 0; i < 3; i++)
		rig_free(&rig, addr[i], a);
	glk_event_poll(&rig.cache.streams);
	calls = rig_calls(&rig, GLAKE_CALL_UNMAP);
	need.other = 6 * MIB;
	need.whole = true;
	is_int(get(a, &need, &got), 0, "a page of its own");
	ok(got.page[GLK_CLASS_OTHER] && !got.page[GLK_CLASS_LARGE] && !got.slots,
		"and no others");
	is_int(rig.cache.arena.map.space->of[0].idle_slots, 6, "two are idle still");
	is_int(rig_calls(&rig, GLAKE_CALL_UNMAP) - calls, 1, "and mapped as they were");
	put_back(&got);
	is_int(rig_figures(&rig).free_pages, 18 * MIB, "put back, all can be had");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	in_order();
	past_target("policy.target=1", 272 * MIB, 1);
	past_target("policy.target=2", 280 * MIB, 0);
	stands_in();
	prefers_own();
	takes_one();
	return tap_done();
}
