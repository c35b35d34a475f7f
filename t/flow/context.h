/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FLOW_CONTEXT_H
#define GLK_FLOW_CONTEXT_H

/* What the C programs of this folder share. They see the public headers and nothing else. */
#include "tap.h"

#include <glake/glake.h>

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* A context on the software device; `settings` end with NULL, and NULL stands for none. */
static inline struct glake *flow_open(const char *const *settings)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glake *ctx = NULL;

	if (glake_open(&options, &ctx))
		tap_bail("no context on the software device");
	return ctx;
}

static inline void flow_close(struct glake *ctx, size_t leaked)
{
	size_t found = 99;

	is_int(glake_close(ctx, &found), 0, "closed");
	is_int((int64_t)found, (int64_t)leaked, "blocks were live");
}

static inline struct glake_error flow_error(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error;
}

static inline struct glake_stats flow_stats(struct glake *ctx, int device)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	if (glake_stats_get(ctx, device, &stats))
		tap_bail("no figures");
	return stats;
}

static inline void *flow_alloc(struct glake *ctx, size_t size, struct CUstream_st *stream)
{
	void *ptr = NULL;

	return glake_alloc(ctx, 0, size, stream, 0, &ptr) ? NULL : ptr;
}

static inline uint64_t flow_calls(struct glake *ctx, enum glake_call call)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	glake_driver_stats_get(ctx, &stats);
	return stats.calls[call];
}

/* All but questions, which change nothing at the driver and wait for nothing. */
static inline uint64_t flow_all_calls(struct glake *ctx)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};
	uint64_t sum = 0;

	glake_driver_stats_get(ctx, &stats);
	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		sum += i == GLAKE_CALL_OTHER ? 0 : stats.calls[i];
	return sum;
}

/* An answer and its class. */
#define is_error(call, want, want_class)                                                 \
	do {                                                                             \
		is_int(call, want, #call);                                               \
		is_str(glake_error_class_name(flow_error().error_class), want_class,     \
			"  its class");                                                  \
		is_int(flow_error().err, want, "  its record");                          \
	} while (0)

static inline int flow_count_files(void)
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

static inline int flow_count_maps(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	int count = 0, c;

	if (!file)
		tap_bail("no /proc/self/maps");
	while ((c = fgetc(file)) != EOF)
		count += c == '\n';
	fclose(file);
	return count;
}

/* A child that is ended when it takes longer; 0 in the child. */
static inline pid_t flow_fork(unsigned seconds)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		tap_bail("no fork");
	if (!pid)
		alarm(seconds);
	return pid;
}

/* Its exit status, or 1000 and the signal that ended it. */
static inline int flow_wait(pid_t pid)
{
	int status = 0;

	if (waitpid(pid, &status, 0) != pid)
		tap_bail("no child");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#endif
