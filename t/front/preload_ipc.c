/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of one process in others, under the preload. Each process is a child that does what it
 * is told, a call at a time, so that all happens in the order in which it stands here.
 */
#define TAP_NO_LOG
#include "tap.h"

#include "preload_ipc_orders.h"

#include "front/preload/ipc.h"

#include <grp.h>
#include <sys/un.h>

#define PAGES_MANY 300

static void shares(size_t size, const char *what)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	fake_address ours = alloc(&owner, size), theirs, again, base;
	struct calls_handle handle, other;
	struct order range;
	int fds;

	tap_note("%s", what);
	fill(&owner, ours, size, 3);
	fds = number(&owner, FDS, "");
	handle = handle_of(&owner, ours);
	other = handle_of(&owner, ours + size / 2);
	ok(!memcmp(&handle, &other, sizeof(handle)), "the inside has the same");
	is_int(number(&owner, COUNT, "cuIpcGetMemHandle"), 0, "not the driver's");
	theirs = must_open(&user, handle);
	is_int(differs(&user, theirs, size, 3), 0, "the same contents");
	is_int(must_open(&user, handle) == theirs, 1, "again, at the same address");
	range = (struct order){.what = RANGE, .ptr = theirs + size - 1};
	is_int(tell(&user, &range), 0, "a range of it");
	ok(range.ptr == theirs && range.size == size, "  is the whole");
	fill(&user, theirs, size, 7);
	is_int(differs(&owner, ours, size, 7), 0, "what one writes the other reads");
	is_int(simple(&user, CLOSE, theirs + 1), 1, "the inside is not closed");
	is_int(simple(&user, CLOSE, theirs), 0, "closed once");
	is_int(differs(&user, theirs, size, 7), 0, "  it is still there");
	is_int(simple(&user, CLOSE, theirs), 0, "and twice");
	ok(simple(&user, CLOSE, theirs) != 0, "and no more");
	is_int(tell(&user, &range) != 0, 1, "its range is no more");
	is_int(number(&user, FDS, "") - number(&user, FIRST_FDS, ""), 1,
		"the opener keeps no descriptor but what wakes its thread");
	again = must_open(&user, handle);
	is_int(differs(&user, again, size, 7), 0, "opened anew");
	is_int(simple(&owner, FREE, ours), 0, "the owner frees it");
	base = alloc(&owner, size / 2);
	fill(&owner, base, size / 2, 9);
	is_int(differs(&user, again, size, 7), 0, "  which changes nothing for others");
	is_int(opens(&user, handle, &theirs), 0, "  who may open it once more");
	is_int(simple(&user, CLOSE, again), 0, "closed");
	is_int(simple(&user, CLOSE, again), 0, "closed");
	is_int(opens(&user, handle, &theirs), 400, "then the handle is no good");
	is_int(simple(&owner, FREE, base), 0, "freed");
	ok(gets(&owner, FAKE_MEMORY - 16 * MIB), "all of the memory is the owner's");
	ok(comes_to(&owner, fds + 2),
		"who keeps a socket to be asked at, and what wakes its thread");
	other = handle_of(&owner, base = alloc(&owner, size));
	ok(memcmp(&handle, &other, sizeof(handle)) != 0, "a new block has a new handle");
	agent_end(&user);
	agent_end(&owner);
}

static void killed(void)
{
	struct agent owner = agent_new(0), user = agent_new(0), second = agent_new(0);
	const size_t size = 200 * MIB;
	fake_address ours = alloc(&owner, size), theirs, more = alloc(&owner, MIB);
	struct calls_handle handle = handle_of(&owner, ours),
			    other = handle_of(&owner, more);

	tap_note("kill -9");
	must_open(&user, handle);
	theirs = must_open(&second, handle);
	is_int(simple(&owner, FREE, ours), 0, "the owner frees what two have open");
	kill(second.pid, SIGSTOP);
	waitpid(second.pid, NULL, WUNTRACED);
	ok(!alloc(&owner, FAKE_MEMORY - 100 * MIB),
		"one of them is stopped: it is not there");
	kill(second.pid, SIGCONT);
	agent_kill(&user);
	ok(gets(&owner, FAKE_MEMORY - 100 * MIB),
		"one is killed, the other goes on: it is there again");
	is_int(simple(&second, CLOSE, theirs), 0, "who may close it all the same");
	ours = alloc(&owner, size);
	fill(&owner, ours, size, 5);
	theirs = must_open(&second, handle_of(&owner, ours));
	/* a child of the owner holds none of it */
	is_int(simple(&owner, FORK, 0), 0, "the owner forks");
	agent_kill(&owner);
	is_int(differs(&second, theirs, size, 5), 0,
		"the owner is killed, not its memory");
	is_int(opens(&second, other, &more), 400, "nothing more is opened of it");
	is_int(simple(&second, CLOSE, theirs), 0, "closed");
	is_int(opens(&second, other, &more), 400, "by a new connection neither");
	is_int(number(&second, FDS, "") - number(&second, FIRST_FDS, ""), 1,
		"no descriptor is left but what wakes the thread");
	ok(gets(&second, FAKE_MEMORY - 16 * MIB), "memory of one's own is as it was");
	agent_end(&second);
}

static void refused(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	fake_address ours = alloc(&owner, MIB), theirs = 0, ptr;
	struct calls_handle handle = handle_of(&owner, ours), bad = handle;
	struct order order = {.what = OPEN, .handle = handle, .number = 2};

	tap_note("refused");
	is_int(opens(&owner, handle, &ptr), 201, "not in the process that gave it");
	is_int(tell(&user, &order), 1, "flags that there are not");
	order = (struct order){.what = OPEN_NULL, .handle = handle};
	is_int(tell(&user, &order), 1, "no place for the address");
	for (size_t i = 8; i < sizeof(bad); i += 5) {
		bad.reserved[i] = (char)(bad.reserved[i] ^ 0x40);
		if (opens(&user, bad, &ptr) != 400)
			break;
		bad = handle;
	}
	ok(!memcmp(&bad, &handle, sizeof(bad)), "a byte that is wrong");
	memset(&bad, 0x33, sizeof(bad));
	is_int(opens(&user, bad, &ptr), 0, "what is none of ours");
	is_int((int64_t)ptr, 77, "  is the driver's");
	is_int(simple(&user, CLOSE, 77), 0, "  to close too");
	is_int(number(&user, COUNT, "cuIpcOpenMemHandle_v2"), 1, "  once");
	is_int(number(&user, COUNT, "cuIpcCloseMemHandle"), 1, "  each");
	is_int(simple(&user, DROP_CONTEXT, 0), 0, "no context");
	is_int(opens(&user, handle, &ptr), 201, "  no memory");
	is_int(simple(&user, TAKE_CONTEXT, 0), 0, "a context");
	theirs = must_open(&user, handle);
	ok(simple(&user, FREE, theirs) != 0, "cuMemFree is not how it ends");
	order = (struct order){.what = HANDLE, .ptr = theirs};
	is_int(tell(&user, &order), 1, "nor is it given on");
	is_int(simple(&user, CLOSE, theirs), 0, "closed");
	is_int(simple(&owner, RESET, 0), 0, "the GPU of the owner is reset");
	is_int(opens(&user, handle, &ptr), 400, "which ends the handle");
	agent_end(&user);
	agent_end(&owner);
}

static socklen_t address_of(
	const struct calls_handle *handle, struct sockaddr_un *address)
{
	struct glk_preload_ipc_handle ours;
	char *at = address->sun_path + 1;

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	memcpy(&ours, handle, sizeof(ours));
	at += sprintf(at, "glake-");
	for (int i = 0; i < GLK_PRELOAD_IPC_NAME; i++)
		at += sprintf(at, "%02x", ours.name[i]);
	return (socklen_t)(at - (char *)address);
}

/* A process of another user that listens at the name of one that has ended; or 0. */
static pid_t squat(const struct calls_handle *handle)
{
	struct sockaddr_un address;
	socklen_t length = address_of(handle, &address);
	int pair[2], fd;
	char byte = 0;
	pid_t pid;

	if (pipe(pair))
		return 0;
	pid = fork();
	if (!pid) {
		alarm(AGENT_STUCK_S);
		fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		if (setresuid(12345, 12345, 12345) ||
			bind(fd, (struct sockaddr *)&address, length) || listen(fd, 8))
			_exit(1);
		(void)!write(pair[1], "!", 1);
		for (;;)
			pause();
	}
	close(pair[1]);
	if (read(pair[0], &byte, 1) != 1)
		tap_bail("no stranger");
	close(pair[0]);
	return pid;
}

/* A process of another user is not talked to. */
static void strangers(void)
{
	struct order order = {.what = HANDLE};
	time_t start;
	pid_t pid;

	struct agent owner, user;
	struct calls_handle handle;
	fake_address ptr;

	if (geteuid()) {
		tap_skip("another user", "only root can be two users");
		return;
	}
	tap_note("other users");
	owner = agent_new(0);
	user = agent_new(12345);
	handle = handle_of(&owner, alloc(&owner, MIB));
	is_int(opens(&user, handle, &ptr), 400, "another user has none of it");
	agent_end(&user);
	user = agent_new(0);
	must_open(&user, handle);
	agent_kill(&owner);
	agent_end(&user);
	/* root opens what it likes, but not what has taken the place of that */
	user = agent_new(0);
	pid = squat(&handle);
	start = agent_seconds();
	is_int(opens(&user, handle, &ptr), 400,
		"nor is one of another user asked by root");
	if (agent_real_time())
		ok(agent_seconds() - start < 4, "  which does not wait for it");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	agent_end(&user);
	owner = agent_new(65534);
	order.ptr = alloc(&owner, MIB);
	is_int(tell(&owner, &order), 801,
		"a user who cannot be told from others has no handle");
	agent_end(&owner);
}

/* The owner does not answer, for a while. */
static void silent(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	struct calls_handle handle = handle_of(&owner, alloc(&owner, MIB)),
			    other = handle_of(&owner, alloc(&owner, 3 * MIB));
	fake_address first = must_open(&user, handle), ptr;
	time_t start;

	tap_note("an owner that is stopped");
	kill(owner.pid, SIGSTOP);
	waitpid(owner.pid, NULL, WUNTRACED);
	start = agent_seconds();
	is_int(opens(&user, other, &ptr), 205, "is given up");
	if (agent_real_time())
		ok(agent_seconds() - start < 15, "  soon");
	is_int(simple(&user, CLOSE, first), 0, "what is open can be closed");
	kill(owner.pid, SIGCONT);
	ptr = must_open(&user, other);
	is_int(simple(&user, CLOSE, ptr), 0, "closed");
	ok(gets(&owner, FAKE_MEMORY - 16 * MIB), "it keeps nothing for anyone");
	agent_end(&user);
	agent_end(&owner);
}

/* A frame, as lib/wire has it. */
struct said {
	char magic[4];
	uint16_t version, fds;
	uint32_t kind, length;
	struct glk_preload_ipc_question question;
};

/* Whoever talks nonsense is left, and nobody else suffers. */
static void nonsense(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	struct calls_handle handle = handle_of(&owner, alloc(&owner, MIB));
	struct sockaddr_un address;
	socklen_t length = address_of(&handle, &address);
	struct said said = {{'G', 'L', 'K', 'F'}, GLK_WIRE_VERSION, 0, 0, 24, {0}};
	char byte;
	int fd[20];

	for (int i = 0; i < 20; i++) {
		fd[i] = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		if (connect(fd[i], (struct sockaddr *)&address, length))
			tap_bail("no connection");
		said.kind = i % 2 ? 77 : GLK_PRELOAD_IPC_MORE;
		said.question.id = (uint64_t)i;
		said.version = i == 4 ? 9 : GLK_WIRE_VERSION;
		send(fd[i], &said, i % 3 ? sizeof(said) : 5, MSG_NOSIGNAL);
	}
	must_open(&user, handle);
	is_int(recv(fd[0], &byte, 1, 0), 0, "whoever says half a word is left");
	is_int(recv(fd[1], &byte, 1, 0), 0, "or a word that there is not");
	is_int(recv(fd[4], &byte, 1, 0), 0, "or one of another version");
	for (int i = 0; i < 20; i++)
		close(fd[i]);
	agent_end(&user);
	agent_end(&owner);
}

static void others(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	const size_t size = 40 * MIB;
	fake_address ours = alloc(&owner, size), theirs;
	struct calls_handle handle = handle_of(&owner, ours);

	tap_note("another GPU, and a reset");
	fill(&owner, ours, size, 4);
	is_int(simple(&user, USE_SECOND, 0), 0, "an opener on another GPU");
	theirs = must_open(&user, handle);
	is_int(differs(&user, theirs, size, 4), 0, "has the same contents");
	is_int(number(&user, GRANTS, ""), 2, "for both GPUs");
	is_int(simple(&user, CLOSE, theirs), 0, "closed");
	is_int(simple(&user, TAKE_CONTEXT, 0), 0, "on the first");
	theirs = must_open(&user, handle);
	is_int(simple(&user, RESET, 0), 0, "a reset there");
	ok(simple(&user, CLOSE, theirs) != 0, "closes all");
	is_int(simple(&owner, FREE, ours), 0, "freed");
	ok(gets(&owner, FAKE_MEMORY - 16 * MIB), "and the owner hears of it");
	agent_end(&user);
	agent_end(&owner);
}

static fake_result few(struct agent *a, int more)
{
	struct order order = {.what = FEW_FDS, .number = more};

	simple(a, ALL_FDS, 0); /* counting them takes some */
	return tell(a, &order);
}

/* No descriptors are left, here or there. */
static void descriptors(void)
{
	struct agent owner = agent_new(0), user = agent_new(0);
	const size_t size = PAGES_MANY * 2 * MIB - 4096;
	fake_address ours = alloc(&owner, size), small = alloc(&owner, MIB), theirs, ptr;
	struct calls_handle handle = handle_of(&owner, ours);

	tap_note("descriptors");
	theirs = must_open(&user, handle_of(&owner, small));
	fill(&owner, ours, size, 6);
	is_int(few(&user, -5), 0, "an opener with no descriptor");
	is_int(opens(&user, handle, &ptr), 205, "does not get pages");
	is_int(few(&user, 12), 0, "with a dozen");
	ptr = must_open(&user, handle);
	is_int(differs(&user, ptr, size, 6), 0, "it has 300");
	is_int(simple(&user, CLOSE, ptr), 0, "closed");
	is_int(few(&owner, -5), 0, "an owner with none");
	is_int(opens(&user, handle, &ptr), 205, "does not give them");
	is_int(few(&owner, 2), 0, "and with a few");
	ptr = must_open(&user, handle);
	is_int(simple(&user, CLOSE, ptr), 0, "does");
	simple(&user, ALL_FDS, 0);
	simple(&owner, ALL_FDS, 0);
	is_int(simple(&user, CLOSE, theirs), 0, "all closed");
	is_int(number(&user, FDS, "") - number(&user, FIRST_FDS, ""), 1,
		"none is lost, and one wakes the thread");
	is_int(simple(&owner, FREE, ours), 0, "freed");
	ok(gets(&owner, FAKE_MEMORY - 16 * MIB), "nothing is held");
	agent_end(&user);
	agent_end(&owner);
}

/* Pages that the operator has kept from leaving the process. */
static void kept(void)
{
	struct order order = {.what = HANDLE};
	struct agent owner;

	setenv("GLAKE_POOL_EXPORT", "no", 1);
	owner = agent_new(0);
	order.ptr = alloc(&owner, MIB);
	is_int(tell(&owner, &order), 801, "no handle with pool.export = no");
	is_int(number(&owner, FDS, "") - number(&owner, FIRST_FDS, ""), 0,
		"nor a socket");
	agent_end(&owner);
	unsetenv("GLAKE_POOL_EXPORT");
}

int main(int count, char **arguments)
{
	tap_plan_later();
	agent_route = count > 1 ? arguments[1] : "dlsym";
	setenv("GLAKE_POOL_LARGE_PAGE", "2MiB", 1);
	setenv("GLAKE_SHARE_KEEP", "0", 1);
	shares(300000, "less than a page");
	refused();
	others();
	/* by which way the functions were found makes no difference to the rest */
	if (strcmp(agent_route, "dlsym") != 0)
		return tap_done();
	shares(PAGES_MANY * 2 * MIB - 4096, "many pages");
	killed();
	strangers();
	silent();
	nonsense();
	descriptors();
	kept();
	return tap_done();
}
