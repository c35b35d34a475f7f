/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a request waits for a function in Python: that it begins, that it ends, and neither for ever. */
#include "base/atomic.h"
#include "tap.h"

#include "lib/front/torch_shortage.c"

#define MS  INT64_C(1000000)
#define MIB ((size_t)1 << 20)

/* Whether what is too early can be told from what is not: else the machine's time is. */
#ifdef GLK_SCHED
#define EXACT true
#else
#define EXACT false
#endif

struct glake *glake_torch_context(void)
{
	return NULL;
}

/* A thread of Python's, which takes so long for its lock, and so long for an answer. */
static struct {
	glk_atomic(int64_t) lock, takes;
	glk_atomic(int) begun;
	struct glake_torch_shortage last;
} python;

static void rest(int64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	nanosleep(&t, NULL);
}

static void *serve(void *unused)
{
	struct glake_torch_shortage asked = {0};

	for (;;) {
		glake_torch_shortage_next(&asked);
		if (!asked.want)
			return unused;
		rest(glk_load_relaxed(&python.lock));
		if (!glake_torch_shortage_begin(asked.number))
			continue;
		python.last = asked;
		glk_add_relaxed(&python.begun, 1);
		rest(glk_load_relaxed(&python.takes));
		glake_torch_shortage_end(asked.want);
	}
}

static struct {
	int64_t took; /* ns */
	size_t freed;
} answer;

static void request(size_t want, int64_t within)
{
	int64_t begun = glk_clock_ns();

	answer.freed =
		ask(NULL, 3, want, (struct CUstream_st *)8, within ? begun + within : 0);
	answer.took = glk_clock_ns() - begun;
}

static bool took(int64_t ns)
{
	return answer.took >= ns && (!EXACT || answer.took < ns + MS);
}

static void nobody(void)
{
	request(MIB, 0);
	ok(!answer.freed && took(BEGINS_NS),
		"a thread that does not come is not waited for");
	request(MIB, 5 * MS);
	ok(!answer.freed && took(5 * MS), "and less where an answer would be late");
}

static void *another(void *ret_freed)
{
	*(size_t *)ret_freed = ask(NULL, 0, 2 * MIB, NULL, 0);
	return NULL;
}

static void somebody(void)
{
	pthread_t server, other;
	size_t freed = 0;

	pthread_create(&server, NULL, serve, NULL);
	glk_store_relaxed(&python.takes, 500 * MS);
	request(MIB, 0);
	ok(answer.freed == MIB && took(500 * MS), "one that has begun is waited for");
	ok(python.last.device == 3 && python.last.stream == 8 &&
			python.last.want == MIB && !python.last.deadline_ns,
		"  and knows what it is asked");
	request(MIB, 100 * MS);
	ok(!answer.freed && took(100 * MS), "until its answer would be late");
	request(MIB, 0);
	ok(answer.freed == MIB && took(900 * MS), "the next one comes behind it");
	glk_store_relaxed(&python.takes, ENDS_NS + 200 * MS);
	request(MIB, 0);
	ok(!answer.freed && took(ENDS_NS),
		"one that does not end is not waited for for ever");
	glk_store_relaxed(&python.takes, 0);
	pthread_create(&other, NULL, another, &freed);
	request(MIB, 0);
	pthread_join(other, NULL);
	ok(answer.freed == MIB && freed == 2 * MIB,
		"two that wait for it are both served");
	glk_store_relaxed(&python.begun, 0);
	glk_store_relaxed(&python.lock, BEGINS_NS + 50 * MS);
	request(MIB, 0);
	ok(!answer.freed && took(BEGINS_NS), "nor is Python's lock");
	rest(100 * MS);
	is_int(glk_load_relaxed(&python.begun), 0, "  and then it does not begin");
	glk_store_relaxed(&python.lock, 0);
	request(0, 0);
	pthread_join(server, NULL);
}

int main(void)
{
	tap_start();
	is_int(glake_torch_shortage_set(1), -ESTALE, "without a context there is none");
	nobody();
	somebody();
	return tap_done();
}
