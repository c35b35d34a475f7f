/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pages of a software device under several handles, and what is no page. In another process: flow/share. */
#include "setup.h"

#include "soft/soft.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define SPAN (64 * GRANULE)

static struct glk_drv *drv;
static uint64_t base;

static uint64_t page_new(struct glk_drv *of, int gpu, size_t size)
{
	uint64_t page = 0;

	if (of->ops->create(of, setup_gpu(gpu), size, GLK_PAGE_EXPORT_FD, &page))
		tap_bail(setup_error().text);
	return page;
}

static void map(struct glk_drv *of, uint64_t addr, size_t size, uint64_t page)
{
	struct glk_grant grant = setup_grant(0);

	if (of->ops->map(of, addr, size, page) ||
		of->ops->set_access(of, addr, size, &grant, 1))
		tap_bail(setup_error().text);
}

/* The compiler does not know that two addresses may be the same byte. */
static volatile char *at(uint64_t addr)
{
	return (volatile char *)(uintptr_t)addr;
}

static size_t used(struct glk_drv *of, int gpu)
{
	size_t free = 0, total = 0;

	of->ops->memory_info(of, gpu, &free, &total);
	return total - free;
}

static int export(struct glk_drv *of, uint64_t page)
{
	int fd = -1;

	if (of->ops->export_fd(of, page, &fd))
		tap_bail(setup_error().text);
	return fd;
}

static int files(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* One device: the page under two handles. */
static void here(void)
{
	uint64_t page = page_new(drv, 1, 2 * GRANULE), same = 0;
	struct glk_place place;
	int fd, before = files();
	int64_t ns[3];

	map(drv, base, 2 * GRANULE, page);
	memset((void *)(uintptr_t)base, 'a', 2 * GRANULE);
	glk_soft_clock(drv, &ns[0]);
	fd = export(drv, page);
	glk_soft_clock(drv, &ns[1]);
	ok(fcntl(fd, F_GETFD) & FD_CLOEXEC, "closed on exec");
	close(export(drv, page));
	glk_soft_clock(drv, &ns[2]);
	is_int(ns[1] - ns[0], 560000, "the first export costs");
	is_int(ns[2] - ns[1], 0, "the second next to nothing");
	is_int(drv->ops->import_fd(drv, fd, &same), 0, "imported");
	ok(same && same != page, "under a handle of its own");
	is_int(drv->ops->page_place(drv, same, &place), 0, "it has a place");
	ok(place.kind == GLK_PLACE_GPU && place.id == 1, "which is that of the page");
	close(fd);
	breaks(drv->ops->map(drv, base + 8 * GRANULE, GRANULE, same), -EINVAL,
		"2097152"); /* another size than it has */
	map(drv, base + 4 * GRANULE, 2 * GRANULE, same);
	ok(at(base + 4 * GRANULE)[5] == 'a', "what was written before is there");
	at(base + 4 * GRANULE)[2 * GRANULE - 1] = 'b';
	ok(at(base)[2 * GRANULE - 1] == 'b', "and the other way");
	is_int((int64_t)used(drv, 1), 2 * GRANULE, "the memory is there once");

	drv->ops->unmap(drv, base, 2 * GRANULE);
	drv->ops->release(drv, page);
	is_int((int64_t)used(drv, 1), 2 * GRANULE, "it stays for who imported it");
	ok(at(base + 4 * GRANULE)[5] == 'a', "with its bytes");
	drv->ops->release(drv, same);
	is_int((int64_t)used(drv, 1), 2 * GRANULE, "and mapped it");
	ok(at(base + 4 * GRANULE)[5] == 'a', "with its bytes");
	drv->ops->unmap(drv, base + 4 * GRANULE, 2 * GRANULE);
	is_int((int64_t)used(drv, 1), 0, "then it goes");
	is_int(files(), before, "and no descriptor is left");
}

/* All of the memory is exported and released: what a descriptor holds is not to be had. */
static void kept(void)
{
	uint64_t page = page_new(drv, 0, 256 * GLK_MIB), other = 0, third = 0;
	int fd = export(drv, page);

	drv->ops->release(drv, page);
	breaks(drv->ops->create(drv, setup_gpu(0), GRANULE, 0, &other), -ENOMEM,
		"0 of 268435456 bytes are free");
	is_int(drv->ops->import_fd(drv, fd, &other), 0, "a descriptor still imports it");
	close(fd);
	is_int(drv->ops->release(drv, other), 0, "released there too");
	is_int(drv->ops->create(drv, setup_gpu(0), 256 * GLK_MIB, 0, &third), 0,
		"then it can be had");
	drv->ops->release(drv, third);
}

/* An import is exported on; a page that was never mapped; pages of other GPUs and nodes. */
static void on(void)
{
	struct glk_place node = {GLK_PLACE_HOST, 1}, place;
	uint64_t page = page_new(drv, 0, GRANULE), second = 0, third = 0;
	int fd = export(drv, page), again;

	drv->ops->import_fd(drv, fd, &second);
	again = export(drv, second);
	is_int(drv->ops->import_fd(drv, again, &third), 0, "imported from an import");
	close(fd);
	close(again);
	map(drv, base, GRANULE, page);
	map(drv, base + GRANULE, GRANULE, second);
	map(drv, base + 2 * GRANULE, GRANULE, third);
	at(base)[77] = 'x';
	ok(at(base + GRANULE)[77] == 'x' && at(base + 2 * GRANULE)[77] == 'x',
		"all three are one");
	drv->ops->unmap(drv, base, 3 * GRANULE);
	drv->ops->release(drv, page);
	drv->ops->release(drv, second);
	drv->ops->release(drv, third);
	is_int((int64_t)used(drv, 0), 0, "gone");

	if (drv->ops->create(drv, node, GRANULE, GLK_PAGE_EXPORT_FD, &page))
		tap_bail(setup_error().text);
	fd = export(drv, page);
	is_int(drv->ops->import_fd(drv, fd, &second), 0, "a page of the host");
	is_int(drv->ops->page_place(drv, second, &place), 0, "has a place");
	ok(place.kind == GLK_PLACE_HOST && place.id == 1, "on its node");
	close(fd);
	drv->ops->release(drv, page);
	drv->ops->release(drv, second);
}

static void wrong(void)
{
	uint64_t page = page_new(drv, 1, GRANULE), same = 5;
	int fd = export(drv, page), before, other, pipes[2];
	struct glk_conf conf = setup_conf();
	struct rlimit limit, low;
	struct glk_drv *small;

	before = files();
	breaks(drv->ops->import_fd(drv, 250, &same), -EINVAL, "250 is no page");
	breaks(drv->ops->import_fd(drv, -1, &same), -EINVAL, "is no page");
	other = open("/dev/null", O_RDWR | O_CLOEXEC);
	breaks(drv->ops->import_fd(drv, other, &same), -EINVAL, "is no page");
	close(other);
	other = memfd_create("another", MFD_CLOEXEC);
	breaks(drv->ops->import_fd(drv, other, &same), -EINVAL, "is no page");
	close(other);
	/* a file that looks right and can be cut while it is mapped */
	other = memfd_create("glake-soft", MFD_CLOEXEC);
	if (ftruncate(other, (off_t)(UINT64_C(1) << 47)) ||
		lseek(other, lseek(fd, 0, SEEK_CUR), SEEK_SET) < 0)
		tap_bail("no file");
	breaks(drv->ops->import_fd(drv, other, &same), -EINVAL, "is no page");
	close(other);
	if (pipe2(pipes, O_CLOEXEC))
		tap_bail("no pipe");
	breaks(drv->ops->import_fd(drv, pipes[0], &same), -EINVAL, "is no page");
	close(pipes[0]);
	close(pipes[1]);
	other = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	lseek(other, 0, SEEK_SET);
	breaks(drv->ops->import_fd(drv, other, &same), -EINVAL, "is no page");
	lseek(other, (off_t)((UINT64_C(1) << 55) - 1), SEEK_SET);
	breaks(drv->ops->import_fd(drv, other, &same), -EINVAL, "is no page");
	close(other);
	close(fd);

	fd = export(drv, page);
	conf.soft_gpus = 1;
	small = setup_open(&conf);
	breaks(small->ops->import_fd(small, fd, &same), -EINVAL, "GPU 1 does not exist");
	is_int(glk_drv_close(small), 0, "nothing is left of it");

	getrlimit(RLIMIT_NOFILE, &limit);
	low = (struct rlimit){3, limit.rlim_max};
	setrlimit(RLIMIT_NOFILE, &low);
	is_int(drv->ops->import_fd(drv, fd, &same), -EMFILE, "no descriptor for it");
	is_int(setup_error().error_class, GLAKE_ERROR_LIMIT, "is a limit");
	other = -1;
	is_int(drv->ops->export_fd(drv, page, &other), -EMFILE, "nor for another export");
	setrlimit(RLIMIT_NOFILE, &limit);
	is_int((int64_t)same, 5, "the outputs are left alone");
	is_int(other, -1, "all of them");
	close(fd);
	drv->ops->release(drv, page);
	is_int((int64_t)used(drv, 1), 0, "nothing keeps the page");
	is_int(files(), before - 1, "no descriptor is left");
}

/* Who has a page can write it, and no more. */
static void sealed(void)
{
	uint64_t page = page_new(drv, 0, GRANULE);
	int fd = export(drv, page);

	is_int(ftruncate(fd, 0), -1, "a page cannot be cut");
	is_int(errno, EPERM, "by whoever has its descriptor");
	is_int(ftruncate(fd, INT64_MAX), -1, "nor the file made larger");
	is_int(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1, "nor closed to others");
	map(drv, base, GRANULE, page);
	at(base)[GRANULE - 1] = 'w';
	ok(at(base)[GRANULE - 1] == 'w', "it is there");
	drv->ops->unmap(drv, base, GRANULE);
	close(fd);
	drv->ops->release(drv, page);
}

static void peers(void)
{
	bool can = false;

	is_int(drv->ops->peer_can(drv, 0, 1, &can), 0, "GPU 1 and memory of GPU 0");
	ok(can, "is in reach");
	breaks(drv->ops->peer_can(drv, 0, 2, &can), -EINVAL, "GPU 2 does not exist");
	breaks(drv->ops->peer_can(drv, 2, 0, &can), -EINVAL, "GPU 2 does not exist");
}

int main(void)
{
	struct glk_conf conf = setup_conf();

	tap_plan_later();
	conf.soft_cost_export = 560000;
	drv = setup_open(&conf);
	if (drv->ops->reserve(drv, SPAN, 0, &base))
		tap_bail("no addresses");
	here();
	kept();
	on();
	wrong();
	sealed();
	peers();
	is_int(drv->ops->unreserve(drv, base, SPAN), 0, "the addresses go");
	is_int(glk_drv_close(drv), 0, "nothing is left");
	return tap_done();
}
