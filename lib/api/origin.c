/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which calls of a program asked for its blocks. The library does not know; a door that sees who calls
 * it does, and is asked by the socket's thread.
 */
#include "api/context.h"
#include "api/served.h"
#include "base/error.h"
#include "base/slab.h"
#include "wire/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <glake/map.h>

/* Blocks in an answer, each of two numbers of 16 digits at most. */
#define BLOCKS	 4096
#define ROW_MAX	 (2 * 17)
#define TEXT_MAX (GLK_WIRE_ANSWER_MAX / 2)

static glk_atomic(const struct glake_origins *) known;

int glake_origins_set(const struct glake_origins *origins)
{
	if (origins && origins->sz < sizeof(*origins))
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "sz is not that of the structure");
	if (origins && origins->sz > sizeof(*origins))
		return glk_error(-E2BIG, GLAKE_ERROR_INVAL,
			"the structure is that of a newer library");
	if (origins && (!origins->blocks || !origins->calls))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "a function is missing");
	/* pairs with: the acquire in glk_method_origins and glk_method_stack */
	glk_store_release(&known, origins);
	return 0;
}

static void add_blocks(struct glk_rpc_call *call, uint64_t cursor,
	const struct glake_origin *origins, size_t count, char *text)
{
	struct glk_json *json = glk_rpc_result(call);
	size_t used = 0;

	for (size_t i = 0; i < count; i++)
		used += (size_t)sprintf(text + used, "%" PRIx64 " %" PRIx64 ";",
			origins[i].address, origins[i].stack);
	glk_json_object(json);
	glk_json_key(json, "next");
	if (count)
		glk_json_uint(json, cursor);
	else
		glk_json_null(json);
	glk_json_key(json, "blocks");
	glk_json_bytes(json, text, used);
	glk_json_end(json);
}

void glk_method_origins(struct glk_rpc_call *call)
{
	/* pairs with: the release in glake_origins_set */
	const struct glake_origins *origins = glk_load_acquire(&known);
	const size_t size = BLOCKS * (sizeof(struct glake_origin) + ROW_MAX);
	struct glake_origin *blocks;
	uint64_t cursor = 0;
	size_t count = 0;

	glk_rpc_number(call, "from", INT64_MAX, &cursor);
	if (glk_rpc_failed(call))
		return;
	blocks = glk_region_new(size);
	if (!blocks) {
		glk_rpc_fail(call, GLK_RPC_INTERNAL, "no memory");
		return;
	}
	if (origins)
		count = origins->blocks(&cursor, blocks, BLOCKS);
	add_blocks(call, cursor, blocks, count, (char *)(blocks + BLOCKS));
	glk_region_free(blocks, size);
}

/* The part of a text that ends with a zero, and behind it the next. */
static const char *take_part(const char **at, const char *end)
{
	const char *part = *at;
	const char *zero = part < end ? memchr(part, 0, (size_t)(end - part)) : NULL;

	*at = zero ? zero + 1 : end;
	return zero ? part : NULL;
}

static void add_calls(struct glk_json *json, const char *text, size_t length)
{
	const char *end = text + length, *line, *name, *file;

	glk_json_array(json);
	while ((line = take_part(&text, end)) && (name = take_part(&text, end)) &&
		(file = take_part(&text, end))) {
		glk_json_object(json);
		glk_json_add_text(json, "file", file);
		glk_json_add_int(json, "line", atoi(line));
		glk_json_add_text(json, "name", name);
		glk_json_end(json);
	}
	glk_json_end(json);
}

void glk_method_stack(struct glk_rpc_call *call)
{
	/* pairs with: the release in glake_origins_set */
	const struct glake_origins *origins = glk_load_acquire(&known);
	uint64_t stack = 0;
	size_t length;
	char *text;

	glk_rpc_number(call, "stack", INT64_MAX, &stack);
	if (glk_rpc_failed(call))
		return;
	text = glk_region_new(TEXT_MAX);
	length = origins && text ? origins->calls(stack, text, TEXT_MAX) : 0;
	if (!text)
		glk_rpc_fail(call, GLK_RPC_INTERNAL, "no memory");
	else if (!length)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "there is no such stack");
	else if (length > TEXT_MAX)
		glk_rpc_fail(call, GLK_RPC_INTERNAL, "the stack is too long");
	else
		add_calls(glk_rpc_result(call), text, length);
	if (text)
		glk_region_free(text, TEXT_MAX);
}
