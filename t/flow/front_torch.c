/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The functions of PyTorch's plug-in, called as PyTorch calls them, rightly and wrongly. */
#include "front_torch.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>

struct record {
	uint64_t address, size, stream;
	int64_t time_us;
	int32_t device, action;
	uint64_t stack;
};

static void *(*alloc)(size_t, int, struct CUstream_st *);
static void (*free_)(void *, size_t, int, struct CUstream_st *);
static void (*init)(int);
static void (*reset)(void);
static void (*memory_fraction)(double, int);
static void *(*base_alloc)(void *, size_t *);
static int (*record_stream)(void *, struct CUstream_st *);
static void *(*try_alloc)(size_t, int, struct CUstream_st *);
static void (*give_back)(void *);
static void *(*segment_alloc)(size_t, int, struct CUstream_st *);
static void (*segment_free)(void *, size_t, int, struct CUstream_st *);
static struct glake *(*context)(void);
static const char *(*why)(void);
static int (*opened)(void);
static void (*raise_with)(void (*)(int, const char *));
static int (*raises)(void);
static int (*history)(size_t);
static size_t (*history_get)(int, struct record *, size_t);
static int (*stacks)(int);

static void find_all(void)
{
	find(alloc);
	*(void **)&free_ = dlsym(plug, "glake_torch_free");
	find(init);
	find(reset);
	find(memory_fraction);
	find(base_alloc);
	find(record_stream);
	find(try_alloc);
	find(give_back);
	find(segment_alloc);
	find(segment_free);
	find(context);
	find(why);
	find(opened);
	find(raise_with);
	find(raises);
	find(history);
	find(history_get);
	find(stacks);
}

static struct {
	int calls, out_of_memory;
	char text[1024];
} raised;

static void note_raise(int out_of_memory, const char *text)
{
	raised.calls++;
	raised.out_of_memory = out_of_memory;
	snprintf(raised.text, sizeof(raised.text), "%s", text);
}

static uint64_t live(void)
{
	return flow_stats(context(), 0).live;
}

static void opens(void)
{
	init(0);
	free_(NULL, 0, 0, NULL);
	reset();
	is_int(opened(), 0, "an allocator that is made and not used opens nothing");
	raise_with(note_raise);
	is_int(raises(), 2, "a function is there that throws");
	init(1);
	is_int(opened(), 1, "opened with the first GPU");
	is_int(raised.calls, 0, "all is well");
	is_str(why(), "", "there is nothing to say");
	init(99);
	is_int(raised.calls, 1, "more GPUs than there are");
	is_str(raised.text, "glake sees 2 GPUs and PyTorch 99", "and what is wrong");
	is_int(raised.out_of_memory, 0, "is no lack of memory");
}

static void gives_and_takes(void)
{
	struct CUstream_st *stream = NULL, *gone = (struct CUstream_st *)0x1234560;
	char *p, *q;

	is_int(glake_stream_new(context(), 0, &stream), 0, "a stream");
	ok(!alloc(0, 0, stream), "an empty tensor has no memory");
	p = alloc(5 * MIB, 0, stream);
	ok(p, "a tensor has");
	memset(p, 1, 5 * MIB);
	free_(p, 5 * MIB, 0, stream);
	is_int((int64_t)live(), 0, "freed");
	ok(alloc(5 * MIB, 0, stream) == p, "and given again");
	free_(p, 77, 3, NULL);
	is_int((int64_t)live(), 0, "freed with the size, GPU and stream of another");
	p = alloc(3 * MIB, 0, stream);
	free_(p, 3 * MIB, 0, gone);
	is_int((int64_t)live(), 0, "freed with a stream that is none");
	free_(p, 3 * MIB, 0, stream);
	free_(&stream, 8, 0, stream);
	free_((void *)8, 8, 0, stream);
	is_int((int64_t)live(), 0, "twice, and what is not ours: nothing happens");
	p = alloc(4096, 0, stream);
	free_(p + 512, 4096, 0, stream);
	is_int((int64_t)live(), 4096, "the inside of a block is no block");
	free_(p, 4096, 0, stream);
	p = try_alloc(MIB, 0, stream);
	q = try_alloc(MIB, 0, stream);
	ok(p && q && p != q && !try_alloc(0, 0, stream), "the same for other callers");
	give_back(p);
	give_back(p);
	give_back(NULL);
	give_back(q + 1);
	is_int((int64_t)live(), MIB, "given back in the order of its own stream");
	give_back(q);
	is_int(glake_stream_free(context(), 0, stream), 0, "the stream ends");
	is_int(raised.calls, 1, "nothing of that throws");
}

static void finds_bases(void)
{
	char *p = alloc(3 * MIB, 0, NULL);
	size_t size = 99;

	ok(base_alloc(p + 12345, &size) == p, "the base of an address inside");
	is_int((int64_t)size, 3 * MIB, "and how long it is");
	ok(base_alloc(p, NULL) == p, "nobody has to know how long");
	ok(base_alloc(&size, &size) == &size && !size, "foreign memory is its own base");
	ok(!base_alloc(NULL, &size), "nothing has none");
	free_(p, 3 * MIB, 0, NULL);
}

static void records_streams(void)
{
	struct CUstream_st *a = NULL, *b = NULL;
	uint64_t before;
	char *p, *q;

	glake_stream_new(context(), 0, &a);
	glake_stream_new(context(), 0, &b);
	q = alloc(7 * MIB, 0, b);
	free_(q, 7 * MIB, 0, b);
	p = alloc(6 * MIB, 0, a);
	record_stream(p + 64, b);
	before = flow_all_calls(context());
	free_(p, 6 * MIB, 0, a);
	q = alloc(6 * MIB, 0, a);
	ok(q && (q != p || flow_all_calls(context()) > before),
		"not given again at once after its use on another stream");
	free_(q, 6 * MIB, 0, a);
	record_stream(NULL, b);
	record_stream(&before, b);
	record_stream(p, b);
	ok(true, "what is none of ours, or was freed, is not recorded");
	is_int(glake_stream_free(context(), 0, a), 0, "a stream ends");
	is_int(glake_stream_free(context(), 0, b), 0, "and the other");
}

/* What a failing request leaves on stderr when nothing can be thrown. */
static void says(const char *part, const char *what)
{
	char said[2048] = "";
	int ends[2], saved = dup(STDERR_FILENO);

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) || saved < 0)
		tap_bail("no pipe");
	dup2(ends[1], STDERR_FILENO);
	ok(!alloc(GIB, 0, NULL), "%s", what);
	dup2(saved, STDERR_FILENO);
	ok(read(ends[0], said, sizeof(said) - 1) < (ssize_t)sizeof(said), "listened");
	ok(*part ? strstr(said, part) != NULL : !*said, "%s", *part ? part : "silence");
	tap_note("%s", said);
	close(saved);
	close(ends[0]);
	close(ends[1]);
}

static void runs_out(void)
{
	void *p = alloc(200 * MIB, 0, NULL);

	ok(p && !alloc(100 * MIB, 0, NULL), "there is no more");
	is_int(raised.calls, 2, "PyTorch hears of it");
	is_int(raised.out_of_memory, 1, "as a lack of memory");
	tap_note("%s", raised.text);
	ok(!strncmp(raised.text, "CUDA out of memory. Tried to allocate 100.00 MiB.", 48),
		"in its own words");
	ok(strstr(raised.text, "(NOMEM_DEVICE)"), "with the reason");
	ok(strstr(raised.text, "What would have helped: "), "and what would have helped");
	is_int(flow_error().err, -ENOMEM, "and the record");
	ok(!alloc(MIB, 7, NULL), "a GPU that there is not");
	is_int(raised.out_of_memory, 0, "is another matter");
	ok(!try_alloc(100 * MIB, 0, NULL) && !segment_alloc(100 * MIB, 0, NULL),
		"other callers");
	is_int(raised.calls, 3, "are not thrown at");
	raise_with(NULL);
	is_int(raises(), 0, "with nothing that throws");
	says("CUDA out of memory", "there is no more");
	says("", "it is said once");
	raise_with(note_raise);
	free_(p, 200 * MIB, 0, NULL);
}

/* A request that is too large names its size as PyTorch's own message does. */
static void names_size(size_t size, const char *words)
{
	static const char start[] = "CUDA out of memory. Tried to allocate ";

	ok(!alloc(size, 0, NULL) && !strncmp(raised.text, start, strlen(start)) &&
			!strncmp(raised.text + strlen(start), words, strlen(words)),
		"%s", words);
	tap_note("%s", raised.text);
}

static void keeps_fractions(void)
{
	struct glake_device gpu = {.sz = sizeof(gpu)};
	size_t budget = 0;

	glake_device_get(context(), 0, &gpu);
	memory_fraction(0.25, 0);
	glake_budget_get(context(), 0, &budget);
	is_int((int64_t)budget, (int64_t)(gpu.memory / 4), "a quarter of the GPU");
	memory_fraction(NAN, 0);
	memory_fraction(-1, 0);
	memory_fraction(0.5, 9);
	glake_budget_get(context(), 0, &budget);
	is_int((int64_t)budget, (int64_t)(gpu.memory / 4),
		"no number, no GPU: as before");
	memory_fraction(0, 0);
	ok(!alloc(512, 0, NULL), "nothing at all");
	names_size(512, "512 bytes.");
	names_size(1536, "1.50 KiB.");
	names_size(GIB, "1024.00 MiB.");
	names_size(3 * GIB, "3.00 GiB.");
	names_size((size_t)800000000 << 30, "800000000.00 GiB.");
	names_size((size_t)1 << 60, "more than 1EB memory.");
	memory_fraction(1, 0);
	glake_budget_get(context(), 0, &budget);
	ok(budget == SIZE_MAX, "the whole of it");
}

static void empties_caches(void)
{
	void *p = alloc(64 * MIB, 0, NULL), *q = alloc(8 * MIB, 0, NULL);

	free_(p, 64 * MIB, 0, NULL);
	ok(flow_stats(context(), 0).reserved >= 72 * MIB, "freed memory is kept");
	reset();
	ok(flow_stats(context(), 0).reserved <= 64 * MIB,
		"until the cache is emptied: a page of 64 MiB may be behind what is left");
	free_(q, 8 * MIB, 0, NULL);
}

static void gives_segments(void)
{
	char *p = segment_alloc(20 * MIB, 0, (struct CUstream_st *)0x40),
	     *q = segment_alloc(2 * MIB, 0, NULL);

	ok(p && q, "segments, whatever the stream");
	memset(p, 1, 20 * MIB);
	segment_free(p, 20 * MIB, 0, NULL);
	segment_free(p, 20 * MIB, 0, NULL);
	segment_free(q + 512, 2 * MIB, 0, NULL);
	segment_free(NULL, 0, 0, NULL);
	is_int((int64_t)live(), 2 * MIB, "freed once");
	segment_free(q, 0, 5, (struct CUstream_st *)0x40);
	is_int((int64_t)live(), 0, "all of them");
	ok(!segment_alloc(0, 0, NULL) && !segment_alloc(MIB, -1, NULL) &&
			!segment_alloc(MIB, 64, NULL),
		"no size, no GPU");
}

static void remembers(void)
{
	static struct record got[64];
	void *p, *q;

	p = alloc(1000, 0, NULL);
	is_int(stacks(8), -ENOENT, "no stacks where there is no Python");
	is_int(stacks(0), 0, "and no end of them to fail");
	is_int(history(4), 0, "a history of four events");
	is_int((int64_t)history_get(0, got, 64), 0, "is empty");
	free_(p, 1000, 0, NULL);
	is_int((int64_t)history_get(0, got, 64), 0,
		"the end of what was before is not told");
	p = alloc(1000, 0, NULL);
	q = alloc(2000, 0, NULL);
	free_(p, 1000, 0, NULL);
	is_int((int64_t)history_get(0, got, 64), 3, "three events");
	ok(got[0].action == 0 && got[0].address == (uintptr_t)p && got[0].size == 1000 &&
			got[1].size == 2000 && got[2].action == 1 &&
			got[2].address == (uintptr_t)p && got[2].size == 1000 &&
			got[2].time_us >= got[0].time_us && got[0].time_us > 0,
		"in their order");
	is_int((int64_t)history_get(1, got, 64), 1, "one block");
	ok(got[0].address == (uintptr_t)q && got[0].size == 2000, "the one that is live");
	ok(!alloc((size_t)1 << 50, 0, NULL), "no room");
	free_(q, 2000, 0, NULL);
	is_int((int64_t)history_get(0, got, 2), 4, "the last four");
	ok(got[0].size == 2000 && got[1].action == 1, "as many as there is room for");
	is_int((int64_t)history_get(0, got, 64), 4, "all");
	ok(got[2].action == 2 && got[2].size == (size_t)1 << 50, "out of memory is one");
	is_int(history(0), 0, "no more");
	is_int((int64_t)history_get(0, NULL, 0), 0, "forgotten");
	is_int(history(SIZE_MAX), 0, "no more than can be kept");
	is_int(history(0), 0, "off");
}

/* The table of blocks against the figures, with many of them coming and going. */
static void remembers_many(void)
{
	enum { MANY = 3000 };
	static struct record got[MANY + 1];
	static void *blocks[MANY];
	uint64_t sum = 0, state = 88172645463325252;
	size_t count;

	history(16);
	for (int i = 0; i < 60000; i++) {
		void **block;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		block = &blocks[state % MANY];
		if (*block) {
			free_(*block, 0, 0, NULL);
			*block = NULL;
		} else {
			*block = alloc(512 + state % 4096, 0, NULL);
		}
	}
	count = history_get(1, got, MANY + 1);
	is_int((int64_t)count, (int64_t)flow_stats(context(), 0).live_blocks, "blocks");
	for (size_t i = 0; i < count; i++)
		sum += got[i].size;
	is_int((int64_t)sum, (int64_t)live(), "and bytes");
	for (int i = 0; i < MANY; i++)
		free_(blocks[i], 0, 0, NULL);
	is_int((int64_t)history_get(1, NULL, 0), 0, "none is left");
	history(0);
}

static uint64_t peers_of(const void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	return glake_query(context(), ptr, &block) ? 99 : block.peers;
}

static void meets_peers(void)
{
	void *p = alloc(MIB, 0, NULL), *q;

	is_int((int64_t)peers_of(p), 0, "with one GPU in use nobody else has its memory");
	q = alloc(MIB, 1, NULL);
	ok(peers_of(p) == 2 && peers_of(q) == 1, "with two each may use the other's");
	free_(p, MIB, 0, NULL);
	free_(q, MIB, 1, NULL);
}

static void *churn(void *arg)
{
	struct CUstream_st *stream = NULL;
	void *blocks[16] = {NULL};
	long failed = 0;

	glake_stream_new(context(), 0, &stream);
	for (int i = 0; i < 20000; i++) {
		void **block = &blocks[(i * 7) % 16];

		free_(*block, 0, 0, stream);
		*block = alloc(1024 * (size_t)(1 + i % 100), 0, stream);
		failed += !*block;
	}
	for (int i = 0; i < 16; i++)
		free_(blocks[i], 0, 0, NULL);
	glake_stream_free(context(), 0, stream);
	return (void *)failed;
}

static void threads(void)
{
	pthread_t thread[4];
	long failed = 0;

	history(1000);
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, churn, NULL);
	for (int i = 0; i < 4; i++) {
		void *result = NULL;

		pthread_join(thread[i], &result);
		failed += (long)result;
	}
	is_int(failed, 0, "four threads");
	is_int((int64_t)live(), 0, "left nothing");
	is_int((int64_t)history_get(1, NULL, 0), 0, "and nothing is thought to be there");
}

static void forks(void)
{
	void *p = alloc(MIB, 0, NULL);
	pid_t pid = flow_fork(20);

	if (!pid) {
		int calls = raised.calls;

		free_(p, MIB, 0, NULL);
		reset();
		_exit(alloc(MIB, 0, NULL) || raised.calls != calls + 1 ||
			!strstr(raised.text, "FORKED"));
	}
	is_int(flow_wait(pid), 0,
		"in a forked child: frees nothing, gives nothing, says so");
	is_int((int64_t)live(), MIB, "the parent has its memory");
	free_(p, MIB, 0, NULL);
}

int main(int argc, char **argv)
{
	tap_plan_later();
	load(argc, argv);
	find_all();
	opens();
	gives_and_takes();
	finds_bases();
	records_streams();
	runs_out();
	keeps_fractions();
	empties_caches();
	gives_segments();
	remembers();
	remembers_many();
	meets_peers();
	threads();
	forks();
	return tap_done();
}
