/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_WATCH_RIG_H
#define GLK_UNIT_WATCH_RIG_H

/* A folder for traces, a clock in the hands of the test, and the file as it lies on the disk. */
#include "base/slab.h"
#include "tap.h"
#include "watch/trace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START INT64_C(5000000000)

static char rig_folder[128];
static char rig_path[256];

static inline void rig_start(void)
{
	if (!mkdtemp(tap_template(rig_folder, sizeof(rig_folder), "watch")))
		tap_bail("no folder for the test");
	snprintf(rig_path, sizeof(rig_path), "%s/a.trace", rig_folder);
}

static inline void rig_end(void)
{
	unlink(rig_path);
	is_int(rmdir(rig_folder), 0, "nothing is left in the folder");
}

static inline int rig_open_at(const char *file, size_t size, struct glk_trace **ret_trace)
{
	struct glk_trace_options options = {.file = file,
		.size = size,
		.now_ns = START,
		.now_realtime_ns = INT64_C(1700000000000000000),
		.devices = 2,
		.backend = "soft"};

	return glk_trace_open(&options, ret_trace);
}

static inline struct glk_trace *rig_open(size_t size)
{
	struct glk_trace *trace = NULL;

	if (rig_open_at(rig_path, size, &trace))
		tap_bail("no trace");
	return trace;
}

/* An event with a time since the beginning, and a number to know it by. */
static inline struct glake_trace_event *rig_put(
	struct glk_trace *trace, int64_t ns, uint64_t number)
{
	return glk_trace_put(trace, START + ns,
		glake_trace_what(GLAKE_TRACE_ALLOC, 1, number + 1), number, ~number);
}

/* The file as a reader finds it. */
struct rig_file {
	struct glake_trace_header header;
	size_t size; /* of the file */
	char *bytes;
};

static inline struct rig_file rig_read(void)
{
	struct rig_file file = {0};
	struct stat stat;
	int fd = open(rig_path, O_RDONLY | O_CLOEXEC);
	ssize_t want;

	if (fd < 0 || fstat(fd, &stat))
		tap_bail("no file");
	file.size = (size_t)stat.st_size;
	if (pread(fd, &file.header, sizeof(file.header), 0) != sizeof(file.header))
		tap_bail("no header");
	want = (ssize_t)(file.header.header_size +
		file.header.chunks * file.header.chunk_size);
	file.bytes = calloc(1, (size_t)want);
	if (!file.bytes || pread(fd, file.bytes, (size_t)want, 0) > want)
		tap_bail("no chunks");
	close(fd);
	return file;
}

static inline const struct glake_trace_event *rig_event(
	const struct rig_file *file, uint64_t chunk, size_t event)
{
	return (const void *)(file->bytes + file->header.header_size +
		chunk * file->header.chunk_size + event * file->header.event_size);
}

/* Events of a chunk up to its end. */
static inline size_t rig_events(const struct rig_file *file, uint64_t chunk)
{
	size_t count = 0;

	while (count < GLK_TRACE_EVENTS && rig_event(file, chunk, count)->what)
		count++;
	return count;
}

static inline unsigned rig_kind(const struct rig_file *file, uint64_t chunk, size_t event)
{
	return glake_trace_kind(rig_event(file, chunk, event)->what);
}

static inline int rig_count_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	if (!dir)
		tap_bail("no /proc/self/fd");
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* Runs a function in a thread that begins and ends with it. */
static inline void rig_thread(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, fn, arg))
		tap_bail("no thread");
	pthread_join(thread, NULL);
}

#endif
