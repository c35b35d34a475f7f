/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Copies over the links of all GPUs, on real ones: every word, behind and before other work, in lists
 * of odd ranges, both ways at once, while the GPUs that lend their links copy too; and how fast, beside
 * plain copies of the same run.
 *
 *	gpu-copy [MIB]		the largest copy, 1024 unless given
 */
#include "api/context.h"
#include "gpu.h"

#include <sys/mman.h>

#include <glake/glake.h>

#define KIB    ((size_t)1 << 10)
#define MIB    ((size_t)1 << 20)
#define GPUS   8
#define ROUNDS 5

static size_t most = 1024 * MIB;
static struct glake *ctx;
static struct glk_context *context;
static struct glk_drv *drv;
static int gpus;
static char *host[2]; /* locked; the second as large as the first */
static struct CUstream_st *stream[GPUS], *other;
static char *block[GPUS], *second;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void sync_all(void)
{
	for (int i = 0; i < gpus; i++)
		must(drv->ops->device_sync(drv, i), "a GPU");
}

static char *lock_memory(void)
{
	char *at = mmap(NULL, most, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (at == MAP_FAILED)
		tap_bail("no memory of the host");
	must(drv->ops->host_lock(drv, 0, at, most), "memory of the host is locked");
	return at;
}

static void open_all(void)
{
	static const char *const settings[] = {"io.lend=all", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = settings};

	must(glake_open(&options, &ctx), "glake_open");
	must(glk_context_get(ctx, &context), "its inside");
	drv = context->drv;
	gpus = context->devices < GPUS ? context->devices : GPUS;
	for (int i = 0; i < gpus; i++) {
		void *ptr = NULL;

		must(glake_stream_new(ctx, i, &stream[i]), "a stream");
		must(glake_alloc(ctx, i, most, stream[i], 0, &ptr), "a block");
		block[i] = ptr;
	}
	must(glake_stream_new(ctx, 0, &other), "another stream");
	must(glake_alloc(ctx, 0, most, other, 0, (void **)&second), "a second block");
	host[0] = lock_memory();
	host[1] = lock_memory();
}

static void close_all(void)
{
	size_t leaked = 99;

	sync_all();
	glake_free(ctx, second, other);
	glake_stream_free(ctx, 0, other);
	for (int i = 0; i < gpus; i++) {
		glake_free(ctx, block[i], stream[i]);
		glake_stream_free(ctx, i, stream[i]);
	}
	for (int i = 0; i < 2; i++) {
		drv->ops->host_unlock(drv, 0, host[i]);
		munmap(host[i], most);
	}
	is_done(glake_close(ctx, &leaked), "closed");
	is_int((int64_t)leaked, 0, "no block left");
}

static size_t wrong_bytes(const char *a, const char *b, size_t bytes)
{
	size_t wrong = 0;

	if (!memcmp(a, b, bytes))
		return 0;
	for (size_t i = 0; i < bytes; i++)
		wrong += a[i] != b[i];
	return wrong;
}

/* Down over many paths, up over one; then the other way round. */
static void is_right(size_t bytes, size_t odd)
{
	static uint64_t seed;
	struct glake_copy_state state = {.sz = sizeof(state)};
	struct glake_copy_job *job = NULL;
	size_t wrong;

	pattern_make((uint64_t *)(void *)host[0], most, ++seed);
	memset(host[1], 0, most);
	is_done(glake_copy(ctx, block[0] + odd, host[0] + 3 * odd, bytes, stream[0], 0,
			&job),
		"down over many paths");
	is_done(glake_copy(ctx, host[1] + odd, block[0] + odd, bytes, stream[0],
			GLAKE_COPY_DIRECT, NULL),
		"and up over one");
	must(drv->ops->stream_sync(drv, 0, stream[0]), "the stream");
	is_done(glake_copy_get(job, &state), "the job");
	is_int(state.stage, GLAKE_COPY_DONE, "is done");
	tap_note("%zu bytes over %u paths, %" PRIu64 " of them lent ones", bytes,
		state.paths, state.relayed);
	glake_copy_close(job);
	wrong = wrong_bytes(host[0] + 3 * odd, host[1] + odd, bytes);
	is_int((int64_t)wrong, 0, "no byte is wrong");
	memset(host[1], 0, most);
	is_done(glake_copy(ctx, host[1] + 2 * odd, block[0] + odd, bytes, stream[0], 0,
			NULL),
		"up over many paths");
	must(drv->ops->stream_sync(drv, 0, stream[0]), "the stream");
	wrong = wrong_bytes(host[0] + 3 * odd, host[1] + 2 * odd, bytes);
	is_int((int64_t)wrong, 0, "no byte is wrong");
	ok(!host[1][2 * odd + bytes] && (!odd || !host[1][2 * odd - 1]),
		"and none beside them is touched");
}

static void lists(void)
{
	static struct glake_copy_range r[999];
	size_t at = 0, wrong = 0, bytes;

	pattern_make((uint64_t *)(void *)host[0], most, 77);
	for (size_t i = 0; i < 999; i++) {
		bytes = (i * 2654435761u) % (most / 1000) | 1;
		r[i] = (struct glake_copy_range){block[0] + at, host[0] + at, bytes};
		at += bytes + i % 3;
	}
	is_done(glake_copy_list(ctx, r, 999, stream[0], 0, NULL),
		"a list of 999 odd ranges");
	for (size_t i = 0; i < 999; i++) {
		r[i].src = r[i].dst;
		r[i].dst = host[1] + ((char *)r[i].dst - block[0]);
	}
	is_done(glake_copy_list(ctx, r, 999, stream[0], 0, NULL), "and back");
	must(drv->ops->stream_sync(drv, 0, stream[0]), "the stream");
	for (size_t i = 0; i < 999; i++)
		wrong += wrong_bytes(r[i].dst,
			host[0] + ((const char *)r[i].src - block[0]), r[i].bytes);
	is_int((int64_t)wrong, 0, "no byte is wrong");
}

/* A gate before it; after it what overwrites both ends. */
static void in_order(const struct gpu_extra *extra)
{
	struct glake_copy_job *job = NULL;
	uint32_t word = 0;
	struct gate gate;

	memset(host[0], 1, most);
	must(drv->ops->fill(drv, (uintptr_t)block[0], 0, most / 4, stream[0]), "a fill");
	must(gate_close(extra, &gate, stream[0]), "a gate");
	is_done(glake_copy(ctx, block[0], host[0], most, stream[0], 0, &job), "a copy");
	must(drv->ops->fill(drv, (uintptr_t)block[0] + most - 4, 9, 1, stream[0]),
		"a fill");
	must(drv->ops->copy(
		     drv, (uintptr_t)&word, (uintptr_t)block[0] + most / 2, 4, other),
		"a look");
	must(drv->ops->stream_sync(drv, 0, other), "which is had");
	is_int(word, 0, "it waits for what was queued before it");
	is_int(glake_copy_wait(job, 1000000), -ETIMEDOUT, "as its job says");
	gate_open(&gate);
	is_done(glake_copy_wait(job, -1), "until that has finished");
	ok(!gate.late, "nothing waited for the gate");
	must(drv->ops->copy(
		     drv, (uintptr_t)&word, (uintptr_t)block[0] + most - 4, 4, stream[0]),
		"a look");
	must(drv->ops->stream_sync(drv, 0, stream[0]), "the stream");
	is_int(word, 9, "what was queued after it came after it");
	glake_copy_close(job);
}

enum what { DOWN = 1, UP = 2, PLAIN = 4, EACH = 8, DRIVER = 16 };

/* One GPU or each, down, up or both, by the driver itself or the library over one path or all. */
static void queue(int what, size_t bytes)
{
	uint32_t flags = what & PLAIN ? GLAKE_COPY_DIRECT : 0;
	int last = what & EACH ? gpus : 1, err = 0;
	size_t part = bytes / (size_t)last;

	for (int i = 0; i < last; i++) {
		size_t at = (size_t)i * part;

		if (what & DRIVER)
			err |= drv->ops->copy(drv, (uintptr_t)block[i],
				(uintptr_t)host[0] + at, part, stream[i]);
		else if (what & DOWN)
			err |= glake_copy(ctx, block[i], host[0] + at, part, stream[i],
				flags, NULL);
		if (what & UP)
			err |= glake_copy(ctx, host[1] + at, i ? block[i] + part : second,
				part, what & DOWN && !i ? other : stream[i], flags, NULL);
	}
	must(err, "a copy");
}

static double rate(int what, size_t bytes, double *ret_call_us)
{
	double best = 1e30, call = 1e30, begin, queued, took;

	for (int i = 0; i < ROUNDS; i++) {
		sync_all();
		begin = now_us();
		queue(what, bytes);
		queued = now_us() - begin;
		sync_all();
		took = now_us() - begin;
		best = took < best ? took : best;
		call = queued < call ? queued : call;
	}
	if (ret_call_us)
		*ret_call_us = call;
	return (double)bytes * ((what & (UP | DOWN)) == (UP | DOWN) ? 2 : 1) / best / 1e3;
}

static void speeds(void)
{
	double plain, many, call, direct, all;

	for (int i = 0; i < gpus; i++)
		tap_note(
			"GPU %d: host %.1f GB/s, peers %.1f, measured: %s, shares an uplink: %s",
			i, context->io.gpu[i].down.rate, context->io.gpu[i].leave.rate,
			context->io.gpu[i].measured ? "yes" : "no",
			context->io.gpu[i].uplink[0] ? "yes" : "no");
	for (int up = 0; up < 2; up++) {
		int way = up ? UP : DOWN;

		for (size_t bytes = 4 * KIB; bytes <= most; bytes *= 4) {
			plain = rate(way | PLAIN, bytes, &direct);
			many = rate(way, bytes, &call);
			tap_note(
				"%s %8zu KiB: one path %6.1f GB/s (call %.1f us), all %6.1f "
				"(%.1f us), %.2f times",
				up ? "up  " : "down", bytes / KIB, plain, direct, many,
				call, many / plain);
		}
		all = rate(way | PLAIN | EACH, most, NULL);
		many = rate(way, most, NULL);
		tap_note(
			"%s: all GPUs, plain copies %.1f GB/s; one over all paths %.1f: %.3f",
			up ? "up" : "down", all, many, many / all);
		tap_note("%s: all GPUs at once, over what paths they like: %.1f GB/s",
			up ? "up" : "down", rate(way | EACH, most, NULL));
	}
	plain = rate(DOWN | UP | PLAIN, most, NULL);
	many = rate(DOWN | UP, most, NULL);
	all = rate(DOWN | UP | PLAIN | EACH, most, NULL);
	tap_note(
		"both ways at once: one path %.1f GB/s, all %.1f; plain copies of all GPUs "
		"%.1f: %.3f",
		plain, many, all, many / all);
}

/* No copy of a size that goes over one link is slower than the driver's by more than 5 us. */
static void small(void)
{
	double driver, ours, worst = 0;

	for (size_t bytes = 4 * KIB; bytes < 16 * MIB; bytes *= 2) {
		driver = (double)bytes / rate(DRIVER, bytes, NULL) / 1e3;
		ours = (double)bytes / rate(DOWN, bytes, NULL) / 1e3;
		if (ours - driver > worst)
			worst = ours - driver;
	}
	tap_note(
		"below 16 MiB: at most %.1f us longer than the driver's own copy", worst);
}

int main(int argc, char **argv)
{
	struct gpu_extra extra;
	struct glk_drv *first;
	int count = 0;
	bool can = false;

	if (argc > 1)
		most = (size_t)strtoull(argv[1], NULL, 10) * MIB;
	first = gpu_open();
	first->ops->device_count(first, &count);
	if (count > 1)
		first->ops->peer_can(first, 1, 0, &can);
	if (!can)
		tap_skip_all("it takes two GPUs that can reach each other's memory");
	if (most < 16 * MIB)
		tap_bail("16 MiB at least");
	extra = gpu_extra();
	tap_plan_later();
	open_all();
	is_right(most - 4096, 0);
	is_right(most / 2 + 12345, 7);
	is_right(17 * MIB + 1, 1);
	is_right(3000, 13);
	lists();
	in_order(&extra);
	is_int(context->io.gpu[1].off, 0, "GPU 1 lends its link still");
	small();
	speeds();
	close_all();
	first->ops->close(first);
	return tap_done();
}
