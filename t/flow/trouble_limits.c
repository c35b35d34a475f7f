/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The maximums of the library and of the process, each run into: descriptors of extents and
 * pages, streams, files and their size, data. A request says which one it was, what is live stays, and
 * when blocks have been freed as much can be had as before.
 */
#include "context.h"

#include <sys/resource.h>

#define MOST 8192

static void *block[MOST];

/* Requests until one is refused; how many were served. */
static int fill(struct glake *ctx, size_t size, size_t step, uint32_t flags)
{
	int count = 0;

	while (count < MOST && !glake_alloc(ctx, 0, size, NULL, flags, &block[count])) {
		size += step;
		count++;
	}
	if (count == MOST)
		tap_bail("no end of blocks");
	return count;
}

static int empty(struct glake *ctx, int first, int count, int by)
{
	int refused = 0;

	for (int i = first; i < count; i += by)
		refused += glake_free(ctx, block[i], NULL) != 0;
	return refused;
}

/* Nothing is live, nothing lost, and all pages can go. */
static void ends_clean(struct glake *ctx)
{
	struct glake_stats stats = flow_stats(ctx, 0);

	is_int(stats.live + stats.given + stats.live_blocks, 0, "  nothing is live");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "  trimmed");
	stats = flow_stats(ctx, 0);
	is_int(stats.reserved + stats.lost + stats.quick, 0, "  to nothing");
	flow_close(ctx, 0);
}

/*
 * Runs into a limit with requests of `size`, `size + step`, ..., twice, the second time with
 * every other block freed first.
 */
static void runs_out(const char *what, const char *const *settings, size_t size,
	size_t step, uint32_t flags, const char *class)
{
	struct glake *ctx = flow_open(settings);
	struct glake_stats full;
	void *none = (void *)7;
	int count, again;

	count = fill(ctx, size, step, flags);
	ok(count > 4, "%s: %d blocks", what, count);
	full = flow_stats(ctx, 0);
	is_error(glake_alloc(ctx, 0, size + (size_t)count * step, NULL, flags, &none),
		-ENOMEM, class);
	tap_note("%s", flow_error().text);
	ok(none == (void *)7, "  the output is as it was");
	full.oom++;
	ok(full.live == flow_stats(ctx, 0).live && full.live_blocks == (uint64_t)count &&
			full.oom == flow_stats(ctx, 0).oom,
		"  and the blocks, and the refusal is counted");
	is_int(empty(ctx, 0, count, 2), 0, "  every other block is freed");
	is_int(glake_alloc(ctx, 0, size, NULL, flags, &none), 0, "  one more is served");
	is_int(glake_free(ctx, none, NULL), 0, "  and freed");
	is_int(empty(ctx, 1, count, 2), 0, "  the others are freed");
	again = fill(ctx, size, step, flags);
	is_int(again, count, "  as many are had again");
	is_int(empty(ctx, 0, again, 1), 0, "  freed");
	ends_clean(ctx);
}

static void extents(void)
{
	static const char *const few[] = {"map.extents=64", "map.span=64GiB", NULL};
	static const char *const least[] = {"map.extents=16", "map.span=64GiB", NULL};

	runs_out("extents, small blocks", few, 700, 0, 0, "LIMIT");
	runs_out("extents, small blocks of many sizes", few, 700, 1024, 0, "LIMIT");
	runs_out("extents, blocks of 2 MiB", few, 2 * MIB, 0, 0, "LIMIT");
	runs_out("extents, large blocks", few, 9 * MIB, MIB, 0, "LIMIT");
	runs_out("extents, contiguous blocks", few, 2 * MIB, 0, GLAKE_ALLOC_CONTIGUOUS,
		"LIMIT");
	runs_out("the fewest extents", least, 700, 4096, 0, "LIMIT");
}

static void pages(void)
{
	static const char *const few[] = {
		"pool.pages=24", "pool.large_page=8MiB", "map.span=64GiB", NULL};

	runs_out("pages, small blocks", few, MIB / 2, 0, 0, "LIMIT");
	runs_out("pages, blocks of 3 MiB", few, 3 * MIB, 0, 0, "LIMIT");
	runs_out("pages, large blocks", few, 12 * MIB, 0, 0, "LIMIT");
	runs_out("pages, contiguous blocks", few, 2 * MIB, 0, GLAKE_ALLOC_CONTIGUOUS,
		"LIMIT");
}

static void addresses(void)
{
	static const char *const few[] = {"map.span=1GiB", NULL};

	runs_out("addresses of small blocks", few, MIB, 0, 0, "ADDRESS");
	runs_out("addresses of blocks of 3 MiB", few, 3 * MIB, 0, 0, "ADDRESS");
	runs_out("addresses of large blocks", few, 30 * MIB, 512, 0, "ADDRESS");
	runs_out("addresses of contiguous blocks", few, 16 * MIB, 0,
		GLAKE_ALLOC_CONTIGUOUS, "ADDRESS");
}

/* A handle is a value, and not every value is a stream. */
static void no_stream(struct glake *ctx)
{
	struct CUstream_st *wild = (struct CUstream_st *)0x10040;
	void *p = flow_alloc(ctx, 512, NULL), *none = NULL;

	is_error(glake_alloc(ctx, 0, 512, wild, 0, &none), -EINVAL, "INVAL");
	is_error(glake_free(ctx, p, wild), -EINVAL, "INVAL");
	is_int(flow_stats(ctx, 0).live_blocks, 1, "  the block is live");
	is_int(glake_free(ctx, p, NULL), 0, "  and freed where it may be");
}

/* As many as the device has, the default stream among them, are as many as can be known. */
static void streams(void)
{
	static struct CUstream_st *made[8192];
	struct glake *ctx = flow_open((const char *const[]){"map.span=64GiB", NULL});
	struct CUstream_st *more = NULL;
	int count = 0, known = 0;
	void *p = NULL;

	no_stream(ctx);
	while (count < 8192 && !glake_stream_new(ctx, 0, &made[count]))
		count++;
	ok(count > 4000 && count < 8192, "%d streams of the software device", count);
	is_error(glake_stream_new(ctx, 0, &more), -ENOMEM, "LIMIT");
	while (known < count && !glake_alloc(ctx, 0, 512, made[known], 0, &p) &&
		!glake_free(ctx, p, made[known]))
		known++;
	is_int(known, count, "  all of them are served");
	is_int(glake_stream_free(ctx, 0, made[5]), 0, "  one ends");
	is_int(glake_stream_new(ctx, 0, &made[5]), 0, "  another one begins");
	is_int(glake_alloc(ctx, 0, 512, made[5], 0, &p), 0, "  and is served");
	glake_free(ctx, p, made[5]);
	while (count--)
		glake_stream_free(ctx, 0, made[count]);
	flow_close(ctx, 0);
}

/* The thread sanitizer maps memory of its own at any time. */
#ifdef __SANITIZE_THREAD__
#define SANITIZER_MAPS 1000
#else
#define SANITIZER_MAPS 0
#endif

/* The software device has one file, opened with the context, and needs no more later. */
static void files(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};
	struct glake *ctx = flow_open(NULL), *more = NULL;
	int before = flow_count_files(), maps;
	struct rlimit was, now;

	getrlimit(RLIMIT_NOFILE, &was);
	now = was;
	now.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &now);
	is_error(glake_open(&options, &more), -EMFILE, "LIMIT");
	ok(flow_alloc(ctx, 9 * MIB, NULL), "  a context that is open is served");
	setrlimit(RLIMIT_NOFILE, &was);
	ok(!more, "  the output is as it was");
	is_int(flow_count_files(), before, "  no file is left");
	maps = flow_count_maps();
	setrlimit(RLIMIT_NOFILE, &now);
	for (int i = 0; i < 20; i++)
		glake_open(&options, &more);
	setrlimit(RLIMIT_NOFILE, &was);
	ok(flow_count_maps() <= maps + SANITIZER_MAPS + 1, "  and no memory");
	is_int(glake_open(&options, &more), 0, "with files again it opens");
	flow_close(more, 0);
	flow_close(ctx, 1);
}

/* Its file is larger than most limits, and growing one beyond its limit ends a process. */
static void file_size(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};
	struct glake *ctx = NULL;
	struct rlimit was, now;

	getrlimit(RLIMIT_FSIZE, &was);
	now = was;
	now.rlim_cur = MIB;
	setrlimit(RLIMIT_FSIZE, &now);
	is_error(glake_open(&options, &ctx), -ENOMEM, "LIMIT");
	setrlimit(RLIMIT_FSIZE, &was);
	has_str(flow_error().text, "RLIMIT_FSIZE", "  says which limit");
	is_int(glake_open(&options, &ctx), 0, "without it, it opens");
	flow_close(ctx, 0);
}

/* A process that may have this little data has no context, and is told why. */
static int little_data(size_t bytes)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};
	struct glake *ctx = NULL;
	struct rlimit now;

	getrlimit(RLIMIT_DATA, &now);
	now.rlim_cur = bytes;
	setrlimit(RLIMIT_DATA, &now);
	if (glake_open(&options, &ctx) != -ENOMEM || ctx)
		return 1;
	return flow_error().err != -ENOMEM ||
		flow_error().error_class != GLAKE_ERROR_NOMEM_HOST ||
		!strstr(flow_error().text, "no host memory");
}

/* A sanitizer wants more than that itself. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DATA_MOST ((size_t)0)
#else
#define DATA_MOST (64 * MIB)
#endif

/* In children that have no record yet; how many go wrong. */
static int limits_on_data(void)
{
	int wrong = 0;

	for (size_t bytes = 4 * MIB; bytes <= DATA_MOST; bytes *= 2) {
		pid_t pid = flow_fork(60);

		if (!pid)
			_exit(little_data(bytes));
		wrong += flow_wait(pid) != 0;
	}
	return wrong;
}

int main(void)
{
	int wrong = limits_on_data();

	tap_plan_later();
	is_int(wrong, 0, "limits on data are told");
	extents();
	pages();
	addresses();
	streams();
	files();
	file_size();
	return tap_done();
}
