/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two tables that only grow until they are forgotten: places, which are lines with their names, and
 * nodes, which are a place below another node. Each has an index that probes linearly and is half full at
 * most. Numbers of stacks are never given twice: those of a table that was forgotten name nothing.
 */
#include "front/torch_stack.h"

#include "base/atomic.h"
#include "front/torch.h"
#include "front/torch_python.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PLACES_MAX ((uint32_t)1 << 16)
#define NODES_MAX  ((uint32_t)1 << 20)
#define TEXT_MAX   ((size_t)16 << 20)
#define SECOND	   INT64_C(1000000000)

struct place {
	void *code; /* NULL: the taking has ended, and nothing is found by it any more */
	int at, line;
	uint32_t name, file; /* where they begin in the text */
};

struct node {
	uint32_t above; /* the node of who called; 0: nobody */
	uint32_t place;
};

/* Entry 0 of both tables, and 0 in an index, is none. */
struct tables {
	uint32_t place_index[2 * PLACES_MAX], node_index[2 * NODES_MAX];
	struct place places[PLACES_MAX];
	struct node nodes[NODES_MAX];
	char text[TEXT_MAX];
};

/* Under the lock, which nobody holds who asks Python for anything. The tables stay mapped. */
static struct {
	struct tables *tables;
	struct glake_torch_stacks figures;
	uint64_t base;	/* numbers of stacks up to here are forgotten */
	uint64_t round; /* of taking */
	size_t depth;
} stacks;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static glk_atomic(int) is_on;
static glk_atomic(int) is_changing; /* somebody begins or ends it */
static glk_atomic(
	int) takers; /* between the look at is_on and Python's lock given back */
static _Thread_local bool is_taking;

bool glk_torch_stacks_on(void)
{
	return glk_load_relaxed(&is_on);
}

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* Other threads that were taking are not there; this one may be, where Python forks within. */
static void in_child(void)
{
	glk_store_relaxed(&is_on, 0);
	glk_store_relaxed(&takers, is_taking ? 1 : 0);
	glk_store_relaxed(&is_changing, 0);
	pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

/* Multiplicative hashing of two words; the first multiplier is that of the golden ratio. */
static uint32_t mix(uint64_t a, uint64_t b)
{
	a = a * UINT64_C(0x9E3779B97F4A7C15) + b;
	return (uint32_t)(a * UINT64_C(0xD6E8FEB86659FD93) >> 32);
}

static uint32_t *place_slot(const struct glk_python_frame *frame)
{
	struct tables *t = stacks.tables;
	uint32_t i = mix((uintptr_t)frame->code >> 4, (uint32_t)frame->at);

	for (;; i++) {
		uint32_t *slot = &t->place_index[i % (2 * PLACES_MAX)];
		const struct place *place = &t->places[*slot];

		if (!*slot || (place->code == frame->code && place->at == frame->at))
			return slot;
	}
}

static uint32_t *node_slot(uint32_t above, uint32_t place)
{
	struct tables *t = stacks.tables;

	for (uint32_t i = mix(above, place);; i++) {
		uint32_t *slot = &t->node_index[i % (2 * NODES_MAX)];

		if (!*slot ||
			(t->nodes[*slot].above == above &&
				t->nodes[*slot].place == place))
			return slot;
	}
}

static uint32_t add_text(const char *text)
{
	uint64_t at = stacks.figures.text_bytes;
	size_t size = strlen(text) + 1;

	memcpy(stacks.tables->text + at, text, size);
	stacks.figures.text_bytes += size;
	return (uint32_t)at;
}

/* For a place more. */
static bool has_room(void)
{
	return stacks.figures.places + 1 < PLACES_MAX &&
		TEXT_MAX - stacks.figures.text_bytes >= sizeof(struct glk_python_place);
}

/* A place that is not in the table takes the frame's reference. 0: no room. */
static uint32_t add_place(
	struct glk_python_frame *frame, const struct glk_python_place *about)
{
	uint32_t *slot = place_slot(frame);

	if (*slot)
		return *slot; /* another thread was faster */
	if (!has_room())
		return 0;
	*slot = (uint32_t)++stacks.figures.places;
	stacks.tables->places[*slot] = (struct place){.code = frame->code,
		.at = frame->at,
		.line = about->line,
		.name = add_text(about->name),
		.file = add_text(about->file)};
	frame->code = NULL;
	return *slot;
}

static uint32_t find_node(uint32_t above, uint32_t place)
{
	uint32_t *slot = node_slot(above, place);

	if (*slot)
		return *slot;
	if (stacks.figures.nodes + 1 >= NODES_MAX)
		return 0;
	*slot = (uint32_t)++stacks.figures.nodes;
	stacks.tables->nodes[*slot] = (struct node){above, place};
	return *slot;
}

/* Under the lock; lets it go to ask what an unknown place is called. 0: no room, or the taking has
 * ended meanwhile. */
static uint32_t find_place(struct glk_python_frame *frame, uint64_t round)
{
	struct glk_python_place about;
	uint32_t place = *place_slot(frame);

	if (place || !has_room())
		return place;
	pthread_mutex_unlock(&lock);
	glk_python_describe(frame, &about);
	pthread_mutex_lock(&lock);
	return stacks.round == round ? add_place(frame, &about) : 0;
}

static uint64_t number_of(struct glk_python_frame *frames, size_t count, uint64_t round)
{
	uint32_t place = 0, node = 0;
	uint64_t number;

	pthread_mutex_lock(&lock);
	for (size_t i = count; i && stacks.round == round; i--) {
		place = find_place(&frames[i - 1], round);
		node = place ? find_node(node, place) : 0;
		if (!node)
			break;
	}
	number = node && stacks.round == round ? stacks.base + node : 0;
	stacks.figures.taken += number != 0;
	stacks.figures.dropped += count && !number;
	stacks.figures.without += !count;
	pthread_mutex_unlock(&lock);
	return number;
}

static void count_without(void)
{
	pthread_mutex_lock(&lock);
	stacks.figures.without++;
	pthread_mutex_unlock(&lock);
}

static uint64_t take(void)
{
	struct glk_python_frame frames[GLK_TORCH_DEPTH_MAX];
	uint64_t number, round;
	size_t count, depth;
	int state;

	if (!glk_python_enter(&state)) {
		count_without();
		return 0;
	}
	pthread_mutex_lock(&lock);
	depth = stacks.depth;
	round = stacks.round;
	pthread_mutex_unlock(&lock);
	count = glk_python_walk(frames, depth);
	number = number_of(frames, count, round);
	for (size_t i = 0; i < count; i++) {
		if (frames[i].code)
			glk_python_drop(frames[i].code);
	}
	glk_python_leave(state);
	return number;
}

uint64_t glk_torch_stack_take(void)
{
	uint64_t number = 0;
	int cancel;

	if (is_taking) {
		count_without();
		return 0;
	}
	/* one that was cancelled within would be waited for */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	is_taking = true;
	/* either this sees that the taking has ended, or who ends it sees this */
	glk_add_seq_cst(&takers, 1);
	if (glk_load_seq_cst(&is_on))
		number = take();
	glk_sub_acq_rel(&takers, 1);
	is_taking = false;
	pthread_setcancelstate(cancel, NULL);
	return number;
}

/* The next code object that is kept, from place *at on; NULL: no more. */
static void *next_code(uint32_t *at)
{
	void *code = NULL;

	pthread_mutex_lock(&lock);
	for (; !code && *at <= stacks.figures.places; ++*at) {
		code = stacks.tables->places[*at].code;
		stacks.tables->places[*at].code = NULL;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* Until nobody takes a stack, or for so long. */
static void await_takers(int64_t limit)
{
	static const struct timespec pause = {.tv_nsec = 100000};
	struct timespec begun, now;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	/* pairs with: the release in glk_torch_stack_take */
	while (glk_load_acquire(&takers)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - begun.tv_sec) * SECOND + now.tv_nsec - begun.tv_nsec >
			limit)
			return;
		nanosleep(&pause, NULL);
	}
}

/*
 * Nobody takes stacks from now on. Whoever is at it is waited for, for so long, so that no thread of ours
 * waits for Python's lock once Python ends; then code objects are given back. Who is late finds that the
 * round is another, and leaves the tables alone. A thread that cannot enter Python does neither.
 */
static void end_taking(int64_t limit)
{
	uint32_t at = 1;
	void *thread, *code;
	int state;

	/* with glk_torch_stack_take */
	glk_xchg_seq_cst(&is_on, 0);
	pthread_mutex_lock(&lock);
	stacks.round++;
	pthread_mutex_unlock(&lock);
	if (!stacks.tables || !glk_python_enter(&state))
		return;
	thread = glk_python_yield();
	if (!is_taking)
		await_takers(limit);
	glk_python_return(thread);
	while ((code = next_code(&at)))
		glk_python_drop(code);
	glk_python_leave(state);
}

static int begin_taking(size_t depth)
{
	void *at;

	pthread_mutex_lock(&lock);
	if (!stacks.tables) {
		at = mmap(NULL, sizeof(struct tables), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == MAP_FAILED) {
			pthread_mutex_unlock(&lock);
			return -ENOMEM;
		}
		stacks.tables = at;
	}
	stacks.depth = depth < GLK_TORCH_DEPTH_MAX ? depth : GLK_TORCH_DEPTH_MAX;
	stacks.round++;
	pthread_mutex_unlock(&lock);
	glk_xchg_seq_cst(&is_on, 1);
	return 0;
}

static void forget(void)
{
	pthread_mutex_lock(&lock);
	stacks.base += stacks.figures.nodes;
	memset(&stacks.figures, 0, sizeof(stacks.figures));
	/* pages of zeros again; the kernel drops none that are locked */
	if (stacks.tables && madvise(stacks.tables, sizeof(struct tables), MADV_DONTNEED))
		memset(stacks.tables, 0, sizeof(struct tables));
	pthread_mutex_unlock(&lock);
}

int glake_torch_stacks(int depth)
{
	static const struct glake_origins origins = {.sz = sizeof(origins),
		.blocks = glk_torch_history_origins,
		.calls = glake_torch_stack_text};
	int err = depth > 0 ? glk_python_find() : 0;

	if (err)
		return err;
	pthread_once(&once, watch_forks);
	/* no lock: who holds Python's would wait for who waits for that */
	if (glk_xchg_seq_cst(&is_changing, 1))
		return -EBUSY;
	/* what Python runs in a taking may want a lock of who ends it */
	end_taking(depth ? SECOND : INT64_MAX);
	if (depth)
		forget();
	if (depth > 0)
		err = begin_taking((size_t)depth);
	if (depth > 0 && !err)
		err = glake_origins_set(&origins);
	glk_xchg_seq_cst(&is_changing, 0);
	return err;
}

void glake_torch_stacks_get(struct glake_torch_stacks *ret_stacks)
{
	pthread_mutex_lock(&lock);
	*ret_stacks = stacks.figures;
	pthread_mutex_unlock(&lock);
}

/* Appends what is a text with its zero, where it fits; the length with it. */
static size_t put(char *text, size_t room, size_t length, const char *what)
{
	size_t size = strlen(what) + 1;

	if (length + size <= room)
		memcpy(text + length, what, size);
	return length + size;
}

size_t glake_torch_stack_text(uint64_t stack, char *ret_text, size_t room)
{
	const struct tables *t;
	uint64_t node = 0;
	size_t length = 0;
	char line[16];

	pthread_mutex_lock(&lock);
	t = stacks.tables;
	if (stack > stacks.base && stack - stacks.base <= stacks.figures.nodes)
		node = stack - stacks.base;
	for (; node; node = t->nodes[node].above) {
		const struct place *place = &t->places[t->nodes[node].place];

		snprintf(line, sizeof(line), "%d", place->line);
		length = put(ret_text, room, length, line);
		length = put(ret_text, room, length, t->text + place->name);
		length = put(ret_text, room, length, t->text + place->file);
	}
	pthread_mutex_unlock(&lock);
	return length;
}
