/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which path a piece takes: see plan.h. */
#include "tier/io/plan.h"

/* What is not much later: so many pieces of the path over which one arrives first. */
#define SLACK 2

static double later(double a, double b)
{
	return a > b ? a : b;
}

static double brings(const struct glk_plan_link *link, uint64_t bytes)
{
	return link->rate > 0 ? (double)bytes / link->rate : 0;
}

/* Until when a link is booked with so many bytes more. */
static double booked(const struct glk_plan_link *link, uint64_t bytes, double now)
{
	return later(link->free, now) + brings(link, bytes);
}

/* When a piece has made a hop that it may begin at `from`: not before each link could bring it, and
 * all else that is booked there. */
static double made(
	struct glk_plan_link *const *link, uint64_t bytes, double from, double now)
{
	double end = from;

	for (unsigned i = 0; i < GLK_PLAN_LANES && link[i]; i++) {
		end = later(end, from + brings(link[i], bytes));
		end = later(end, booked(link[i], bytes, now));
	}
	return end;
}

double glk_plan_arrival(const struct glk_plan_path *path, uint64_t bytes, double now)
{
	const struct glk_plan_buffer *b = path->buffer;
	double at = b ? later(now, b->held[b->next]) : now;

	for (unsigned i = 0; i < GLK_PLAN_HOPS && path->hop[i][0]; i++)
		at = made(path->hop[i], bytes, at, now);
	return at;
}

/* How long a piece needs over a path on which nothing else is. */
static double needs(const struct glk_plan_path *path, uint64_t bytes)
{
	double sum = 0, slowest;

	for (unsigned i = 0; i < GLK_PLAN_HOPS && path->hop[i][0]; i++) {
		slowest = 0;
		for (unsigned j = 0; j < GLK_PLAN_LANES && path->hop[i][j]; j++)
			slowest = later(slowest, brings(path->hop[i][j], bytes));
		sum += slowest;
	}
	return sum;
}

static bool is_off(const struct glk_plan_path *path)
{
	return path->off || (path->buffer && path->buffer->off);
}

int glk_plan_pick(
	const struct glk_plan_path *paths, unsigned count, uint64_t bytes, double now)
{
	double first = 0, least = 0, at;
	int found = -1;

	for (unsigned i = 0; i < count; i++) {
		if (is_off(&paths[i]))
			continue;
		at = glk_plan_arrival(&paths[i], bytes, now);
		if (found < 0 || at < first) {
			first = at;
			found = (int)i;
		}
	}
	if (found >= 0)
		first += SLACK * needs(&paths[found], bytes);
	for (unsigned i = 0, any = 0; i < count; i++) {
		const struct glk_plan_link *own = paths[i].own;

		if (is_off(&paths[i]) || glk_plan_arrival(&paths[i], bytes, now) > first)
			continue;
		at = (later(own->free, now) - now) * own->rate;
		if (any && at >= least)
			continue;
		any = 1;
		least = at;
		found = (int)i;
	}
	return found;
}

double glk_plan_book(struct glk_plan_path *path, uint64_t bytes, double now)
{
	double at = glk_plan_arrival(path, bytes, now);
	struct glk_plan_buffer *b = path->buffer;

	for (unsigned i = 0; i < GLK_PLAN_HOPS && path->hop[i][0]; i++)
		for (unsigned j = 0; j < GLK_PLAN_LANES && path->hop[i][j]; j++)
			path->hop[i][j]->free = booked(path->hop[i][j], bytes, now);
	if (b) {
		b->held[b->next] = at;
		b->next = (b->next + 1) % b->slots;
	}
	return at;
}
