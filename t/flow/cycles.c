/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program that is suspended and resumed a hundred times, in all ways that there are, and replays a
 * graph between: what it holds is hashed before and after, and the GPU is another's meanwhile. Then what
 * a program may do wrong about it.
 */
#include "context.h"

#include <signal.h>

#define CYCLES 100
#define BLOCKS 14

enum way { AWAY, IN_PLACE, LAZY_FETCH, LAZY_QUIET, WAYS };

static const char *const way_names[WAYS] = {"away", "in place",
	"in place, ended lazily, and fetched",
	"in place, ended lazily, to a quiet point"};

static struct glake *ctx;
static struct CUstream_st *stream;

static const char *const settings[] = {"soft.host_memory=256MiB", "tier.host=200MiB",
	"soft.memory=64MiB", "pool.large_page=8MiB", NULL};

struct program {
	uint32_t *block[BLOCKS];
	size_t size[BLOCKS];
	uint32_t *from, *to, *filled; /* of the graph */
	uint32_t graph;
};

#define WORDS ((size_t)300 << 10)

static uint64_t hash(const void *ptr, size_t size)
{
	const unsigned char *at = ptr;
	uint64_t sum = size, word;

	for (size_t i = 0; i + 8 <= size; i += 8) {
		memcpy(&word, at + i, 8);
		sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		sum ^= sum >> 29;
	}
	return sum;
}

static void make(struct program *p)
{
	size_t bytes = WORDS * sizeof(uint32_t);

	for (size_t i = 0; i < BLOCKS; i++) {
		p->size[i] = i % 3 ? (i * 90 + 70) << 10 : 900 * i + 64;
		p->block[i] = flow_alloc(ctx, p->size[i], stream);
		if (!p->block[i])
			tap_bail("no block");
	}
	p->from = flow_alloc(ctx, bytes, stream);
	p->to = flow_alloc(ctx, bytes, stream);
	p->filled = flow_alloc(ctx, bytes, stream);
	is_int(glake_soft_capture_begin(ctx, 0, stream), 0, "a capture begins");
	is_int(glake_soft_copy(ctx, stream, p->to, p->from, bytes), 0, "a copy in it");
	is_int(glake_soft_fill(ctx, stream, p->filled, 0x5eed, WORDS), 0, "a fill");
	is_int(glake_soft_kernel(ctx, 0, stream, p->block[7], p->size[7], 1), 0,
		"a kernel");
	is_int(glake_soft_capture_end(ctx, 0, stream, &p->graph), 0, "and its end");
}

static void write_all(struct program *p, uint32_t serial)
{
	for (int i = 0; i < BLOCKS; i++)
		for (size_t at = 0; at + 1 < p->size[i] / 4; at += 61)
			p->block[i][at] = serial * 131 + (uint32_t)(at + (size_t)i * 7);
	for (size_t at = 0; at < WORDS; at += 5)
		p->from[at] = serial ^ (uint32_t)at;
	memset(p->filled, 0, WORDS * sizeof(uint32_t));
}

static uint64_t hash_all(const struct program *p)
{
	uint64_t sum = 0;

	for (int i = 0; i < BLOCKS; i++)
		sum = sum * 31 + hash(p->block[i], p->size[i]);
	return sum * 31 + hash(p->from, WORDS * sizeof(uint32_t));
}

/* The graph reads and writes what it was captured with, wherever that lies. */
static bool replays(struct program *p)
{
	return !glake_soft_graph_launch(ctx, 0, p->graph, stream) &&
		!glake_soft_stream_sync(ctx, 0, stream) &&
		hash(p->to, WORDS * 4) == hash(p->from, WORDS * 4) &&
		p->filled[0] == 0x5eed && p->filled[WORDS - 1] == 0x5eed;
}

/* The memory that was given back is there for somebody else. */
static bool is_free(size_t before)
{
	struct glake_device info = {.sz = sizeof(info)};

	return !glake_device_get(ctx, 0, &info) && info.free == before;
}

static bool goes(enum way way)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	int err = way == AWAY ? glake_suspend(ctx, 0, &did)
			      : glake_suspend_in_place(ctx, 0, &did);

	return !err && did.released && (way == AWAY || !did.stayed);
}

static bool comes(struct program *p, enum way way)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_returned came = {.sz = sizeof(came)};
	bool right;

	if (way == AWAY || way == IN_PLACE)
		return !glake_resume(ctx, 0, &did) && !did.stayed && did.moved;
	right = !glake_resume_lazy(ctx, 0, &did) && did.stayed && !did.moved;
	/* over the link */
	right = right && replays(p);
	for (int i = 1; way == LAZY_FETCH && i < BLOCKS; i += 3) {
		int err = glake_fetch(ctx, p->block[i], stream);

		right = right && (!err || err == -EBUSY);
	}
	return right && !glake_quiet(ctx, 0, &came) && !came.left;
}

static bool cycle(struct program *p, int i, size_t before)
{
	enum way way = (enum way)(i % WAYS);
	bool right = true;
	uint64_t sum;

	write_all(p, (uint32_t)i);
	sum = hash_all(p);
	right = right && goes(way);
	right = right && (way == AWAY || is_free(before));
	right = right && comes(p, way);
	right = right && hash_all(p) == sum && replays(p);
	if (!right)
		tap_note("cycle %d, %s: %s", i, way_names[way], flow_error().text);
	return right;
}

static void a_hundred_times(void)
{
	struct glake_device info = {.sz = sizeof(info)};
	struct program p = {0};
	int torn[WAYS] = {0};
	size_t released;

	ctx = flow_open(settings);
	glake_stream_new(ctx, 0, &stream);
	is_int(glake_device_get(ctx, 0, &info), 0, "a GPU");
	make(&p);
	for (int i = 0; i < CYCLES; i++)
		torn[i % WAYS] += !cycle(&p, i, info.free);
	for (int w = 0; w < WAYS; w++)
		is_int(torn[w], 0, way_names[w]);
	is_int((int64_t)flow_stats(ctx, 0).placed, 0, "nothing is left on the host");
	is_int(glake_soft_graph_free(ctx, p.graph), 0, "the graph ends");
	for (int i = 0; i < BLOCKS; i++)
		glake_free(ctx, p.block[i], stream);
	glake_free(ctx, p.from, stream);
	glake_free(ctx, p.to, stream);
	glake_free(ctx, p.filled, stream);
	is_int(glake_trim(ctx, 0, 0, &released), 0, "a trim");
	is_int((int64_t)flow_stats(ctx, 0).host_held, 0, "has the host's memory back");
	glake_stream_free(ctx, 0, stream);
	flow_close(ctx, 0);
}

static void done_wrong(void)
{
	struct glake_suspended did = {.sz = sizeof(did)}, small = {.sz = 3};
	void *one, *two, *more = NULL;
	pid_t child;

	ctx = flow_open(settings);
	glake_stream_new(ctx, 0, &stream);
	is_error(glake_resume_lazy(ctx, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_suspend_in_place(ctx, 9, NULL), -EINVAL, "INVAL");
	is_int(glake_suspend_in_place(ctx, 0, &small) < 0, 1, "a record of no size");
	one = flow_alloc(ctx, 5 * MIB, stream);
	two = flow_alloc(ctx, 3000, stream);
	memset(one, 5, 5 * MIB);
	is_int(glake_suspend_in_place(ctx, 0, &did), 0, "suspended");
	is_int(glake_suspend_in_place(ctx, 0, &did), 0, "twice");
	is_int((int64_t)did.moved, 0, "nothing is left to do");
	is_int(glake_suspend(ctx, 0, &did), 0, "nor in the other way");
	is_error(glake_alloc(ctx, 0, 100, stream, 0, &more), -EAGAIN, "AGAIN");
	is_error(glake_fetch(ctx, one, stream), -EAGAIN, "AGAIN");
	is_error(glake_spill(ctx, one, stream), -EALREADY, "BUSY");
	is_error(glake_quiet(ctx, 0, NULL), -EAGAIN, "AGAIN");
	is_int(glake_free(ctx, two, stream), 0, "a block is freed meanwhile");
	is_error(glake_free(ctx, two, stream), -EINVAL, "DOUBLE_FREE");
	child = flow_fork(20);
	if (!child)
		_exit(glake_resume_lazy(ctx, 0, NULL) == -ENODEV &&
					glake_suspend_in_place(ctx, 0, NULL) == -ENODEV
				? 0
				: 1);
	is_int(flow_wait(child), 0, "a child has no GPU");
	is_int(glake_resume_lazy(ctx, 0, &did), 0, "resumed lazily");
	is_error(glake_resume_lazy(ctx, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_resume(ctx, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_export(ctx, one, NULL, 0, NULL), -EINVAL, "INVAL");
	is_int(((char *)one)[4 * MIB], 5, "what was written is there");
	is_int(glake_free(ctx, one, stream), 0, "a block is freed where it is");
	is_error(glake_free(ctx, one, stream), -EINVAL, "DOUBLE_FREE");
	is_error(glake_fetch(ctx, one, stream), -EINVAL, "DOUBLE_FREE");
	one = flow_alloc(ctx, 5 * MIB, stream);
	is_int((int64_t)flow_stats(ctx, 0).placed, 0, "a new one is on the GPU");
	glake_stream_free(ctx, 0, stream);
	flow_close(ctx, 1);
}

/* Its end while it is suspended, also by force, is the end of its memory. */
static void ends_suspended(void)
{
	pid_t child = flow_fork(20);

	if (!child) {
		ctx = flow_open(settings);
		flow_alloc(ctx, 9 * MIB, NULL);
		if (!glake_suspend_in_place(ctx, 0, NULL))
			kill(getpid(), SIGKILL);
		_exit(1);
	}
	is_int(flow_wait(child), 1000 + SIGKILL, "one is killed while it is suspended");
	for (int lazily = 0; lazily < 2; lazily++) {
		ctx = flow_open(settings);
		flow_alloc(ctx, 9 * MIB, NULL);
		flow_alloc(ctx, 900, NULL);
		is_int(glake_suspend_in_place(ctx, 0, NULL), 0, "suspended");
		if (lazily)
			is_int(glake_resume_lazy(ctx, 0, NULL), 0, "and resumed lazily");
		flow_close(ctx, 2);
	}
}

int main(void)
{
	tap_plan_later();
	a_hundred_times();
	done_wrong();
	ends_suspended();
	return tap_done();
}
