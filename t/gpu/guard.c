/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Mistakes of kernels on a real GPU, and what guard.mode finds of them: bytes behind a block and before it, by the
 * canaries; writes after the free, by the pattern that is left there; whatever reaches past a sampled block, or uses it when it has gone, by the fault that it ends in, each in a
 * process of its own. Before that, that the kernels of guard do what their twins in C do; and behind it what they cost.
 */
#include "gpu.h"
#include "guard/guarded.h"
#include "kernels.h"
#include "smash.h"

#include <spawn.h>
#include <sys/wait.h>

#include <glake/glake.h>

extern char **environ;

#define MIB ((size_t)1 << 20)

/* smash(address, bytes): none of them is what it was. peek(address): reads a byte. */
static const char smash_ptx[] = GPU_SMASH_PTX ".visible .entry peek(.param .u64 a)\n"
					      "{\n"
					      ".reg .b64 %rd<2>;\n"
					      ".reg .b16 %h<2>;\n"
					      "ld.param.u64 %rd1, [a];\n"
					      "ld.volatile.global.u8 %h1, [%rd1];\n"
					      "ret;\n"
					      "}\n";

static struct glk_drv *drv;
static struct gpu_work work;
static void *smash_fn, *peek_fn;

static void load(void)
{
	void *module = NULL;

	must_cuda(work.extra.module_load(&module, smash_ptx), "no module");
	must_cuda(work.extra.module_function(&smash_fn, module, "smash"), "no smash");
	must_cuda(work.extra.module_function(&peek_fn, module, "peek"), "no peek");
}

static int smash(const void *at, size_t bytes, struct CUstream_st *stream)
{
	uint64_t addr = (uintptr_t)at, n = bytes;
	void *arguments[] = {&addr, &n};

	return work.extra.launch(smash_fn, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static int peek(const void *at)
{
	uint64_t addr = (uintptr_t)at;
	void *arguments[] = {&addr};

	return work.extra.launch(peek_fn, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

static struct glake *open_both(const char *mode, const char *other)
{
	const char *settings[] = {mode, "guard.rate=1", other, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = settings};
	struct glake *ctx = NULL;

	must(glake_open(&options, &ctx), "glake_open");
	return ctx;
}

static struct glake *open_with(const char *mode)
{
	return open_both(mode, NULL);
}

static void *given(struct glake *ctx, size_t size, struct CUstream_st *stream)
{
	void *p = NULL;

	must(glake_alloc(ctx, 0, size, stream, 0, &p), "glake_alloc");
	return p;
}

static void hook(int level, const char *line, void *arg)
{
	(void)arg;
	if (level <= GLAKE_LOG_WARNING)
		tap_note("%s", line);
}

static struct glake_checked checked(struct glake *ctx, int want, const char *what)
{
	struct glake_checked c = {.sz = sizeof(c)};

	is_int(glake_check(ctx, &c), want, what);
	return c;
}

static struct glake_finding finding(struct glake *ctx, uint64_t number)
{
	struct glake_finding f = {.sz = sizeof(f)};

	if (glake_finding_get(ctx, 0, number, &f))
		f.kind = 0;
	return f;
}

static void closed(struct glake *ctx)
{
	is_done(glake_close(ctx, NULL), "closed");
}

/* ---- Kernels and twins ---- */

static uint64_t module, fill_kernel, canaries_kernel, bodies_kernel, check_kernel;

static int launch(uint64_t kernel, const void *args, size_t size, uint32_t blocks)
{
	struct glk_launch l = {.kernel = kernel,
		.blocks = blocks,
		.threads = GLK_GUARD_THREADS,
		.args = args,
		.size = size};

	return drv->ops->launch(drv, 0, &l, NULL);
}

static void kernels(void)
{
	is_done(drv->ops->module_load(drv, 0, glk_guard_text, &module),
		"the driver takes the kernels");
	is_done(drv->ops->kernel_find(drv, 0, module, &glk_guard_fill, &fill_kernel),
		"fill");
	is_done(drv->ops->kernel_find(
			drv, 0, module, &glk_guard_canaries, &canaries_kernel),
		"canaries");
	is_done(drv->ops->kernel_find(drv, 0, module, &glk_guard_bodies, &bodies_kernel),
		"bodies");
	is_done(drv->ops->kernel_find(
			drv, 0, module, &glk_guard_table_check, &check_kernel),
		"check");
}

#define SPAN 8192

/* Blocks of any size with canaries of any length: what the GPU writes is the patterns and nothing beside them, and what
 * it finds in one that is spoilt is where that was. */
static void agree(struct glake *ctx)
{
	static const size_t sizes[] = {1, 2, 15, 16, 17, 31, 33, 511, 512, 1000, 7000};
	char *p = given(ctx, SPAN, NULL);
	static uint8_t host[SPAN], want[SPAN];
	struct glk_guard_host *shared = glk_region_new(sizeof(*shared));
	int wrong = 0, missed = 0, ranges = 0;

	must(drv->ops->host_lock(drv, 0, shared, sizeof(*shared)), "no locked memory");
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
		for (unsigned at = 0; at < 20; at++) {
			struct glk_guard_look *look = &shared->look[GLK_GUARD_LOOKS - 1];
			uint64_t addr = (uintptr_t)p + 512, body = sizes[s];
			uint32_t canary = (uint32_t)(512 - body % 16) / (at % 4 + 1);
			struct glk_guard_range r = {.addr = at % 3 ? addr : addr + body,
				.body = at % 3 ? body : 0,
				.canary = canary,
				.secret = 77 + at};
			struct glk_guard_run run = {.looks = (uintptr_t)shared->look,
				.first = GLK_GUARD_LOOKS - 1,
				.count = 1,
				.secret = 77 + at,
				.parts = at % 3 ? 3 : 0};
			size_t spoilt = (body + canary) * at / 20, bytes = 1 + at % 3;
			bool behind = spoilt >= body;
			struct glk_guard_found *got =
				behind ? &look->canary : &look->body;

			if (spoilt + bytes > (behind ? body + canary : body))
				bytes = 1;
			must_cuda(work.mem_clear((uintptr_t)p, 0x5a, SPAN), "clear");
			must(launch(fill_kernel, &r, sizeof(r), 3), "fill");
			must_cuda(work.sync(), "fill");
			must_cuda(work.mem_read(host, (uintptr_t)p, SPAN), "read");
			memset(want, 0x5a, SPAN);
			for (size_t i = 0; i < r.body; i++)
				want[512 + i] = glk_guard_freed_byte(addr + i, r.secret);
			for (size_t i = body; i < body + canary; i++)
				want[512 + i] = glk_guard_byte(addr + i, r.secret);
			wrong += memcmp(host, want, SPAN) != 0;
			*look = (struct glk_guard_look){.addr = addr,
				.asked = body,
				.length = canary,
				.parts = 2,
				.body = {.first = UINT64_MAX},
				.canary = {.first = UINT64_MAX}};
			if (spoilt < body + canary && (behind || at % 3))
				must_cuda(smash(p + 512 + spoilt, bytes, NULL), "smash");
			else
				bytes = 0;
			must(launch(at % 3 ? bodies_kernel : canaries_kernel, &run,
				     sizeof(run), at % 3 ? 3 : 1),
				"look");
			must_cuda(work.sync(), "look");
			missed += look->body.count + look->canary.count != bytes ||
				(bytes &&
					got->first !=
						(behind ? spoilt - body : spoilt)) ||
				look->ended != (at % 3 ? 2 : 1);
			ranges++;
		}
	ok(!wrong, "%d of %d ranges are not filled as in C", wrong, ranges);
	ok(!missed, "%d of %d are not looked at as in C", missed, ranges);
	drv->ops->host_unlock(drv, 0, shared);
	glk_region_free(shared, sizeof(*shared));
	glake_free(ctx, p, NULL);
}

/* ---- Canaries ---- */

static void over(struct glake *ctx, size_t size, size_t by, bool at_free, uint64_t number,
	struct CUstream_st *stream)
{
	char *p = given(ctx, size, stream);
	struct glake_finding f;

	must_cuda(smash(p, size, stream), "it is used");
	must_cuda(smash(p + size, by, stream), "and more than it");
	if (at_free)
		is_done(glake_free(ctx, p, stream), "freed");
	checked(ctx, -EIO, "a check says that something is wrong");
	f = finding(ctx, number);
	ok(f.kind == GLAKE_FINDING_OVERRUN && f.base == p && f.size == size &&
			f.offset == size && f.bytes && f.bytes <= by &&
			(f.freed_by != 0) == at_free,
		"%zu bytes past %zu, %s: %zu bytes from %zu on", by, size,
		at_free ? "freed" : "live", f.bytes, f.offset);
	if (!at_free)
		is_done(glake_free(ctx, p, stream), "freed");
}

static void canaries(void)
{
	static const size_t sizes[] = {1, 100, 511, 512, 1000, 4096, 300000, 5 * MIB + 3};
	static const size_t overs[] = {1, 4, 16, 256};
	struct glake *ctx = open_with("guard.mode=canary");
	struct CUstream_st *stream = NULL;
	char *a, *b, *room = given(ctx, 64 * MIB, NULL);
	struct glake_finding f;
	uint64_t number = 0;

	agree(ctx);
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	/* what wild writes meet */
	glake_free(ctx, room, NULL);
	checked(ctx, 0, "nothing is wrong");
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
		for (size_t o = 0; o < sizeof(overs) / sizeof(*overs); o++) {
			/* behind what is looked at a large one may have no neighbour */
			size_t slack = -sizes[s] % 512, most = slack ? slack : 512;
			bool is_large = sizes[s] > 256 << 10;

			over(ctx, sizes[s], is_large && overs[o] > most ? most : overs[o],
				(s + o) % 2, number++, (s + o) % 3 ? stream : NULL);
		}
	a = given(ctx, 40 * MIB, NULL);
	b = given(ctx, 8 * MIB, NULL);
	if (b == a + 40 * MIB + 512) {
		must_cuda(smash(a + 40 * MIB, MIB, NULL), "1 MiB past the end");
		checked(ctx, -EIO, "is found");
		f = finding(ctx, number++);
		ok(f.base == a && f.offset == 40 * MIB && f.bytes == 512,
			"  all that is looked at is wrong: %zu", f.bytes);
	} else {
		tap_skip("1 MiB past the end", "they are no neighbours");
	}
	glake_free(ctx, a, NULL);
	glake_free(ctx, b, NULL);
	a = given(ctx, 4096, NULL);
	b = given(ctx, 4096, NULL);
	for (size_t o = 0; b == a + 4608 && o < sizeof(overs) / sizeof(*overs); o++) {
		must_cuda(smash(b - overs[o], overs[o], NULL), "before a block");
		checked(ctx, -EIO, "is found");
		f = finding(ctx, number++);
		ok(f.base == a && f.offset == 4608 - overs[o] && f.bytes == overs[o] &&
				f.next == b,
			"  %zu bytes before it", overs[o]);
		glake_free(ctx, a, NULL);
		glake_free(ctx, b, NULL);
		a = given(ctx, 4096, NULL);
		b = given(ctx, 4096, NULL);
	}
	is_int(glake_free(ctx, a, NULL), 0, "freed");
	is_int(glake_free(ctx, a, NULL), -EINVAL, "and again");
	f = finding(ctx, number++);
	is_int(f.kind, GLAKE_FINDING_DOUBLE_FREE, "  with a finding");
	glake_free(ctx, b, NULL);
	checked(ctx, -EIO, "which a check tells of");
	is_done(glake_stream_free(ctx, 0, stream), "the stream ends");
	closed(ctx);
}

/* Writes after the free, at once and after other blocks came and went. */
static void late(void)
{
	static const size_t bys[] = {1, 4, 16, 256, MIB};
	struct glake *ctx = open_with("guard.mode=poison");
	struct CUstream_st *stream = NULL;
	static uint8_t host[4096];
	struct glake_finding f;
	struct glake_checked c;
	uint64_t number = 0;
	size_t filled = 0;
	char *p;

	must(glake_stream_new(ctx, 0, &stream), "no stream");
	p = given(ctx, sizeof(host), stream);
	must_cuda(work.sync(), "wait");
	must_cuda(work.mem_read(host, (uintptr_t)p, sizeof(host)), "read");
	for (size_t i = 0; i < sizeof(host); i += 2)
		filled += host[i] >= 0xc0 && host[i + 1] == 0xff;
	is_int((int64_t)filled, (int64_t)sizeof(host) / 2, "a block comes filled");
	is_done(glake_free(ctx, p, stream), "freed");
	checked(ctx, 0, "nothing is wrong");
	for (size_t i = 0; i < sizeof(bys) / sizeof(*bys); i++) {
		size_t size = bys[i] == MIB ? 8 * MIB : 5000;

		p = given(ctx, size, stream);
		must_cuda(smash(p, size < 5000 ? size : 5000, stream), "it is used");
		is_done(glake_free(ctx, p, stream), "freed");
		for (int k = 0; k < (i % 2 ? 100 : 0); k++)
			glake_free(ctx, given(ctx, 2000, stream), stream);
		must_cuda(smash(p + size / 3, bys[i], stream), "and used again");
		checked(ctx, -EIO, "a write after the free is found");
		f = finding(ctx, number++);
		ok(f.kind == GLAKE_FINDING_AFTER_FREE && f.base == p && f.size == size &&
				f.offset == size / 3 && f.bytes == bys[i] && f.freed_by,
			"  %zu bytes from %zu on", f.bytes, f.offset);
	}
	c = checked(ctx, 0, "nothing more");
	ok(c.kept > 0, "%d blocks were kept", (int)c.kept);
	is_done(glake_stream_free(ctx, 0, stream), "the stream ends");
	closed(ctx);
}

/* Two streams, blocks of many sizes with words that kernels check: nothing is said of what is right. */
static void nothing(const char *mode, const char *look)
{
	struct glake *ctx = open_both(mode, look);
	struct CUstream_st *streams[2] = {NULL, NULL};
	struct gpu_counters counters;
	struct glake_checked c;
	struct {
		void *p;
		size_t size;
		uint32_t serial;
	} held[64] = {{0}};
	double begin = now_s();
	uint32_t x = 7;

	must(glake_stream_new(ctx, 0, &streams[0]), "no stream");
	must(glake_stream_new(ctx, 0, &streams[1]), "no stream");
	gpu_counters_take(&work);
	for (uint32_t i = 1; i < 6000; i++) {
		struct CUstream_st *stream;
		struct gpu_jobs jobs;
		unsigned at;

		x = x * 1664525u + 1013904223u;
		at = x >> 26;
		stream = streams[at % 2];
		if (held[at].p) {
			jobs.at[0] = gpu_job(
				held[at].p, held[at].size, at % 2 + 1, held[at].serial);
			must_cuda(gpu_check(&work, &jobs, 1, 0, 0, stream), "check");
			must(glake_free(ctx, held[at].p, stream), "glake_free");
		}
		held[at].size = ((x >> 8) % (i % 16 ? 40000 : 3000000) + 8) & ~7u;
		held[at].serial = i;
		held[at].p = given(ctx, held[at].size, stream);
		jobs.at[0] = gpu_job(held[at].p, held[at].size, at % 2 + 1, i);
		must_cuda(gpu_put(&work, &jobs, 1, 0, 0, stream), "put");
		if (i % 2000 == 0)
			checked(ctx, 0, "nothing is wrong half way");
	}
	for (unsigned at = 0; at < 64; at++)
		if (held[at].p)
			must(glake_free(ctx, held[at].p, streams[at % 2]), "glake_free");
	counters = gpu_counters_take(&work);
	is_int((int64_t)counters.wrong, 0, "no word of a block is wrong");
	tap_note("%s, %s: %.3f s", mode, look ? look : "no looks", now_s() - begin);
	c = checked(ctx, 0, "nothing is wrong");
	ok(!c.findings && !c.unguarded, "%s: nothing is found, %d looked at, %d not",
		mode, (int)c.freed, (int)c.unchecked);
	must(glake_stream_free(ctx, 0, streams[0]), "no end");
	must(glake_stream_free(ctx, 0, streams[1]), "no end");
	closed(ctx);
}

/* A block that nobody frees: the thread finds what was written behind it, in the middle of other work too. */
static void looked_at(void)
{
	struct glake *ctx = open_both("guard.mode=canary", "guard.look=1s");
	struct timespec pause = {.tv_nsec = 1000000};
	char *p = given(ctx, 1000, NULL);
	struct glake_finding f;
	double begin;

	must_cuda(smash(p + 1000, 4, NULL), "past the end");
	begin = now_s();
	while (!(f = finding(ctx, 0)).kind)
		nanosleep(&pause, NULL);
	ok(f.kind == GLAKE_FINDING_OVERRUN && f.base == p && f.size == 1000 &&
			f.offset == 1000 && f.bytes == 4 && !f.freed_by,
		"what is written behind a live block is found by itself, %.2f s later",
		now_s() - begin);
	checked(ctx, -EIO, "and told by the next check");
	glake_free(ctx, p, NULL);
	closed(ctx);
}

/* ---- Faults, each in a process ---- */

static const char *const faults[] = {
	"none", /* within the block */
	"write past the end",
	"read past the end",
	"write before the beginning",
	"read before the beginning",
	"write after the free",
	"read after the free",
};

/* In the child: what the GPU says of it; 0, or the CUresult. */
static int fault(int which)
{
	struct glake *ctx = open_with("guard.mode=sample");
	char *ends = given(ctx, 4096, NULL), *begins = given(ctx, 4096, NULL), *at = ends;
	bool write = which % 2;
	struct glake_described d = {.sz = sizeof(d)};
	int result;

	if (which == 1 || which == 2)
		at = ends + 4096;
	if (which == 3 || which == 4)
		at = begins - 1;
	if (which >= 5) {
		glake_free(ctx, ends, NULL);
		glake_trim(ctx, 0, SIZE_MAX, NULL);
	}
	glake_describe(ctx, at, &d);
	result = write ? smash(at, 1, NULL) : peek(at);
	if (!result)
		result = work.sync();
	/* the process may have been told of what it is before: the block has a name all the same */
	printf("# %s: CUresult %d, %s of %p, %zu bytes\n", faults[which], result,
		glake_what_name(d.what), d.base, d.size);
	fflush(stdout);
	return result;
}

static int run_fault(const char *self, int which)
{
	char number[16];
	char *const args[] = {(char *)(uintptr_t)self, number, NULL};
	int status = 0;
	pid_t pid;

	snprintf(number, sizeof(number), "%d", which);
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ))
		return -1;
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* None of them faults under MPS, where no block is sampled. */
static void samples(const char *self)
{
	struct glake_device info = {.sz = sizeof(info)};
	bool shared;

	must(drv->ops->device_info(drv, 0, &info), "no device");
	shared = info.caps & GLAKE_CAP_MPS;
	for (int i = 0; i < (int)(sizeof(faults) / sizeof(*faults)); i++)
		is_int(run_fault(self, i), i && !shared, faults[i]);
}

/* ---- Cost ---- */

#define BLOCKS	     100000
#define ROUNDS_TIMED 50
/* Of the kernel over a table, a warp of each looks at four. */
#define CHECK_BLOCKS ((BLOCKS + 31) / 32)

static double timed(uint64_t kernel, const void *args, size_t size, uint32_t blocks)
{
	double begin;

	launch(kernel, args, size, blocks);
	must_cuda(work.sync(), "a kernel");
	begin = now_s();
	for (int i = 0; i < ROUNDS_TIMED; i++)
		launch(kernel, args, size, blocks);
	must_cuda(work.sync(), "kernels");
	return (now_s() - begin) / ROUNDS_TIMED;
}

static double pair_ns(const char *mode, size_t size)
{
	struct glake *ctx = open_with(mode);
	double begin;

	for (int i = 0; i < 1000; i++)
		glake_free(ctx, given(ctx, size, NULL), NULL);
	must_cuda(work.sync(), "wait");
	begin = now_s();
	for (int i = 0; i < 20000; i++)
		glake_free(ctx, given(ctx, size, NULL), NULL);
	begin = now_s() - begin;
	must_cuda(work.sync(), "wait");
	glake_close(ctx, NULL);
	return begin / 20000 * 1e9;
}

static void cost(void)
{
	static void *block[BLOCKS];
	struct glake *ctx = open_with("guard.mode=canary");
	struct glk_guard_host *shared = glk_region_new(sizeof(*shared));
	struct glk_guard_range r = {.secret = 5};
	struct glk_guard_run run = {.count = 1, .secret = 5};
	struct glk_guard_table t = {.count = BLOCKS, .secret = 5};
	struct glake_checked c;
	double begin, s;
	void *table;
	char *large;

	must(drv->ops->host_lock(drv, 0, shared, sizeof(*shared)), "no locked memory");
	begin = now_s();
	for (int i = 0; i < BLOCKS; i++)
		block[i] = given(ctx, 1024, NULL);
	tap_note("%d blocks of 1 KiB with canaries: %.2f us each", BLOCKS,
		(now_s() - begin) / BLOCKS * 1e6);
	c = checked(ctx, 0, "nothing is wrong");
	is_int((int64_t)c.blocks, BLOCKS, "all were looked at");
	begin = now_s();
	for (int i = 0; i < 10; i++)
		glake_check(ctx, NULL);
	tap_note("glake_check of %d blocks: %.1f us", BLOCKS,
		(now_s() - begin) / 10 * 1e6);
	/* the same kernel alone, over canaries of 512 bytes of its own secret */
	table = given(ctx, BLOCKS * sizeof(struct glk_guard_entry), NULL);
	for (int i = 0; i < BLOCKS; i++) {
		shared->table[i] = (struct glk_guard_entry){
			.addr = (uintptr_t)block[i] + 512, .bytes = 512};
		r.addr = shared->table[i].addr;
		r.canary = 512;
		launch(fill_kernel, &r, sizeof(r), 1);
	}
	must(drv->ops->copy(drv, (uintptr_t)table, (uintptr_t)shared->table,
		     BLOCKS * sizeof(struct glk_guard_entry), NULL),
		"copy");
	t.entries = (uintptr_t)table;
	t.founds = (uintptr_t)&shared->founds;
	s = timed(check_kernel, &t, sizeof(t), CHECK_BLOCKS);
	is_int(shared->founds.count, 0, "and finds them right");
	tap_note("the kernel alone: %d canaries of 512 bytes in %.1f us, %.0f GB/s",
		BLOCKS, s * 1e6, BLOCKS * 512.0 / s / 1e9);
	for (int i = 0; i < BLOCKS; i++)
		shared->table[i].bytes = 16;
	drv->ops->copy(drv, (uintptr_t)table, (uintptr_t)shared->table,
		BLOCKS * sizeof(struct glk_guard_entry), NULL);
	must_cuda(work.sync(), "copy");
	s = timed(check_kernel, &t, sizeof(t), CHECK_BLOCKS);
	tap_note("the same of 16 bytes in %.1f us", s * 1e6);
	for (int i = 0; i < BLOCKS; i++)
		glake_free(ctx, block[i], NULL);
	glake_free(ctx, table, NULL);
	checked(ctx, 0, "nothing was written behind them");
	large = given(ctx, (size_t)8 << 30, NULL);
	r = (struct glk_guard_range){
		.addr = (uintptr_t)large, .body = (uint64_t)8 << 30, .secret = 5};
	run.looks = (uintptr_t)shared->look;
	for (uint32_t blocks = 264; blocks <= 4224; blocks *= 4) {
		s = timed(fill_kernel, &r, sizeof(r), blocks);
		tap_note("fill of 8 GiB by %u blocks: %.0f GB/s", blocks,
			(double)r.body / s / 1e9);
		run.parts = blocks;
		shared->look[0] = (struct glk_guard_look){.addr = r.addr,
			.asked = r.body,
			.parts = blocks,
			.body = {.first = UINT64_MAX}};
		s = timed(bodies_kernel, &run, sizeof(run), blocks);
		tap_note("look at 8 GiB by %u blocks: %.0f GB/s", blocks,
			(double)r.body / s / 1e9);
		is_int((int64_t)shared->look[0].body.count, 0, "  which finds it right");
	}
	glake_free(ctx, large, NULL);
	drv->ops->host_unlock(drv, 0, shared);
	glk_region_free(shared, sizeof(*shared));
	closed(ctx);
	for (size_t size = 1024; size <= 4 * MIB; size *= 64)
		tap_note("a pair of %zu bytes: off %.0f, canary %.0f, poison %.0f ns",
			size, pair_ns("guard.mode=off", size),
			pair_ns("guard.mode=canary", size),
			pair_ns("guard.mode=poison", size));
}

int main(int argc, char **argv)
{
	drv = gpu_open();
	gpu_work_init(&work);
	load();
	if (argc > 1)
		return fault(atoi(argv[1])) != 0;
	tap_plan_later();
	glake_log_hook(hook, NULL, GLAKE_LOG_WARNING);
	kernels();
	canaries();
	late();
	looked_at();
	nothing("guard.mode=canary", NULL);
	nothing("guard.mode=canary", "guard.look=1ms");
	nothing("guard.mode=poison", NULL);
	nothing("guard.mode=poison", "guard.look=1ms");
	nothing("guard.mode=full", NULL);
	nothing("guard.mode=sample", NULL);
	nothing("guard.mode=off", NULL);
	samples(argv[0]);
	cost();
	is_done(drv->ops->module_free(drv, 0, module), "the kernels go");
	return tap_done();
}
