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
 */
#include "api/context.h"
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

int glk_recording_begin(struct glake *handle, const char *file, size_t size)
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

int glk_recording_end(struct glake *handle, const char **ret_file)
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
