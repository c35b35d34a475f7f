/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The configuration file decides how memory of every program on the machine is managed, so
 * it is read only if nobody but root and the user of this process can have written it: a
 * regular file, opened without following a link, owned by one of these two, writable by no
 * group and no others. A fifo or a device is not waited for.
 *
 * A file that the program named must be there and be acceptable. The installed one may be
 * missing, and when it is refused a warning says so and the defaults hold: a host program
 * must not stop working because of it. Who checks the configuration is told of an error. What is *in* an accepted file must be right in both
 * cases.
 */
#include "base/conf_reader.h"
#include "base/error.h"
#include "base/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Refuses the file: an error for one that was named, else a warning and 0, unless asked. */
static int refused(struct glk_conf_reader *reader, bool named, int err, const char *why)
{
	if (!named && !reader->is_check)
		err = 0;
	glk_conf_report(
		reader, err, "", "%s%s", why, named ? "" : "; the file is not read");
	return err;
}

static const char *unacceptable(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "not a regular file";
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return "owned neither by root nor by the user of this process";
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		return "writable by others than its owner; chmod go-w makes it right";
	return NULL;
}

static ssize_t read_all(int fd, char *buffer, size_t size)
{
	size_t at = 0;
	ssize_t got;

	while (at < size) {
		got = read(fd, buffer + at, size - at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (!got)
			break;
		at += (size_t)got;
	}
	return (ssize_t)at;
}

static void read_text(struct glk_conf_reader *reader, char *text, size_t size)
{
	if (strlen(text) == size) {
		glk_conf_read_lines(reader, text);
		return;
	}
	reader->line = 1;
	for (const char *s = text; *s; s++)
		reader->line += *s == '\n';
	glk_conf_report(reader, -EINVAL, "", "has a zero byte; this is not a text file");
	reader->line = 0;
}

static int open_file(
	struct glk_conf_reader *reader, const char *path, bool named, int *ret_fd)
{
	char text[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

	*ret_fd = fd;
	if (fd >= 0)
		return 0;
	switch (errno) {
	case ENOENT:
	case ENOTDIR:
		if (!named)
			return 0;
		return refused(reader, named, -ENOENT, "there is no such file");
	case ELOOP:
		return refused(
			reader, named, -EACCES, "a symbolic link, which is not followed");
	case ENXIO: /* a socket, or a device that is not there */
		return refused(reader, named, -EACCES, "not a regular file");
	case EACCES:
	case EPERM:
		return refused(reader, named, -EACCES, "this process may not read it");
	default:
		return refused(
			reader, named, -errno, strerror_r(errno, text, sizeof(text)));
	}
}

int glk_conf_read_file(struct glk_conf_reader *reader, const char *path, bool named)
{
	const char *why;
	struct stat st;
	ssize_t size;
	char *text;
	int fd, err;

	reader->origin = GLAKE_CONF_FILE;
	reader->source = path;
	err = open_file(reader, path, named, &fd);
	if (err || fd < 0)
		return err;
	if (fstat(fd, &st)) {
		err = refused(reader, named, -errno, "fstat failed");
		goto close_fd;
	}
	why = unacceptable(&st);
	if (why) {
		err = refused(reader, named, -EACCES, why);
		goto close_fd;
	}
	text = glk_region_new(
		GLK_CONF_FILE_MAX + 2); /* zeroes, one of which is its end */
	if (!text) {
		err = -ENOMEM;
		goto close_fd;
	}
	size = read_all(fd, text, GLK_CONF_FILE_MAX + 1);
	if (size < 0)
		err = refused(reader, named, (int)size, "cannot be read");
	else if (size > GLK_CONF_FILE_MAX)
		err = refused(reader, named, -EINVAL, "larger than 64 KiB");
	else
		read_text(reader, text, (size_t)size);
	glk_region_free(text, GLK_CONF_FILE_MAX + 2);
close_fd:
	close(fd);
	return err;
}
