/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One whole line a message, of the levels asked for; to the hook or to stderr; not under a lock;
 * not more than ten of a kind. */
#include "base/log.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/slab.h"
#include "base/thread.h"

#define TAP_NO_LOG
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define LINES	100

static struct {
	int calls, level;
	void *arg;
	char line[1024];
} heard;

static void hook(int level, const char *line, void *arg)
{
	heard.calls++;
	heard.level = level;
	heard.arg = arg;
	snprintf(heard.line, sizeof(heard.line), "%s", line);
	errno = EDOM;
}

static void hooked(void)
{
	char longer[1024];

	glake_log_hook(hook, &heard, GLAKE_LOG_WARNING);
	errno = ENOTTY;
	glk_warn("page %d", 7);
	is_int(errno, ENOTTY, "errno is kept");
	is_int(heard.calls, 1, "the hook is called");
	is_int(heard.level, GLAKE_LOG_WARNING, "with the level");
	ok(heard.arg == &heard, "its argument");
	is_str(heard.line, "page 7", "and the bare line");
	glk_info("no");
	glk_debug("no");
	glk_log(GLAKE_LOG_NONE, "no");
	glk_log(GLAKE_LOG_DEBUG + 1, "no");
	is_int(heard.calls, 1,
		"not for what is below its level, nor for no level at all");
	glk_err("yes");
	is_int(heard.calls, 2, "for what is above it");

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	glk_warn("%s", longer);
	ok(strlen(heard.line) > 500 && strlen(heard.line) < 512, "a long line is cut");

	glk_log_level_set(GLAKE_LOG_INFO);
	glk_info("configured");
	is_str(heard.line, "configured", "the configured level counts beside the hook's");
	glk_log_level_set(GLAKE_LOG_NONE);
	glake_log_hook(NULL, NULL, GLAKE_LOG_DEBUG);
	glk_err("nobody");
	is_str(heard.line, "configured", "a hook taken away is not called");
}

static void debug_of_errors(void)
{
	glake_log_hook(hook, NULL, GLAKE_LOG_DEBUG);
	glk_error_native(-EIO, GLAKE_ERROR_DRIVER, "cuMemMap", 801, "page 7");
	is_str(heard.line, "cuMemMap: page 7", "level debug shows every record filled");
	glake_log_hook(NULL, NULL, 0);
}

static void in_order(int level, const char *line, void *arg)
{
	char *all = arg;
	size_t length = strlen(all);

	heard.calls++;
	heard.level = level;
	snprintf(all + length, 1024 - length, "%s,", line);
}

/* What is raised under a lock goes out after the last unlock. */
static void under_a_lock(void)
{
	static struct glk_lock outer = GLK_LOCK_INIT(GLK_RANK_DEVICE),
			       inner = GLK_LOCK_INIT(GLK_RANK_DRIVER);
	char all[1024] = "";

	glake_log_hook(in_order, all, GLAKE_LOG_DEBUG);
	heard.calls = 0;
	glk_lock(&outer);
	glk_info("one");
	glk_lock(&inner);
	glk_error(-EIO, GLAKE_ERROR_DRIVER, "two");
	glk_unlock(&inner);
	glk_warn("three");
	is_int(heard.calls, 0, "under a lock the hook is not called");
	errno = ENOTTY;
	glk_unlock(&outer);
	is_int(errno, ENOTTY, "errno is kept by an unlock that hands lines out");
	is_str(all, "one,two,three,", "then it is, line by line");
	is_int(heard.level, GLAKE_LOG_WARNING, "each with its level");
	glk_lock(&outer);
	glk_unlock(&outer);
	is_int(heard.calls, 3, "and once");

	glk_lock(&outer);
	glk_warn("late");
	glake_log_hook(in_order, all, GLAKE_LOG_ERROR);
	glk_unlock(&outer);
	is_int(heard.calls, 3, "a line that nobody wants any more is not said");
	glake_log_hook(NULL, NULL, 0);
}

/* The room for lines under a lock has an end. */
static void too_many_under_a_lock(void)
{
	static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_DEVICE);
	char all[1024] = "", longest[600];

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	glake_log_hook(in_order, all, GLAKE_LOG_DEBUG);
	heard.calls = 0;
	glk_lock(&lock);
	for (int i = 0; i < 8; i++)
		glk_debug("%s", longest);
	glk_unlock(&lock);
	is_int(heard.calls, 3, "too many lines: what fits is said, and how many did not");
	heard.calls = 0;
	all[0] = '\0';
	for (int i = 0; i < 3; i++) {
		glk_lock(&lock);
		glk_warn("%d", i);
		glk_unlock(&lock);
	}
	is_str(all, "0,1,2,", "the next lines have room again");
	/* each has its level before it, and an end */
	for (int more = 0; more < 2; more++) {
		heard.calls = 0;
		all[0] = '\0';
		glk_lock(&lock);
		glk_warn("%.*s", 500, longest);
		glk_warn("%.*s", 500, longest);
		glk_warn("%.*s", GLK_THREAD_LOG - 2 * 502 - 2 + more, longest);
		glk_unlock(&lock);
		ok(heard.calls == 3 && (more == 1) == !!strstr(all, "1 messages of"),
			more ? "and not with a byte more"
			     : "lines that fill the room are said");
	}
	glake_log_hook(NULL, NULL, 0);
}

/* A thread that can have no record: said where no lock is held, else counted. */
static void *without_record(void *arg)
{
	static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_DEVICE);

	glk_lock(&lock);
	glk_warn("lost");
	glk_unlock(&lock);
	glk_warn("said");
	return arg;
}

static int no_record(void)
{
	char all[1024] = "";
	pthread_t thread;

	glake_log_hook(in_order, all, GLAKE_LOG_DEBUG);
	glk_region_fail_after(1);
	pthread_create(&thread, NULL, without_record, NULL);
	pthread_join(thread, NULL);
	return strncmp(all, "1 messages", 10) || !strstr(all, ",said,") ||
		heard.calls != 2;
}

static void *chatter(void *arg)
{
	for (int i = 0; i < LINES; i++)
		glk_info("%s", (const char *)arg);
	return NULL;
}

/* What the library writes to stderr while `run` runs. */
static size_t captured(void (*run)(void), char *buffer, size_t size)
{
	int saved = dup(STDERR_FILENO), ends[2];
	ssize_t got = 0;

	if (saved < 0 || pipe(ends))
		tap_bail("no pipe");
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	dup2(ends[1], STDERR_FILENO);
	run();
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(ends[1]);
	while ((size_t)got < size - 1) {
		ssize_t n = read(ends[0], buffer + got, size - 1 - (size_t)got);

		if (n <= 0)
			break;
		got += n;
	}
	close(ends[0]);
	buffer[got] = '\0';
	return (size_t)got;
}

static void say_one(void)
{
	glk_err("unasked");
	glk_log_level_set(GLAKE_LOG_WARNING);
	glk_warn("asked");
	glk_info("unasked");
	glk_log_level_set(GLAKE_LOG_NONE);
}

static void say_long(void)
{
	char longer[1024];

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	glk_log_level_set(GLAKE_LOG_ERROR);
	glk_err("%s", longer);
	glk_log_level_set(GLAKE_LOG_NONE);
}

static void say_many(void)
{
	static char lines[THREADS][64];
	pthread_t threads[THREADS];

	glk_log_level_set(GLAKE_LOG_INFO);
	for (int i = 0; i < THREADS; i++) {
		memset(lines[i], 'a' + i, 60);
		pthread_create(&threads[i], NULL, chatter, lines[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	glk_log_level_set(GLAKE_LOG_NONE);
}

static void say_again(void)
{
	glk_log_level_set(GLAKE_LOG_WARNING);
	for (int i = 0; i < 50; i++)
		glk_warn("again %d", i);
	glk_warn("another");
	glk_log_level_set(GLAKE_LOG_NONE);
}

static int lines_in(const char *text)
{
	int lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

static void limited(void)
{
	static char text[1 << 16];

	captured(say_again, text, sizeof(text));
	is_int(lines_in(text), 11,
		"a warning that comes again and again is said ten times");
	ok(strstr(text, "again 9 (more lines like this are left out for up to 10 s)\n"),
		"the tenth says so");
	ok(strstr(text, "warning: another\n"), "and others are said");
	heard.calls = 0;
	glake_log_hook(hook, NULL, GLAKE_LOG_WARNING);
	say_again();
	is_int(heard.calls, 51, "a hook hears all of them");
	glake_log_hook(NULL, NULL, 0);
}

static void to_stderr(void)
{
	static char text[1 << 16];
	char want[64];
	int whole = 0;

	captured(say_one, text, sizeof(text));
	snprintf(want, sizeof(want), "glake[%d] warning: asked\n", getpid());
	is_str(text, want, "only what the level asks for, with pid and level");

	is_int((int64_t)captured(say_long, text, sizeof(text)), 511,
		"a long line is cut");
	ok(text[510] == '\n' && strchr(text, '\n') == text + 510, "and still ends");

	captured(say_many, text, sizeof(text));
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		const char *body = strstr(line, "info: ");

		if (body && strlen(body + 6) == 60 &&
			strspn(body + 6, (char[]){body[6], 0}) == 60)
			whole++;
	}
	is_int(whole, THREADS * LINES, "lines of several threads never mix");
}

int main(void)
{
	int status = -1;
	pid_t child = fork(); /* before there is any record */

	if (!child)
		_exit(no_record());
	waitpid(child, &status, 0);
	tap_plan_later();
	is_int(status, 0, "lines of a thread without a record");
	ok(!glk_log_wants(GLAKE_LOG_ERROR), "silent at first");
	hooked();
	debug_of_errors();
	under_a_lock();
	too_many_under_a_lock();
	to_stderr();
	limited();
	return tap_done();
}
