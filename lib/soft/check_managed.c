/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The rules on managed memory: what is named lies in one piece, and a piece is freed once, whole. */
#include "soft/check_state.h"

#include "driver/ops.h"

#include <errno.h>

/* The piece that holds a range, or the one that begins at its address; NULL: none. Under the lock. */
static struct check_managed *piece_of(
	struct check *check, uint64_t addr, size_t size, bool begins)
{
	for (uint32_t i = 0; i < CHECK_MANAGED; i++) {
		struct check_managed *m = &check->managed[i];

		if (!m->size || m->leaving)
			continue;
		if (begins ? m->addr == addr
			   : addr >= m->addr && addr - m->addr < m->size &&
					size <= m->size - (addr - m->addr))
			return m;
	}
	return NULL;
}

static int range_rule(struct check *check, uint64_t addr, size_t size, const char *call)
{
	bool found;

	glk_lock(&check->lock);
	found = size && piece_of(check, addr, size, false);
	glk_unlock(&check->lock);
	return found
		? 0
		: glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
			  "%s rule: %#lx + %zu does not lie in one piece of managed memory",
			  call, (unsigned long)addr, size);
}

static int check_managed_alloc(
	struct glk_drv *drv, int device, size_t size, uint64_t *ret_addr)
{
	struct check *check = check_of(drv);
	struct check_managed *m = NULL;
	uint64_t addr = 0;
	int err;

	if (!size)
		return check_rule("cuMemAllocManaged", "%zu bytes", size);
	err = drv->inner->ops->managed_alloc(drv->inner, device, size, &addr);
	if (err)
		return err;
	glk_lock(&check->lock);
	for (uint32_t i = 0; i < CHECK_MANAGED && !m; i++)
		m = check->managed[i].size ? NULL : &check->managed[i];
	if (m)
		*m = (struct check_managed){.addr = addr, .size = size};
	glk_unlock(&check->lock);
	if (!m) {
		drv->inner->ops->managed_free(drv->inner, addr);
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"driver.check knows %u pieces of managed memory at most",
			CHECK_MANAGED);
	}
	*ret_addr = addr;
	return 0;
}

static int check_managed_free(struct glk_drv *drv, uint64_t addr)
{
	struct check *check = check_of(drv);
	struct check_managed *m;
	int err;

	glk_lock(&check->lock);
	m = piece_of(check, addr, 0, true);
	if (m)
		m->leaving = true;
	glk_unlock(&check->lock);
	if (!m)
		return check_rule("cuMemFree",
			"no managed memory begins at %#lx, or it was freed",
			(unsigned long)addr);
	err = drv->inner->ops->managed_free(drv->inner, addr);
	glk_lock(&check->lock);
	m->leaving = false;
	if (!err)
		m->size = 0;
	glk_unlock(&check->lock);
	return err;
}

static int check_managed_say(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_say what, struct glk_place place)
{
	int err = range_rule(check_of(drv), addr, size, "cuMemAdvise");

	return err ? err
		   : drv->inner->ops->managed_say(drv->inner, addr, size, what, place);
}

static int check_managed_prefetch(struct glk_drv *drv, uint64_t addr, size_t size,
	struct glk_place place, int device, struct CUstream_st *stream)
{
	int err = range_rule(check_of(drv), addr, size, "cuMemPrefetchAsync");

	return err ? err
		   : drv->inner->ops->managed_prefetch(
			     drv->inner, addr, size, place, device, stream);
}

static int check_managed_ask(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_ask what, struct glk_place *ret_place)
{
	int err = range_rule(check_of(drv), addr, size, "cuMemRangeGetAttribute");

	return err
		? err
		: drv->inner->ops->managed_ask(drv->inner, addr, size, what, ret_place);
}

unsigned glk_check_managed_left(const struct check *check)
{
	unsigned left = 0;

	for (uint32_t i = 0; i < CHECK_MANAGED; i++)
		left += check->managed[i].size > 0;
	return left;
}

void glk_check_managed_ops(struct glk_drv_ops *ops)
{
	ops->managed_alloc = check_managed_alloc;
	ops->managed_free = check_managed_free;
	ops->managed_say = check_managed_say;
	ops->managed_prefetch = check_managed_prefetch;
	ops->managed_ask = check_managed_ask;
}
