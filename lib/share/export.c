/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages as file descriptors. One that cannot be had takes the others back, so that the caller
 * has all of a block or nothing; and what is written to the caller's list is written at the end.
 */
#include "base/error.h"
#include "share/share.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int is_able(glk_share_page_fn page, void *of, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (page(of, i).able & GLK_PAGE_EXPORT_FD)
			continue;
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"page %zu of the block was not made to be exported: pool.export is no, the "
			"block lies in memory of the host or of another GPU, or the GPU or its "
			"driver does not allow it",
			i);
	}
	return 0;
}

static int open_all(struct glk_drv *drv, glk_share_page_fn page, void *of, size_t first,
	size_t count, int *ret_fds)
{
	size_t done = 0;
	int err = 0;

	while (done < count && !err) {
		err = drv->ops->export_fd(
			drv, page(of, first + done).handle, &ret_fds[done]);
		done += !err;
	}
	while (err && done)
		close(ret_fds[--done]);
	return err;
}

int glk_share_list(
	glk_share_page_fn page, void *of, size_t count, struct glake_piece *ret_pieces)
{
	int err = is_able(page, of, count);

	for (size_t i = 0; i < count && !err; i++) {
		struct glk_share_page p = page(of, i);

		ret_pieces[i] = (struct glake_piece){.fd = -1,
			.page_size = p.size,
			.offset = p.offset,
			.length = p.length,
			.number = p.number};
	}
	return err;
}

int glk_share_fds(struct glk_drv *drv, glk_share_page_fn page, void *of, size_t first,
	size_t count, int *ret_fds)
{
	int *fds = glk_region_new(count * sizeof(*fds)), err;

	if (!fds)
		return -ENOMEM;
	err = open_all(drv, page, of, first, count, fds);
	if (!err)
		memcpy(ret_fds, fds, count * sizeof(*fds));
	glk_region_free(fds, count * sizeof(*fds));
	return err;
}

int glk_share_export(struct glk_drv *drv, glk_share_page_fn page, void *of, size_t count,
	struct glake_piece *ret_pieces)
{
	int *fds, err;

	err = is_able(page, of, count);
	if (err)
		return err;
	fds = glk_region_new(count * sizeof(*fds));
	if (!fds)
		return -ENOMEM;
	err = open_all(drv, page, of, 0, count, fds);
	for (size_t i = 0; i < count && !err; i++) {
		struct glk_share_page p = page(of, i);

		ret_pieces[i] = (struct glake_piece){.fd = fds[i],
			.page_size = p.size,
			.offset = p.offset,
			.length = p.length};
	}
	glk_region_free(fds, count * sizeof(*fds));
	return err;
}
