/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Out of address space: RLIMIT_AS leaves a child little more than it has, a little more in
 * each, so that every mmap of a context, of its first request and of a thread's first request
 * fails once. Each child opens, asks, frees, trims and closes, finds documented answers alone,
 * and works in full when the limit is lifted. A child that aborts is seen.
 */
#include "context.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define STUCK_S 100
#define STREAMS 24

enum {
	ODD_OPEN = 1,
	ODD_ALLOC = 2,
	ODD_AFTER = 4,
	ODD_CLOSE = 8,
	OPENED = 16,
	SERVED = 32,
	SERVED_ALL = 64,
};

static bool is_documented(int err)
{
	int class = flow_error().error_class;

	if (err != -ENOMEM || flow_error().err != err)
		return false;
	return class == GLAKE_ERROR_NOMEM_HOST || class == GLAKE_ERROR_ADDRESS ||
		class == GLAKE_ERROR_LIMIT;
}

static uint64_t address_space(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	if (!file || fscanf(file, "%lu", &pages) != 1)
		tap_bail("no /proc/self/statm");
	fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void limit(uint64_t bytes)
{
	struct rlimit now;

	getrlimit(RLIMIT_AS, &now);
	now.rlim_cur = bytes;
	setrlimit(RLIMIT_AS, &now);
}

/* What a context does: small, large and contiguous blocks, new streams, a trim. */
static int play(struct glake *ctx)
{
	/* more than the GiB that addresses are had by at least */
	static const size_t size[] = {64, MIB, 3 * MIB, 80 * MIB};
	struct CUstream_st *stream[STREAMS] = {0};
	void *p[64] = {0};
	int bits = 0;

	/* the first is the default stream, and so is one that was refused */
	for (int i = 1; i < STREAMS; i++)
		if (glake_stream_new(ctx, 0, &stream[i]) && !is_documented(-ENOMEM))
			bits |= ODD_ALLOC;
	for (int i = 0; i < 64; i++) {
		int err = glake_alloc(ctx, 0, size[i % 4], stream[i % STREAMS],
			i % 16 == 15 ? GLAKE_ALLOC_CONTIGUOUS : 0, &p[i]);

		if (err && !is_documented(err))
			bits |= ODD_ALLOC;
		bits |= err ? 0 : SERVED;
		bits |= !err && i == 63 ? SERVED_ALL : 0;
	}
	for (int i = 0; i < 64; i++)
		if (glake_free(ctx, p[i], stream[i % STREAMS]))
			bits |= ODD_ALLOC;
	for (int i = 1; i < STREAMS; i++)
		if (glake_stream_free(ctx, 0, stream[i]))
			bits |= ODD_ALLOC;
	if (glake_trim(ctx, 0, 0, NULL))
		bits |= ODD_ALLOC;
	return bits;
}

static void *in_thread(void *ctx)
{
	return (void *)(uintptr_t)play(ctx);
}

/* Everything was given back, and the context closes. */
static int is_left_clean(struct glake *ctx)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	size_t leaked = 0;
	int bits = 0;

	if (glake_stats_get(ctx, 0, &stats) || stats.live || stats.given ||
		stats.reserved || stats.lost || stats.allocs != stats.frees)
		bits |= ODD_AFTER;
	if (glake_close(ctx, &leaked) || leaked)
		bits |= ODD_CLOSE;
	return bits;
}

static int child(uint64_t room)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};
	struct glake *ctx = NULL;
	int bits = 0, err;
	pthread_t thread;
	void *ret = NULL;

	limit(address_space() + room);
	err = glake_open(&options, &ctx);
	if (err && !is_documented(err))
		return ODD_OPEN;
	if (!err)
		bits |= OPENED | play(ctx);
	/* its stack may find no room, which is not the library's answer */
	if (!err && !pthread_create(&thread, NULL, in_thread, ctx)) {
		pthread_join(thread, &ret);
		bits |= (int)(uintptr_t)ret & ODD_ALLOC;
	}
	limit(RLIM_INFINITY);
	/* a context that was given few addresses keeps to them, a new one has plenty */
	if (!err)
		bits |= (play(ctx) & ODD_ALLOC) | is_left_clean(ctx);
	if (glake_open(&options, &ctx) ||
		(play(ctx) & (SERVED_ALL | ODD_ALLOC)) != SERVED_ALL)
		return bits | ODD_AFTER;
	return bits | is_left_clean(ctx);
}

static int run_child(uint64_t room)
{
	pid_t pid = flow_fork(STUCK_S);

	if (!pid)
		_exit(child(room));
	return flow_wait(pid);
}

#define GPUS 64

/* Addresses for all of many large GPUs, and for the program too. */
static void many_gpus(void)
{
	struct glake *ctx = flow_open((const char *const[]){"soft.gpus=64",
		"soft.memory=1TiB", "pool.peers=all", "tier.place=host", NULL});
	uint64_t least = UINT64_MAX;
	int served = 0;
	void *own;

	for (int gpu = 0; gpu < GPUS; gpu++) {
		struct glake_stats stats = {.sz = sizeof(stats)};
		void *p = NULL;

		served += !glake_alloc(ctx, gpu, 10 * MIB, NULL, 0, &p) &&
			!glake_stats_get(ctx, gpu, &stats) && !glake_free(ctx, p, NULL);
		if (stats.address_space < least)
			least = stats.address_space;
	}
	is_int(served, GPUS, "64 GPUs of 1 TiB serve");
	ok(least >= ((uint64_t)5 << 40) / 4, "each has addresses for 1.25 of its memory");
	own = mmap(NULL, (size_t)1 << 40, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ok(own != MAP_FAILED, "and some are left for the program");
	munmap(own, (size_t)1 << 40);
	flow_close(ctx, 0);
}

int main(void)
{
	uint64_t room = 0;
	int opened = 0, served = 0, all = 0, odd = 0, children = 0;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	tap_skip_all("a sanitizer needs address space of its own");
#endif
	if (tap_on_valgrind())
		tap_skip_all("valgrind needs address space of its own");
	tap_plan_later();
	/* from nothing to all that is asked for, by steps that grow with what they add to */
	for (; room < (uint64_t)1 << 46 && !(all > 2); children++) {
		int bits = run_child(room);

		opened += (bits & OPENED) != 0;
		served += (bits & SERVED) != 0;
		all += (bits & SERVED_ALL) != 0;
		if (bits >= 1000 ||
			(bits & (ODD_OPEN | ODD_ALLOC | ODD_AFTER | ODD_CLOSE)))
			if (odd++ < 8)
				tap_note("room for %" PRIu64 " bytes: %#x%s", room, bits,
					bits >= 1000 ? ", a signal" : "");
		room += room < 4 * MIB ? 64 << 10 : room / 16;
	}
	tap_note("%d children, %d opened, %d served, %d served all", children, opened,
		served, all);
	is_int(odd, 0, "all answers are documented, and nothing is lost");
	ok(opened && opened < children, "some were refused a context");
	ok(served && served < opened, "some were refused their first request");
	ok(all > 2 && all < served, "some were refused a later one");
	many_gpus();
	return tap_done();
}
