/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What copies write is what plain memory would have, and what nobody wrote takes none of the host's. */
#include "seed.h"
#include "setup.h"

#include <string.h>
#include <sys/mman.h>

#define AREAS  4 /* the last two are of the host */
#define SIZE   (3 * GRANULE)
#define KERNEL ((size_t)4096)

static struct glk_drv *drv;
static unsigned char *area[AREAS], *model[AREAS];
static uint64_t page[2][2], state;

/* Two pages each, of two sizes. */
static void begin(void)
{
	struct glk_grant grant = setup_grant(0);

	for (int i = 0; i < 2; i++) {
		uint64_t addr = (uint64_t)area[i];

		if (drv->ops->create(drv, setup_gpu(0), GRANULE, 0, &page[i][0]) ||
			drv->ops->create(
				drv, setup_gpu(0), 2 * GRANULE, 0, &page[i][1]) ||
			drv->ops->map(drv, addr, GRANULE, page[i][0]) ||
			drv->ops->map(drv, addr + GRANULE, 2 * GRANULE, page[i][1]) ||
			drv->ops->set_access(drv, addr, SIZE, &grant, 1))
			tap_bail(setup_error().text);
	}
	for (int i = 2; i < AREAS; i++)
		area[i] = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < AREAS; i++)
		memset(model[i], 0, SIZE);
}

static void end(void)
{
	for (int i = 0; i < 2; i++) {
		drv->ops->unmap(drv, (uint64_t)area[i], SIZE);
		drv->ops->release(drv, page[i][0]);
		drv->ops->release(drv, page[i][1]);
	}
	for (int i = 2; i < AREAS; i++)
		munmap(area[i], SIZE);
}

static bool same(void)
{
	bool all = true;

	for (int i = 0; i < AREAS; i++)
		all &= !memcmp(area[i], model[i], SIZE);
	return all;
}

static int copy(int to, size_t at, int from, size_t start, size_t size)
{
	memmove(model[to] + at, model[from] + start, size);
	return drv->ops->copy(
		drv, (uint64_t)area[to] + at, (uint64_t)area[from] + start, size, NULL);
}

static void put(int to, size_t at, size_t size)
{
	memset(area[to] + at, (int)(at % 255) + 1, size);
	memset(model[to] + at, (int)(at % 255) + 1, size);
}

/* Where a stretch begins or ends: mostly where pages of the kernel do. */
static size_t some(size_t below)
{
	size_t n = seed_below(&state, below + 1);

	return seed_below(&state, 3) ? n & ~(KERNEL - 1) : n;
}

static int step(void)
{
	int to = (int)seed_below(&state, AREAS), from = (int)seed_below(&state, AREAS);
	size_t at = some(SIZE), start = some(SIZE);
	size_t room = SIZE - (at > start ? at : start), size = some(room);

	if (seed_below(&state, 2))
		return copy(to, at, from, start, size);
	put(to, at, size % (seed_below(&state, 2) ? 9 : 5 * KERNEL));
	return 0;
}

static void random_copies(void)
{
	bool right = true;

	for (int round = 0; round < 40; round++) {
		begin();
		for (int i = 0; i < 24; i++)
			right &= !step();
		right &= same();
		end();
	}
	ok(right, "random copies between pages and the host");
}

static size_t resident(int of)
{
	unsigned char there[SIZE / KERNEL];
	size_t count = 0;

	if (mincore(area[of], SIZE, there))
		tap_bail("mincore");
	for (size_t i = 0; i < sizeof(there); i++)
		count += there[i] & 1;
	return count;
}

static void holes(void)
{
	int err;

	begin();
	put(2, GRANULE, 3);
	err = copy(0, 0, 2, 0, SIZE);
	is_int(err | copy(1, 0, 0, 0, SIZE), 0,
		"a few bytes of the host go through two pages");
	/* which may be a large one */
	ok(resident(0) <= GRANULE / KERNEL && resident(1) <= GRANULE / KERNEL,
		"and take a page of the kernel in each: %zu, %zu", resident(0),
		resident(1));
	put(1, 0, SIZE);
	is_int(copy(1, 0, 0, 0, SIZE), 0, "what was full becomes nearly empty");
	put(3, 0, SIZE);
	is_int(copy(3, 0, 1, 0, SIZE), 0, "and so does memory of the host");
	ok(same(), "with all bytes");
	end();
}

int main(void)
{
	const struct glk_conf conf = setup_conf();
	uint64_t base;

	drv = setup_open(&conf);
	state = seed_thread(seed_start(), 0);
	if (drv->ops->reserve(drv, 2 * SIZE, 0, &base))
		tap_bail(setup_error().text);
	for (int i = 0; i < 2; i++)
		area[i] = (unsigned char *)base + (size_t)i * SIZE;
	for (int i = 0; i < AREAS; i++)
		model[i] = malloc(SIZE);
	tap_plan_later();
	random_copies();
	holes();
	for (int i = 0; i < AREAS; i++)
		free(model[i]);
	is_int(drv->ops->unreserve(drv, base, 2 * SIZE), 0, "all is given back");
	is_int(glk_drv_close(drv), 0, "nothing is left");
	return tap_done();
}
