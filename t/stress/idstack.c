/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Four threads push, pop and take all over few slots, so that they meet. Each slot has one
 * owner at a time, who finds what the last one wrote; at the end no slot is lost.
 */
#include "base/idstack.h"
#include "seed.h"

#include <pthread.h>

#define THREADS 4
#define SLOTS	16
#define MOVES	STORM_SIZE(1000000)

static struct glk_idstack stack;
static struct glk_idnode nodes[SLOTS + 1];
static glk_atomic(int) owner[SLOTS + 1];
static glk_atomic(int) bad_owner, bad_payload;

/* Two plain words that only ever change together. */
static struct {
	uint64_t count, inverse;
} payload[SLOTS + 1];

struct worker {
	pthread_t thread;
	int number;
	uint64_t state;
	uint64_t takes;
	uint32_t held[SLOTS];
	int holds;
};

static struct glk_idnode *link_of(struct glk_idnode *all, uint32_t id)
{
	return &all[id];
}

GLK_IDSTACK_DEFINE(stress, struct glk_idnode *, link_of)

static void take(struct worker *worker, uint32_t id)
{
	int nobody = 0;

	if (worker->holds == SLOTS) {
		glk_add_relaxed(&bad_owner, 1);
		return;
	}
	if (!glk_cas_acq_rel(&owner[id], &nobody, worker->number))
		glk_add_relaxed(&bad_owner, 1);
	if (payload[id].inverse != ~payload[id].count)
		glk_add_relaxed(&bad_payload, 1);
	payload[id].count++;
	payload[id].inverse = ~payload[id].count;
	worker->held[worker->holds++] = id;
	worker->takes++;
}

static void give(struct worker *worker)
{
	int which = (int)seed_below(&worker->state, (uint64_t)worker->holds);
	uint32_t id = worker->held[which];

	worker->held[which] = worker->held[--worker->holds];
	glk_store_relaxed(&owner[id], 0);
	stress_push(&stack, nodes, id);
}

static void take_chain(struct worker *worker)
{
	uint32_t next, id = stress_take_all(&stack);

	for (int i = 0; id && i < SLOTS; i++, id = next) {
		next = glk_load_relaxed(&nodes[id].next);
		take(worker, id);
	}
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	uint32_t id;

	for (int i = 0; i < MOVES; i++) {
		uint64_t dice = seed_below(&worker->state, 100);

		if (dice < 2) {
			take_chain(worker);
		} else if (dice < 50 || !worker->holds) {
			id = stress_pop(&stack, nodes);
			if (id)
				take(worker, id);
		} else {
			give(worker);
		}
	}
	while (worker->holds)
		give(worker);
	return NULL;
}

/* Slots on the stack, or -1 when one is on it twice or out of range. */
static int walk(void)
{
	bool seen[SLOTS + 1] = {false};
	uint32_t id = (uint32_t)(glk_load_relaxed(&stack.head) & GLK_ID_MASK);
	int count = 0;

	for (; id; id = glk_load_relaxed(&nodes[id].next), count++) {
		if (id > SLOTS || seen[id])
			return -1;
		seen[id] = true;
	}
	return count;
}

int main(void)
{
	struct worker workers[THREADS] = {0};
	uint64_t seed, sum = 0, takes = 0;

	tap_plan(4);
	seed = seed_start();
	for (uint32_t id = 1; id <= SLOTS; id++) {
		payload[id].inverse = ~payload[id].count;
		stress_push(&stack, nodes, id);
	}
	for (int i = 0; i < THREADS; i++) {
		workers[i].number = i + 1;
		workers[i].state = seed_thread(seed, (unsigned)i);
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		takes += workers[i].takes;
	}
	for (int id = 1; id <= SLOTS; id++)
		sum += payload[id].count;
	is_int(glk_load_relaxed(&bad_owner), 0, "one owner at a time");
	is_int(glk_load_relaxed(&bad_payload), 0,
		"an owner sees what the last one wrote");
	is_int((int64_t)sum, (int64_t)takes, "every taking left its mark");
	is_int(walk(), SLOTS, "every slot is back, once");
	return tap_done();
}
