/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pinned memory of the host: copies from and to it, blocks that are freed while a copy reads them, and
 * how long it takes to have much of it, beside other ways to have 8 or 16 GiB in the same run: touched by
 * more and fewer threads before one call locks it, with and without huge pages, by page faults in one
 * mapping and in several, by the driver as it comes, the driver's own; and in sixteen
 * parts, which are locked and unlocked in turn and by four threads. What the driver says to a copy over the
 * border of two parts is told too. What there is no time for is left out: it ends within a minute.
 *
 *	gpu-hostpool [GIB]	the largest block: 64, or half of what the host has to spare
 */
#include "gpu.h"
#include "numa/topology.h"
#include "tier/piece.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define BLOCK (65 * MIB + 4096)

static struct glk_drv *drv;
static struct gpu_extra extra;
static struct glake *ctx;
static struct CUstream_st *stream;

static struct {
	int (*host_alloc)(void **ptr, size_t size, unsigned flags);
	int (*host_free)(void *ptr);
	int (*attribute)(void *ret, int which, uint64_t addr);
} cuda;

#define MEMORY_TYPE 2 /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
#define OF_HOST	    1

static void find_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

	cuda.host_alloc =
		(int (*)(void **, size_t, unsigned))dlsym(library, "cuMemHostAlloc");
	cuda.host_free = (int (*)(void *))dlsym(library, "cuMemFreeHost");
	cuda.attribute =
		(int (*)(void *, int, uint64_t))dlsym(library, "cuPointerGetAttribute");
	if (!cuda.host_alloc || !cuda.host_free || !cuda.attribute)
		tap_bail("functions of the driver");
	extra.context_set(extra.primary);
}

static struct glake_stats stats(void)
{
	struct glake_stats s = {.sz = sizeof(s)};

	must(glake_stats_get(ctx, 0, &s), "figures");
	return s;
}

static void *host(size_t size)
{
	void *ptr = NULL;

	must(glake_host_alloc(ctx, 0, size, 0, &ptr), "pinned memory");
	return ptr;
}

static void copy(void *to, const void *from, size_t size)
{
	must(drv->ops->copy(drv, (uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, size,
		     stream),
		"a copy");
}

static void copies(void)
{
	uint64_t *p = host(BLOCK), *q = host(BLOCK);
	unsigned type = 0;
	void *gpu = NULL;

	must(glake_alloc(ctx, 0, BLOCK, stream, 0, &gpu), "memory of the GPU");
	is_int(cuda.attribute(&type, MEMORY_TYPE, (uint64_t)(uintptr_t)p), 0,
		"the driver knows it");
	is_int(type, OF_HOST, "as memory of the host");
	pattern_make(p, BLOCK, 5);
	memset(q, 0, BLOCK);
	copy(gpu, p, BLOCK);
	copy(q, gpu, BLOCK);
	must(drv->ops->stream_sync(drv, 0, stream), "a wait");
	is_int((int64_t)pattern_wrong(q, BLOCK, 5), 0, "there and back");
	must(glake_host_free(ctx, p), "a free");
	must(glake_host_free(ctx, q), "a free");
	must(glake_free(ctx, gpu, stream), "a free");
}

/* A copy that waits reads a block which was freed. */
static void freed_early(void)
{
	struct gate gate;
	uint64_t *p = host(BLOCK), *q, *back = host(BLOCK);
	void *gpu = NULL;

	must(glake_alloc(ctx, 0, BLOCK, stream, 0, &gpu), "memory of the GPU");
	pattern_make(p, BLOCK, 6);
	must(gate_close(&extra, &gate, stream), "a gate");
	copy(gpu, p, BLOCK);
	must(glake_host_use(ctx, p, 0, stream), "its stream");
	must(glake_host_free(ctx, p), "a free");
	is_int((int64_t)stats().host_pool_waiting, (int64_t)BLOCK,
		"a block that a copy reads waits");
	q = host(BLOCK);
	ok(q != p, "and is nobody else's");
	memset(q, 0xff, BLOCK);
	gate_open(&gate);
	copy(back, gpu, BLOCK);
	must(drv->ops->stream_sync(drv, 0, stream), "a wait");
	ok(!atomic_load(&gate.late), "no call has waited for the GPU");
	is_int((int64_t)pattern_wrong(back, BLOCK, 6), 0,
		"what was copied is what was there");
	ok(host(BLOCK) == p, "then it is had again");
	must(glake_free(ctx, gpu, stream), "a free");
}

/* No way is begun after so many seconds. */
#define LONGEST 45

static double per_8gib(double s, size_t size)
{
	return s * (double)(8 * GIB) / (double)size;
}

/* s for 8 GiB */
static double tell(const char *what, size_t size, double touched, double locked)
{
	double all = per_8gib(touched + locked, size);

	if (touched > 0)
		tap_note("%-44s %2zu GiB %6.2f s and %.2f: %.2f s for 8 GiB", what,
			size / GIB, touched, locked, all);
	else
		tap_note("%-44s %2zu GiB %6.2f s          : %.2f s for 8 GiB", what,
			size / GIB, locked, all);
	return all;
}

static char *fresh(size_t size, bool huge)
{
	char *ptr = mmap(NULL, size + 2 * MIB, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (ptr == MAP_FAILED)
		tap_bail("no addresses");
	madvise(ptr, size + 2 * MIB, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return ptr;
}

/* It begins with a huge page. */
static char *aligned(char *ptr)
{
	return ptr + (-(uintptr_t)ptr & (2 * MIB - 1));
}

static void gone(char *ptr, size_t size)
{
	munmap(ptr, size + 2 * MIB);
}

/* Locks what is touched, and unlocks it. */
static void lock_whole(const char *what, char *ptr, size_t size, double touched)
{
	double begin = now_s();

	must(drv->ops->host_lock(drv, 0, aligned(ptr), size), "a lock");
	tell(what, size, touched, now_s() - begin);
	must(drv->ops->host_unlock(drv, 0, aligned(ptr)), "an unlock");
}

static void touched_first(const char *what, size_t size, unsigned threads, bool huge)
{
	struct glk_touch touch;
	char *ptr = fresh(size, huge), *base = aligned(ptr);
	double begin = now_s();

	glk_touch_begin(&touch, &base, 1, size, threads);
	must(glk_touch_wait(&touch, 0), "touched");
	glk_touch_end(&touch);
	begin = now_s() - begin;
	lock_whole(what, ptr, size, begin);
	gone(ptr, size);
}

static void as_it_comes(const char *what, size_t size)
{
	double begin = now_s();
	char *base = NULL;

	must(glk_piece_make(drv, 0, -1, false, false, size, &base), "a piece");
	tell(what, size, 0, now_s() - begin);
	if (!glk_piece_end(drv, 0, base, size))
		tap_bail("an unlock");
}

/* A share for each of some threads. */
#define THREADS 16
#define LOCKERS 4

struct shares {
	char *base;
	size_t part;
	unsigned parts;
	atomic_uint next, failed;
};

static void *fault_in(void *arg)
{
	struct shares *s = arg;
	unsigned i;

	while ((i = atomic_fetch_add(&s->next, 1)) < s->parts)
		for (size_t at = 0; at < s->part; at += 4096)
			atomic_store((atomic_char *)(s->base + i * s->part + at), 0);
	return NULL;
}

static void *lock_parts(void *arg)
{
	struct shares *s = arg;
	unsigned i;

	while ((i = atomic_fetch_add(&s->next, 1)) < s->parts)
		s->failed +=
			drv->ops->host_lock(drv, 0, s->base + i * s->part, s->part) != 0;
	return NULL;
}

static void *unlock_parts(void *arg)
{
	struct shares *s = arg;
	unsigned i;

	while ((i = atomic_fetch_add(&s->next, 1)) < s->parts)
		s->failed += drv->ops->host_unlock(drv, 0, s->base + i * s->part) != 0;
	return NULL;
}

/* The seconds that it takes. */
static double by_threads(
	unsigned threads, void *(*fn)(void *shares), char *base, size_t size)
{
	struct shares s = {.base = base, .part = size / THREADS, .parts = THREADS};
	pthread_t thread[THREADS];
	double begin = now_s();

	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, fn, &s))
			tap_bail("no thread");
	for (unsigned i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	if (s.failed)
		tap_bail("a part");
	return now_s() - begin;
}

/* Mappings that differ have a lock each, which page faults take in place of that of the process. */
static void faulted(const char *what, size_t size, bool apart)
{
	char *ptr = fresh(size, true), *base = aligned(ptr);

	for (size_t i = 0; apart && i < THREADS; i += 2)
		madvise(base + i * (size / THREADS), size / THREADS, MADV_DONTDUMP);
	lock_whole(what, ptr, size, by_threads(THREADS, fault_in, base, size));
	gone(ptr, size);
}

static void over_border(char *border)
{
	void *gpu = NULL;
	int err;

	must(glake_alloc(ctx, 0, 4 * MIB, stream, 0, &gpu), "memory of the GPU");
	err = drv->ops->copy(drv, (uint64_t)(uintptr_t)gpu,
		(uint64_t)(uintptr_t)(border - 2 * MIB), 4 * MIB, stream);
	tap_note("    a copy over the border of two parts: %d", err);
	if (err)
		gpu_why();
	must(drv->ops->stream_sync(drv, 0, stream), "a wait");
	must(glake_free(ctx, gpu, stream), "a free");
}

/* The whole of it lies in one piece of addresses, so that a copy can be over a border. */
static void in_parts(const char *what, size_t size, unsigned threads)
{
	size_t part = size / GLK_PIECES;
	char *base[GLK_PIECES], *ptr = fresh(size, true);
	struct glk_touch touch;
	double begin = now_s(), touched = 0;

	for (int i = 0; i < GLK_PIECES; i++)
		base[i] = aligned(ptr) + (size_t)i * part;
	glk_touch_begin(&touch, base, GLK_PIECES, part, GLK_TOUCH_THREADS);
	for (uint32_t i = 0; i < GLK_PIECES; i++) {
		must(glk_touch_wait(&touch, i), "touched");
		if (threads == 1)
			must(drv->ops->host_lock(drv, 0, base[i], part), "a lock");
	}
	glk_touch_end(&touch);
	if (threads > 1) {
		touched = now_s() - begin;
		begin = now_s() - by_threads(threads, lock_parts, base[0], size);
	}
	tell(what, size, touched, now_s() - begin);
	if (threads == 1)
		over_border(base[1]);
	tap_note("    unlocked in %.2f s",
		by_threads(threads, unlock_parts, base[0], size));
	gone(ptr, size);
}

/* Returns s for 8 GiB; 0: it has none. */
static double by_driver(const char *what, size_t size)
{
	double begin = now_s(), s;
	void *ptr = NULL;

	if (cuda.host_alloc(&ptr, size, 1)) {
		tap_note("the driver has no memory of its own for that");
		return 0;
	}
	s = tell(what, size, 0, now_s() - begin);
	cuda.host_free(ptr);
	return s;
}

#define PARTS_MAX 8

static double by_pool(const char *what, size_t size, size_t parts)
{
	void *ptr[PARTS_MAX];
	double begin = now_s(), s;

	for (size_t i = 0; i < parts; i++)
		ptr[i] = host(size / parts);
	s = tell(what, size, 0, now_s() - begin);
	for (size_t i = 0; i < parts; i++)
		must(glake_host_free(ctx, ptr[i]), "a free");
	begin = now_s();
	must(glake_host_free(ctx, host(size / parts)), "again");
	tap_note("    again %.1f us", (now_s() - begin) * 1e6);
	begin = now_s();
	must(glake_trim(ctx, 0, SIZE_MAX, NULL), "a trim");
	tap_note("    given back in %.2f s", now_s() - begin);
	return s;
}

enum kind {
	TOUCHED, /* by so many threads beside the caller, then locked */
	SMALL,	 /* the same without huge pages */
	FAULTED,
	APART,
	PARTS, /* locked by so many threads */
	UNTOUCHED,
	DRIVER,
};

static const struct {
	const char *what;
	enum kind kind;
	unsigned number, gib;
} ways[] = {
	{"touched by 16 threads, then locked", TOUCHED, 15, 16},
	{"by 8", TOUCHED, 7, 16},
	{"by 4", TOUCHED, 3, 8},
	{"by page faults of 16 threads, then locked", FAULTED, 0, 16},
	{"the same, each in a mapping of its own", APART, 0, 16},
	{"in 16 parts, each locked when it is touched", PARTS, 1, 16},
	{"in 16 parts, touched, locked by 4 threads", PARTS, LOCKERS, 16},
	{"cuMemHostAlloc", DRIVER, 0, 8},
	{"locked as it comes", UNTOUCHED, 0, 8},
	{"by 16 threads without huge pages, locked", SMALL, 15, 8},
};

static void one_way(unsigned i, size_t most, double pool)
{
	double s;
	size_t size = ways[i].gib * GIB < most ? ways[i].gib * GIB : most;

	switch (ways[i].kind) {
	case TOUCHED:
	case SMALL:
		touched_first(
			ways[i].what, size, ways[i].number, ways[i].kind == TOUCHED);
		break;
	case FAULTED:
	case APART:
		faulted(ways[i].what, size, ways[i].kind == APART);
		break;
	case PARTS:
		in_parts(ways[i].what, size, ways[i].number);
		break;
	case UNTOUCHED:
		as_it_comes(ways[i].what, size);
		break;
	case DRIVER:
		s = by_driver(ways[i].what, size);
		if (s > 0)
			tap_note("    %.2f times the pool's", s / pool);
	}
}

static void tell_host(void)
{
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	char line[256] = "unknown";

	if (file) {
		if (!fgets(line, sizeof(line), file))
			line[0] = 0;
		fclose(file);
	}
	tap_note("%ld processors, huge pages: %.*s", sysconf(_SC_NPROCESSORS_ONLN),
		(int)strcspn(line, "\n"), line);
}

static void measure(size_t gib)
{
	double begin = now_s(), pool;
	uint64_t usable = glk_numa_usable(NULL);
	size_t most;

	/* the driver's own may take a little more */
	gib = gib < usable / GIB * 7 / 8 ? gib : usable / GIB / 2;
	most = gib * GIB;
	if (!gib) {
		tap_skip("how long it takes", "the host has no GiB to spare");
		return;
	}
	tell_host();
	pool = by_pool("glake_host_alloc", most < 16 * GIB ? most : 16 * GIB, 1);
	by_pool("glake_host_alloc of eight blocks", most, PARTS_MAX);
	by_pool("glake_host_alloc", most, 1);
	for (unsigned i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		if (now_s() - begin < LONGEST)
			one_way(i, most, pool);
		else
			tap_note("no time for: %s", ways[i].what);
	}
	is_int((int64_t)stats().host_pool_held, 0, "all of it is given back");
	tap_note("in %.0f s", now_s() - begin);
}

int main(int argc, char **argv)
{
	static const char *const settings[] = {"host.limit=16TiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.settings = settings};
	size_t leaked = 0;

	drv = gpu_open();
	extra = gpu_extra();
	find_cuda();
	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	tap_plan_later();
	copies();
	freed_early();
	must(glake_close(ctx, &leaked), "close");
	is_int((int64_t)leaked, 3, "blocks that nobody freed are told");
	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	measure(argc > 1 ? strtoul(argv[1], NULL, 10) : 64);
	must(glake_stream_free(ctx, 0, stream), "a stream");
	is_int(glake_close(ctx, &leaked), 0, "close");
	must(drv->ops->close(drv), "close");
	return tap_done();
}
