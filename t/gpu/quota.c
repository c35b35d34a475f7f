/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Programs that know nothing of a quota, under the preload, with half of the GPU: what each function says that tells of
 * memory, what a program can hold by each call that gives some, and what NVML says that they hold, alone and two at once.
 * This program starts itself with the preload and says a line for each step; the one that does so has none, so what it
 * sees is the truth.
 */
#include "tap.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB  ((size_t)1 << 20)
#define HELD 4096

extern char **environ;

struct info {
	unsigned long long total, free, used;
};

struct info_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

struct process {
	unsigned pid;
	unsigned long long bytes;
	unsigned instance, compute;
};

struct shape {
	size_t width, height;
	unsigned format, channels;
};

struct prop {
	unsigned type, handles, location;
	int id;
	void *none;
	unsigned char rest[8];
};

/* clang-format off */
#define CUDA(F)										\
	F(cuInit, (unsigned flags))							\
	F(cuDevicePrimaryCtxRetain, (void **context, int gpu))				\
	F(cuCtxSetCurrent, (void *context))						\
	F(cuCtxSynchronize, (void))							\
	F(cuMemGetInfo_v2, (size_t *left, size_t *total))				\
	F(cuDeviceTotalMem_v2, (size_t *total, int gpu))				\
	F(cuMemAlloc_v2, (unsigned long long *ptr, size_t size))			\
	F(cuMemFree_v2, (unsigned long long ptr))					\
	F(cuMemAllocAsync, (unsigned long long *ptr, size_t size, void *stream))	\
	F(cuMemCreate, (unsigned long long *page, size_t size, const struct prop *prop,	\
		unsigned long long flags))						\
	F(cuMemRelease, (unsigned long long page))					\
	F(cuArrayCreate_v2, (unsigned long long *array, const struct shape *shape))	\
	F(cuArrayDestroy, (unsigned long long array))
#define NVML(F)										\
	F(nvmlInit_v2, (void))								\
	F(nvmlDeviceGetHandleByIndex_v2, (unsigned index, void **gpu))			\
	F(nvmlDeviceGetMemoryInfo, (void *gpu, struct info *info))			\
	F(nvmlDeviceGetMemoryInfo_v2, (void *gpu, struct info_v2 *info))		\
	F(nvmlDeviceGetComputeRunningProcesses_v3, (void *gpu, unsigned *count,		\
		struct process *processes))
#define DECLARE(name, parameters) static int (*name) parameters;
CUDA(DECLARE)
NVML(DECLARE)
/* clang-format on */

static void *gpu;

static bool load(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW), *fn;

	if (!cuda || !nvml)
		return false;
#define FIND(name, parameters)                                                           \
	fn = dlsym(from, #name);                                                         \
	memcpy(&name, &fn, sizeof(fn));                                                  \
	if (!fn)                                                                         \
		return false;
	void *from = cuda;
	CUDA(FIND)
	from = nvml;
	NVML(FIND)
#undef FIND
	return !cuInit(0) && !nvmlInit_v2() && !nvmlDeviceGetHandleByIndex_v2(0, &gpu);
}

/* ---- The program that knows nothing ---- */

static struct {
	char kind;
	unsigned long long name;
} held[HELD];
static int count;

static int take(char kind, size_t size)
{
	const struct prop prop = {.type = 1, .location = 1};
	const struct shape shape = {
		.width = 32768, .height = size / 131072, .format = 0x20, .channels = 1};
	unsigned long long name = 0;
	int err = 1;

	if (kind == 'a')
		err = cuMemAlloc_v2(&name, size);
	else if (kind == 's')
		err = cuMemAllocAsync(&name, size, NULL);
	else if (kind == 'c')
		err = cuMemCreate(&name, size, &prop, 0);
	else if (kind == 'r')
		err = cuArrayCreate_v2(&name, &shape);
	if (!err) {
		held[count].kind = kind;
		held[count++].name = name;
	}
	return err;
}

/* As often as there is room; how often. */
static int fill(char kind, size_t size)
{
	int got = 0;

	while (count < HELD && !take(kind, size))
		got++;
	return got;
}

static int drop(void)
{
	int err = 0;

	while (count && !err) {
		unsigned long long name = held[--count].name;

		err = held[count].kind == 'c'	  ? cuMemRelease(name)
			: held[count].kind == 'r' ? cuArrayDestroy(name)
						  : cuMemFree_v2(name);
	}
	return err;
}

static void tell(void)
{
	struct info_v2 v2 = {.version = sizeof(v2) | 2u << 24};
	size_t left = 0, total = 0, whole = 0;
	struct timespec from, to;
	struct info v1 = {0};

	clock_gettime(CLOCK_MONOTONIC, &from);
	cuMemGetInfo_v2(&left, &total);
	clock_gettime(CLOCK_MONOTONIC, &to);
	cuDeviceTotalMem_v2(&whole, 0);
	nvmlDeviceGetMemoryInfo(gpu, &v1);
	nvmlDeviceGetMemoryInfo_v2(gpu, &v2);
	printf("%zu %zu %zu %llu %llu %llu %llu %lld\n", left / MIB, total / MIB,
		whole / MIB, v1.free / MIB, v1.total / MIB, v2.free / MIB, v2.total / MIB,
		(to.tv_sec - from.tv_sec) * 1000000LL +
			(to.tv_nsec - from.tv_nsec) / 1000);
}

static int program(void)
{
	char line[64], kind;
	void *context;
	size_t mib;

	if (!load() || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "tell\n"))
			tell();
		else if (!strcmp(line, "drop\n"))
			printf("%d\n", drop());
		else if (sscanf(line, "take %c %zu", &kind, &mib) == 2)
			printf("%d\n", take(kind, mib * MIB));
		else if (sscanf(line, "fill %c %zu", &kind, &mib) == 2)
			printf("%d\n", fill(kind, mib * MIB));
		fflush(stdout);
	}
	return 0;
}

/* ---- The one that looks on ---- */

struct child {
	FILE *to, *from;
	pid_t pid;
};

static char self[PATH_MAX], preload[PATH_MAX];

static bool find_preload(void)
{
	static const char *const places[] = {
		"/../lib/libglake-preload.so", "/../../lib/front/libglake-preload.so"};
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char at[PATH_MAX];

	if (length < 0)
		return false;
	self[length] = '\0';
	memcpy(at, self, sizeof(at));
	dirname(at);
	for (size_t i = 0; i < 2; i++) {
		snprintf(preload, sizeof(preload), "%.3000s%s", at, places[i]);
		if (!access(preload, R_OK))
			return true;
	}
	return false;
}

static struct child start(void)
{
	char *arguments[] = {self, (char *)"program", NULL};
	posix_spawn_file_actions_t actions;
	struct child c;
	int to[2], from[2];

	if (pipe(to) || pipe(from))
		tap_bail("no pipe");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, to[0], 0);
	posix_spawn_file_actions_adddup2(&actions, from[1], 1);
	posix_spawn_file_actions_addclose(&actions, to[1]);
	setenv("LD_PRELOAD", preload, 1);
	if (posix_spawn(&c.pid, self, &actions, NULL, arguments, environ))
		tap_bail("no process");
	unsetenv("LD_PRELOAD");
	posix_spawn_file_actions_destroy(&actions);
	close(to[0]);
	close(from[1]);
	c.to = fdopen(to[1], "w");
	c.from = fdopen(from[0], "r");
	return c;
}

static const char *ask(const struct child *c, const char *line)
{
	static char answer[256];

	fprintf(c->to, "%s\n", line);
	fflush(c->to);
	if (!fgets(answer, sizeof(answer), c->from))
		tap_bail(line);
	answer[strcspn(answer, "\n")] = '\0';
	return answer;
}

static void end(struct child *c)
{
	int status;

	fclose(c->to);
	fclose(c->from);
	waitpid(c->pid, &status, 0);
	is_int(status, 0, "the program ends well");
}

static uint64_t device_used(void)
{
	struct info info = {0};

	nvmlDeviceGetMemoryInfo(gpu, &info);
	return info.used / MIB;
}

/* MiB that NVML says of some processes; what the GPU has more of than before, where it does not list them. */
static uint64_t truth(const struct child *children, int number, uint64_t before)
{
	static struct process list[256];
	unsigned rows = 256;
	uint64_t sum = 0;
	int found = 0;

	if (!nvmlDeviceGetComputeRunningProcesses_v3(gpu, &rows, list))
		for (unsigned i = 0; i < rows; i++)
			for (int c = 0; c < number; c++)
				if ((pid_t)list[i].pid == children[c].pid) {
					sum += list[i].bytes / MIB;
					found++;
				}
	tap_note(
		"NVML lists %d of %d processes, with %llu MiB; the GPU has %llu MiB more than before",
		found, number, (unsigned long long)sum,
		(unsigned long long)(device_used() - before));
	return found == number ? sum : device_used() - before;
}

static void alone(uint64_t quota, uint64_t before)
{
	static const char kinds[] = "acsr";
	struct child c = start();
	unsigned long long f[8];
	uint64_t holds, free;

	sscanf(ask(&c, "tell"), "%llu %llu %llu %llu %llu %llu %llu %llu", &f[0], &f[1],
		&f[2], &f[3], &f[4], &f[5], &f[6], &f[7]);
	tap_note(
		"free, total: cuMemGetInfo %llu, %llu (%llu us); cuDeviceTotalMem %llu; NVML %llu, %llu; v2 %llu, %llu",
		f[0], f[1], f[7], f[2], f[3], f[4], f[5], f[6]);
	ok(f[1] == quota && f[2] == quota && f[4] == quota && f[6] == quota,
		"half of the GPU, %llu MiB, is the whole to each function",
		(unsigned long long)quota);
	ok(f[0] == f[3] && f[0] == f[5] && f[0] < quota, "and as much of it free");
	free = f[0];
	for (int k = 0; k < 4; k++) {
		char order[32];

		snprintf(order, sizeof(order), "fill %c 1024", kinds[k]);
		tap_note("%c: %s GiB", kinds[k], ask(&c, order));
		snprintf(order, sizeof(order), "fill %c 16", kinds[k]);
		tap_note("and %s times 16 MiB", ask(&c, order));
		holds = truth(&c, 1, before);
		ok(holds * 100 <= quota * 102, "by '%c': %.4f of the quota, at most 1.02",
			kinds[k], (double)holds / (double)quota);
		ok(holds * 100 >= quota * 97, "and not less than 0.97 of it");
		for (int other = 0; other < 4; other++) {
			snprintf(order, sizeof(order), "take %c 64", kinds[other]);
			ok(!strcmp(ask(&c, order), "2"), "  no more by '%c'",
				kinds[other]);
		}
		is_str(ask(&c, "drop"), "0", "it is given back");
		sscanf(ask(&c, "tell"), "%llu", &f[0]);
		ok(f[0] + 512 >= free, "and free again: %llu of %llu MiB", f[0],
			(unsigned long long)free);
	}
	end(&c);
}

static void together(uint64_t quota, uint64_t before)
{
	struct child c[2] = {start(), start()};
	char first[256];
	uint64_t holds;

	ask(&c[0], "tell");
	ask(&c[1], "tell");
	for (int turn = 0; turn < 3; turn++) {
		unsigned long long a[7], b[7];
		int same = 0;

		snprintf(first, sizeof(first), "%s", ask(&c[0], "tell"));
		sscanf(first, "%llu %llu %llu %llu %llu %llu %llu", &a[0], &a[1], &a[2],
			&a[3], &a[4], &a[5], &a[6]);
		sscanf(ask(&c[1], "tell"), "%llu %llu %llu %llu %llu %llu %llu", &b[0],
			&b[1], &b[2], &b[3], &b[4], &b[5], &b[6]);
		for (int i = 0; i < 7; i++)
			same += a[i] == b[i];
		ok(same == 7, "two at once see the same seven figures (free: %llu MiB)",
			a[0]);
		if (turn < 2)
			ask(&c[turn], turn ? "fill c 1024" : "take a 4096");
	}
	ask(&c[0], "fill a 64");
	ask(&c[1], "fill s 64");
	ask(&c[1], "fill c 16");
	holds = truth(c, 2, before);
	ok(holds * 100 <= quota * 102, "together %.4f of the quota, at most 1.02",
		(double)holds / (double)quota);
	ok(holds * 100 >= quota * 97, "and not less than 0.97 of it");
	kill(c[0].pid, SIGKILL);
	waitpid(c[0].pid, NULL, 0);
	tap_note("one is killed, the other gets %s GiB", ask(&c[1], "fill a 1024"));
	holds = truth(&c[1], 1, before);
	ok(holds * 100 >= quota * 97 && holds * 100 <= quota * 102,
		"which makes %.4f of the quota", (double)holds / (double)quota);
	end(&c[1]);
}

int main(int argc, char **argv)
{
	char folder[] = "/tmp/glake-quota-XXXXXX";
	uint64_t quota, before;
	size_t total;

	if (argc > 1 && !strcmp(argv[1], "program"))
		return program();
	if (!load())
		tap_skip_all("no GPU, or no NVML");
	if (!find_preload() || !mkdtemp(folder))
		tap_skip_all("no libglake-preload.so beside the program");
	tap_plan_later();
	cuDeviceTotalMem_v2(&total, 0);
	/* a part is told in millionths of it */
	quota = total / 2 / MIB;
	before = device_used();
	setenv("XDG_RUNTIME_DIR", folder, 1);
	setenv("GLAKE_SHARE_QUOTA", "50%", 1);
	alone(quota, before);
	together(quota, before);
	return tap_done();
}
