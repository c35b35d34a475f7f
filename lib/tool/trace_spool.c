/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A trace of our own format that comes packed or through a pipe. Its chunks are read in the
 * order of their times and not in that of the file, so all of it is written to a file without
 * a name first. Most of what a program that was killed has left is nothing at all, and takes
 * no room there either.
 */
#include "tool/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK ((size_t)64 << 10)

struct spool {
	int fd;
	off_t at;
	char block[BLOCK];
};

static bool is_empty(const char *bytes, size_t size)
{
	return !bytes[0] && !memcmp(bytes, bytes + 1, size - 1);
}

static int store(struct spool *spool, const char *bytes, size_t size)
{
	off_t end = spool->at + (off_t)size;
	ssize_t put;

	if (size && is_empty(bytes, size)) {
		spool->at = end;
		return ftruncate(spool->fd, end) ? -errno : 0;
	}
	while (size) {
		put = pwrite(spool->fd, bytes, size, spool->at);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		bytes += put;
		size -= (size_t)put;
		spool->at += put;
	}
	return 0;
}

/* In $TMPDIR, else where the C library makes such files. */
static int open_spool(void)
{
	const char *folder = getenv("TMPDIR");
	FILE *file;
	int fd = -1;

	if (folder)
		fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	file = tmpfile();
	if (!file)
		return -errno;
	fd = fcntl(fileno(file), F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		fd = -errno;
	fclose(file);
	return fd;
}

static int fill(
	struct spool *spool, struct trace_source *source, char *message, size_t size)
{
	size_t got = 1;
	int err = 0;

	while (got) {
		err = trace_source_read(source, spool->block, BLOCK, message, size, &got);
		if (err)
			return err;
		err = store(spool, spool->block, got);
		if (err) {
			snprintf(message, size, "no room to unpack it: %s",
				strerror(-err));
			return -EIO;
		}
	}
	return 0;
}

int trace_spool(struct trace_source *source, const char *begin, size_t begin_size,
	char *message, size_t size, int *ret_fd)
{
	struct spool *spool = malloc(sizeof(*spool));
	int err = -ENOMEM;

	if (!spool)
		goto fail;
	spool->at = 0;
	spool->fd = open_spool();
	err = spool->fd;
	if (err < 0)
		goto fail;
	err = store(spool, begin, begin_size);
	if (err)
		goto close;
	err = fill(spool, source, message, size);
	if (!err || err == -EBADMSG || err == -ENODATA)
		*ret_fd = spool->fd;
	else
		close(spool->fd);
	free(spool);
	return err;
close:
	close(spool->fd);
fail:
	free(spool);
	snprintf(message, size, "no room to unpack it: %s", strerror(-err));
	return err;
}
