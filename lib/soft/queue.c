/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The queues of the software device's streams. An operation stands in its stream's queue
 * until it runs; while it stands, the mappings it names count it, so that an unmap of them is
 * refused with both sides named.
 *
 * In worker mode operations run at once, inline, unless something unfinished stands before
 * them (a held stream, a wait on one). In stepped mode they run only when a test steps them or
 * the host waits for the stream. At random, queued work also runs before the calls that reach the
 * device: how many steps, and of which streams that can run, a generator says. So all
 * orders that streams and events allow come up, early and late ones, and a program that is
 * right must give the same results in each of them. Calls come in phases of 1 to 256. In each phase
 * some streams sleep, from none to all, so that work may also be left behind for long.
 *
 * Invariant	a wait names a record that was queued before it, so waits alone cannot lock up
 * Guarantees	at random, in a program of one thread, the same seed makes the same steps
 * Cost		at random, for a step a look at every stream ever used
 */
#include "soft/managed.h"

#include "base/error.h"

#include <errno.h>
#include <time.h>

static const char *const kind_names[] = {
	[SOFT_WORK] = "kernel",
	[SOFT_COPY] = "copy",
	[SOFT_FILL] = "fill",
	[SOFT_RECORD] = "record",
	[SOFT_WAIT] = "wait",
	[SOFT_LAUNCH] = "kernel of the library",
	[SOFT_PREFETCH] = "prefetch",
	[SOFT_GATE] = "gate",
};

const char *glk_soft_kind_name(uint8_t kind)
{
	return kind_names[kind];
}

bool glk_soft_queue_is_done(const struct soft *soft, uint32_t op, uint64_t serial)
{
	return !op || soft_op_at(soft, op)->serial != serial;
}

/* Adds `step` to the count of every mapping and page in a range; host memory has none. */
static void range_count(struct soft *soft, uint64_t addr, size_t size, int step)
{
	uint64_t at = addr & ~(GLK_GRANULE - 1);
	int piece = addr && size ? glk_soft_managed_find(soft, addr) : -1;

	if (piece >= 0)
		soft->managed->piece[piece].queued += (uint32_t)step;
	if (!addr || !glk_book_span(&soft->book, addr, 1))
		return;
	while (at < addr + size) {
		struct glk_mapping *mapping = glk_book_find(&soft->book, at);

		if (mapping) {
			mapping->queued += (uint32_t)step;
			soft_page_at(soft, mapping->page)->queued += (uint32_t)step;
		}
		at = mapping ? mapping->addr + mapping->size : at + GLK_GRANULE;
	}
}

static void op_count(struct soft *soft, const struct soft_op *op, int step)
{
	range_count(soft, op->dst, op->size, step);
	range_count(soft, op->src, op->size, step);
}

static bool names(const struct soft_op *op, uint64_t addr, size_t size)
{
	return (op->dst && op->dst < addr + size && addr < op->dst + op->size) ||
		(op->src && op->src < addr + size && addr < op->src + op->size);
}

/* Looks for the culprit; only on the way to an error, so a walk over all queues is right. */
static const struct soft_op *op_naming(
	const struct soft *soft, uint64_t addr, size_t size)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used);

	for (uint32_t id = 1; id <= used; id++) {
		uint32_t slot = soft_stream_at(soft, id)->head;

		for (; slot; slot = soft_op_at(soft, slot)->next)
			if (names(soft_op_at(soft, slot), addr, size))
				return soft_op_at(soft, slot);
	}
	return NULL;
}

int glk_soft_queue_refuse(struct soft *soft, uint64_t addr, size_t size, const char *call)
{
	const struct glk_mapping *mapping = NULL;
	const struct soft_op *op;
	uint64_t at = addr;

	if (!soft->pending)
		return 0;
	for (; at < addr + size; at += mapping->size) {
		mapping = glk_book_find(&soft->book, at);
		if (mapping->queued)
			break;
	}
	if (at >= addr + size)
		return 0;
	op = op_naming(soft, mapping->addr, mapping->size);
	if (!op)
		return glk_error_native(-EIO, GLAKE_ERROR_CORRUPT, call, 0,
			"%u queued operations name %#lx and none is found",
			mapping->queued, (unsigned long)mapping->addr);
	return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
		"%s rule: %#lx + %zu is named by work not yet run: a %s of %zu bytes at %#lx, "
		"operation %lu on stream %u of GPU %d",
		call, (unsigned long)addr, size, kind_names[op->kind], op->size,
		(unsigned long)(op->dst ? op->dst : op->src), (unsigned long)op->serial,
		op->stream, soft_stream_at(soft, op->stream)->device);
}

static void op_run(struct soft *soft, uint32_t stream, const struct soft_op *op)
{
	glk_soft_managed_run(soft, soft_stream_at(soft, stream)->device, op);
	glk_soft_link_run(soft, soft_stream_at(soft, stream), op);
	glk_soft_contents_run(soft, op);
	if (op->kind == SOFT_LAUNCH)
		op->twin(op->args);
}

/* The stream has come there, which it says. */
static bool is_open(const struct soft_op *op)
{
	glk_store_release(&op->gate->at, op->value); /* pairs with: who opens it */
	/* pairs with: the same */
	return glk_drv_gate_reached(op->value, glk_load_acquire(&op->gate->open));
}

static bool can_step(const struct soft *soft, uint32_t stream)
{
	const struct soft_stream *s = soft_stream_at(soft, stream);
	const struct soft_op *op = soft_op_at(soft, s->head);

	if (!s->head || s->held)
		return false;
	if (op->kind == SOFT_GATE)
		return is_open(op);
	return op->kind != SOFT_WAIT ||
		glk_soft_queue_is_done(soft, op->target, op->target_serial);
}

bool glk_soft_queue_step(struct soft *soft, uint32_t stream)
{
	struct soft_stream *s = soft_stream_at(soft, stream);
	uint32_t slot = s->head;
	struct soft_op *op;

	if (!can_step(soft, stream))
		return false;
	op = soft_op_at(soft, slot);
	if (soft->paced && !glk_soft_pace_ready(soft, s, op))
		return false;
	op_run(soft, stream, op);
	op_count(soft, op, -1);
	s->head = op->next;
	if (!s->head)
		s->tail = 0;
	s->pending--;
	soft->pending--;
	soft->gates -= op->kind == SOFT_GATE;
	op->serial = 0;
	glk_slab_put(&soft->ops, slot);
	return true;
}

void glk_soft_queue_run(struct soft *soft)
{
	bool moved = true;

	while (moved && soft->pending) {
		uint32_t used = glk_load_relaxed(&soft->streams.used);

		moved = false;
		for (uint32_t id = 1; id <= used; id++)
			while (glk_soft_queue_step(soft, id))
				moved = true;
	}
}

uint32_t glk_soft_queue_put(struct soft *soft, uint32_t stream, const struct soft_op *op)
{
	struct soft_stream *s = soft_stream_at(soft, stream);
	struct soft_op *queued;
	uint32_t slot;

	if (!soft->stepped && !s->head && !s->held && op->kind != SOFT_WAIT &&
		op->kind != SOFT_GATE && !(soft->paced && op->kind == SOFT_COPY)) {
		op_run(soft, stream, op);
		return 0;
	}
	/* what is queued now begins at no earlier time */
	if (soft->paced && !s->head && soft->pace > (double)s->now)
		s->now = (int64_t)soft->pace;
	slot = glk_slab_get(&soft->ops);
	queued = soft_op_at(soft, slot);
	*queued = *op;
	queued->serial = ++soft->serial;
	queued->stream = stream;
	queued->next = 0;
	if (s->tail)
		soft_op_at(soft, s->tail)->next = slot;
	else
		s->head = slot;
	s->tail = slot;
	s->pending++;
	soft->pending++;
	soft->gates += op->kind == SOFT_GATE;
	op_count(soft, queued, 1);
	return slot;
}

int glk_soft_queue_room(const struct soft *soft, uint32_t count)
{
	uint32_t queued = glk_load_relaxed(&soft->ops.live);

	if (count <= soft->ops.max - queued)
		return 0;
	return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"%u operations cannot be queued: %u of %u are", count, queued,
		soft->ops.max);
}

/* A wait of the host meets a copy whose time has not come: whatever can run does, or else time goes on. */
static void go_on(struct soft *soft)
{
	uint32_t before = soft->pending;

	glk_soft_queue_run(soft);
	if (soft->pending == before)
		glk_soft_pace_next(soft);
}

/* Another thread opens a gate, and may call the device before. */
static void await_host(struct soft *soft)
{
	static const struct timespec soon = {.tv_nsec = 10000};

	glk_unlock(&soft->lock);
	nanosleep(&soon, NULL);
	glk_lock(&soft->lock);
}

/* Runs a stream, and what it waits for, until it is empty or this operation of it is done. */
static int run_until(struct soft *soft, uint32_t stream, uint32_t last, uint64_t serial,
	const char *call)
{
	uint32_t at = stream;

	while (last ? !glk_soft_queue_is_done(soft, last, serial)
		    : soft_stream_at(soft, stream)->head != 0) {
		const struct soft_op *op =
			soft_op_at(soft, soft_stream_at(soft, at)->head);

		if (glk_soft_queue_step(soft, at)) {
			at = stream;
			continue;
		}
		if (soft_stream_at(soft, at)->held)
			return glk_error_native(-EBUSY, GLAKE_ERROR_BUSY, call, 0,
				"%s would wait for ever: stream %u of GPU %d is held",
				call, at, soft_stream_at(soft, at)->device);
		if (op->kind == SOFT_GATE) {
			await_host(soft);
			at = stream;
			continue;
		}
		if (op->kind != SOFT_WAIT) {
			go_on(soft);
			at = stream;
			continue;
		}
		/* It waits for a record in another queue, which has to move first. */
		at = soft_op_at(soft, op->target)->stream;
	}
	return 0;
}

int glk_soft_queue_drain(struct soft *soft, uint32_t stream, const char *call)
{
	return run_until(soft, stream, 0, 0, call);
}

int glk_soft_queue_await(
	struct soft *soft, uint32_t op, uint64_t serial, const char *call)
{
	if (glk_soft_queue_is_done(soft, op, serial))
		return 0;
	return run_until(soft, soft_op_at(soft, op)->stream, op, serial, call);
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t roll(struct soft_dice *dice)
{
	dice->state += UINT64_C(0x9e3779b97f4a7c15);
	return mix(dice->state);
}

uint32_t glk_soft_queue_roll(struct soft *soft, uint32_t sides)
{
	return (uint32_t)((roll(&soft->dice) >> 32) * sides >> 32);
}

/* A phase with laziness n puts n quarters of the streams to sleep. */
static bool is_awake(const struct soft_dice *dice, uint32_t stream)
{
	return (mix(dice->phase ^ stream) & 3) >= dice->lazy;
}

static void phase_begin(struct soft *soft)
{
	struct soft_dice *dice = &soft->dice;

	dice->left = 1u << glk_soft_queue_roll(soft, 9);
	dice->lazy = glk_soft_queue_roll(soft, 5);
	dice->phase = roll(dice);
}

/* The `wanted`-th of the streams that are awake and can run, or, if there are not so many, 0 and
 * their number. */
static uint32_t runnable(const struct soft *soft, uint32_t wanted, uint32_t *ret_count)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used), count = 0;

	for (uint32_t id = 1; id <= used; id++) {
		if (!can_step(soft, id) || !is_awake(&soft->dice, id))
			continue;
		if (count++ == wanted)
			return id;
	}
	*ret_count = count;
	return 0;
}

static void steps(struct soft *soft)
{
	static const uint8_t counts[] = {0, 0, 0, 1, 1, 1, 3, 12};
	uint32_t count = counts[glk_soft_queue_roll(soft, 8)], ways = 0;

	for (; count; count--) {
		runnable(soft, UINT32_MAX, &ways);
		if (!ways)
			break;
		glk_soft_queue_step(
			soft, runnable(soft, glk_soft_queue_roll(soft, ways), &ways));
	}
}

/* A call has come. */
static void turn(struct soft *soft)
{
	if (soft->paced || (soft->gates && !soft->stepped))
		glk_soft_queue_run(soft);
	if (!soft->random || !soft->pending)
		return;
	if (!soft->dice.left)
		phase_begin(soft);
	soft->dice.left--;
	steps(soft);
}

void glk_soft_queue_init(struct soft *soft, int64_t seed)
{
	/* Neighbouring seeds shall not be neighbouring states. */
	soft->dice = (struct soft_dice){.state = mix((uint64_t)seed + 1)};
	soft->turn = turn;
}
