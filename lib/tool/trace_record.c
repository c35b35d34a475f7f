/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl trace record: a running process records itself in a file that is named to it, until
 * somebody interrupts this, the time is up, or the process ends. Whatever happens to this one, the
 * file has what was recorded, and the process goes on.
 */
#include "base/clock.h"
#include "base/json.h"
#include "tool/process.h"
#include "tool/trace_tool.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS INT64_C(200000000)
#define LOOKS	5
#define HOUR_NS INT64_C(3600000000000)

/* From the root, since the process has a folder of its own; the file is not there. */
static int absolute(const char *file, char *path, size_t size)
{
	const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
	char folder[PATH_MAX], whole[PATH_MAX];

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - file) + 1 : 1,
		slash ? file : ".");
	if (!*name || !realpath(folder, whole)) {
		glk_tool_say("%s: %s", file, strerror(*name ? errno : EISDIR));
		return -EINVAL;
	}
	if ((size_t)snprintf(
		    path, size, "%s/%s", strcmp(whole, "/") ? whole : "", name) >= size) {
		glk_tool_say("%s: %s", file, strerror(ENAMETOOLONG));
		return -ENAMETOOLONG;
	}
	return 0;
}

struct recording {
	const struct trace_tool_options *options;
	const char *path;
	int room, pidfd; /* -1: there is none */
	pid_t pid;
	uint64_t context; /* 0: the only one */
};

enum end { STOPPED, ENDED_BEFORE, PROCESS_ENDED, UNKNOWN };

/* With `file` it begins. */
static int ask(
	struct recording *recording, const char *method, const char *file, char *why)
{
	struct json_object *params = json_object_new_object(), *result;
	uint64_t context;
	int err;

	if (recording->context)
		json_object_object_add(params, "context",
			json_object_new_int64((int64_t)recording->context));
	if (file) {
		json_object_object_add(params, "file", json_object_new_string(file));
		json_object_object_add(params, "size",
			json_object_new_int64((int64_t)recording->options->size));
	}
	err = process_ask(recording->room, recording->pid, method, params, &result, why);
	if (err)
		return err;
	context = process_number(result, "context");
	if (context) /* there may be others by the time of the end */
		recording->context = context;
	json_object_put(result);
	return 0;
}

/* Also where nobody has waited for it, or another one has its number now. */
static bool has_ended(const struct recording *recording)
{
	struct pollfd polled = {.fd = recording->pidfd, .events = POLLIN};

	if (recording->pidfd < 0)
		return kill(recording->pid, 0) && errno == ESRCH;
	return poll(&polled, 1, 0) > 0;
}

static void say_may_record(const struct recording *recording)
{
	glk_tool_say(
		"process %d may yet record in %s, until trace.stop is asked of it at its "
		"socket, see glakectl(1), or its context is closed",
		recording->pid, recording->path);
}

/* Whether the end of what a process says is a path, as far as that is shown. */
static bool is_said(const char *said, const char *path)
{
	size_t length = strlen(said), of_path = strlen(path);

	if (length <= of_path || said[length - of_path - 1] != ' ')
		return false;
	for (said += length - of_path; *path; said++, path++)
		if (*said != (*path < ' ' || *path > '~' ? '?' : *path))
			return false;
	return true;
}

/* The question is on its way, and its answer is lost. */
static void take_back(struct recording *recording)
{
	char why[GLK_WIRE_WHY_MAX];
	/* no file has this name: it is refused, and says where it is recorded if it is */
	int err = ask(recording, "trace.start", "", why);

	if (err == -ESRCH)
		return;
	if (err == -EREMOTEIO && is_said(why, recording->path) &&
		!ask(recording, "trace.stop", NULL, why))
		glk_tool_say("process %d had begun to record in %s, and has ended that",
			recording->pid, recording->path);
	else
		say_may_record(recording);
}

static int begin(struct recording *recording)
{
	char why[GLK_WIRE_WHY_MAX];
	int err = ask(recording, "trace.start", recording->path, why);

	if (!err)
		return 0;
	glk_tool_say("process %d: %s", recording->pid, why);
	if ((err == -ETIMEDOUT || err == -EPIPE || err == -EPROTO || err == -EMSGSIZE) &&
		!has_ended(recording))
		take_back(recording);
	return err;
}

/* Until a signal, the time, or the end of the process, which is false. */
static bool wait_for_end(const struct recording *recording, int signals)
{
	int64_t for_ns = recording->options->for_ns, begin_ns = glk_clock_ns();

	for (;;) {
		struct pollfd polled[] = {{.fd = signals, .events = POLLIN},
			{.fd = recording->pidfd, .events = POLLIN}};
		int64_t left = for_ns ? for_ns - (glk_clock_ns() - begin_ns) : HOUR_NS;

		if (left <= 0)
			return true;
		left = left < HOUR_NS ? left : HOUR_NS;
		if (recording->pidfd < 0 && left > LOOK_NS)
			left = LOOK_NS;
		if (poll(polled, 2, (int)((left + 999999) / 1000000)) > 0 &&
			polled[0].revents)
			return true;
		if (has_ended(recording))
			return false;
	}
}

/* Whether the file says that it has come to its end. */
static bool is_complete(const char *path)
{
	struct glake_trace_header header = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool whole = fd >= 0 && read(fd, &header, sizeof(header)) == sizeof(header);

	if (fd >= 0)
		close(fd);
	return whole && header.closed_ns;
}

static enum end end(struct recording *recording)
{
	const struct timespec look = {0, LOOK_NS};
	char why[GLK_WIRE_WHY_MAX];
	int err = ask(recording, "trace.stop", NULL, why);

	if (!err)
		return STOPPED;
	if (err == -EREMOTEIO) /* the context is closed, or somebody else has ended it */
		return ENDED_BEFORE;
	/* with the last context the socket goes, and then the file gets its end */
	for (int i = 0; i < LOOKS; i++) {
		if (has_ended(recording))
			return PROCESS_ENDED;
		if (is_complete(recording->path))
			return ENDED_BEFORE;
		nanosleep(&look, NULL);
	}
	glk_tool_say("process %d: %s", recording->pid, why);
	say_may_record(recording);
	return UNKNOWN;
}

static int report(const struct recording *recording, enum end how)
{
	static const char *const words[] = {[STOPPED] = "",
		[ENDED_BEFORE] = ", until its context was closed or somebody ended that",
		[PROCESS_ENDED] = ", until it ended"};
	const struct trace_tool_options *options = recording->options;
	struct glk_json json;
	struct stat about;

	if (stat(recording->path, &about)) {
		glk_tool_say("%s: %s; the process may see other files under that name",
			recording->path, strerror(errno));
		return GLK_TOOL_FAILED;
	}
	if (!options->json) {
		if (!options->quiet)
			glk_tool_say("process %d is recorded in %s%s", recording->pid,
				options->output, words[how]);
		return GLK_TOOL_OK;
	}
	glk_json_init(&json, stdout, 2);
	glk_json_object(&json);
	glk_json_add_text(&json, "trace", recording->path);
	glk_json_add_int(&json, "pid", recording->pid);
	glk_json_add_uint(&json, "bytes", (uint64_t)about.st_size);
	glk_json_add_bool(&json, "process_ended", how == PROCESS_ENDED);
	glk_json_add_bool(&json, "ok", true);
	glk_json_end(&json);
	return glk_json_fini(&json) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static int record(struct recording *recording)
{
	const struct trace_tool_options *options = recording->options;
	enum end how = PROCESS_ENDED;
	sigset_t ends;
	int signals;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	/* from here on an interrupt ends the recording, and not this program before it */
	sigprocmask(SIG_BLOCK, &ends, NULL);
	signals = signalfd(-1, &ends, SFD_CLOEXEC);
	if (signals < 0) {
		glk_tool_say("signals: %s", strerror(errno));
		return GLK_TOOL_FAILED;
	}
	if (begin(recording)) {
		close(signals);
		return GLK_TOOL_FAILED;
	}
	if (!options->quiet && !options->json)
		glk_tool_say("process %d is being recorded in %s", recording->pid,
			options->output);
	if (wait_for_end(recording, signals))
		how = end(recording);
	close(signals);
	return how == UNKNOWN ? GLK_TOOL_FAILED : report(recording, how);
}

int trace_tool_record(const struct trace_tool_options *options)
{
	struct recording recording = {.options = options, .context = options->context};
	char path[PATH_MAX];
	int status = GLK_TOOL_FAILED;

	recording.pid = process_find(options->file, &recording.room);
	if (!recording.pid)
		return GLK_TOOL_FAILED;
	/* not of every kernel, nor for a process of another namespace */
	recording.pidfd = (int)syscall(SYS_pidfd_open, recording.pid, 0);
	recording.path = path;
	if (!absolute(options->output, path, sizeof(path)))
		status = record(&recording);
	if (recording.pidfd >= 0)
		close(recording.pidfd);
	close(recording.room);
	return status;
}
