/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ranges as dma-bufs. The kernel and the driver deal in pages of the host, so the buffer begins
 * at or before the range and ends at or behind it; whoever registers it has to know by how much.
 * Forgetting that is a mistake that nearly every user of dma-bufs has made once.
 */
#include "base/error.h"
#include "share/share.h"

#include <errno.h>
#include <unistd.h>

int glk_share_dmabuf(struct glk_drv *drv, uint64_t addr, size_t size, size_t handles,
	int *ret_fd, size_t *ret_offset)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t first = addr & ~(page - 1);
	uint64_t last = (addr + size + page - 1) & ~(page - 1);
	int fd, err;

	err = drv->ops->dmabuf_fd(drv, first, (size_t)(last - first), &fd);
	if (err == -EINVAL && handles > 1)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the driver makes no dma-buf over the %zu pages of this range; a block "
			"made with GLAKE_ALLOC_CONTIGUOUS has one",
			handles);
	if (err)
		return err;
	*ret_fd = fd;
	*ret_offset = (size_t)(addr - first);
	return 0;
}
