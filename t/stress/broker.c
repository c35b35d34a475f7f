/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Clients of a broker that come, take, give and are killed, as many as GLAKE_CLIENTS at a time for GLAKE_SECONDS: each is
 * a process that speaks for itself, and writes what it was granted where all can see it. Who lives holds no more than
 * there is, together; in the end nothing is held, and the broker is as large as it was when it had all of them once.
 *
 * The oracle	A client counts bytes when it has read of them, and counts them off before it gives them; one that is
 *		about to be killed is counted off before. So the sum over those who live is never more than the broker
 *		has granted, and who finds more than the total in it has found a byte that was given twice
 */
#include "share/broker.h"
#include "base/clock.h"
#include "seed.h"
#include "share/share.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST  1000
#define MIB   (UINT64_C(1) << 20)
#define TOTAL (1000 * MIB)

static struct shared {
	/* The version of what follows, the bytes that it counts, and whether it does so no more. */
	_Atomic uint64_t word[MOST];
	_Atomic uint64_t grants, refusals, twice, broken;
} * shared;

#define GONE UINT64_C(1)

static uint64_t held_of(uint64_t word)
{
	return word >> 1 & 0x7fffffff;
}

static uint64_t held(int i)
{
	return held_of(atomic_load(&shared->word[i]));
}

static void count(int i, int64_t bytes)
{
	uint64_t old = atomic_load(&shared->word[i]), new;

	do {
		new = ((old >> 32) + 1) << 32 | (held_of(old) + (uint64_t)bytes) << 1 |
			(old & GONE);
	} while (!atomic_compare_exchange_weak(&shared->word[i], &old, new));
}

static char path[108];
static int clients = 100;

static int number(const char *name, int otherwise)
{
	const char *given = getenv(name);

	return given ? atoi(given) : otherwise;
}

/* ---- A client ---- */

static int fd = -1, bell = -1;

static void say(uint32_t kind, const void *body, size_t size, const int *with)
{
	if (glk_wire_send(fd, kind, body, size, with, with ? 1 : 0, 20000))
		_exit(2);
}

static void come(uint64_t seed)
{
	struct glk_broker_hello hello = {
		.version = GLK_BROKER_VERSION, .gpus = 1, .self = seed, .name = "client"};
	char why[GLK_WIRE_WHY_MAX];
	struct glk_wire_frame frame;
	struct glk_wire_peer peer;
	int ends[2];

	strcpy(hello.gpu[0].uuid, "GPU-x");
	hello.gpu[0].memory = TOTAL;
	if (glk_wire_dial(path, 20000, &fd, &peer, why) ||
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		_exit(2);
	bell = ends[0];
	say(GLK_BROKER_HELLO, &hello, sizeof(hello), &ends[1]);
	close(ends[1]);
	if (glk_wire_receive(fd, &frame, 20000) || frame.kind != GLK_BROKER_WELCOME)
		_exit(2);
}

/* Others go on meanwhile: only what is the same in two passes was so at one time. */
static uint64_t sum_of(bool *ret_same)
{
	static uint64_t seen[MOST];
	uint64_t sum = 0;

	*ret_same = true;
	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < clients; i++) {
			uint64_t word = atomic_load(&shared->word[i]);

			if (pass)
				*ret_same &= word == seen[i];
			else
				sum += word & GONE ? 0 : held_of(word);
			seen[i] = word;
		}
	}
	return sum;
}

static void look(void)
{
	bool same = false;

	for (int i = 0; i < 100 && !same && sum_of(&same) > TOTAL; i++)
		if (same)
			atomic_fetch_add(&shared->twice, 1);
}

static void take(int me, uint64_t *seed)
{
	struct glk_broker_want want = {.least = MIB * (1 + seed_below(seed, 20))};
	struct glk_broker_bytes granted;
	struct glk_wire_frame frame;
	int ends[2] = {-1, -1}, from = fd;

	want.like = want.least * 2;
	if (seed_below(seed, 2)) {
		want.wait_ns = (int64_t)seed_below(seed, 50) * 1000000 + 1;
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
			_exit(2);
		from = ends[0];
	}
	say(GLK_BROKER_WANT, &want, sizeof(want), from == fd ? NULL : &ends[1]);
	if (from != fd)
		close(ends[1]);
	if (glk_wire_receive(from, &frame, 60000))
		_exit(2);
	if (from != fd)
		close(from);
	if (frame.kind == GLK_BROKER_REFUSED) {
		atomic_fetch_add(&shared->refusals, 1);
		return;
	}
	memcpy(&granted, frame.body, sizeof(granted));
	if (frame.kind != GLK_BROKER_GRANTED || granted.bytes < want.least ||
		granted.bytes > want.like)
		atomic_fetch_add(&shared->broken, 1);
	count(me, (int64_t)granted.bytes);
	atomic_fetch_add(&shared->grants, 1);
	look();
}

static void give(int me, uint64_t bytes)
{
	struct glk_broker_bytes given = {.bytes = bytes};

	count(me, -(int64_t)bytes);
	say(GLK_BROKER_GIVE, &given, sizeof(given), NULL);
}

static void hear(int me, uint64_t *seed)
{
	const struct glk_broker_bytes none = {.bytes = 0};
	struct glk_wire_frame frame;

	while (!glk_wire_receive(bell, &frame, 0)) {
		/* some do not answer */
		if (!seed_below(seed, 8))
			continue;
		if (seed_below(seed, 2))
			give(me, held(me) / 2);
		say(GLK_BROKER_TOLD, &none, sizeof(none), NULL);
	}
}

static void client(int me, uint64_t seed)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	come(seed_next(&seed));
	for (;;) {
		hear(me, &seed);
		if (seed_below(&seed, 3))
			take(me, &seed);
		else
			give(me, seed_below(&seed, held(me) + 1));
		usleep((useconds_t)seed_below(&seed, 20000));
		if (seed_below(&seed, 50))
			continue;
		/* all goes, or with it who has it */
		if (seed_below(&seed, 2))
			give(me, held(me));
		atomic_fetch_or(&shared->word[me], GONE);
		say(GLK_BROKER_BYE, NULL, 0, NULL);
		_exit(0);
	}
}

/* ---- Who sends them ---- */

static long broker_kib(pid_t pid)
{
	char name[48], line[128];
	long kib = -1;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/status", pid);
	file = fopen(name, "r");
	while (file && kib < 0 && fgets(line, sizeof(line), file))
		sscanf(line, "VmRSS: %ld", &kib);
	if (file)
		fclose(file);
	return kib;
}

/* What the broker says of itself: whether nothing is held, by nobody. */
static bool is_empty(void)
{
	char why[GLK_WIRE_WHY_MAX], text[8192] = "";
	struct glk_wire_frame frame;
	struct glk_wire_peer peer;
	int to;

	if (glk_wire_dial(path, 5000, &to, &peer, why))
		return false;
	if (!glk_wire_send(to, GLK_BROKER_LIST, NULL, 0, NULL, 0, 5000) &&
		!glk_wire_receive(to, &frame, 5000)) {
		if (pread(frame.fd[0], text, sizeof(text) - 1, 0) < 0)
			*text = '\0';
		glk_wire_frame_close(&frame);
	}
	close(to);
	return strstr(text, "\"held\":0,") && strstr(text, "\"clients\":[]");
}

static pid_t start(int i, uint64_t *seed)
{
	uint64_t own = seed_next(seed);
	pid_t pid;

	atomic_store(&shared->word[i], ((atomic_load(&shared->word[i]) >> 32) + 1) << 32);
	pid = fork();
	if (!pid)
		client(i, own | 1);
	if (pid < 0)
		tap_bail("no process");
	return pid;
}

int main(void)
{
	struct glk_broker_options options = {.socket = path, .total = TOTAL};
	int64_t until, first = 0, seconds = number("GLAKE_SECONDS", 10);
	uint64_t seed = seed_start();
	char folder[] = "/tmp/glake-broker-XXXXXX";
	static pid_t pid[MOST];
	pid_t broker, gone;
	long early = 0, late;
	int kills = 0, status, bad = 0;

	clients = number("GLAKE_CLIENTS", clients);
	clients = clients < MOST ? clients : MOST;
	tap_plan_later();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || !mkdtemp(folder))
		tap_bail("no memory, or no folder");
	snprintf(path, sizeof(path), "%s/b.sock", folder);
	broker = fork();
	if (!broker) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		_exit(glk_broker_run(&options));
	}
	while (access(path, F_OK))
		usleep(1000);
	for (int i = 0; i < clients; i++)
		pid[i] = start(i, &seed);
	until = glk_clock_ns() + seconds * 1000000000;
	first = glk_clock_ns() + seconds * 500000000;
	while (glk_clock_ns() < until) {
		int i = (int)seed_below(&seed, (uint64_t)clients);

		if (!early && glk_clock_ns() > first)
			early = broker_kib(broker);
		atomic_fetch_or(&shared->word[i], GONE);
		kill(pid[i], SIGKILL);
		kills++;
		while ((gone = waitpid(-1, &status, WNOHANG)) > 0) {
			bad += WIFEXITED(status) && WEXITSTATUS(status);
			for (int k = 0; k < clients; k++)
				if (pid[k] == gone)
					pid[k] = start(k, &seed);
		}
		usleep(2000);
	}
	late = broker_kib(broker);
	for (int i = 0; i < clients; i++) {
		atomic_fetch_or(&shared->word[i], GONE);
		kill(pid[i], SIGKILL);
	}
	for (int i = 0; i < clients; i++)
		waitpid(pid[i], NULL, 0);
	tap_note("%d clients for %lld s: %llu grants, %llu refusals, %d killed", clients,
		(long long)seconds, (unsigned long long)shared->grants,
		(unsigned long long)shared->refusals, kills);
	tap_note("the broker: %ld KiB half way, %ld KiB in the end", early, late);
	is_int((int64_t)shared->twice, 0, "no byte is given twice");
	is_int((int64_t)shared->broken, 0, "each grant is what was wanted");
	is_int(bad, 0, "no client was left alone");
	ok(shared->grants > 0 && shared->refusals > 0,
		"some were granted, and some refused");
	for (int i = 0; i < 1000 && !is_empty(); i++)
		usleep(10000);
	ok(is_empty(), "in the end nothing is held");
	ok(late <= early + early / 10 + 256, "the broker is as large as it was");
	kill(broker, SIGTERM);
	is_int(waitpid(broker, &status, 0) == broker ? status : -1, 0, "it ends");
	rmdir(folder);
	return tap_done();
}
