/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mappings go only when both clocks allow it, and the device is the judge. */
#include "gpu.h"

#include "driver/fault.h"

#include <errno.h>

#define LARGE 8

static struct glk_span *span_of(struct gpu *gpu)
{
	return &gpu->map.span[GLK_KIND_LARGE];
}

/* An idle page of 8 MiB, mapped at the given slots and readable at all of them. */
static uint32_t make_page(struct gpu *gpu, const uint32_t *slots, int count)
{
	struct glk_span *span = span_of(gpu);
	uint32_t page = 0;

	if (glk_node_grow(gpu->map.node, GLK_CLASS_LARGE, 0, &page))
		tap_bail("no page");
	for (int i = 0; i < count; i++) {
		if (glk_slot_attach(span, slots[i], page) ||
			glk_slot_grant(span, slots[i], slots[i]))
			tap_bail("no mapping");
	}
	glk_idle_put(&gpu->map, page);
	return page;
}

static void unmap_all(struct gpu *gpu, uint32_t page)
{
	struct glk_limbo limbo = GLK_LIMBO(&gpu->streams);

	glk_soft_run_all(gpu->drv);
	glk_clock_sync_all(&gpu->streams);
	if (glk_limbo_release(&limbo, &gpu->map, page))
		tap_bail("a page cannot be released");
}

/* A kernel on the memory of a slot, which is freed behind it. Each slot has bytes of its own,
 * for two streams that wrote the same ones would race, and the device tells. */
static void use_slot(struct gpu *gpu, struct glk_stream *stream, uint32_t slot)
{
	struct glk_span *span = span_of(gpu);
	uint64_t addr = span->base + ((uint64_t)slot << span->shift) + slot * 4096;

	glk_slot_enter(span, slot);
	if (glk_soft_work(gpu->drv, 0, stream->handle, addr, 4096, true))
		tap_bail("no kernel");
	glk_slot_leave(span, slot, glk_stream_mask(stream),
		glk_clock_tick(&gpu->streams, stream));
}

static void waits(void)
{
	struct glk_limbo limbo;
	struct glk_stream *a;
	struct glk_span *span;
	uint32_t page, slot = 0;
	uint64_t mapped;
	struct gpu gpu;

	gpu_open(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	span = span_of(&gpu);
	a = gpu_stream(&gpu);
	page = make_page(&gpu, &slot, 1);
	use_slot(&gpu, a, slot);
	glk_event_poll(&gpu.streams);
	mapped = gpu.map.mapped_bytes;
	ok(!glk_limbo_ready(&limbo, span, slot), "a kernel may still use it");
	is_int(glk_limbo_unmap(&limbo, span, slot, slot), -EAGAIN,
		"so it is not unmapped");
	is_int(gpu_class(), GLAKE_ERROR_AGAIN, "but later");
	ok(!limbo.graced, "nobody waited for readers");
	ok(glk_bit_get(span->mapped, slot) && glk_bit_get(span->usable, slot) &&
			span->slot[slot].page == page && gpu.map.mapped_bytes == mapped &&
			glk_idle_first(&gpu.map, GLK_CLASS_LARGE) == page,
		"nothing has changed");
	glk_soft_run_all(gpu.drv);
	is_int(glk_limbo_unmap(&limbo, span, slot, slot), -EAGAIN,
		"done, but nobody asked");
	glk_event_ask(&gpu.streams);
	is_int(glk_limbo_unmap(&limbo, span, slot, slot), 0, "done, and known");
	ok(limbo.graced, "behind a grace period");
	ok(!glk_bit_get(span->mapped, slot) && !gpu.map.mapped_bytes, "it is unmapped");
	is_int(glk_page_state(glk_map_page(&gpu.map, page)), GLK_PAGE_FREE,
		"its page lies on the list of the node");
	gpu_close(&gpu);
}

static void releases(void)
{
	const uint32_t slots[] = {1, 5, 7};
	struct glk_limbo limbo;
	struct glk_page *p;
	struct glk_stream *a, *b;
	uint32_t page;
	struct gpu gpu;

	gpu_open(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	page = make_page(&gpu, slots, 3);
	p = glk_map_page(&gpu.map, page);
	use_slot(&gpu, a, 1);
	use_slot(&gpu, b, 7);
	glk_event_poll(&gpu.streams);
	gpu_hold(&gpu, a, true);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	is_int(glk_limbo_release(&limbo, &gpu.map, page), -EAGAIN,
		"one of three mappings is not ready");
	ok(p->aliases == 3 && glk_idle_first(&gpu.map, GLK_CLASS_LARGE) == page &&
			glk_bit_get(span_of(&gpu)->mapped, 5) &&
			glk_bit_get(span_of(&gpu)->mapped, 7),
		"the page keeps them all");
	gpu_hold(&gpu, a, false);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	is_int(glk_limbo_release(&limbo, &gpu.map, page), 0, "now it goes");
	is_int(glk_page_state(p), GLK_PAGE_EMPTY, "back to the driver");
	is_int((int64_t)gpu.map.mapped_bytes, 0, "with all its mappings");
	is_int((int64_t)glk_load_relaxed(&gpu.map.node->held), 0, "no memory is held");
	gpu_close(&gpu);
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

	gpu_open(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	page = make_page(&gpu, slots, 2);
	use_slot(&gpu, a, 1);
	glk_event_poll(&gpu.streams);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	gpu_free(&gpu, a);
	use_slot(&gpu, b, 2);
	glk_event_poll(&gpu.streams);
	gpu_hold(&gpu, a, true);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	ok(glk_limbo_ready(&limbo, span_of(&gpu), 1) &&
			glk_limbo_ready(&limbo, span_of(&gpu), 2),
		"both mappings are ready, while other work of A goes on");
	is_int(glk_limbo_release(&limbo, &gpu.map, page), 0, "so the page goes");
	is_int((int64_t)gpu.map.mapped_bytes, 0, "with both");
	gpu_hold(&gpu, a, false);
	gpu_close(&gpu);
}

/* Work that the clock was not told of: the device says no, limbo could not have known. */
static void is_judged(void)
{
	struct glk_limbo limbo;
	struct glake_error error = {.sz = sizeof(error)};
	uint32_t page, slot = 2, other = 3;
	struct glk_span *span;
	struct glk_stream *a;
	struct gpu gpu;

	gpu_open(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	span = span_of(&gpu);
	a = gpu_stream(&gpu);
	page = make_page(&gpu, &slot, 1);
	use_slot(&gpu, a, slot);
	for (int i = 0; i < 20; i++) {
		glk_event_poll(&gpu.streams);
		if (glk_limbo_unmap(&limbo, span, slot, slot) != -EAGAIN)
			tap_bail("unmapped while a kernel was queued");
	}
	ok(true, "limbo refuses however often it is asked");
	unmap_all(&gpu, page);

	page = make_page(&gpu, &other, 1);
	use_slot(&gpu, a, other);
	tap_expect_log(1);
	is_int(glk_slot_detach(span, other), -EINVAL, "past limbo, the device refuses");
	glake_last_error(&error);
	has_str(error.text, "named by work not yet run", "and names the work");
	is_int(glk_page_state(glk_map_page(&gpu.map, page)), GLK_PAGE_LOST,
		"the page is never used again");
	glk_soft_run_all(gpu.drv);
	gpu.drv->ops->unmap(gpu.drv, span->base + ((uint64_t)other << span->shift),
		(size_t)LARGE << 20);
	gpu.drv->ops->release(gpu.drv, glk_map_page(&gpu.map, page)->handle);
	gpu_close(&gpu);
}

/* What a request mapped itself was used by nobody. */
static void undoes(void)
{
	struct glk_span *span;
	uint32_t page = 0;
	struct gpu gpu;

	gpu_open(&gpu);
	span = span_of(&gpu);
	if (glk_node_grow(gpu.map.node, GLK_CLASS_LARGE, 0, &page) ||
		glk_slot_attach(span, 4, page))
		tap_bail("no mapping");
	is_int(glk_limbo_undo(span, 4), 0, "a mapping just made is undone");
	is_int(glk_page_state(glk_map_page(&gpu.map, page)), GLK_PAGE_OWNED,
		"its page is the caller's still");
	glk_node_put(gpu.map.node, page);
	gpu_close(&gpu);
}

/* The memory of graphs: replays are work that no event tells of. */
static void is_closed(void)
{
	const uint32_t slots[] = {0, 3};
	struct glk_limbo limbo;
	struct glk_stream *a;
	struct glk_span *span;
	uint64_t held_back;
	uint32_t page;
	struct gpu gpu;

	gpu_open(&gpu);
	limbo = (struct glk_limbo){
		.streams = &gpu.streams, .closed = true, .patient = true};
	span = span_of(&gpu);
	a = gpu_stream(&gpu);
	page = make_page(&gpu, slots, 2);
	use_slot(&gpu, a, 0);
	gpu_finish(&gpu);
	held_back = gpu.streams.held_back;
	ok(!glk_limbo_ready(&limbo, span, 0) && !glk_limbo_ready(&limbo, span, 3),
		"nothing is ready, used or not");
	is_int(glk_limbo_unmap(&limbo, span, 3, 3), -EAGAIN, "no mapping goes");
	is_int(gpu_class(), GLAKE_ERROR_AGAIN, "  its class");
	is_int(glk_limbo_release(&limbo, &gpu.map, page), -EAGAIN, "nor does a page");
	is_int(glk_limbo_strip(&limbo, &gpu.map, page), -EAGAIN, "to the node neither");
	is_int((int64_t)(gpu.streams.held_back - held_back), 3, "each is counted");
	is_int((int64_t)gpu.streams.graces, 0, "nobody waited for readers");
	is_int(glk_map_page(&gpu.map, page)->aliases, 2, "both mappings stand");
	is_int(glk_idle_first(&gpu.map, GLK_CLASS_LARGE), page,
		"the page is idle as before");
	unmap_all(&gpu, page);
	gpu_close(&gpu);
}

/* Where the speed of the GPU may decide nothing, it is waited for. */
static void is_patient(void)
{
	const uint32_t slots[] = {0, 1, 2};
	struct glk_limbo limbo;
	struct glk_stream *a;
	struct glk_span *span;
	uint32_t page[3];
	struct gpu gpu;

	gpu_open(&gpu);
	limbo = (struct glk_limbo){.streams = &gpu.streams, .patient = true};
	span = span_of(&gpu);
	a = gpu_stream(&gpu);
	for (int i = 0; i < 3; i++) {
		page[i] = make_page(&gpu, &slots[i], 1);
		use_slot(&gpu, a, (uint32_t)i);
	}
	ok(glk_limbo_ready(&limbo, span, 0), "all is ready to be waited for");
	is_int(glk_limbo_unmap(&limbo, span, 0, 1), 0, "two mappings go");
	is_int(gpu_pending(&gpu, a), 0, "the work has run");
	is_int((int64_t)gpu.streams.unmapped, 2 * LARGE << 20, "as much is counted");
	is_int((int64_t)gpu.streams.graces, 1, "behind one grace period");
	is_int(glk_limbo_release(&limbo, &gpu.map, page[2]), 0, "a page goes");
	is_int((int64_t)gpu.streams.graces, 1, "behind the same");
	is_int((int64_t)gpu.streams.released, LARGE << 20, "and is counted");

	page[0] = make_page(&gpu, &slots[0], 1);
	use_slot(&gpu, a, 0);
	gpu_capture(&gpu, a);
	is_int(glk_limbo_unmap(&limbo, span, 0, 0), -EAGAIN,
		"where a capture is in the way");
	ok(gpu.streams.stuck, "that is remembered");
	ok(!glk_limbo_ready(&limbo, span, 0), "and nothing is ready any more");
	is_int(gpu_capture_end(&gpu, a->handle), 0, "the capture is whole");
	gpu.streams.stuck = false; /* the next request */
	is_int(glk_limbo_strip(&limbo, &gpu.map, page[0]), 0, "after that it goes");
	gpu_close(&gpu);
}

static void strips(void)
{
	const uint32_t slots[] = {2, 4};
	struct glk_limbo limbo;
	struct glk_stream *a;
	uint32_t page, got;
	struct gpu gpu;

	gpu_open(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	page = make_page(&gpu, slots, 2);
	use_slot(&gpu, a, 2);
	glk_event_poll(&gpu.streams);
	is_int(glk_limbo_strip(&limbo, &gpu.map, page), -EAGAIN,
		"a page that may be in use");
	is_int(glk_map_page(&gpu.map, page)->aliases, 2, "keeps its mappings");
	gpu_finish(&gpu);
	is_int(glk_limbo_strip(&limbo, &gpu.map, page), 0, "one that is not");
	is_int((int64_t)gpu.map.mapped_bytes, 0, "loses both");
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
		struct glk_span *span = span_of(&gpu);

		if (glk_bit_get(span->mapped, slots[i]))
			gpu.drv->ops->unmap(gpu.drv,
				span->base + ((uint64_t)slots[i] << span->shift),
				(size_t)LARGE << 20);
	}
	gpu.drv->ops->release(gpu.drv, glk_map_page(&gpu.map, page)->handle);
	gpu_close(&gpu);
}

/* All of a map at once. */
static void empties(void)
{
	const uint32_t slots[] = {0, 2, 5};
	uint32_t page[3], taken = 0;
	struct glk_limbo limbo;
	struct glk_stream *a;
	struct gpu gpu;

	gpu_open(&gpu);
	limbo = (struct glk_limbo)GLK_LIMBO(&gpu.streams);
	a = gpu_stream(&gpu);
	span_of(&gpu)->ahead = 8; /* slots that may be mapped, without extents */
	is_int(glk_limbo_empty(&limbo, &gpu.map), 0, "a map with nothing in it");
	limbo.graced = false;
	page[0] = make_page(&gpu, slots, 2);
	page[1] = make_page(&gpu, &slots[2], 1);
	use_slot(&gpu, a, 2);
	gpu_capture(&gpu, a);
	is_int(glk_limbo_empty(&limbo, &gpu.map), -EBUSY, "while a graph is captured");
	is_int(gpu_class(), GLAKE_ERROR_CAPTURE, "  its class");
	is_int((int64_t)gpu.map.mapped_bytes, 3 * LARGE << 20, "nothing goes");
	is_int(gpu_capture_end(&gpu, a->handle), 0, "the capture is whole");
	glk_fault_set(gpu.drv, "device_sync:nth=1:err=EIO");
	is_int(glk_limbo_empty(&limbo, &gpu.map), -EIO,
		"nor when the GPU cannot be waited for");
	is_int((int64_t)gpu.map.mapped_bytes, 3 * LARGE << 20, "for whatever reason");
	glk_fault_set(gpu.drv, "off");
	is_int(glk_limbo_empty(&limbo, &gpu.map), 0, "else the work is waited for");
	is_int((int64_t)gpu.map.mapped_bytes, 0, "all mappings are gone");
	is_int((int64_t)gpu.streams.graces, 2, "behind one grace period each time");
	for (int i = 0; i < 2; i++)
		is_int(glk_page_state(glk_map_page(&gpu.map, page[i])), GLK_PAGE_FREE,
			"a page is the node's");

	/* the driver keeps one mapping of three: the others go all the same */
	for (int i = 0; i < 3; i++) {
		taken = glk_node_take(gpu.map.node, GLK_CLASS_LARGE);
		if (!taken && glk_node_grow(gpu.map.node, GLK_CLASS_LARGE, 0, &taken))
			tap_bail("no page");
		page[i] = taken;
		if (glk_slot_attach(span_of(&gpu), slots[i], taken) ||
			glk_slot_grant(span_of(&gpu), slots[i], slots[i]))
			tap_bail("no mapping");
		glk_idle_put(&gpu.map, taken);
	}
	glk_fault_set(gpu.drv, "unmap:nth=2:err=EIO");
	tap_expect_log(1);
	is_int(glk_limbo_empty(&limbo, &gpu.map), -EIO,
		"a mapping that cannot be removed");
	glk_fault_set(gpu.drv, "off");
	is_int(glk_page_state(glk_map_page(&gpu.map, page[0])), GLK_PAGE_FREE,
		"one page");
	is_int(glk_page_state(glk_map_page(&gpu.map, page[1])), GLK_PAGE_LOST,
		"one lost");
	is_int(glk_page_state(glk_map_page(&gpu.map, page[2])), GLK_PAGE_FREE,
		"and another");
	gpu.drv->ops->unmap(gpu.drv,
		span_of(&gpu)->base + ((uint64_t)slots[1] << span_of(&gpu)->shift),
		(size_t)LARGE << 20);
	gpu.drv->ops->release(gpu.drv, glk_map_page(&gpu.map, page[1])->handle);
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	waits();
	releases();
	releases_whole();
	is_judged();
	undoes();
	is_closed();
	is_patient();
	strips();
	empties();
	return tap_done();
}
