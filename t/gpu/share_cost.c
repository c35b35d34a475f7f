/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What it costs to make pages for file descriptors, RDMA and fabric handles, and to export and
 * import them.
 */
#include "gpu.h"

#define MIB  ((size_t)1 << 20)
#define GPU0 ((struct glk_place){GLK_PLACE_GPU, 0})

static struct glk_drv *drv;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static const struct way {
	uint32_t flags;
	const char *name;
} ways[] = {
	{0, "none"},
	{GLK_PAGE_EXPORT_FD, "fd"},
	{GLK_PAGE_RDMA, "rdma"},
	{GLK_PAGE_EXPORT_FD | GLK_PAGE_RDMA, "fd, rdma"},
	{GLK_PAGE_EXPORT_FD | GLK_PAGE_RDMA | GLK_PAGE_FABRIC, "fd, rdma, fabric"},
};

#define WAYS  (sizeof(ways) / sizeof(*ways))
#define PAGES 64

struct costs {
	double create, map, access, unmap, release;
};

static bool measure(uint64_t addr, size_t size, uint32_t flags, struct costs *best)
{
	struct glk_grant grant = {GPU0, GLK_ACCESS_WRITE};
	uint64_t page[PAGES];
	struct costs c;
	double t[6];

	t[0] = now_us();
	for (int i = 0; i < PAGES; i++) {
		if (!drv->ops->create(drv, GPU0, size, flags, &page[i]))
			continue;
		while (i--)
			drv->ops->release(drv, page[i]);
		return false;
	}
	t[1] = now_us();
	for (size_t i = 0; i < PAGES; i++)
		must(drv->ops->map(drv, addr + i * size, size, page[i]), "map");
	t[2] = now_us();
	for (size_t i = 0; i < PAGES; i++)
		must(drv->ops->set_access(drv, addr + i * size, size, &grant, 1),
			"set access");
	t[3] = now_us();
	for (size_t i = 0; i < PAGES; i++)
		must(drv->ops->unmap(drv, addr + i * size, size), "unmap");
	t[4] = now_us();
	for (size_t i = 0; i < PAGES; i++)
		must(drv->ops->release(drv, page[i]), "release");
	t[5] = now_us();
	c = (struct costs){
		t[1] - t[0], t[2] - t[1], t[3] - t[2], t[4] - t[3], t[5] - t[4]};
#define LESS(f) best->f = best->f > 0 && best->f < c.f ? best->f : c.f
	LESS(create);
	LESS(map);
	LESS(access);
	LESS(unmap);
	LESS(release);
#undef LESS
	return true;
}

/* Rounds by turns, so that what changes with time changes all; the best of each. */
static void creation(void)
{
	static const size_t sizes[] = {2 * MIB, 8 * MIB, 64 * MIB};
	uint64_t addr = 0;

	must(drv->ops->reserve(drv, PAGES * 64 * MIB, 64 * MIB, &addr), "no addresses");
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		struct costs best[WAYS] = {{0}};
		bool granted[WAYS];

		for (int round = 0; round < 8; round++) {
			for (size_t w = 0; w < WAYS; w++)
				granted[w] =
					measure(addr, sizes[s], ways[w].flags, &best[w]);
		}
		for (size_t w = 0; w < WAYS; w++) {
			if (!granted[w]) {
				tap_note("%2zu MiB, %s: refused", sizes[s] >> 20,
					ways[w].name);
				continue;
			}
			tap_note(
				"%2zu MiB, %-16s: create %5.1f map %4.1f access %5.1f unmap "
				"%5.1f release %5.1f us a page",
				sizes[s] >> 20, ways[w].name, best[w].create / PAGES,
				best[w].map / PAGES, best[w].access / PAGES,
				best[w].unmap / PAGES, best[w].release / PAGES);
		}
		ok(granted[0] && granted[1], "pages of %zu MiB, with and without",
			sizes[s] >> 20);
	}
	is_done(drv->ops->unreserve(drv, addr, PAGES * 64 * MIB), "addresses go back");
}

static void time_exports(const uint64_t *pages, int *fds, const char *what)
{
	double start, first = 0, sum = 0;

	for (int i = 0; i < PAGES; i++) {
		start = now_us();
		must(drv->ops->export_fd(drv, pages[i], &fds[i]), "export");
		sum += now_us() - start;
		first = i ? first : sum;
	}
	tap_note("%s: the first page %.0f us, the others %.1f us each", what, first,
		(sum - first) / (PAGES - 1));
}

/* What leaving and coming costs a page: the first time, while it is out, when it was out. */
static void leaving(size_t size)
{
	uint64_t pages[PAGES], same[PAGES];
	int fds[PAGES], again[PAGES];
	double start;

	for (int i = 0; i < PAGES; i++)
		must(drv->ops->create(drv, GPU0, size, GLK_PAGE_EXPORT_FD, &pages[i]),
			"create");
	tap_note("pages of %zu MiB", size >> 20);
	time_exports(pages, fds, "  export");
	time_exports(pages, again, "  export while they are out");
	start = now_us();
	for (int i = 0; i < PAGES; i++)
		must(drv->ops->import_fd(drv, fds[i], &same[i]), "import");
	tap_note("  import: %.1f us a page", (now_us() - start) / PAGES);
	start = now_us();
	for (int i = 0; i < PAGES; i++)
		drv->ops->release(drv, same[i]);
	for (int i = 0; i < PAGES; i++)
		close(fds[i]);
	for (int i = 0; i < PAGES; i++)
		close(again[i]);
	tap_note("  release and close: %.1f us a page", (now_us() - start) / PAGES);
	time_exports(pages, fds, "  export when none was out any more");
	for (int i = 0; i < PAGES; i++) {
		close(fds[i]);
		must(drv->ops->release(drv, pages[i]), "release");
	}
}

int main(void)
{
	size_t before = 0, after = 0, total = 0;

	drv = gpu_open();
	tap_plan_later();
	must(drv->ops->memory_info(drv, 0, &before, &total), "no memory info");
	creation();
	leaving(2 * MIB);
	leaving(8 * MIB);
	leaving(64 * MIB);
	must(drv->ops->memory_info(drv, 0, &after, &total), "no memory info");
	/* the driver keeps what it made for itself */
	ok(after + 16 * MIB >= before, "%zu of %zu MiB are back", after >> 20,
		before >> 20);
	is_done(drv->ops->close(drv), "close");
	return tap_done();
}
