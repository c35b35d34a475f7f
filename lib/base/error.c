/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Fills the calling thread's record; see error.h. */
#include "base/error.h"

#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int fill(int err, enum glake_error_class class, const char *call, int native,
	const char *format, va_list args)
{
	struct glk_thread *self = glk_thread_self();
	int saved = errno;

	if (!self)
		return err;
	self->error.sz = sizeof(self->error);
	self->error.err = err;
	self->error.error_class = (int)class;
	self->error.native = native;
	snprintf(self->error.call, sizeof(self->error.call), "%s", call);
	vsnprintf(self->error.text, sizeof(self->error.text), format, args);
	if (glk_log_wants(GLAKE_LOG_DEBUG))
		glk_debug(
			"%s%s%s", self->error.call, *call ? ": " : "", self->error.text);
	errno = saved;
	return err;
}

int glk_error(int err, enum glake_error_class class, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fill(err, class, "", 0, format, args);
	va_end(args);
	return err;
}

int glk_error_native(int err, enum glake_error_class class, const char *call, int native,
	const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fill(err, class, call, native, format, args);
	va_end(args);
	return err;
}

void glk_error_back(const struct glake_error *was)
{
	/* 0: that of all threads without one */
	if (glk_thread_current->id)
		glk_thread_current->error = *was;
}

/* What a thread is told that can have no record. */
static const struct glake_error no_record = {.sz = sizeof(no_record),
	.err = -ENOMEM,
	.error_class = GLAKE_ERROR_NOMEM_HOST,
	.native = ENOMEM,
	.call = "mmap",
	.text = "no host memory for the record of this thread, which says why a call fails"};

int glake_last_error(struct glake_error *ret_error)
{
	struct glk_thread *self = glk_thread_self();
	struct glake_error record = {0};
	size_t sz;

	if (!ret_error || ret_error->sz < sizeof(size_t))
		return -EINVAL;
	sz = ret_error->sz < sizeof(record) ? ret_error->sz : sizeof(record);
	if (!self)
		record = no_record;
	else if (self->error.err)
		record = self->error;
	record.sz = ret_error->sz;
	memcpy(ret_error, &record, sz);
	return 0;
}

const char *glake_error_class_name(int error_class)
{
	static const char *const names[] = {"NONE", "NOMEM_DEVICE", "NOMEM_HOST",
		"ADDRESS", "LIMIT", "DEVICE_LOST", "PERM", "BUSY", "AGAIN", "CAPTURE",
		"INVAL", "NOT_MINE", "DOUBLE_FREE", "STALE", "FORKED", "SHUTDOWN",
		"UNSUPPORTED", "CORRUPT", "DRIVER", "CONFIG", "GUARD"};

	if (error_class < 0 || (size_t)error_class >= sizeof(names) / sizeof(*names))
		return "?";
	return names[error_class];
}
