/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The manual's table of mistakes as tests on a real GPU, each in a process of its own and in each mode that is said to find
 * it: reads and writes past the end and before the beginning by 1 byte to 1 MiB, after the free, after others came and went,
 * while it is suspended, of what was never written, of sealed pages, on streams that nobody told. A fault ends the child's GPU, a finding
 * names block, first byte and count, and what a mode cannot find is neither. Then what guard and the levels of security cost.
 */
#include "gpu.h"
#include "kernels.h"
#include "smash.h"

#include <spawn.h>
#include <sys/wait.h>

#include <glake/glake.h>

extern char **environ;

#define MIB ((size_t)1 << 20)

/* smash(address, bytes): by one thread, none of them is what it was. peek(address, bytes, into): reads the first and the last. */
static const char text[] =
	GPU_SMASH_PTX ".visible .entry peek(.param .u64 a, .param .u64 n)\n"
		      "{\n"
		      ".reg .b64 %rd<3>;\n"
		      ".reg .b16 %h<2>;\n"
		      "ld.param.u64 %rd1, [a];\n"
		      "ld.param.u64 %rd2, [n];\n"
		      "ld.volatile.global.u8 %h1, [%rd1];\n"
		      "add.u64 %rd1, %rd1, %rd2;\n"
		      "ld.volatile.global.u8 %h1, [%rd1+-1];\n"
		      "ret;\n"
		      "}\n";

static struct gpu_work work;
static void *smash_fn, *peek_fn;

/* What one who plants it may expect. */
enum end { NOTHING, FAULT, NAMED };

enum what {
	PAST,
	BEFORE,
	AT_ONCE,   /* after its free */
	LATER,	   /* after others of its size came and went */
	SUSPENDED, /* while the GPU is suspended */
	UNTOLD,	   /* by work on a stream that was not told, behind a free on its own */
	TWICE,	   /* its free */
	NEVER,	   /* read before it was written: what is there is no number */
	SEALED,	   /* a page that two sequences of a KV cache share */
	ANOTHER, /* freed on another stream than it was used on, which was told: no mistake */
};

static const char *const names[] = {"past the end", "before the beginning",
	"after the free", "after the free, and others", "while it is suspended",
	"after the free, on a stream that was not told", "a second free",
	"before it was written", "a page that is shared", "on another stream, told"};

struct mistake {
	enum what what;
	bool write;
	size_t by, size; /* bytes of it, and of the block */
	const char *mode;
	enum end end;
};

#define OVER(mode, size, small, large)                                                   \
	{PAST, true, 1, size, mode, small}, {PAST, true, 4, size, mode, small},          \
		{PAST, true, 16, size, mode, small},                                     \
		{PAST, true, 256, size, mode, small},                                    \
	{                                                                                \
		PAST, true, MIB, size, mode, large                                       \
	}

static const struct mistake mistakes[] = {
	/* full: each byte past a size that is a multiple of 512 is a fault */
	OVER("full", 4096, FAULT, FAULT),
	{PAST, false, 1, 4096, "full", FAULT},
	{PAST, false, 4, 4096, "full", FAULT},
	{PAST, false, 16, 4096, "full", FAULT},
	{PAST, false, 256, 4096, "full", FAULT},
	{PAST, false, MIB, 4096, "full", FAULT},
	{PAST, true, 1, 1000, "full", NAMED},
	{PAST, true, 24, 1000, "full", NAMED},
	{PAST, true, 256, 1000, "full", FAULT},
	{PAST, false, 1, 1000, "full", NOTHING},
	{BEFORE, true, 1, 4096, "full", NAMED},
	{BEFORE, true, 4, 4096, "full", NAMED},
	{BEFORE, true, 16, 4096, "full", NAMED},
	{BEFORE, true, 256, 4096, "full", NAMED},
	{BEFORE, true, MIB, 4096, "full", NAMED},
	{BEFORE, false, 1, 4096, "full", NOTHING},
	{AT_ONCE, true, 1, 4096, "full", FAULT},
	{AT_ONCE, false, 1, 4096, "full", FAULT},
	{AT_ONCE, true, MIB, 4 * MIB, "full", FAULT},
	{LATER, true, 1, 4096, "full", FAULT},
	{LATER, false, 1, 4096, "full", FAULT},
	{UNTOLD, true, 16, 4096, "full", FAULT},
	{SUSPENDED, true, 1, 4096, "full", FAULT},
	{SUSPENDED, false, 1, 4096, "full", FAULT},
	{NEVER, false, 16, 4096, "full", NAMED},
	{TWICE, false, 0, 4096, "full", NAMED},
	{ANOTHER, true, 16, 4096, "full", NOTHING},
	/* the rest goes on, and has a name */
	OVER("canary", 1024, NAMED, NAMED),
	{PAST, false, 16, 1024, "canary", NOTHING},
	{BEFORE, true, 1, 1024, "canary", NAMED},
	{BEFORE, true, 4, 1024, "canary", NAMED},
	{BEFORE, true, 16, 1024, "canary", NAMED},
	{BEFORE, true, 256, 1024, "canary", NAMED},
	{AT_ONCE, true, 1, 4096, "canary", NOTHING},
	{SUSPENDED, true, 1, 4 * MIB, "canary", FAULT},
	{TWICE, false, 0, 4096, "canary", NAMED},
	{AT_ONCE, true, 1, 4096, "poison", NAMED},
	{AT_ONCE, true, 4, 4096, "poison", NAMED},
	{AT_ONCE, true, 16, 4096, "poison", NAMED},
	{AT_ONCE, true, 256, 4096, "poison", NAMED},
	{AT_ONCE, true, MIB, 4 * MIB, "poison", NAMED},
	{LATER, true, 1, 4096, "poison", NAMED},
	{LATER, true, 256, 4096, "poison", NAMED},
	{UNTOLD, true, 16, 4096, "poison", NAMED},
	{NEVER, false, 16, 4096, "poison", NAMED},
	{AT_ONCE, false, 1, 4096, "poison", NOTHING},
	{ANOTHER, true, 16, 4096, "poison", NOTHING},
	{PAST, true, 1, 1000, "sample", NAMED},
	{PAST, false, 1, 4096, "sample", FAULT},
	{SEALED, true, 4, 4096, "off", FAULT},
	{SEALED, false, 4, 4096, "off", NOTHING},
	{PAST, true, 1, 4096, "off", NOTHING},
};
#define COUNT ((int)(sizeof(mistakes) / sizeof(*mistakes)))

static void load(void)
{
	void *module = NULL;

	must_cuda(work.extra.module_load(&module, text), "no module");
	must_cuda(work.extra.module_function(&smash_fn, module, "smash"), "no smash");
	must_cuda(work.extra.module_function(&peek_fn, module, "peek"), "no peek");
}

static int touch(const void *at, size_t bytes, bool write, struct CUstream_st *stream)
{
	uint64_t addr = (uintptr_t)at, n = bytes;
	void *arguments[] = {&addr, &n};

	return work.extra.launch(
		write ? smash_fn : peek_fn, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static struct glake *open_with(const char *const *settings)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = settings};
	struct glake *ctx = NULL;

	must(glake_open(&options, &ctx), "glake_open");
	return ctx;
}

static char *given(struct glake *ctx, size_t size, struct CUstream_st *stream)
{
	void *p = NULL;

	must(glake_alloc(ctx, 0, size, stream, 0, &p), "glake_alloc");
	return p;
}

/* ---- In the child ---- */

/* Memory that is mapped around the block, so that what is wild meets some. */
static char *among(struct glake *ctx, const struct mistake *m, struct CUstream_st *stream)
{
	char *around[9], *p;

	for (int i = 0; i < 9; i++)
		around[i] = given(ctx, i % 2 ? m->size : 2 * MIB, stream);
	for (int i = 0; i < 9; i++)
		if (i != 4)
			glake_free(ctx, around[i], stream);
	p = given(ctx, m->size, stream);
	/* one right before it, in whose canary what is written before it lies */
	for (int i = 0; m->what == BEFORE && !strcmp(m->mode, "canary") && i < 8; i++) {
		char *q = given(ctx, m->size, stream);

		if (q == p + m->size + 512)
			return q;
		p = q;
	}
	return p;
}

static int share(struct glake *ctx, bool write, size_t by)
{
	struct glake_kv_options options = {.sz = sizeof(options),
		.slots = 2,
		.tokens = 2048,
		.lanes = 1,
		.lane_bytes = 4096};
	struct glake_kv_place place = {.sz = sizeof(place)};
	struct glake_kv *kv;
	uint32_t one, two;

	must(glake_kv_open(ctx, 0, &options, NULL, &kv), "no cache");
	must(glake_kv_place_get(kv, 0, &place), "no place");
	must(glake_kv_new(kv, 2048, NULL, &one), "no sequence");
	must(glake_kv_grow(kv, one, 2048, NULL), "no tokens");
	must(glake_kv_fork(kv, one, 2048, 2048, NULL, &two), "no fork");
	return touch((char *)place.base + two * place.slot, by, write, NULL);
}

/* What came of it: 0 nothing, 1 a fault, 2 named. */
static int plant(const struct mistake *m)
{
	const char *mode[] = {NULL, "guard.rate=1", NULL};
	struct CUstream_st *one = NULL, *two = NULL;
	struct glake_finding f = {.sz = sizeof(f)};
	struct glake_described d = {.sz = sizeof(d)};
	static uint8_t host[16];
	char setting[32], *p, *at;
	struct glake *ctx;
	int result = 0, found;
	bool told = true;

	snprintf(setting, sizeof(setting), "guard.mode=%s", m->mode);
	mode[0] = setting;
	ctx = open_with(mode);
	must(glake_stream_new(ctx, 0, &one), "no stream");
	must(glake_stream_new(ctx, 0, &two), "no stream");
	p = strcmp(m->mode, "sample") ? among(ctx, m, one) : given(ctx, m->size, one);
	at = p;
	if (m->what == NEVER) {
		must_cuda(work.sync(), "wait");
		must_cuda(work.mem_read(host, (uintptr_t)p, sizeof(host)), "read");
		for (size_t i = 0; i < sizeof(host); i += 2)
			told &= host[i] >= 0xc0 && host[i + 1] == 0xff;
		return told ? NAMED : NOTHING;
	}
	must_cuda(touch(p, m->size < 4096 ? m->size : 4096, true, one), "it is used");
	if (m->what == PAST)
		at = p + m->size;
	if (m->what == BEFORE)
		at = p - m->by;
	if (m->what == ANOTHER) {
		must(glake_use(ctx, p, two), "told");
		must_cuda(touch(p, m->by, true, two), "used there");
	}
	if (m->what >= AT_ONCE && m->what <= LATER)
		must(glake_free(ctx, p, one), "freed");
	if (m->what == UNTOLD || m->what == TWICE || m->what == ANOTHER)
		must(glake_free(ctx, p, one), "freed");
	for (int i = 0; m->what == LATER && i < 50; i++)
		must(glake_free(ctx, given(ctx, m->size, one), one), "freed");
	if (m->what == SUSPENDED)
		must(glake_suspend(ctx, 0, NULL), "suspended");
	/* what is written before the fill leaves no trace */
	if (m->what == UNTOLD)
		must_cuda(work.sync(), "wait");
	glake_describe(ctx, at, &d);
	if (m->what == SEALED)
		result = share(ctx, m->write, m->by);
	else if (m->what == TWICE)
		glake_free(ctx, p, one);
	else if (m->what != ANOTHER)
		result = touch(at, m->by, m->write, m->what == UNTOLD ? two : one);
	if (!result)
		result = work.sync();
	if (result) {
		printf("# CUresult %d, %s of %p, %zu bytes\n", result,
			glake_what_name(d.what), d.base, d.size);
		return d.what == GLAKE_WHAT_FOREIGN ? 9 : FAULT;
	}
	found = glake_check(ctx, NULL);
	if (!found)
		return NOTHING;
	if (glake_finding_get(ctx, 0, 0, &f))
		return 8;
	printf("# %s of %p, %zu bytes, at %zu, %zu\n", glake_finding_name(f.kind), f.base,
		f.size, f.offset, f.bytes);
	/* past the end and before it by a MiB is more than is looked at */
	if (m->what == TWICE)
		return f.kind == GLAKE_FINDING_DOUBLE_FREE && f.base == p ? NAMED : 7;
	if (m->what == BEFORE && f.kind == GLAKE_FINDING_UNDERRUN)
		return f.base == p && f.bytes == (m->by < 512 ? m->by : 512) ? NAMED : 7;
	if (m->what == BEFORE)
		return f.next == p && f.bytes == m->by ? NAMED : 7;
	if (m->what == PAST)
		return f.base == p && f.offset == m->size && f.bytes <= m->by &&
				(f.bytes == m->by || m->by == MIB)
			? NAMED
			: 7;
	return f.base == p && !f.offset && f.bytes == m->by && f.freed_by ? NAMED : 7;
}

/* ---- Here ---- */

/* Several at a time: each child has a context of the driver to make. */
#define TOGETHER 6

static void all(void)
{
	static const char *const ends[] = {"nothing", "a fault", "a name"};
	int results[COUNT], next = 0;
	pid_t pids[COUNT];

	for (int done = 0; done < COUNT; done++) {
		int status = 0;

		while (next < COUNT && next < done + TOGETHER) {
			char argument[16];
			char name[] = "mistakes", *const args[] = {name, argument, NULL};

			snprintf(argument, sizeof(argument), "%d", next);
			if (posix_spawn(&pids[next], "/proc/self/exe", NULL, NULL, args,
				    environ))
				tap_bail("no process");
			next++;
		}
		waitpid(pids[done], &status, 0);
		results[done] = WIFEXITED(status) ? WEXITSTATUS(status) : 99;
	}
	for (int i = 0; i < COUNT; i++) {
		const struct mistake *m = &mistakes[i];

		ok(results[i] == (int)m->end, "%s: %s %zu bytes %s, of %zu: %s (%d)",
			m->mode, m->write ? "write" : "read", m->by, names[m->what],
			m->size, ends[m->end], results[i]);
	}
}

/* ---- Cost ---- */

static double pair_us(const char *setting, size_t size, int rounds)
{
	struct glake *ctx = open_with((const char *const[]){setting, NULL});
	double begin;

	for (int i = 0; i < rounds / 10; i++)
		glake_free(ctx, given(ctx, size, NULL), NULL);
	must_cuda(work.sync(), "wait");
	begin = now_s();
	for (int i = 0; i < rounds; i++)
		glake_free(ctx, given(ctx, size, NULL), NULL);
	must_cuda(work.sync(), "wait");
	begin = now_s() - begin;
	glake_close(ctx, NULL);
	return begin / rounds * 1e6;
}

static void cost(void)
{
	static const char *const settings[] = {"guard.mode=off", "guard.mode=canary",
		"guard.mode=poison", "guard.mode=full", "security.level=1",
		"security.level=2", "security.level=3"};

	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		tap_note(
			"%s: a pair of 1 KiB %.2f us, 64 KiB %.2f, 4 MiB %.2f, 64 MiB %.2f",
			settings[i], pair_us(settings[i], 1024, 2000),
			pair_us(settings[i], 65536, 2000),
			pair_us(settings[i], 4 * MIB, 500),
			pair_us(settings[i], 64 * MIB, 50));
}

int main(int argc, char **argv)
{
	gpu_open();
	gpu_work_init(&work);
	load();
	if (argc > 1)
		return plant(&mistakes[atoi(argv[1])]);
	tap_plan_later();
	all();
	cost();
	return tap_done();
}
