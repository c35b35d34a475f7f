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

/* A driver that knows all handles but one and those that have ended, and numbers streams as it is
 * told. */
static uint64_t serial_of_next;
static struct CUstream_st *foreign;
static glk_atomic(uintptr_t) ended_below;

static int facts_of(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_stream_facts *ret_facts)
{
	(void)drv;
	(void)device;
	if ((uintptr_t)stream >> 8 && stream < fake(glk_load_relaxed(&ended_below)))
		return -EINVAL;
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
	glk_store_relaxed(&ended_below, 0);
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
/* The default stream of the GPU has two names. */
static void names_legacy(void)
{
	uint32_t id = 0, again = 0;
	struct gpu gpu;

	gpu_open(&gpu);
	is_int((int64_t)glk_stream_key(GLK_STREAM_LEGACY), 0,
		"1 is a name of the legacy stream");
	is_int((int64_t)glk_stream_key(NULL), 0, "so is NULL");
	is_int(glk_stream_get(&gpu.streams, GLK_STREAM_LEGACY, NULL, &id), 0,
		"known by one");
	is_int(glk_stream_get(&gpu.streams, NULL, NULL, &again), 0, "known by the other");
	is_int(again, id, "as the same");
	is_int(gpu_known(&gpu), 1, "there is one");
	ok(gpu_enter(&gpu, GLK_STREAM_LEGACY) == gpu_enter(&gpu, NULL), "with one bit");
	ok(glk_stream_name(GLK_STREAM_LEGACY) == NULL, "the first name is NULL");
	gpu_close(&gpu);
}
/* What is no stream of this GPU is not remembered. */
static void refuses(void)
{
	struct glk_stream_facts facts;
	struct CUstream_st *dead;
	uint32_t id = 5;
	struct gpu gpu;

	table_open(&gpu);
	foreign = fake(7);
	is_int(glk_stream_get(&gpu.streams, foreign, NULL, &id), -EINVAL,
		"a stream of another GPU");
	is_int(glk_stream_get(&gpu.streams, foreign, &facts, &id), -EINVAL, "the same");
	is_int(id, 5, "the output is as it was");
	is_int(gpu_known(&gpu), 0, "nothing is remembered");
	foreign = NULL;
	is_int(glk_stream_get(&gpu.streams, fake(7), NULL, &id), 0, "one of this GPU");
	foreign = fake(7);
	is_int(glk_stream_get(&gpu.streams, fake(7), NULL, &id), 0,
		"is asked about once");
	/* its handle has come back, on another GPU */
	glk_store_relaxed(&glk_stream_at(&gpu.streams, id)->serial, 3);
	serial_of_next = 4;
	is_int(glk_stream_get(&gpu.streams, fake(7), &facts, &id), -EINVAL,
		"unless its handle has come back");
	is_int(gpu_known(&gpu), 0, "then it is forgotten");
	gpu_close(&gpu);

	gpu_open(&gpu);
	dead = gpu_handle(&gpu);
	gpu_destroy(&gpu, dead);
	is_int(glk_stream_get(&gpu.streams, dead, NULL, &id), -EINVAL,
		"one that has ended");
	is_int(gpu_class(), GLAKE_ERROR_INVAL, "  its class");
	is_int(glk_stream_get(&gpu.streams, dead, &facts, &id), -EINVAL, "the same");
	is_int(glk_stream_get(&gpu.streams, fake(9), NULL, &id), -EINVAL,
		"one of nobody");
	is_int(gpu_known(&gpu), 0, "nothing is remembered");
	gpu_close(&gpu);
}

#define OWNERS 8

struct owner {
	struct glk_streams *streams;
	uint32_t id, again, named;
	uint64_t serial;
	int err;
};

static void *own(void *arg)
{
	struct glk_stream_facts facts = {0};
	struct owner *o = arg;

	o->err |= glk_stream_get(o->streams, GLK_STREAM_PER_THREAD, &facts, &o->id);
	o->err |= glk_stream_get(o->streams, GLK_STREAM_PER_THREAD, NULL, &o->again);
	o->err |= glk_stream_get(o->streams, GLK_STREAM_LEGACY, NULL, &o->named);
	o->serial = facts.id;
	return NULL;
}
/* One name, another stream in every thread. */
static void names_own(void)
{
	bool apart = true, same = true, numbered = true;
	struct owner owner[OWNERS + 1] = {{0}};
	pthread_t thread[OWNERS];
	struct gpu gpu;
	int err = 0;

	gpu_open(&gpu);
	for (int i = 0; i <= OWNERS; i++)
		owner[i].streams = &gpu.streams;
	for (int i = 0; i < OWNERS; i++)
		pthread_create(&thread[i], NULL, own, &owner[i]);
	own(&owner[OWNERS]);
	for (int i = 0; i < OWNERS; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i <= OWNERS; i++) {
		err |= owner[i].err;
		same &= owner[i].id == owner[i].again &&
			owner[i].named == owner[0].named && owner[i].id != owner[i].named;
		numbered &= glk_load_relaxed(
				    &glk_stream_at(&gpu.streams, owner[i].id)->serial) ==
			owner[i].serial;
		for (int k = 0; k < i; k++)
			apart &= owner[i].id != owner[k].id;
	}
	is_int(err, 0, "nine threads have a default stream each");
	ok(apart, "no two of them the same");
	ok(same, "each always its own, and the legacy one is another");
	ok(numbered, "known by the driver's number of it");
	is_int(gpu_known(&gpu), OWNERS + 2, "there are no more");
	gpu_close(&gpu);
}

struct leaver {
	struct gpu *gpu;
	bool used;
	uint32_t id;
};

static void *leave_own(void *arg)
{
	struct leaver *l = arg;

	if (l->used)
		gpu_free(l->gpu, gpu_enter(l->gpu, GLK_STREAM_PER_THREAD));
	else
		glk_stream_get(&l->gpu->streams, GLK_STREAM_PER_THREAD, NULL, &l->id);
	return NULL;
}
/* Threads end and nobody says that their streams do. */
static void sweeps(bool used)
{
	struct leaver leaver = {.used = used};
	uint32_t own = 0, id = 0;
	struct glk_stream *mine;
	pthread_t thread;
	struct gpu gpu;

	table_open(&gpu);
	leaver.gpu = &gpu;
	mine = gpu_enter(&gpu, GLK_STREAM_PER_THREAD);
	own = mine->id;
	gpu_free(&gpu, mine);
	for (int i = 1; i < GLK_STREAMS_MAX; i++) {
		pthread_create(&thread, NULL, leave_own, &leaver);
		pthread_join(thread, NULL);
	}
	is_int(gpu_known(&gpu), GLK_STREAMS_MAX,
		used ? "4095 threads have used memory and ended" : "4095 threads have ended");
	is_int(glk_stream_get(&gpu.streams, fake(1), NULL, &id), 0,
		"there is room for a stream");
	is_int(gpu_known(&gpu), 2, "and for as many again");
	is_int(mine->state, GLK_STREAM_LIVE, "a thread that lives keeps its own");
	is_int(glk_stream_get(&gpu.streams, GLK_STREAM_PER_THREAD, NULL, &id), 0,
		"it is known");
	is_int(id, own, "as before");
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
/* One that another thread ended after it was looked up. */
static void enters_late(void)
{
	struct glk_stream *s, *next;
	struct glk_use use;
	uint32_t id = 0;
	struct gpu gpu;

	table_open(&gpu);
	glk_stream_get(&gpu.streams, fake(1), NULL, &id);
	glk_stream_retire(&gpu.streams, fake(1));
	s = glk_stream_enter(&gpu.streams, id);
	is_int(s->bit, GLK_STREAM_BITS, "gets no bit");
	use = gpu_free(&gpu, s);
	ok(glk_clock_finished(&gpu.streams, &use), "what it freed is free");
	next = gpu_enter(&gpu, fake(2));
	is_int(next->id, id, "its slot is another stream's");
	is_int(gpu.streams.by_bit[next->bit], id, "with one bit");
	for (unsigned bit = next->bit + 1u; bit < GLK_STREAM_BITS; bit++)
		id |= gpu.streams.by_bit[bit];
	is_int(id, next->id, "and no other");
	glk_stream_retire(&gpu.streams, fake(2));
	glk_event_poll(&gpu.streams);
	is_int(gpu_known(&gpu), 0, "nothing is left of either");
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

struct losers {
	struct gpu *gpu;
	glk_atomic(bool) stop;
	glk_atomic(uint32_t) lost;
};

/* Streams that the driver does not know any more when an event is to be recorded on them. */
static void *lose_on(void *arg)
{
	struct losers *l = arg;
	struct glk_stream *s;
	uint32_t id = 0;

	for (uintptr_t n = 1; !glk_load_relaxed(&l->stop); n++) {
		if (glk_stream_get(&l->gpu->streams, fake(n), NULL, &id))
			tap_bail("no stream");
		glk_lock(&l->gpu->lock);
		s = glk_stream_enter(&l->gpu->streams, id);
		gpu_free(l->gpu, s);
		glk_store_relaxed(&ended_below, n + 1);
		glk_event_poll(&l->gpu->streams);
		glk_add_relaxed(&l->lost, s->state == GLK_STREAM_GONE);
		glk_clock_sync_all(&l->gpu->streams);
		glk_unlock(&l->gpu->lock);
	}
	return NULL;
}

/* Streams are found to be gone while another thread adds some. */
static void loses_meanwhile(void)
{
	struct CUstream_st *handle;
	static struct losers l;
	pthread_t thread;
	uint32_t id = 0;
	struct gpu gpu;
	int err = 0;

	table_open(&gpu);
	l.gpu = &gpu;
	pthread_create(&thread, NULL, lose_on, &l);
	while (!glk_load_relaxed(&l.lost)) /* so that both are under way */
		sched_yield();
	for (uintptr_t n = 0; n < ADDED; n++) {
		handle = fake(UINT64_C(1) << 32 | n);
		err |= glk_stream_get(&gpu.streams, handle, NULL, &id);
		if (n % 2)
			glk_stream_retire(&gpu.streams, handle);
	}
	glk_store_relaxed(&l.stop, true);
	pthread_join(thread, NULL);
	is_int(err, 0, "streams are added while others are found to be gone");
	ok(glk_load_relaxed(&l.lost) > 0, "which some were");
	is_int(gpu_known(&gpu), ADDED / 2, "nothing is left of those");
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	finds();
	names_legacy();
	refuses();
	names_own();
	sweeps(false);
	sweeps(true);
	retires();
	enters_late();
	fills();
	lacks_memory();
	crowds();
	reads_meanwhile();
	loses_meanwhile();
	return tap_done();
}
