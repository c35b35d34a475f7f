/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Thousands of blocks of one process open in another one, under the preload, as programs have them
 * that open every buffer that they are sent once and keep it. What each step costs must not grow
 * with what is there: it is measured as processor time of both processes, the library's threads
 * included, for each thousand, where GLAKE_TEST_REAL_TIME is set.
 *
 *	preload-ipc-many dlsym [BLOCKS]
 */
#define TAP_NO_LOG
#include "tap.h"

#include "preload_calls.h"

#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST	17000
#define HANDLES 16384 /* that a process gives at most */
#define SIZE	((size_t)4096)
#define STUCK_S 900 /* the test itself has less time */
/* Times, and so many ns each: other programs share the processor's caches. What looks at all that there are
 * takes six times as long for the last as for those that are measured first. */
#define MAY_DIFFER 4
#define CUSHION_NS 2000
/* A machine that is busy elsewhere can slow down all that is measured at one end; what grows does
 * so each time. */
#define ROUNDS 3

enum step {
	ALLOC,
	NUMBER,
	GIVE,
	OPEN,
	AGAIN,
	RANGE,
	CLOSE,
	REOPEN,
	FREE,
	CLOSE_FREED,
	STEPS
};

static const char *const names[STEPS] = {"allocate", "number", "give a handle", "open",
	"open again", "range", "close", "open anew", "free what is open",
	"close what is freed"};

static struct shared {
	sem_t mine, yours;
	enum step step;
	int from, to, failed;
	clockid_t owner, user;
	fake_address ours[MOST], theirs[MOST];
	struct calls_handle handle[MOST];
} * shared;

static fake_result one(const struct calls *cu, enum step step, int i)
{
	fake_address *ours = &shared->ours[i], *theirs = &shared->theirs[i], again = 0;
	uint64_t number = 0;
	size_t size = 0;

	switch (step) {
	case ALLOC:
		return cu->cuMemAlloc(ours, SIZE);
	case NUMBER:
		return cu->cuPointerGetAttribute(&number, 7, *ours) || !number;
	case GIVE:
		return cu->cuIpcGetMemHandle(&shared->handle[i], *ours);
	case OPEN:
	case REOPEN:
		return cu->cuIpcOpenMemHandle(theirs, shared->handle[i], 1);
	case AGAIN:
		return cu->cuIpcOpenMemHandle(&again, shared->handle[i], 1) ||
			again != *theirs || cu->cuIpcCloseMemHandle(*theirs);
	case RANGE:
		return cu->cuMemGetAddressRange(&again, &size, *theirs + SIZE / 2) ||
			again != *theirs || size != SIZE;
	case CLOSE:
	case CLOSE_FREED:
		return cu->cuIpcCloseMemHandle(*theirs);
	case FREE:
		return cu->cuMemFree(*ours);
	default:
		return 1;
	}
}

static _Noreturn void owner(void)
{
	struct calls cu = calls_by("dlsym");

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(STUCK_S);
	calls_use(&cu, 0);
	sem_post(&shared->mine);
	for (;;) {
		sem_wait(&shared->yours);
		for (int i = shared->from; i < shared->to; i++)
			shared->failed += one(&cu, shared->step, i) != 0;
		sem_post(&shared->mine);
	}
}

static bool is_judged(void)
{
	return getenv("GLAKE_TEST_REAL_TIME");
}

static int64_t now(clockid_t clock)
{
	struct timespec time = {0};

	if (is_judged())
		clock_gettime(clock, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int64_t spent(void)
{
	return now(CLOCK_PROCESS_CPUTIME_ID) + now(shared->owner);
}

static bool is_owners(enum step step)
{
	return step == ALLOC || step == NUMBER || step == GIVE || step == FREE;
}

static void take(const struct calls *cu, enum step step, int from, int to)
{
	if (!is_owners(step)) {
		for (int i = from; i < to; i++)
			shared->failed += one(cu, step, i) != 0;
		return;
	}
	shared->step = step;
	shared->from = from;
	shared->to = to;
	sem_post(&shared->yours);
	sem_wait(&shared->mine);
}

/* What the steps took: failures of all rounds, and whether no round so far had one cost. */
static struct {
	int failed;
	bool differs;
} found[STEPS];

/* The least of ten times, so that what comes between does not count. */
static void measure(const struct calls *cu, enum step step, int blocks)
{
	int64_t first = INT64_MAX, last = INT64_MAX, from, taken, less, more;
	int hundred = blocks / 100;

	shared->failed = 0;
	for (int i = 0; i < blocks; i += hundred) {
		from = spent();
		take(cu, step, i, i + hundred);
		taken = spent() - from;
		/* the second ten: the first also have what is done once */
		if (i >= 10 * hundred && i < 20 * hundred)
			first = taken < first ? taken : first;
		if (i >= 90 * hundred)
			last = taken < last ? taken : last;
	}
	less = first < last ? first : last;
	more = first < last ? last : first;
	found[step].failed += shared->failed;
	if (more <= MAY_DIFFER * less + CUSHION_NS * hundred)
		found[step].differs = false;
	tap_note("%-20s %7.2f us each at first, %7.2f at last", names[step],
		(double)first / hundred / 1e3, (double)last / hundred / 1e3);
}

static void measure_all(const struct calls *cu, int blocks)
{
	bool again = true;

	for (enum step step = 0; step < STEPS; step++)
		found[step].differs = true;
	for (int round = 0; round < (is_judged() ? ROUNDS : 1) && again; round++) {
		again = false;
		for (enum step step = 0; step < STEPS; step++) {
			measure(cu, step, blocks);
			again = again || found[step].differs;
		}
	}
	for (enum step step = 0; step < STEPS; step++) {
		is_int(found[step].failed, 0, names[step]);
		if (is_judged())
			ok(!found[step].differs, "  at the same cost from first to last");
	}
}

static int fails(const struct calls *cu, enum step step, int from, int to)
{
	shared->failed = 0;
	take(cu, step, from, to);
	return shared->failed;
}

/* Numbers are for whoever asks; only handles have a limit. */
static void numbers(const struct calls *cu)
{
	is_int(fails(cu, ALLOC, 0, MOST), 0, "more blocks than there are handles");
	is_int(fails(cu, NUMBER, 0, MOST), 0, "each has a number");
	is_int(fails(cu, GIVE, 0, HANDLES), 0, "which takes no room of a handle");
	is_int(fails(cu, GIVE, 0, HANDLES), 0, "and a block has one once");
	is_int(fails(cu, GIVE, HANDLES, MOST), MOST - HANDLES, "there are no more");
	is_int(fails(cu, OPEN, HANDLES - 10, HANDLES), 0, "the last are good");
	is_int(fails(cu, CLOSE, HANDLES - 10, HANDLES), 0, "  and closed");
	is_int(fails(cu, FREE, 0, MOST), 0, "all are freed");
	is_int(fails(cu, OPEN, 0, 10), 10, "no handle is good then");
}

int main(int count, char **arguments)
{
	int blocks = count > 2 ? atoi(arguments[2]) : 10000;
	struct calls cu;
	pid_t pid;

	if (blocks < 10 || blocks > MOST)
		return 2;
	tap_plan((is_judged() ? 2 : 1) * STEPS + 9);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || sem_init(&shared->mine, 1, 0) ||
		sem_init(&shared->yours, 1, 0))
		tap_bail("no memory");
	alarm(STUCK_S);
	pid = fork();
	if (!pid)
		owner();
	sem_wait(&shared->mine);
	clock_getcpuclockid(pid, &shared->owner);
	cu = calls_by("dlsym");
	calls_use(&cu, 0);
	measure_all(&cu, blocks);
	numbers(&cu);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return tap_done();
}
