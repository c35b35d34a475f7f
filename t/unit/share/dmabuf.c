/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is asked of the driver for a range, and where in the buffer the range begins. */
#include "share/share.h"
#include "tap.h"

#include <errno.h>
#include <unistd.h>

#include <glake/error.h>

static struct {
	uint64_t addr;
	size_t size;
	int answer, calls;
} asked;

static int dmabuf_fd(struct glk_drv *drv, uint64_t addr, size_t size, int *ret_fd)
{
	asked.addr = addr;
	asked.size = size;
	asked.calls++;
	if (asked.answer)
		return asked.answer;
	*ret_fd = 77;
	return 0;
}

static const struct glk_drv_ops ops = {.dmabuf_fd = dmabuf_fd};
static struct glk_drv drv = {.ops = &ops};

static void range(
	uint64_t addr, size_t size, uint64_t first, size_t bytes, const char *what)
{
	size_t offset = 99;
	int fd = -1;

	is_int(glk_share_dmabuf(&drv, addr, size, 1, &fd, &offset), 0, what);
	ok(asked.addr == first && asked.size == bytes, "  in whole pages of the host");
	is_int((int64_t)offset, (int64_t)(addr - first), "  which begins there");
	is_int(fd, 77, "  a descriptor");
}

static void refused(int answer, size_t handles, const char *part)
{
	struct glake_error error = {.sz = sizeof(error)};
	size_t offset = 99;
	int fd = -1;

	asked.answer = answer;
	is_int(glk_share_dmabuf(&drv, 0x10000, 5, handles, &fd, &offset), answer, part);
	ok(fd == -1 && offset == 99, "  the outputs are left alone");
	glake_last_error(&error);
	if (handles > 1 && answer == -EINVAL)
		has_str(error.text, part, "  and the way out");
	asked.answer = 0;
}

int main(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint64_t base = 0x700000000000;

	tap_plan_later();
	range(base, 8 * page, base, 8 * page, "whole pages");
	range(base, 1, base, page, "a byte");
	range(base + page - 1, 1, base, page, "the last byte of a page");
	range(base + page - 1, 2, base, 2 * page, "two bytes on two pages");
	range(base + 100, 3 * page, base, 4 * page, "pages begun in the middle");
	range(base + 512, page - 512, base, page, "the end of a page");
	refused(-EINVAL, 1, "one handle");
	refused(-EINVAL, 4, "over the 4 pages of this range");
	refused(-EINVAL, 4, "GLAKE_ALLOC_CONTIGUOUS");
	refused(-EOPNOTSUPP, 4, "no dma-bufs");
	refused(-EMFILE, 1, "no descriptor");
	is_int(asked.calls, 11, "one call each");
	return tap_done();
}
