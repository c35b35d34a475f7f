/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A lock-free header in the hands of two threads that hand plain memory to each other through it and
 * through nothing else. Compiled for each header as it is, and with RACE_PLANTED once more: there no
 * operation of the header orders anything, so that both threads race for that memory.
 *
 *	RACE_idstack, RACE_row, RACE_word, RACE_index, RACE_page	which header
 *	RACE_source, RACE_target	what the software device copies, which it tells the sanitizer in part
 *	RACE_FN		the name of the function; it says whether all was found as it was left
 */
#include "base/atomic.h"

#ifdef RACE_PLANTED
#undef glk_load_acquire
#undef glk_load_seq_cst
#undef glk_store_release
#undef glk_xchg_acq_rel
#undef glk_xchg_seq_cst
#undef glk_cas_weak_acquire
#undef glk_cas_weak_release
#undef glk_cas_acq_rel
#undef glk_cas_seq_cst
#define glk_load_acquire(p)	glk_load_relaxed(p)
#define glk_load_seq_cst(p)	glk_load_relaxed(p)
#define glk_store_release(p, v) glk_store_relaxed(p, v)
#define glk_xchg_acq_rel(p, v)                                                           \
	(GLK_POINT atomic_exchange_explicit((p), (v), memory_order_relaxed))
#define glk_xchg_seq_cst(p, v)	      glk_xchg_acq_rel(p, v)
#define glk_cas_weak_acquire(p, o, n) glk_cas_weak_relaxed(p, o, n)
#define glk_cas_weak_release(p, o, n) glk_cas_weak_relaxed(p, o, n)
#define glk_cas_acq_rel(p, o, n)                                                         \
	(GLK_POINT atomic_compare_exchange_strong_explicit(                              \
		(p), (o), (n), memory_order_relaxed, memory_order_relaxed))
#define glk_cas_seq_cst(p, o, n) glk_cas_acq_rel(p, o, n)
#endif

#include <pthread.h>
#include <sched.h>
#include <stdint.h>

int RACE_FN(void);

#define ROUNDS 300
#define SLOTS  1 /* which both want */

static int torn; /* under nothing: each thread says so at its end */

#if defined(RACE_idstack)
#include "base/idstack.h"

static struct glk_idstack stack;
static struct glk_idnode nodes[SLOTS + 1];
static unsigned payload[SLOTS + 1];

static struct glk_idnode *link_of(struct glk_idnode *all, uint32_t id)
{
	return &all[id];
}

GLK_IDSTACK_DEFINE(race, struct glk_idnode *, link_of)

static void begin(void)
{
	for (uint32_t id = 1; id <= SLOTS; id++)
		race_push(&stack, nodes, id);
}

static void play(unsigned self)
{
	uint32_t id = race_pop(&stack, nodes);

	(void)self;
	if (!id)
		return;
	payload[id]++;
	race_push(&stack, nodes, id);
}

#elif defined(RACE_row)
#include "cache/bin/row.h"

static struct glk_bin bins[GLK_BINS];
static struct glk_row line = {.bin = bins};
static struct glk_idnode nodes[SLOTS + 1];
static unsigned payload[SLOTS + 1];

static struct glk_idnode *link_of(struct glk_idnode *all, uint32_t id)
{
	return &all[id];
}

GLK_ROW_DEFINE(race, struct glk_idnode *, link_of)

static void begin(void)
{
	for (uint32_t id = 1; id <= SLOTS; id++)
		race_push(&line, 0, nodes, id, 0);
}

static void play(unsigned self)
{
	uint32_t id = race_pop(&line, 0, nodes, self);

	if (!id)
		return;
	payload[id]++;
	race_push(&line, 0, nodes, id, self);
}

#elif defined(RACE_word)
#include "map/space/word.h"

#define HERE UINT64_C(0x1000)

static glk_atomic(uint64_t) word, at;
static unsigned payload, binned;

static void begin(void)
{
	glk_store_relaxed(&at, HERE);
	glk_word_set(&word, GLK_EXTENT_FREE);
	glk_word_set(&word, GLK_EXTENT_LIVE);
}

/* One thread frees the extent, the other one has it live again. What is binned they tell each other
 * in this direction alone. */
static void play(unsigned self)
{
	if (!self && glk_word_claim(&word, &at, HERE)) {
		payload++;
		__atomic_store_n(&binned, 1, __ATOMIC_RELEASE);
	} else if (self && __atomic_exchange_n(&binned, 0, __ATOMIC_ACQUIRE)) {
		payload++;
		glk_word_revive(&word);
	}
}

#elif defined(RACE_index)
#ifdef RACE_PLANTED
#define glk_index_entries race_entries_planted
#define glk_index_add	  race_add_planted
#define glk_index_remove  race_remove_planted
#else
#define glk_index_entries race_entries
#define glk_index_add	  race_add
#define glk_index_remove  race_remove
#endif
#include "../../lib/map/space/index.c"

#define GIB (UINT64_C(1) << GLK_INDEX_SHIFT)

static struct {
	struct glk_range range;
	unsigned payload;
} made[ROUNDS];
static unsigned turns[2];

static void begin(void)
{
}

/* One thread adds ranges, the other one finds them, and both read what they are. */
static void play(unsigned self)
{
	unsigned n = turns[self];

	if (!self && n < ROUNDS) {
		made[n].payload = n;
		made[n].range.base = (n + 1) * GIB;
		made[n].range.size = GIB;
		if (!glk_index_add(&made[n].range))
			turns[self]++;
	} else if (n < ROUNDS) {
		struct glk_range *found = glk_index_find((n + 1) * GIB);

		if (found && (found != &made[n].range || made[n].payload != n))
			torn = 1;
		turns[self] += found != NULL;
	}
}

#elif defined(RACE_page)
#include "base/idstack.h"
#ifdef RACE_PLANTED
#define glk_page_move	    race_move_planted
#define glk_page_state_name race_state_name_planted
#else
#define glk_page_move	    race_move
#define glk_page_state_name race_state_name
#endif
#include "../../lib/pool/page.c"

static struct glk_page page;
static unsigned payload;

static void begin(void)
{
	glk_store_relaxed(&page.word, (uint64_t)GLK_PAGE_FREE);
}

static void play(unsigned self)
{
	(void)self;
	if (!glk_page_move(&page, GLK_PAGE_FREE, GLK_PAGE_OWNED))
		return;
	payload++;
	if (!glk_page_move(&page, GLK_PAGE_OWNED, GLK_PAGE_FREE))
		torn = 1;
}
#endif

#if defined(RACE_source) || defined(RACE_target)
#define NAMED_(fn, of)	      fn##of
#define NAMED(fn, of)	      NAMED_(fn, of)
#define glk_soft_contents_run NAMED(RACE_FN, _copy)
#include "../../lib/soft/contents.c"

#define GRAIN (GLAKE_GRAIN / sizeof(unsigned))

static struct soft soft;
static unsigned memory[2][64 * GRAIN] __attribute__((aligned(4096)));
static glk_atomic(uint32_t) taken;

static void begin(void)
{
	if (glk_book_init(&soft.book, 8))
		torn = 1;
	memory[0][0] = 1;
}

/* One thread has the device copy, the other has a word of it. */
static void play(unsigned self)
{
	struct soft_op op = {.kind = SOFT_COPY,
		.dst = (uintptr_t)memory[1],
		.src = (uintptr_t)memory[0],
		.size = sizeof(memory[0])};
	uint32_t free = 0;

	if (!glk_cas_weak_acquire(&taken, &free, 1))
		return;
#ifdef RACE_source
	if (self)
		memory[0][7 * GRAIN]++;
#else
	if (self)
		memory[1][7 * GRAIN] = 0;
#endif
	else
		glk_soft_contents_run(&soft, &op);
	glk_store_release(&taken, 0);
}
#endif

/* The sanitizer reports no race with a thread that has ended. */
static pthread_barrier_t end;

static void *run(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		play(*(unsigned *)arg);
		sched_yield();
	}
	pthread_barrier_wait(&end);
	return arg;
}

int RACE_FN(void)
{
	unsigned self[2] = {0, 1};
	pthread_t thread[2];

	begin();
	pthread_barrier_init(&end, NULL, 2);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, run, &self[i]))
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	return torn;
}
