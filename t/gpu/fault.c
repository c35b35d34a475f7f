/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the driver tells of a kernel that reached past a block which lies against nothing: the error, its log, and a core dump of
 * the GPU. Each in a process of its own. Whether the dump has the kernel's name and the address is told as an answer.
 */
#include "kernels.h"
#include "smash.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <glake/glake.h>

extern char **environ;

/* smash(address, bytes), and fetch(address, into): a warp that waits for what it reads is there when the fault is seen. */
static const char text[] =
	GPU_SMASH_PTX ".visible .entry fetch(.param .u64 a, .param .u64 n)\n"
		      "{\n"
		      ".reg .b64 %rd<3>;\n"
		      ".reg .b32 %r<3>;\n"
		      "ld.param.u64 %rd1, [a];\n"
		      "ld.param.u64 %rd2, [n];\n"
		      "ld.volatile.global.u32 %r1, [%rd1];\n"
		      "add.u32 %r2, %r1, 7;\n"
		      "st.global.u32 [%rd2], %r2;\n"
		      "st.global.u64 [%rd2+8], %rd1;\n"
		      "ret;\n"
		      "}\n";

/* Of cuda.h, CUcoredumpSettings and CUCoredumpGenerationFlags. */
enum { ON_EXCEPTION = 1, TRIGGER_HOST = 2, FILE_NAME = 5, GENERATION = 7 };
#define LIGHT	   0x2f /* neither code that was not relocated nor memory */
#define SKIP_ABORT 0x10

#define SIZE  4096
#define LOOKS 60

static struct gpu_work work;

static void set(int (*fn)(int, void *, size_t *), int what, void *value, size_t size)
{
	must_cuda(fn(what, value, &size), "cuCoredumpSetAttributeGlobal");
}

/* Writes the address to `told`, and then does it; the driver's error. */
static int plant(const char *kernel, const char *file, uint64_t *told)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = (const char *const[]){"guard.mode=full", NULL}};
	const struct timespec step = {.tv_nsec = 100000000};
	int (*attribute)(int, void *, size_t *) = NULL, (*init)(unsigned) = NULL;
	void *cuda = *file ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
	bool yes = true, no = false;
	uint32_t flags = LIGHT | SKIP_ABORT;
	uint64_t addr, more = 16;
	void *args[] = {&addr, &more}, *module, *fn, *p, *q;
	struct glake *ctx;
	int result;

	if (*file) {
		*(void **)&init = dlsym(cuda, "cuInit");
		*(void **)&attribute = dlsym(cuda, "cuCoredumpSetAttributeGlobal");
		if (!init || !attribute)
			return 99;
		/* there are no attributes before, and none is heeded once there is a context */
		must_cuda(init(0), "cuInit");
		set(attribute, ON_EXCEPTION, &yes, sizeof(yes));
		set(attribute, TRIGGER_HOST, &no, sizeof(no));
		set(attribute, FILE_NAME, (void *)(uintptr_t)file, strlen(file) + 1);
		set(attribute, GENERATION, &flags, sizeof(flags));
	}
	gpu_open();
	gpu_work_init(&work);
	must_cuda(work.extra.module_load(&module, text), "no module");
	must_cuda(work.extra.module_function(&fn, module, kernel), "no kernel");
	must(glake_open(&options, &ctx), "glake_open");
	must(glake_alloc(ctx, 0, SIZE, NULL, 0, &p), "glake_alloc");
	must(glake_alloc(ctx, 0, SIZE, NULL, 0, &q), "glake_alloc");
	*told = addr = (uintptr_t)p + SIZE;
	if (!strcmp(kernel, "fetch"))
		more = (uintptr_t)q;
	must_cuda(work.extra.launch(fn, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL), "launch");
	result = work.sync();
	/* with a core dump the driver says so when that is written */
	for (int i = 0; !result && i < LOOKS; i++) {
		nanosleep(&step, NULL);
		result = work.sync();
	}
	return result ? 0 : 98;
}

static int run(const char *kernel, const char *file)
{
	char name[] = "fault", fn[16], path[64];
	char *const args[] = {name, fn, path, NULL};
	int status = 0;
	pid_t pid;

	snprintf(fn, sizeof(fn), "%s", kernel);
	snprintf(path, sizeof(path), "%s", file);
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ))
		tap_bail("no process");
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}

/* How often a value of 64 bits is in the dump, at a multiple of 4, as registers are; and its words. */
static unsigned count(const unsigned char *at, size_t size, uint64_t value)
{
	unsigned found = 0;
	uint64_t is;

	for (size_t i = 0; i + sizeof(is) <= size; i += 4) {
		memcpy(&is, at + i, sizeof(is));
		found += is == value;
	}
	return found;
}

static void look(const char *kernel, const char *file, uint64_t addr)
{
	int fd = open(file, O_RDONLY);
	struct stat st = {0};
	unsigned char *at = MAP_FAILED;

	if (fd >= 0 && !fstat(fd, &st) && st.st_size)
		at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (!ok(at != MAP_FAILED, "%s: there is a core dump, of %ld bytes", kernel,
		    (long)st.st_size))
		return;
	tap_note("%s: the kernel is %s there, and the address that it met %u times",
		kernel,
		memmem(at, (size_t)st.st_size, kernel, strlen(kernel)) ? "named"
								       : "not named",
		count(at, (size_t)st.st_size, addr));
	munmap(at, (size_t)st.st_size);
	close(fd);
}

int main(int argc, char **argv)
{
	static const char *const kernels[] = {"smash", "fetch"};
	char file[] = "/tmp/glake-fault-XXXXXX";
	char told_name[16], dump[64];
	uint64_t *told;
	int told_in;

	if (argc > 2) {
		int fd = atoi(getenv("GLAKE_TEST_TOLD"));

		told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		return plant(argv[1], argv[2], told);
	}
	gpu_open();
	tap_plan_later();
	told_in = mkstemp(file);
	snprintf(told_name, sizeof(told_name), "%d", told_in);
	setenv("GLAKE_TEST_TOLD", told_name, 1);
	if (ftruncate(told_in, 4096) || fcntl(told_in, F_SETFD, 0))
		tap_bail("no file");
	told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, told_in, 0);
	for (unsigned i = 0; i < 2; i++) {
		is_int(run(kernels[i], ""), 0, "a fault past a block");
		ok(*told != 0, "  at an address that is known here");
		snprintf(dump, sizeof(dump), "%s.%s", file, kernels[i]);
		tap_note("with a core dump: the program %s",
			run(kernels[i], dump) ? "is ended" : "goes on");
		look(kernels[i], dump, *told);
		unlink(dump);
	}
	unlink(file);
	return tap_done();
}
