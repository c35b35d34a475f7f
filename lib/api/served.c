/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which contexts answer, and that none goes while it is asked. A lock guards the lists, for a moment
 * each time. What an answer is about is held by it: who closes that waits until it is let go of, and
 * nobody else does. Two answers may be given at a time, of which one takes long.
 */
#include "api/served.h"

#include "api/context.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <glake/version.h>

static struct glk_lock answering = GLK_LOCK_INIT(GLK_RANK_ANSWER);
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;

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

void glk_served_answer(void)
{
	glk_lock(&answering);
	mine = held[0].taken ? &held[1] : &held[0];
	mine->taken = true;
	glk_unlock(&answering);
}

void glk_served_answered(void)
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

struct glake *glk_served_find(uint64_t number)
{
	struct glake *const *handles;
	size_t all;

	handles = glk_served(&all);
	for (size_t i = 0; i < all; i++)
		if (!number || glk_context_number(handles[i]) == number)
			return handles[i];
	return NULL;
}

void glk_served_add(struct glake *handle)
{
	glk_lock(&answering);
	served[count++] = handle;
	glk_store_release(&known, count); /* pairs with: glk_served_remove */
	glk_unlock(&answering);
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

bool glk_served_remove(const struct glake *handle)
{
	size_t i = 0;

	if (!glk_load_acquire(&known)) /* pairs with: glk_served_add */
		return false;
	glk_lock(&answering);
	while (i < count && served[i] != handle)
		i++;
	if (i < count)
		memmove(&served[i], &served[i + 1], (--count - i) * sizeof(*served));
	glk_store_release(&known, count); /* pairs with: the acquire above */
	while (is_held(handle))
		glk_lock_wait(&answering, &let_go);
	glk_unlock(&answering);
	return true;
}

bool glk_served_is_none(void)
{
	bool is;

	glk_lock(&answering);
	/* who closes one that is still asked about ends it then */
	is = !count && !held[0].count && !held[1].count;
	glk_unlock(&answering);
	return is;
}

void glk_served_forked(void)
{
	let_go = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	count = 0;
	memset(held, 0, sizeof(held));
	glk_store_relaxed(&known, 0);
}

void glk_served_add_process(struct glk_json *json)
{
	glk_json_add_int(json, "pid", getpid());
	glk_json_add_text(json, "program", program_invocation_short_name);
	glk_json_add_text(json, "version", GLAKE_VERSION_STRING);
}

void glk_served_refuse(struct glk_rpc_call *call, int err)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	glk_rpc_fail(call, GLK_RPC_REFUSED, "%s",
		record.err == err ? record.text : strerror(-err));
}
