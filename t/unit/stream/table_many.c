/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of streams where there are many: at its limits, and as it grows. */
#include "table_parts.h"

static void fills(void)
{
	struct gpu gpu;
	uint32_t id = 0;
	int err = 0;

	table_open(&gpu);
	for (uintptr_t n = 1; n <= GLK_STREAMS_MAX && !err; n++)
		err = glk_stream_get(&gpu.streams, fake(n), NULL, &id);
	is_int(err, 0, "as many streams as there can be");
	id = 1234;
	is_int(glk_stream_get(&gpu.streams, fake(GLK_STREAMS_MAX + 1), NULL, &id),
		-ENOMEM, "and one more");
	is_int(gpu_class(), GLAKE_ERROR_LIMIT, "is above a limit");
	is_int(id, 1234, "the output is as it was");
	is_int(glk_stream_get(&gpu.streams, fake(GLK_STREAMS_MAX), NULL, &id), 0,
		"the last one is still known");
	glk_stream_retire(&gpu.streams, fake(5));
	is_int(glk_stream_get(&gpu.streams, fake(GLK_STREAMS_MAX + 1), NULL, &id), 0,
		"once one is retired there is room");
	is_int(glk_stream_get(&gpu.streams, fake(5), NULL, &id), -ENOMEM, "for no more");
	gpu_close(&gpu);
}

static void lacks_memory(void)
{
	uint32_t id = 99, live;
	struct glk_stream *s;
	struct glk_use use;
	struct gpu gpu;

	table_open(&gpu);
	s = gpu_enter(&gpu, fake(1));
	use = gpu_free(&gpu, s);
	gpu_fill(&gpu);
	live = glk_load_relaxed(&gpu.streams.slab.live);
	glk_region_fail_after(1);
	is_int(glk_stream_get(&gpu.streams, fake(2), NULL, &id), -ENOMEM,
		"no memory to add");
	is_int(gpu_class(), GLAKE_ERROR_NOMEM_HOST, "of the host");
	is_int(id, 99, "the output is as it was");
	is_int(glk_load_relaxed(&gpu.streams.slab.live), live, "nothing was added");
	is_int(glk_stream_get(&gpu.streams, fake(1), NULL, &id), 0,
		"one that is known needs none");
	glk_stream_retire(&gpu.streams, fake(1));
	ok(glk_clock_finished(&gpu.streams, &use), "without memory a stream still ends");
	glk_region_fail_after(0);
	is_int(glk_stream_get(&gpu.streams, fake(1), NULL, &id), 0, "and begins anew");
	s = glk_stream_enter(&gpu.streams, id);
	ok(s->bit < GLK_STREAM_BITS && s->done == gpu.streams.tick, "as a new one");
	is_int(glk_stream_get(&gpu.streams, fake(2), NULL, &id), 0,
		"later there is memory");
	gpu_close(&gpu);
}

/* What a stream costs does not depend on how many there are, or were: tables are copied, with a grace period
 * each, ever less often. */
static void copies_seldom(void)
{
	struct glk_stream_facts facts;
	uint32_t id = 0, first = 0;
	uint64_t graces;
	struct gpu gpu;
	int err = 0;

	table_open(&gpu);
	for (uintptr_t n = 1; n < GLK_STREAMS_MAX; n++)
		err |= glk_stream_get(&gpu.streams, fake(n), NULL, &id);
	graces = glk_load_relaxed(&gpu.streams.graces);
	ok(!err && graces && graces <= 12,
		"thousands become known with 12 copies at most");
	for (uintptr_t n = 1; n < GLK_STREAMS_MAX; n++)
		glk_stream_retire(&gpu.streams, fake(n));
	is_int((int64_t)(glk_load_relaxed(&gpu.streams.graces) - graces), 0,
		"they end without one");
	is_int(gpu_known(&gpu), 0, "and nothing of them is known");
	is_int(glk_stream_find(&gpu.streams, fake(7)), 0, "nor found");
	glk_stream_get(&gpu.streams, NULL, NULL, &first);
	for (uintptr_t n = 0; n < 100000 && !err; n++) {
		/* a handle of its own, and one that comes back again and again */
		err = glk_stream_get(&gpu.streams, fake(10000 + n), NULL, &id);
		glk_stream_retire(&gpu.streams, fake(10000 + n));
		serial_of_next = n + 1;
		err |= glk_stream_get(&gpu.streams, fake(9999), &facts, &id);
		err |= glk_stream_find(&gpu.streams, fake(9999)) != id ||
			glk_stream_find(&gpu.streams, fake(10000 + n));
	}
	is_int(err, 0, "a hundred thousand come and go");
	is_int(gpu_known(&gpu), 2, "and two are left");
	is_int(glk_stream_find(&gpu.streams, NULL), first, "one of them the first");
	graces = glk_load_relaxed(&gpu.streams.graces) - graces;
	ok(graces <= 100000 / 4, "each at a quarter of a copy at most");
	gpu_close(&gpu);
}

static void crowds(void)
{
	struct glk_stream *s[GLK_STREAM_CROWD + 4], *new;
	bool apart = true, together = true;
	uint32_t in_crowd = 0, id;
	struct gpu gpu;

	table_open(&gpu);
	for (unsigned i = 0; i < GLK_STREAM_CROWD + 4; i++)
		s[i] = gpu_enter(&gpu, fake(i + 1));
	for (unsigned i = 0; i < GLK_STREAM_CROWD; i++)
		apart &= s[i]->bit == i;
	for (unsigned i = GLK_STREAM_CROWD; i < GLK_STREAM_CROWD + 4; i++)
		together &= s[i]->bit == GLK_STREAM_CROWD;
	ok(apart, "63 streams have a bit each");
	ok(together, "the ones above share the last");
	/* from the middle, and the head */
	glk_stream_retire(&gpu.streams, fake(GLK_STREAM_CROWD + 2));
	glk_stream_retire(&gpu.streams, fake(GLK_STREAM_CROWD + 4));
	for (id = gpu.streams.by_bit[GLK_STREAM_CROWD]; id; in_crowd++)
		id = ((struct glk_stream *)glk_slab_at(&gpu.streams.slab, id))->next;
	is_int(in_crowd, 2, "streams leave the crowd");
	glk_stream_retire(&gpu.streams, fake(11));
	new = gpu_enter(&gpu, fake(1000));
	is_int(new->bit, 10, "a free bit goes to the next stream");
	is_int(gpu_enter(&gpu, fake(1001))->bit, GLK_STREAM_CROWD,
		"and then it is the crowd again");
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	fills();
	lacks_memory();
	copies_seldom();
	crowds();
	return tap_done();
}
