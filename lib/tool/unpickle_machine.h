/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_UNPICKLE_MACHINE_H
#define GLK_TOOL_UNPICKLE_MACHINE_H

/* The machine that reads a pickle. Inside of it. */
#include "tool/unpickle_store.h"

#define MACHINE_INPUT ((size_t)64 << 10)
#define MACHINE_MARKS 1024

struct machine {
	struct unpickle *u;
	struct pile stack, memo;
	size_t mark[MACHINE_MARKS], marks;
	const char *const *words;

	struct trace_source *source;
	char input[MACHINE_INPUT];
	size_t next, filled;
	uint64_t read; /* bytes before the input */
	char *message;
	size_t message_size;
};

/* Leaves a sentence; returns `err`. */
int machine_fail(struct machine *m, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* After what the store answers. */
int machine_check(struct machine *m, int err);
/* So many bytes of input; those behind `size` are stepped over. */
int machine_take(struct machine *m, void *to, size_t size, uint64_t length);
int machine_push(struct machine *m, struct unpickle_value value);
/* unpickle_stack.c: the opcodes that move what there is. */
int machine_move(struct machine *m, unsigned char code);

static inline struct unpickle_value *machine_value(struct machine *m, size_t number)
{
	return pile_at(&m->stack, number);
}

static inline struct unpickle_value *machine_top(struct machine *m)
{
	return machine_value(m, m->stack.count);
}

/* Where the things above the last mark begin; without one, all are below. */
static inline size_t machine_base(const struct machine *m)
{
	return m->marks ? m->mark[m->marks - 1] : 0;
}

/* Whether there are so many values above the last mark. */
static inline bool machine_has(const struct machine *m, size_t count)
{
	return m->stack.count - machine_base(m) >= count;
}

#endif
