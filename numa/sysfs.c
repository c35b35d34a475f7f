/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads one small file at a time into a buffer of the caller: no allocation, no lock, no state
 * but the root. A file of sysfs is made by the kernel at the first read, so a value is
 * consistent in itself, never with that of another file.
 *
 * Guarantees	every path stays under the root; descriptors are closed on exec
 * Blocks	for the kernel to make the file; some take a lock of a driver
 */
#include "numa/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

const struct glk_sysroot glk_sysroot_real = {.prefix = ""};

bool glk_sysroot_is_real(const struct glk_sysroot *root)
{
	return !root || (!*root->prefix && !root->device);
}

static int make_path(const struct glk_sysroot *root, const char *path, char *ret_path)
{
	const char *prefix = root ? root->prefix : "";
	int n = snprintf(ret_path, GLK_SYSFS_PATH_MAX, "%s%s", prefix, path);

	return n < 0 || n >= GLK_SYSFS_PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Reads to the end, or until one byte more than the buffer may hold. */
static int read_all(int fd, char *text, size_t size, size_t *ret_len)
{
	size_t len = 0;

	while (len < size) {
		ssize_t n = read(fd, text + len, size - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		len += (size_t)n;
	}
	if (len == size)
		return -EFBIG;
	*ret_len = len;
	return 0;
}

int glk_sysfs_text(
	const struct glk_sysroot *root, const char *path, char *ret_text, size_t size)
{
	char full[GLK_SYSFS_PATH_MAX];
	size_t len = 0;
	int fd, err;

	err = make_path(root, path, full);
	if (err)
		return err;
	do
		fd = open(full, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return -errno;
	err = read_all(fd, ret_text, size, &len);
	if (err)
		goto close;
	if (memchr(ret_text, 0, len)) {
		err = -EBADMSG;
		goto close;
	}
	while (len && strchr(" \t\r\n", ret_text[len - 1]))
		len--;
	ret_text[len] = 0;
close:
	close(fd);
	return err;
}

/* Digits only; moves *at behind them. */
static int parse_digits(const char **at, uint64_t *ret_number)
{
	const char *p = *at;
	uint64_t n = 0;

	if (*p < '0' || *p > '9')
		return -EBADMSG;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(n, 10u, &n) ||
			__builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
			return -ERANGE;
	*at = p;
	*ret_number = n;
	return 0;
}

int glk_sysfs_number(
	const struct glk_sysroot *root, const char *path, int64_t *ret_number)
{
	const char *at;
	char text[64];
	uint64_t n;
	bool minus;
	int err;

	err = glk_sysfs_text(root, path, text, sizeof(text));
	if (err)
		return err;
	at = text;
	minus = *at == '-';
	at += minus;
	err = parse_digits(&at, &n);
	if (err)
		return err;
	if (*at)
		return -EBADMSG;
	if (n > INT64_MAX)
		return -ERANGE;
	*ret_number = minus ? -(int64_t)n : (int64_t)n;
	return 0;
}

int glk_sysfs_list(const struct glk_sysroot *root, const char *path, unsigned int max,
	struct glk_numa_set *ret_set)
{
	char text[GLK_SYSFS_TEXT_MAX];
	int err = glk_sysfs_text(root, path, text, sizeof(text));

	return err ? err : glk_numa_set_parse(text, max, ret_set);
}

int glk_sysfs_field(const char *text, const char *key, uint64_t *ret_number)
{
	const size_t len = strlen(key);
	const char *at = text;

	/* A key is a whole word: "MemFree:" is not found inside "HighMemFree:". */
	while ((at = strstr(at, key))) {
		bool word = at == text || strchr(" \t\n", at[-1]);

		at += len;
		if (!word)
			continue;
		while (*at == ' ' || *at == '\t')
			at++;
		return parse_digits(&at, ret_number);
	}
	return -ENOENT;
}

bool glk_sysfs_exists(const struct glk_sysroot *root, const char *path)
{
	char full[GLK_SYSFS_PATH_MAX];

	return !make_path(root, path, full) && !access(full, F_OK);
}

int glk_sysfs_device(const struct glk_sysroot *root, const char *path,
	struct glk_sysfs_device *ret_device)
{
	char full[GLK_SYSFS_PATH_MAX];
	struct stat st;
	int err;

	err = make_path(root, path, full);
	if (err)
		return err;
	if (root && root->device)
		return root->device(full, ret_device);
	if (stat(full, &st))
		return -errno;
	if (!S_ISCHR(st.st_mode))
		return -ENOTTY;
	*ret_device = (struct glk_sysfs_device){
		.major = major(st.st_rdev),
		.minor = minor(st.st_rdev),
		.usable = !faccessat(AT_FDCWD, full, R_OK | W_OK, AT_EACCESS),
	};
	return 0;
}
