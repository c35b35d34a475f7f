/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TAP_H
#define GLK_TAP_H

/*
 * Test Anything Protocol, version 13: the plan first, one line a check, diagnostics as
 * comments, a failure says file and line. A program that prints a warning or an error of the
 * library without having announced it with tap_expect_log() fails.
 *
 *	int main(void)
 *	{
 *		tap_plan(2);
 *		ok(1 + 1 == 2, "sums");
 *		is_int(f(), 3, "f of nothing");
 *		return tap_done();
 *	}
 */
#include <glake/context.h>
#include <glake/error.h>

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	int planned, run, failed;
	int logs, expected;
	bool logging; /* a thread writes last_log */
	char last_log[512];
} tap;

static inline void tap_note(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
static inline void tap_note(const char *format, ...)
{
	va_list args;

	flockfile(stdout); /* a thread of the library may have something to say too */
	printf("# ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	funlockfile(stdout);
}

#ifndef TAP_NO_LOG
static inline void tap_log(int level, const char *line, void *arg)
{
	(void)arg;
	__atomic_add_fetch(&tap.logs, level <= GLAKE_LOG_WARNING, __ATOMIC_RELAXED);
	while (__atomic_exchange_n(&tap.logging, true, __ATOMIC_ACQUIRE))
		;
	snprintf(tap.last_log, sizeof(tap.last_log), "%s", line);
	__atomic_store_n(&tap.logging, false, __ATOMIC_RELEASE);
	tap_note("log: %s", line);
}
#endif

static inline void tap_start(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("TAP version 13\n");
#ifndef TAP_NO_LOG
	glake_log_hook(tap_log, NULL, GLAKE_LOG_WARNING);
	/* this thread's record is made now, in every kind of build, and is no growth later */
	glake_last_error(&(struct glake_error){.sz = sizeof(struct glake_error)});
#endif
}

static inline void tap_plan(int count)
{
	tap_start();
	tap.planned = count;
	printf("1..%d\n", count);
}

/* For a number of checks that is known only at the end. */
static inline void tap_plan_later(void)
{
	tap_start();
}

/* Ends the program: nothing in this file can be tested here. */
__attribute__((noreturn)) static inline void tap_skip_all(const char *why)
{
	printf("TAP version 13\n1..0 # SKIP %s\n", why);
	exit(0);
}

__attribute__((noreturn)) static inline void tap_bail(const char *why)
{
	printf("Bail out! %s\n", why);
	exit(99);
}

/* Where a test makes a file or a folder, for mkstemp() and mkdtemp(). */
static inline char *tap_template(char *path, size_t size, const char *name)
{
	const char *folder = getenv("TMPDIR");

	if (snprintf(path, size, "%s/glake-%s-XXXXXX", folder ? folder : "/tmp", name) >=
		(int)size)
		tap_bail("the name of the folder for temporary files is too long");
	return path;
}

/* Between two looks at what another process or thread does on its own. Nothing may hang on how long it is. */
static inline void tap_moment(void)
{
	poll(NULL, 0, 2);
}

/* Memory of the host that is touched ahead is to be there: see t/sched. */
#ifdef GLK_SCHED
#include "sched/scheduler.h"
#define tap_real_memory() ((void)(glk_sched_real_memory = true))
#else
#define tap_real_memory() ((void)0)
#endif

/* Whether valgrind runs this program: slowly, and with addresses for 32 GiB at a time. */
static inline bool tap_on_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return preload && strstr(preload, "vgpreload");
}

/* Whether thousands of rounds in one thread take minutes here and show nothing more: under
 * valgrind and the thread sanitizer. The address sanitizer sees them. */
static inline bool tap_storms_take_long(void)
{
#if defined(__SANITIZE_THREAD__)
	return true;
#else
	return tap_on_valgrind();
#endif
}

/* Whether what one thread does alone takes a minute or more here and shows nothing: under the thread
 * sanitizer. */
static inline bool tap_one_thread_takes_long(void)
{
#if defined(__SANITIZE_THREAD__)
	return true;
#else
	return false;
#endif
}

/* Whether contents that are away can be hashed: the library was built with xxhash.h. */
static inline bool tap_has_xxhash(void)
{
#ifdef GLK_XXHASH
	return true;
#else
	return false;
#endif
}

/* Of so many rounds of one kind an eighth where valgrind runs them, in which each is fifty times slower: the
 * other builds play them all. */
static inline int tap_rounds(int all)
{
	return tap_on_valgrind() ? all / 8 + 1 : all;
}

/* The next `count` warnings or errors of the library are part of the test. */
static inline void tap_expect_log(int count)
{
	tap.expected += count;
}

static inline bool tap_check(bool passed, const char *file, int line, const char *format,
	...) __attribute__((format(printf, 4, 5)));
static inline bool tap_check(
	bool passed, const char *file, int line, const char *format, ...)
{
	va_list args;

	flockfile(stdout);
	printf("%sok %d - ", passed ? "" : "not ", ++tap.run);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	funlockfile(stdout);
	if (!passed) {
		tap.failed++;
		tap_note("failed at %s:%d", file, line);
	}
	return passed;
}

#define ok(cond, ...) tap_check(!!(cond), __FILE__, __LINE__, __VA_ARGS__)

static inline bool tap_is_int(
	int64_t got, int64_t want, const char *file, int line, const char *what)
{
	bool passed = tap_check(got == want, file, line, "%s", what);

	if (!passed)
		tap_note("got %" PRId64 ", want %" PRId64, got, want);
	return passed;
}

static inline bool tap_is_str(
	const char *got, const char *want, const char *file, int line, const char *what)
{
	bool same = got && want && !strcmp(got, want);
	bool passed = tap_check(same || got == want, file, line, "%s", what);

	if (!passed)
		tap_note("got '%s', want '%s'", got ? got : "(null)",
			want ? want : "(null)");
	return passed;
}

/* Finds `part` inside `got`. */
static inline bool tap_has_str(
	const char *got, const char *part, const char *file, int line, const char *what)
{
	bool passed = tap_check(got && strstr(got, part), file, line, "%s", what);

	if (!passed)
		tap_note("got '%s', want it to have '%s'", got ? got : "(null)", part);
	return passed;
}

#define is_int(got, want, what)                                                          \
	tap_is_int((int64_t)(got), (int64_t)(want), __FILE__, __LINE__, what)
#define is_str(got, want, what)	 tap_is_str(got, want, __FILE__, __LINE__, what)
#define has_str(got, part, what) tap_has_str(got, part, __FILE__, __LINE__, what)

static inline void tap_skip(const char *what, const char *why)
{
	printf("ok %d - %s # SKIP %s\n", ++tap.run, what, why);
}

/* To be returned from main. */
static inline int tap_done(void)
{
	int state, type;

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	if (state != PTHREAD_CANCEL_ENABLE || type != PTHREAD_CANCEL_DEFERRED) {
		tap.failed++;
		tap_note("a call left this thread as one that cannot be cancelled");
	}
	if (tap.logs != tap.expected) {
		tap.failed++;
		tap_note("%d messages of the library, %d announced; the last: %s",
			tap.logs, tap.expected, tap.last_log);
	}
	if (!tap.planned)
		printf("1..%d\n", tap.run);
	else if (tap.run != tap.planned)
		tap_note("planned %d checks, ran %d", tap.planned, tap.run);
	return tap.failed || (tap.planned && tap.run != tap.planned);
}

#endif
