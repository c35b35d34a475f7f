/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What packs traces and unpacks them: the programs xz, gzip and zstd. A trace is packed as its name
 * says when it is complete: the header of our own format is written last. Whatever reads a trace
 * here reads it packed too.
 */
#include "tool/trace_tool.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

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

static bool ends(const char *path, const char *ending)
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
		if (ends(path, packers[i].ending))
			*ret_packer = &packers[i];
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (ends(path, others[i]))
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
