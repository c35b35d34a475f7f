/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process in which the driver may crash. CUDA does not work in the fork of a process that has
 * initialised it, so a program of its own is started (probe_main.c).
 *
 * The program of the user shall not meet that process: one of its threads may wait for any child, and a
 * handler of SIGCHLD may count them. A process that was started by exec always tells its parent by
 * SIGCHLD. So there is another in between: a keeper, which tells nobody when it ends and which only
 * __WCLONE waits for; it starts the program, ends it when its time is over, and says by its own exit
 * status what came of it. The keeper shares our memory and our thread stands still until it has
 * ended, as with vfork: no page table is copied, and no memory that is locked. It shares our descriptors
 * too and opens none: what is closed meanwhile is closed, a pipe, or a file with a lock. All signals are blocked in
 * it, so that no handler of the user's runs there, and it dies with our thread.
 */
#include "driver/probe.h"

#include "base/clock.h"
#include "base/slab.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of the keeper: posix_spawn makes a stack of its own. */
#define STACK ((size_t)64 << 10)

/* The kernel's own sets of signals are words. */
#define SIGNALS (_NSIG / 8)

extern char **environ;

struct order {
	char *const *argv, *const *envp;
	int64_t limit;
};

/* `last` is the last one that it may say. */
static enum glk_probe outcome(int status, enum glk_probe last)
{
	if (WIFSIGNALED(status))
		return GLK_PROBE_CRASHED;
	if (WEXITSTATUS(status) > (int)last)
		return GLK_PROBE_UNABLE; /* 127: it could not be run */
	return (enum glk_probe)WEXITSTATUS(status);
}

/* A group goes with its first process, which is not reaped yet, so that the number is no other's. */
static bool end_group(pid_t child, int *ret_status)
{
	kill(-child, SIGKILL);
	return waitpid(child, ret_status, 0) == child;
}

/* Waits for a child of the keeper until a time; false: it is not over. */
static bool wait_until(pid_t child, int64_t end, int *ret_status)
{
	sigset_t told;

	sigemptyset(&told);
	sigaddset(&told, SIGCHLD);
	for (;;) {
		siginfo_t over = {.si_pid = 0};
		int err = waitid(P_PID, (id_t)child, &over, WEXITED | WNOHANG | WNOWAIT);
		int64_t left = end - glk_clock_ns();
		struct timespec wait = {left / 1000000000, left % 1000000000};

		if (!err && over.si_pid == child)
			return end_group(child, ret_status);
		if (err || left <= 0)
			return false;
		/* blocked, so it is kept until it is taken here */
		sigtimedwait(&told, NULL, &wait);
	}
}

static int start(const struct order *order, pid_t *ret_child)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t how;
	sigset_t none;
	int err;

	sigemptyset(&none);
	err = posix_spawn_file_actions_init(&files);
	if (err)
		return err;
	err = posix_spawnattr_init(&how);
	if (err)
		goto files;
	/* A process group of its own: what a terminal sends to ours is not for it. */
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&how, &none);
	err = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDWR, 0);
	for (int fd = 1; fd <= 2 && !err; fd++)
		err = posix_spawn_file_actions_adddup2(&files, 0, fd);
	if (!err)
		err = posix_spawn(ret_child, order->argv[0], &files, &how, order->argv,
			order->envp);
	posix_spawnattr_destroy(&how);
files:
	posix_spawn_file_actions_destroy(&files);
	return err;
}

/* The keeper. What it returns is its exit status. */
static int keep(void *arg)
{
	const struct order *order = arg;
	struct sigaction plain = {.sa_handler = SIG_DFL};
	int status, err;
	pid_t child;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* where the user ignores it, children could not be waited for */
	sigaction(SIGCHLD, &plain, NULL);
	err = start(order, &child);
	if (err == EAGAIN || err == ENOMEM)
		return GLK_PROBE_LATER;
	if (err)
		return GLK_PROBE_UNABLE;
	if (wait_until(child, glk_clock_ns() + order->limit, &status))
		return (int)outcome(status, GLK_PROBE_UNABLE);
	kill(-child, SIGKILL);
	/* one that hangs in the kernel dies later, as somebody else's child */
	wait_until(child, glk_clock_ns() + 1000000000, &status);
	return GLK_PROBE_LATE;
}

static enum glk_probe keeper_run(struct order *order)
{
	uint64_t all = UINT64_MAX, before = 0;
	int cancel, status = 0, error = errno;
	enum glk_probe probe = GLK_PROBE_UNABLE;
	char *stack = glk_region_new(STACK);
	pid_t keeper, got;

	if (!stack)
		return GLK_PROBE_LATER;
	/* the keeper runs as our thread, which must not end there; pthread_sigmask leaves out two */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, SIGNALS);
	/* the kernel gives such a child its own table of handlers */
	keeper = clone(keep, stack + STACK, CLONE_VM | CLONE_VFORK | CLONE_FILES, order);
	if (keeper < 0 && (errno == EAGAIN || errno == ENOMEM))
		probe = GLK_PROBE_LATER;
	do {
		got = keeper < 0 ? -1 : waitpid(keeper, &status, (int)__WCLONE);
	} while (got < 0 && keeper > 0 && errno == EINTR);
	if (got == keeper && keeper > 0 && WIFEXITED(status))
		probe = outcome(status, GLK_PROBE_LATER);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SIGNALS);
	pthread_setcancelstate(cancel, NULL);
	glk_region_free(stack, STACK);
	errno = error;
	return probe;
}

/* A front end that is preloaded would serve the program too, and ask it of pages. */
static bool is_preload(const char *variable)
{
	return !strncmp(variable, "LD_PRELOAD=", 11) ||
		!strncmp(variable, "LD_AUDIT=", 9);
}

enum glk_probe glk_probe_run(
	const char *program, const char *library, int node, int64_t limit)
{
	char path[PATH_MAX], name[PATH_MAX], number[16];
	char *const argv[] = {path, name, number, NULL};
	size_t count = 0, used = 0, size;
	enum glk_probe probe;
	char **envp;

	if (strlen(program) >= sizeof(path) || strlen(library) >= sizeof(name))
		return GLK_PROBE_UNABLE;
	strcpy(path, program);
	strcpy(name, library);
	snprintf(number, sizeof(number), "%d", node);
	while (environ && environ[count])
		count++;
	size = (count + 1) * sizeof(*envp);
	envp = glk_region_new(size);
	if (!envp)
		return GLK_PROBE_LATER;
	for (size_t i = 0; i < count && environ[i]; i++) {
		if (!is_preload(environ[i]))
			envp[used++] = environ[i];
	}
	probe = keeper_run(&(struct order){.argv = argv, .envp = envp, .limit = limit});
	glk_region_free(envp, size);
	return probe;
}

int glk_probe_find(char *path, size_t size)
{
	/* as it is installed; in a build folder, and in a wheel */
	static const char *const places[] = {"glake/glake-probe", "glake-probe"};
	Dl_info info;
	char *end;

	if (!dladdr(places, &info) || !info.dli_fname)
		return -ENOENT;
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		if (strlen(info.dli_fname) + 32 >= size)
			return -ENOENT;
		strcpy(path, info.dli_fname);
		end = strrchr(path, '/');
		/* one that was named from a folder that may have been left since is not followed */
		if (path[0] != '/' || !end)
			return -ENOENT;
		strcpy(end + 1, places[i]);
		if (!access(path, X_OK))
			return 0;
	}
	return -ENOENT;
}

const char *glk_probe_text(enum glk_probe probe)
{
	static const char *const texts[] = {"makes such pages", "refuses them", "crashed",
		"did not answer in time", "could not be tried",
		"could not be tried for lack of room for a process"};

	return texts[probe];
}
