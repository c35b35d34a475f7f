/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_CONF_FOUND_H
#define GLK_T_CONF_FOUND_H

/* For the tests of the configuration: files to read, and what reading them found. */
#include "base/conf.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <glake/error.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOUND_MAX 128

static struct {
	int count, errors;
	struct {
		int error, line;
		char file[128], key[144], text[256];
	} at[FOUND_MAX];
} found;

static inline void on_finding(const struct glake_conf_finding *finding, void *arg)
{
	int i = found.count++;

	if (arg != &found || finding->sz != sizeof(*finding))
		tap_bail("a finding without argument or size");
	found.errors += finding->error != 0;
	if (i >= FOUND_MAX)
		return;
	found.at[i].error = finding->error;
	found.at[i].line = finding->line;
	snprintf(found.at[i].file, sizeof(found.at[i].file), "%s", finding->file);
	snprintf(found.at[i].key, sizeof(found.at[i].key), "%s", finding->key);
	snprintf(found.at[i].text, sizeof(found.at[i].text), "%s", finding->text);
}

/* The next reading starts with none. */
static inline void found_none(void)
{
	memset(&found, 0, sizeof(found));
}

static inline void tap_found(int i, int error, int line, const char *key,
	const char *text, const char *file, int at)
{
	bool right = i < found.count && found.at[i].error == error &&
		found.at[i].line == line && !strcmp(found.at[i].key, key) &&
		strstr(found.at[i].text, text);

	tap_check(right, file, at, "%s in line %d: %s: %s", error ? "error" : "warning",
		line, key, text);
	if (!right)
		tap_note("got %d of %d: %d, line %d, '%s', '%s'", i, found.count,
			found.at[i].error, found.at[i].line, found.at[i].key,
			found.at[i].text);
}

/* Finding number i. */
#define is_found(i, error, line, key, text)                                              \
	tap_found(i, error, line, key, text, __FILE__, __LINE__)

static char found_dir[112], found_path[144];

static inline void remove_files(void)
{
	unlink(found_path);
	rmdir(found_dir);
}

/* A folder of this test, and found_path in it. */
static inline void make_folder(void)
{
	if (!mkdtemp(tap_template(found_dir, sizeof(found_dir), "conf")))
		tap_bail("no folder for the test");
	snprintf(found_path, sizeof(found_path), "%s/glake.conf", found_dir);
	atexit(remove_files);
}

/* Writes found_path anew, mode 0644. */
static inline void write_bytes(const void *bytes, size_t size)
{
	int fd;

	unlink(found_path);
	fd = open(found_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size || fchmod(fd, 0644) ||
		close(fd))
		tap_bail("cannot write the file to read");
}

static inline void write_text(const char *text)
{
	write_bytes(text, strlen(text));
}

/* Reads found_path by name, with settings behind it (or NULL). */
static inline int read_named(const char *const *settings, struct glk_conf *ret_conf)
{
	struct glake_options options = {
		.sz = sizeof(options), .conf_file = found_path, .settings = settings};

	found_none();
	return glk_conf_read(&options, on_finding, &found, ret_conf);
}

static inline int read_text(const char *text, struct glk_conf *ret_conf)
{
	write_text(text);
	return read_named(NULL, ret_conf);
}

/* No variable of ours shall reach a test from outside. */
static inline void clear_environment(void)
{
	char name[128];

again:
	for (char **entry = environ; *entry; entry++) {
		if (strncmp(*entry, "GLAKE_", 6))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
		unsetenv(name);
		goto again;
	}
}

#endif
