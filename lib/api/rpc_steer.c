/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What moves the memory of this process from outside of it. Only the program knows when nothing
 * uses a block: who asks here answers for that, as the program would. What has come back is there
 * for all of its streams when the answer is given.
 */
#include "api/context.h"
#include "api/served.h"
#include "base/error.h"
#include "wire/wire.h"

#include <errno.h>
#include <string.h>

#include <glake/tier.h>

/* The context of the question that has the address; NULL after a failure. */
static struct glake *find(struct glk_rpc_call *call, void **ret_address)
{
	uint64_t context = 0, address = 0;
	struct glk_context *found;
	struct glake *handle = NULL;

	glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &context);
	if (!glk_rpc_number(call, "address", INT64_MAX, &address))
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "address, a number");
	while (!glk_rpc_failed(call) && (handle = glk_served_next(handle))) {
		if (context && glk_context_number(handle) != context)
			continue;
		if (!glk_context_get(handle, &found) && glk_context_cache(found, address))
			break;
	}
	if (!handle)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS,
			"0x%llx is not memory of such a context",
			(unsigned long long)address);
	*ret_address = (void *)(uintptr_t)address;
	return glk_rpc_failed(call) ? NULL : handle;
}

/* Until what was queued for a block is done. */
static int wait_for(struct glake *handle, uint64_t address)
{
	struct glk_context *context;
	struct glk_cache *gpu;
	int err = glk_context_get(handle, &context);

	if (err)
		return err;
	gpu = glk_context_cache(context, address);
	return gpu ? context->drv->ops->device_sync(context->drv, gpu->device) : 0;
}

typedef int (*move_fn)(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/* On the default stream, behind those that the library knows to use the block. */
static void move(struct glk_rpc_call *call, move_fn fn)
{
	struct glk_json *json;
	void *address;
	struct glake *handle = find(call, &address);
	int err;

	if (!handle)
		return;
	glk_wire_takes_long();
	err = fn(handle, address, NULL);
	if (!err)
		err = wait_for(handle, (uintptr_t)address);
	if (err) {
		glk_method_refuse(call, err);
		return;
	}
	json = glk_rpc_result(call);
	glk_json_object(json);
	glk_json_add_uint(json, "context", glk_context_number(handle));
	glk_json_add_uint(json, "address", (uintptr_t)address);
	glk_json_end(json);
}

void glk_method_spill(struct glk_rpc_call *call)
{
	move(call, glake_spill);
}

void glk_method_fetch(struct glk_rpc_call *call)
{
	move(call, glake_fetch);
}

typedef int (*turn_fn)(struct glake *ctx, int device, struct glake_suspended *ret_done);

struct turn {
	turn_fn fn;
	int done, err;
};

/* One that is refused says so in its place: those before it have been done. */
static int turn_one(struct glk_rpc_call *call, struct glake *handle, int gpu, void *arg)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_error record = {.sz = sizeof(record)};
	struct glk_json *json = glk_rpc_result(call);
	struct turn *turn = arg;
	int err = turn->fn(handle, gpu, &did);

	glk_method_begin_gpu(json, handle, gpu);
	glk_json_add_uint(json, "moved_bytes", did.moved);
	glk_json_add_uint(json, "moved_blocks", did.moved_blocks);
	glk_json_add_uint(json, "stayed_bytes", did.stayed);
	glk_json_add_uint(json, "stayed_blocks", did.stayed_blocks);
	glk_json_add_uint(json, "released_bytes", did.released);
	if (err) {
		glake_last_error(&record);
		glk_json_add_text(
			json, "failed", record.err == err ? record.text : strerror(-err));
		turn->err = err;
	}
	glk_json_end(json);
	turn->done += !err;
	return 0;
}

/* `other` is done where the parameter of that name is true. */
static void turn(struct glk_rpc_call *call, turn_fn fn, const char *name, turn_fn other)
{
	struct turn turn = {.fn = fn};
	bool wants_other = false;

	glk_rpc_bool(call, name, &wants_other);
	if (glk_rpc_failed(call))
		return;
	if (wants_other)
		turn.fn = other;
	glk_wire_takes_long();
	glk_json_array(glk_rpc_result(call));
	glk_method_each_gpu(call, turn_one, &turn);
	glk_json_end(glk_rpc_result(call));
	if (turn.err && !turn.done)
		glk_method_refuse(call, turn.err);
}

void glk_method_suspend(struct glk_rpc_call *call)
{
	turn(call, glake_suspend, "in_place", glake_suspend_in_place);
}

void glk_method_resume(struct glk_rpc_call *call)
{
	turn(call, glake_resume, "lazy", glake_resume_lazy);
}

/* The context of the question, or the only one there is; NULL after a failure. */
static struct glake *find_context(struct glk_rpc_call *call)
{
	struct glake *const *handles;
	struct glake *found = NULL;
	uint64_t context = 0;
	size_t count;

	glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &context);
	handles = glk_served(&count);
	for (size_t i = 0; i < count; i++)
		if (!context ? count == 1 : glk_context_number(handles[i]) == context)
			found = handles[i];
	if (!found)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS,
			context ? "there is no such context (of %zu)"
				: "context, a number: there are %zu",
			count);
	return glk_rpc_failed(call) ? NULL : found;
}

static void add_recording(
	struct glk_rpc_call *call, const struct glake *handle, const char *file)
{
	struct glk_json *json = glk_rpc_result(call);

	glk_json_object(json);
	glk_json_add_uint(json, "context", glk_context_number(handle));
	glk_json_add_text(json, "file", file);
	glk_json_end(json);
}

void glk_method_trace_start(struct glk_rpc_call *call)
{
	struct glake *handle = find_context(call);
	struct glk_context *context;
	const char *file = NULL;
	uint64_t size = 0;
	int err;

	if (!glk_rpc_text(call, "file", &file))
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "file, a text");
	if (glk_rpc_number(call, "size", 16 * GLK_TIB, &size) && size < GLK_MIB)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "size is 1048576 bytes at least");
	if (glk_rpc_failed(call))
		return;
	err = glk_context_get(handle, &context);
	if (!err)
		err = glk_recording_begin(
			handle, file, size ? size : context->conf.trace_size);
	if (err)
		glk_method_refuse(call, err);
	else
		add_recording(call, handle, file);
}

void glk_method_trace_stop(struct glk_rpc_call *call)
{
	struct glake *handle = find_context(call);
	const char *file;
	int err = handle ? glk_recording_end(handle, &file) : 0;

	if (err)
		glk_method_refuse(call, err);
	else if (handle)
		add_recording(call, handle, file);
}
