/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests made up to hurt: what jobs do at their worst, each pattern alone.
 */
#include "policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

static uint64_t state;

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* As many between low and high for each power of two. */
static uint64_t draw_power(uint64_t low, uint64_t high)
{
	uint64_t size = low, powers = 0;

	while (low << powers < high)
		powers++;
	size <<= draw() % powers;
	return size + draw() % size;
}

struct live {
	uint32_t id[1 << 20];
	uint64_t size[1 << 20];
	uint32_t blocks, next;
	uint64_t bytes;
};

static void give(struct trace *t, struct live *l, uint64_t size)
{
	l->id[l->blocks] = l->next;
	l->size[l->blocks++] = size;
	l->bytes += size;
	trace_add(t, l->next++, size);
}

static void take(struct trace *t, struct live *l, uint32_t i)
{
	trace_add(t, l->id[i], 0);
	l->bytes -= l->size[i];
	l->id[i] = l->id[--l->blocks];
	l->size[i] = l->size[l->blocks];
}

static void empty(struct trace *t, struct live *l, uint64_t bytes)
{
	while (l->blocks && l->bytes > bytes)
		take(t, l, (uint32_t)(draw() % l->blocks));
}

/* All of one size, then all of half or twice of it; the last of each size may stay a while. */
static void halves(struct trace *t, struct live *l)
{
	static const uint64_t size[] = {32 * MIB, 16 * MIB, 8 * MIB, 4 * MIB, 2 * MIB,
		MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 512 * KIB, 256 * KIB, 64 * MIB,
		1536 * KIB, 3 * MIB, 6 * MIB};

	for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++) {
		while (l->bytes + size[i] <= 8 * GIB)
			give(t, l, size[i]);
		empty(t, l, 0);
	}
}

static void phases(struct trace *t, struct live *l)
{
	for (int i = 0; i < 6; i++) {
		while (l->bytes < 4 * GIB)
			give(t, l,
				i % 2 ? draw_power(2 * MIB, 128 * MIB)
				      : draw_power(16 * KIB, 512 * KIB));
		empty(t, l, 0);
	}
}

static void around(struct trace *t, struct live *l)
{
	for (int i = 0; i < 60000; i++) {
		give(t, l, 3 * MIB + draw() % (2 * MIB));
		empty(t, l, 8 * GIB);
	}
}

static void saw(struct trace *t, struct live *l)
{
	for (int i = 0; i < 12; i++) {
		while (l->bytes < 8 * GIB)
			give(t, l, draw_power(4 * KIB, 256 * MIB));
		empty(t, l, 2 * GIB);
	}
}

/* No size twice, the oldest freed first. */
static void unique(struct trace *t, struct live *l)
{
	uint64_t size = MIB;

	for (uint32_t i = 0, old = 0; i < 20000; i++, size += 512) {
		give(t, l, size);
		while (l->bytes > 6 * GIB) {
			trace_add(t, old, 0);
			l->bytes -= l->size[old++];
		}
	}
}

static const struct {
	const char *name;
	void (*make)(struct trace *t, struct live *l);
} pattern[] = {{"halves", halves}, {"phases", phases}, {"around", around}, {"saw", saw},
	{"unique", unique}};

int trace_synthetic(struct trace *t, const char *name)
{
	for (size_t i = 0; i < sizeof(pattern) / sizeof(*pattern); i++)
		if (!strcmp(name, pattern[i].name)) {
			struct live *l = calloc(1, sizeof(*l));

			if (!l)
				abort();
			state = 88172645463325252ull;
			snprintf(t->name, sizeof(t->name), "%s", name);
			pattern[i].make(t, l);
			free(l);
			trace_finish(t);
			return 0;
		}
	return -1;
}
