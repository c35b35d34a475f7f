/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Growing ahead on a recorded job: it completes, what it holds stays within pool.ahead of what
 * it holds without, and once the job repeats itself the driver is called about as often as
 * without.
 *
 * With names of traces as arguments the first pass runs in the job's own time instead, and
 * figures are printed: how many requests called the driver, and how long requests took. AHEAD
 * says how much to keep ready (1GiB), BACKEND which driver (soft, cuda).
 */
#include "context.h"

#include <time.h>

#define JOB	GLK_DATA "/opt13_N.csv.xz"
#define ROWS	200000
#define STREAMS 8
#define PASSES	6
#define CALM	300 /* passes until one is calm */

struct row {
	size_t size; /* 0: free */
	uint32_t block, stream;
	int64_t at; /* ns since the job began */
};

struct pass {
	struct glake_stats before, after;
	uint64_t made, failed;
	int64_t mean, p99, p999, max; /* ns of a request */
};

static struct row rows[ROWS];
static unsigned count;
static void *held[ROWS];
static int64_t took[ROWS];

/* The number of the block that lives at an address of the trace, by linear probing. */
static uint32_t *block_of(uint64_t address, bool clear)
{
	static struct {
		uint64_t address;
		uint32_t block;
	} table[1 << 18];
	uint32_t i = (uint32_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 46);

	if (clear)
		memset(table, 0, sizeof(table));
	while (table[i].address && table[i].address != address)
		i = (i + 1) & ((1 << 18) - 1);
	table[i].address = address;
	return &table[i].block;
}

static bool read_job(const char *path)
{
	char command[512], line[256];
	unsigned blocks = 0;
	FILE *pipe;

	snprintf(command, sizeof(command), "xz -dcf '%s' 2>/dev/null", path);
	pipe = popen(command, "re");
	if (!pipe)
		return false;
	block_of(0, true);
	count = 0;
	while (count < ROWS && fgets(line, sizeof(line), pipe)) {
		struct row *row = &rows[count];
		unsigned long long address, us;
		unsigned stream;
		char action[16];
		size_t size;

		if (sscanf(line, "%*u,%llu,%15[a-z],%llx,%zu,%u", &us, action, &address,
			    &size, &stream) != 5)
			continue;
		count++;
		*row = (struct row){.at = (int64_t)us * 1000,
			.stream = stream % STREAMS,
			.block = *block_of(address, false)};
		if (strcmp(action, "allocate"))
			continue;
		row->size = size;
		row->block = *block_of(address, false) = blocks++;
	}
	return !pclose(pipe) && count > 1000;
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void summarise(struct pass *pass)
{
	int64_t sum = 0;

	for (uint64_t i = 0; i < pass->made; i++)
		sum += took[i];
	qsort(took, pass->made, sizeof(took[0]), by_value);
	pass->mean = sum / (int64_t)pass->made;
	pass->p99 = took[pass->made * 99 / 100];
	pass->p999 = took[pass->made * 999 / 1000];
	pass->max = took[pass->made - 1];
}

/* One pass; what is still held at its end is freed. */
static void replay(
	struct glake *ctx, struct CUstream_st **stream, bool paced, struct pass *pass)
{
	int64_t begin = now();

	*pass = (struct pass){.before = flow_stats(ctx, 0)};
	for (unsigned i = 0; i < count; i++) {
		const struct row *row = &rows[i];
		int64_t start = now();

		while (paced && start - begin < row->at)
			start = now();
		if (!row->size) {
			glake_free(ctx, held[row->block], stream[row->stream]);
			held[row->block] = NULL;
			continue;
		}
		pass->failed += glake_alloc(ctx, 0, row->size, stream[row->stream], 0,
					&held[row->block]) != 0;
		took[pass->made++] = now() - start;
	}
	for (unsigned i = 0; i < count; i++) {
		if (held[i])
			glake_free(ctx, held[i], stream[0]);
		held[i] = NULL;
	}
	pass->after = flow_stats(ctx, 0);
	summarise(pass);
}

static uint64_t called(const struct pass *pass)
{
	return pass->after.called - pass->before.called;
}

/* Whether a pass is like one without the thread. */
static bool is_calm(const struct pass *with, const struct pass *without)
{
	return with->after.reserved == with->before.reserved &&
		called(with) <= called(without) * 2 + 20;
}

/* With those of `like` it goes on until a pass is as calm as theirs. */
static int run(const char *ahead, const char *backend, bool paced, struct pass *passes,
	const struct pass *like)
{
	const char *settings[] = {ahead, NULL};
	struct CUstream_st *stream[STREAMS] = {0};
	struct glake_options options = {.sz = sizeof(options),
		.backend = backend ? GLAKE_BACKEND_CUDA : GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	int calm = 0;
	struct pass pass;
	struct glake *ctx;

	if (glake_open(&options, &ctx))
		tap_bail("no context");
	for (int i = 1; i < STREAMS; i++)
		glake_stream_new(ctx, 0, &stream[i]);
	for (int i = 0; i < PASSES; i++)
		replay(ctx, stream, paced && !i, &passes[i]);
	for (int i = 1; i < PASSES && like; i++)
		calm += is_calm(&passes[i], &like[i]);
	/* when the thread has made what it wants depends on when it comes by */
	for (int i = 0; i < CALM && like && !calm; i++) {
		replay(ctx, stream, false, &pass);
		calm += is_calm(&pass, &like[PASSES - 1]);
	}
	for (int i = 1; i < STREAMS; i++)
		glake_stream_free(ctx, 0, stream[i]);
	is_int(glake_close(ctx, NULL), 0, "closed");
	return calm;
}

/* Requests that called the driver once the job repeats itself. */
static uint64_t called_later(const struct pass *passes)
{
	return passes[PASSES - 1].after.called - passes[1].before.called;
}

static double ratio(const struct pass *pass)
{
	return (double)pass->after.peak_reserved / (double)pass->after.peak_live;
}

static void print(const char *what, const struct pass *passes)
{
	tap_note("%s: reserved over live %.5f, requests that called the driver %" PRIu64
		 ", %" PRIu64 ", %" PRIu64 ", malloc mean %" PRId64 ", p99 %" PRId64
		 ", p999 %" PRId64 ", max %" PRId64 " ns",
		what, ratio(&passes[PASSES - 1]), called(&passes[0]), called(&passes[1]),
		called(&passes[2]), passes[0].mean, passes[0].p99, passes[0].p999,
		passes[0].max);
}

static void measure(const char *path)
{
	const char *size = getenv("AHEAD"), *backend = getenv("BACKEND");
	struct pass passes[PASSES];
	char ahead[64];

	if (!read_job(path))
		tap_bail(path);
	tap_note("%s: %u events", path, count);
	backend = backend && !strcmp(backend, "cuda") ? backend : NULL;
	run("pool.ahead=0", backend, true, passes, NULL);
	print("without", passes);
	snprintf(ahead, sizeof(ahead), "pool.ahead=%s", size ? size : "1GiB");
	run(ahead, backend, true, passes, NULL);
	print(ahead, passes);
}

static void check(void)
{
	struct pass without[PASSES], with[PASSES];
	int calm;

	run("pool.ahead=0", NULL, false, without, NULL);
	calm = run("pool.ahead=1GiB", NULL, false, with, without);
	print("without", without);
	print("1GiB ahead", with);
	for (int i = 0; i < PASSES; i++) {
		is_int((int64_t)with[i].failed, 0, "every request is served");
		is_int((int64_t)with[i].after.live, 0, "and freed");
	}
	/* where blocks lie depends on when the thread comes by: a quarter is for that */
	ok(with[PASSES - 1].after.peak_reserved <=
			without[PASSES - 1].after.peak_reserved + GIB + GIB / 4,
		"about so much more is held at most as was asked for");
	/* new pages draw blocks to them, whose places draw others, once and by chance when */
	ok(called_later(with) <= called_later(without) * 2 + 4 * GIB / (8 * MIB),
		"the job repeats itself: the thread changes little: %" PRIu64
		" requests called the driver, %" PRIu64 " without it",
		called_later(with), called_later(without));
	ok(calm > 0, "and comes to rest: %d passes like those without it", calm);
}

int main(int argc, char **argv)
{
	tap_plan_later();
	for (int i = 1; i < argc; i++)
		measure(argv[i]);
	if (argc > 1)
		return tap_done();
	if (read_job(JOB))
		check();
	else
		tap_skip("growing ahead on a recorded job", "no xz");
	return tap_done();
}
