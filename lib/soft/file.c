/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The physical memory of the software device: one sparse memfd for all GPUs and nodes, and a
 * bitmap of its granules. A page gets its place in the file when it is first mapped, and that
 * is the offset equal to the address, if it is free. A reservation is a PROT_NONE map of the
 * file with offset = address, so for a page at its own place giving rights is one mprotect
 * (1.2 us where a new map costs 3.3 to 4.5), and neighbours fall into one map of the kernel.
 * A page whose place is taken goes into the area above all addresses, lowest first.
 *
 * Host memory is used only where somebody writes. Pages that were writable are punched out
 * when they have gone, several in one go: at the latest when 64 MiB wait or when one of their
 * granules is wanted again, so a new page always reads as zeroes.
 *
 * Cost		take, give: tens of nanoseconds; a punch 1 to 3 us
 */
#include "soft/state.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Granules below it are addresses, those above it the area of the others. */
#define AREA ((size_t)1 << (GLK_BOOK_ADDR_BITS - GLK_GRANULE_BITS))

/* The area is this many times the memory. First fit of sizes from 1 to n granules never needs
 * more than 1 + log2(n) / 2 times what is in use: 5.5 for pages up to 1 GiB (Robson, 1971). */
#define AREA_FACTOR 16

/* What pages that have gone may keep of the host's memory. */
#define DIRTY_MAX (64 * ((size_t)1 << 20) / GLK_GRANULE)

#define NONE SIZE_MAX

static size_t bitmap_bytes(const struct soft_file *file)
{
	return (file->granules + 63) / 64 * sizeof(uint64_t);
}

/* Growing a file above the limit of the process would raise a signal that ends it. */
static int grow(const struct soft_file *file)
{
	size_t size = file->granules * GLK_GRANULE;
	struct rlimit limit;

	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < size)
		return glk_error_native(-ENOMEM, GLAKE_ERROR_LIMIT, "ftruncate", EFBIG,
			"files of this process may have %llu bytes (RLIMIT_FSIZE); the "
			"sparse one of the software device has %zu bytes",
			(unsigned long long)limit.rlim_cur, size);
	if (ftruncate(file->fd, (off_t)size))
		return glk_error_native(-ENOMEM, GLAKE_ERROR_LIMIT, "ftruncate", errno,
			"no sparse file of %zu bytes", size);
	/* whoever gets a page gets this file, and could end others by taking it away */
	if (fcntl(file->fd, F_ADD_SEALS, SOFT_SEALS))
		return glk_error_native(-EIO, GLAKE_ERROR_DRIVER, "fcntl", errno,
			"the file of the software device cannot be sealed");
	return 0;
}

int glk_soft_file_open(struct soft_file *file, size_t memory_granules)
{
	size_t area;
	int err;

	*file = (struct soft_file){.fd = -1};
	if (__builtin_mul_overflow(memory_granules, (size_t)AREA_FACTOR, &area) ||
		area > AREA)
		area = AREA;
	file->granules = AREA + area;
	for (unsigned i = 0; i < SOFT_SIZES; i++)
		file->low[i] = AREA;
	file->fd = memfd_create("glake-soft", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file->fd < 0)
		return glk_error_native(-errno, GLAKE_ERROR_LIMIT, "memfd_create", errno,
			"no file for the memory of the software device");
	err = grow(file);
	if (err)
		return err;
	file->taken = glk_region_new(bitmap_bytes(file));
	return file->taken ? 0 : -ENOMEM;
}

void glk_soft_file_close(struct soft_file *file)
{
	glk_region_free(file->taken, bitmap_bytes(file));
	if (file->fd >= 0)
		close(file->fd);
	*file = (struct soft_file){.fd = -1};
}

/* The length of the run of bits equal to `value` from `at` on, `max` at most. */
static size_t run_length(const uint64_t *bits, size_t at, size_t max, bool value)
{
	size_t length = 0;

	while (length < max) {
		uint64_t word = bits[at / 64] ^ (value ? ~UINT64_C(0) : 0);
		size_t left = 64 - at % 64;

		word >>= at % 64;
		if (word) {
			length += (size_t)__builtin_ctzll(word);
			break;
		}
		length += left;
		at += left;
	}
	return length < max ? length : max;
}

static void bits_set(uint64_t *bits, size_t first, size_t count, bool value)
{
	while (count) {
		size_t shift = first % 64;
		size_t n = count < 64 - shift ? count : 64 - shift;
		uint64_t mask = (n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1)
			<< shift;

		if (value)
			bits[first / 64] |= mask;
		else
			bits[first / 64] &= ~mask;
		first += n;
		count -= n;
	}
}

static size_t find(const struct soft_file *file, size_t count, size_t from)
{
	size_t at = from, length;

	while (at < file->granules && count <= file->granules - at) {
		at += run_length(file->taken, at, file->granules - at, true);
		if (at >= file->granules || count > file->granules - at)
			return NONE;
		length = run_length(file->taken, at, count, false);
		if (length == count)
			return at;
		at += length;
	}
	return NONE;
}

/* Gives what gone pages hold back to the host. A hole that cannot be punched only costs
 * memory, so the result does not matter. */
static void punch(struct soft_file *file)
{
	for (unsigned i = 0; i < file->dirty_runs; i++)
		fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)(file->dirty[i].first * GLK_GRANULE),
			(off_t)(file->dirty[i].count * GLK_GRANULE));
	file->dirty_runs = 0;
	file->dirty_count = 0;
}

static bool is_dirty(const struct soft_file *file, size_t first, size_t count)
{
	for (unsigned i = 0; i < file->dirty_runs; i++)
		if (file->dirty[i].first < first + count &&
			first < file->dirty[i].first + file->dirty[i].count)
			return true;
	return false;
}

static void dirty_add(struct soft_file *file, size_t first, size_t count)
{
	struct soft_run *last =
		file->dirty_runs ? &file->dirty[file->dirty_runs - 1] : NULL;

	if (last && last->first + last->count == first) {
		last->count += count;
	} else if (last && first + count == last->first) {
		last->first = first;
		last->count += count;
	} else {
		file->dirty[file->dirty_runs++] = (struct soft_run){first, count};
	}
	file->dirty_count += count;
	if (file->dirty_count >= DIRTY_MAX || file->dirty_runs == SOFT_DIRTY_RUNS)
		punch(file);
}

static unsigned size_class(size_t granules)
{
	unsigned class = 63 - (unsigned)__builtin_clzll(granules);

	return class < SOFT_SIZES ? class : SOFT_SIZES - 1;
}

static size_t take_above(struct soft_file *file, size_t count)
{
	unsigned class = size_class(count);
	size_t first = find(file, count, file->low[class]);

	if (first != NONE && count == (size_t)1 << class)
		file->low[class] = first + count;
	return first;
}

int glk_soft_file_take(
	struct soft_file *file, uint64_t addr, size_t size, size_t *ret_first)
{
	size_t count = size / GLK_GRANULE, first = addr / GLK_GRANULE;

	if (run_length(file->taken, first, count, false) < count)
		first = take_above(file, count);
	if (first == NONE)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"the file of the software device has no unbroken %zu bytes",
			size);
	if (file->dirty_runs && is_dirty(file, first, count))
		punch(file);
	bits_set(file->taken, first, count, true);
	*ret_first = first;
	return 0;
}

void glk_soft_file_give(struct soft_file *file, size_t first, size_t size, bool written)
{
	size_t count = size / GLK_GRANULE;

	bits_set(file->taken, first, count, false);
	if (written)
		dirty_add(file, first, count);
	if (first < AREA)
		return;
	for (unsigned i = 0; i < SOFT_SIZES; i++) {
		size_t before = ((size_t)1 << i) - 1;
		size_t low = first - AREA > before ? first - before : AREA;

		if (low < file->low[i])
			file->low[i] = low;
	}
}

static struct flock lock_of(size_t first, size_t size, short type)
{
	return (struct flock){.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = (off_t)(first * GLK_GRANULE),
		.l_len = (off_t)size};
}

int glk_soft_file_hold(int fd, size_t first, size_t size)
{
	struct flock lock = lock_of(first, size, F_RDLCK);

	return fcntl(fd, F_OFD_SETLK, &lock);
}

bool glk_soft_file_is_held(const struct soft_file *file, size_t first, size_t size)
{
	struct flock lock = lock_of(first, size, F_WRLCK);

	return !fcntl(file->fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}
