/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The bytes of a trace. Traces are kept packed, and a file's name says little about what is
 * inside, so its first bytes decide: xz, gzip, zstd, or plain text. The program of that name
 * unpacks it, which also knows archives of several, one behind the other, as appending to a log
 * makes them.
 *
 * An archive that ends before its own end mark, or whose checksum is wrong, is an error that
 * comes after all the bytes that could be unpacked: the caller decides whether what came
 * before is of use.
 */
#include "tool/trace.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define INPUT_SIZE ((size_t)64 << 10)

struct trace_source {
	int fd;	    /* of the file, or of what comes from the program */
	int broken; /* -errno, told once the bytes before it have been */
	const struct trace_packer *packer; /* NULL: it is plain */
	pid_t pid;	   /* of the program; 0: it has ended, or there is none */
	int said;	   /* its standard error */
	size_t at, filled; /* unread input is [at, filled) */
	char input[INPUT_SIZE];
};

static ssize_t read_some(int fd, char *buffer, size_t size)
{
	ssize_t got;

	do
		got = read(fd, buffer, size);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

/* The first bytes, also from a pipe that gives one at a time. */
static int fill_magic(struct trace_source *source)
{
	ssize_t got = 1;

	while (source->filled < TRACE_MAGIC_MAX && got > 0) {
		got = read_some(source->fd, source->input + source->filled,
			INPUT_SIZE - source->filled);
		source->filled += got > 0 ? (size_t)got : 0;
	}
	return got < 0 ? (int)got : 0;
}

static void close_file(int fd)
{
	if (fd != STDIN_FILENO)
		close(fd);
}

/* A file that the program can read from the beginning of the archive: what comes from a pipe is put into one first. */
static int rewind_file(struct trace_source *source, char *message, size_t size)
{
	int spool, err;

	if (lseek(source->fd, -(off_t)source->filled, SEEK_CUR) >= 0)
		return 0;
	err = trace_spool(source, "", 0, message, size, &spool);
	if (err)
		return err;
	close_file(source->fd);
	source->fd = spool;
	return lseek(spool, 0, SEEK_SET) ? -errno : 0;
}

/* From here on the bytes are those that the program unpacks. */
static int start_program(struct trace_source *source, const struct trace_packer *packer,
	char *message, size_t size)
{
	int out[2], err = rewind_file(source, message, size);

	if (err)
		return err;
	source->said = memfd_create("glakectl", MFD_CLOEXEC);
	if (source->said < 0)
		return -errno;
	if (pipe2(out, O_CLOEXEC))
		return -errno;
	err = trace_packer_start(
		packer, "-qdc", source->fd, out[1], source->said, &source->pid);
	close(out[1]);
	if (err) {
		close(out[0]);
		snprintf(message, size, "it is packed by %s, which cannot be run: %s",
			trace_packer_name(packer), strerror(-err));
		return err;
	}
	close_file(source->fd);
	source->fd = out[0];
	source->packer = packer;
	source->at = source->filled = 0;
	return 0;
}

int trace_source_open(
	const char *path, char *message, size_t size, struct trace_source **ret)
{
	struct trace_source *source = calloc(1, sizeof(*source));
	const struct trace_packer *packer;
	int err = -ENOMEM;

	*message = '\0';
	if (!source)
		goto fail;
	source->said = -1;
	source->fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	err = source->fd < 0 ? -errno : fill_magic(source);
	if (err)
		goto fail;
	packer = trace_packer_by_magic(source->input, source->filled);
	err = packer ? start_program(source, packer, message, size) : 0;
	if (err)
		goto fail;
	*ret = source;
	return 0;

fail:
	if (!*message)
		snprintf(message, size, "%s", strerror(-err));
	if (source && source->fd < 0)
		source->fd = STDIN_FILENO;
	trace_source_close(source);
	return err;
}

/* 0, or what is wrong with the archive, by what its program says. */
static int end_program(struct trace_source *source)
{
	char text[512];
	ssize_t length;
	int status = 0;

	while (source->pid && waitpid(source->pid, &status, 0) < 0 && errno == EINTR)
		;
	source->pid = 0;
	if (!status)
		return 0;
	length = pread(source->said, text, sizeof(text) - 1, 0);
	text[length < 0 ? 0 : length] = '\0';
	for (char *c = text; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	return strstr(text, "unexpected end") || strstr(text, "premature") ? -ENODATA
									   : -EBADMSG;
}

static void explain(const struct trace_source *source, char *message, size_t size)
{
	const char *name = source->packer ? trace_packer_name(source->packer) : "";

	if (source->broken == -EBADMSG)
		snprintf(message, size, "the %s archive is broken", name);
	else if (source->broken == -ENODATA)
		snprintf(message, size, "the %s archive is cut off", name);
	else
		snprintf(message, size, "%s", strerror(-source->broken));
}

int trace_source_read(struct trace_source *source, char *buffer, size_t capacity,
	char *message, size_t size, size_t *ret_size)
{
	size_t left = source->filled - source->at;
	ssize_t got = 0;

	if (left) {
		got = (ssize_t)(left < capacity ? left : capacity);
		memcpy(buffer, source->input + source->at, (size_t)got);
		source->at += (size_t)got;
	} else if (!source->broken) {
		got = read_some(source->fd, buffer, capacity);
		source->broken = got < 0 ? (int)got : got ? 0 : end_program(source);
	}
	if (source->broken) {
		explain(source, message, size);
		return source->broken;
	}
	*ret_size = (size_t)got;
	return 0;
}

int trace_source_file(const struct trace_source *source)
{
	struct stat stat;

	if (source->fd == STDIN_FILENO || source->packer || fstat(source->fd, &stat) ||
		!S_ISREG(stat.st_mode))
		return -1;
	return source->fd;
}

void trace_source_close(struct trace_source *source)
{
	if (!source)
		return;
	close_file(source->fd);
	if (source->said >= 0)
		close(source->said);
	/* nobody reads on, so it ends */
	end_program(source);
	free(source);
}

/*
 * A trace of our own format that comes packed or through a pipe. Its chunks are read in the
 * order of their times and not in that of the file, so all of it is written to a file without
 * a name first. Most of what a program that was killed has left is nothing at all, and takes
 * no room there either.
 */

#define BLOCK ((size_t)64 << 10)

struct spool {
	int fd;
	off_t at;
	char block[BLOCK];
};

static int store(struct spool *spool, const char *bytes, size_t size)
{
	off_t end = spool->at + (off_t)size;
	ssize_t put;

	if (size && !bytes[0] && !memcmp(bytes, bytes + 1, size - 1)) {
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
