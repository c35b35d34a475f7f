/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From a stream's handle to what is known of it. A handle is a value and is never
 * dereferenced.
 *
 * Design	an open-addressed hash table that is never changed in place: a writer builds a
 *		larger copy, publishes it, waits a grace period and gives the old one back
 * Readers	one RCU section, no lock, no memory
 * Writers	a new stream: under a lock, some microseconds
 * Guarantee	stream descriptors are type-stable, so an index outlives the section
 */
#include "stream/stream.h"

#include "base/cancel.h"
#include "base/error.h"
#include "base/rcu.h"

#include <errno.h>
#include <string.h>

struct glk_stream_table {
	uint32_t size;	/* a power of two */
	uint32_t count; /* entries taken */
	struct {
		struct CUstream_st *handle;
		uint32_t stream; /* 0: empty */
	} entry[];
};

#define TABLE_LEAST 16

static size_t table_bytes(uint32_t size)
{
	struct glk_stream_table *t = NULL;

	return sizeof(*t) + size * sizeof(t->entry[0]);
}

static uint32_t hash(struct CUstream_st *handle)
{
	return (uint32_t)(((uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

static uint32_t find(const struct glk_stream_table *t, struct CUstream_st *handle)
{
	uint32_t i = hash(handle) & (t->size - 1);

	for (; t->entry[i].stream; i = (i + 1) & (t->size - 1)) {
		if (t->entry[i].handle == handle)
			return t->entry[i].stream;
	}
	return 0;
}

static void add(struct glk_stream_table *t, struct CUstream_st *handle, uint32_t stream)
{
	uint32_t i = hash(handle) & (t->size - 1);

	while (t->entry[i].stream)
		i = (i + 1) & (t->size - 1);
	t->entry[i].handle = handle;
	t->entry[i].stream = stream;
	t->count++;
}

/* A copy of the table without the streams that are dead, with room for one more. */
static struct glk_stream_table *copy(
	struct glk_streams *streams, const struct glk_stream_table *old)
{
	uint32_t size = TABLE_LEAST;
	struct glk_stream_table *t;

	while (size < 2 * (old->count + 1))
		size *= 2;
	t = glk_region_new(table_bytes(size));
	if (!t)
		return NULL;
	t->size = size;
	for (uint32_t i = 0; i < old->size; i++) {
		uint32_t id = old->entry[i].stream;
		struct glk_stream *s = glk_slab_at(&streams->slab, id);

		if (id && !s->dead)
			add(t, old->entry[i].handle, id);
	}
	return t;
}

static void publish(struct glk_streams *streams, struct glk_stream_table *t)
{
	/* pairs with: glk_rcu_load in glk_stream_get */
	struct glk_stream_table *old = glk_rcu_xchg(&streams->table, t);

	glk_rcu_wait();
	glk_region_free(old, table_bytes(old->size));
}

int glk_streams_init(struct glk_streams *streams, struct glk_drv *drv, int device,
	struct glk_lock *gpu)
{
	struct glk_stream_table *t;
	int err;

	memset(streams, 0, sizeof(*streams));
	streams->drv = drv;
	streams->device = device;
	streams->gpu = gpu;
	err = glk_slab_init(&streams->slab, sizeof(struct glk_stream), GLK_STREAMS_MAX);
	if (err)
		return err;
	t = glk_region_new(table_bytes(TABLE_LEAST));
	if (!t) {
		glk_slab_fini(&streams->slab);
		return -ENOMEM;
	}
	t->size = TABLE_LEAST;
	glk_store_release(&streams->table, t); /* pairs with: glk_stream_get */
	glk_lock_init(&streams->lock, GLK_RANK_STREAM);
	return 0;
}

static void free_events(struct glk_streams *streams, struct glk_stream *s)
{
	for (unsigned i = 0; i < GLK_STREAM_EVENTS; i++) {
		if (s->ring[i].event)
			streams->drv->ops->event_free(streams->drv, s->ring[i].event);
		s->ring[i].event = NULL;
	}
}

void glk_streams_fini(struct glk_streams *streams)
{
	struct glk_stream_table *t = glk_load_relaxed(&streams->table);

	if (!t)
		return;
	for (uint32_t id = 1; id <= glk_load_relaxed(&streams->slab.used); id++)
		free_events(streams, glk_slab_at(&streams->slab, id));
	glk_region_free(t, table_bytes(t->size));
	glk_slab_fini(&streams->slab);
	glk_lock_fini(&streams->lock);
	glk_store_relaxed(&streams->table, NULL);
}

static int make(
	struct glk_streams *streams, struct CUstream_st *handle, uint32_t *ret_stream)
{
	struct glk_stream_table *old = glk_load_relaxed(&streams->table), *t;
	struct glk_stream *s;
	uint32_t id = find(old, handle);

	if (id) {
		*ret_stream = id;
		return 0;
	}
	id = glk_slab_get(&streams->slab);
	if (!id)
		return -ENOMEM;
	s = glk_slab_at(&streams->slab, id);
	/* blocks of the stream that had the slot before may still be freed, and look at it */
	glk_lock(streams->gpu);
	*s = (struct glk_stream){.handle = handle, .id = id, .bit = GLK_STREAM_BITS};
	glk_unlock(streams->gpu);
	t = copy(streams, old);
	if (!t) {
		glk_slab_put(&streams->slab, id);
		return -ENOMEM;
	}
	add(t, handle, id);
	publish(streams, t);
	*ret_stream = id;
	return 0;
}

static int get(
	struct glk_streams *streams, struct CUstream_st *handle, uint32_t *ret_stream)
{
	uint32_t id;
	int err;

	err = glk_rcu_ready();
	if (err)
		return err;
	glk_rcu_read_lock();
	id = find(glk_rcu_load(&streams->table), handle); /* pairs with: publish */
	glk_rcu_read_unlock();
	if (id) {
		*ret_stream = id;
		return 0;
	}
	glk_lock(&streams->lock);
	err = make(streams, handle, ret_stream);
	glk_unlock(&streams->lock);
	return err;
}

/* liburcu has a lock of its own, for a thread's first section and for its end. */
int glk_stream_get(
	struct glk_streams *streams, struct CUstream_st *handle, uint32_t *ret_stream)
{
	int cancel = glk_cancel_off();
	int err = get(streams, handle, ret_stream);

	glk_cancel_restore(cancel);
	return err;
}

struct glk_stream *glk_stream_enter(struct glk_streams *streams, uint32_t stream)
{
	struct glk_stream *s = glk_slab_at(&streams->slab, stream);
	uint8_t bit = 0;

	if (s->bit < GLK_STREAM_BITS)
		return s;
	while (bit < GLK_STREAM_CROWD && streams->by_bit[bit])
		bit++;
	streams->entered++;
	s->bit = bit;
	s->next = streams->by_bit[bit]; /* not 0 only in the crowd */
	streams->by_bit[bit] = stream;
	/* whoever had the bit before has finished: see glk_stream_retire */
	s->done = streams->tick;
	memset(streams->seen[bit], 0, sizeof(streams->seen[bit]));
	return s;
}

/* Takes the stream out of the rings of the clock; its bit stands for finished work now. */
static void leave(struct glk_streams *streams, struct glk_stream *s)
{
	uint32_t *link;

	glk_lock(streams->gpu);
	if (s->bit < GLK_STREAM_BITS) {
		link = &streams->by_bit[s->bit];
		while (*link != s->id)
			link = &((struct glk_stream *)glk_slab_at(&streams->slab, *link))
					->next;
		*link = s->next;
	}
	s->bit = GLK_STREAM_BITS;
	s->next = 0;
	s->count = 0;
	free_events(streams, s);
	glk_unlock(streams->gpu);
}

void glk_stream_retire(struct glk_streams *streams, struct CUstream_st *handle)
{
	struct glk_stream_table *old, *t;
	struct glk_stream *s;
	uint32_t id;

	glk_lock(&streams->lock);
	old = glk_load_relaxed(&streams->table);
	id = find(old, handle);
	if (!id)
		goto out;
	s = glk_slab_at(&streams->slab, id);
	leave(streams, s);
	s->dead = true;
	t = copy(streams, old);
	if (t) {
		publish(streams, t);
		glk_slab_put(&streams->slab, id);
	} else {
		s->dead = false; /* it stays known, without work and without events */
	}
out:
	glk_unlock(&streams->lock);
}
