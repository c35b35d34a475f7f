/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Recording that begins and ends while the program runs. The handle of the context moves to where
 * only the way of recorded calls looks, and back.
 *
 * Beginning	a call that has looked before goes unrecorded; its block is freed later by a call
 *		that is recorded, which readers of the trace expect (midway). No recorded block is
 *		freed unseen: who has it got it behind the move
 * End		events of the time of the end and later are none, also of a call that has looked
 *		before. Such a call may still write one: so the mapping stays until the context is
 *		closed, and a context is recorded so and so often
 *
 * By one thread at a time, that of the socket, which keeps the context open.
 */
#include "api/context.h"
#include "api/served.h"
#include "base/error.h"

#include <errno.h>
#include <time.h>

int glk_context_trace(const struct glk_context *context,
	struct glk_trace_options *options, struct glk_trace **ret_trace)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	options->now_realtime_ns = (int64_t)now.tv_sec * GLK_SECOND + now.tv_nsec;
	options->now_ns = glk_clock_ns();
	options->devices = context->devices;
	options->backend = glk_drv_name(context->drv);
	return glk_trace_open(options, ret_trace);
}

/* In a new file of this name. 0; -EBUSY, -EMFILE (too often), what glk_trace_open answers. */
static int begin(struct glake *handle, const char *file, size_t size)
{
	struct glk_trace_options options = {.file = file, .size = size, .midway = true};
	struct glk_context_entry *entry = glk_context_entry(handle);
	struct glk_context *context;
	struct glk_trace *trace;
	int err = glk_context_get(handle, &context);

	if (err)
		return err;
	if (glk_load_relaxed(&context->trace))
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"it is recorded already, in %s",
			glk_trace_path(glk_load_relaxed(&context->trace)));
	if (context->stopped_count == GLK_CONTEXT_STOPPED_MAX)
		return glk_error(-EMFILE, GLAKE_ERROR_LIMIT,
			"a context that is open can be recorded %d times",
			GLK_CONTEXT_STOPPED_MAX);
	err = glk_context_trace(context, &options, &trace);
	if (err)
		return err;
	glk_store_release(&context->trace, trace); /* pairs with: glk_context_record */
	/* pairs with: glk_context_recorded, glk_context_find */
	glk_store_release(&entry->recorded, (uintptr_t)handle);
	glk_store_release(&entry->handle, 0);
	return 0;
}

static int end(struct glake *handle, const char **ret_file)
{
	struct glk_context_entry *entry = glk_context_entry(handle);
	struct glk_context *context;
	struct glk_trace *trace;
	int err = glk_context_get(handle, &context);

	if (err)
		return err;
	trace = glk_load_relaxed(&context->trace);
	if (!trace)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "it is not recorded");
	if (context->stopped_count == GLK_CONTEXT_STOPPED_MAX)
		return glk_error(-EMFILE, GLAKE_ERROR_LIMIT,
			"%d recordings of it have ended: this one does with the context",
			GLK_CONTEXT_STOPPED_MAX);
	*ret_file = glk_trace_path(trace);
	glk_trace_stop(trace, glk_clock_ns());
	/* pairs with: the acquires in glk_context_record, _find, _recorded */
	glk_store_release(&context->trace, NULL);
	glk_store_release(&entry->handle, (uintptr_t)handle);
	glk_store_release(&entry->recorded, 0);
	context->stopped[context->stopped_count++] = trace;
	return 0;
}

/* The context of the question, or the only one there is; NULL after a failure. */
static struct glake *find(struct glk_rpc_call *call)
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
	struct glake *handle = find(call);
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
		err = begin(handle, file, size ? size : context->conf.trace_size);
	if (err)
		glk_served_refuse(call, err);
	else
		add_recording(call, handle, file);
}

void glk_method_trace_stop(struct glk_rpc_call *call)
{
	struct glake *handle = find(call);
	const char *file;
	int err = handle ? end(handle, &file) : 0;

	if (err)
		glk_served_refuse(call, err);
	else if (handle)
		add_recording(call, handle, file);
}
