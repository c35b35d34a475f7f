/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The socket of a process: what is asked is answered in order, and nobody who asks badly, slowly,
 * or not at all keeps others from it.
 */
#include "server_rig.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* The thread sanitizer wants no thread in a child. */
#if defined(__SANITIZE_THREAD__)
#define CHILD_SERVES 0
#elif defined(__has_feature)
#define CHILD_SERVES !__has_feature(thread_sanitizer)
#else
#define CHILD_SERVES 1
#endif

/* Whether the other end has gone, within the patience of a test. */
static bool has_gone(int fd)
{
	struct pollfd polled = {.fd = fd, .events = POLLIN};
	static char rest[1 << 16];

	while (poll(&polled, 1, PATIENCE) > 0)
		if (recv(fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0)
			return true;
	return false;
}

static sem_t inside, go_on, inside_long, long_on;

/* Says it back, or what the first letter asks for. */
static size_t echo(const char *line, size_t length, char *answer, size_t size, void *arg)
{
	char thread[16];
	sigset_t mask;

	if (!line)
		return (size_t)snprintf(answer, size, "too long\n");
	switch (length ? *line : 0) {
	case 'L':
		glk_wire_takes_long();
		sem_post(&inside_long);
		sem_wait(&long_on);
		break;
	case 'B': /* as much as there is room for */
		memset(answer, 'b', size - 1);
		answer[size - 1] = '\n';
		return size;
	case 'N':
		return 0;
	case 'S':
		pthread_sigmask(SIG_BLOCK, NULL, &mask);
		pthread_getname_np(pthread_self(), thread, sizeof(thread));
		return (size_t)snprintf(answer, size, "%s %d %d %d\n", thread,
			sigismember(&mask, SIGTERM), sigismember(&mask, SIGUSR1),
			sigismember(&mask, SIGPROF));
	case 'W':
		sem_post(&inside);
		sem_wait(&go_on);
		break;
	}
	return (size_t)snprintf(
		answer, size, "%s%.*s\n", (const char *)arg, (int)length, line);
}

static int serve(int idle_ms, int slow_ms)
{
	struct glk_wire_options options = {.answer = echo,
		.arg = (void *)(uintptr_t) "=",
		.thread_name = "wire-test",
		.idle_ms = idle_ms,
		.slow_ms = slow_ms};

	return glk_wire_serve(&options, rig_why);
}

static void test_answers(void)
{
	struct glk_wire_peer peer;
	int fd;

	is_int(glk_wire_connect(room, name, PATIENCE, &fd, &peer, rig_why), 0,
		"one connects");
	is_int((int64_t)peer.uid, geteuid(), "to this user");
	is_int(peer.pid, getpid(), "and this process");
	says(fd, "a\n", "=a", "an answer");
	says(fd, "\n", "=", "to nothing too");
	says(fd, "N\nb\n", "=b", "a question without one, and the next");
	says(fd, "S\n", "wire-test 1 1 1", "a thread with a name, which takes no signal");
	if (send(fd, "c\nd\ne", 5, 0) != 5)
		ok(false, "send");
	goes_on(fd, "=c\n=d\n", "questions that come together are answered in order");
	says(fd, "f\n", "=ef", "and one in pieces as one");
	close(fd);
}

static void test_half(void)
{
	int fd = join();

	if (send(fd, "x\ny", 3, 0) != 3 || shutdown(fd, SHUT_WR))
		ok(false, "shutdown");
	goes_on(fd, "=x\n=y\n", "who asks no more is answered, and needs no end of line");
	ok(has_gone(fd), "then he is left");
	close(fd);
}

static void test_too_long(void)
{
	static char line[GLK_WIRE_QUESTION_MAX + 4];
	int fd = join();

	memset(line, 'l', GLK_WIRE_QUESTION_MAX - 1);
	line[GLK_WIRE_QUESTION_MAX - 1] = '\n';
	line[0] = 'N';
	snprintf(line + GLK_WIRE_QUESTION_MAX, 4, "a\n");
	says(fd, line, "=a", "a question of full length is taken");
	close(fd);
	fd = join();
	memset(line, 'l', GLK_WIRE_QUESTION_MAX);
	snprintf(line + GLK_WIRE_QUESTION_MAX, 4, "\n");
	says(fd, line, "too long", "a longer one is told so");
	ok(has_gone(fd), "and its client left");
	close(fd);
}

static void test_slow(void)
{
	int slow, fd, many, bounded = 0;
	struct pollfd hung = {0};
	char answer[100] = "", large[100];

	/* where the machine is busy they may be left before they ask */
	for (int i = 0; i < 100; i++) {
		slow = join(), fd = join(), many = join();
		/* more than the kernel holds for one who does not read */
		for (int n = 0; n < 8; n++)
			if (send(slow, "B\n", 2, MSG_NOSIGNAL) != 2)
				break;
		if (send(many, "B\nB\nB\nB\nB\nB\nB\nB\n", 16, MSG_NOSIGNAL) == 16 &&
			!glk_wire_ask(
				fd, "a\n", PATIENCE, answer, sizeof(answer), rig_why))
			bounded = glk_wire_ask(
				fd, "B\n", PATIENCE, large, sizeof(large), rig_why);
		close(fd);
		if (bounded == -EMSGSIZE)
			break;
		close(slow);
		close(many);
	}
	hung.fd = many;
	is_str(answer, "=a", "one who does not read keeps nobody waiting");
	is_int(bounded, -EMSGSIZE, "one who asks bounds the answer");
	fd = join();
	ok(has_gone(fd), "one who asks nothing is left after a while");
	close(fd);
	ok(has_gone(slow), "and so is one who does not read");
	is_int(poll(&hung, 1, PATIENCE), 1, "also where more questions lie there");
	close(many);
	close(slow);
}

static void test_many(void)
{
	static int fds[MANY];
	struct rlimit files;
	int made = 0, fd;

	getrlimit(RLIMIT_NOFILE, &files);
	for (; made < MANY && (rlim_t)made + 100 < files.rlim_cur; made++) {
		fds[made] = join();
		if (fds[made] < 0)
			break;
	}
	ok(made >= 100, "%d are connected, and ask nothing", made);
	fd = join();
	says(fd, "a\n", "=a", "one more is answered");
	ok(has_gone(fds[0]), "the one that was silent for longest had to go");
	says(fds[made - 1], "b\n", "=b", "and the last of them not");
	close(fd);
	while (made--)
		close(fds[made]);
}

static void test_bad_ends(void)
{
	int fd = join(), other;

	for (int i = 0; i < 50; i++) {
		other = join();
		if (send(other, i % 2 ? "B\nB\n" : "a\nb", i % 2 ? 4 : 3, MSG_NOSIGNAL) <
			0)
			tap_note("send: %s", strerror(errno));
		close(other); /* with answers on their way: no signal comes of it */
	}
	says(fd, "a\n", "=a", "those who go in the middle harm nobody");
	close(fd);
}

static void test_child(void)
{
	int fd = join(), status = -1;
	pid_t child;

	says(fd, "a\n", "=a", "a client is there when the process forks");
	child = fork();
	if (!child) {
		int again = CHILD_SERVES ? serve(0, 0) : 0;
		char own[GLK_WIRE_NAME_MAX];

		if (again)
			_exit(1);
		glk_wire_name(getpid(), own);
		if (!CHILD_SERVES)
			_exit(0);
		again = faccessat(room, own, F_OK, 0);
		glk_wire_end();
		_exit(again || !faccessat(room, own, F_OK, 0) ? 2 : 0);
	}
	waitpid(child, &status, 0);
	is_int(status, 0, "the child has none, and could have its own");
	says(fd, "b\n", "=b", "the client is the parent's");
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	glk_wire_end();
	ok(has_gone(fd), "and hears of its end while a child lives");
	close(fd);
	is_int(join(), -ESRCH, "where nobody answers any more");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	is_int(serve(0, 0), 0, "it can be had again");
}

static void *end(void *arg)
{
	glk_wire_end();
	return arg;
}

/* Within a moment. */
static bool has_ended(pthread_t thread)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 50000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return !pthread_timedjoin_np(thread, NULL, &until);
}

static void test_end(void)
{
	int fd = join(), slow = join();
	pthread_t thread;

	if (send(slow, "L\n", 2, 0) != 2)
		ok(false, "send");
	sem_wait(&inside_long);
	if (send(fd, "W\n", 2, 0) != 2)
		ok(false, "send");
	sem_wait(&inside);
	pthread_create(&thread, NULL, end, NULL);
	while (!faccessat(room, name, F_OK, 0))
		sched_yield();
	ok(true, "at the end the name goes first");
	sem_post(&go_on);
	ok(!has_ended(thread), "the answers under way are waited for");
	sem_post(&long_on);
	pthread_join(thread, NULL);
	ok(has_gone(fd) && has_gone(slow), "both");
	close(fd);
	close(slow);
	is_int(rig_count(), 0, "and nothing is left behind");
	glk_wire_end();
	ok(true, "to end nothing is nothing");
}

static void test_stale(void)
{
	struct rlimit files, few;
	pid_t child = fork();
	int fd;

	if (!child) {
		/* dies with a socket at the name of its parent */
		fd = serve(0, 0);
		glk_wire_name(getpid(), name);
		if (!fd &&
			!renameat(room, name, room, glk_wire_name_pid(name) ? "x" : "y"))
			kill(getpid(), SIGKILL);
		_exit(1);
	}
	waitpid(child, NULL, 0);
	is_int(renameat(room, "x", room, name), 0, "a socket is left of who was killed");
	is_int(join(), -ESRCH, "nobody answers there");
	is_int(serve(0, 0), 0, "the next process of that number takes its place");
	fd = join();
	says(fd, "a\n", "=a", "and answers");
	close(fd);
	is_int(serve(0, 0), -EALREADY, "there is one of them in a process");
	glk_wire_end();
	getrlimit(RLIMIT_NOFILE, &files);
	few = files;
	fd = dup(room); /* the lowest that is free */
	close(fd);
	few.rlim_cur = (rlim_t)fd + 2;
	setrlimit(RLIMIT_NOFILE, &few);
	is_int(serve(0, 0), -EMFILE, "where descriptors are few there is none");
	setrlimit(RLIMIT_NOFILE, &files);
	is_int(rig_count(), 0, "and nothing of it");
}

/* A program closes descriptors that it does not know, and has files of their numbers afterwards. */
static int closes_strangers(void)
{
	char path[128];
	int own[64], file = mkstemp(tap_template(path, sizeof(path), "wire")), wrong = 0;

	if (file < 0 || serve(0, 0))
		return 1;
	unlink(path);
	for (int fd = 3; fd < 64; fd++)
		if (fd != file)
			close(fd);
	for (int i = 0; i < 64; i++)
		own[i] = fcntl(file, F_DUPFD_CLOEXEC, 3);
	alarm(100);
	glk_wire_end(); /* returns, and touches none of them */
	for (int i = 0; i < 64; i++)
		wrong += fcntl(own[i], F_GETFD) < 0;
	return wrong || lseek(file, 0, SEEK_END) != 0;
}

static void test_strangers(void)
{
	pid_t one = fork();
	int status = -1;

	if (!one)
		_exit(CHILD_SERVES ? closes_strangers() : 0);
	waitpid(one, &status, 0);
	is_int(status, 0, "a program that closes all descriptors has them for itself");
}

int main(void)
{
	tap_plan_later();
	rig_begin();
	sem_init(&inside, 0, 0);
	sem_init(&go_on, 0, 0);
	sem_init(&inside_long, 0, 0);
	sem_init(&long_on, 0, 0);
	glk_wire_name(getpid(), name);
	is_int(serve(0, 0), 0, "a process serves");
	is_int(glk_wire_room_open(false, &room, rig_why), 0,
		"in the directory of its user");
	is_int(rig_count(), 1, "where one socket is");
	test_answers();
	test_half();
	test_many();
	test_bad_ends();
	test_child();
	glk_wire_end();
	is_int(serve(300, 600), 0, "with less patience");
	test_slow();
	glk_wire_end();
	is_int(serve(20000, 0), 0, "with some");
	test_too_long();
	test_end();
	test_stale();
	test_strangers();
	close(room);
	rig_end();
	return tap_done();
}
