/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file of measured rates: see rates.h. */
#include "tier/io/rates.h"

#include "tier/io/io.h"

#include "base/error.h"
#include "base/log.h"
#include "base/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD "glake-rates 1\n"
/* Bytes of a file, and more than a line has: three numbers and a name. */
#define FILE_MOST ((size_t)64 << 10)
#define LINE_MOST 128
/* MB a second: less is a link that was in use, and more there is not. */
#define RATE_LEAST 100
#define RATE_MOST  100000000

bool glk_rates_path(const char *text, char *ret_path, size_t size)
{
	const char *cache = secure_getenv("XDG_CACHE_HOME"),
		   *home = secure_getenv("HOME");
	int length = -1;

	if (strcmp(text, "auto"))
		length = snprintf(ret_path, size, "%s", text);
	else if (!geteuid())
		length = snprintf(ret_path, size, "/var/cache/glake/rates");
	else if (cache && *cache == '/')
		length = snprintf(ret_path, size, "%s/glake/rates", cache);
	else if (home && *home == '/')
		length = snprintf(ret_path, size, "%s/.cache/glake/rates", home);
	return length > 0 && (size_t)length < size;
}

int glk_rates_check(const char *text)
{
	if (!*text || *text == '/' || !strcmp(text, "auto"))
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_CONFIG,
		"io.rates = %s: it is 'auto', or a name that begins with /", text);
}

/* ---- Lines ---- */

static bool read_number(const char **at, long most, uint32_t *ret)
{
	long value = 0;

	if (**at < '0' || **at > '9')
		return false;
	for (; **at >= '0' && **at <= '9' && value <= most; (*at)++)
		value = value * 10 + (**at - '0');
	*ret = (uint32_t)value;
	return value <= most;
}

static bool read_uuid(const char **at, char *ret)
{
	size_t length = strspn(*at,
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
		"0123456789-");

	if (!length || length >= GLK_RATES_UUID)
		return false;
	memcpy(ret, *at, length);
	ret[length] = '\0';
	*at += length;
	return true;
}

static bool skip(const char **at, char c)
{
	return *(*at)++ == c;
}

static bool is_rate(uint32_t rate)
{
	return rate >= RATE_LEAST && rate <= RATE_MOST;
}

/* The next line, which ends behind *at afterwards; false: it is none. */
static bool read_line(const char **at, struct glk_rate *ret)
{
	uint32_t version = 0;

	if (!read_number(at, INT32_MAX, &version) || !skip(at, ' ') ||
		!read_uuid(at, ret->uuid) || !skip(at, ' ') ||
		!read_number(at, RATE_MOST, &ret->host) || !skip(at, ' ') ||
		!read_number(at, RATE_MOST, &ret->peer) || !skip(at, '\n'))
		return false;
	ret->version = (int)version;
	return is_rate(ret->host) && is_rate(ret->peer);
}

static bool is_of(const struct glk_rate *a, const struct glk_rate *b)
{
	return a->version == b->version && !strcmp(a->uuid, b->uuid);
}

/* Whether a text is one of this form, to its end. */
static bool is_whole(const char *text, size_t size)
{
	const char *at = text + sizeof(HEAD) - 1;
	struct glk_rate line;

	if (strlen(text) != size || strncmp(text, HEAD, sizeof(HEAD) - 1))
		return false;
	while (*at)
		if (!read_line(&at, &line))
			return false;
	return true;
}

/* ---- The file ---- */

static const char *unacceptable(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "it is no regular file";
	if (st->st_uid && st->st_uid != geteuid())
		return "it is neither of root nor of the user of this process";
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		return "others can write it";
	return NULL;
}

/* The lines of the file, in a text of FILE_MOST + 2 zeroes: none where it is of no use. Whether another may
 * take its place. A regular file is read in one piece. */
static bool load(const char *path, char *text, bool tell)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	bool usable = false;
	const char *why;
	struct stat st;
	ssize_t size;

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return true;
	why = fd < 0 || fstat(fd, &st) ? "it cannot be opened" : unacceptable(&st);
	if (!why) {
		usable = true;
		size = read(fd, text, FILE_MOST + 1);
		if (size < 0 || size > (ssize_t)FILE_MOST ||
			!is_whole(text, (size_t)size)) {
			why = "it cannot be understood";
			memset(text, 0, FILE_MOST + 2);
		}
	}
	if (fd >= 0)
		close(fd);
	if (why && tell)
		glk_warn("%s is not used for what links carry: %s", path, why);
	return usable;
}

void glk_rates_read(const char *path, struct glk_rate *rates, size_t count)
{
	char *text = glk_region_new(FILE_MOST + 2);
	struct glk_rate line;
	const char *at;

	for (size_t i = 0; i < count; i++)
		rates[i].host = rates[i].peer = 0;
	if (!text)
		return;
	load(path, text, true);
	at = *text ? text + sizeof(HEAD) - 1 : text;
	while (*at && read_line(&at, &line)) {
		for (size_t i = 0; i < count; i++) {
			if (!is_of(&rates[i], &line))
				continue;
			rates[i].host = line.host;
			rates[i].peer = line.peer;
		}
	}
	glk_region_free(text, FILE_MOST + 2);
}

static size_t put_line(char *text, size_t size, const struct glk_rate *rate)
{
	if (size > FILE_MOST - LINE_MOST || !is_rate(rate->host) || !is_rate(rate->peer))
		return size;
	return size +
		(size_t)snprintf(text + size, LINE_MOST,
			"%d %s %" PRIu32 " %" PRIu32 "\n", rate->version, rate->uuid,
			rate->host, rate->peer);
}

/* What is said now, and then what the old one says of others. */
static size_t merge(
	char *text, const char *old, const struct glk_rate *rates, size_t count)
{
	const char *at = *old ? old + sizeof(HEAD) - 1 : old;
	size_t size = sizeof(HEAD) - 1;
	struct glk_rate line;

	memcpy(text, HEAD, size);
	for (size_t i = 0; i < count; i++)
		size = put_line(text, size, &rates[i]);
	while (*at && read_line(&at, &line)) {
		bool is_known = false;

		for (size_t i = 0; i < count; i++)
			is_known |= is_of(&rates[i], &line);
		if (!is_known)
			size = put_line(text, size, &line);
	}
	return size;
}

/* The folders that lead to it, as far as they are not there. */
static void make_folders(const char *path)
{
	char folder[GLK_RATES_PATH];

	snprintf(folder, sizeof(folder), "%s", path);
	for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		(void)!mkdir(folder, 0700);
		*at = '/';
	}
}

/* More than the process may write would raise a signal. */
static bool may_write(size_t size)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= size;
}

static int replace(const char *path, const char *text, size_t size)
{
	char name[GLK_RATES_PATH + 16];
	int fd, err;

	if (!may_write(size))
		return -EFBIG;
	make_folders(path);
	snprintf(name, sizeof(name), "%s.XXXXXX", path);
	fd = mkostemp(name, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* a regular file takes all of it, or is full */
	err = write(fd, text, size) == (ssize_t)size ? 0 : -EIO;
	if (close(fd) || err || rename(name, path)) {
		err = err ? err : -errno;
		unlink(name);
	}
	return err;
}

void glk_rates_write(const char *path, const struct glk_rate *rates, size_t count)
{
	char *text = glk_region_new(2 * (FILE_MOST + 2)), *old, why[64];
	int err;

	if (!text)
		return;
	old = text + FILE_MOST + 2;
	if (load(path, old, false)) {
		err = replace(path, text, merge(text, old, rates, count));
		if (err)
			glk_warn("what links carry is not kept in %s: %s", path,
				strerror_r(-err, why, sizeof(why)));
	}
	glk_region_free(text, 2 * (FILE_MOST + 2));
}
