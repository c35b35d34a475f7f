/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From a handle to a stream, while streams come and go. */
#include "gpu.h"

#include <errno.h>
#include <pthread.h>

/* A handle is a value: these stand for streams that no driver made. */
static struct CUstream_st *fake(uintptr_t n)
{
	return (struct CUstream_st *)(n << 8 | 0x40);
}

/* A driver that knows all handles but one, and numbers streams as it is told. */
static uint64_t serial_of_next;
static struct CUstream_st *foreign;

static int facts_of(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_stream_facts *ret_facts)
{
	(void)drv;
	(void)device;
	(void)stream;
	*ret_facts = (struct glk_stream_facts){.id = serial_of_next};
	return 0;
}

static int owner_of(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	(void)drv;
	(void)device;
	return foreign && stream == foreign ? -EINVAL : 0;
}

static void table_open(struct gpu *gpu)
{
	static struct glk_drv_ops ops;

	gpu_open(gpu);
	ops = *gpu->drv->ops;
	ops.stream_facts = facts_of;
	ops.stream_owner = owner_of;
	gpu->drv->ops = &ops;
	serial_of_next = 0;
	foreign = NULL;
}

static void finds(void)
{
	uint32_t a = 0, b = 0, none = 0, again = 0;
	struct gpu gpu;

	table_open(&gpu);
	is_int(glk_stream_get(&gpu.streams, fake(1), NULL, &a), 0, "a stream is known");
	is_int(glk_stream_get(&gpu.streams, fake(2), NULL, &b), 0, "and another");
	is_int(glk_stream_get(&gpu.streams, NULL, NULL, &none), 0, "the default stream is one");
	ok(a && b && none && a != b && a != none && b != none, "each by its own number");
	is_int(glk_stream_get(&gpu.streams, fake(1), NULL, &again), 0, "the same again");
	is_int(again, a, "has the same number");
	is_int(glk_load_relaxed(&gpu.streams.slab.live), 3, "no more were made");
	gpu_close(&gpu);
}

static void retires(void)
{
	struct glk_stream *s, *other;
	uint32_t id = 0, live;
	struct gpu gpu;

	table_open(&gpu);
	other = gpu_enter(&gpu, fake(9));
	s = gpu_enter(&gpu, fake(1));
	is_int(s->bit, other->bit + 1, "streams get their bits in turn");
	gpu_free(&gpu, s);
	live = glk_load_relaxed(&gpu.streams.slab.live);
	glk_stream_retire(&gpu.streams, fake(1));
	is_int(glk_load_relaxed(&gpu.streams.slab.live), live - 1, "one is retired");
	glk_stream_retire(&gpu.streams, fake(1));
	glk_stream_retire(&gpu.streams, fake(77));
	is_int(glk_load_relaxed(&gpu.streams.slab.live), live - 1,
		"one that is not known does nothing");
	is_int(glk_stream_get(&gpu.streams, fake(1), NULL, &id), 0,
		"the driver gives the handle again");
	s = glk_slab_at(&gpu.streams.slab, id);
	ok(s->freed == 0 && s->bit == GLK_STREAM_BITS, "its past is forgotten");
	s = glk_stream_enter(&gpu.streams, id);
	is_int(s->bit, other->bit + 1, "it takes the bit that is free");
	is_int((int64_t)s->done, (int64_t)gpu.streams.tick,
		"what the bit stood for has finished");
	gpu_close(&gpu);
}

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
	is_int(glk_stream_get(&gpu.streams, fake(GLK_STREAMS_MAX + 1), NULL, &id), -ENOMEM,
		"and one more");
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
	live = glk_load_relaxed(&gpu.streams.slab.live);
	glk_region_fail_after(1);
	is_int(glk_stream_get(&gpu.streams, fake(2), NULL, &id), -ENOMEM, "no memory to add");
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
	is_int(glk_stream_get(&gpu.streams, fake(2), NULL, &id), 0, "later there is memory");
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

#define READERS 3
#define KNOWN	64
#define ADDED	600

struct readers {
	struct glk_streams *streams;
	uint32_t id[KNOWN];
	glk_atomic(bool) stop;
	glk_atomic(uint64_t) rounds, wrong;
};

static void *read_on(void *arg)
{
	struct readers *r = arg;

	do {
		for (uintptr_t n = 0; n < KNOWN; n++) {
			uint32_t id = 0;

			if (glk_stream_get(r->streams, fake(n + 1), NULL, &id) ||
				id != r->id[n])
				glk_add_relaxed(&r->wrong, 1);
		}
		glk_add_relaxed(&r->rounds, 1);
	} while (!glk_load_relaxed(&r->stop));
	return NULL;
}

/* Streams are added and retired while other threads look up those that stay. */
static void reads_meanwhile(void)
{
	pthread_t thread[READERS];
	static struct readers r;
	uint32_t id = 0;
	struct gpu gpu;
	int err = 0;

	table_open(&gpu);
	r.streams = &gpu.streams;
	for (uintptr_t n = 0; n < KNOWN; n++)
		glk_stream_get(&gpu.streams, fake(n + 1), NULL, &r.id[n]);
	for (int i = 0; i < READERS; i++)
		pthread_create(&thread[i], NULL, read_on, &r);
	for (uintptr_t n = 0; n < ADDED; n++) {
		err |= glk_stream_get(&gpu.streams, fake(1000 + n), NULL, &id);
		if (n % 3)
			glk_stream_retire(&gpu.streams, fake(1000 + n));
	}
	glk_store_relaxed(&r.stop, true);
	for (int i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	is_int(err, 0, "streams are added while others look them up");
	is_int((int64_t)glk_load_relaxed(&r.wrong), 0, "no reader saw a wrong one");
	ok(glk_load_relaxed(&r.rounds) >= READERS, "each reader read");
	is_int(glk_load_relaxed(&gpu.streams.slab.live), KNOWN + ADDED / 3,
		"the others are gone");
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	finds();
	retires();
	fills();
	lacks_memory();
	crowds();
	reads_meanwhile();
	return tap_done();
}
