/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pages of NUMA nodes are tried where a driver may crash, and the program notices nothing of it. */
#include "driver/probe.h"
#include "base/clock.h"
#include "cuda_fake.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* It has to start and load a library of ours, on a machine that may be busy. */
#define MINUTE (INT64_C(60) * 1000000000)
#define LONG   MINUTE

static char program[PATH_MAX];
static struct glk_cuda_lib lib;
static struct fake *fake;
static glk_atomic(int) signals;

static enum glk_probe probe(int node, int64_t limit)
{
	return glk_probe_run(program, fake_path(12000), node, limit);
}

static void outcomes(void)
{
	is_int(probe(0, LONG), GLK_PROBE_MADE, "a driver that makes pages");
	is_int(probe(1, LONG), GLK_PROBE_CRASHED, "one that crashes on a node");
	is_int(probe(2, LONG), GLK_PROBE_REFUSED, "one that refuses it");
	is_int(probe(3, 200000000), GLK_PROBE_LATE, "one that does not answer");
	is_int(probe(4, LONG), GLK_PROBE_MADE, "one that wants a context");
	is_int(glk_probe_run("/no/such/program", fake_path(12000), 0, LONG),
		GLK_PROBE_UNABLE, "no such program");
	is_int(glk_probe_run(program, "/no/such/library", 0, LONG), GLK_PROBE_UNABLE,
		"no such library");
	for (int i = 0; i <= GLK_PROBE_LATER; i++)
		ok(glk_probe_text((enum glk_probe)i)[0], "what is said of it: %s",
			glk_probe_text((enum glk_probe)i));
}

static void count(int signal)
{
	glk_add_relaxed(&signals, 1);
}

/* A thread that waits for any child there is. */
static void *reap(void *arg)
{
	pid_t *got = arg;
	int status;

	*got = waitpid(-1, &status, 0);
	return NULL;
}

static void in_peace(void)
{
	struct sigaction old, action = {.sa_handler = count};
	pthread_t thread;
	sigset_t before, after;
	pid_t child, got = 0;
	int hold[2];

	if (pipe(hold))
		tap_bail("no pipe");
	child = fork();
	if (!child) {
		char byte;

		close(hold[1]);
		_exit(read(hold[0], &byte, 1) != 0);
	}
	sigaction(SIGCHLD, &action, &old);
	pthread_create(&thread, NULL, reap, &got);
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	errno = ERANGE;
	is_int(probe(0, LONG), GLK_PROBE_MADE, "while others wait for any child");
	is_int(errno, ERANGE, "errno is left alone");
	is_int(probe(1, LONG), GLK_PROBE_CRASHED, "and if it crashes");
	is_int(probe(3, 200000000), GLK_PROBE_LATE, "or is ended");
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	ok(!memcmp(&before, &after, sizeof(before)), "no signal is blocked afterwards");
	is_int(glk_load_relaxed(&signals), 0, "they are told of no child");
	close(hold[1]);
	pthread_join(thread, NULL);
	is_int(got, child, "and get none but their own");
	/* a handler may come late, under the thread sanitizer as well */
	for (int i = 0; i < 60000 && !glk_load_relaxed(&signals); i++)
		usleep(1000);
	is_int(glk_load_relaxed(&signals), 1, "of which they are told");
	close(hold[0]);
	action.sa_handler = SIG_IGN;
	sigaction(SIGCHLD, &action, NULL);
	is_int(probe(0, LONG), GLK_PROBE_MADE, "where children are nobody's concern");
	is_int(probe(2, LONG), GLK_PROBE_REFUSED, "and if it refuses");
	sigaction(SIGCHLD, &old, NULL);
	ok(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "no child is left");
}

static glk_atomic(int) hanging; /* the thread that asks what does not answer */

static void *hang(void *arg)
{
	enum glk_probe *ret = arg;

	glk_store_release(&hanging, gettid());
	*ret = probe(3, LONG);
	return NULL;
}

/* Waits for a child of a process or thread: which, or 0 where the kernel does not tell. */
static pid_t await_child(pid_t parent)
{
	char path[64], text[16] = "";
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", parent, parent);
	do {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return 0;
		got = read(fd, text, sizeof(text) - 1);
		close(fd);
	} while (!got);
	return atoi(text);
}

/* Whether a pipe has no writer once it is closed here, while a probe hangs. */
static bool is_gone(int flags)
{
	enum glk_probe ended = GLK_PROBE_MADE;
	struct pollfd end;
	pthread_t thread;
	pid_t tried;
	int hold[2], got;

	if (pipe2(hold, flags))
		return false;
	end = (struct pollfd){.fd = hold[0]};
	glk_store_relaxed(&hanging, 0);
	pthread_create(&thread, NULL, hang, &ended);
	while (!glk_load_acquire(&hanging))
		;
	tried = await_child(await_child(glk_load_relaxed(&hanging)));
	close(hold[1]);
	got = poll(&end, 1, 60000);
	kill(tried, SIGKILL);
	pthread_join(thread, NULL);
	close(hold[0]);
	return got == 1 && ended == GLK_PROBE_CRASHED;
}

/* Answers close_range as a system does that has none. */
static int forbid(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog filter = {sizeof(code) / sizeof(*code), code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

/* What is closed while it runs is closed. */
static void lets_go(void)
{
	int status = 0;
	pid_t child;

	if (access("/proc/thread-self/children", R_OK)) {
		tap_skip("descriptors", "this kernel does not tell children of threads");
		return;
	}
	ok(is_gone(O_CLOEXEC), "the last writer of a pipe that is closed is gone");
	child = fork();
	if (!child)
		_exit(forbid() ? 2 : is_gone(0));
	waitpid(child, &status, 0);
	if (WEXITSTATUS(status) == 2)
		tap_skip("no close_range", "no filter of system calls can be set here");
	else
		is_int(WEXITSTATUS(status), 1, "  though Linux has no close_range");
}

/* What a driver starts ends with the process that it is loaded in. */
static void leaves_nothing(void)
{
	static const char text[] = "#!/bin/sh\nsleep 300 &\nexit 0\n";
	char path[128];
	struct pollfd end;
	int hold[2], fd = mkstemp(tap_template(path, sizeof(path), "probe"));

	if (fd < 0 || fchmod(fd, 0700) || write(fd, text, sizeof(text) - 1) < 0 ||
		pipe(hold))
		tap_bail("no program");
	close(fd);
	is_int(glk_probe_run(path, "", 0, LONG), GLK_PROBE_MADE,
		"one that leaves a child");
	close(hold[1]);
	end = (struct pollfd){.fd = hold[0]};
	is_int(poll(&end, 1, 60000), 1, "  which is ended too");
	close(hold[0]);
	unlink(path);
}

/* A user who may have no process more. Root may have any number. */
static void has_no_room(void)
{
	struct rlimit none = {0, 0};
	pid_t child = fork();
	int status = 0;

	if (!child) {
		if ((!getuid() && setuid(65534)) || setrlimit(RLIMIT_NPROC, &none))
			_exit(99);
		_exit((int)probe(0, LONG));
	}
	waitpid(child, &status, 0);
	is_int(WEXITSTATUS(status), GLK_PROBE_LATER, "no room for a process");
}

/* What may have passed by the next time is tried again, but not for ever. */
static void again(struct glk_drv *drv)
{
	static char large[256 << 10]; /* more than a new program may be given */

	memset(large, 'x', sizeof(large) - 1);
	lib.version = 13010;
	setenv("FAKE_LARGE", large, 1);
	is_int(drv->ops->node_try(drv, 5, false), -EAGAIN, "node 5 cannot be tried");
	unsetenv("FAKE_LARGE");
	is_int(drv->ops->node_try(drv, 5, false), 0, "and then it can");
	setenv("FAKE_LARGE", large, 1);
	is_int(drv->ops->node_try(drv, 6, false), -EAGAIN, "nor can node 6");
	is_int(drv->ops->node_try(drv, 6, false), -EAGAIN, "nor the next time");
	is_int(drv->ops->node_try(drv, 6, false), -EOPNOTSUPP, "three times are enough");
	unsetenv("FAKE_LARGE");
	is_int(drv->ops->node_try(drv, 6, false), -EOPNOTSUPP, "it is left then");
}

/* One that never answers is waited for once, whatever node is asked for. */
static void silent(struct glk_drv *drv)
{
	const int64_t patience = 2 * INT64_C(1000000000);
	int64_t since = glk_clock_ns();

	glk_cuda_node_patience(patience);
	is_int(drv->ops->node_try(drv, 3, false), -EOPNOTSUPP, "node 3 never answers");
	ok(glk_clock_ns() - since >= patience, "which is waited for");
	/* who waited a second time would not come back while the test may last */
	glk_cuda_node_patience(60 * MINUTE);
	for (int i = 0; i < 3; i++)
		is_int(drv->ops->node_try(drv, 3, false), -EOPNOTSUPP, "nor again");
	for (int node = 7; node < 15; node++)
		is_int(drv->ops->node_try(drv, node, false), -EOPNOTSUPP,
			"other nodes are not asked for");
	is_int(drv->ops->node_try(drv, 0, false), 0, "what it said before stays");
	glk_cuda_node_patience(0);
}

/* What the table of operations makes of it. */
static void once(struct glk_drv *drv)
{
	char found[PATH_MAX];

	if (glk_probe_find(found, sizeof(found)))
		tap_bail("the program does not lie beside the test, or that was not "
			 "started by its whole path");
	fake->version = lib.version = 13010;
	is_int(drv->ops->node_try(drv, 0, false), 0, "node 0");
	is_int(drv->ops->node_try(drv, 1, false), -EOPNOTSUPP,
		"node 1, where it crashes");
	unsetenv("FAKE_NODE_1");
	is_int(drv->ops->node_try(drv, 1, false), -EOPNOTSUPP, "is not tried again");
	setenv("FAKE_NODE_0", "refuse", 1);
	is_int(drv->ops->node_try(drv, 0, false), 0, "nor is one that is sound");
	is_int(drv->ops->node_try(drv, -1, false), -EINVAL, "no node");
	is_int(drv->ops->node_try(drv, 1024, false), -EINVAL, "nor is this");
	lib.version = 13020;
	is_int(drv->ops->node_try(drv, 2, false), 0, "a newer driver is not asked");
	is_int(drv->ops->node_try(drv, 2, true), -EOPNOTSUPP, "but if it is wanted");
	ok(!glk_probe_find(found, sizeof(found)) && !access(found, X_OK),
		"the program is found, and runs");
	is_int(glk_probe_find(found, 40), -ENOENT, "a path that is too long");
}

int main(void)
{
	struct glk_cuda *cuda;
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

#ifdef __SANITIZE_THREAD__
	tap_skip_all(
		"the thread sanitizer ends what has threads, forks and has more, and holds signals");
#endif
	if (tap_on_valgrind())
		tap_skip_all("valgrind knows no clone() that shares descriptors");
	tap_plan_later();
	self[length > 0 ? length : 0] = '\0';
	snprintf(program, sizeof(program), "%.4000s/glake-probe", dirname(self));
	cuda = fake_open(&lib, &fake);
	if (!cuda)
		tap_bail("no fake libcuda");
	setenv("FAKE_NODE_1", "crash", 1);
	setenv("FAKE_NODE_2", "refuse", 1);
	setenv("FAKE_NODE_3", "hang", 1);
	setenv("FAKE_NODE_4", "context", 1);
	outcomes();
	in_peace();
	lets_go();
	leaves_nothing();
	has_no_room();
	once(&cuda->drv);
	again(&cuda->drv);
	silent(&cuda->drv);
	is_int(cuda->drv.ops->close(&cuda->drv), 0, "close");
	return tap_done();
}
