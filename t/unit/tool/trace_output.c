/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file of a conversion that is ended half way: what it made goes, and what it did not make stays. */
#include "t/tap.h"
#include "tool/trace_tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[128], path[192], other[4096];

static bool is_there(const char *name)
{
	return !access(name, F_OK);
}

/* A process that is told to end, in the middle of what it does. */
static int ends(void (*fn)(struct trace_output *output))
{
	static struct trace_output output;
	pid_t pid = fork();
	int status = 0;

	if (!pid) {
		fn(&output);
		raise(SIGTERM);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static void half_way(struct trace_output *output)
{
	if (trace_output_open(output, path) || !is_there(output->part))
		_exit(1);
}

static void complete(struct trace_output *output)
{
	half_way(output);
	if (trace_output_close(output, true) || !is_there(path))
		_exit(1);
}

/* No descriptor is left for it. Another process then has a file of the name that it tried. */
static void refused(struct trace_output *output)
{
	int fd = open(folder, O_RDONLY);
	struct rlimit limit = {.rlim_cur = (rlim_t)fd + 1, .rlim_max = (rlim_t)fd + 1};

	setrlimit(RLIMIT_NOFILE, &limit);
	if (trace_output_open(output, path) != -EMFILE)
		_exit(1);
	close(fd);
	if (*output->part)
		snprintf(other, sizeof(other), "%s", output->part);
	fd = open(other, O_WRONLY | O_CREAT, 0600);
	if (fd < 0)
		_exit(2);
}

static bool is_empty(void)
{
	return !rmdir(folder) && !mkdir(folder, 0700);
}

static void clear(void)
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
}

int main(void)
{
	tap_plan_later();
	if (!mkdtemp(tap_template(folder, sizeof(folder), "output")))
		tap_bail("no folder for the test");
	snprintf(path, sizeof(path), "%s/a.trace", folder);
	snprintf(other, sizeof(other), "%s/a.trace.others", folder);
	is_int(ends(half_way), SIGTERM, "one is ended half way");
	ok(is_empty(), "  nothing is left of it");
	is_int(ends(complete), SIGTERM, "one is ended behind its end");
	ok(is_there(path), "  which leaves the file");
	unlink(path);
	is_int(ends(refused), SIGTERM, "one is ended that could not be made");
	ok(!is_empty(), "  what others have stays");
	clear();
	rmdir(folder);
	return tap_done();
}
