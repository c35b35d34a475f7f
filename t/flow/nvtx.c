/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a tool is told that is attached by NVTX: which blocks, with which names, and that they go when the GPU is done. */
#include "guarded.h"
#include "nvtx_tool.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const canary[] = {"guard.mode=canary", NULL};

static const struct nvtx_told *told;

static const struct nvtx_region *region(const void *ptr)
{
	for (int i = 0; i < NVTX_MOST; i++)
		if (told->regions[i].size && told->regions[i].ptr == ptr)
			return &told->regions[i];
	return NULL;
}

static bool knows(const void *ptr, size_t size)
{
	const struct nvtx_region *r = region(ptr);

	return r && r->size == size;
}

static void attach(void)
{
	void *library;

	setenv("NVTX_INJECTION64_PATH", NVTX_TOOL, 1);
	setenv("GLAKE_GUARD_NVTX", "yes", 1);
	library = dlopen(NVTX_TOOL, RTLD_NOW);
	told = library ? dlsym(library, "nvtx_told") : NULL;
	if (!told)
		tap_bail("no tool");
}

static void blocks(void)
{
	struct glake *ctx = open_with(NULL);
	char *a = given(ctx, 4096), *b = given(ctx, 1000), *c = given(ctx, 5 * MIB);

	is_int(told->began, 2, "the tool is asked, in both ways");
	ok(knows(a, 4096) && knows(b, 1000) && knows(c, 5 * MIB),
		"it knows three blocks, as large as they were asked for");
	ok(region(a) && strstr(region(a)->name, "4096 bytes, thread"),
		"  each with a name: %s", region(a)->name);
	is_int(told->heaps, 1, "  in one heap");
	is_int(glake_block_name(ctx, NULL, NULL), 0, "there is one for names");
	is_int(glake_block_name(ctx, b, "loss, train.py:12"), 0, "one is named");
	is_str(region(b)->name, "loss, train.py:12", "  so");
	is_int(glake_block_name(ctx, b,
		       "a name of more than 49 characters, which a tool would warn of"),
		0, "and by a long name");
	is_str(region(b)->name, "a name of more than 49 characters, which a tool w",
		"  as far as tools have it");
	is_error(glake_block_name(ctx, b + 1, "x"), -EINVAL, "INVAL");
	is_error(glake_block_name(ctx, &told, "x"), -EINVAL, "INVAL");
	is_error(glake_block_name(ctx, b, NULL), -EINVAL, "INVAL");
	is_int(glake_free(ctx, b, NULL), 0, "it is freed");
	ok(!region(b) && told->gone == 1, "  the tool knows that");
	is_error(glake_block_name(ctx, b, "x"), -EINVAL, "INVAL");
	b = given(ctx, 1000);
	ok(knows(b, 1000) && strstr(region(b)->name, "1000 bytes"),
		"the next one has a name of its own");
	glake_free(ctx, a, NULL);
	glake_free(ctx, b, NULL);
	glake_free(ctx, c, NULL);
	flow_close(ctx, 0);
	ok(told->begun == told->gone, "all are gone");
	is_int(told->ended, 1, "  and the heap");
}

/* Pairs that would be hits are told of like others; nothing is told twice, nor of neighbours that touch. */
static void many(void)
{
	struct glake *ctx = open_with(NULL);
	void *held[64] = {NULL};
	int begun = told->begun;
	uint32_t x = 1;

	for (int i = 0; i < 3000; i++) {
		unsigned at;

		x = x * 1664525u + 1013904223u;
		at = x >> 26;
		if (held[at] && glake_free(ctx, held[at], NULL))
			tap_bail("a free is refused");
		held[at] = given(
			ctx, i % 3 ? 512 * (x >> 16 & 15) + 512 : (x >> 8) % 300000 + 1);
	}
	is_int(told->begun - begun, 3000, "each of 3000 is told of");
	for (int i = 0; i < 64; i++)
		glake_free(ctx, held[i], NULL);
	is_int((int64_t)flow_stats(ctx, 0).hits, 0, "  and none is a hit");
	flow_close(ctx, 0);
	is_int(told->gone, told->begun, "  and that it went");
	is_int(told->wrong, 0, "nothing was wrong of it");
}

/* A free waits: the tool judges what a kernel does when it runs. */
static void behind(void)
{
	struct glake *ctx =
		open_with((const char *const[]){"soft.streams=stepped", NULL});
	struct CUstream_st *stream;
	char *p;

	if (glake_stream_new(ctx, 0, &stream))
		tap_bail("no stream");
	p = flow_alloc(ctx, 3 * MIB, stream);
	is_int(glake_soft_kernel(ctx, 0, stream, p, 3 * MIB, 1), 0, "work is queued");
	is_int(glake_free(ctx, p, stream), 0, "its block is freed");
	ok(!region(p), "  the tool does not know it any more");
	is_int(glake_stream_free(ctx, 0, stream), 0, "  and the work has ended");
	flow_close(ctx, 0);
}

/* Canaries would be mistakes to it; what has no part in it is not told. */
static void others(void)
{
	struct glake *ctx = open_with(canary);
	int begun = told->begun;
	char *p = given(ctx, 1000);
	uint32_t tag;

	ok(strstr(said.last, "guard.mode is off") != NULL,
		"guard.mode is off, and that is said");
	is_int((int64_t)checked(ctx, 0).blocks, 0, "  no block has a canary");
	spoil(p + 1000, 1);
	checked(ctx, 0);
	is_int(glake_conf_set(ctx, "guard.mode", "poison"), 0, "it is set");
	glake_free(ctx, p, NULL);
	is_int((int64_t)checked(ctx, 0).kept, 0, "  which changes nothing");
	is_int(told->begun - begun, 1, "one was told of");
	if (glake_tag_open(ctx, "weights", &tag) || glake_tag_set(ctx, tag, NULL))
		tap_bail("no tag");
	p = given(ctx, 1000);
	glake_tag_set(ctx, 0, NULL);
	ok(!region(p), "none with a tag");
	is_error(glake_block_name(ctx, p, "x"), -EINVAL, "INVAL");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
	ctx = open_with((const char *const[]){"guard.nvtx=no", NULL});
	p = given(ctx, 1000);
	ok(!region(p), "with guard.nvtx=no none at all");
	is_int(glake_block_name(ctx, NULL, NULL), -ENOENT, "  nor is there a tool");
	is_error(glake_block_name(ctx, p, "x"), -ENOENT, "INVAL");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
}

/* A file of names, for what is reported by address alone. */
static void names(void)
{
	char path[] = "/tmp/glake-names-XXXXXX", setting[64], text[4096] = "", want[96];
	int fd = mkstemp(path);
	struct stat st;
	struct glake *ctx;
	void *p;

	unlink(path);
	close(fd);
	snprintf(setting, sizeof(setting), "guard.names=%s", path);
	ctx = open_with((const char *const[]){setting, NULL});
	p = given(ctx, 1000);
	is_int(glake_block_name(ctx, p, "two\nlines"), 0, "a block is named");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
	fd = open(path, O_RDONLY);
	ok(fd >= 0 && !fstat(fd, &st) && (st.st_mode & 0777) == 0600,
		"the file of names is the user's alone");
	ok(read(fd, text, sizeof(text) - 1) > 0, "  and has names");
	close(fd);
	snprintf(want, sizeof(want), "%p 1000 1000 bytes, thread ", p);
	ok(!strncmp(text, want, strlen(want)), "  the first of which is its size: %s",
		text);
	snprintf(want, sizeof(want), "%p 1000 two lines\n", p);
	ok(strstr(text, want) != NULL, "  and the next its own, on one line");
	unlink(path);
	ctx = open_with((const char *const[]){"guard.names=/nowhere/names", NULL});
	p = given(ctx, 1000);
	ok(strstr(said.last, "cannot be written") != NULL,
		"one that cannot be written is said: %s", said.last);
	said.last[0] = 0;
	glake_free(ctx, p, NULL);
	p = given(ctx, 1000);
	is_str(said.last, "", "  once");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
}

/* In a process of its own, as it is asked once: one that cannot be loaded, that fails, or has no use for memory. */
static void useless(const char *path, const char *env, const char *what)
{
	pid_t pid = flow_fork(60);
	struct glake *ctx;
	int bad = 0;
	void *p;

	if (!pid) {
		setenv("NVTX_INJECTION64_PATH", path, 1);
		setenv("GLAKE_GUARD_NVTX", "yes", 1);
		if (env)
			setenv(env, "1", 1);
		ctx = flow_open(NULL);
		p = flow_alloc(ctx, 1000, NULL);
		bad |= glake_block_name(ctx, NULL, NULL) != -ENOENT;
		bad |= glake_free(ctx, p, NULL) != 0;
		p = flow_alloc(ctx, 1000, NULL);
		bad |= flow_stats(ctx, 0).hits != 1;
		glake_free(ctx, p, NULL);
		bad |= glake_close(ctx, NULL) != 0;
		_exit(bad);
	}
	is_int(flow_wait(pid), 0, what);
}

static struct glake *called;
static int calls;

/* What a tool may call when it is told. */
static void call_back(void)
{
	struct glake_described d = {.sz = sizeof(d)};
	struct glake_checked c = {.sz = sizeof(c)};
	struct glake *ctx;

	calls++;
	/* of one that is being closed nothing is answered but that */
	if (called && glake_describe(called, &d, &d) == -ESTALE)
		return;
	if (called && glake_describe(called, &d, &d))
		calls = -1000;
	if (called && glake_check(called, &c))
		calls = -1000;
	if (!called && (!(ctx = flow_open(NULL)) || glake_close(ctx, NULL)))
		calls = -1000;
}

/* In a process of its own. */
static void calls_back(void)
{
	pid_t pid = flow_fork(60);

	if (!pid) {
		struct nvtx_told *tool;
		void *p;

		attach();
		tool = (struct nvtx_told *)(uintptr_t)told;
		tool->calls = call_back;
		called = flow_open(NULL);
		if (calls != 1)
			_exit(1);
		p = flow_alloc(called, 1000, NULL);
		if (calls != 2 || !knows(p, 1000))
			_exit(2);
		if (glake_free(called, p, NULL) || region(p))
			_exit(3);
		if (glake_close(called, NULL) || calls != 3)
			_exit(4);
		_exit(0);
	}
	is_int(flow_wait(pid), 0, "a tool may call what tells it");
}

/* Where the standard input is closed a file has its number. */
static void names_at_zero(void)
{
	pid_t pid = flow_fork(60);

	if (!pid) {
		char path[] = "/tmp/glake-names-XXXXXX", setting[64], text[4096] = "";
		int fd = mkstemp(path);
		struct glake *ctx;
		void *p;

		attach();
		snprintf(setting, sizeof(setting), "guard.names=%s", path);
		ctx = open_with((const char *const[]){setting, NULL});
		close(0);
		p = flow_alloc(ctx, 1000, NULL);
		glake_block_name(ctx, p, "the other");
		glake_free(ctx, p, NULL);
		unlink(path);
		if (read(fd, text, sizeof(text) - 1) < 1 || !strstr(text, "the other"))
			_exit(1);
		glake_close(ctx, NULL);
		/* it is closed with the context */
		_exit(dup(0) == -1 ? 0 : 2);
	}
	is_int(flow_wait(pid), 0, "names are written to a file with the number 0");
}

int main(void)
{
	tap_plan_later();
	calls_back();
	names_at_zero();
	useless("", NULL, "no tool");
	useless("/nowhere/tool.so", NULL, "one that is not there");
	useless(NVTX_TOOL, "NVTX_TOOL_REFUSES", "one that fails");
	useless(NVTX_TOOL, "NVTX_TOOL_IDLE", "one that has no use for memory");
	attach();
	glake_log_hook(hook, NULL, GLAKE_LOG_WARNING);
	blocks();
	many();
	behind();
	others();
	names();
	is_int(told->wrong, 0, "nothing was wrong");
	return tap_done();
}
