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
	/* what the driver says to a descriptor of something else (580.159) */
	if (result == GLK_CU_UNKNOWN)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL,
			"cuMemImportFromShareableHandle", (int)result,
			"descriptor %d is no page of a GPU", fd);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemImportFromShareableHandle", result,
			"import of descriptor %d", fd);
	*ret_page = page;
	return 0;
}

int glk_cuda_page_place(struct glk_drv *drv, uint64_t page, struct glk_place *ret_place)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	struct glk_cu_prop prop = {0};
	glk_cu_result result;
	int err;

	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemGetAllocationPropertiesFromHandle(&prop, page);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemGetAllocationPropertiesFromHandle",
			result, "page %#llx", (unsigned long long)page);
	if (prop.location.type != GLK_CU_LOCATION_DEVICE) {
		*ret_place = (struct glk_place){GLK_PLACE_HOST, prop.location.id};
		return 0;
	}
	for (int i = 0; i < cuda->gpus; i++) {
		if (cuda->gpu[i].device != prop.location.id)
			continue;
		*ret_place = (struct glk_place){GLK_PLACE_GPU, i};
		return 0;
	}
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"page %#llx is of a GPU that is not used here", (unsigned long long)page);
}

/* Through the PCI BAR, as devices reach it; without saying so where a driver knows no such
 * flag. */
static glk_cu_result range_export(
	const struct glk_cuda_lib *lib, uint64_t addr, size_t size, int *fd)
{
	glk_cu_result result;

	result = lib->cuMemGetHandleForAddressRange(
		fd, addr, size, GLK_CU_RANGE_DMABUF, GLK_CU_RANGE_PCIE);
	if (result == GLK_CU_INVALID_VALUE || result == GLK_CU_NOT_SUPPORTED)
		result = lib->cuMemGetHandleForAddressRange(
			fd, addr, size, GLK_CU_RANGE_DMABUF, 0);
	return result;
}

int glk_cuda_dmabuf_fd(struct glk_drv *drv, uint64_t addr, size_t size, int *ret_fd)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err, fd = -1;

	if (!cuda->lib->cuMemGetHandleForAddressRange)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"a driver of CUDA %d.%d makes no dma-bufs",
			cuda->lib->version / 1000, cuda->lib->version % 1000 / 10);
	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = range_export(cuda->lib, addr, size, &fd);
	glk_cuda_leave(cuda, &scope);
	if (result) {
		err = descriptors_left();
		if (err)
			return glk_error_native(err, GLAKE_ERROR_LIMIT,
				"cuMemGetHandleForAddressRange", (int)result,
				"no file descriptor is left for a dma-buf");
		return glk_cuda_fail(cuda->lib, "cuMemGetHandleForAddressRange", result,
			"a dma-buf of %zu bytes at %#llx", size,
			(unsigned long long)addr);
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret_fd = fd;
	return 0;
}

int glk_cuda_peer_can(struct glk_drv *drv, int device, int peer, bool *ret_can)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	glk_cu_result result;
	int err, can = 0;

	err = glk_cuda_alive(cuda);
	if (err)
		return err;
	if (device < 0 || device >= cuda->gpus || peer < 0 || peer >= cuda->gpus)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "GPU %d and GPU %d of %d",
			device, peer, cuda->gpus);
	result = cuda->lib->cuDeviceCanAccessPeer(
		&can, cuda->gpu[peer].device, cuda->gpu[device].device);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuDeviceCanAccessPeer", result,
			"GPU %d and memory of GPU %d", peer, device);
	*ret_can = can != 0;
	return 0;
}
