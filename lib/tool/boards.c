/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The boards of all processes that are watched. A look reads those that there are, which costs the
 * processes nothing, and asks for the others; whoever has none is asked for its figures, each time.
 * The connection that a board was passed over stays open, for it tells the process that somebody
 * watches, and tells this one when the process has ended; now and then it has to be used.
 */
#include "base/clock.h"
#include "tool/board.h"
#include "tool/tool.h"
#include "wire/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define USE_NS	      INT64_C(10000000000) /* a third of the silence that is borne with */
#define PATIENCE_NS   (INT64_C(1000000) * PROCESS_ANSWER_MS)
#define INTERVAL_MIN  10
#define INTERVAL_MAX  1000 /* what is shown should not be older, ms */
#define BOARDS_MAX    256  /* others are asked */
#define INTERVAL_SAID UINT64_C(20000000000)
#define BUSY_MAX      5 /* looks in turn at a board that is being written; then it is none */

static const char stats[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"stats\"}\n";

struct one {
	pid_t pid;
	bool asks; /* it has no board */
	bool here; /* in the look that is under way */
	int socket;
	struct board board;
	char program[64], version[32];
	int64_t used_ns; /* the connection */
	uint64_t writes; /* when it was read last, */
	int64_t news_ns; /* and when that was new */
	int busy;	 /* looks in turn that found it being written */
};

struct boards {
	int64_t interval_ms;
	char question[128];
	struct one *list;
	size_t count, room;
};

struct boards *boards_new(int64_t interval_ns)
{
	struct boards *boards = calloc(1, sizeof(*boards));

	if (boards)
		boards_pace(boards, interval_ns);
	return boards;
}

void boards_pace(struct boards *boards, int64_t interval_ns)
{
	int64_t ms = interval_ns / 2000000;

	ms = ms < INTERVAL_MIN ? INTERVAL_MIN : ms > INTERVAL_MAX ? INTERVAL_MAX : ms;
	if (ms == boards->interval_ms)
		return;
	boards->interval_ms = ms;
	snprintf(boards->question, sizeof(boards->question),
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"board\",\"params\":{\"interval\":%d}}\n",
		(int)ms);
	/* they hear of it at the next look */
	for (size_t i = 0; i < boards->count; i++)
		boards->list[i].used_ns = INT64_MIN / 2;
}

/* It is asked anew then. */
static void forget(struct one *one)
{
	if (one->socket >= 0)
		close(one->socket);
	one->socket = -1;
	board_close(&one->board);
}

void boards_free(struct boards *boards)
{
	for (size_t i = 0; boards && i < boards->count; i++)
		forget(&boards->list[i]);
	if (boards)
		free(boards->list);
	free(boards);
}

/* That of a process, a new one if there is none; NULL: there is no memory. */
static struct one *find(struct boards *boards, pid_t pid)
{
	size_t room = boards->room ? 2 * boards->room : 16;
	struct one *list = boards->list;

	for (size_t i = 0; i < boards->count; i++)
		if (list[i].pid == pid)
			return &list[i];
	if (boards->count == boards->room) {
		list = realloc(list, room * sizeof(*list));
		if (!list)
			return NULL;
		boards->list = list;
		boards->room = room;
	}
	list[boards->count] = (struct one){.pid = pid, .socket = -1};
	return &list[boards->count++];
}

/* Whether the other end is there; what it has said is of no use. */
static bool is_alive(const struct one *one)
{
	char rest[4096];
	ssize_t got;

	for (int i = 0; i < 64; i++) {
		got = recv(one->socket, rest, sizeof(rest), MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 && errno == EAGAIN;
	}
	return false; /* it says more than it was asked */
}

/* So that the process knows that somebody watches. */
static bool use(struct boards *boards, struct one *one, int64_t now)
{
	size_t length = strlen(boards->question);

	if (now - one->used_ns < USE_NS)
		return true;
	one->used_ns = now;
	return send(one->socket, boards->question, length, MSG_NOSIGNAL | MSG_DONTWAIT) ==
		(ssize_t)length;
}

static struct json_object *with_process(
	const struct one *one, struct json_object *stats_only)
{
	struct json_object *all = json_object_new_object(), *contexts;

	json_object_object_add(all, "pid", json_object_new_int(one->pid));
	json_object_object_add(all, "program", json_object_new_string(one->program));
	json_object_object_add(all, "version", json_object_new_string(one->version));
	contexts = process_array(stats_only, "contexts");
	json_object_object_add(all, "contexts", json_object_get(contexts));
	json_object_put(stats_only);
	return all;
}

/* For how long one may not be written, ns; what it says of that is bounded. */
static int64_t patience_of(const struct board *board)
{
	uint64_t often =
		board->interval_ns < INTERVAL_SAID ? board->interval_ns : INTERVAL_SAID;

	return PATIENCE_NS + 2 * (int64_t)often;
}

/* From the board. False: it has to be asked, this time if its board stays open. */
static bool read_one(
	struct boards *boards, struct one *one, struct process_answer *answer)
{
	struct json_object *figures;
	int64_t now = glk_clock_ns();
	int err;

	if (one->socket < 0)
		return false;
	err = is_alive(one) && use(boards, one, now) ? board_read(&one->board, &figures)
						     : -EPIPE;
	if (!err && one->board.state != GLAKE_BOARD_GOES_ON) {
		json_object_put(figures);
		err = -EPIPE;
	}
	one->busy = err == -EAGAIN ? one->busy + 1 : 0;
	if (one->busy == BUSY_MAX)
		one->asks = true;
	if (err) {
		if (err != -EAGAIN || one->asks)
			forget(one);
		return false;
	}
	if (one->board.writes != one->writes) {
		one->writes = one->board.writes;
		one->news_ns = now;
	}
	/* it is stopped, or busy with another question */
	if (now - one->news_ns > patience_of(&one->board)) {
		snprintf(answer->why, sizeof(answer->why), "it does not answer in time");
		answer->err = -ETIMEDOUT;
		json_object_put(figures);
		return true;
	}
	answer->err = 0;
	answer->ns = (int64_t)one->board.written_ns;
	answer->result = with_process(one, figures);
	return true;
}

/* With the answer to the question for a board. False: it has to be asked for its figures. */
static bool begin(struct boards *boards, struct one *one, struct process_answer *answer)
{
	struct board board;
	int err = answer->fd >= 0 ? board_open(answer->fd, &board) : -EPROTO;

	if (answer->fd >= 0)
		close(answer->fd);
	if (!err) {
		one->socket = answer->socket;
		one->board = board;
		process_word(
			answer->result, "program", one->program, sizeof(one->program));
		process_word(
			answer->result, "version", one->version, sizeof(one->version));
		one->used_ns = one->news_ns = glk_clock_ns();
		one->writes = 0;
	} else if (answer->socket >= 0) {
		close(answer->socket);
	}
	answer->fd = answer->socket = -1;
	json_object_put(answer->result);
	answer->result = NULL;
	return !err && read_one(boards, one, answer);
}

/* What was answered to the question for a board. False: its figures are to be asked for. */
static bool take(struct boards *boards, struct one *one, struct process_answer *answer)
{
	if (!answer->takes_fd)
		return true;
	if (!answer->err ? begin(boards, one, answer)
			 : answer->err != -EREMOTEIO && answer->err != -ENXIO)
		return true;
	/* one that is being written is a board */
	one->asks = one->asks || one->socket < 0;
	return false;
}

/* So many connections more can be kept. */
static size_t left_room(const struct boards *boards)
{
	struct rlimit files;
	size_t most = BOARDS_MAX, open = 0;

	if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur / 4 < most)
		most = files.rlim_cur / 4;
	for (size_t i = 0; i < boards->count; i++)
		open += boards->list[i].socket >= 0;
	return open < most ? most - open : 0;
}

/* Asks those of `asked` that `of` tells; those that are to be asked again are left there. Their
 * count. */
static int ask(struct boards *boards, int room, struct process_answer *asked,
	struct process_answer *some, int *of, int count)
{
	size_t fit = left_room(boards);
	int again = 0;

	for (int i = 0; i < count; i++) {
		struct one *one = find(boards, asked[of[i]].pid);

		some[i] = (struct process_answer){.pid = asked[of[i]].pid,
			.takes_fd = one && !one->asks && one->socket < 0 && fit};
		some[i].question = some[i].takes_fd ? boards->question : stats;
		fit -= some[i].takes_fd;
	}
	process_ask_all(room, some, count);
	for (int i = 0; i < count; i++) {
		bool done = take(boards, find(boards, some[i].pid), &some[i]);

		asked[of[i]] = some[i];
		if (!done)
			of[again++] = of[i];
	}
	return again;
}

static int look(struct boards *boards, int room, struct process_answer *asked, int count)
{
	struct process_answer *some = calloc((size_t)count + 1, sizeof(*some));
	int *of = calloc((size_t)count + 1, sizeof(*of)), left = 0;

	for (int i = 0; some && of && i < count; i++) {
		struct one *one = find(boards, asked[i].pid);

		if (one)
			one->here = true;
		if (!one || !read_one(boards, one, &asked[i]))
			of[left++] = i;
	}
	/* for boards, and then for the figures of those that have none */
	if (some && of && left)
		left = ask(boards, room, asked, some, of, left);
	if (some && of && left)
		ask(boards, room, asked, some, of, left);
	free(some);
	free(of);
	return some && of ? 0 : -ENOMEM;
}

/* Those that were not there. */
static void sweep(struct boards *boards)
{
	size_t kept = 0;

	for (size_t i = 0; i < boards->count; i++) {
		struct one *one = &boards->list[i];

		if (!one->here) {
			forget(one);
			continue;
		}
		one->here = false;
		boards->list[kept++] = *one;
	}
	boards->count = kept;
}

int boards_look(struct boards *boards, int room, struct process **ret_list)
{
	struct process_answer *asked = calloc(PROCESSES_MAX + 1, sizeof(*asked));
	int count = asked ? process_find_all(room, asked) : -ENOMEM;
	int err = count < 0 ? count : look(boards, room, asked, count);

	sweep(boards);
	if (!err)
		err = process_take_answers(room, asked, count, ret_list);
	if (err < 0)
		glk_tool_say("no process can be asked: %s", strerror(-err));
	free(asked);
	return err;
}

int boards_ask(struct boards *boards, int room, pid_t pid,
	struct json_object **ret_result, char *why)
{
	struct process_answer asked = {.pid = pid, .fd = -1, .socket = -1};
	int err = look(boards, room, &asked, 1);

	if (!err)
		err = asked.err;
	snprintf(why, GLK_WIRE_WHY_MAX, "%s", *asked.why ? asked.why : strerror(-err));
	if (!err)
		*ret_result = asked.result;
	return err;
}
