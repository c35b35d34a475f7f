/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The public face of the walk of addresses: see glake/map.h, and the method map of the socket. That
 * tells the addresses of one GPU in answers that end after a millisecond and say where to go on, so
 * that whoever else asks has its turn meanwhile. A hundred thousand blocks are many answers, so runs
 * are told in one text, which costs a reader a pass over it and no object a number; base/runs.h has its
 * form.
 */
#include "api/context.h"
#include "api/served.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/runs.h"
#include "base/slab.h"
#include "wire/wire.h"

#include <errno.h>
#include <string.h>

#include <glake/map.h>
#include <glake/stats.h>

int glake_map(struct glake *ctx, int device, uint64_t from, glake_run_fn fn, void *arg)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err;

	if (!fn)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "no function to take the runs");
	err = glk_context_device(ctx, device, &context, &cache);
	return err ? err : glk_cache_walk(cache, from, UINT64_MAX, fn, arg);
}

const char *glake_run_state_name(int state)
{
	static const char *const names[GLAKE_RUN_STATES] = {"live", "away", "quick",
		"idle", "limbo", "rest", "alias", "leaving", "hole"};

	return state >= 0 && state < GLAKE_RUN_STATES ? names[state] : NULL;
}

/* All but the text, which has the name of the question in it. */
#define REST	 4096
#define TEXT_MAX (GLK_WIRE_ANSWER_MAX - REST)

#define ROW_MAX (GLK_RUNS_FIELDS * 17)

/* An answer ends after so long, but not before it has so much. */
#define PIECE_NS INT64_C(1000000)
#define PIECE	 ((size_t)16 << 10)

struct text {
	char *at;
	size_t used;
	uint64_t end; /* address behind the last run */
	int64_t begun_ns;
	bool full;
};

static void put_number(struct text *text, uint64_t number)
{
	char digits[16];
	int count = 0;

	do {
		digits[count++] = "0123456789abcdef"[number & 15];
		number >>= 4;
	} while (number);
	while (count)
		text->at[text->used++] = digits[--count];
}

static int put_run(const struct glake_run *run, void *arg)
{
	struct text *text = arg;
	const uint64_t fields[GLK_RUNS_FIELDS] = {
		[GLK_RUNS_GAP] = run->address - text->end,
		[GLK_RUNS_SIZE] = run->size,
		[GLK_RUNS_STATE] = (uint64_t)run->state,
		[GLK_RUNS_STREAM] = (uintptr_t)run->stream,
		[GLK_RUNS_ASKED] = run->asked,
		[GLK_RUNS_GPU] = run->gpu_bytes,
		[GLK_RUNS_LARGE] = run->large_bytes,
		[GLK_RUNS_FLAGS] = run->flags,
		[GLK_RUNS_ARENA] = (uint64_t)run->arena,
		[GLK_RUNS_HOST] = run->host_bytes,
		[GLK_RUNS_PLACED] = run->placed,
		[GLK_RUNS_POOL_HIGH] = run->pool.high,
		[GLK_RUNS_POOL_LOW] = run->pool.low};
	size_t count = GLK_RUNS_FIELDS;

	text->full = TEXT_MAX - text->used < ROW_MAX ||
		(text->used >= PIECE && glk_clock_ns() - text->begun_ns > PIECE_NS);
	if (text->full)
		return 1;
	while (!fields[count - 1])
		count--;
	for (size_t i = 0; i < count; i++) {
		put_number(text, fields[i]);
		text->at[text->used++] = i + 1 < count ? GLK_RUNS_BLANK : GLK_RUNS_END;
	}
	text->end = run->address + run->size;
	return 0;
}

/* What changes with each block that is given, freed or moved. */
static uint64_t moves_of(const struct glake_stats *s)
{
	return s->allocs + s->frees + s->spills + s->fetches + s->returned;
}

static void add_answer(struct glk_rpc_call *call, struct glake *handle, int gpu,
	uint64_t serial, const struct glake_stats *stats, const struct text *text)
{
	struct glk_json *json = glk_rpc_result(call);

	glk_json_object(json);
	glk_json_add_uint(json, "context", glk_context_number(handle));
	glk_json_add_int(json, "gpu", gpu);
	glk_json_add_uint(json, "serial", serial);
	glk_json_add_uint(json, "moves", moves_of(stats));
	glk_json_add_uint(json, "reserved_bytes", stats->reserved);
	glk_json_key(json, "next");
	if (text->full)
		glk_json_uint(json, text->end);
	else
		glk_json_null(json);
	glk_json_key(json, "runs");
	glk_json_bytes(json, text->at, text->used);
	glk_json_end(json);
}

static int write_text(
	struct glk_rpc_call *call, struct glake *handle, int gpu, uint64_t from)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct text text = {.end = from, .begun_ns = glk_clock_ns()};
	struct glk_context *context;
	int err = glk_context_get(handle, &context);

	if (!err)
		err = glake_stats_get(handle, gpu, &stats);
	if (err)
		return err;
	text.at = glk_region_new(TEXT_MAX);
	if (!text.at)
		return -ENOMEM;
	err = glake_map(handle, gpu, from, put_run, &text);
	if (!err || text.full) {
		add_answer(call, handle, gpu, context->serial, &stats, &text);
		err = 0;
	}
	glk_region_free(text.at, TEXT_MAX);
	return err;
}

void glk_method_map(struct glk_rpc_call *call)
{
	uint64_t context = 0, gpu = 0, from = 0;
	struct glake *handle;
	int err;

	glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &context);
	glk_rpc_number(call, "gpu", INT32_MAX, &gpu);
	glk_rpc_number(call, "from", INT64_MAX, &from);
	if (glk_rpc_failed(call))
		return;
	handle = glk_served_find(context);
	err = handle ? write_text(call, handle, (int)gpu, from) : -EINVAL;
	if (err == -EINVAL)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "there is no such context or GPU");
	else if (err)
		glk_rpc_fail(call, GLK_RPC_REFUSED, "%s", strerror(-err));
}
