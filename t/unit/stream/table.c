/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From a handle to a stream, while streams come and go. */
#include "table_parts.h"

static void finds(void)
{
	uint32_t a = 0, b = 0, none = 0, again = 0;
	struct gpu gpu;

	table_open(&gpu);
	is_int(glk_stream_get(&gpu.streams, fake(1), NULL, &a), 0, "a stream is known");
	is_int(glk_stream_get(&gpu.streams, fake(2), NULL, &b), 0, "and another");
	is_int(glk_stream_get(&gpu.streams, NULL, NULL, &none), 0,
		"the default stream is one");
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
		used ? "4095 threads have used memory and ended"
		     : "4095 threads have ended");
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

/* The driver is asked for one that is known, without the table. */
static void asks(void)
{
	struct glk_stream_facts facts;
	struct glk_drv_ops ops;
	uint32_t id = 0;
	struct gpu gpu;

	table_open(&gpu);
	ops = *gpu.drv->ops;
	ops.stream_facts = facts_of;
	gpu.drv->ops = &ops;
	serial_of_next = 7;
	is_int(glk_stream_get(&gpu.streams, fake(1), &facts, &id), 0,
		"a stream is known");
	ok(glk_stream_is_plain(&gpu.streams, id, fake(1)), "it is the same still");
	glk_lock(&gpu.lock);
	glk_stream_lose(&gpu.streams, glk_stream_at(&gpu.streams, id));
	glk_unlock(&gpu.lock);
	ok(!glk_stream_is_plain(&gpu.streams, id, fake(1)),
		"one that was lost is not, whatever its number");
	is_int(glk_stream_get(&gpu.streams, fake(1), &facts, &id), 0, "it is known anew");
	ok(glk_stream_is_plain(&gpu.streams, id, fake(1)), "and the same");
	serial_of_next = 8;
	ok(!glk_stream_is_plain(&gpu.streams, id, fake(1)),
		"a new one of its handle is not");
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	finds();
	asks();
	names_legacy();
	refuses();
	names_own();
	sweeps(false);
	sweeps(true);
	retires();
	enters_late();
	return tap_done();
}
