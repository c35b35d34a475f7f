/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who asked for the blocks of a snapshot, as the process tells it: its blocks with the numbers of their
 * stacks first, then each stack once, when the first of its blocks is written. A stack that is gone
 * meanwhile has no frames, and all together have a minute.
 */
#include "tool/snapshot.h"

#include "base/clock.h"
#include "tool/pickle.h"
#include "tool/process.h"
#include "tool/tool.h"
#include "wire/wire.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_NS	   INT64_C(60000000000)
#define BLOCKS_MAX ((size_t)1 << 23)
#define STACKS_MAX ((size_t)1 << 21)
#define FRAMES_MAX 1024

struct frames_stack {
	uint64_t stack;
	bool is_written;
};

static int by_address(const void *a, const void *b)
{
	const struct frames_block *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

static int by_stack(const void *a, const void *b)
{
	const struct frames_stack *x = a, *y = b;

	return (x->stack > y->stack) - (x->stack < y->stack);
}

/* A number in base 16 with this behind it. */
static bool take_number(const char **at, char end, uint64_t *ret_number)
{
	char *behind;

	if (!isxdigit((unsigned char)**at))
		return false;
	*ret_number = strtoull(*at, &behind, 16);
	if (*behind != end)
		return false;
	*at = behind + 1;
	return true;
}

/* The blocks of an answer behind those that there are. 0; -EPROTO; -ENOMEM. */
static int take_blocks(struct frames *frames, const char *text, size_t *room)
{
	while (*text) {
		struct frames_block block;

		if (frames->count == BLOCKS_MAX ||
			!take_number(&text, ' ', &block.address) ||
			!take_number(&text, ';', &block.stack))
			return -EPROTO;
		if (frames->count == *room) {
			size_t more = *room ? 2 * *room : 4096;
			struct frames_block *blocks =
				realloc(frames->blocks, more * sizeof(*blocks));

			if (!blocks)
				return -ENOMEM;
			frames->blocks = blocks;
			*room = more;
		}
		frames->blocks[frames->count++] = block;
	}
	return 0;
}

static int read_blocks(struct frames *frames, char *why)
{
	struct json_object *params, *answer;
	uint64_t from = 0, next;
	size_t room = 0;
	int err;

	do {
		if (glk_clock_ns() > frames->until)
			return -ETIMEDOUT;
		params = json_object_new_object();
		json_object_object_add(params, "from", json_object_new_uint64(from));
		err = process_ask(
			frames->room, frames->pid, "origins", params, &answer, why);
		/* of a library that is older than stacks */
		if (err)
			return err == -EREMOTEIO || err == -ENXIO ? 0 : err;
		next = process_number(answer, "next");
		err = take_blocks(frames, process_text(answer, "blocks"), &room);
		json_object_put(answer);
		if (!err && next && next <= from)
			err = -EPROTO;
		from = next;
	} while (!err && from);
	return err;
}

/* The numbers that the blocks name, each once. */
static int list_stacks(struct frames *frames)
{
	size_t kept = 0;

	if (!frames->count)
		return 0;
	frames->stacks = calloc(frames->count, sizeof(*frames->stacks));
	if (!frames->stacks)
		return -ENOMEM;
	for (size_t i = 0; i < frames->count; i++)
		frames->stacks[i].stack = frames->blocks[i].stack;
	qsort(frames->stacks, frames->count, sizeof(*frames->stacks), by_stack);
	for (size_t i = 0; i < frames->count; i++) {
		if (!kept || frames->stacks[kept - 1].stack != frames->stacks[i].stack)
			frames->stacks[kept++] = frames->stacks[i];
	}
	frames->stack_count = kept < STACKS_MAX ? kept : STACKS_MAX;
	qsort(frames->blocks, frames->count, sizeof(*frames->blocks), by_address);
	return 0;
}

int frames_read(pid_t pid, struct frames *ret_frames)
{
	struct frames frames = {.pid = pid, .until = glk_clock_ns() + READ_NS};
	char why[GLK_WIRE_WHY_MAX] = "";
	int err;

	*ret_frames = (struct frames){.room = -1};
	err = process_room(&frames.room);
	if (err)
		return GLK_TOOL_FAILED;
	err = read_blocks(&frames, why);
	if (!err)
		err = list_stacks(&frames);
	*ret_frames = frames;
	if (err == -EPROTO || err == -ENOMEM || err == -ETIMEDOUT)
		glk_tool_say("process %d: %s", pid,
			err == -ENOMEM ? "no memory for what it tells"
				: err == -ETIMEDOUT
				? "it has told of who asks for a minute, "
				  "and goes on"
				: "what it answers is not who asked");
	else if (err)
		process_say_failed(pid, err, why);
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

void frames_free(struct frames *frames)
{
	free(frames->blocks);
	free(frames->stacks);
	if (frames->room >= 0)
		close(frames->room);
}

static void add_frame(struct pickle *pickle, struct json_object *frame)
{
	uint64_t line = process_number(frame, "line");

	pickle_dict(pickle);
	pickle_add_text(pickle, "filename", process_text(frame, "file"));
	pickle_add_int(pickle, "line", line < INT32_MAX ? line : 0);
	pickle_add_text(pickle, "name", process_text(frame, "name"));
	pickle_close(pickle);
}

/* Asks for it and writes it, as a list of none where the process does not tell it. */
static void add_stack(struct frames *frames, struct pickle *pickle, uint64_t stack)
{
	struct json_object *params, *answer = NULL;
	char why[GLK_WIRE_WHY_MAX];
	size_t count = 0;
	int err = 0;

	pickle_list(pickle);
	if (glk_clock_ns() < frames->until) {
		params = json_object_new_object();
		json_object_object_add(params, "stack", json_object_new_uint64(stack));
		err = process_ask(
			frames->room, frames->pid, "stack", params, &answer, why);
	}
	if (err)
		answer = NULL;
	/* one that does not answer is not asked again */
	if (err && err != -ENXIO && err != -EREMOTEIO)
		frames->until = 0;
	if (json_object_get_type(answer) == json_type_array)
		count = json_object_array_length(answer);
	for (size_t i = 0; i < count && i < FRAMES_MAX; i++)
		add_frame(pickle, json_object_array_get_idx(answer, i));
	pickle_close(pickle);
	json_object_put(answer);
}

void frames_add(struct frames *frames, struct pickle *pickle, uint64_t address)
{
	struct frames_block block = {.address = address}, *found;
	struct frames_stack key, *stack = NULL;

	found = address && frames->count ? bsearch(&block, frames->blocks, frames->count,
						   sizeof(block), by_address)
					 : NULL;
	if (found) {
		key.stack = found->stack;
		stack = bsearch(
			&key, frames->stacks, frames->stack_count, sizeof(key), by_stack);
	}
	if (stack && stack->is_written) {
		pickle_again(pickle, (uint32_t)(stack - frames->stacks));
	} else if (stack) {
		add_stack(frames, pickle, stack->stack);
		pickle_keep(pickle, (uint32_t)(stack - frames->stacks));
		stack->is_written = true;
	} else {
		pickle_list(pickle);
		pickle_close(pickle);
	}
}
