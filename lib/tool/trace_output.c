/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file that a conversion writes. It gets its name when it is complete, so that a failure
 * leaves what was there before. What is to be packed is written plain first, to a file without a name.
 */
#include "tool/trace_tool.h"

#include "base/atomic.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Files that others may read are as readable as any new file. */
static void set_mode(int fd)
{
	mode_t mask = umask(0);

	umask(mask);
	if (fchmod(fd, 0666 & ~mask))
		return; /* readable for the owner alone */
}

/* The name of the part that goes when the process is told to end, at any moment; NULL: there is none. */
static glk_atomic(const char *) unfinished;

static void on_end(int number)
{
	const char *name = glk_load_relaxed(&unfinished);

	if (name)
		unlink(name);
	raise(number); /* which ends it now */
}

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};

static void mind_signals(void)
{
	const struct sigaction action = {
		.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
	struct sigaction before;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (!sigaction(ends[i], NULL, &before) && before.sa_handler == SIG_DFL)
			sigaction(ends[i], &action, NULL);
}

/* A file with a name of its own. From the moment that there is one it goes when the process is told to end. */
static int make_part(char *part)
{
	sigset_t held, before;
	int fd, err;

	sigemptyset(&held);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaddset(&held, ends[i]);
	mind_signals();
	pthread_sigmask(SIG_BLOCK, &held, &before);
	fd = mkstemp(part);
	err = errno;
	glk_store_relaxed(&unfinished, fd < 0 ? NULL : part);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (fd >= 0)
		return fd;
	/* what has that name is none of this one's */
	*part = 0;
	return -err;
}

static void forget_part(const char *part)
{
	unlink(part);
	glk_store_relaxed(&unfinished, NULL);
}

/* A new file beside the one that it is to become, where that is a regular one. */
static int open_part(struct trace_output *output, FILE **ret_file)
{
	struct stat stat;
	int fd;

	if (!lstat(output->path, &stat) && !S_ISREG(stat.st_mode)) {
		*ret_file = fopen(output->path, "we");
		return *ret_file ? 0 : -errno;
	}
	if (snprintf(output->part, sizeof(output->part), "%s.XXXXXX", output->path) >=
		(int)sizeof(output->part))
		return -ENAMETOOLONG;
	fd = make_part(output->part);
	if (fd < 0)
		return fd;
	set_mode(fd);
	*ret_file = fdopen(fd, "w");
	if (*ret_file)
		return 0;
	close(fd);
	forget_part(output->part);
	return -ENOMEM;
}

bool trace_output_is(const char *path, const char *trace)
{
	struct stat a, b;

	return path && !stat(path, &a) && !stat(trace, &b) && S_ISREG(a.st_mode) &&
		a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int trace_output_open(struct trace_output *output, const char *path)
{
	int err;

	*output = (struct trace_output){.file = stdout, .path = path};
	if (!path)
		return 0;
	err = trace_packer_of(path, &output->packer);
	if (err)
		return err;
	if (!output->packer)
		return open_part(output, &output->file);
	output->file = tmpfile();
	return output->file ? 0 : -errno;
}

/* Ends the plain file and makes the packed one of it. */
static int pack(struct trace_output *output, bool good)
{
	FILE *plain = output->file;
	int err = 0;

	if (good && fflush(plain))
		err = -errno;
	if (good && !err)
		err = open_part(output, &output->file);
	if (good && !err) {
		err = trace_pack(output->packer, plain, output->file);
		if (fclose(output->file) && !err)
			err = -errno;
	}
	fclose(plain);
	return err;
}

int trace_output_close(struct trace_output *output, bool good)
{
	int err = ferror(output->file) ? -EIO : 0;

	/* what goes wrong there is told at the very end */
	if (!output->path)
		return 0;
	if (output->packer)
		err = err ? err : pack(output, good);
	else if (fclose(output->file) && !err)
		err = -errno;
	if (!output->part[0])
		return err;
	if (!err && good && rename(output->part, output->path))
		err = -errno;
	if (err || !good)
		forget_part(output->part);
	glk_store_relaxed(&unfinished, NULL);
	return err;
}

/*
 * What packs traces and unpacks them: the programs xz, gzip and zstd. A trace is packed as its name
 * says when it is complete: the header of our own format is written last. Whatever reads a trace
 * here reads it packed too.
 */

struct trace_packer {
	const char *name, *ending;
	char magic[TRACE_MAGIC_MAX];
	size_t magic_size;
};

static const struct trace_packer packers[] = {
	{"xz", ".xz", {'\xfd', '7', 'z', 'X', 'Z', 0}, 6},
	{"gzip", ".gz", {'\x1f', '\x8b'}, 2},
	{"zstd", ".zst", {'\x28', '\xb5', '\x2f', '\xfd'}, 4},
};

#define PACKERS (sizeof(packers) / sizeof(*packers))

const char *trace_packer_name(const struct trace_packer *packer)
{
	return packer->name;
}

const struct trace_packer *trace_packer_by_magic(const char *bytes, size_t size)
{
	for (size_t i = 0; i < PACKERS; i++)
		if (size >= packers[i].magic_size &&
			!memcmp(bytes, packers[i].magic, packers[i].magic_size))
			return &packers[i];
	return NULL;
}

static bool has_ending(const char *path, const char *ending)
{
	size_t length = strlen(path), most = strlen(ending);

	return length > most && !strcmp(path + length - most, ending);
}

int trace_packer_of(const char *path, const struct trace_packer **ret_packer)
{
	static const char *const others[] = {
		".bz2", ".lz4", ".lzma", ".lz", ".lzo", ".br", ".Z", ".zip", ".7z"};

	*ret_packer = NULL;
	for (size_t i = 0; i < PACKERS; i++)
		if (has_ending(path, packers[i].ending))
			*ret_packer = &packers[i];
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (has_ending(path, others[i]))
			return -EOPNOTSUPP;
	return 0;
}

int trace_packer_start(const struct trace_packer *packer, const char *option, int in,
	int out, int said, pid_t *ret_pid)
{
	const char *const words[] = {packer->name, option, NULL};
	const char *path = getenv("PATH");
	char where[4096];
	char *const variables[] = {where, "LC_ALL=C", NULL}; /* what it says is read */
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t usual;
	int err;

	snprintf(where, sizeof(where), "PATH=%s", path ? path : "/usr/bin:/bin");
	err = posix_spawn_file_actions_init(&actions);
	if (err)
		return -err;
	err = posix_spawnattr_init(&attributes);
	sigemptyset(&usual);
	sigaddset(&usual, SIGPIPE);
	posix_spawnattr_setsigdefault(&attributes, &usual);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
	err = err ? err : posix_spawn_file_actions_adddup2(&actions, in, 0);
	err = err ? err : posix_spawn_file_actions_adddup2(&actions, out, 1);
	err = err ? err : posix_spawn_file_actions_adddup2(&actions, said, 2);
	err = err ? err
		  : posix_spawnp(ret_pid, packer->name, &actions, &attributes,
			    (char *const *)words, variables);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return -err;
}

int trace_pack(const struct trace_packer *packer, FILE *from, FILE *to)
{
	int status = 0, err;
	pid_t pid;

	rewind(from);
	err = trace_packer_start(packer, "-qc", fileno(from), fileno(to), 2, &pid);
	if (err)
		return -ENOPKG;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status ? -EIO : 0;
}
