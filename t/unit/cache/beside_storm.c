/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads that want more than the GPU has, so that some of what they get lies on the host, and comes
 * from there one by one and at quiet points. Blocks go away and come back, the GPU is suspended and resumed, memory is given back, the budget and rights
 * change, graphs are captured, and calls of the driver are held up and fail. Each block is written
 * from end to end, so that two that share memory tell, and named by queued work, of which the
 * software device says whether it is in the order of the streams.
 */
#include "cache/ahead.h"
#include "plan_parts.h"

#include "seed.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define THREADS 4
#define STREAMS 6
#define HELD	12
#define ENOUGH	20 /* blocks on the host, which a storm goes on for */

/* Rights change by mapping the memory of the software device once more, which ThreadSanitizer takes
 * for a write. */
#ifdef __SANITIZE_THREAD__
#define PEERS 0
#else
#define PEERS 1
#endif

/* A block of a thread. */
struct own {
	struct held held;
	struct CUstream_st *stream;
	bool away; /* or cold, so that it may be */
};

static struct rig rig;
static struct CUstream_st *streams[STREAMS], *mine[THREADS];
static uint64_t seeds[THREADS + 1];
static uint64_t budget;
static bool keeps, fails;
/* Who looks at memory has it for reading: then no block is away that its thread did not send. */
static pthread_rwlock_t here;
/* For the threads, and for the device, which goes on until they have ended. */
static glk_atomic(bool) over, stop;
static glk_atomic(uint32_t) wrong, served, placed, refused, moved, captured, turned;

static void count_error(const char *what, int err)
{
	if (!glk_add_relaxed(&wrong, 1))
		tap_note("%s: %d, %s", what, err, err ? rig_error().text : "");
}

/* What a call may answer here. */
static bool is_known(int err)
{
	return err == -ENOMEM || (err == -EIO && fails) || err == -EAGAIN ||
		err == -EBUSY;
}

/* What was queued on its stream has run, copies of blocks that had the memory before among it. */
static void settle(struct CUstream_st *stream)
{
	while (rig.drv->ops->stream_sync(rig.drv, 0, stream))
		sched_yield();
}

static void look(struct own *o, bool fresh)
{
	settle(o->stream);
	pthread_rwlock_rdlock(&here);
	if (fresh)
		write_marks(&o->held);
	else if (!has_marks(&o->held))
		count_error("memory of two blocks", 0);
	pthread_rwlock_unlock(&here);
}

static void queue(const struct own *o)
{
	int err;

	pthread_rwlock_rdlock(&here);
	err = glk_soft_work(rig.drv, 0, o->stream, o->held.addr, o->held.size, true);
	if (err && err != -ENOMEM)
		count_error("work of a stream", err);
	pthread_rwlock_unlock(&here);
}

static size_t draw_size(uint64_t *state)
{
	switch (seed_below(state, 5)) {
	case 0:
		return 512 + seed_below(state, 8 << 10);
	case 1:
		return 512 + seed_below(state, 256 << 10);
	case 2:
		return 512 + seed_below(state, 3 * MIB);
	case 3:
		return 2 * MIB * (1 + seed_below(state, 6));
	default:
		return 512 + seed_below(state, 20 * MIB);
	}
}

static void make(struct own *o, uint64_t *state)
{
	uint32_t flags = seed_below(state, 20) ? 0 : GLAKE_ALLOC_CONTIGUOUS;
	struct glake_block block;
	int err;

	o->stream = streams[seed_below(state, STREAMS)];
	o->away = false;
	o->held.size = draw_size(state);
	o->held.mark = seed_next(state);
	err = rig_try(&rig, o->held.size, o->stream, flags, &o->held.addr);
	if (err) {
		o->held.addr = 0;
		glk_add_relaxed(&refused, 1);
		if (!is_known(err))
			count_error("a request", err);
		if (err == -EAGAIN)
			sched_yield();
		return;
	}
	look(o, true);
	glk_add_relaxed(&served, 1);
	if (glk_cache_query(&rig.cache, o->held.addr + o->held.size - 1, &block) ||
		block.placed > o->held.size)
		count_error("a question", -EINVAL);
	glk_add_relaxed(&placed, block.placed > 0);
	if (seed_below(state, 2))
		queue(o);
}

static int free_after(const struct own *o)
{
	struct CUevent_st *event;
	int err;

	if (rig.drv->ops->user_event_new(rig.drv, 0, &event))
		return rig_free(&rig, o->held.addr, o->stream);
	err = rig.drv->ops->user_event_record(rig.drv, 0, event, o->stream);
	if (!err)
		err = glk_cache_free_after(&rig.cache, o->held.addr, &event, 1);
	rig.drv->ops->user_event_free(rig.drv, event);
	return err;
}

static void drop(struct own *o, uint64_t *state)
{
	int err;

	if (!o->away)
		look(o, false);
	if (!seed_below(state, 4)) {
		err = glk_cache_use(
			&rig.cache, o->held.addr, streams[seed_below(state, STREAMS)]);
		if (err)
			count_error("a mark", err);
	}
	err = seed_below(state, 6)
		? rig_free(&rig, o->held.addr, streams[seed_below(state, STREAMS)])
		: free_after(o);
	if (err)
		count_error("a free", err);
	o->held.addr = 0;
}

/* A block goes away or comes back, or comes from the host for good. */
static void move(struct own *o, uint64_t *state)
{
	struct glake_block block = {0};
	int err;

	if (!o->away)
		glk_cache_query(&rig.cache, o->held.addr, &block);
	if (!o->away && seed_below(state, 4) < (block.placed ? 3 : 1)) {
		err = glk_cache_fetch(&rig.cache, o->held.addr, o->stream);
		if (err && !is_known(err) && err != -EALREADY)
			count_error("a block does not come", err);
		look(o, false);
		return;
	}
	if (o->away) {
		err = glk_cache_fetch(&rig.cache, o->held.addr, o->stream);
		o->away = err && err != -EALREADY;
		err = o->away ? err : 0;
		if (err && !is_known(err))
			count_error("a fetch", err);
		if (!err)
			look(o, false);
		return;
	}
	if (!seed_below(state, 3)) {
		settle(o->stream);
		err = glk_cache_advise(&rig.cache, o->held.addr, GLAKE_ADVICE_COLD);
		o->away = !err;
		if (err && !is_known(err))
			count_error("advice", err);
		return;
	}
	err = glk_cache_spill(&rig.cache, o->held.addr, o->stream);
	o->away = !err;
	glk_add_relaxed(&moved, !err);
	/* on the host, gone with all others, or too small */
	if (err && !is_known(err) && err != -EALREADY && err != -EINVAL)
		count_error("a block does not go", err);
}

/* All tables are whole between requests. */
static void verify(void)
{
	glk_lock(&rig.cache.lock);
	glk_plan_close(&rig.cache);
	if (map_verify(&rig.cache.arena.map) ||
		(rig.cache.beside.map.pool && map_verify(&rig.cache.beside.map)))
		count_error("the books", -EIO);
	glk_plan_open(&rig.cache);
	glk_unlock(&rig.cache.lock);
}

/* A pool of graphs, whose blocks lie on the GPU. */
static void capture(unsigned n, uint64_t *state)
{
	struct own own[3] = {0};
	struct glake_block block;
	uint32_t graph;
	int err = rig_begin(&rig, n + 1, mine[n]);

	if (err) {
		if (!is_known(err))
			count_error("a pool", err);
		return;
	}
	if (glk_soft_capture_begin(rig.drv, 0, mine[n]))
		count_error("a capture", -EIO);
	for (int i = 0; i < 3; i++) {
		struct held *h = &own[i].held;

		h->size = draw_size(state) / 4 + 512;
		h->mark = seed_next(state);
		if (rig_try(&rig, h->size, mine[n], 0, &h->addr)) {
			h->addr = 0;
			continue;
		}
		if (glk_cache_query(&rig.cache, h->addr, &block) || block.placed)
			count_error("a block of a pool lies on the host", 0);
		write_marks(h);
	}
	if (glk_soft_capture_end(rig.drv, 0, mine[n], &graph))
		count_error("a capture was broken", -EIO);
	if (rig_end_pool(&rig, n + 1))
		count_error("a pool does not end", -EIO);
	for (int i = 0; i < 3; i++) {
		if (!plan_drop(&rig, &own[i].held, mine[n]))
			count_error("memory of two blocks, one of a pool", 0);
	}
	glk_soft_graph_free(rig.drv, graph);
	rig_release(&rig, n + 1);
	glk_add_relaxed(&captured, 1);
}

static void *run(void *arg)
{
	unsigned n = (unsigned)((uint64_t *)arg - seeds);
	uint64_t state = *(uint64_t *)arg, unused;
	struct own own[HELD] = {0};

	while (!glk_load_relaxed(&over) && !glk_load_relaxed(&wrong)) {
		struct own *o = &own[seed_below(&state, HELD)];
		uint64_t what = seed_below(&state, 300);

		if (!o->held.addr)
			make(o, &state);
		else if (o->away || (!keeps && what % 4 == 0))
			move(o, &state);
		else
			drop(o, &state);
		if (what == 0)
			verify();
		else if (what < 4)
			glk_cache_trim(&rig.cache, seed_below(&state, 100) * MIB, false,
				&unused);
		else if (what < 8)
			rig_flush(&rig);
		else if (what < 11)
			capture(n, &state);
	}
	for (int i = 0; i < HELD; i++) {
		if (own[i].held.addr)
			drop(&own[i], &state);
	}
	return NULL;
}

static void *run_device(void *arg)
{
	(void)arg;
	while (!glk_load_relaxed(&stop)) {
		glk_soft_run_all(rig.drv);
		sched_yield();
	}
	return NULL;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void suspend(void)
{
	struct glake_suspended did;
	int err;

	pthread_rwlock_wrlock(&here);
	err = glk_cache_suspend(&rig.cache, false, &did);
	if (err && !is_known(err))
		count_error("a suspension", err);
	glk_add_relaxed(&turned, !err);
	/* live blocks may be more than the budget has become since */
	glk_store_relaxed(&rig.cache.node->budget, budget * 3 / 2);
	while (glk_load_relaxed(&rig.cache.suspended)) {
		err = glk_cache_resume(&rig.cache, false, &did);
		if (err && !is_known(err))
			count_error("a resumption", err);
	}
	pthread_rwlock_unlock(&here);
}

static void quiet(void)
{
	struct glake_returned did;
	int err;

	pthread_rwlock_wrlock(&here);
	glk_store_relaxed(&rig.cache.node->budget, budget * 3 / 2);
	err = glk_cache_quiet(&rig.cache, &did);
	if (err && !is_known(err))
		count_error("a quiet point", err);
	pthread_rwlock_unlock(&here);
}

/* What changes for all. */
static void change(uint64_t *state)
{
	struct glake_stats s;
	uint64_t unused;

	switch (seed_below(state, 16)) {
	case 0:
		glk_store_relaxed(
			&rig.cache.node->budget, budget / 2 + seed_below(state, budget));
		break;
	case 1:
		glk_store_relaxed(&rig.cache.node->budget, budget);
		break;
	case 2:
		if (PEERS)
			glk_cache_peer(&rig.cache, 1, seed_below(state, 2));
		break;
	case 3:
		glk_cache_trim(&rig.cache, 0, false, &unused);
		break;
	case 4:
		if (!keeps)
			suspend();
		break;
	case 5:
	case 6:
		if (!keeps)
			quiet();
		break;
	default:
		glk_cache_reset_peaks(&rig.cache);
		s = rig_figures(&rig);
		if (s.placed > s.host_held || s.placed > s.live ||
			s.peak_host_held < s.placed)
			count_error("figures", 0);
	}
}

/* The driver keeps memory now and then. */
#define KEPT ";unmap:p=2000;release:p=2000"

static void storm(
	const char *name, const char *rules, long ms, const char *const *settings)
{
	const struct timespec some = {.tv_nsec = 5000000};
	pthread_t thread[THREADS], device;
	struct rig_end end;
	int64_t end_ms;

	rig_open(&rig, settings);
	for (int i = 0; i < STREAMS; i++)
		streams[i] = rig_stream(&rig);
	for (int i = 0; i < THREADS; i++)
		mine[i] = rig_stream(&rig);
	budget = glk_load_relaxed(&rig.cache.node->budget);
	keeps = strstr(rules, KEPT);
	fails = strstr(rules, "EIO");
	glk_store_relaxed(&over, false);
	glk_store_relaxed(&stop, false);
	glk_store_relaxed(&placed, 0);
	if (glk_fault_set(rig.drv, rules))
		tap_bail(rig_error().text);
	pthread_create(&device, NULL, run_device, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, run, &seeds[i]);
	end_ms = now_ms() + ms;
	while ((now_ms() < end_ms || glk_load_relaxed(&placed) < ENOUGH) &&
		!glk_load_relaxed(&wrong)) {
		nanosleep(&some, NULL);
		change(&seeds[THREADS]);
	}
	glk_store_relaxed(&over, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	glk_store_relaxed(&stop, true);
	pthread_join(device, NULL);
	glk_fault_set(rig.drv, "off");
	glk_ahead_stop(&rig.cache);
	glk_store_relaxed(&rig.cache.node->budget, budget);
	tap_note("%s: %" PRIu32 " served, %" PRIu32 " on the host, %" PRIu32
		 " refused, %" PRIu32 " away, %" PRIu32 " pools, %" PRIu32
		 " suspensions, %" PRIu64 " returned, %" PRIu64 " victims, %" PRIu64
		 " MiB lost",
		name, glk_load_relaxed(&served), glk_load_relaxed(&placed),
		glk_load_relaxed(&refused), glk_load_relaxed(&moved),
		glk_load_relaxed(&captured), glk_load_relaxed(&turned),
		rig_figures(&rig).returned_blocks, rig_figures(&rig).victims,
		rig_figures(&rig).lost >> 20);
	is_int(glk_load_relaxed(&wrong), 0, "blocks keep what was written");
	ok(glk_load_relaxed(&placed) >= ENOUGH, "%s: blocks lay on the host", name);
	is_int((int64_t)rig_figures(&rig).placed, 0, "none does any more");
	is_sound(&rig, "the books agree");
	end = rig_end(&rig);
	ok(!end.cache && !end.device && !end.live, "%s: all of it goes back", name);
	tap_expect_log(tap.logs - tap.expected);
}

static void make_lock(void)
{
	pthread_rwlockattr_t attr;

	/* who suspends the GPU is not kept waiting by those who look */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(
		&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&here, &attr);
	pthread_rwlockattr_destroy(&attr);
}

#define STORM                                                                            \
	"soft.streams=stepped", "soft.gpus=2", "soft.host_memory=400MiB",                \
		"tier.place=host"
#define DELAYS                                                                            \
	"create:p=200000:delay=500;map:p=200000:delay=500;set_access:p=200000:delay=400;" \
	"unmap:p=200000:delay=500;release:p=200000:delay=400"

int main(void)
{
	const char *long_run = getenv("GLAKE_TEST_MS");
	long ms = long_run ? atol(long_run) : STORM_SIZE(900);
	uint64_t seed;

	/* threads take turns there; the sanitizers see them all */
	if (tap_on_valgrind())
		tap_skip_all("takes too long here");
	tap_plan_later();
	seed = seed_start();
	for (unsigned i = 0; i <= THREADS; i++)
		seeds[i] = seed_thread(seed, i);
	make_lock();
	storm("room on the host", DELAYS, ms,
		(const char *const[]){
			STORM, "pool.budget=80MiB", "tier.host=400MiB", NULL});
	storm("both are full", DELAYS, ms,
		(const char *const[]){STORM, "pool.budget=60MiB", "tier.host=100MiB",
			"policy.bins=64KiB", NULL});
	storm("faults",
		DELAYS ";create:p=20000:err=EIO;map:p=10000:err=EIO;set_access:p=10000",
		ms,
		(const char *const[]){STORM, "soft.memory=90MiB", "tier.host=300MiB",
			"map.aliases=2", NULL});
	storm("patient", DELAYS, ms,
		(const char *const[]){STORM, "pool.budget=70MiB", "tier.host=300MiB",
			"stream.opportunistic=no", NULL});
	storm("few addresses, ahead", DELAYS, ms,
		(const char *const[]){STORM, "pool.budget=90MiB", "tier.host=300MiB",
			"map.span=1GiB", "pool.ahead=16MiB", "policy.bins=0", NULL});
	storm("memory is kept", DELAYS ";copy:p=20000:err=EIO" KEPT, ms,
		(const char *const[]){STORM, "pool.budget=100MiB", "tier.host=300MiB",
			"map.aliases=3", NULL});
	return tap_done();
}
