/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages that leave the process and come into it, and who else may use them. A descriptor of a
 * page names the memory itself: it lives as long as any process has it open or mapped, whatever
 * becomes of the process that made it.
 */
#include "driver/cuda_state.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The driver has no word for "no descriptor left", so that is found out here. */
static int descriptors_left(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		return -errno;
	if (fd >= 0)
		close(fd);
	return 0;
}

int glk_cuda_export_fd(struct glk_drv *drv, uint64_t page, int *ret_fd)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err, fd = -1;

	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemExportToShareableHandle(&fd, page, GLK_CU_HANDLE_FD, 0);
	glk_cuda_leave(cuda, &scope);
	if (result) {
		err = descriptors_left();
		if (err)
			return glk_error_native(err, GLAKE_ERROR_LIMIT,
				"cuMemExportToShareableHandle", (int)result,
				"no file descriptor is left to export a page");
		return glk_cuda_fail(cuda->lib, "cuMemExportToShareableHandle", result,
			"export of page %#llx", (unsigned long long)page);
	}
	/* The driver opens it; a fork and exec by another thread in between may inherit it. */
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret_fd = fd;
	return 0;
}

int glk_cuda_import_fd(struct glk_drv *drv, int fd, uint64_t *ret_page)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_page page = 0;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	/* The "pointer to the handle" is the descriptor itself. */
	result = cuda->lib->cuMemImportFromShareableHandle(
		&page, (void *)(uintptr_t)(unsigned int)fd, GLK_CU_HANDLE_FD);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemImportFromShareableHandle", result,
			"import of descriptor %d", fd);
	*ret_page = page;
	return 0;
}
