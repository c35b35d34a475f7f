/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which page of the software device lies behind an address. */
#include "setup.h"

#include "driver/soft.h"

#include <errno.h>

static const struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};

static struct glk_drv *drv;
static uint64_t base;

static uint64_t page_of(uint64_t addr, size_t offset)
{
	uint64_t page = 0;
	size_t got = 77;

	if (glk_soft_physical(drv, addr, &page, &got) || got != offset)
		return 0;
	return page;
}

static uint64_t map(uint64_t addr, size_t size)
{
	uint64_t page = 0;

	if (drv->ops->create(drv, setup_gpu(0), size, 0, &page) ||
		drv->ops->map(drv, addr, size, page) ||
		drv->ops->set_access(drv, addr, size, &grant, 1))
		tap_bail(setup_error().text);
	return page;
}

static void numbers(void)
{
	uint64_t page, first, second, other = 0;
	size_t offset = 5;

	breaks(glk_soft_physical(drv, base, &other, &offset), -EINVAL,
		"nothing is mapped at");
	page = map(base, 2 * GRANULE);
	first = page_of(base, 0);
	ok(first, "a page has a number");
	ok(page_of(base + GRANULE + 77, GRANULE + 77) == first, "all over");
	is_int(drv->ops->map(drv, base + 4 * GRANULE, 2 * GRANULE, page), 0,
		"mapped twice");
	ok(page_of(base + 4 * GRANULE + 5, 5) == first, "it is the same page");
	map(base + 2 * GRANULE, GRANULE);
	second = page_of(base + 2 * GRANULE, 0);
	ok(second && second != first, "another page has another number");

	drv->ops->unmap(drv, base, 2 * GRANULE);
	drv->ops->unmap(drv, base + 4 * GRANULE, 2 * GRANULE);
	drv->ops->release(drv, page);
	is_int(glk_soft_physical(drv, base, &other, &offset), -EINVAL, "unmapped");
	page = map(base, 2 * GRANULE);
	ok(page_of(base, 0) != first && page_of(base, 0) != second,
		"no number is given again");
	other = 5;
	offset = 5;
	breaks(glk_soft_physical(drv, (uint64_t)&other, &other, &offset), -EINVAL,
		"nothing is mapped");
	is_int(glk_soft_physical(drv, UINT64_MAX, &other, &offset), -EINVAL, "nowhere");
	is_int(glk_soft_physical(drv, 0, &other, &offset), -EINVAL, "nor at 0");
	is_int(other == 5 && offset == 5, 1, "the outputs are left alone");
}

int main(void)
{
	struct glk_conf conf = setup_conf();

	tap_plan_later();
	drv = setup_open(&conf);
	if (drv->ops->reserve(drv, 8 * GRANULE, 0, &base))
		tap_bail("no addresses");
	numbers();
	tap_expect_log(1); /* pages that are left, which matter not */
	glk_drv_close(drv);
	return tap_done();
}
