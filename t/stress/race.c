/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * That the thread sanitizer sees races of the lock-free headers though the scheduler runs one thread at
 * a time: two threads that hand memory to each other through a header have none, and where the header
 * orders nothing the sanitizer says so. Each runs in a child, which ends with a report.
 */
#include "tap.h"

#include <sys/wait.h>
#include <unistd.h>

#define REPORTED 66 /* the sanitizer's own */

#define X(name, what) int race_##name(void), race_##name##_planted(void);
#define RACES(X)                                                                         \
	X(idstack, "base/idstack.h")                                                     \
	X(row, "cache/bin/row.h")                                                        \
	X(word, "map/space/word.h")                                                      \
	X(index, "map/space/index.c")                                                    \
	X(page, "pool/page.c")                                                           \
	X(source, "soft/contents.c: what is copied")                                     \
	X(target, "soft/contents.c: where to")
RACES(X)
#undef X

static int in_child(int (*fn)(void))
{
	int status = -1;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		_exit(freopen("/dev/null", "w", stderr) ? fn() : 1);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

int main(void)
{
	tap_plan_later();
#define X(name, what)                                                                    \
	is_int(in_child(race_##name), 0, what ": no race");                              \
	if (SANITIZED)                                                                   \
		is_int(in_child(race_##name##_planted), REPORTED, what ": a planted one");
#ifdef __SANITIZE_THREAD__
#define SANITIZED true
#else
#define SANITIZED false
#endif
	RACES(X)
	return tap_done();
}
