/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_STREAM_LIMBO_PARTS_H
#define GLK_UNIT_STREAM_LIMBO_PARTS_H

/* Pages of the test of limbo: mappings by number, and kernels on them. */
#include "gpu.h"
#include "unit/map/tables.h"

#define LARGE 8		  /* MiB of a page */
#define SLOTS UINT32_C(4) /* of it */

/* With slots below the mark; a mapping of number n begins at slot 4 n. */
static inline void start(struct gpu *gpu)
{
	gpu_open(gpu);
	glk_extent_raise(&gpu->map, 64 * (UINT64_C(1) << gpu->map.shift));
}

static inline void stop(struct gpu *gpu)
{
	is_int(map_verify(&gpu->map), 0, "the map agrees with itself");
	gpu_close(gpu);
}

static inline uint64_t addr_of(struct gpu *gpu, uint32_t n)
{
	return glk_slot_addr(&gpu->map, n * SLOTS);
}

static inline bool ready(const struct glk_limbo *limbo, struct gpu *gpu, uint32_t n)
{
	return glk_limbo_ready(limbo, &gpu->map, n * SLOTS, n * SLOTS + SLOTS - 1);
}

/* Mappings number `first` to `last`, of as many pages. */
static inline int unmap(
	struct glk_limbo *limbo, struct gpu *gpu, uint32_t first, uint32_t last)
{
	return glk_limbo_unmap(limbo, &gpu->map, first * SLOTS, last * SLOTS + SLOTS - 1);
}

static inline bool is_mapped(const struct gpu *gpu, uint32_t n)
{
	return glk_bits_all(gpu->map.mapped, n * SLOTS, n * SLOTS + SLOTS - 1);
}

static inline uint32_t new_page(struct gpu *gpu)
{
	uint32_t page = 0;

	if (glk_node_grow(gpu->map.node, (size_t)LARGE << 20, &page))
		tap_bail("no page");
	return page;
}

/* A page at the given mappings, readable at all of them, idle. */
static inline void map_page(struct gpu *gpu, uint32_t page, const uint32_t *at, int count)
{
	for (int i = 0; i < count; i++) {
		uint32_t slot = at[i] * SLOTS;

		if (glk_mapping_make(&gpu->map, slot, &page, 1))
			tap_bail("no mapping");
	}
	glk_page_put_back(&gpu->map, page);
}

static inline uint32_t make_page(struct gpu *gpu, const uint32_t *at, int count)
{
	uint32_t page = new_page(gpu);

	map_page(gpu, page, at, count);
	return page;
}

static inline bool is_idle(const struct gpu *gpu, uint32_t slots)
{
	return gpu->map.space->of[0].idle_slots == slots;
}

static inline void unmap_all(struct gpu *gpu, uint32_t page)
{
	struct glk_limbo limbo = GLK_LIMBO(&gpu->streams);

	glk_soft_run_all(gpu->drv);
	gpu_sync_all(gpu);
	if (glk_limbo_release(&limbo, &gpu->map, page))
		tap_bail("a page cannot be released");
}

/* A kernel on the memory of a mapping, which is freed behind it. Each has bytes of its own, for
 * two streams that wrote the same ones would race, and the device tells. One slot of it is used,
 * by number. */
static inline void use_page(struct gpu *gpu, struct glk_stream *stream, uint32_t n)
{
	uint32_t slot = n * SLOTS + n % SLOTS;
	uint64_t addr = glk_slot_addr(&gpu->map, slot) + n * 4096;
	struct glk_use use;

	glk_slots_enter(&gpu->map, slot, slot);
	if (glk_soft_work(gpu->drv, 0, stream->handle, addr, 4096, true))
		tap_bail("no kernel");
	use = glk_stream_use(stream, glk_clock_tick(&gpu->streams, stream));
	glk_slots_leave(&gpu->map, slot, slot, &use);
}

#endif
