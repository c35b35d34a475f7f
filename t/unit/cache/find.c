/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where a page comes from: free, idle, new, in that order, and no wait where none is needed. */
#include "rig.h"

#define PAGE (8 * MIB)

static void prefers_free(void)
{
	struct glk_request request = {0};
	uint32_t page = 0, free_page, id;
	uint64_t block, calls;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	block = rig_alloc(&rig, PAGE, a);
	rig_free(&rig, block, a);
	rig_flush(&rig);
	if (glk_stream_get(rig.cache.streams, a, NULL, &id) ||
		glk_node_grow(rig.cache.node, GLK_CLASS_LARGE, 0, &free_page))
		tap_bail("no page");
	glk_node_put(rig.cache.node, free_page);
	request.stream = glk_stream_enter(rig.cache.streams, id);
	calls = rig_all_calls(&rig);
	is_int(glk_page_find(&rig.cache, &request, GLK_CLASS_LARGE, &page), 0, "a page");
	is_int(page, free_page, "one that is mapped nowhere goes first");
	is_int(glk_page_find(&rig.cache, &request, GLK_CLASS_LARGE, &page), 0, "another");
	ok(page != free_page && glk_map_page(&rig.cache.map, page)->aliases == 1,
		"an idle one goes second, with its mapping");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "neither needs the driver");
	glk_idle_put(&rig.cache.map, page);
	is_int(glk_page_find(&rig.cache, &request, GLK_CLASS_SMALL, &page), 0,
		"a small one");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_CREATE), 3, "is new");
	glk_node_put(rig.cache.node, page);
	glk_node_put(rig.cache.node, free_page);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Of idle pages, those that need no stream wait go first. */
static void prefers_own(void)
{
	struct CUstream_st *a, *b;
	uint64_t addr[8], wide;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"pool.budget=64MiB", "soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
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
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 0,
		"from its own pages, though those of B were idle for longer");
	rig_work(&rig, wide, 2 * PAGE, a);
	wide = rig_alloc(&rig, 2 * PAGE, a);
	ok(wide, "and one more");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 1,
		"from those of B, behind one wait for both");
	rig_work(&rig, wide, 2 * PAGE, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 6);
}

int main(void)
{
	tap_plan_later();
	prefers_free();
	prefers_own();
	return tap_done();
}
