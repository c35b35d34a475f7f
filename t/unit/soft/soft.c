/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The memory of the software device is real: aliases, rights, limits, and nothing kept. */
#include "setup.h"

#include "base/clock.h"
#include "base/slab.h"
#include "soft/soft.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static const struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};

/* Whether a touch of this byte kills the process that does it. */
static bool faults(uint64_t addr, bool write)
{
	volatile char *p = (volatile char *)addr;
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		struct rlimit none = {0};

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGSEGV, SIG_DFL);
		if (write)
			*p = 1;
		else
			(void)*p;
		_exit(0);
	}
	waitpid(child, &status, 0);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

/* A page mapped with rights, for tests that need no more. */
static uint64_t page_at(struct glk_drv *drv, uint64_t addr, size_t size)
{
	uint64_t page = 0;

	if (drv->ops->create(drv, setup_gpu(0), size, 0, &page) ||
		drv->ops->map(drv, addr, size, page) ||
		drv->ops->set_access(drv, addr, size, &grant, 1))
		tap_bail(setup_error().text);
	return page;
}

static void aliases(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *drv = setup_open(&conf);
	struct glk_grant read = {{GLK_PLACE_GPU, 1}, GLK_ACCESS_READ};
	uint64_t base = 0, page, other;
	volatile uint32_t *one, *two; /* the compiler knows of no aliases */

	drv->ops->reserve(drv, 8 * GRANULE, 0, &base);
	page = page_at(drv, base, GRANULE);
	one = (uint32_t *)base;
	two = (uint32_t *)(base + 4 * GRANULE);
	is_int(drv->ops->map(drv, (uint64_t)two, GRANULE, page), 0, "a second mapping");
	ok(faults((uint64_t)two, false), "has no rights yet");
	is_int(drv->ops->set_access(drv, (uint64_t)two, GRANULE, &read, 1), 0,
		"may be read");
	one[5] = 12345;
	is_int(two[5], 12345, "and shows what the first one wrote");
	ok(faults((uint64_t)two, true), "but may not be written");
	is_int(drv->ops->set_access(drv, (uint64_t)two, GRANULE, &grant, 1), 0,
		"until it is");
	two[6] = 54321;
	is_int(one[6], 54321, "shown by the first");

	is_int(drv->ops->unmap(drv, base, GRANULE), 0, "the first mapping goes");
	ok(faults(base, false), "and cannot be touched");
	is_int(two[5], 12345, "the second stays");
	other = page_at(drv, base, GRANULE);
	is_int(one[5], 0, "a new page in the old place is not the old one");
	one[5] = 1;
	is_int(two[5], 12345, "nor does it change it");
	is_int(drv->ops->release(drv, page), 0, "released while mapped");
	is_int(two[5], 12345, "it keeps its contents");
	is_int(drv->ops->unmap(drv, (uint64_t)two, GRANULE), 0,
		"until the last mapping goes");
	ok(faults((uint64_t)two, false), "which faults too");
	drv->ops->unmap(drv, base, GRANULE);
	drv->ops->release(drv, other);
	drv->ops->unreserve(drv, base, 8 * GRANULE);
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

/* Pages of one size in a row, mapped in another order, with rights in one call. */
static void shuffled(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *drv = setup_open(&conf);
	uint64_t base = 0, pages[16];
	bool right = true;

	drv->ops->reserve(drv, 64 * GRANULE, 0, &base);
	for (unsigned i = 0; i < 16; i++) {
		pages[i] = page_at(drv, base + i * GRANULE, GRANULE);
		*(uint32_t *)(base + i * GRANULE) = i;
	}
	for (unsigned i = 0; i < 16; i++)
		drv->ops->map(drv, base + (32 + i) * GRANULE, GRANULE, pages[i * 5 % 16]);
	is_int(drv->ops->set_access(drv, base + 32 * GRANULE, 16 * GRANULE, &grant, 1), 0,
		"rights for sixteen mappings at once");
	for (unsigned i = 0; i < 16; i++)
		right &= *(uint32_t *)(base + (32 + i) * GRANULE) == i * 5 % 16;
	ok(right, "each shows its page");
	is_int(drv->ops->unmap(drv, base, 16 * GRANULE), 0,
		"the first sixteen go at once");
	ok(faults(base + 7 * GRANULE, false), "and fault");
	is_int(drv->ops->unmap(drv, base + 32 * GRANULE, 8 * GRANULE), 0,
		"and eight more");
	is_int(*(uint32_t *)(base + 41 * GRANULE), 9 * 5 % 16, "their neighbours stay");
	drv->ops->unmap(drv, base + 40 * GRANULE, 8 * GRANULE);
	for (unsigned i = 0; i < 16; i++)
		drv->ops->release(drv, pages[i]);
	drv->ops->unreserve(drv, base, 64 * GRANULE);
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

/* Grants of one place leave those of others alone, and taking the last one takes the rights. */
static void grants(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *drv = setup_open(&conf);
	struct glk_grant both[2] = {{{GLK_PLACE_GPU, 1}, GLK_ACCESS_READ},
		{{GLK_PLACE_HOST, 0}, GLK_ACCESS_READ}};
	struct glk_grant none = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_NONE};
	uint64_t base = 0, page;

	drv->ops->reserve(drv, GRANULE, 0, &base);
	page = page_at(drv, base, GRANULE);
	is_int(drv->ops->set_access(drv, base, GRANULE, both, 2), 0, "two more may read");
	is_int(glk_soft_work(drv, 0, NULL, base, 64, true), 0, "GPU 0 may still write");
	is_int(glk_soft_work(drv, 1, NULL, base, 64, false), 0, "GPU 1 may read");
	breaks(glk_soft_work(drv, 1, NULL, base, 64, true), -EINVAL,
		"GPU 1 may not write");
	is_int(drv->ops->set_access(drv, base, GRANULE, &none, 1), 0,
		"GPU 0 loses its rights");
	breaks(glk_soft_work(drv, 0, NULL, base, 64, false), -EINVAL,
		"GPU 0 may not read");
	ok(faults(base, true), "the process may not write");
	ok(!faults(base, false), "but read");
	both[0].access = GLK_ACCESS_NONE;
	both[1].access = GLK_ACCESS_NONE;
	is_int(drv->ops->set_access(drv, base, GRANULE, both, 2), 0, "all lose theirs");
	ok(faults(base, false), "the process may not read");
	is_int(drv->ops->set_access(drv, base, GRANULE, &grant, 1), 0,
		"and get them back");
	ok(!faults(base, true), "the process may write");
	drv->ops->unmap(drv, base, GRANULE);
	drv->ops->release(drv, page);
	drv->ops->unreserve(drv, base, GRANULE);
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

static uint64_t resident(struct glk_drv *drv)
{
	uint64_t bytes = 0;

	is_int(glk_soft_resident(drv, &bytes), 0, "resident bytes");
	return bytes;
}

/* Pages take host memory where they are written, and give it back. */
static void gives_back(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *drv = setup_open(&conf);
	uint64_t base = 0, pages[2], left = 0, total;

	drv->ops->reserve(drv, 128 * GRANULE, 0, &base);
	pages[0] = page_at(drv, base, 64 * GRANULE);
	is_int((int64_t)resident(drv), 0, "a page that nobody wrote takes nothing");
	memset((void *)base, 1, 33 * GRANULE);
	ok(resident(drv) >= 33 * GRANULE, "66 MiB written take 66 MiB");
	drv->ops->unmap(drv, base, 64 * GRANULE);
	ok(resident(drv) >= 33 * GRANULE, "also when unmapped");
	is_int(drv->ops->release(drv, pages[0]), 0, "released");
	is_int((int64_t)resident(drv), 0, "they are given back");

	pages[0] = page_at(drv, base, GRANULE);
	*(uint64_t *)base = 77;
	drv->ops->unmap(drv, base, GRANULE);
	drv->ops->release(drv, pages[0]);
	pages[1] = page_at(drv, base, 2 * GRANULE);
	is_int((int64_t) * (uint64_t *)base, 0, "a new page shows nothing of an old one");
	drv->ops->memory_info(drv, 0, &left, &total);
	is_int((int64_t)left, (int64_t)(total - 2 * GRANULE), "only live pages count");
	drv->ops->unmap(drv, base, 2 * GRANULE);
	drv->ops->release(drv, pages[1]);
	drv->ops->memory_info(drv, 0, &left, &total);
	is_int((int64_t)left, (int64_t)total, "none does in the end");
	drv->ops->unreserve(drv, base, 128 * GRANULE);
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

/* Pages of mixed sizes whose own place is taken: they go elsewhere and stay apart. */
static void displaced(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *drv = setup_open(&conf);
	uint64_t base = 0, pages[32];
	size_t size[32], at = 0;
	bool apart = true;

	drv->ops->reserve(drv, 512 * GRANULE, 0, &base);
	for (unsigned round = 0; round < 2; round++) {
		/* The second round maps new pages where the first ones were at home. */
		for (unsigned i = 0; i < 16; i++) {
			unsigned n = round * 16 + i;

			size[n] = (1 + (i * 7 + round * 3) % 5) * GRANULE;
			pages[n] = page_at(drv, base, size[n]);
			*(uint32_t *)base = n;
			*(uint32_t *)(base + size[n] - 4) = n;
			drv->ops->unmap(drv, base, size[n]);
		}
	}
	for (unsigned n = 0; n < 32; n++) {
		apart &= !drv->ops->map(drv, base + at, size[n], pages[n]);
		at += size[n];
	}
	apart &= !drv->ops->set_access(drv, base, at, &grant, 1);
	at = 0;
	for (unsigned n = 0; n < 32; n++) {
		apart &= *(uint32_t *)(base + at) == n;
		at += size[n];
		apart &= *(uint32_t *)(base + at - 4) == n;
	}
	ok(apart, "32 pages that were all mapped at one address are 32 pages");
	drv->ops->unmap(drv, base, at);
	for (unsigned n = 0; n < 32; n++)
		drv->ops->release(drv, pages[n]);
	drv->ops->unreserve(drv, base, 512 * GRANULE);
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

static void reserves_much(void)
{
	struct glk_conf conf = setup_conf();
	uint64_t before = glk_region_bytes(), base = 0, page;
	struct glk_drv *drv = setup_open(&conf);
	size_t size = SANITIZED ? 256 * GLK_GIB : 64 * GLK_TIB;

	if (tap_on_valgrind())
		size = 16 * GLK_GIB;
	is_int(drv->ops->reserve(drv, size, 0, &base), 0, "addresses without end");
	page = page_at(drv, base + size - GRANULE, GRANULE);
	*(char *)(base + size - 1) = 1;
	is_int(*(char *)(base + size - 1), 1, "can be used to the last byte");
	drv->ops->unmap(drv, base + size - GRANULE, GRANULE);
	drv->ops->release(drv, page);
	is_int(drv->ops->unreserve(drv, base, size), 0, "and go");
	is_int(glk_drv_close(drv), 0, "nothing is left");
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "of the tables neither");
}

static void keeps_time(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *drv = setup_open(&conf);
	uint64_t base = 0, pages[4];
	int64_t start = 0, now = 0;

	glk_soft_clock(drv, &start);
	drv->ops->reserve(drv, 4 * GRANULE, 0, &base);
	for (unsigned i = 0; i < 4; i++) {
		drv->ops->create(drv, setup_gpu(0), GRANULE, 0, &pages[i]);
		drv->ops->map(drv, base + i * GRANULE, GRANULE, pages[i]);
	}
	is_int(glk_soft_clock(drv, &now), 0, "the modelled clock");
	is_int(now - start, 2700 + 4 * (8100 + 600), "four creates and maps");
	start = now;
	drv->ops->set_access(drv, base, 4 * GRANULE, &grant, 1);
	glk_soft_clock(drv, &now);
	is_int(now - start, 4 * 22600, "rights cost the sum of the mappings");
	start = now;
	drv->ops->unmap(drv, base, 4 * GRANULE);
	glk_soft_clock(drv, &now);
	is_int(now - start, 4 * 15600, "and so does unmap");
	start = now;
	for (unsigned i = 0; i < 4; i++)
		drv->ops->release(drv, pages[i]);
	drv->ops->unreserve(drv, base, 4 * GRANULE);
	glk_soft_clock(drv, &now);
	is_int(now - start, 4 * 9800 + 2700, "and the release of each");
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

int main(void)
{
	tap_plan_later();
	aliases();
	shuffled();
	grants();
	gives_back();
	displaced();
	reserves_much();
	keeps_time();
	return tap_done();
}
