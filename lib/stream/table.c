/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From a stream's handle to what is known of it. A handle is a value and is never
 * dereferenced. Where the driver can number streams, a handle that came back for another
 * stream is told from the one before.
 *
 * Design	an open-addressed hash table. An entry is written once, its key before its stream; of one
 *		whose stream has ended the stream is replaced when the same handle comes back. A table that
 *		is half full is copied without the streams that have ended, to a quarter at most, published,
 *		and given back after a grace period
 * Readers	one RCU section, no lock, no memory. Whether what they find is still the stream of
 *		that handle its descriptor tells
 * Writers	a new stream: under a lock, in constant time but for a copy once in a quarter as many as the
 *		table has room for
 * Guarantee	stream descriptors are type-stable, so an index outlives the section
 */
#include "stream/table.h"

#include "base/cancel.h"
#include "base/error.h"
#include "base/rcu.h"
#include "base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct glk_stream_table {
	uint32_t size;	/* a power of two */
	uint32_t count; /* entries taken */
	struct {
		glk_atomic(uint64_t) key;
		glk_atomic(uint32_t) stream; /* 0: empty */
	} entry[];
};

#define TABLE_LEAST 16

static size_t table_bytes(uint32_t size)
{
	struct glk_stream_table *t = NULL;

	return sizeof(*t) + size * sizeof(t->entry[0]);
}

uint64_t glk_stream_key_own(void)
{
	const struct glk_thread *thread = glk_thread_self();

	/* odd, which no address of a stream is */
	return thread ? thread->serial * 4 + 3 : UINT64_MAX;
}

static uint32_t hash(uint64_t key)
{
	return (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

/* A stream that has ended may still stand in the table, and its slot may be another's. */
static uint32_t find(const struct glk_stream_table *t, uint64_t key)
{
	uint32_t i = hash(key) & (t->size - 1), stream;

	/* pairs with: add */
	for (; (stream = glk_load_acquire(&t->entry[i].stream));
		i = (i + 1) & (t->size - 1)) {
		if (glk_load_relaxed(&t->entry[i].key) == key)
			return stream;
	}
	return 0;
}

static void add(struct glk_stream_table *t, uint64_t key, uint32_t stream)
{
	uint32_t i = hash(key) & (t->size - 1);

	while (glk_load_relaxed(&t->entry[i].stream) &&
		glk_load_relaxed(&t->entry[i].key) != key)
		i = (i + 1) & (t->size - 1);
	t->count += !glk_load_relaxed(&t->entry[i].stream);
	glk_store_relaxed(&t->entry[i].key, key);
	glk_store_release(&t->entry[i].stream, stream); /* pairs with: find */
}

static bool is_of(const struct glk_streams *streams, uint32_t id, uint64_t key)
{
	return glk_load_relaxed(&glk_stream_at(streams, id)->key) == key;
}

static bool is_live(
	const struct glk_streams *streams, const struct glk_stream_table *t, uint32_t i)
{
	uint32_t id = glk_load_relaxed(&t->entry[i].stream);

	return id && is_of(streams, id, glk_load_relaxed(&t->entry[i].key));
}

/* A copy of the table without the streams that have ended. */
static struct glk_stream_table *copy(
	struct glk_streams *streams, const struct glk_stream_table *old)
{
	uint32_t size = TABLE_LEAST, live = 0;
	struct glk_stream_table *t;

	/* streams end meanwhile, and none begins */
	for (uint32_t i = 0; i < old->size; i++)
		live += is_live(streams, old, i);
	while (size < 4 * (live + 1))
		size *= 2;
	t = glk_region_new(table_bytes(size));
	if (!t)
		return NULL;
	t->size = size;
	for (uint32_t i = 0; i < old->size; i++) {
		if (is_live(streams, old, i))
			add(t, glk_load_relaxed(&old->entry[i].key),
				glk_load_relaxed(&old->entry[i].stream));
	}
	return t;
}

static void publish(struct glk_streams *streams, struct glk_stream_table *t)
{
	/* pairs with: glk_rcu_load in look */
	struct glk_stream_table *old = glk_rcu_xchg(&streams->table, t);

	glk_rcu_wait();
	glk_add_relaxed(&streams->graces, 1);
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
	glk_lock_init(&streams->lock, GLK_RANK_STREAM);
	pthread_cond_init(&streams->synced, NULL);
	/* who finds the table finds the lock as well; pairs with: look */
	glk_store_release(&streams->table, t);
	return 0;
}

void glk_streams_fini(struct glk_streams *streams)
{
	struct glk_stream_table *t = glk_load_relaxed(&streams->table);

	if (!t)
		return;
	for (uint32_t id = 1; id <= glk_load_relaxed(&streams->slab.used); id++)
		glk_event_drop(streams, glk_stream_at(streams, id), UINT64_MAX);
	glk_event_fini(streams);
	glk_note_fini(streams);
	glk_collect_fini(streams);
	glk_region_free(t, table_bytes(t->size));
	glk_slab_fini(&streams->slab);
	pthread_cond_destroy(&streams->synced);
	glk_lock_fini(&streams->lock);
	glk_store_relaxed(&streams->table, NULL);
}

uint32_t glk_table_find(const struct glk_streams *streams, uint64_t key)
{
	uint32_t id = find(glk_load_relaxed(&streams->table), key);

	return id && is_of(streams, id, key) ? id : 0;
}

/* So that one more finds an empty entry soon. 0 or -ENOMEM. */
static int make_entry(struct glk_streams *streams)
{
	struct glk_stream_table *t = glk_load_relaxed(&streams->table);

	if (2 * (t->count + 1) <= t->size)
		return 0;
	t = copy(streams, t);
	if (!t)
		return -ENOMEM;
	publish(streams, t);
	return 0;
}

/* Whether a stream that was found is the one of this key, and, if the driver can tell, still the
 * one that became known. */
static bool is_same(const struct glk_streams *streams, uint32_t id, uint64_t key,
	const struct glk_stream_facts *facts)
{
	const struct glk_stream *s = glk_stream_at(streams, id);
	uint64_t serial = glk_load_relaxed(&s->serial);

	return is_of(streams, id, key) &&
		!(facts && facts->id && serial && serial != facts->id);
}

/* Ends the default streams of threads that are no more. Whether any stream is gone and has not
 * been waited for. */
static bool sweep(struct glk_streams *streams)
{
	uint32_t used = glk_load_relaxed(&streams->slab.used);
	bool any = false;

	for (uint32_t id = 1; id <= used; id++) {
		struct glk_stream *s = glk_stream_at(streams, id);

		if (s->handle == GLK_STREAM_PER_THREAD &&
			!glk_thread_lives_at(
				s->record, glk_stream_thread(glk_load_relaxed(&s->key))))
			glk_stream_lose(streams, s);
		any |= s->state == GLK_STREAM_GONE;
	}
	return any;
}

static bool is_full(const struct glk_streams *streams)
{
	return glk_load_relaxed(&streams->slab.live) == GLK_STREAMS_MAX;
}

/* Times to ask the crowd, a part of it each time. */
#define ASKS (GLK_STREAMS_MAX / 32)

/* Slots of streams that have ended, once that has passed; and of those that threads left
 * behind, for which the GPU has to be waited for. */
static void make_room(struct glk_streams *streams)
{
	glk_lock(streams->gpu);
	for (int i = 0; i < ASKS && is_full(streams); i++)
		glk_event_ask(streams);
	if (is_full(streams) && sweep(streams) && is_full(streams))
		glk_clock_sync_all(streams);
	glk_unlock(streams->gpu);
}

static uint32_t take_slot(struct glk_streams *streams)
{
	if (is_full(streams))
		make_room(streams);
	return glk_slab_get(&streams->slab);
}

static int enlist(struct glk_streams *streams, struct CUstream_st *handle, uint64_t key,
	const struct glk_stream_facts *facts, uint32_t *ret_stream)
{
	int err = make_entry(streams);
	struct glk_stream *s;
	uint32_t id;

	if (err)
		return err;
	id = take_slot(streams);
	if (!id)
		return -ENOMEM;
	/* blocks of the stream that had the slot before may still be freed, and look at it */
	glk_lock(streams->gpu);
	s = glk_stream_at(streams, id);
	/* field by field: some are read without the lock */
	glk_slab_spoil(&s->record,
		offsetof(struct glk_stream, behind) -
			offsetof(struct glk_stream, record));
	/* what the one before was ordered behind has finished */
	glk_slab_spoil(&s->ring,
		offsetof(struct glk_stream, own) - offsetof(struct glk_stream, ring));
	glk_poke_relaxed(&s->handle, handle);
	s->id = id;
	glk_poke_relaxed(&s->bit, GLK_STREAM_BITS);
	s->state = GLK_STREAM_LIVE;
	s->mute = false;
	s->wanted = false;
	s->record = handle == GLK_STREAM_PER_THREAD ? glk_thread_current->id : 0;
	s->owed = 0;
	s->announced = 0;
	s->freed = 0;
	s->done = 0;
	s->next = 0;
	glk_event_init(streams, s);
	s->head = 0;
	s->count = 0;
	glk_store_relaxed(&s->serial, facts->id);
	glk_store_relaxed(&s->key, key);
	glk_unlock(streams->gpu);
	add(glk_load_relaxed(&streams->table), key, id);
	*ret_stream = id;
	return 0;
}

static int make(struct glk_streams *streams, struct CUstream_st *handle, uint64_t key,
	struct glk_stream_facts *facts, uint32_t *ret_stream)
{
	struct glk_stream_facts found = {0};
	uint32_t id = glk_table_find(streams, key);
	int err;

	if (id && is_same(streams, id, key, facts)) {
		*ret_stream = id;
		return 0;
	}
	if (id) {
		glk_lock(streams->gpu);
		glk_stream_lose(streams, glk_stream_at(streams, id));
		glk_unlock(streams->gpu);
	}
	err = streams->drv->ops->stream_owner(streams->drv, streams->device, handle);
	if (!err && !facts) {
		facts = &found;
		err = streams->drv->ops->stream_facts(
			streams->drv, streams->device, handle, facts);
	}
	if (err)
		return err;
	return enlist(streams, handle, key, facts, ret_stream);
}

/* The driver does not know the stream any more. */
static void lost(struct glk_streams *streams, uint64_t key)
{
	uint32_t id;

	glk_lock(&streams->lock);
	id = glk_table_find(streams, key);
	if (id) {
		glk_lock(streams->gpu);
		glk_stream_lose(streams, glk_stream_at(streams, id));
		glk_unlock(streams->gpu);
	}
	glk_unlock(&streams->lock);
}

/* Without a lock; 0: there is none, or its stream has ended. */
static uint32_t look(struct glk_streams *streams, uint64_t key)
{
	uint32_t id;

	glk_rcu_read_lock();
	id = find(glk_rcu_load(&streams->table), key); /* pairs with: publish */
	glk_rcu_read_unlock();
	return id && is_of(streams, id, key) ? id : 0;
}

static int get(struct glk_streams *streams, struct CUstream_st *handle,
	struct glk_stream_facts *facts, uint32_t *ret_stream)
{
	uint64_t key = glk_stream_key(handle);
	uint32_t id;
	int err;

	if (key == UINT64_MAX)
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"a thread without a record has no default stream of its own");
	err = glk_rcu_ready();
	if (err)
		return err;
	/* the legacy stream is always there, and captures nothing */
	if (facts && !key) {
		*facts = (struct glk_stream_facts){0};
	} else if (facts) {
		err = streams->drv->ops->stream_facts(
			streams->drv, streams->device, handle, facts);
		if (err == -EINVAL)
			lost(streams, key);
		if (err)
			return err;
	}
	id = look(streams, key);
	if (id && is_same(streams, id, key, facts)) {
		*ret_stream = id;
		return 0;
	}
	glk_lock(&streams->lock);
	err = make(streams, handle, key, facts, ret_stream);
	glk_unlock(&streams->lock);
	return err;
}

/* liburcu has a lock of its own, for a thread's first section and for its end. */
int glk_stream_get(struct glk_streams *streams, struct CUstream_st *handle,
	struct glk_stream_facts *facts, uint32_t *ret_stream)
{
	int cancel = glk_cancel_off();
	int err = get(streams, handle, facts, ret_stream);

	glk_cancel_restore(cancel);
	return err;
}

uint32_t glk_stream_find(struct glk_streams *streams, struct CUstream_st *handle)
{
	int cancel = glk_cancel_off();
	uint32_t id = glk_rcu_ready() ? 0 : look(streams, glk_stream_key(handle));

	glk_cancel_restore(cancel);
	return id;
}

void glk_stream_give_bit(struct glk_streams *streams, struct glk_stream *s)
{
	uint8_t bit = 0;

	while (bit < GLK_STREAM_CROWD && streams->by_bit[bit])
		bit++;
	streams->entered++;
	glk_poke_relaxed(&s->bit, bit);
	s->next = streams->by_bit[bit]; /* not 0 only in the crowd */
	s->prev = 0;
	s->behind.named = 0;
	if (s->next)
		glk_stream_at(streams, s->next)->prev = s->id;
	streams->by_bit[bit] = s->id;
	streams->used |= UINT64_C(1) << bit;
	if (bit == GLK_STREAM_CROWD)
		streams->crowd.here[s->id / 64] |= UINT64_C(1) << s->id % 64;
	/* whoever had the bit before has finished: see glk_stream_settle() */
	s->done = streams->tick;
	memset(streams->seen[bit], 0, sizeof(streams->seen[bit]));
}
