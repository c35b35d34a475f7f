/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The real lib/map/space/index.[ch] under relacy. One thread adds a range, hands an address of
 * it to a reader, removes it and gives its addresses back; another one gets these addresses for
 * a range of its own, one that reaches a GiB further, and hands out two of them. A third thread
 * adds a range elsewhere at the same time, so that two may be the first. The reader asks for what
 * it was handed and for what it was not.
 *
 * Shown: who was handed an address finds its range, and what was written to that before it was
 * added; who was not finds that range, the one before, or none; at the end all is removed. Built
 * once as it is and once with each of these mistakes, which must be found:
 *
 *	MODEL_RELAXED_ADD	an entry is written without release
 *	MODEL_RELAXED_FIND	an entry is read without acquire
 *	MODEL_RELAXED_ARRAY	the array is published without release
 *	MODEL_NO_LOCK		ranges are added without the lock
 *	MODEL_REMOVE_LATE	addresses are given back before their range is removed
 *	MODEL_FIRST_ONLY	of a range only its first GiB is removed
 *
 * Limits: four threads, three ranges; a sample of the schedules, not all.
 */
#include "base/atomic.h"

#include <cerrno>
#include <cstdint>

/* What index.c needs of the map, in place of the headers that declare it. */
#define GLK_MAP_TABLE_H
#define GLK_MAP_MAP_H
#define GLK_BASE_ERROR_H
#define GLK_BASE_LOCK_H

struct glk_range {
	uint64_t base, size;
	glk_plain(unsigned) payload;
};

struct glk_lock {
	int rank;
};

#define GLK_LOCK_INIT(r)                                                                 \
	{                                                                                \
		0                                                                        \
	}
#define glk_error(...) (-EOPNOTSUPP)

static rl::mutex *model_lock;

static void glk_lock(struct glk_lock *)
{
#ifndef MODEL_NO_LOCK
	model_lock->lock($);
#endif
}

static void glk_unlock(struct glk_lock *)
{
#ifndef MODEL_NO_LOCK
	model_lock->unlock($);
#endif
}

typedef rl::atomic<struct glk_range *> model_entry;

static model_entry *glk_region_new(size_t size);

/* Few entries, so that the array may be a part of the model. */
#define ENTRIES_MODEL 4

#ifdef MODEL_RELAXED_ADD
#define MODEL_STORE_ENTRY(p, v) glk_store_relaxed(p, v)
#else
#define MODEL_STORE_ENTRY(p, v) ((p)->store((v), rl::mo_release, $))
#endif
#ifdef MODEL_RELAXED_ARRAY
#define MODEL_STORE_ARRAY(p, v) glk_store_relaxed(p, v)
#else
#define MODEL_STORE_ARRAY(p, v) ((p)->store((v), rl::mo_release, $))
#endif
#ifdef MODEL_RELAXED_FIND
#define MODEL_LOAD_ENTRY(p) glk_load_relaxed(p)
#else
#define MODEL_LOAD_ENTRY(p) ((p)->load(rl::mo_acquire, $))
#endif

typedef rl::atomic<model_entry *> model_array;

static void model_store(model_entry *p, struct glk_range *v)
{
	MODEL_STORE_ENTRY(p, v);
}

static void model_store(model_array *p, model_entry *v)
{
	MODEL_STORE_ARRAY(p, v);
}

static struct glk_range *model_load(model_entry *p)
{
	return MODEL_LOAD_ENTRY(p);
}

static model_entry *model_load(model_array *p)
{
	return p->load(rl::mo_acquire, $);
}

#undef glk_store_release
#undef glk_load_acquire
#define glk_store_release(p, v) model_store(p, v)
#define glk_load_acquire(p)	model_load(p)

/* A global cannot be an atomic of relacy. */
#define glk_index_entries *model_entries
#include "map/space/index.h"

#include "../../lib/map/space/index.c"

#include "run.h"

#define GIB(n) ((uint64_t)(n) << GLK_INDEX_SHIFT)

static model_entry *model_arrays;
static unsigned *model_made;

static model_entry *glk_region_new(size_t)
{
	model_entry *all = model_arrays + ENTRIES_MODEL * (*model_made)++;

	RL_ASSERT(*model_made <= 2);
	/* comes zeroed */
	for (int i = 0; i < ENTRIES_MODEL; i++)
		glk_store_relaxed(&all[i], (struct glk_range *)0);
	return all;
}

struct index_model : rl::test_suite<index_model, 4> {
	model_array array;
	model_entry entries[2 * ENTRIES_MODEL];
	unsigned made;
	rl::mutex lock;
	struct glk_range first, second, other;
	/* what a thread tells another one: that addresses are handed out, or were given back */
	glk_atomic(unsigned) handed_first, handed_second, used_first, used_second,
		given_back;

	void before()
	{
		model_entries = &array;
		model_arrays = entries;
		model_made = &made;
		model_lock = &lock;
		made = 0;
		glk_store_relaxed(&array, (model_entry *)0);
		glk_store_relaxed(&handed_first, 0u);
		glk_store_relaxed(&handed_second, 0u);
		glk_store_relaxed(&used_first, 0u);
		glk_store_relaxed(&used_second, 0u);
		glk_store_relaxed(&given_back, 0u);
		range(&first, 0, 2);
		range(&second, 0, 3);
		range(&other, 3, 1);
	}

	static void range(struct glk_range *r, unsigned at, unsigned gibs)
	{
		r->base = GIB(at);
		r->size = GIB(gibs);
	}

	static void say(rl::atomic<unsigned> *flag)
	{
		flag->store(1u, rl::mo_release, $);
	}

	static bool is_said(rl::atomic<unsigned> *flag)
	{
		return flag->load(rl::mo_acquire, $);
	}

	static void wait_for(rl::atomic<unsigned> *flag)
	{
		rl::linear_backoff backoff;

		while (!is_said(flag))
			backoff.yield($);
	}

	void add(struct glk_range *r, unsigned payload)
	{
		glk_set(r->payload, payload);
		RL_ASSERT(!glk_index_add(r));
	}

	void remove(struct glk_range *r)
	{
#ifdef MODEL_FIRST_ONLY
		r->size = GIB(1);
#endif
		glk_index_remove(r);
	}

	void own_first()
	{
		add(&first, 1);
		say(&handed_first);
		wait_for(&used_first);
#ifdef MODEL_REMOVE_LATE
		say(&given_back);
		remove(&first);
#else
		remove(&first);
		say(&given_back);
#endif
	}

	void own_second()
	{
		wait_for(&given_back);
		add(&second, 2);
		say(&handed_second);
		wait_for(&used_second);
		remove(&second);
	}

	void own_other()
	{
		add(&other, 3);
		RL_ASSERT(glk_index_find(GIB(3)) == &other);
		remove(&other);
	}

	/* Whatever is found can be read. */
	void look(uint64_t addr)
	{
		const struct glk_range *r = glk_index_find(addr);

		RL_ASSERT(!r || r == &first || r == &second);
		if (r)
			RL_ASSERT(glk_get(r->payload) == (r == &first ? 1u : 2u));
	}

	void read()
	{
		look(GIB(1));
		wait_for(&handed_first);
		RL_ASSERT(glk_index_find(GIB(1) + 5) == &first);
		say(&used_first);
		look(GIB(0));
		wait_for(&handed_second);
		RL_ASSERT(glk_index_find(GIB(1) + 5) == &second);
		RL_ASSERT(glk_index_find(GIB(2)) == &second);
		say(&used_second);
	}

	void thread(unsigned self)
	{
		switch (self) {
		case 0:
			own_first();
			break;
		case 1:
			own_second();
			break;
		case 2:
			own_other();
			break;
		default:
			read();
		}
	}

	void after()
	{
		RL_ASSERT(made == 1);
		for (unsigned i = 0; i < ENTRIES_MODEL; i++)
			RL_ASSERT(!glk_index_find(GIB(i)));
	}
};

int main()
{
	return model_run<index_model>();
}
