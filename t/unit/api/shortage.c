/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A function of the program that makes room: when it is asked, for what, and what it may do. */
#include "tap.h"
#include "unit/api/sound.h"

#include <glake/glake.h>

#include <errno.h>
#include <pthread.h>

#define MIB ((size_t)1 << 20)

static struct glake *ctx;
static void *kept[8];

/* What the function is to do, and what it was asked. */
static struct {
	int frees; /* blocks, of those that are kept */
	int (*more)(void);
	int calls, answer, device;
	size_t want;
	struct CUstream_st *stream;
	int64_t deadline;
	void *user;
} asked;

static size_t make_room(void *user, int device, size_t want, struct CUstream_st *stream,
	int64_t deadline_ns)
{
	size_t freed = 0;

	asked.calls++;
	asked.user = user;
	asked.device = device;
	asked.want = want;
	asked.stream = stream;
	asked.deadline = deadline_ns;
	if (asked.more)
		asked.answer = asked.more();
	for (int i = 0; i < 8 && freed < (size_t)asked.frees; i++) {
		if (!kept[i] || glake_free(ctx, kept[i], NULL))
			continue;
		kept[i] = NULL;
		freed++;
	}
	return freed * 8 * MIB;
}

static int ask(size_t size, void **ret_ptr)
{
	asked.calls = 0;
	return glake_alloc(ctx, 0, size, NULL, 0, ret_ptr);
}

/* A GPU of 64 MiB that is full. */
static void begin(const char *const *more)
{
	const char *settings[8] = {"soft.memory=64MiB", "pool.large_page=2MiB"};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	for (int i = 0; more && more[i]; i++)
		settings[2 + i] = more[i];
	memset(&asked, 0, sizeof(asked));
	if (glake_open(&options, &ctx))
		tap_bail("no context");
	for (int i = 0; i < 8; i++) {
		if (glake_alloc(ctx, 0, 8 * MIB, NULL, 0, &kept[i]))
			tap_bail("no block");
	}
	is_int(glake_shortage_set(ctx, make_room, &asked), 0,
		"a function that makes room");
}

static void end(void)
{
	size_t live;

	for (int i = 0; i < 8; i++)
		glake_free(ctx, kept[i], NULL);
	is_int(sound_close(ctx, &live) | (int)live, 0, "closed, with nothing live");
}

static int class(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error.error_class;
}

static void makes_room(void)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	void *p = NULL;

	begin(NULL);
	asked.frees = 2;
	is_int(ask(16 * MIB, &p), 0, "a request without room is served");
	is_int(asked.calls, 1, "  it was asked once");
	ok(asked.user == &asked && asked.device == 0 && !asked.stream && !asked.deadline,
		"  with what belongs to it");
	is_int((int64_t)asked.want, 16 << 20, "  for what was missing");
	is_int(glake_free(ctx, p, NULL), 0, "  freed");
	is_int(ask(16 * MIB, &p) | asked.calls, 0, "with room it is not asked");
	asked.frees = 0;
	is_int(ask(16 * MIB, &kept[0]), -ENOMEM, "one that frees nothing");
	is_int(asked.calls, 1, "  is asked once too");
	is_int(class(), GLAKE_ERROR_NOMEM_DEVICE, "  and the refusal is that of the GPU");
	glake_stats_get(ctx, 0, &stats);
	is_int((int64_t)stats.oom, 1, "  which counts once");
	is_int(ask(128 * MIB, &kept[0]) | asked.calls, -ENOMEM,
		"for more than the GPU has it is not asked");
	is_int(glake_shortage_set(ctx, NULL, NULL), 0, "none any more");
	is_int(ask(16 * MIB, &kept[0]) | asked.calls, -ENOMEM, "is not asked");
	glake_free(ctx, p, NULL);
	end();
}

static int allocates(void)
{
	void *p = NULL;

	return glake_alloc(ctx, 0, 8 * MIB, NULL, 0, &p);
}

static int replaces(void)
{
	return glake_shortage_set(ctx, NULL, NULL);
}

static int closes(void)
{
	return glake_close(ctx, NULL);
}

static int suspends(void)
{
	return glake_suspend(ctx, 0, NULL);
}

static int trims(void)
{
	return glake_free(ctx, kept[7], NULL) | glake_free(ctx, kept[6], NULL) |
		glake_trim(ctx, 0, 0, NULL);
}

/* What it may do meanwhile. */
static void does_more(void)
{
	void *p = NULL;

	begin(NULL);
	asked.more = allocates;
	is_int(ask(8 * MIB, &p), -ENOMEM, "one that asks for memory");
	is_int(asked.answer, -ENOMEM, "  has none");
	is_int(asked.calls, 1, "  and is not asked for that");
	asked.more = replaces;
	is_int(ask(8 * MIB, &p), -ENOMEM, "one that takes itself away");
	is_int(asked.answer, -EBUSY, "  may not");
	asked.more = closes;
	is_int(ask(8 * MIB, &p), -ENOMEM, "one that closes the context");
	is_int(asked.answer, -EBUSY, "  may not either");
	asked.more = trims;
	is_int(ask(16 * MIB, &p), 0, "one that trims");
	is_int(asked.answer, 0, "  gives it back to the driver");
	kept[6] = kept[7] = NULL;
	asked.more = suspends;
	is_int(ask(8 * MIB, &kept[7]), -EAGAIN, "one that suspends the GPU");
	is_int(glake_resume(ctx, 0, NULL), 0, "  which is what the request is told");
	glake_free(ctx, p, NULL);
	end();
}

/* Cold blocks, and memory of the host, are for what it does not free. */
static void comes_before(void)
{
	struct glake_block block = {.sz = sizeof(block)};
	void *p = NULL;

	begin((const char *const[]){"tier.place=host", "tier.host=256MiB", NULL});
	is_int(glake_advise(ctx, kept[0], GLAKE_ADVICE_COLD), 0, "a block is cold");
	asked.more = trims;
	is_int(ask(16 * MIB, &p), 0, "a request is served");
	kept[6] = kept[7] = NULL;
	is_int(glake_query(ctx, kept[0], &block) | (int)block.away, 0,
		"  the cold block stays");
	is_int(glake_query(ctx, p, &block) | (int)block.placed, 0,
		"  and it lies on the GPU");
	asked.more = NULL;
	is_int(ask(16 * MIB, &kept[7]), 0, "with nothing freed");
	is_int(asked.calls, 1, "  and asked");
	is_int(glake_query(ctx, kept[0], &block), 0, "  others make room");
	ok(block.away || !glake_query(ctx, kept[7], &block), "  as if there were none");
	glake_free(ctx, p, NULL);
	end();
}

/* Within a capture there is nothing to be freed for it. */
static void not_in_captures(void)
{
	struct CUstream_st *stream;
	uint32_t graph = 0;
	void *p = NULL;

	begin(NULL);
	glake_stream_new(ctx, 0, &stream);
	asked.frees = 2;
	is_int(glake_soft_capture_begin(ctx, 0, stream), 0, "a stream captures");
	asked.calls = 0;
	is_int(glake_alloc(ctx, 0, 16 * MIB, stream, 0, &p), -ENOMEM, "a request of it");
	is_int(asked.calls, 0, "  asks nobody");
	is_int(glake_soft_capture_end(ctx, 0, stream, &graph), 0, "the capture lives");
	glake_soft_graph_free(ctx, graph);
	glake_stream_free(ctx, 0, stream);
	end();
}

static void *take_away(void *arg)
{
	*(int *)arg = glake_shortage_set(ctx, NULL, NULL);
	return NULL;
}

/* Who takes it away waits until it has returned. */
static void waits_for_it(void)
{
	pthread_t thread;
	void *p = NULL;
	int err = -1;

	begin(NULL);
	asked.frees = 1;
	if (pthread_create(&thread, NULL, take_away, &err))
		tap_bail("no thread");
	ask(8 * MIB, &p);
	pthread_join(thread, NULL);
	is_int(err, 0, "taken away by another thread");
	glake_free(ctx, p, NULL);
	p = NULL;
	is_int(ask(64 * MIB, &p) == -ENOMEM ? asked.calls : -1, 0,
		"and not asked any more");
	end();
}

int main(void)
{
	tap_plan_later();
	makes_room();
	does_more();
	comes_before();
	not_in_captures();
	waits_for_it();
	return tap_done();
}
