/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glake-probe LIBRARY NODE: loads a libcuda and makes a page on a NUMA node of the host with it, so that
 * the driver crashes here if it has to. The exit status is an enum glk_probe. No context is made if the
 * driver wants none for it: that would take memory of a GPU, and some GPUs have one context alone.
 */
#include "driver/cuda_lib.h"
#include "driver/probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((size_t)2 << 20)

static void crashed(int signal)
{
	_exit(GLK_PROBE_CRASHED);
}

/* What is told of a crash is told by the exit status: no core file, and no line in a log. */
static void be_quiet(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	static char room[64 << 10]; /* the stack may be what it runs out of */
	struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_ONSTACK};
	/* 1, and not 0, keeps the kernel from starting a program that takes cores */
	struct rlimit core = {1, 1};
	stack_t stack = {.ss_sp = room, .ss_size = sizeof(room)};

	setrlimit(RLIMIT_CORE, &core);
	sigaltstack(&stack, NULL);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		sigaction(signals[i], &action, NULL);
}

static glk_cu_result try_page(const struct glk_cuda_lib *lib, int node)
{
	struct glk_cu_prop prop = {.type = GLK_CU_ALLOCATION_PINNED,
		.location = {GLK_CU_LOCATION_HOST_NUMA, node}};
	struct CUctx_st *context;
	glk_cu_device device;
	glk_cu_page page = 0;
	glk_cu_result result = lib->cuMemCreate(&page, PAGE, &prop, 0);

	if (result == GLK_CU_INVALID_CONTEXT && !lib->cuDeviceGet(&device, 0) &&
		!lib->cuDevicePrimaryCtxRetain(&context, device) &&
		!lib->cuCtxPushCurrent(context))
		result = lib->cuMemCreate(&page, PAGE, &prop, 0);
	return result ? result : lib->cuMemRelease(page);
}

/* What the program that asks has open is none of its business. */
static void close_all(void)
{
	struct dirent *entry;
	DIR *all;

	if (!syscall(SYS_close_range, 3, ~0u, 0))
		return;
	/* Linux before 5.9, or a filter of system calls */
	all = opendir("/proc/self/fd");
	while (all && (entry = readdir(all))) {
		int fd = atoi(entry->d_name);

		if (fd > 2 && fd != dirfd(all))
			close(fd);
	}
	if (all)
		closedir(all);
}

int main(int argc, char **argv)
{
	struct glk_cuda_lib lib;

	close_all();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc != 3 || glk_cuda_lib_load(argv[1], &lib))
		return GLK_PROBE_UNABLE;
	be_quiet();
	/* no destructor of the driver is of interest */
	_exit(try_page(&lib, atoi(argv[2])) ? GLK_PROBE_REFUSED : GLK_PROBE_MADE);
}
