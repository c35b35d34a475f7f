/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of other processes that stays mapped after it was closed, under the preload: what it
 * saves, and that its owner has it back.
 */
#define TAP_NO_LOG
#include "tap.h"

#include "preload_ipc_orders.h"

#include <sched.h>

#define IMPORTED "cuMemImportFromShareableHandle"
#define UNMAPPED "cuMemUnmap"

/* What is closed stays mapped, and serves the next block on those pages. */
static void keeps(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	const size_t size = 20 * MIB;
	fake_address ours = alloc(&owner, size), theirs, other;
	struct calls_handle handle = handle_of(&owner, ours);
	int imported, unmapped, exported;

	tap_note("pages that stay");
	fill(&owner, ours, size, 3);
	theirs = must_open(&user, handle);
	imported = number(&user, COUNT, IMPORTED);
	exported = number(&owner, COUNT, "cuMemExportToShareableHandle");
	unmapped = number(&user, COUNT, UNMAPPED);
	is_int(simple(&user, CLOSE, theirs), 0, "closed");
	other = must_open(&user, handle);
	ok(other == theirs, "opened again, at the same address");
	is_int(differs(&user, other, size, 3), 0, "  the same contents");
	is_int(simple(&user, CLOSE, other), 0, "  closed");
	/* the next blocks of the owner lie there too, cut in another way */
	is_int(simple(&owner, FREE, ours), 0, "the owner frees it");
	is_int(opens(&user, handle, &other), 400, "  which ends the handle");
	ours = alloc(&owner, size / 2 + 5000);
	fill(&owner, ours, size / 2 + 5000, 8);
	other = must_open(&user, handle_of(&owner, ours));
	is_int(differs(&user, other, size / 2 + 5000, 8), 0,
		"a new block on the same pages");
	fill(&user, other, size / 2 + 5000, 9);
	is_int(differs(&owner, ours, size / 2 + 5000, 9), 0, "  in both directions");
	is_int(number(&user, COUNT, IMPORTED), imported, "with nothing imported for it");
	is_int(number(&owner, COUNT, "cuMemExportToShareableHandle"), exported,
		"nor exported");
	is_int(number(&user, COUNT, UNMAPPED), unmapped, "nor unmapped");
	is_int(simple(&user, CLOSE, other), 0, "closed");
	ok(comes_to(&user, number(&user, FIRST_FDS, "") + 2),
		"a connection and what wakes the thread are left");
	/* the owner is out of memory: all comes back before it is told so */
	is_int(simple(&owner, FREE, ours), 0, "freed");
	is_int(simple(&owner, SHORTAGE, 0), 2, "the owner finds no memory");
	ok(has_called(&user, UNMAPPED, unmapped + 1), "the other has let go by then");
	ok(comes_to(&user, number(&user, FIRST_FDS, "") + 1), "of the connection too");
	agent_end(&user);
	agent_end(&owner);
}

/* A connection that its program ends while the thread waits for what comes over it. */
static void refused_often(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	fake_address ours = alloc(&owner, 3 * MIB), theirs;
	struct calls_handle handle = handle_of(&owner, ours);
	int fds, heard = 0, refused = 0;

	tap_note("handles of freed blocks");
	is_int(simple(&owner, FREE, ours), 0, "freed");
	fds = number(&owner, FDS, "");
	for (int i = 0; i < 40; i++) {
		refused += opens(&user, handle, &theirs) == 400;
		heard += comes_to(&owner, fds);
	}
	is_int(refused, 40, "each time it is no good");
	is_int(heard, 40, "  and the owner hears that the connection has ended");
	agent_end(&user);
	agent_end(&owner);
}

/* The end of the owner, a reset, a fork: what is kept goes. */
static void keeps_no_longer(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	fake_address ours = alloc(&owner, 20 * MIB), theirs;
	time_t start;
	int unmapped;

	tap_note("pages that go");
	theirs = must_open(&user, handle_of(&owner, ours));
	is_int(simple(&user, CLOSE, theirs), 0, "closed");
	unmapped = number(&user, COUNT, UNMAPPED);
	is_int(simple(&owner, RESET, 0), 0, "a reset at the owner");
	ok(calls(&user, UNMAPPED, unmapped + 10), "  pages go");
	simple(&owner, TAKE_CONTEXT, 0);
	ours = alloc(&owner, 6 * MIB);
	fill(&owner, ours, 6 * MIB, 2);
	theirs = must_open(&user, handle_of(&owner, ours));
	is_int(differs(&user, theirs, 6 * MIB, 2), 0, "  and others come");
	is_int(simple(&user, CLOSE, theirs), 0, "  closed");
	is_int(simple(&user, FORK, 0), 0, "the opener forks");
	unmapped = number(&user, COUNT, UNMAPPED);
	agent_kill(&owner);
	ok(calls(&user, UNMAPPED, unmapped + 3), "the owner is killed: they go");
	ok(comes_to(&user, number(&user, FIRST_FDS, "") + 1), "  the connection too");
	agent_end(&user);
	owner = agent_new(0);
	user = agent_new(0);
	theirs = must_open(&user, handle_of(&owner, alloc(&owner, 6 * MIB)));
	simple(&user, CLOSE, theirs);
	is_int(simple(&user, RESET, 0), 0, "a reset at the opener");
	simple(&user, TAKE_CONTEXT, 0);
	ours = alloc(&owner, 9 * MIB);
	fill(&owner, ours, 9 * MIB, 4);
	theirs = must_open(&user, handle_of(&owner, ours));
	is_int(differs(&user, theirs, 9 * MIB, 4), 0, "  after which all is as before");
	simple(&user, CLOSE, theirs);
	is_int(simple(&owner, FREE, ours), 0, "freed");
	kill(user.pid, SIGSTOP);
	waitpid(user.pid, NULL, WUNTRACED);
	is_int(simple(&owner, SHORTAGE, 0), 2, "one who keeps pages is stopped");
	start = agent_seconds();
	for (int i = 0; i < 10; i++)
		simple(&owner, SHORTAGE, 0);
	if (agent_real_time())
		ok(agent_seconds() - start < 5, "  and waited for once");
	kill(user.pid, SIGCONT);
	for (int i = 0; i < 70; i++) {
		simple(&owner, RESET, 0);
		simple(&owner, TAKE_CONTEXT, 0);
		ours = alloc(&owner, 3 * MIB);
		theirs = must_open(&user, handle_of(&owner, ours));
		simple(&user, CLOSE, theirs);
	}
	agent_kill(&user);
	is_int(simple(&owner, FREE, ours), 0, "one who keeps pages is killed");
	is_int(simple(&owner, SHORTAGE, 0), 2, "  and nobody waits for it");
	agent_end(&owner);
}

/* Pages are heard of while another block of their owner is open, too. */
static void keeps_beside(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	const size_t size = 40 * MIB;
	fake_address large = alloc(&owner, size), small = alloc(&owner, 4 * MIB);
	fake_address theirs, open;
	int unmapped;

	tap_note("pages that stay beside a block that is open");
	theirs = must_open(&user, handle_of(&owner, large));
	fill(&owner, small, 4 * MIB, 5);
	open = must_open(&user, handle_of(&owner, small));
	unmapped = number(&user, COUNT, UNMAPPED);
	is_int(simple(&user, CLOSE, theirs), 0, "one of two is closed");
	is_int(number(&user, COUNT, UNMAPPED), unmapped, "  and stays");
	is_int(simple(&owner, FREE, large), 0, "  and is freed");
	is_int(simple(&owner, SHORTAGE, 0), 2, "the owner finds no memory");
	ok(has_called(&user, UNMAPPED, unmapped + 1), "the other has let go by then");
	ok(gets(&owner, FAKE_MEMORY - 16 * MIB), "  and the owner has it back");
	is_int(differs(&user, open, 4 * MIB, 5), 0, "  without what is open");
	is_int(simple(&user, CLOSE, open), 0, "closed");
	agent_end(&user);
	agent_end(&owner);
}

#define MANY_BLOCKS 300

/* A stopped owner holds nobody's close, however many there are. */
static void stopped(void)
{
	static fake_address theirs[MANY_BLOCKS], ours[MANY_BLOCKS];
	struct agent owner = agent_new(0), user = agent_new(0);
	int64_t start, each, most = 0, sum = 0;
	int wrong = 0;

	tap_note("an owner that is stopped while blocks are closed");
	for (int i = 0; i < MANY_BLOCKS; i++) {
		struct order order = {
			.what = HANDLE, .ptr = ours[i] = alloc(&owner, 5000)};

		tell(&owner, &order);
		wrong += opens(&user, order.handle, &theirs[i]) != 0;
	}
	is_int(wrong, 0, "opened");
	kill(owner.pid, SIGSTOP);
	waitpid(owner.pid, NULL, WUNTRACED);
	for (int i = 0; i < MANY_BLOCKS; i++) {
		start = agent_ns();
		wrong += simple(&user, CLOSE, theirs[i]) != 0;
		each = agent_ns() - start;
		most = each > most ? each : most;
		sum += each;
	}
	is_int(wrong, 0, "closed");
	/* one by one: a busy machine may be late for all of them together */
	if (agent_real_time())
		ok(most < INT64_C(5000000000) && sum < INT64_C(60000000000),
			"  before an answer would have been given up");
	kill(owner.pid, SIGCONT);
	for (int i = 0; i < MANY_BLOCKS; i++)
		wrong += simple(&owner, FREE, ours[i]) != 0;
	is_int(wrong, 0, "the owner goes on, and frees them");
	ok(gets(&owner, FAKE_MEMORY - 16 * MIB), "  and holds none");
	agent_end(&user);
	agent_end(&owner);
}

#define STALE_BLOCKS 60
#define STALE_SIZE   (60 * MIB)
#define STALE_PAGES                                                                      \
	((int)(STALE_BLOCKS / 2 * (STALE_SIZE / (2 * MIB)))) /* of the later half */

/* One that closes nothing, as libraries do that keep what they have opened until they meet its address
 * again: more than thrice what the GPU has is freed and had again meanwhile. */
static void closes_late(void)
{
	static fake_address theirs[STALE_BLOCKS];
	struct agent owner = agent_new(0), user = agent_new(0);
	int refused = 0, wrong = 0, imported = 0, closed = 0;
	const size_t size = STALE_SIZE;
	struct order order;

	tap_note("one that closes nothing");
	for (int i = 0; i < STALE_BLOCKS; i++) {
		fake_address ours = alloc_when_it_goes(&owner, size);

		if (i == STALE_BLOCKS / 2)
			imported = number(&user, COUNT, IMPORTED);
		fill(&owner, ours, size, i);
		order = (struct order){.what = HANDLE, .ptr = ours};
		refused += tell(&owner, &order) != 0;
		refused += opens(&user, order.handle, &theirs[i]) != 0;
		wrong += differs(&user, theirs[i], size, i) != 0;
		refused += simple(&owner, FREE, ours) != 0;
	}
	is_int(refused, 0, "more than thrice the memory is opened and freed");
	is_int(wrong, 0, "  each block with its contents");
	is_int(differs(&user, theirs[STALE_BLOCKS - 1], size, STALE_BLOCKS - 1), 0,
		"  which it has while little else was freed");
	imported = number(&user, COUNT, IMPORTED) - imported;
	tap_note("of %d pages that came back %d are not known", STALE_PAGES, imported);
	/* who is asked for pages and is late lets more of them go than it has to */
	if (agent_real_time())
		ok(imported < STALE_PAGES / 4, "pages that came back are known");
	is_int(simple(&owner, SHORTAGE, 0), 2, "the owner finds no memory");
	ok(gets(&owner, FAKE_MEMORY - 16 * MIB), "  and has all of it by then");
	for (int i = 0; i < STALE_BLOCKS; i++)
		closed += simple(&user, CLOSE, theirs[i]) == 0;
	is_int(closed, STALE_BLOCKS, "each is closed once");
	ok(simple(&user, CLOSE, theirs[0]) != 0, "  and not twice");
	agent_end(&user);
	agent_end(&owner);
}

#define TOLD_BLOCKS 800

/* More blocks are freed than a stopped opener has room to be told of. */
static void told_late(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	static fake_address ours[TOLD_BLOCKS];
	int wrong = 0;

	tap_note("one that is stopped while hundreds of its blocks are freed");
	for (int i = 0; i < TOLD_BLOCKS; i++) {
		struct order order = {
			.what = HANDLE, .ptr = ours[i] = alloc(&owner, 300000)};
		fake_address theirs;

		wrong += tell(&owner, &order) != 0;
		wrong += opens(&user, order.handle, &theirs) != 0;
	}
	is_int(wrong, 0, "opened");
	kill(user.pid, SIGSTOP);
	waitpid(user.pid, NULL, WUNTRACED);
	for (int i = 0; i < TOLD_BLOCKS; i++)
		wrong += simple(&owner, FREE, ours[i]) != 0;
	is_int(wrong, 0, "freed");
	ok(!alloc(&owner, FAKE_MEMORY - 16 * MIB), "their memory is not there");
	kill(user.pid, SIGCONT);
	ok(gets(&owner, FAKE_MEMORY - 16 * MIB), "until the other goes on");
	agent_end(&user);
	agent_end(&owner);
}

/* A block that is freed while another process opens it is let go of as well. */
static void freed_meanwhile(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	const size_t size = FAKE_MEMORY / 2;
	struct order order;
	int late = 0, kept = 0, rounds = 0;

	tap_note("one that opens what is being freed");
	/* and on, with longer moments, until one came in time */
	for (; rounds < 40 || (agent_real_time() && late == rounds && rounds < 1000);
		rounds++) {
		fake_address ours = alloc(&owner, size);

		order = (struct order){.what = HANDLE, .ptr = ours};
		tell(&owner, &order);
		order = (struct order){.what = OPEN, .number = 1, .handle = order.handle};
		send(user.fd, &order, sizeof(order), MSG_NOSIGNAL);
		for (int i = rounds % 10 * (rounds / 40 + 1); i > 0; i -= 2)
			tap_moment();
		simple(&owner, FREE, ours);
		simple(&owner, SHORTAGE, 0);
		recv(user.fd, &order, sizeof(order), 0);
		late += order.result != 0;
		kept += !gets(&owner, FAKE_MEMORY - 16 * MIB);
		if (!order.result)
			simple(&user, CLOSE, order.ptr);
	}
	is_int(kept, 0, "its owner has it back, however late it was opened");
	tap_note("in %d rounds of %d", rounds - late, rounds);
	if (agent_real_time())
		ok(late < rounds, "which it was at times");
	agent_end(&user);
	agent_end(&owner);
}

/* What the owner took along serves nobody here, and may be closed once. */
static void gone_with_its_owner(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	struct order range = {.what = RANGE};
	fake_address ours = alloc(&owner, 20 * MIB), theirs;

	tap_note("a block that is freed by an owner that ends");
	theirs = must_open(&user, handle_of(&owner, ours));
	is_int(simple(&owner, FREE, ours), 0, "freed");
	is_int(simple(&owner, SHORTAGE, 0), 2, "the owner finds no memory");
	agent_kill(&owner);
	ok(comes_to(&user, number(&user, FIRST_FDS, "") + 1), "the connection is gone");
	range.ptr = theirs + 4096;
	ok(tell(&user, &range) != 0, "nothing is known of its addresses");
	is_int(simple(&user, CLOSE, theirs), 0, "it is closed once");
	ok(simple(&user, CLOSE, theirs) != 0, "  and not twice");
	agent_end(&user);
}

#define MANY_ROUNDS 400
#define ASKED_TURNS 4

/* What could not be told to one that is stopped costs it nothing of what it has open. */
static void asked_often(void)
{
	cpu_set_t before, one;
	struct agent owner, user;
	const size_t size = 20 * MIB;
	fake_address ours, theirs, next;
	struct order order = {.what = OPEN, .number = 1};
	int refused = 0, opened = 0;

	tap_note("one that is asked for pages again and again, and does not read");
	/* so that the owner answers before the other has read what came first */
	sched_getaffinity(0, sizeof(before), &before);
	CPU_ZERO(&one);
	for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &before))
			CPU_SET(i, &one);
	sched_setaffinity(0, sizeof(one), &one);
	owner = agent_new(0);
	user = agent_new(0);
	sched_setaffinity(0, sizeof(before), &before);
	setpriority(PRIO_PROCESS, (id_t)user.pid, 19);
	ours = alloc(&owner, size);
	fill(&owner, ours, size, 3);
	theirs = must_open(&user, handle_of(&owner, ours));
	order.handle = handle_of(&owner, alloc(&owner, 4 * MIB));
	for (int turn = 0; turn < ASKED_TURNS; turn++) {
		kill(user.pid, SIGSTOP);
		waitpid(user.pid, NULL, WUNTRACED);
		for (int i = 0; i < MANY_ROUNDS; i++)
			refused += simple(&owner, SHORTAGE, 0) == 2;
		send(user.fd, &order, sizeof(order), MSG_NOSIGNAL);
		kill(user.pid, SIGCONT);
		recv(user.fd, &order, sizeof(order), 0);
		opened += !order.result && !simple(&user, CLOSE, order.ptr);
	}
	is_int(refused, ASKED_TURNS * MANY_ROUNDS, "the owner finds no memory");
	is_int(opened, ASKED_TURNS, "the other goes on, and opens a block");
	is_int(simple(&owner, FREE, ours), 0, "one that it had open is freed");
	next = alloc(&owner, size);
	fill(&owner, next, size, 99);
	is_int(differs(&user, theirs, size, 3), 0, "  and its pages serve no other");
	is_int(simple(&user, CLOSE, theirs), 0, "  until it is closed");
	is_int(simple(&owner, FREE, next), 0, "all is freed");
	ok(gets(&owner, FAKE_MEMORY - 16 * MIB), "  and the owner has it back");
	agent_end(&user);
	agent_end(&owner);
}

static void threads(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	struct order order = {.what = THREADS};

	tap_note("threads");
	for (int i = 0; i < THREAD_HANDLES; i++) {
		fake_address ptr = alloc(&owner, MIB + (size_t)i * 300000);

		fill(&owner, ptr, 4096, i);
		order.handle = handle_of(&owner, ptr);
		order.number = i;
		order.what = KEEP;
		tell(&user, &order);
	}
	order.what = THREADS;
	tell(&user, &order);
	is_int(order.number, 0, "threads that open and close the same handles");
	ok(number(&user, FDS, "") - number(&user, FIRST_FDS, "") <= 2,
		"leave no descriptor but the connection, and what wakes the thread");
	agent_end(&user);
	agent_end(&owner);
}

int main(int count, char **arguments)
{
	tap_plan_later();
	agent_route = count > 1 ? arguments[1] : "dlsym";
	setenv("GLAKE_POOL_LARGE_PAGE", "2MiB", 1);
	keeps();
	keeps_beside();
	refused_often();
	keeps_no_longer();
	stopped();
	closes_late();
	told_late();
	freed_meanwhile();
	gone_with_its_owner();
	asked_often();
	threads();
	setenv("GLAKE_SHARE_KEEP", "0", 1);
	threads();
	return tap_done();
}
