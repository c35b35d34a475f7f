/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Large contents that are compressed and of which a part comes back: several threads make them what they were,
 * in more than one batch, into memory of the store that lies in pieces; and where one unit is not what it was
 * nothing has moved.
 */
#include "tier/lz4.h"
#include "tier/pack.h"

#include "range_parts.h"

#include <errno.h>
#include <sched.h>

#define SMALL 40
/* Under the thread sanitizer 300 MiB would take 3 GiB. */
#define LARGE ((tap_one_thread_takes_long() ? 100 : 300) * MIB)

static struct rig rig;
static struct CUstream_st *a, *b;

static void set_up(const char *setting, const char *other)
{
	rig_open(&rig,
		(const char *const[]){"tier.compress=lz4", "tier.compress_rest=0s",
			"soft.host_memory=2GiB", setting, other, NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
}

/* Until so many bytes are compressed and nothing waits; ten minutes at the most. */
static bool rest(uint64_t bytes)
{
	const struct glk_pack *pack = rig.cache.mover.store.pack;
	bool done = false;

	for (int i = 0; i < 600000 && !done; i++) {
		glk_lock(&rig.cache.lock);
		done = pack->rests && !pack->first && !pack->spent &&
			pack->bytes >= bytes;
		glk_unlock(&rig.cache.lock);
		nanosleep(&(struct timespec){.tv_nsec = done ? 0 : 1000000}, NULL);
	}
	return done;
}

static void write_noise(const struct held *h)
{
	uint64_t noise = h->mark | 1;

	for (size_t at = 0; at + 8 <= h->size; at += 8) {
		noise = noise * UINT64_C(6364136223846793005) + 1442695040888963407u;
		*(uint64_t *)(h->addr + at) = noise;
	}
}

static void give(struct held *h, size_t size)
{
	if (plan_take(&rig, h, size, a))
		tap_bail("no block");
	write_words(h, 0, size);
}

/* Memory of the store with holes of three chunks. */
static void tear_store(struct held small[SMALL])
{
	for (int i = 0; i < SMALL; i++) {
		if (plan_take(&rig, &small[i], 700 << 10, a))
			tap_bail("no block");
		write_noise(&small[i]);
		if (glk_cache_spill(&rig.cache, small[i].addr, a))
			tap_bail("a block does not go");
	}
	for (int i = 0; i < SMALL; i += 2)
		rig_free(&rig, small[i].addr, a);
}

static void comes_in_parts(void)
{
	struct held one, small[SMALL];
	bool right = true;

	set_up(NULL, NULL);
	give(&one, LARGE + 4096);
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "a large block goes");
	ok(rest(one.size), "and is compressed");
	tear_store(small);
	ok(rest(one.size), "others are not, since they do not shrink");
	is_int(fetch_range(&rig, &one, LARGE / 2, 2 * MIB, b), 0, "a range of it comes");
	is_int((int64_t)rig_figures(&rig).packed, 0, "nothing is compressed any more");
	rig.drv->ops->device_sync(rig.drv, 0);
	ok(has_words(&one, LARGE / 2, 2 * MIB), "the range is what was written");
	is_int(glk_cache_fetch(&rig.cache, one.addr, b), 0, "the rest comes");
	rig.drv->ops->device_sync(rig.drv, 0);
	ok(has_words(&one, 0, one.size), "as it was");
	for (int i = 1; i < SMALL; i += 2) {
		uint64_t noise = small[i].mark | 1;

		right = right && !glk_cache_fetch(&rig.cache, small[i].addr, a);
		rig.drv->ops->device_sync(rig.drv, 0);
		for (size_t at = 0; right && at + 8 <= small[i].size; at += 8) {
			noise = noise * UINT64_C(6364136223846793005) +
				1442695040888963407u;
			right = *(uint64_t *)(small[i].addr + at) == noise;
		}
		right = right && !rig_free(&rig, small[i].addr, a);
	}
	ok(right, "and so are the others");
	is_int(rig_free(&rig, one.addr, a), 0, "it is freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A byte of a unit that was compressed changes. */
static void spoil(const struct held *h, unsigned unit)
{
	const struct glk_store *store = &rig.cache.mover.store;
	uint32_t run;

	glk_lock(&rig.cache.lock);
	run = first_run_of(&rig.cache.arena, extent_of(&rig, h));
	for (; unit; unit--)
		run = glk_store_at(store, run)->next;
	/* the sizes of its chunks come first */
	memset(glk_store_at(store, run)->packed->data, 0x77, 64);
	glk_unlock(&rig.cache.lock);
}

static void is_torn(void)
{
	struct held one;

	set_up(NULL, NULL);
	give(&one, 40 * MIB);
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "a block goes");
	ok(rest(one.size), "and is compressed");
	spoil(&one, 7);
	is_int(fetch_range(&rig, &one, 0, 1, a), -EIO,
		"one of its units is not what it was");
	is_int(rig_error().error_class, GLAKE_ERROR_CORRUPT, "as the record says");
	is_int((int64_t)away_of(&rig, &one), 40 * MIB, "all of it is away");
	is_int((int64_t)rig_figures(&rig).packed, 40 * MIB, "as it was");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, one.addr, a), 0, "it is freed");
	is_int((int64_t)rig_figures(&rig).store_used, 0, "and nothing is kept");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

struct worker {
	pthread_t thread;
	struct held h;
	struct CUstream_st *stream;
	bool right;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	w->right = true;
	for (size_t at = 0; w->right && at < w->h.size; at += 16 * MIB)
		w->right = !fetch_range(&rig, &w->h, at, 4 * MIB, w->stream);
	rig.drv->ops->device_sync(rig.drv, 0);
	for (size_t at = 0; w->right && at < w->h.size; at += 16 * MIB)
		w->right = has_words(&w->h, at, 4 * MIB);
	return NULL;
}

/* Contents at the same time, each by several threads. */
static void at_once(void)
{
	struct worker w[3];
	bool right = true;

	set_up(NULL, NULL);
	for (int i = 0; i < 3; i++) {
		give(&w[i].h, 48 * MIB);
		w[i].stream = rig_stream(&rig);
		is_int(glk_cache_spill(&rig.cache, w[i].h.addr, a), 0, "a block goes");
	}
	ok(rest(144 * MIB), "all are compressed");
	for (int i = 0; i < 3; i++)
		pthread_create(&w[i].thread, NULL, work, &w[i]);
	for (int i = 0; i < 3; i++) {
		pthread_join(w[i].thread, NULL);
		right = right && w[i].right;
	}
	ok(right, "ranges of all come, as they were");
	for (int i = 0; i < 3; i++)
		is_int(rig_free(&rig, w[i].h.addr, a), 0, "one is freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Memory of the store that a copy to the host has still to write to, for a block that was freed since,
 * serves a content that is made what it was. */
static void behind_a_copy(void)
{
	struct held one, next;

	set_up("soft.streams=stepped", NULL);
	give(&one, 20 * MIB);
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "a block goes");
	glk_soft_run_all(rig.drv);
	ok(rest(one.size), "and is compressed");
	give(&next, 20 * MIB);
	is_int(glk_cache_spill(&rig.cache, next.addr, a), 0, "another one goes");
	is_int(rig_free(&rig, next.addr, a), 0, "and is freed on its way");
	is_int(fetch_range(&rig, &one, 0, 6 * MIB, a), 0, "a range of the first comes");
	glk_soft_run_all(rig.drv);
	ok(has_words(&one, 0, 6 * MIB), "as it was");
	is_int(glk_cache_fetch(&rig.cache, one.addr, a), 0, "and the rest of it");
	glk_soft_run_all(rig.drv);
	ok(has_words(&one, 0, one.size), "as it was");
	is_int(rig_free(&rig, one.addr, a), 0, "it is freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Idle memory of the host, of what lay there in place, goes back for the room that the content needs. */
static void has_idle_memory(void)
{
	struct held one, two, three;

	set_up("tier.place=host", "tier.host=160MiB");
	give(&one, 20 * MIB);
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "a block goes");
	ok(rest(one.size), "and is compressed");
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
	ok(!plan_take(&rig, &two, 48 * MIB, a) && !plan_take(&rig, &three, 48 * MIB, a) &&
			rig_figures(&rig).placed == 48 * MIB,
		"another one lies on the host in place");
	ok(plan_drop(&rig, &three, a) && plan_drop(&rig, &two, a), "and is freed");
	ok(rig_figures(&rig).host_held > 112 * MIB, "its memory idles");
	is_int(fetch_range(&rig, &one, 0, 4 * MIB, a), 0, "a range comes");
	is_int(glk_cache_fetch(&rig.cache, one.addr, a), 0, "and the rest of it");
	ok(has_words(&one, 0, one.size), "as it was");
	is_int(rig_free(&rig, one.addr, a), 0, "it is freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* The first ones wait for each other, so that no thread has two of them. */
struct turns {
	uint32_t most;
	pthread_barrier_t meet;
	glk_atomic(uint32_t) threads; /* each with its room */
};

static int take_turn(void *arg, uint32_t unit, char **room)
{
	struct turns *t = arg;

	glk_add_relaxed(&t->threads, !*room);
	*room = *room ? *room : glk_sodium_room_new(4096);
	if (unit < t->most)
		pthread_barrier_wait(&t->meet);
	return 0;
}

/* A thread for each unit and each processor, and no more than there may be. */
static void has_threads(uint32_t units)
{
	struct turns t = {0};
	struct glk_pack_work work = {
		.fn = take_turn, .arg = &t, .units = units, .each = 1, .room = 4096};
	uint32_t most = units < GLK_PACK_THREADS ? units : GLK_PACK_THREADS;
	cpu_set_t cpus;

	if (!sched_getaffinity(0, sizeof(cpus), &cpus) &&
		most > (uint32_t)CPU_COUNT(&cpus))
		most = (uint32_t)CPU_COUNT(&cpus);
	t.most = most;
	pthread_barrier_init(&t.meet, NULL, most ? most : 1);
	ok(!glk_pack_together(&work) && glk_load_relaxed(&t.threads) == most,
		"%u units have a thread each, or as many as there may be", units);
	pthread_barrier_destroy(&t.meet);
}

int main(void)
{
	tap_plan_later();
	has_threads(0);
	has_threads(1);
	has_threads(2);
	has_threads(100);
	if (glk_pack_able()) {
		tap_skip("large contents come back in parts", "the library has no lz4");
		return tap_done();
	}
	comes_in_parts();
	is_torn();
	at_once();
	behind_a_copy();
	has_idle_memory();
	return tap_done();
}
