/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The address space for programs: all runs, with the names that glake/map.h has for things. */
#include "tool/map.h"

#include "base/json.h"
#include "tool/tool.h"

#include <stdio.h>

static void add_pool(struct glk_json *json, const struct glake_pool_id *pool)
{
	glk_json_key(json, "pool");
	glk_json_array(json);
	glk_json_uint(json, pool->high);
	glk_json_uint(json, pool->low);
	glk_json_end(json);
}

static void add_flags(struct glk_json *json, uint32_t flags)
{
	static const char *const names[] = {
		"small", "out", "contiguous", "part", "bare", "shared"};

	glk_json_key(json, "flags");
	glk_json_array(json);
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (flags >> i & 1)
			glk_json_text(json, names[i]);
	glk_json_end(json);
}

static void add_run(struct glk_json *json, const struct glake_run *run)
{
	static const char *const arenas[] = {
		"common", "host", "stage", "pool", "managed", "tag"};
	bool block = run->state <= GLAKE_RUN_QUICK;

	glk_json_object(json);
	glk_json_add_uint(json, "address", run->address);
	glk_json_add_uint(json, "size", run->size);
	glk_json_add_text(json, "state", glake_run_state_name(run->state));
	glk_json_add_text(json, "arena",
		run->arena >= 0 && run->arena <= GLAKE_ARENA_TAG ? arenas[run->arena]
								 : NULL);
	if (block || run->stream)
		glk_json_add_uint(json, "stream", (uintptr_t)run->stream);
	if (block)
		glk_json_add_uint(json, "asked", run->asked);
	glk_json_add_uint(json, "gpu_bytes", run->gpu_bytes);
	glk_json_add_uint(json, "host_bytes", run->host_bytes);
	glk_json_add_uint(json, "large_bytes", run->large_bytes);
	if (run->placed)
		glk_json_add_uint(json, "placed", run->placed);
	if (run->flags)
		add_flags(json, run->flags);
	if (run->arena == GLAKE_ARENA_POOL)
		add_pool(json, &run->pool);
	glk_json_end(json);
}

int map_print_json(const struct space *space)
{
	struct glk_json json;

	glk_json_init(&json, stdout, 0);
	glk_json_object(&json);
	glk_json_add_int(&json, "pid", space->pid);
	glk_json_add_text(&json, "program", space->program);
	glk_json_add_text(&json, "version", space->version);
	glk_json_key(&json, "gpus");
	glk_json_array(&json);
	for (size_t i = 0; i < space->count; i++) {
		const struct space_gpu *gpu = &space->gpus[i];

		glk_json_object(&json);
		glk_json_add_uint(&json, "context", gpu->context);
		glk_json_add_int(&json, "gpu", gpu->gpu);
		glk_json_add_uint(&json, "reserved_bytes", gpu->reserved);
		glk_json_add_uint(&json, "changed", gpu->changed);
		glk_json_key(&json, "runs");
		glk_json_array(&json);
		for (size_t r = 0; r < gpu->count; r++)
			add_run(&json, &gpu->runs[r]);
		glk_json_end(&json);
		glk_json_end(&json);
	}
	glk_json_end(&json);
	glk_json_end(&json);
	return glk_json_fini(&json) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}
