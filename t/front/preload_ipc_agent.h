/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_PRELOAD_IPC_AGENT_H
#define GLK_T_PRELOAD_IPC_AGENT_H

/* A child that uses the driver of preload_cuda.h and does what it is told over a socket. */
#include "preload_calls.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREAD_HANDLES 12
#define THREAD_COUNT   8
#define AGENT_STUCK_S  900 /* the test itself has less time */

enum what {
	ALLOC,
	FREE,
	FILL,
	CHECK,
	HANDLE,
	OPEN,
	OPEN_NULL,
	CLOSE,
	RANGE,
	COUNT,
	FDS,
	FIRST_FDS,
	FEW_FDS,
	ALL_FDS,
	SHORTAGE,
	FORK,
	RESET,
	GRANTS,
	USE_SECOND,
	TAKE_CONTEXT,
	DROP_CONTEXT,
	KEEP,
	THREADS,
};

/* There and back. */
struct order {
	enum what what;
	int number;
	fake_address ptr;
	size_t size;
	fake_result result;
	char name[40];
	struct calls_handle handle;
};

struct agent {
	pid_t pid;
	int fd;
};

/* Properties of a page of GPU 0: pinned, for descriptors, of a GPU. */
static const int agent_page[16] = {1, 1, 1, 0};

/* Whether what hangs on time is looked at; see t/flow/meson.build. */
static inline bool agent_real_time(void)
{
	return getenv("GLAKE_TEST_REAL_TIME");
}

/* ns by the clock then, else none. */
static inline int64_t agent_ns(void)
{
	struct timespec now = {0};

	if (agent_real_time())
		clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline int64_t agent_seconds(void)
{
	return agent_ns() / 1000000000;
}

static const char *agent_route;
static struct calls agent_cu;
static struct calls_handle agent_kept[THREAD_HANDLES];

/* Descriptors but for those that the driver has for its pages. */
static int agent_fds(void)
{
	DIR *all = opendir("/proc/self/fd");
	int count = -driver_state()->pages();

	while (readdir(all))
		count++;
	closedir(all);
	return count;
}

/* How far the bytes of a block lie apart that are enough to tell pages from each other: of the driver's
 * pages, which are larger than the machine's, where there are many. */
static size_t agent_stride(size_t size)
{
	return size > 4 * MIB ? 65536 : 4096;
}

static int agent_differs(const struct order *order)
{
	const unsigned char *byte = (const void *)(uintptr_t)order->ptr;
	size_t stride = agent_stride(order->size);
	int wrong = 0;

	for (size_t i = 0; i < order->size; i += stride)
		wrong += byte[i] !=
			(unsigned char)((size_t)order->number + i / stride * 7);
	return wrong;
}

static void agent_fill(const struct order *order)
{
	unsigned char *byte = (void *)(uintptr_t)order->ptr;
	size_t stride = agent_stride(order->size);

	for (size_t i = 0; i < order->size; i += stride)
		byte[i] = (unsigned char)((size_t)order->number + i / stride * 7);
}

static void *agent_thread(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	uintptr_t wrong = 0;
	fake_address ptr;

	calls_use(&agent_cu, 0);
	for (int i = 0; i < 60; i++) {
		int which = rand_r(&seed) % THREAD_HANDLES;

		if (agent_cu.cuIpcOpenMemHandle(&ptr, agent_kept[which], 1)) {
			wrong++;
			continue;
		}
		wrong += *(unsigned char *)(uintptr_t)ptr != which;
		wrong += agent_cu.cuIpcCloseMemHandle(ptr) != 0;
	}
	return (void *)wrong;
}

static int agent_threads(void)
{
	pthread_t thread[THREAD_COUNT];
	int wrong = 0;
	void *found;

	for (uintptr_t i = 0; i < THREAD_COUNT; i++)
		pthread_create(&thread[i], NULL, agent_thread, (void *)(i + 1));
	for (int i = 0; i < THREAD_COUNT; i++) {
		pthread_join(thread[i], &found);
		wrong += (int)(uintptr_t)found;
	}
	return wrong;
}

/* No more descriptors than there are, and some. */
static fake_result agent_limit(bool few, int more)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = few ? (rlim_t)(agent_fds() + driver_state()->pages() + more)
			     : limit.rlim_max;
	return (fake_result)setrlimit(RLIMIT_NOFILE, &limit);
}

static fake_result agent_fork(void)
{
	pid_t pid = fork();

	if (pid)
		return pid < 0;
	prctl(PR_SET_PDEATHSIG, 0);
	alarm(100);
	close(STDOUT_FILENO); /* nobody waits for it */
	close(STDERR_FILENO);
	for (;;)
		pause();
}

static fake_result agent_memory(struct order *o)
{
	const struct calls *cu = &agent_cu;

	switch (o->what) {
	case ALLOC:
		return cu->cuMemAlloc(&o->ptr, o->size);
	case FREE:
		return cu->cuMemFree(o->ptr);
	case FILL:
		agent_fill(o);
		return 0;
	case CHECK:
		o->number = agent_differs(o);
		return 0;
	case HANDLE:
		return cu->cuIpcGetMemHandle(&o->handle, o->ptr);
	case OPEN:
		return cu->cuIpcOpenMemHandle(&o->ptr, o->handle, (unsigned)o->number);
	case OPEN_NULL:
		return cu->cuIpcOpenMemHandle(NULL, o->handle, 1);
	case CLOSE:
		return cu->cuIpcCloseMemHandle(o->ptr);
	case RANGE:
		return cu->cuMemGetAddressRange(&o->ptr, &o->size, o->ptr);
	default:
		return 9999;
	}
}

static fake_result agent_act(struct order *o, int first_fds)
{
	const struct calls *cu = &agent_cu;

	switch (o->what) {
	case COUNT:
		o->number = driver_state()->count(o->name);
		return 0;
	case FDS:
		o->number = agent_fds();
		return 0;
	case FIRST_FDS:
		o->number = first_fds;
		return 0;
	case FEW_FDS:
	case ALL_FDS:
		return agent_limit(o->what == FEW_FDS, o->number);
	case SHORTAGE:
		/* what no GPU has: the preload gives back what it can before it is refused */
		return cu->cuMemCreate(&o->ptr, FAKE_MEMORY * 2, agent_page, 0);
	case FORK:
		return agent_fork();
	case RESET:
		return cu->cuDevicePrimaryCtxReset(0);
	case GRANTS:
		o->number = (int)driver_state()->grants();
		return 0;
	case USE_SECOND:
		calls_use(cu, 1);
		return 0;
	case TAKE_CONTEXT:
		calls_use(cu, 0);
		return 0;
	case DROP_CONTEXT:
		return cu->cuCtxSetCurrent(NULL);
	case KEEP:
		agent_kept[o->number] = o->handle;
		return 0;
	case THREADS:
		o->number = agent_threads();
		return 0;
	default:
		return agent_memory(o);
	}
}

static _Noreturn void agent_run(int fd, unsigned user)
{
	struct order order;
	fake_address ptr;
	int first;

	alarm(AGENT_STUCK_S);
	agent_cu = calls_by(agent_route);
	calls_use(&agent_cu, 0);
	/* what the first use opens for good; libraries among it, from a folder that another user may
	 * not be able to enter */
	if (agent_cu.cuMemAlloc(&ptr, 4096) || agent_cu.cuMemFree(ptr))
		_exit(96);
	if (user && setresuid(user, user, user))
		_exit(97);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	first = agent_fds();
	while (recv(fd, &order, sizeof(order), 0) == sizeof(order)) {
		order.result = agent_act(&order, first);
		send(fd, &order, sizeof(order), MSG_NOSIGNAL);
	}
	exit(0);
}

static struct agent agent_new(unsigned user)
{
	struct agent agent;
	int pair[2];

	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		tap_bail("no socket");
	agent.pid = fork();
	if (!agent.pid) {
		close(pair[0]);
		agent_run(pair[1], user);
	}
	close(pair[1]);
	agent.fd = pair[0];
	return agent;
}

/* What the driver said. */
static fake_result tell(struct agent *agent, struct order *order)
{
	if (send(agent->fd, order, sizeof(*order), MSG_NOSIGNAL) != sizeof(*order) ||
		recv(agent->fd, order, sizeof(*order), 0) != sizeof(*order)) {
		int status = -1;

		waitpid(agent->pid, &status, WNOHANG);
		tap_note("told %d, waited for with status %#x", (int)order->what, status);
		tap_bail("an agent has died");
	}
	return order->result;
}

static void agent_kill(struct agent *agent)
{
	kill(agent->pid, SIGKILL);
	waitpid(agent->pid, NULL, 0);
	close(agent->fd);
}

static void agent_end(struct agent *agent)
{
	int status = 0;

	close(agent->fd);
	waitpid(agent->pid, &status, 0);
	is_int(status, 0, "an agent ends well");
}

#endif
