/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tokens of a KV cache in another process: it reads what is written there, also later, and cannot write; what is out is
 * not given to anybody meanwhile; and when its owner has ended they are still there.
 */
#include "context.h"
#include "letter.h"

#include <fcntl.h>

#define TOKENS 1500
#define ROW    2048

static void post(int to, const struct letter *letter)
{
	if (letter_post(to, letter))
		_exit(98);
}

static struct letter fetch(int from)
{
	struct letter letter;

	if (letter_fetch(from, &letter))
		_exit(99);
	return letter;
}

/* A number there and one back. */
static int ask(int socket, int word)
{
	const struct letter letter = {.word = word};

	post(socket, &letter);
	return fetch(socket).word;
}

static unsigned char *at(const struct glake_kv *kv, uint32_t lane, uint32_t token)
{
	struct glake_kv_place place = {.sz = sizeof(place)};

	if (glake_kv_place_get(kv, lane, &place))
		_exit(97);
	return (unsigned char *)place.base + token * place.token;
}

/* The tokens of a lane are the other process's. */
static void give(struct glake_kv *kv, int socket, uint32_t lane)
{
	struct letter letter = {.word = 0};

	if (glake_kv_export(
		    kv, 0, lane, 0, TOKENS, 1, letter.piece, LETTER_MOST, &letter.count))
		_exit(96);
	for (size_t i = 0; i < letter.count; i++)
		letter.size += letter.piece[i].length;
	post(socket, &letter);
	letter_close(&letter);
}

/* The process that has the cache; it ends in the middle of it. */
static int owner(int socket)
{
	const struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 2,
		.tokens = 4096,
		.lanes = 2,
		.lane_bytes = ROW};
	struct glake *ctx = flow_open(NULL);
	struct letter letter, answer = {.count = 0};
	struct glake_kv *kv;
	uint32_t slot;

	if (glake_kv_open(ctx, 0, &o, NULL, &kv) || glake_kv_new(kv, 4096, NULL, &slot) ||
		glake_kv_grow(kv, slot, TOKENS, NULL))
		return 10;
	for (uint32_t lane = 0; lane < 2; lane++) {
		for (uint32_t t = 0; t < TOKENS; t++)
			memset(at(kv, lane, t), (int)(t + lane) % 251, ROW);
		give(kv, socket, lane);
	}
	for (;;) {
		letter = fetch(socket);
		switch (letter.word) {
		case 1: /* writes */
			memset(at(kv, 1, TOKENS - 1), 255, ROW);
			break;
		case 2:
			answer.word = glake_kv_free(kv, slot, NULL);
			break;
		case 3:
			answer.word = glake_kv_export_end(kv, slot, 0);
			break;
		case 4:
			answer.word = glake_kv_grow(kv, slot, 4096, NULL);
			break;
		case 5:
			answer.word = glake_kv_close(kv, NULL);
			break;
		default:
			/* as one that is killed: nothing is closed, and the other one still has a lane */
			_exit(0);
		}
		post(socket, &answer);
		answer.word = 0;
	}
}

static bool is_theirs(const unsigned char *lane, uint32_t number, uint32_t tokens)
{
	for (uint32_t t = 0; t < tokens; t++) {
		if (lane[(size_t)t * ROW] != (t + number) % 251 ||
			lane[(size_t)t * ROW + ROW - 1] != (t + number) % 251)
			return false;
	}
	return true;
}

int main(void)
{
	struct letter letter, end = {.word = 0};
	struct glake *ctx;
	unsigned char *lane[2];
	int sockets[2], zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	pid_t child;

	tap_plan_later();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		tap_bail("no sockets");
	child = flow_fork(60);
	if (!child)
		_exit(owner(sockets[1]));
	close(sockets[1]);
	ctx = flow_open(NULL);
	for (uint32_t i = 0; i < 2; i++) {
		void *here = NULL;

		letter = fetch(sockets[0]);
		ok(letter.count == 2 && letter.size == (size_t)TOKENS * ROW,
			"lane %u of another process", i);
		is_int(glake_import(
			       ctx, 0, letter.piece, letter.count, letter.size, &here),
			0, "  is here");
		letter_close(&letter);
		lane[i] = here;
		ok(here && is_theirs(lane[i], i, TOKENS), "  with what is in it");
	}
	is_error(glake_soft_fill(ctx, NULL, lane[1], 1, 100), -EINVAL, "INVAL");
	ok(read(zero, lane[1], 1) < 0 && errno == EFAULT, "nobody writes it here");
	is_int(ask(sockets[0], 1), 0, "its owner does");
	is_int(lane[1][(size_t)(TOKENS - 1) * ROW + 5], 255, "which is seen");
	is_int(ask(sockets[0], 2), -EBUSY, "it does not end meanwhile");
	is_int(ask(sockets[0], 4), 0, "but grows");
	is_int(glake_import_end(ctx, lane[0], NULL), 0, "done with a lane");
	is_int(ask(sockets[0], 3), 0, "which is told");
	is_int(ask(sockets[0], 3), -EINVAL, "once");
	is_int(ask(sockets[0], 5), -EBUSY, "and the cache stays for the other one");
	if (letter_post(sockets[0], &end))
		tap_bail("no letter sent");
	is_int(flow_wait(child), 0, "its owner ends in the middle of it");
	ok(is_theirs(lane[1], 1, TOKENS - 1), "what was given is still there");
	is_int(glake_import_end(ctx, lane[1], NULL), 0, "and goes with its last user");
	close(zero);
	close(sockets[0]);
	flow_close(ctx, 0);
	return tap_done();
}
