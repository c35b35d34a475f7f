/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file of a trace from beginning to end. It belongs to who runs the program and is never
 * one that was there before, so a name in the configuration can destroy nothing.
 */
#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "watch/trace.h"

#include <glake/version.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

_Static_assert(
	sizeof(struct glake_trace_header) <= 4096, "the header is one page at most");
_Static_assert(sizeof(struct glake_trace_event) == 32, "as the format has it");

/* Digits of a number in a name. */
#define NUMBER_MOST 20

static glk_atomic(uint64_t) opened;
static struct glk_lock length_lock = GLK_LOCK_INIT(GLK_RANK_TRACE);

static int refuse(const struct glk_trace_options *options, const char *name, int err,
	const char *why)
{
	glk_error(err,
		err == -EACCES || err == -EPERM ? GLAKE_ERROR_PERM : GLAKE_ERROR_INVAL,
		"nothing is recorded in %s: %s", name, why);
	if (!options->midway)
		glk_warn("nothing is recorded in %s: %s", name, why);
	return err;
}

int glk_trace_name_check(const char *pattern)
{
	size_t length = strlen(pattern);

	for (const char *at = strchr(pattern, '%'); at; at = strchr(at + 2, '%')) {
		if (at[1] != 'p' && at[1] != 'n' && at[1] != '%')
			return glk_error(-EINVAL, GLAKE_ERROR_CONFIG,
				"'%s': behind %% there may be p, n or another %%",
				pattern);
		length += NUMBER_MOST;
	}
	if (length < GLK_TRACE_PATH_MAX)
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_CONFIG,
		"the name may have %d bytes at most, and with its numbers has %zu",
		GLK_TRACE_PATH_MAX - 1, length);
}

/* The name with its %p, %n and %% replaced, or as it is. 0 or -EINVAL. */
static int expand(const struct glk_trace_options *options, char *path, size_t size)
{
	struct glake_error error = {.sz = sizeof(error)};
	const char *pattern = options->file;
	size_t at = 0;

	if (options->midway && *pattern != '/')
		return refuse(options, pattern, -EINVAL, "it is no absolute path");
	if (options->midway) {
		if ((size_t)snprintf(path, size, "%s", pattern) < size)
			return 0;
		return refuse(
			options, "that file", -ENAMETOOLONG, "its name is too long");
	}

	if (glk_trace_name_check(pattern)) {
		glake_last_error(&error);
		return refuse(options, pattern, -EINVAL, error.text);
	}
	for (const char *from = pattern; *from; from++) {
		int length = 1;

		if (*from != '%')
			path[at] = *from;
		else if (*++from == 'p')
			length = snprintf(path + at, size - at, "%ld", (long)getpid());
		else if (*from == 'n')
			length = snprintf(path + at, size - at, "%llu",
				(unsigned long long)glk_add_relaxed(&opened, 1) + 1);
		else
			path[at] = '%';
		at += (size_t)length;
	}
	path[at] = '\0';
	return 0;
}

/* As many bytes as the process may write: writing more would raise a signal. */
static size_t writable(size_t size)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < size)
		size = (size_t)limit.rlim_cur;
	return size;
}

/* Whole chunks behind the header. */
static size_t fit(size_t size)
{
	return writable(size) / GLK_TRACE_CHUNK * GLK_TRACE_CHUNK;
}

/* Where the file system cannot do it in one step. */
static int lengthen(int fd, size_t end)
{
	struct stat stat;
	int err = 0;

	glk_lock(&length_lock);
	if (fstat(fd, &stat) || ((size_t)stat.st_size < end && ftruncate(fd, (off_t)end)))
		err = -errno;
	glk_unlock(&length_lock);
	return err;
}

int glk_trace_reach(const struct glk_trace *trace, size_t offset, size_t size)
{
	int err;

	if (writable(offset + size) < offset + size)
		return -EFBIG;
	do
		err = fallocate(trace->fd, 0, (off_t)offset, (off_t)size) ? -errno : 0;
	while (err == -EINTR);
	return err == -EOPNOTSUPP ? lengthen(trace->fd, offset + size) : err;
}

int glk_trace_prepare(struct glk_trace *trace, size_t offset, size_t size)
{
	if (!madvise((char *)trace->header + offset, size, MADV_POPULATE_WRITE))
		return 0;
	/* before Linux 5.14 there is room on the disk, and that is all */
	if (errno == EINVAL)
		return 0;
	return errno == EFAULT ? -ENOSPC : -errno;
}

/* Addresses for as much of the size as file system and address space grant; the file has its
 * header alone. */
static int map(struct glk_trace *trace, size_t size)
{
	void *p = MAP_FAILED;
	int err;

	for (; size >= GLK_TRACE_SIZE_MIN; size = fit(size / 2)) {
		if (ftruncate(trace->fd, (off_t)size))
			continue;
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, trace->fd, 0);
		if (p != MAP_FAILED)
			break;
	}
	if (p == MAP_FAILED)
		return errno ? -errno : -EFBIG;
	if (ftruncate(trace->fd, GLK_TRACE_HEADER)) {
		err = -errno;
		munmap(p, size);
		return err;
	}
	trace->header = p;
	trace->size = size;
	trace->chunks = (size - GLK_TRACE_HEADER) / GLK_TRACE_CHUNK;
	return 0;
}

static void describe(struct glk_trace *trace, const struct glk_trace_options *options)
{
	struct glake_trace_header *header = trace->header;
	ssize_t length;

	header->version = GLAKE_TRACE_VERSION;
	header->header_size = GLK_TRACE_HEADER;
	header->chunk_size = GLK_TRACE_CHUNK;
	header->event_size = sizeof(struct glake_trace_event);
	header->end_ns = GLAKE_TRACE_NEVER;
	header->start_ns = options->now_ns;
	header->start_realtime_ns = options->now_realtime_ns;
	header->pid = (uint64_t)getpid();
	header->devices = (uint32_t)options->devices;
	header->midway = options->midway;
	snprintf(header->backend, sizeof(header->backend), "%s", options->backend);
	snprintf(header->library, sizeof(header->library), "%s", GLAKE_VERSION_STRING);
	length = readlink("/proc/self/exe", header->program, sizeof(header->program) - 1);
	header->program[length < 0 ? 0 : length] = '\0';
	memcpy(header->magic, GLAKE_TRACE_MAGIC, sizeof(header->magic));
}

static int make(struct glk_trace *trace, const struct glk_trace_options *options)
{
	int err;

	trace->fd = open(
		trace->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (trace->fd < 0 && errno == EEXIST)
		return refuse(
			options, trace->path, -EEXIST, "that file is there already");
	if (trace->fd < 0)
		return refuse(options, trace->path, -errno, strerror(errno));
	/* for readers: as long as it is held the trace may grow */
	flock(trace->fd, LOCK_EX | LOCK_NB);
	errno = 0;
	err = map(trace, fit(options->size));
	if (err)
		goto file;
	err = glk_trace_reach(trace, 0, 4096);
	if (!err)
		err = glk_trace_prepare(trace, 0, 4096);
	if (err)
		goto mapping;
	err = glk_slab_init(&trace->lanes, sizeof(struct glk_lane), GLK_THREAD_MAX);
	if (err)
		goto mapping;
	describe(trace, options);
	return 0;
mapping:
	munmap(trace->header, trace->size);
file:
	unlink(trace->path);
	close(trace->fd);
	return refuse(options, trace->path, err, strerror(-err));
}

int glk_trace_open(const struct glk_trace_options *options, struct glk_trace **ret_trace)
{
	struct glk_trace *trace = glk_region_new(sizeof(*trace));
	int err;

	if (!trace)
		return refuse(options, options->file, -ENOMEM, "there is no memory");
	err = expand(options, trace->path, sizeof(trace->path));
	if (!err)
		err = make(trace, options);
	if (err) {
		glk_region_free(trace, sizeof(*trace));
		return err;
	}
	trace->start_ns = options->now_ns;
	glk_trace_enter(trace);
	glk_info("all requests are recorded in %s", trace->path);
	*ret_trace = trace;
	return 0;
}

const char *glk_trace_path(const struct glk_trace *trace)
{
	return trace->path;
}

void glk_trace_stop(struct glk_trace *trace, int64_t now_ns)
{
	glk_atomic(int64_t) *end = glk_trace_shared_ns(&trace->header->end_ns);
	int64_t ns = now_ns - trace->start_ns, old = glk_load_relaxed(end);

	while (ns < old && !glk_cas_weak_relaxed(end, &old, ns))
		;
	glk_store_relaxed(glk_trace_shared_ns(&trace->header->closed_ns), ns);
	flock(trace->fd, LOCK_UN);
	glk_info("%s is complete", trace->path);
}

void glk_trace_close(struct glk_trace *trace, int64_t now_ns)
{
	struct glake_trace_header *header;
	uint64_t chunks, dropped;

	if (!trace)
		return;
	glk_trace_withdraw(trace);
	header = trace->header;
	if (!header->closed_ns)
		header->closed_ns = now_ns - trace->start_ns;
	chunks = glk_load_relaxed(glk_trace_shared(&header->chunks));
	dropped = glk_load_relaxed(glk_trace_shared(&header->dropped));
	munmap(header, trace->size);
	if (chunks <= trace->chunks &&
		ftruncate(trace->fd, (off_t)((chunks + 1) * GLK_TRACE_CHUNK)))
		glk_warn("%s keeps its size: %s", trace->path, strerror(errno));
	close(trace->fd);
	glk_info("%s is complete, %llu events were dropped", trace->path,
		(unsigned long long)dropped);
	glk_slab_fini(&trace->lanes);
	glk_region_free(trace, sizeof(*trace));
}
