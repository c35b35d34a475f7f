/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The thread that answers: who has many questions and who has a long one hold up nobody.
 */
#include "server_rig.h"

#include "base/clock.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#define QUICK                                                                            \
	INT64_C(250000000) /* ns, half of how long the thread waits before it looks around */

static sem_t inside, go_on, inside_long, long_on;
static char order[256]; /* of what was answered, a letter each */
static pthread_mutex_t ordering = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int lefts;

static size_t echo(const char *line, size_t length, char *answer, size_t size, void *arg)
{
	char thread[16];

	(void)arg;
	pthread_mutex_lock(&ordering);
	if (strlen(order) + 1 < sizeof(order) && length)
		strncat(order, line, 1);
	pthread_mutex_unlock(&ordering);
	switch (length ? *line : 0) {
	case 'L':
		glk_wire_takes_long();
		sem_post(&inside_long);
		sem_wait(&long_on);
		break;
	case 'Q': /* takes a while */
		poll(NULL, 0, 3);
		break;
	case 'S':
		pthread_getname_np(pthread_self(), thread, sizeof(thread));
		return (size_t)snprintf(answer, size, "%s\n", thread);
	case 'W':
		sem_post(&inside);
		sem_wait(&go_on);
		break;
	}
	return (size_t)snprintf(answer, size, "=%.*s\n", (int)length, line);
}

static void left(void *arg)
{
	(void)arg;
	lefts++;
}

/* One who has many questions, and another who has one: that is not the last to be answered. */
static void test_turns(void)
{
	int many = join(), one = join(), asked = lefts;

	pthread_mutex_lock(&ordering);
	order[0] = '\0';
	pthread_mutex_unlock(&ordering);
	if (send(many, "W\n", 2, 0) != 2)
		ok(false, "send");
	sem_wait(&inside);
	if (send(many, "Q\nQ\nQ\nQ\nQ\nQ\nQ\nQ\nQ\nQ\n", 20, 0) != 20 ||
		send(one, "x\n", 2, 0) != 2)
		ok(false, "send");
	sem_post(&go_on);
	goes_on(one, "=x\n", "one is answered");
	goes_on(many, "=W\n=Q\n=Q\n=Q\n=Q\n=Q\n=Q\n=Q\n=Q\n=Q\n=Q\n",
		"and all questions are");
	pthread_mutex_lock(&ordering);
	ok(strchr(order, 'x') < strrchr(order, 'Q'), "one who asks much has turns: %s",
		order);
	pthread_mutex_unlock(&ordering);
	close(many);
	close(one);
	while (lefts < asked + 2)
		sched_yield();
}

/* Answers that take long: one of them at a time holds up nobody. */
static void test_long(void)
{
	int first = join(), second = join(), other = join(), gone = join();
	int asked = lefts;

	if (send(first, "Lone\nafter\n", 11, 0) != 11)
		ok(false, "send");
	sem_wait(&inside_long);
	says(other, "a\n", "=a", "while an answer takes long another is given");
	for (int i = 0; i < MANY; i++) {
		int fd = join();

		close(fd);
	}
	says(other, "b\n", "=b", "and others come and go");
	sem_post(&long_on);
	goes_on(first, "=Lone\n=after\n", "it is given, and the next");
	if (send(gone, "Lgone\n", 6, 0) != 6)
		ok(false, "send");
	sem_wait(&inside_long);
	close(gone);
	says(other, "c\n", "=c", "one who asks so may go");
	sem_post(&long_on);
	says(second, "d\n", "=d", "and the others are served");
	while (lefts < asked + MANY + 1) /* the thread that answered has ended then */
		sched_yield();
	if (send(first, "L1\n", 3, 0) != 3)
		ok(false, "send");
	sem_wait(&inside_long);
	if (send(second, "L2\n", 3, 0) != 3)
		ok(false, "send");
	sem_wait(&inside_long);
	sem_post(&long_on);
	sem_post(&long_on);
	goes_on(first, "=L1\n", "two that take long");
	goes_on(second, "=L2\n", "are both given");
	says(other, "S\n", "wire-test", "by threads of one kind");
	close(first);
	close(second);
	close(other);
	while (lefts < asked + MANY + 4)
		sched_yield();
	ok(true, "who has gone is told of");
}

/* Who waits for a long answer is not silent, and what was asked behind it waits for nothing else. */
static void test_behind(void)
{
	const struct glk_wire_options options = {
		.answer = echo, .thread_name = "wire-test", .idle_ms = 1800};
	int64_t least = INT64_MAX, begun, spent;
	int fd;

	is_int(glk_wire_serve(&options, rig_why), 0,
		"a process serves that has nothing due");
	fd = join();
	/* the least of several, and of more where the machine is busy */
	for (int i = 0; i < 8 || (least >= QUICK && i < 200); i++) {
		begun = glk_clock_ns();
		if (send(fd, "Lone\nafter\n", 11, 0) != 11)
			ok(false, "send");
		sem_wait(&inside_long);
		sem_post(&long_on);
		goes_on(fd, "=Lone\n=after\n", "two questions");
		spent = glk_clock_ns() - begun;
		least = spent < least ? spent : least;
	}
	ok(least < QUICK, "of which the second waits for no look around");
	close(fd);
	for (int i = 0; i < 100; i++) {
		char answer[16] = "";

		fd = join();
		if (send(fd, "L\n", 2, 0) != 2)
			ok(false, "send");
		sem_wait(&inside_long);
		poll(NULL, 0, 1900);
		begun = glk_clock_ns();
		sem_post(&long_on);
		goes_on(fd, "=L\n", "an answer that takes longer than who is silent has");
		poll(NULL, 0, 1200);
		glk_wire_ask(fd, "x\n", PATIENCE, answer, sizeof(answer), rig_why);
		spent = glk_clock_ns() - begun;
		close(fd);
		/* it may have been silent for so long by then, where the machine is busy */
		if (strcmp(answer, "=x") && spent > INT64_C(1700000000))
			continue;
		is_str(answer, "=x", "after which the connection is there");
		break;
	}
	glk_wire_end();
}

int main(void)
{
	const struct glk_wire_options options = {
		.answer = echo, .left = left, .thread_name = "wire-test"};

	tap_plan_later();
	rig_begin();
	sem_init(&inside, 0, 0);
	sem_init(&go_on, 0, 0);
	sem_init(&inside_long, 0, 0);
	sem_init(&long_on, 0, 0);
	glk_wire_name(getpid(), name);
	is_int(glk_wire_serve(&options, rig_why), 0, "a process serves");
	is_int(glk_wire_room_open(false, &room, rig_why), 0,
		"in the directory of its user");
	test_turns();
	test_long();
	glk_wire_end();
	test_behind();
	close(room);
	rig_end();
	return tap_done();
}
