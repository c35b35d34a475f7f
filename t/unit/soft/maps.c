/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The maps of the process: the device knows how many it has, and leaves the last ones to the
 * program, which goes on when the device stops.
 */
#include "setup.h"

#include "base/slab.h"
#include "soft/soft.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGES	  40000
#define PIECES	  200
#define HOST_PAGE ((size_t)sysconf(_SC_PAGESIZE))

static const struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};
static const struct glk_grant ungrant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_NONE};

static struct glk_drv *drv;
static uint64_t base, pages[PAGES];

static int64_t lines(void)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	int64_t lines = 0;
	char text[4096];
	ssize_t length;

	while ((length = read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < length; i++)
			lines += text[i] == '\n';
	close(fd);
	return lines;
}

static int64_t own(void)
{
	int64_t maps = -1;

	glk_soft_maps(drv, &maps);
	return maps;
}

static void open_wide(void)
{
	struct glk_conf conf = setup_conf();

	conf.soft_memory = PAGES * GRANULE;
	drv = setup_open(&conf);
	if (drv->ops->reserve(drv, 2 * PAGES * GRANULE, 0, &base))
		tap_bail("no addresses");
}

static uint64_t place_of(uint32_t page)
{
	return base + 2 * page * GRANULE;
}

static int page_take(uint32_t page)
{
	int err = drv->ops->create(drv, setup_gpu(0), GRANULE, 0, &pages[page]);

	return err ? err : drv->ops->map(drv, place_of(page), GRANULE, pages[page]);
}

static int page_show(uint32_t page)
{
	return drv->ops->set_access(drv, place_of(page), GRANULE, &grant, 1);
}

/* Every second granule gets rights, so each needs two maps. How many got them; the next one
 * was refused and is mapped without. */
static uint32_t fill(int *ret_err)
{
	uint32_t count = 0;
	int err = 0;

	while (!err && count < PAGES) {
		err = page_take(count);
		if (!err)
			err = page_show(count);
		count += !err;
	}
	*ret_err = err;
	return count;
}

static void close_wide(uint32_t count)
{
	int err = 0;

	for (uint32_t i = 0; i < count; i++) {
		err |= drv->ops->unmap(drv, place_of(i), GRANULE);
		err |= drv->ops->release(drv, pages[i]);
	}
	is_int(own(), 1, "all maps but that of the reservation are back");
	err |= drv->ops->unreserve(drv, base, 2 * PAGES * GRANULE);
	is_int(own(), 0, "and that one");
	err |= glk_drv_close(drv);
	is_int(err, 0, "nothing is left");
}

/* What a program would want: large blocks of malloc, and maps with rights of their own. */
static int pieces_refused(void)
{
	static void *block[PIECES], *map[PIECES];
	int refused = 0;

	for (int i = 0; i < PIECES; i++) {
		block[i] = malloc(GLK_MIB);
		map[i] = mmap(NULL, HOST_PAGE, i % 2 ? PROT_READ : PROT_READ | PROT_EXEC,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		refused += !block[i];
		refused += map[i] == MAP_FAILED;
	}
	for (int i = 0; i < PIECES; i++) {
		free(block[i]);
		if (map[i] != MAP_FAILED)
			munmap(map[i], HOST_PAGE);
	}
	return refused;
}

static void leaves_the_last(void)
{
	uint32_t count;
	int err;

	open_wide();
	count = fill(&err);
	is_int(err, -ENOMEM, "a device that has many maps gets no more");
	is_int(setup_error().error_class, GLAKE_ERROR_LIMIT, "  which is a limit");
	has_str(setup_error().text, "vm.max_map_count", "  whose name is said");
	has_str(setup_error().text, "left to the program", "  and why");
	is_int(pieces_refused(), 0, "the program has maps and memory");
	is_int(page_show(count), -ENOMEM, "the device still gets none");
	is_int(drv->ops->unmap(drv, place_of(0), GRANULE), 0, "what goes");
	is_int(page_show(count), 0, "gives its maps to another at once");
	is_int(drv->ops->map(drv, place_of(0), GRANULE, pages[0]), 0, "  mapped again");
	close_wide(count + 1);
}

/* A process that may open nothing: it cannot be counted, and the kernel decides. */
static void cannot_count(void)
{
	struct rlimit few, limit;
	uint32_t count;
	int err;

	open_wide();
	getrlimit(RLIMIT_NOFILE, &limit);
	few = limit;
	few.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &few);
	count = fill(&err);
	setrlimit(RLIMIT_NOFILE, &limit);
	is_int(err, -ENOMEM, "uncounted maps end too");
	has_str(setup_error().text, "vm.max_map_count", "  with a name");
	is_int(page_show(count), -ENOMEM, "can be counted again");
	has_str(setup_error().text, "left to the program", "  and are");
	close_wide(count + 1);
}

enum { GRANULES = 64, STEPS = 3000 };

/* Steps of a generator: pages of one and more granules anywhere, rights that come and go. */
static void counts_as_the_kernel(void)
{
	static uint64_t page[GRANULES];
	struct glk_conf conf = setup_conf();
	uint32_t seed = 1, at, size[GRANULES] = {0};
	uint64_t alias;
	int64_t kernel, device;
	int odd = 0;

	drv = setup_open(&conf);
	drv->ops->reserve(drv, GRANULES * GRANULE, 0, &base);
	drv->ops->reserve(drv, GRANULES * GRANULE, 0, &alias);
	kernel = lines();
	device = own();
	is_int(device, 2, "a map a reservation");
	for (int i = 0; i < STEPS; i++) {
		seed = seed * 1664525 + 1013904223;
		at = seed >> 26;
		if (!size[at]) {
			/* a place of its own, then a place that another has */
			size[at] = 1;
			drv->ops->create(drv, setup_gpu(0), GRANULE, 0, &page[at]);
			if (seed & 1)
				drv->ops->map(drv, alias + (63 - at) * GRANULE, GRANULE,
					page[at]);
			drv->ops->map(drv, base + at * GRANULE, GRANULE, page[at]);
			if (!(seed & 1))
				drv->ops->map(drv, alias + (63 - at) * GRANULE, GRANULE,
					page[at]);
		} else if (seed & 6) {
			drv->ops->set_access(drv,
				(seed & 16 ? base + at * GRANULE
					   : alias + (63 - at) * GRANULE),
				GRANULE, seed & 8 ? &grant : &ungrant, 1);
		} else {
			size[at] = 0;
			drv->ops->unmap(drv, base + at * GRANULE, GRANULE);
			drv->ops->unmap(drv, alias + (63 - at) * GRANULE, GRANULE);
			drv->ops->release(drv, page[at]);
		}
		odd += llabs(lines() - kernel - (own() - device)) > 4;
	}
	is_int(odd, 0, "as many more and less as the kernel has, after each step");
	for (at = 0; at < GRANULES; at++) {
		if (!size[at])
			continue;
		drv->ops->unmap(drv, base + at * GRANULE, GRANULE);
		drv->ops->unmap(drv, alias + (63 - at) * GRANULE, GRANULE);
		drv->ops->release(drv, page[at]);
	}
	is_int(own(), device, "none is left");
	drv->ops->unreserve(drv, base, GRANULES * GRANULE);
	drv->ops->unreserve(drv, alias, GRANULES * GRANULE);
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

static long limit_read(void)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	long limit = 0;

	if (file) {
		if (fscanf(file, "%ld", &limit) != 1)
			limit = 0;
		fclose(file);
	}
	return limit;
}

int main(void)
{
	long limit = limit_read();

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	tap_skip_all("a sanitizer needs maps of its own");
#endif
	if (tap_on_valgrind())
		tap_skip_all("valgrind needs maps of its own");
	if (limit < 65000 || limit > 70000)
		tap_skip_all("vm.max_map_count is not as usual");
	tap_plan_later();
	counts_as_the_kernel();
	leaves_the_last();
	cannot_count();
	return tap_done();
}
