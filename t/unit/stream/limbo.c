/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mappings go only when the clock allows it, and the device is the judge. */
#include "limbo_parts.h"

#include "soft/fault.h"

#include <errno.h>

static void waits(void)
{
	struct glk_limbo limbo;
	struct glk_stream *a;
	uint32_t page, slot = 0;
	uint64_t mapped;
	struct gpu gpu;

	start(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	page = make_page(&gpu, &slot, 1);
	use_page(&gpu, a, slot);
	glk_event_poll(&gpu.streams);
	mapped = gpu.map.space->mapped_bytes;
	ok(!ready(&limbo, &gpu, slot), "a kernel may still use it");
	is_int(unmap(&limbo, &gpu, slot, slot), -EAGAIN, "so it is not unmapped");
	is_int(gpu_class(), 0, "but later, without a record");
	ok(is_mapped(&gpu, slot) && glk_bit_get(gpu.map.usable, slot) &&
			gpu.map.page[slot] == page &&
			gpu.map.space->mapped_bytes == mapped && is_idle(&gpu, SLOTS),
		"nothing has changed");
	glk_soft_run_all(gpu.drv);
	is_int(unmap(&limbo, &gpu, slot, slot), -EAGAIN, "done, but nobody asked");
	glk_event_ask(&gpu.streams);
	is_int(unmap(&limbo, &gpu, slot, slot), 0, "done, and known");
	ok(!is_mapped(&gpu, slot) && !gpu.map.space->mapped_bytes, "it is unmapped");
	is_int((int64_t)gpu.streams.unmapped, LARGE << 20, "as much is counted");
	is_int((int64_t)gpu.streams.held_back, 2, "and how often it was not");
	is_int(glk_page_state(glk_map_page(&gpu.map, page)), GLK_PAGE_FREE,
		"its page lies on the list of the node");
	stop(&gpu);
}

static void releases(void)
{
	const uint32_t slots[] = {1, 5, 7};
	struct glk_limbo limbo;
	struct glk_page *p;
	struct glk_stream *a, *b;
	uint32_t page;
	struct gpu gpu;

	start(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	page = make_page(&gpu, slots, 3);
	p = glk_map_page(&gpu.map, page);
	use_page(&gpu, a, 1);
	use_page(&gpu, b, 7);
	glk_event_poll(&gpu.streams);
	gpu_hold(&gpu, a, true);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	is_int(glk_limbo_release(&limbo, &gpu.map, page), -EAGAIN,
		"one of three mappings is not ready");
	is_int(gpu_class(), 0, "without a record");
	ok(p->aliases == 3 && is_idle(&gpu, SLOTS) && is_mapped(&gpu, 5) &&
			is_mapped(&gpu, 7),
		"the page keeps them all");
	gpu_hold(&gpu, a, false);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	is_int(glk_limbo_release(&limbo, &gpu.map, page), 0, "now it goes");
	is_int(glk_page_state(p), GLK_PAGE_EMPTY, "back to the driver");
	is_int((int64_t)gpu.map.space->mapped_bytes, 0, "with all its mappings");
	is_int((int64_t)glk_load_relaxed(&gpu.map.node->held), 0, "no memory is held");

	/* the driver does not take the memory back */
	page = make_page(&gpu, slots, 3);
	glk_fault_set(gpu.drv, "release:nth=1:err=EIO");
	is_int(glk_limbo_release(&limbo, &gpu.map, page), -EIO,
		"a page that cannot be released");
	glk_fault_set(gpu.drv, "off");
	is_int(glk_page_state(p), GLK_PAGE_LOST, "it is lost");
	is_int((int64_t)gpu.map.space->mapped_bytes, 0, "and mapped nowhere");
	is_int((int64_t)gpu.streams.released, LARGE << 20, "nor counted as released");
	gpu.drv->ops->release(gpu.drv, p->handle);
	stop(&gpu);
}

/* Slots of one mapping that were left at different times, by different streams. */
static void asks_all_slots(void)
{
	uint32_t page, at = 3;
	struct glk_limbo limbo;
	struct glk_stream *a, *b;
	struct glk_use use;
	struct gpu gpu;

	start(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	page = make_page(&gpu, &at, 1);
	for (uint32_t i = 0; i < SLOTS; i += 3) {
		struct glk_stream *stream = i ? b : a;

		glk_slots_enter(&gpu.map, at * SLOTS + i, at * SLOTS + i);
		if (glk_soft_work(gpu.drv, 0, stream->handle,
			    glk_slot_addr(&gpu.map, at * SLOTS + i), 4096, true))
			tap_bail("no kernel");
		use = gpu_free(&gpu, stream);
		glk_slots_leave(&gpu.map, at * SLOTS + i, at * SLOTS + i, &use);
	}
	glk_event_poll(&gpu.streams);
	gpu_hold(&gpu, b, true);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	ok(!ready(&limbo, &gpu, at), "the last slot is in use");
	ok(glk_limbo_ready(&limbo, &gpu.map, at * SLOTS, at * SLOTS + 2),
		"the others are not");
	is_int(unmap(&limbo, &gpu, at, at), -EAGAIN, "so the mapping stays");
	is_int(glk_limbo_release(&limbo, &gpu.map, page), -EAGAIN, "and the page");
	gpu_hold(&gpu, b, false);
	gpu_finish(&gpu);
	is_int(glk_limbo_release(&limbo, &gpu.map, page), 0, "until that is done too");
	stop(&gpu);
}

/* A mapping whose page is in use elsewhere goes by its own work. */
static void unmaps_stale(void)
{
	const uint32_t at[] = {1, 4};
	struct glk_use none = {0};
	struct glk_limbo limbo;
	struct glk_stream *a;
	uint32_t page, extent;
	struct gpu gpu;

	start(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	page = make_page(&gpu, at, 2);
	use_page(&gpu, a, 1);
	glk_event_poll(&gpu.streams);
	if (glk_extent_carve(&gpu.map, gpu.map.last, glk_slot_bytes(&gpu.map) * 17,
		    glk_slot_bytes(&gpu.map), &extent))
		tap_bail("no addresses");
	glk_lookup_enter(&gpu.map, extent);
	glk_slots_enter(&gpu.map, 17, 17);
	ok(!glk_bit_get(gpu.map.usable, SLOTS), "in use elsewhere, a mapping is stale");
	is_int(unmap(&limbo, &gpu, 1, 1), -EAGAIN, "work of its own holds it");
	gpu_finish(&gpu);
	is_int(unmap(&limbo, &gpu, 1, 1), 0, "and nothing else");
	ok(is_mapped(&gpu, 4) && glk_map_page(&gpu.map, page)->aliases == 1,
		"the other one stands");
	is_int(map_verify(&gpu.map), 0, "the map agrees with itself");
	glk_lookup_leave(&gpu.map, extent);
	glk_slots_leave(&gpu.map, 17, 17, &none);
	glk_extent_give_back(&gpu.map, extent);
	is_int(glk_limbo_release(&limbo, &gpu.map, page), 0, "and goes with the page");
	stop(&gpu);
}

/*
 * Each mapping answers for its own work, and the page, once it has one mapping, for all of it:
 * coarser than the two together, and no reason to stop half way.
 */
static void releases_whole(void)
{
	const uint32_t slots[] = {1, 2};
	struct glk_limbo limbo;
	struct glk_stream *a, *b;
	uint32_t page;
	struct gpu gpu;

	start(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	page = make_page(&gpu, slots, 2);
	use_page(&gpu, a, 1);
	glk_event_poll(&gpu.streams);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	gpu_free(&gpu, a);
	use_page(&gpu, b, 2);
	glk_event_poll(&gpu.streams);
	gpu_hold(&gpu, a, true);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	ok(ready(&limbo, &gpu, 1) && ready(&limbo, &gpu, 2),
		"both mappings are ready, while other work of A goes on");
	is_int(glk_limbo_release(&limbo, &gpu.map, page), 0, "so the page goes");
	is_int((int64_t)gpu.map.space->mapped_bytes, 0, "with both");
	gpu_hold(&gpu, a, false);
	stop(&gpu);
}

/* Work that the clock was not told of: the device says no, limbo could not have known. */
static void is_judged(void)
{
	struct glk_limbo limbo;
	struct glake_error error = {.sz = sizeof(error)};
	uint32_t page, slot = 2, other = 3;
	struct glk_stream *a;
	struct gpu gpu;

	start(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	page = make_page(&gpu, &slot, 1);
	use_page(&gpu, a, slot);
	for (int i = 0; i < 20; i++) {
		glk_event_poll(&gpu.streams);
		if (unmap(&limbo, &gpu, slot, slot) != -EAGAIN)
			tap_bail("unmapped while a kernel was queued");
	}
	ok(true, "limbo refuses however often it is asked");
	unmap_all(&gpu, page);

	page = make_page(&gpu, &other, 1);
	use_page(&gpu, a, other);
	tap_expect_log(1);
	glk_page_take(&gpu.map, page);
	is_int(glk_limbo_undo(&gpu.map, other * SLOTS), -EINVAL,
		"past limbo, the device refuses");
	glake_last_error(&error);
	has_str(error.text, "named by work not yet run", "and names the work");
	is_int(glk_page_state(glk_map_page(&gpu.map, page)), GLK_PAGE_LOST,
		"the page is never used again");
	glk_soft_run_all(gpu.drv);
	gpu.drv->ops->unmap(gpu.drv, addr_of(&gpu, other), (size_t)LARGE << 20);
	gpu.drv->ops->release(gpu.drv, glk_map_page(&gpu.map, page)->handle);
	stop(&gpu);
}

/* What a request mapped itself was used by nobody. */
static void undoes(void)
{
	struct glk_use none = {0};
	uint32_t page = 0;
	struct gpu gpu;

	start(&gpu);
	page = new_page(&gpu);
	/* by a request whose extent lies there */
	glk_slots_enter(&gpu.map, 16, 17);
	if (glk_mapping_make(&gpu.map, 16, &page, 1))
		tap_bail("no mapping");
	is_int(glk_limbo_undo(&gpu.map, 16), 0, "a mapping just made is undone");
	is_int((int64_t)gpu.map.space->mapped_bytes, 0, "nothing is mapped");
	is_int(glk_page_state(glk_map_page(&gpu.map, page)), GLK_PAGE_OWNED,
		"its page is the caller's still");
	glk_slots_leave(&gpu.map, 16, 17, &none);
	ok(is_idle(&gpu, 0), "nothing is idle");
	glk_node_put(gpu.map.node, page);
	stop(&gpu);
}

/* The memory of graphs: replays are work that no event tells of. */
static void is_closed(void)
{
	const uint32_t slots[] = {0, 3};
	struct glk_limbo limbo;
	struct glk_stream *a;
	uint64_t held_back;
	uint32_t page;
	struct gpu gpu;

	start(&gpu);
	limbo = (struct glk_limbo){
		.streams = &gpu.streams, .closed = true, .patient = true};
	a = gpu_stream(&gpu);
	page = make_page(&gpu, slots, 2);
	use_page(&gpu, a, 0);
	gpu_finish(&gpu);
	held_back = gpu.streams.held_back;
	ok(!ready(&limbo, &gpu, 0) && !ready(&limbo, &gpu, 3),
		"nothing is ready, used or not");
	is_int(unmap(&limbo, &gpu, 3, 3), -EAGAIN, "no mapping goes");
	is_int(glk_limbo_release(&limbo, &gpu.map, page), -EAGAIN, "nor does a page");
	is_int(glk_limbo_strip(&limbo, &gpu.map, page), -EAGAIN, "to the node neither");
	is_int((int64_t)(gpu.streams.held_back - held_back), 3, "each is counted");
	is_int(glk_map_page(&gpu.map, page)->aliases, 2, "both mappings stand");
	ok(is_idle(&gpu, SLOTS), "the page is idle as before");
	unmap_all(&gpu, page);
	stop(&gpu);
}

/* Where the speed of the GPU may decide nothing, it is waited for. */
static void is_patient(void)
{
	const uint32_t slots[] = {0, 1, 2};
	struct glk_limbo limbo;
	struct glk_stream *a;
	uint32_t page[3];
	struct gpu gpu;

	start(&gpu);
	limbo = (struct glk_limbo){.streams = &gpu.streams, .patient = true};
	a = gpu_stream(&gpu);
	for (int i = 0; i < 3; i++) {
		page[i] = make_page(&gpu, &slots[i], 1);
		use_page(&gpu, a, (uint32_t)i);
	}
	ok(ready(&limbo, &gpu, 0), "all is ready to be waited for");
	is_int(unmap(&limbo, &gpu, 0, 1), 0, "two mappings go");
	is_int(gpu_pending(&gpu, a), 0, "the work has run");
	is_int((int64_t)gpu.streams.unmapped, 2 * LARGE << 20, "as much is counted");
	is_int(glk_limbo_release(&limbo, &gpu.map, page[2]), 0, "a page goes");
	is_int((int64_t)gpu.streams.released, LARGE << 20, "and is counted");

	page[0] = make_page(&gpu, &slots[0], 1);
	use_page(&gpu, a, 0);
	gpu_capture(&gpu, a);
	is_int(unmap(&limbo, &gpu, 0, 0), -EAGAIN, "where a capture is in the way");
	ok(gpu.streams.stuck, "that is remembered");
	ok(!ready(&limbo, &gpu, 0), "and nothing is ready any more");
	is_int(gpu_capture_end(&gpu, a->handle), 0, "the capture is whole");
	gpu.streams.stuck = false; /* the next request */
	is_int(glk_limbo_strip(&limbo, &gpu.map, page[0]), 0, "after that it goes");
	stop(&gpu);
}

static void strips(void)
{
	const uint32_t slots[] = {2, 4};
	struct glk_limbo limbo;
	struct glk_stream *a;
	uint32_t page, got;
	struct gpu gpu;

	start(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	page = make_page(&gpu, slots, 2);
	use_page(&gpu, a, 2);
	glk_event_poll(&gpu.streams);
	is_int(glk_limbo_strip(&limbo, &gpu.map, page), -EAGAIN,
		"a page that may be in use");
	is_int(glk_map_page(&gpu.map, page)->aliases, 2, "keeps its mappings");
	gpu_finish(&gpu);
	is_int(glk_limbo_strip(&limbo, &gpu.map, page), 0, "one that is not");
	is_int((int64_t)gpu.map.space->mapped_bytes, 0, "loses both");
	is_int((int64_t)gpu.streams.unmapped, 2 * LARGE << 20, "which are counted");
	is_int((int64_t)gpu.streams.released, 0, "nothing is released");
	is_int(glk_page_state(glk_map_page(&gpu.map, page)), GLK_PAGE_FREE,
		"it is the node's");
	got = glk_node_take(gpu.map.node, GLK_CLASS_LARGE);
	is_int(got, page, "where the next one finds it");
	glk_node_put(gpu.map.node, got);

	/* the driver keeps one of two mappings */
	page = make_page(&gpu, slots, 2);
	glk_fault_set(gpu.drv, "unmap:nth=2:err=EIO");
	tap_expect_log(1);
	is_int(glk_limbo_strip(&limbo, &gpu.map, page), -EIO,
		"a mapping that cannot be removed");
	glk_fault_set(gpu.drv, "off");
	is_int(glk_page_state(glk_map_page(&gpu.map, page)), GLK_PAGE_LOST,
		"its page is lost");
	for (int i = 0; i < 2; i++) {
		if (is_mapped(&gpu, slots[i]))
			gpu.drv->ops->unmap(
				gpu.drv, addr_of(&gpu, slots[i]), (size_t)LARGE << 20);
	}
	gpu.drv->ops->release(gpu.drv, glk_map_page(&gpu.map, page)->handle);
	stop(&gpu);
}

static int empty(struct gpu *gpu)
{
	struct glk_limbo limbo = GLK_LIMBO(&gpu->streams);
	int err;

	glk_lock(&gpu->lock);
	err = glk_limbo_empty(&limbo, &gpu->map);
	glk_unlock(&gpu->lock);
	return err;
}

/* All of a map at once. */
static void empties(void)
{
	const uint32_t slots[] = {0, 2, 5};
	uint32_t page[3], taken = 0;
	struct glk_stream *a;
	struct gpu gpu;

	start(&gpu);
	a = gpu_stream(&gpu);
	is_int(empty(&gpu), 0, "a map with nothing in it");
	page[0] = make_page(&gpu, slots, 2);
	page[1] = make_page(&gpu, &slots[2], 1);
	use_page(&gpu, a, 2);
	gpu_capture(&gpu, a);
	is_int(empty(&gpu), -EBUSY, "while a graph is captured");
	is_int(gpu_class(), GLAKE_ERROR_CAPTURE, "  its class");
	is_int((int64_t)gpu.map.space->mapped_bytes, 3 * LARGE << 20, "nothing goes");
	is_int(gpu_capture_end(&gpu, a->handle), 0, "the capture is whole");
	glk_fault_set(gpu.drv, "device_sync:nth=1:err=EIO");
	is_int(empty(&gpu), -EIO, "nor when the GPU cannot be waited for");
	is_int((int64_t)gpu.map.space->mapped_bytes, 3 * LARGE << 20,
		"for whatever reason");
	glk_fault_set(gpu.drv, "off");
	is_int(empty(&gpu), 0, "else the work is waited for");
	is_int((int64_t)gpu.map.space->mapped_bytes, 0, "all mappings are gone");
	for (int i = 0; i < 2; i++)
		is_int(glk_page_state(glk_map_page(&gpu.map, page[i])), GLK_PAGE_FREE,
			"a page is the node's");

	/* the driver keeps two mappings of three: the other goes all the same */
	for (int i = 0; i < 3; i++) {
		taken = glk_node_take(gpu.map.node, GLK_CLASS_LARGE);
		page[i] = taken ? taken : new_page(&gpu);
		map_page(&gpu, page[i], &slots[i], 1);
	}
	glk_fault_set(gpu.drv, "unmap:nth=1:err=EIO;unmap:nth=2:err=EPERM");
	tap_expect_log(2);
	is_int(empty(&gpu), -EIO, "why the first mapping cannot be removed");
	glk_fault_set(gpu.drv, "off");
	for (int i = 0; i < 2; i++) {
		is_int(glk_page_state(glk_map_page(&gpu.map, page[i])), GLK_PAGE_LOST,
			"a page is lost");
		gpu.drv->ops->unmap(
			gpu.drv, addr_of(&gpu, slots[i]), (size_t)LARGE << 20);
		gpu.drv->ops->release(gpu.drv, glk_map_page(&gpu.map, page[i])->handle);
	}
	is_int(glk_page_state(glk_map_page(&gpu.map, page[2])), GLK_PAGE_FREE,
		"and another is not");
	stop(&gpu);
}

int main(void)
{
	tap_plan_later();
	waits();
	releases();
	asks_all_slots();
	unmaps_stale();
	releases_whole();
	is_judged();
	undoes();
	is_closed();
	is_patient();
	strips();
	empties();
	return tap_done();
}
