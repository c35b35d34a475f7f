/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which contexts answer, and that none goes while it is asked. One lock orders those that come and
 * go with the beginning and the end of the socket; another guards the lists, for a moment each
 * time. What an answer is about is held by it: who closes that waits until it is let go of, and
 * nobody else does. Two answers may be given at a time, of which one takes long.
 */
#include "api/served.h"

#include "api/context.h"
#include "base/error.h"
#include "base/log.h"
#include "wire/wire.h"

#include <string.h>

static struct glk_lock starting = GLK_LOCK_INIT(GLK_RANK_SERVED);
static struct glk_lock answering = GLK_LOCK_INIT(GLK_RANK_ANSWER);
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;

static bool is_open; /* the socket; with `starting` */
static struct glake *served[GLAKE_CONTEXT_MAX];
static size_t count;
static glk_atomic(size_t) known; /* the same, for who closes a context */

/* What an answer under way holds; the thread that gives it alone writes it. */
static struct held {
	bool taken; /* with `answering` */
	struct glake *handle[GLAKE_CONTEXT_MAX];
	size_t count;
} held[2];

static _Thread_local struct held *mine; /* of the answer that this thread gives */

/* With `answering`. */
static void drop(void)
{
	if (mine)
		mine->count = 0;
	pthread_cond_broadcast(&let_go);
}

static void begin_answer(void)
{
	glk_lock(&answering);
	mine = held[0].taken ? &held[1] : &held[0];
	mine->taken = true;
	glk_unlock(&answering);
}

static void end_answer(void)
{
	glk_lock(&answering);
	drop();
	mine->taken = false;
	mine = NULL;
	glk_unlock(&answering);
}

struct glake *const *glk_served(size_t *ret_count)
{
	glk_lock(&answering);
	memcpy(mine->handle, served, sizeof(mine->handle));
	mine->count = count;
	glk_unlock(&answering);
	*ret_count = mine->count;
	return mine->handle;
}

struct glake *glk_served_next(const struct glake *last)
{
	unsigned behind = last ? glk_context_number(last) : 0, best = 0;

	glk_lock(&answering);
	drop();
	for (size_t i = 0; i < count; i++) {
		unsigned number = glk_context_number(served[i]);

		if (number <= behind || (best && number > best))
			continue;
		best = number;
		mine->handle[0] = served[i];
		mine->count = 1;
	}
	glk_unlock(&answering);
	return best ? mine->handle[0] : NULL;
}

static size_t answer(const char *line, size_t length, char *text, size_t size, void *arg)
{
	size_t used;

	begin_answer();
	used = glk_rpc_answer(glk_rpc_methods, line, length, text, size);
	end_answer();
	return used;
}

/* The board of figures, which is about contexts as an answer is. */
static int due(void *arg)
{
	int wait;

	begin_answer();
	wait = glk_served_board_due();
	end_answer();
	return wait;
}

static void left(uint64_t asker, void *arg)
{
	glk_served_board_left(asker);
}

static int start(char *why)
{
	static const struct glk_wire_options options = {
		.answer = answer, .left = left, .due = due, .thread_name = "glake-rpc"};
	struct glake_error record = {.sz = sizeof(record)};
	int err = glk_rpc_init();

	if (!err)
		return glk_wire_serve(&options, why);
	glake_last_error(&record);
	snprintf(why, GLK_WIRE_WHY_MAX, "%s", record.text);
	return err;
}

void glk_served_begin(struct glake *handle, const struct glk_context *context)
{
	char why[GLK_WIRE_WHY_MAX];
	int err = 0;

	if (!context->conf.rpc_socket)
		return;
	glk_lock(&starting);
	if (!is_open)
		err = start(why);
	if (!err) {
		is_open = true;
		glk_lock(&answering);
		served[count++] = handle;
		glk_store_release(&known, count); /* pairs with: glk_served_end */
		glk_unlock(&answering);
	}
	glk_unlock(&starting);
	if (err)
		glk_warn("there is no socket to watch this process by: %s", why);
}

/* With `answering`. */
static bool is_held(const struct glake *handle)
{
	bool found = false;

	for (int h = 0; h < 2; h++)
		for (size_t i = 0; i < held[h].count; i++)
			found |= held[h].handle[i] == handle;
	return found;
}

void glk_served_end(struct glake *handle)
{
	bool last;
	size_t i = 0;

	if (!glk_load_acquire(&known)) /* pairs with: glk_served_begin */
		return;
	glk_lock(&answering);
	while (i < count && served[i] != handle)
		i++;
	if (i < count)
		memmove(&served[i], &served[i + 1], (--count - i) * sizeof(*served));
	glk_store_release(&known, count); /* pairs with: the acquire above */
	while (is_held(handle))
		glk_lock_wait(&answering, &let_go);
	glk_unlock(&answering);
	/* another may have come meanwhile */
	glk_lock(&starting);
	glk_lock(&answering);
	/* who closes one that is still asked about ends it then */
	last = !count && !held[0].count && !held[1].count;
	glk_unlock(&answering);
	if (last && is_open) {
		glk_wire_end();
		glk_served_board_end();
		is_open = false;
	}
	glk_unlock(&starting);
}

void glk_served_forked(void)
{
	let_go = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	is_open = false;
	count = 0;
	memset(held, 0, sizeof(held));
	glk_store_relaxed(&known, 0);
	glk_served_board_forked();
}
