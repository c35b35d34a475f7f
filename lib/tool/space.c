/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads the address space of a process from its socket, answer after answer. What it tells is
 * trusted in nothing: runs have to follow each other, and there is an end to them, and to the time
 * that they may take.
 */
#include "tool/space.h"

#include "base/clock.h"
#include "base/runs.h"
#include "tool/process.h"
#include "tool/tool.h"
#include "wire/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* For all answers about all GPUs: who tells of millions of runs has as long. */
#define READ_NS INT64_C(60000000000)

/* Of a GPU whose number of context another has taken while it was read. */
#define AGAIN_MAX 3

/* No address lies above: with five levels of pages they end there. */
#define ADDRESS_MAX (UINT64_C(1) << 57)

/* Of a space: what all its GPUs have together. */
struct asking {
	int room;
	pid_t pid;
	int64_t until;
	size_t runs; /* that may come yet */
};

/* A number in base 16, and what stands behind it. */
static uint64_t take_number(const char **at)
{
	uint64_t number = 0;

	for (;; ++*at) {
		char c = **at;

		if (c >= '0' && c <= '9')
			number = number << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			number = number << 4 | (uint64_t)(c - 'a' + 10);
		else
			return number;
	}
}

/* The fields of a row, those at its end that are left out 0. Whether it is one. */
static bool take_row(const char **at, uint64_t fields[GLK_RUNS_FIELDS])
{
	unsigned count = 0;

	memset(fields, 0, GLK_RUNS_FIELDS * sizeof(*fields));
	do {
		if (count == GLK_RUNS_FIELDS)
			return false;
		fields[count++] = take_number(at);
	} while (*(*at)++ == GLK_RUNS_BLANK);
	return (*at)[-1] == GLK_RUNS_END;
}

static bool make_run(
	const uint64_t f[GLK_RUNS_FIELDS], uint64_t end, struct glake_run *ret)
{
	*ret = (struct glake_run){.sz = sizeof(*ret),
		.address = end + f[GLK_RUNS_GAP],
		.size = f[GLK_RUNS_SIZE],
		.state = (int)f[GLK_RUNS_STATE],
		.stream = (struct CUstream_st *)(uintptr_t)f[GLK_RUNS_STREAM],
		.asked = f[GLK_RUNS_ASKED],
		.gpu_bytes = f[GLK_RUNS_GPU],
		.large_bytes = f[GLK_RUNS_LARGE],
		.flags = (uint32_t)f[GLK_RUNS_FLAGS],
		.arena = (int)f[GLK_RUNS_ARENA],
		.host_bytes = f[GLK_RUNS_HOST],
		.placed = f[GLK_RUNS_PLACED],
		.pool = {.high = f[GLK_RUNS_POOL_HIGH], .low = f[GLK_RUNS_POOL_LOW]}};
	return ret->size && f[GLK_RUNS_STATE] < GLAKE_RUN_STATES &&
		ret->asked <= ret->size &&
		!__builtin_add_overflow(end, f[GLK_RUNS_GAP], &ret->address) &&
		ret->address < ADDRESS_MAX && ret->size <= ADDRESS_MAX - ret->address;
}

/* The runs of an answer behind those that there are. 0; -EPROTO; -ENOMEM. */
static int take_runs(
	struct space_gpu *gpu, const char *text, uint64_t end, size_t most, size_t *room)
{
	uint64_t fields[GLK_RUNS_FIELDS];

	while (*text) {
		if (gpu->count == *room) {
			size_t more = *room ? 2 * *room : 4096;
			struct glake_run *runs = realloc(gpu->runs, more * sizeof(*runs));

			if (!runs)
				return -ENOMEM;
			gpu->runs = runs;
			*room = more;
		}
		if (gpu->count == most || !take_row(&text, fields) ||
			!make_run(fields, end, &gpu->runs[gpu->count]))
			return -EPROTO;
		end = gpu->runs[gpu->count].address + fields[GLK_RUNS_SIZE];
		gpu->count++;
	}
	return 0;
}

/* One answer; where to go on, or 0. -EAGAIN: it is of another context than those before. */
static int take_answer(struct space_gpu *gpu, struct json_object *answer, size_t most,
	uint64_t *from, size_t *room)
{
	uint64_t next = process_number(answer, "next"), moves, serial;
	const char *text = process_text(answer, "runs");
	const struct glake_run *last;
	bool first = !*from;
	int err;

	/* it goes on behind the last run, so there is one */
	if (json_object_get_type(answer) != json_type_object ||
		(next && (next <= *from || !*text)))
		return -EPROTO;
	serial = process_number(answer, "serial");
	if (first)
		gpu->serial = serial;
	else if (serial != gpu->serial)
		return -EAGAIN;
	err = take_runs(gpu, text, *from, most, room);
	last = !err && next && gpu->count ? &gpu->runs[gpu->count - 1] : NULL;
	if (last && next < last->address + last->size)
		err = -EPROTO;
	moves = process_number(answer, "moves");
	if (first) {
		gpu->changed = moves;
		gpu->reserved = process_number(answer, "reserved_bytes");
	}
	if (!next)
		gpu->changed = moves > gpu->changed ? moves - gpu->changed : 0;
	*from = next;
	return err;
}

static int read_once(const struct asking *asking, struct space_gpu *gpu)
{
	struct json_object *params, *answer;
	char why[GLK_WIRE_WHY_MAX];
	uint64_t from = 0;
	size_t fit = 0;
	int err;

	do {
		if (glk_clock_ns() > asking->until) {
			err = -ETIMEDOUT;
			break;
		}
		params = json_object_new_object();
		json_object_object_add(
			params, "context", json_object_new_int64(gpu->context));
		json_object_object_add(params, "gpu", json_object_new_int(gpu->gpu));
		json_object_object_add(params, "from", json_object_new_uint64(from));
		err = process_ask(asking->room, asking->pid, "map", params, &answer, why);
		if (err == -ENXIO)
			return err;
		if (err) {
			process_say_failed(asking->pid, err, why);
			return err;
		}
		err = take_answer(gpu, answer, asking->runs, &from, &fit);
		json_object_put(answer);
	} while (!err && from);
	if (err && err != -EAGAIN)
		glk_tool_say("process %d: %s", asking->pid,
			err == -ENOMEM ? "no memory for what it tells"
				: err == -ETIMEDOUT
				? "it has told of its memory for a minute, and "
				  "goes on"
				: "what it answers is no address space");
	return err;
}

/* 0; -ENXIO: its context has gone; -EAGAIN: others take its number too fast; else after a message
 * as well. */
static int read_gpu(const struct asking *asking, struct space_gpu *gpu)
{
	int err = -EAGAIN;

	for (int i = 0; i <= AGAIN_MAX && err == -EAGAIN; i++) {
		free(gpu->runs);
		*gpu = (struct space_gpu){.context = gpu->context, .gpu = gpu->gpu};
		err = read_once(asking, gpu);
	}
	if (err == -ENXIO)
		glk_tool_say(
			"process %d: context %u with GPU %d has gone meanwhile; it is "
			"left out",
			asking->pid, gpu->context, gpu->gpu);
	else if (err == -EAGAIN)
		glk_tool_say(
			"process %d: context %u changes too fast: it was another one "
			"each time that GPU %d was read; it is left out",
			asking->pid, gpu->context, gpu->gpu);
	return err;
}

/* Those that can be read. */
static int read_gpus(int room, struct space *space)
{
	struct asking asking = {.room = room,
		.pid = space->pid,
		.until = glk_clock_ns() + READ_NS,
		.runs = SPACE_RUNS_MAX};
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < space->count && !err; i++) {
		struct space_gpu gpu = space->gpus[i];

		err = read_gpu(&asking, &gpu);
		if (err == -ENXIO || err == -EAGAIN) {
			space->partial |= err == -EAGAIN;
			free(gpu.runs);
			err = 0;
		} else {
			asking.runs -= gpu.count;
			space->gpus[kept++] = gpu;
		}
	}
	space->count = kept;
	return err;
}

/* The GPUs that its figures tell of. */
static int list_gpus(struct space *space, struct json_object *stats, int wanted)
{
	struct json_object *contexts = process_array(stats, "contexts"), *gpus;
	size_t count = contexts ? json_object_array_length(contexts) : 0;

	space->gpus = calloc(SPACE_GPUS_MAX, sizeof(*space->gpus));
	if (!space->gpus)
		return -ENOMEM;
	for (size_t c = 0; c < count; c++) {
		struct json_object *context = json_object_array_get_idx(contexts, c);
		size_t used;

		gpus = process_array(context, "gpus");
		used = gpus ? json_object_array_length(gpus) : 0;
		for (size_t g = 0; g < used && space->count < SPACE_GPUS_MAX; g++) {
			struct json_object *gpu = json_object_array_get_idx(gpus, g);
			int number = (int)(process_number(gpu, "gpu") & INT32_MAX);

			if (wanted >= 0 && number != wanted)
				continue;
			space->gpus[space->count++] = (struct space_gpu){
				.context = (unsigned)process_number(context, "context"),
				.gpu = number};
		}
	}
	return 0;
}

static int read_all(int room, struct space *space, int gpu)
{
	char why[GLK_WIRE_WHY_MAX];
	struct json_object *stats;
	int err = process_ask(room, space->pid, "stats", NULL, &stats, why);

	if (err) {
		process_say_failed(space->pid, err, why);
		return err;
	}
	process_word(stats, "program", space->program, sizeof(space->program));
	process_word(stats, "version", space->version, sizeof(space->version));
	err = list_gpus(space, stats, gpu);
	json_object_put(stats);
	if (!err && gpu >= 0 && !space->count) {
		glk_tool_say("process %d uses no GPU %d", space->pid, gpu);
		err = -ENODEV;
	}
	return err ? err : read_gpus(room, space);
}

int space_read(const char *name, int gpu, struct space *ret_space)
{
	struct space space = {0};
	int room, err;

	space.pid = process_find(name, &room);
	if (!space.pid)
		return GLK_TOOL_FAILED;
	err = read_all(room, &space, gpu);
	close(room);
	if (err) {
		space_free(&space);
		return GLK_TOOL_FAILED;
	}
	*ret_space = space;
	return GLK_TOOL_OK;
}

void space_free(struct space *space)
{
	for (size_t i = 0; i < space->count; i++)
		free(space->gpus[i].runs);
	free(space->gpus);
}

void space_say_changed(const struct space *space)
{
	for (size_t i = 0; i < space->count; i++) {
		if (space->gpus[i].changed)
			glk_tool_say(
				"GPU %d: %" PRIu64
				" requests, frees and moves while it was read, so parts "
				"of it are of different moments",
				space->gpus[i].gpu, space->gpus[i].changed);
	}
}

uint64_t space_live(const struct space_gpu *gpu)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < gpu->count; i++)
		bytes += gpu->runs[i].state <= GLAKE_RUN_AWAY ? gpu->runs[i].asked : 0;
	return bytes;
}
