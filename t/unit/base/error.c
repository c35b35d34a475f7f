/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A failure leaves a record in its own thread, cut to size, until the next failure. */
#include "base/error.h"
#include "base/slab.h"
#include "base/thread.h"
#include "tap.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static struct glake_error last(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error;
}

static void *other_thread(void *arg)
{
	int *ret_errs = arg;

	ret_errs[0] = last().err;
	glk_error(-EBUSY, GLAKE_ERROR_BUSY, "in use");
	ret_errs[1] = last().err;
	return NULL;
}

static void per_thread(void)
{
	int errs[2] = {-1, -1};
	pthread_t thread;

	glk_error(-EINVAL, GLAKE_ERROR_INVAL, "mine");
	pthread_create(&thread, NULL, other_thread, errs);
	pthread_join(thread, NULL);
	is_int(errs[0], 0, "a new thread has no failure");
	is_int(errs[1], -EBUSY, "it sees its own");
	is_str(last().text, "mine", "and this thread still its own");
}

/* The empty record is that of all threads without one. */
static void *put_back(void *arg)
{
	const struct glk_thread *none = glk_thread_current;
	struct glake_error was = {.err = -EIO};

	glk_error_back(&was);
	return (void *)(uintptr_t)(none->error.err || glk_thread_current != none);
}

static void kept(void)
{
	struct glake_error was;
	pthread_t thread;
	void *wrong;

	pthread_create(&thread, NULL, put_back, NULL);
	pthread_join(thread, &wrong);
	ok(!wrong, "a thread without a record has none put back");
	glk_error(-EINVAL, GLAKE_ERROR_INVAL, "the first");
	was = glk_thread_current->error;
	glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE, "the second");
	glk_error_back(&was);
	is_str(last().text, "the first", "with one it is what it was");
}

static void filled(void)
{
	struct glake_error error;

	errno = ENOTTY;
	is_int(glk_error_native(-EIO, GLAKE_ERROR_DRIVER, "cuMemMap", 801, "page %d", 7),
		-EIO, "gives back what it was given");
	is_int(errno, ENOTTY, "errno is kept");
	error = last();
	is_int(error.err, -EIO, "value");
	is_int(error.error_class, GLAKE_ERROR_DRIVER, "class");
	is_int(error.native, 801, "native code");
	is_str(error.call, "cuMemMap", "call");
	is_str(error.text, "page 7", "text");

	is_int(glk_error(-ENOMEM, GLAKE_ERROR_ADDRESS, "next"), -ENOMEM,
		"the next failure");
	error = last();
	is_str(error.call, "", "replaces the call");
	is_int(error.native, 0, "and the native code");
}

static void cut(void)
{
	char longer[2 * GLAKE_ERROR_TEXT_MAX];
	struct glake_error error;

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	glk_error_native(-EIO, GLAKE_ERROR_DRIVER, longer, 1, "%s", longer);
	error = last();
	is_int(strlen(error.text), sizeof(error.text) - 1, "a long text is cut");
	is_int(strlen(error.call), sizeof(error.call) - 1, "a long name too");
}

static void sizes(void)
{
	struct {
		struct glake_error error;
		char after[8];
	} large;
	struct glake_error small;

	glk_error(-EPERM, GLAKE_ERROR_PERM, "no");
	memset(&small, 0x5a, sizeof(small));
	small.sz = offsetof(struct glake_error, native);
	is_int(glake_last_error(&small), 0, "an older, shorter structure");
	is_int(small.err, -EPERM, "is filled");
	is_int(small.native, 0x5a5a5a5a, "up to its size");
	is_int((int64_t)small.sz, offsetof(struct glake_error, native), "which stays");

	memset(&large, 0x5a, sizeof(large));
	large.error.sz = sizeof(large);
	is_int(glake_last_error(&large.error), 0, "a newer, longer one");
	is_str(large.error.text, "no", "is filled");
	is_int(large.after[0], 0x5a, "no further than this version knows");

	small.sz = 0;
	is_int(glake_last_error(&small), -EINVAL, "size 0");
	small.sz = sizeof(size_t) - 1;
	is_int(glake_last_error(&small), -EINVAL, "no room for the size itself");
	is_int(glake_last_error(NULL), -EINVAL, "NULL");
	is_int(last().err, -EPERM, "none of which changes the record");
}

static void names(void)
{
	bool distinct = true;

	for (int i = GLAKE_ERROR_NONE; i <= GLAKE_ERROR_GUARD; i++)
		for (int k = GLAKE_ERROR_NONE; k < i; k++)
			distinct &= strcmp(glake_error_class_name(i),
					    glake_error_class_name(k)) != 0;
	ok(distinct, "every class has a name of its own");
	is_str(glake_error_class_name(GLAKE_ERROR_GUARD), "GUARD", "the last one");
	is_str(glake_error_class_name(GLAKE_ERROR_GUARD + 1), "?", "one past it");
	is_str(glake_error_class_name(-1), "?", "one before the first");
}

/* Runs before anything has made a record; exits 0 when all is as it should be. */
static int without_memory(void)
{
	glk_region_fail_after(1);
	if (glk_error(-EBUSY, GLAKE_ERROR_BUSY, "lost") != -EBUSY)
		return 1;
	if (last().err != -ENOMEM || last().error_class != GLAKE_ERROR_NOMEM_HOST ||
		!*last().text)
		return 3;
	glk_region_fail_after(0);
	glk_error(-EBUSY, GLAKE_ERROR_BUSY, "kept");
	return last().err == -EBUSY ? 0 : 2;
}

int main(void)
{
	int status = -1;
	pid_t child = fork();

	if (!child)
		_exit(without_memory());
	waitpid(child, &status, 0);

	tap_plan_later();
	is_int(status, 0,
		"no memory for a record: only its text is lost, which is said, and only so long");
	is_int(last().err, 0, "no failure so far");
	is_int(last().error_class, GLAKE_ERROR_NONE, "and no class");
	filled();
	cut();
	per_thread();
	kept();
	sizes();
	names();
	return tap_done();
}
