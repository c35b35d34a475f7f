/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Opening and closing of the check wrapper; see check.h. Pages and events go out under
 * handles of its own, so that a stale one is recognised over any backend. Streams keep the
 * driver's handles, because programs bring their own.
 */
#include "soft/check_state.h"

#include "base/log.h"
#include "driver/ops.h"

#include <errno.h>

static int check_close(struct glk_drv *drv)
{
	struct check *check = check_of(drv);
	uint32_t pages = glk_load_relaxed(&check->pages.live);
	uint32_t events = glk_load_relaxed(&check->events.live);
	uint32_t mappings = glk_load_relaxed(&check->book.mappings.live);
	uint32_t spans = check->book.span_count;
	int64_t streams = glk_load_relaxed(&check->streams);
	unsigned managed = glk_check_managed_left(check);
	const char *name = glk_drv_bottom(drv)->ops->name;
	int err, left = 0;

	if (managed) {
		left = glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the %s driver is closed with %u pieces of managed memory left",
			name, managed);
		glk_err("the %s driver is closed with %u pieces of managed memory left",
			name, managed);
	}
	if (pages || events || mappings || spans || streams) {
		left = glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the %s driver is closed with %u pages, %u mappings, %u reservations, "
			"%u events and %d streams left",
			name, pages, mappings, spans, events, (int)streams);
		glk_err("the %s driver is closed with %u pages, %u mappings, %u "
			"reservations, %u events and %d streams left",
			name, pages, mappings, spans, events, (int)streams);
	}
	err = drv->inner->ops->close(drv->inner);
	glk_book_fini(&check->book);
	glk_slab_fini(&check->events);
	glk_slab_fini(&check->pages);
	glk_lock_fini(&check->lock);
	glk_region_free(check, sizeof(*check));
	return err ? err : left;
}

/* What the rules need to know of the driver. */
static int limits_read(struct check *check)
{
	struct glk_drv *inner = check->drv.inner;
	struct glake_device info = {.sz = sizeof(info)};
	int err;

	err = inner->ops->device_count(inner, &check->gpus);
	if (!err)
		err = inner->ops->device_info(inner, 0, &info);
	if (err)
		return err;
	/* A finer driver is held to our granule, of which all pages of the library are made. */
	check->granularity =
		info.granularity > GLK_GRANULE ? info.granularity : GLK_GRANULE;
	if (!info.granularity || check->granularity % info.granularity ||
		check->granularity % GLK_GRANULE)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"driver.check counts in granules of %zu bytes, the driver in %zu",
			GLK_GRANULE, (size_t)info.granularity);
	return 0;
}

int glk_check_open(struct glk_drv *inner, struct glk_drv **ret_drv)
{
	struct check *check = glk_region_new(sizeof(*check));
	int err;

	if (!check)
		return -ENOMEM;
	check->drv = (struct glk_drv){.ops = &check->ops, .inner = inner};
	err = limits_read(check);
	if (err)
		goto free_check;
	err = glk_slab_init(&check->pages, sizeof(struct check_page), CHECK_PAGES);
	if (err)
		goto free_check;
	err = glk_slab_init(&check->events, sizeof(struct check_event), CHECK_EVENTS);
	if (err)
		goto fini_pages;
	err = glk_book_init(&check->book, CHECK_MAPPINGS);
	if (err)
		goto fini_events;
	glk_lock_init(&check->lock, GLK_RANK_DRIVER);
	check->ops = glk_drv_pass;
	check->ops.name = "check";
	check->ops.close = check_close;
	glk_check_page_ops(&check->ops);
	glk_check_map_ops(&check->ops);
	glk_check_stream_ops(&check->ops);
	glk_check_managed_ops(&check->ops);
	*ret_drv = &check->drv;
	return 0;

fini_events:
	glk_slab_fini(&check->events);
fini_pages:
	glk_slab_fini(&check->pages);
free_check:
	glk_region_free(check, sizeof(*check));
	return err;
}
