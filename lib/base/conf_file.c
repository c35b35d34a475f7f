/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The configuration file decides how memory of every program on the machine is managed, so
 * it is read only if nobody but root and the user of this process can have written it: a
 * regular file, opened without following a link, owned by one of these two, writable by no
 * group and no others. A fifo or a device is not waited for.
 *
 * A file that the program named must be there and be acceptable. The installed one may be
 * missing, and when it is refused a warning says so and the defaults hold: a host program
 * must not stop working because of it. Who checks the configuration is told of an error. What is *in*
 * an accepted file must be right in both cases.
 *
 * Its lines:
 *
 *	; a comment, or # a comment, of any length
 *	[section]
 *	key = value ; a comment
 *
 * Lines end with LF or CR LF, the last one also with nothing; blanks at both ends do not count,
 * ':' is as good as '='. Every line is read by itself, so that all mistakes are found, each with
 * its line. No library does it: libinih as distributions build it tells of the first mistake only
 * and of no line numbers, and cuts lines at 200 bytes.
 */
#include "base/conf_reader.h"
#include "base/conf_table.h"
#include "base/error.h"
#include "base/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MOST 199

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Without the blanks at its ends. */
static char *strip(char *s)
{
	char *end = s + strlen(s);

	while (is_blank(*s))
		s++;
	while (end > s && is_blank(end[-1]))
		end--;
	*end = '\0';
	return s;
}

/* The first of these characters, or where the text ends: at a semicolon behind a blank. */
static char *find(char *s, const char *chars)
{
	for (bool blank = false; *s && !strchr(chars, *s) && !(blank && *s == ';'); s++)
		blank = is_blank(*s);
	return s;
}

/* The section that begins; NULL if it is none, and what is in it is not looked at. */
static const char *read_section(struct glk_conf_reader *reader, char *line)
{
	char *end = strchr(line, ']'), *rest = end ? strip(end + 1) : NULL;
	char shown[GLK_CONF_SHOWN_MAX];
	const char *known, *near;

	if (!end || (*rest && *rest != ';' && *rest != '#')) {
		glk_conf_report(reader, -EINVAL, "",
			"a section is written as [name], alone on its line");
		return NULL;
	}
	*end = '\0';
	known = glk_conf_section(line + 1);
	if (known)
		return known;
	near = glk_conf_nearest_section(line + 1);
	glk_conf_show(line + 1, shown, sizeof(shown));
	glk_conf_report(reader, 0, "", "unknown section [%s]%s%s%s", shown,
		near ? "; did you mean [" : "", near ? near : "", near ? "]?" : "");
	return NULL;
}

static void read_value(struct glk_conf_reader *reader, const char *section, char *line)
{
	char *equals = find(line, "=:");
	char *key, *dot;

	if (*equals != '=' && *equals != ':') {
		glk_conf_report(reader, -EINVAL, "",
			"neither a comment nor [section] nor key = value");
		return;
	}
	*find(equals + 1, "") = '\0';
	*equals = '\0';
	key = strip(line);
	dot = strchr(key, '.');
	if (!*key) {
		glk_conf_report(reader, -EINVAL, "", "no key before the value");
	} else if (section && dot) { /* as README and the options of the tool have it */
		*dot = '\0';
		glk_conf_assign_named(reader, key, dot + 1, strip(equals + 1), 0);
	} else if (section) {
		glk_conf_assign_named(reader, section, key, strip(equals + 1), 0);
	}
}

static bool has_control(const char *s)
{
	for (; *s; s++) {
		if (((unsigned char)*s < ' ' && *s != '\t') || *s == 0x7f)
			return true;
	}
	return false;
}

/* A line without its end; it is changed on the way. */
static void read_line(struct glk_conf_reader *reader, const char **section, char *line)
{
	size_t length;

	line = strip(line);
	length = strlen(line);
	if (!length || *line == ';' || *line == '#')
		return;
	if (has_control(line)) {
		glk_conf_report(reader, -EINVAL, "",
			"has a control character; lines end with LF or CR LF");
		return;
	}
	if (length > LINE_MOST)
		glk_conf_report(reader, -EINVAL, "",
			"has %zu bytes; %d is the most for a line", length, LINE_MOST);
	else if (*line == '[')
		*section = read_section(reader, line);
	else
		read_value(reader, *section, line);
}

void glk_conf_read_lines(struct glk_conf_reader *reader, char *text)
{
	const char *section = "";
	size_t length;
	bool more;

	if (!strncmp(text, "\xef\xbb\xbf", 3))
		text += 3;
	for (reader->line = 1; *text; reader->line++) {
		length = strcspn(text, "\n");
		more = text[length];
		text[length] = '\0';
		if (length && text[length - 1] == '\r')
			text[length - 1] = '\0';
		read_line(reader, &section, text);
		text += length + more;
	}
	reader->line = 0;
}

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
