/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_PRELOAD_CUDA_MEMORY_H
#define GLK_T_PRELOAD_CUDA_MEMORY_H

/* Memory of the libcuda.so.1 for tests, and how its functions are found: a part of preload_cuda.c. */

static bool take_memory(int device, size_t size)
{
	bool fits;

	pthread_mutex_lock(&lock);
	fits = size <= FAKE_MEMORY - used[device];
	if (fits)
		used[device] += size;
	pthread_mutex_unlock(&lock);
	return fits;
}

static void give_memory(int device, size_t size)
{
	pthread_mutex_lock(&lock);
	used[device] -= size;
	pthread_mutex_unlock(&lock);
}

static size_t granted;

static size_t grants(void)
{
	return granted;
}

static void *reserve(size_t size)
{
	return mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		-1, 0);
}

CUDA(cuMemAddressReserve,
	(fake_address * address, size_t size, size_t align, fake_address hint,
		unsigned long long flags),
	(address, size, align, hint, flags))
{
	uint64_t round = 2u << 20;
	void *at = reserve(size + round);

	if (at == MAP_FAILED)
		return OUT_OF_MEMORY;
	*address = ((uintptr_t)at + round - 1) & ~(round - 1);
	return 0;
}

CUDA(cuMemAddressFree, (fake_address address, size_t size), (address, size))
{
	return munmap((void *)(uintptr_t)address, size) ? INVALID_VALUE : 0;
}

/* The GPU of a page, as its descriptor tells it to whoever imports it. */
static const char *const page_names[FAKE_GPUS] = {"page of 0", "page of 1"};

CUDA(cuMemCreate,
	(unsigned long long *page, size_t size, const int *prop,
		unsigned long long flags),
	(page, size, prop, flags))
{
	int device = prop[3];

	for (int i = 1; i < MANY; i++) {
		pthread_mutex_lock(&lock);
		if (pages[i].size) {
			pthread_mutex_unlock(&lock);
			continue;
		}
		pages[i].size = size;
		pthread_mutex_unlock(&lock);
		pages[i].device = device;
		pages[i].fd = -1;
		if (!take_memory(device, size)) {
			pages[i].size = 0;
			return OUT_OF_MEMORY;
		}
		pages[i].imported = false;
		pages[i].fd = memfd_create(page_names[device], MFD_CLOEXEC);
		if (pages[i].fd < 0 || ftruncate(pages[i].fd, (off_t)size)) {
			give_memory(device, size);
			pages[i].size = 0;
			return OUT_OF_MEMORY;
		}
		*page = (unsigned long long)i;
		return 0;
	}
	return OUT_OF_MEMORY;
}

CUDA(cuMemRelease, (unsigned long long page), (page))
{
	close(pages[page].fd);
	if (!pages[page].imported)
		give_memory(pages[page].device, pages[page].size);
	pages[page].size = 0;
	return 0;
}

CUDA(cuMemMap,
	(fake_address address, size_t size, size_t offset, unsigned long long page,
		unsigned long long flags),
	(address, size, offset, page, flags))
{
	void *at;

	if (offset || size != pages[page].size)
		return INVALID_VALUE;
	at = mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED,
		pages[page].fd, 0);
	return at == MAP_FAILED ? OUT_OF_MEMORY : 0;
}

CUDA(cuMemUnmap, (fake_address address, size_t size), (address, size))
{
	void *at = mmap((void *)(uintptr_t)address, size, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	return at == MAP_FAILED ? INVALID_VALUE : 0;
}

CUDA(cuMemSetAccess,
	(fake_address address, size_t size, const void *access, size_t number),
	(address, size, access, number))
{
	granted = number;
	return mprotect((void *)(uintptr_t)address, size, PROT_READ | PROT_WRITE)
		? INVALID_VALUE
		: 0;
}

CUDA(cuMemGetAllocationGranularity, (size_t * size, const void *prop, unsigned which),
	(size, prop, which))
{
	*size = (size_t)2 << 20;
	return 0;
}

CUDA(cuMemExportToShareableHandle,
	(int *handle, unsigned long long page, unsigned type, unsigned long long flags),
	(handle, page, type, flags))
{
	int fd = fcntl(pages[page].fd, F_DUPFD, 0);

	if (fd >= 0)
		*handle = fd;
	return fd < 0 ? OUT_OF_MEMORY : 0;
}

CUDA(cuMemImportFromShareableHandle,
	(unsigned long long *page, void *handle, unsigned type), (page, handle, type))
{
	char path[40], name[60] = "";
	int fd = (int)(intptr_t)handle;
	struct stat st;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, name, sizeof(name) - 1) < 0 || !strstr(name, "page of ") ||
		fstat(fd, &st))
		return 999; /* UNKNOWN */
	for (int i = 1; i < MANY; i++) {
		if (pages[i].size)
			continue;
		pages[i] = (struct page){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
			.device = strstr(name, page_names[1]) != NULL,
			.imported = true,
			.size = (size_t)st.st_size};
		*page = (unsigned long long)i;
		return 0;
	}
	return OUT_OF_MEMORY;
}

CUDA(cuMemGetAllocationPropertiesFromHandle, (int *prop, unsigned long long page),
	(prop, page))
{
	prop[0] = prop[2] = 1; /* pinned, and of a GPU */
	prop[3] = pages[page].device;
	return 0;
}

static struct memory *memory_at(fake_address ptr)
{
	for (int i = 0; i < MANY; i++)
		if (memory[i].base && ptr >= memory[i].base &&
			ptr - memory[i].base < memory[i].size)
			return &memory[i];
	return NULL;
}

static fake_result plain(fake_address *ret, size_t size, bool graph)
{
	void *at;

	if (!ret || !size)
		return INVALID_VALUE;
	if (!current())
		return INVALID_CONTEXT;
	if (size > FAKE_MEMORY || !take_memory(current()->device, size))
		return OUT_OF_MEMORY;
	at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < MANY; i++) {
		if (memory[i].base)
			continue;
		memory[i] = (struct memory){
			(uintptr_t)at, size, current()->device, graph, false};
		*ret = memory[i].base;
		return 0;
	}
	return OUT_OF_MEMORY;
}

static fake_result unplain(fake_address ptr)
{
	struct memory *m = ptr ? memory_at(ptr) : NULL;

	if (!ptr)
		return 0;
	if (!m || m->base != ptr)
		return INVALID_VALUE;
	munmap((void *)(uintptr_t)ptr, m->size);
	give_memory(m->device, m->managed ? 0 : m->size);
	m->base = 0;
	return 0;
}

CUDA(cuMemAlloc_v2, (fake_address * ret, size_t size), (ret, size))
{
	fake_result result = forbidden();

	return result ? result : plain(ret, size, false);
}

CUDA(cuMemAllocPitch_v2,
	(fake_address * ret, size_t *pitch, size_t width, size_t height,
		unsigned element),
	(ret, pitch, width, height, element))
{
	if (element != 4 && element != 8 && element != 16)
		return INVALID_VALUE;
	*pitch = (width + 511) & ~(size_t)511;
	return plain(ret, *pitch * height, false);
}

CUDA(cuMemFree_v2, (fake_address ptr), (ptr))
{
	return unplain(ptr);
}

CUDA(cuMemAllocAsync, (fake_address * ret, size_t size, struct CUstream_st *stream),
	(ret, size, stream))
{
	return plain(ret, size, real_stream(stream) && stream->captures);
}

CUDA(cuMemAllocAsync_ptsz, (fake_address * ret, size_t size, struct CUstream_st *stream),
	(ret, size, stream))
{
	return plain(ret, size, false);
}

CUDA(cuMemFreeAsync_ptsz, (fake_address ptr, struct CUstream_st *stream), (ptr, stream))
{
	return unplain(ptr);
}

CUDA(cuMemAllocManaged, (fake_address * ret, size_t size, unsigned flags),
	(ret, size, flags))
{
	fake_result result = plain(ret, 1, false);
	struct memory *m = result ? NULL : memory_at(*ret);

	if (result)
		return result;
	/* no memory of the GPU before it is touched, which this one's never is */
	munmap((void *)(uintptr_t)*ret, 1);
	give_memory(m->device, 1);
	*m = (struct memory){(uintptr_t)mmap(NULL, size, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
		size, m->device, false, true};
	*ret = m->base;
	return 0;
}

CUDA(cuMemFreeAsync, (fake_address ptr, struct CUstream_st *stream), (ptr, stream))
{
	return unplain(ptr);
}

CUDA(cuMemAllocFromPoolAsync,
	(fake_address * ret, size_t size, void *pool, struct CUstream_st *stream),
	(ret, size, pool, stream))
{
	return plain(ret, size, false);
}

CUDA(cuMemGetInfo_v2, (size_t * left, size_t *total), (left, total))
{
	if (!current())
		return INVALID_CONTEXT;
	*left = FAKE_MEMORY - used[current()->device];
	*total = FAKE_MEMORY;
	return 0;
}

CUDA(cuMemGetAddressRange_v2, (fake_address * base, size_t *size, fake_address ptr),
	(base, size, ptr))
{
	struct memory *m = memory_at(ptr);

	if (!m)
		return 500; /* NOT_FOUND */
	if (base)
		*base = m->base;
	if (size)
		*size = m->size;
	return 0;
}

/* Handles of the driver's own memory: one that nobody knows opens as address 77. */
struct fake_handle {
	char reserved[64];
};

CUDA(cuIpcGetMemHandle, (struct fake_handle * handle, fake_address ptr), (handle, ptr))
{
	if (!memory_at(ptr))
		return INVALID_VALUE;
	memset(handle, 0x5d, sizeof(*handle));
	return 0;
}

CUDA(cuIpcOpenMemHandle, (fake_address * ret, struct fake_handle handle, unsigned flags),
	(ret, handle, flags))
{
	*ret = 77;
	return 0;
}

CUDA(cuIpcOpenMemHandle_v2,
	(fake_address * ret, struct fake_handle handle, unsigned flags),
	(ret, handle, flags))
{
	*ret = 77;
	return 0;
}

CUDA(cuIpcCloseMemHandle, (fake_address ptr), (ptr))
{
	return ptr == 77 ? 0 : INVALID_VALUE;
}

/* Of a mapped page there is no context, no handle, and the range of the page. */
static fake_result attribute_of(void *value, unsigned which, fake_address ptr)
{
	const uintptr_t page = (uintptr_t)2 << 20;
	struct memory *m = memory_at(ptr);

	switch (which) {
	case 1:
		*(void **)value = m ? &primary[m->device] : NULL;
		return 0;
	case 7:
		*(uint64_t *)value = ptr / page;
		return 0;
	case 10:
		*(int *)value = m != NULL;
		return 0;
	case 11:
		*(fake_address *)value = m ? m->base : ptr & ~(page - 1);
		return 0;
	case 12:
		*(size_t *)value = m ? m->size : page;
		return 0;
	default:
		if (m)
			*(int *)value = m->device;
		return m ? 0 : INVALID_VALUE;
	}
}

CUDA(cuPointerGetAttribute, (void *value, unsigned which, fake_address ptr),
	(value, which, ptr))
{
	return attribute_of(value, which, ptr);
}

CUDA(cuPointerGetAttributes,
	(unsigned number, const unsigned *which, void **values, fake_address ptr),
	(number, which, values, ptr))
{
	for (unsigned i = 0; i < number; i++)
		attribute_of(values[i], which[i], ptr);
	return 0;
}

CUDA(cuMemcpyAsync,
	(fake_address to, fake_address from, size_t size, struct CUstream_st *stream),
	(to, from, size, stream))
{
	memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
	return 0;
}

CUDA(cuMemsetD32Async,
	(fake_address to, unsigned value, size_t number, struct CUstream_st *stream),
	(to, value, number, stream))
{
	for (size_t i = 0; i < number; i++)
		((unsigned *)(uintptr_t)to)[i] = value;
	return 0;
}

/* Pools are small numbers: the default ones 1 and 2, those of programs above. */
static uintptr_t pools_made = 100;

CUDA(cuDeviceGetDefaultMemPool, (void **pool, int device), (pool, device))
{
	*pool = (void *)(uintptr_t)(device + 1);
	return 0;
}

CUDA(cuDeviceSetMemPool, (int device, void *pool), (device, pool))
{
	return 0;
}

CUDA(cuMemPoolCreate, (void **pool, const void *props), (pool, props))
{
	*pool = (void *)++pools_made;
	return 0;
}

CUDA(cuMemPoolDestroy, (void *pool), (pool))
{
	return 0;
}

CUDA(cuMemPoolSetAccess, (void *pool, const void *map, size_t number),
	(pool, map, number))
{
	return 0;
}

/* Each pool has 4096 bytes, of which one request has 512, and has had no more. */
CUDA(cuMemPoolGetAttribute, (void *pool, unsigned attribute, void *value),
	(pool, attribute, value))
{
	if (attribute <= 3)
		*(int *)value = 1;
	else
		*(unsigned long long *)value = attribute <= 6 ? 4096 : 512;
	return 0;
}

CUDA(cuMemPoolSetAttribute, (void *pool, unsigned attribute, void *value),
	(pool, attribute, value))
{
	return attribute > 4 && *(unsigned long long *)value;
}

CUDA(cuMemPoolTrimTo, (void *pool, size_t keep), (pool, keep))
{
	return 0;
}

/* A newer signature of a function, which nobody knows. */
CUDA(cuMemFree_v9, (fake_address ptr, int how), (ptr, how))
{
	return how ? unplain(ptr) : INVALID_VALUE;
}

static size_t used_of(int device)
{
	return used[device];
}

static struct CUctx_st *second_of(int device)
{
	return &second[device];
}

static int pages_now(void)
{
	int now = 0;

	for (int i = 0; i < MANY; i++)
		now += pages[i].size != 0;
	return now;
}

static bool is_broken(void)
{
	return broken;
}

static void end(void)
{
	pthread_mutex_lock(&whole);
	gone = true;
	pthread_mutex_unlock(&whole);
}

static int after(void)
{
	int calls;

	pthread_mutex_lock(&lock);
	calls = calls_after;
	pthread_mutex_unlock(&lock);
	return calls;
}

__attribute__((visibility("default"))) extern const struct fake_state fake;
const struct fake_state fake = {count, release_held, used_of, second_of, pages_now,
	grants, is_broken, end, after};

#include "preload_cuda_proc.h"

#endif
