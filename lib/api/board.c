/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The board of figures of this process, and for whom it is written: those who have asked for it and
 * are still connected, who have to ask anything within half a minute to be so (wire/server.c). It is
 * written as often as the most eager of them wants, and rests when there is none; it stays then, for
 * the next one, so that those who come and go hold no more than one board of it.
 *
 * Cost		the thread of the socket gathers the figures as for an answer. It does nothing else
 *		for a twentieth of its time at most: where that takes long, the board is written less
 *		often than was asked for, and says how often
 * Callers	the thread of the socket alone; when that has ended, who ended it
 */
#include "watch/board.h"
#include "api/context.h"
#include "api/figures.h"
#include "api/served.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "wire/wire.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_MIN   10 /* ms */
#define INTERVAL_MAX   10000
#define INTERVAL_USUAL 1000
#define SHARE	       20 /* of the time of the thread, one part */

static struct glk_board board = {.fd = -1};
static struct glk_wire_mark mark; /* of its descriptor */
static uint64_t made;		  /* boards, so far */
static int64_t begun_ns, took_ns; /* the last time that it was written */
static bool rests = true;

static struct lease {
	uint64_t asker; /* 0: nobody's */
	uint64_t board; /* the last that was handed out to it */
	int64_t interval_ns;
} leases[GLK_WIRE_CLIENTS_MAX];

/* What the most eager wants; 0: there is nobody. */
static int64_t interval_ns(void)
{
	int64_t least = 0;

	for (int i = 0; i < GLK_WIRE_CLIENTS_MAX; i++)
		if (leases[i].asker && (!least || leases[i].interval_ns < least))
			least = leases[i].interval_ns;
	return least;
}

/* That of one who asks, or an empty one. */
static struct lease *lease_of(uint64_t asker)
{
	struct lease *empty = NULL;

	for (int i = 0; i < GLK_WIRE_CLIENTS_MAX; i++) {
		if (leases[i].asker == asker)
			return &leases[i];
		if (!leases[i].asker)
			empty = &leases[i];
	}
	return empty;
}

static void drop_board(enum glake_board_state state)
{
	glk_board_rest(&board, state);
	if (board.at && glk_wire_is(board.fd, &mark))
		close(board.fd);
	glk_board_free(&board);
}

/* Writes it with what was gathered, into a larger one where that is needed. */
static int write_board(
	const struct glk_figures *figures, int64_t gathered_ns, int64_t interval)
{
	int err = board.at
		? glk_board_write(&board, figures, gathered_ns, (uint64_t)interval)
		: -ENOSPC;

	if (err != -ENOSPC)
		return err;
	drop_board(GLAKE_BOARD_REPLACED);
	err = glk_board_new(figures, &board);
	if (err)
		return err;
	made++;
	mark = glk_wire_mark_of(board.fd);
	return glk_board_write(&board, figures, gathered_ns, (uint64_t)interval);
}

/* How long after one time the next may begin. */
static int64_t pause_ns(int64_t interval)
{
	return interval < SHARE * took_ns ? SHARE * took_ns : interval;
}

/* Gathers and writes. 0 or -errno. */
static int refresh(int64_t interval)
{
	struct glk_gathered gathered;
	struct glake *const *handles;
	size_t count;
	int err;

	begun_ns = glk_clock_ns();
	handles = glk_served(&count);
	err = glk_gather(handles, count, &gathered);
	if (!err) {
		err = write_board(&gathered.figures, begun_ns, pause_ns(interval));
		glk_gather_end(&gathered);
	}
	took_ns = glk_clock_ns() - begun_ns;
	return err;
}

int glk_served_board_due(void)
{
	int64_t interval = interval_ns(), left;
	int err;

	if (!interval) {
		if (!rests)
			glk_board_rest(&board, GLAKE_BOARD_GOES_ON);
		rests = true;
		return -1;
	}
	rests = false;
	if (glk_clock_ns() >= begun_ns + pause_ns(interval)) {
		err = refresh(interval);
		if (err)
			glk_debug("the board of figures is not written: %s",
				strerror(-err));
	}
	left = begun_ns + pause_ns(interval) - glk_clock_ns();
	return left > 0 ? (int)((left + 999999) / 1000000) : 0;
}

void glk_served_board_left(uint64_t asker)
{
	struct lease *lease = lease_of(asker);

	if (lease && lease->asker == asker)
		lease->asker = 0;
}

static void forget(void)
{
	memset(leases, 0, sizeof(leases));
	rests = true;
	begun_ns = took_ns = 0;
}

void glk_served_board_end(void)
{
	drop_board(GLAKE_BOARD_ENDED);
	forget();
}

void glk_served_board_forked(void)
{
	if (board.at && glk_wire_is(board.fd, &mark))
		close(board.fd);
	glk_board_forget(&board);
	forget();
}

static void refuse(struct glk_rpc_call *call, int err)
{
	if (err == -EOPNOTSUPP)
		glk_rpc_fail(call, GLK_RPC_REFUSED,
			"this kernel has no memory that others can only read (Linux 5.1)");
	else
		glk_rpc_fail(call, GLK_RPC_REFUSED, "there is no board of figures: %s",
			strerror(-err));
}

/* Not older than who asks wants it. */
static int be_ready(int64_t interval)
{
	/* the program has closed what it does not know: those who have the board keep it */
	if (board.at && !glk_wire_is(board.fd, &mark))
		drop_board(GLAKE_BOARD_REPLACED);
	if (board.at && !rests && glk_clock_ns() < begun_ns + pause_ns(interval))
		return 0;
	return refresh(interval);
}

void glk_method_board(struct glk_rpc_call *call)
{
	struct lease *lease = lease_of(glk_wire_asker());
	uint64_t interval = INTERVAL_USUAL;
	struct glk_json *json;
	bool passes;
	int err;

	if (glk_rpc_number(call, "interval", INTERVAL_MAX, &interval) &&
		interval < INTERVAL_MIN)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "interval is %d at least",
			INTERVAL_MIN);
	if (glk_rpc_failed(call))
		return;
	/* there are as many as can be connected */
	err = lease ? be_ready((int64_t)interval * 1000000) : -EUSERS;
	if (err) {
		refuse(call, err);
		return;
	}
	passes = lease->asker != glk_wire_asker() || lease->board != made;
	*lease = (struct lease){.asker = glk_wire_asker(),
		.board = made,
		.interval_ns = (int64_t)interval * 1000000};
	json = glk_rpc_result(call);
	glk_json_object(json);
	glk_served_add_process(json);
	glk_json_add_uint(json, "board", made);
	glk_json_add_uint(json, "size_bytes", board.size);
	glk_json_add_bool(json, "passed", passes);
	glk_json_end(json);
	if (passes)
		glk_wire_pass(board.fd);
}
