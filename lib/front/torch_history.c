/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What was asked for and freed, for pictures of the memory: a ring of the last events, and all
 * live blocks in a table by their addresses. Off unless asked for; then about 100 ns an event,
 * and threads take turns. What was given before is not known and its end not noted, so every
 * free in the ring has been given in the table.
 *
 * The table probes linearly and closes gaps at a removal, so it needs no marks. When it is full,
 * further blocks are not noted. Memory is mapped when the history begins.
 */
#include "front/torch.h"

#include "base/atomic.h"
#include "front/torch_stack.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Half full at most: about one and a half looks a block. */
#define SLOTS (2 * GLK_TORCH_BLOCKS_MAX)

static struct {
	struct glake_torch_record *ring, *table;
	size_t room;  /* of the ring */
	size_t count; /* events ever */
	size_t live;  /* blocks */
} history;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static glk_atomic(int) is_on;

bool glk_torch_history_on(void)
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

/* A forked child frees what it inherited. */
static void in_child(void)
{
	glk_store_relaxed(&is_on, 0);
	pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

static struct glake_torch_record *map_records(size_t count)
{
	void *records = mmap(NULL, count * sizeof(struct glake_torch_record),
		PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		0);

	return records == MAP_FAILED ? NULL : records;
}

static void unmap_records(struct glake_torch_record *records, size_t count)
{
	if (records)
		munmap(records, count * sizeof(*records));
}

static void end_history(void)
{
	unmap_records(history.ring, history.room);
	unmap_records(history.table, SLOTS);
	memset(&history, 0, sizeof(history));
}

int glake_torch_history(size_t events)
{
	int err = 0;

	if (events > GLK_TORCH_EVENTS_MAX)
		events = GLK_TORCH_EVENTS_MAX;
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock);
	glk_store_relaxed(&is_on, 0);
	end_history();
	if (!events)
		goto out;
	history.room = events;
	history.ring = map_records(events);
	history.table = map_records(SLOTS);
	if (!history.ring || !history.table) {
		end_history();
		err = -ENOMEM;
		goto out;
	}
	glk_store_relaxed(&is_on, 1);
out:
	pthread_mutex_unlock(&lock);
	return err;
}

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Blocks begin at multiples of the grain; the multiplier is that of Fibonacci hashing. */
static size_t home_of(uint64_t address)
{
	return (address / GLAKE_GRAIN * UINT64_C(0x9E3779B97F4A7C15) >> 32) % SLOTS;
}

/* Its slot, or the free one where it would stand. */
static struct glake_torch_record *slot_of(uint64_t address)
{
	size_t i = home_of(address);

	while (history.table[i].address && history.table[i].address != address)
		i = (i + 1) % SLOTS;
	return &history.table[i];
}

static void empty_slot(struct glake_torch_record *slot)
{
	size_t gap = (size_t)(slot - history.table), i = gap;

	for (;;) {
		size_t home;

		i = (i + 1) % SLOTS;
		if (!history.table[i].address)
			break;
		home = home_of(history.table[i].address);
		/* moves up unless its home lies behind the gap */
		if ((i + SLOTS - home) % SLOTS >= (i + SLOTS - gap) % SLOTS) {
			history.table[gap] = history.table[i];
			gap = i;
		}
	}
	history.table[gap].address = 0;
}

static void note(struct glake_torch_record record, enum glk_torch_action action)
{
	record.action = action;
	record.time_us = now_us();
	history.ring[history.count++ % history.room] = record;
}

void glk_torch_history_alloc(const void *ptr, size_t size, int device,
	const struct CUstream_st *stream, bool asks_python)
{
	struct glake_torch_record record = {.address = (uintptr_t)ptr,
		.size = size,
		.stream = (uintptr_t)stream,
		.time_us = now_us(),
		.device = device,
		.stack = asks_python && glk_torch_stacks_on() ? glk_torch_stack_take()
							      : 0};
	struct glake_torch_record *slot;

	pthread_mutex_lock(&lock);
	if (!history.ring || history.live >= GLK_TORCH_BLOCKS_MAX)
		goto out;
	slot = slot_of(record.address);
	history.live += !slot->address;
	*slot = record;
	note(record, GLK_TORCH_ALLOC);
out:
	pthread_mutex_unlock(&lock);
}

void glk_torch_history_free(const void *ptr)
{
	struct glake_torch_record *slot;

	pthread_mutex_lock(&lock);
	if (!history.ring)
		goto out;
	slot = slot_of((uintptr_t)ptr);
	if (!slot->address)
		goto out;
	note(*slot, GLK_TORCH_FREE);
	empty_slot(slot);
	history.live--;
out:
	pthread_mutex_unlock(&lock);
}

void glk_torch_history_oom(
	uint64_t free, size_t size, int device, const struct CUstream_st *stream)
{
	struct glake_torch_record record = {.address = free,
		.size = size,
		.stream = (uintptr_t)stream,
		.device = device,
		.stack = glk_torch_stacks_on() ? glk_torch_stack_take() : 0};

	pthread_mutex_lock(&lock);
	if (history.ring)
		note(record, GLK_TORCH_OOM);
	pthread_mutex_unlock(&lock);
}

size_t glake_torch_history_get(
	int live, struct glake_torch_record *ret_records, size_t room)
{
	size_t count, from;

	pthread_mutex_lock(&lock);
	if (live) {
		count = history.live;
		for (size_t i = 0, to = 0; count && i < SLOTS && to < room; i++) {
			if (history.table[i].address)
				ret_records[to++] = history.table[i];
		}
	} else {
		count = history.count < history.room ? history.count : history.room;
		from = history.count - count;
		for (size_t i = 0; i < count && i < room; i++)
			ret_records[i] = history.ring[(from + i) % history.room];
	}
	pthread_mutex_unlock(&lock);
	return count;
}

/* By slots of the table: one that moves up into a gap meanwhile may be passed over. */
size_t glk_torch_history_origins(
	uint64_t *cursor, struct glake_origin *ret_origins, size_t room)
{
	size_t count = 0;

	pthread_mutex_lock(&lock);
	for (; history.table && *cursor < SLOTS && count < room; ++*cursor) {
		const struct glake_torch_record *record = &history.table[*cursor];

		if (record->address && record->stack)
			ret_origins[count++] = (struct glake_origin){
				.address = record->address, .stack = record->stack};
	}
	pthread_mutex_unlock(&lock);
	return count;
}
