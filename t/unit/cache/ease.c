/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is said of managed memory that went to and fro: of which, how often, and who takes it back. */
#include "rig.h"

#include "base/clock.h"
#include "move/away.h"
#include "soft/soft.h"

#define GPU  UINT64_C(1)
#define HOST GLK_CHUNK_HOST

static const char *const settings[] = {
	"tier.managed_chunk=64MiB", "soft.streams=stepped", NULL};

static uint64_t managed(struct rig *rig, size_t size, struct CUstream_st *stream)
{
	uint64_t addr = 0;

	return rig_try(rig, size, stream, GLAKE_ALLOC_MANAGED, &addr) ? 0 : addr;
}

static int64_t said(struct rig *rig)
{
	return (int64_t)rig_calls(rig, GLAKE_CALL_MANAGED_ADVISE);
}

static int64_t advised(struct rig *rig)
{
	return (int64_t)rig_figures(rig).managed_advised;
}

static struct glk_soft_managed did(struct rig *rig)
{
	struct glk_soft_managed figures;

	if (glk_soft_managed_figures(rig->drv, 0, &figures))
		tap_bail("no figures");
	return figures;
}

/* It went to and fro just now. */
static void told(struct rig *rig, uint64_t addr, uint64_t who)
{
	glk_cache_managed_ease(&rig->cache, addr, who, glk_clock_raw_ns());
}

/* Both use it in turns; the faults that this takes. */
static int64_t to_and_fro(
	struct rig *rig, uint64_t addr, size_t size, struct CUstream_st *s)
{
	struct glk_soft_managed before = did(rig);

	for (int i = 0; i < 10; i++) {
		glk_soft_managed_touch(rig->drv, 0, addr, size, true);
		rig_work(rig, addr, size, s);
		glk_soft_run_all(rig->drv);
	}
	return (int64_t)(did(rig).gpu_faults - before.gpu_faults + did(rig).host_faults -
		before.host_faults);
}

/* It ends what it is for, in the slot where it was seen alone. */
static void ends(void)
{
	struct CUstream_st *s;
	struct rig rig;
	uint64_t p;

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	p = managed(&rig, 8 * MIB, s);
	is_int(to_and_fro(&rig, p, 2 * MIB, s), 20, "each turn is a fault");
	told(&rig, p + 4096, GPU | HOST);
	is_int(said(&rig), 2, "said of each of the two");
	is_int(advised(&rig), 1, "a block was advised");
	ok(to_and_fro(&rig, p, 2 * MIB, s) <= 1, "nothing goes to and fro any more");
	is_int(to_and_fro(&rig, p + 4 * MIB, 2 * MIB, s), 20, "but where nobody saw it");
	told(&rig, p + 2 * MIB - 1, GPU | HOST);
	is_int(said(&rig), 2, "once for a slot");
	told(&rig, p + 2 * MIB, GPU);
	is_int(said(&rig), 3, "another slot, and the GPU alone");
	is_int(advised(&rig), 1, "a block counts once");
	is_int(rig_free(&rig, p, s), 0, "freed");
	ok(managed(&rig, 8 * MIB, s) == p, "given again");
	is_int(said(&rig), 5, "for a new block all of it is taken back");
	ok(to_and_fro(&rig, p, 2 * MIB, s) >= 19, "it goes to and fro again");
	told(&rig, p, GPU);
	is_int(advised(&rig), 2, "and is advised again");
	ok(rig_is_sound(&rig), "the books agree");
	rig_close(&rig, 1);
}

/* What nothing is said of. */
static void nothing(void)
{
	struct glake_suspended moved;
	struct CUstream_st *s;
	struct rig rig;
	uint64_t p, plain, i;

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	told(&rig, 4096, GPU);
	p = managed(&rig, 5 * MIB - 300, s);
	plain = rig_alloc(&rig, 4 * MIB, s);
	told(&rig, plain, GPU | HOST);
	told(&rig, p - 1, GPU);
	told(&rig, p + 5 * MIB - 300, GPU);
	told(&rig, p + 20 * MIB, GPU);
	told(&rig, 0, GPU);
	told(&rig, UINT64_MAX, GPU | HOST);
	told(&rig, UINT64_C(1) << 63, GPU);
	is_int(said(&rig), 0, "addresses that are none of managed blocks");
	told(&rig, p, 0);
	told(&rig, p, 6);
	is_int(said(&rig), 0, "processors that there are not");
	is_int(glk_cache_suspend(&rig.cache, false, &moved), 0, "suspended");
	told(&rig, p, GPU);
	is_int(said(&rig), 0, "while the GPU is away");
	is_int(glk_cache_resume(&rig.cache, false, &moved), 0, "resumed");
	for (i = 0; i < 100000; i++)
		told(&rig, p + i % (5 * MIB), GPU);
	is_int(said(&rig), 1, "a hundred thousand times in a slot");
	is_int(rig_free(&rig, p, s), 0, "freed");
	told(&rig, p + 3 * MIB, GPU);
	is_int(said(&rig), 1, "a block that was freed");
	is_int(advised(&rig), 1, "one was advised");
	rig_close(&rig, 1);
}

/* What the program says wins, before and after. */
static void own(void)
{
	struct glk_place gpu = {GLK_PLACE_GPU, 0}, host = {GLK_PLACE_HOST, 0}, got;
	struct CUstream_st *s;
	struct rig rig;
	uint64_t p;

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	p = managed(&rig, 8 * MIB, s);
	is_int(glk_cache_managed_say(&rig.cache, p, MIB, GLK_MANAGED_UNACCESSED, gpu), 0,
		"that it does not use it");
	told(&rig, p, GPU);
	is_int(said(&rig), 1, "is heard alone");
	told(&rig, p + 2 * MIB, GPU | HOST);
	told(&rig, p + 4 * MIB, GPU | HOST);
	is_int(said(&rig), 5, "of other slots two things");
	is_int(glk_cache_managed_say(
		       &rig.cache, p + 5 * MIB, 4096, GLK_MANAGED_PREFER, host),
		0, "the program says something of the last");
	is_int(said(&rig), 8, "which took two things back");
	is_int(glk_cache_managed_ask(
		       &rig.cache, p + 5 * MIB, 4096, GLK_MANAGED_PREFERRED, &got),
		0, "it is heard");
	glk_soft_managed_touch(rig.drv, 0, p + 4 * MIB, 2 * MIB, true);
	told(&rig, p + 4 * MIB, GPU | HOST);
	is_int(said(&rig), 8, "and nothing is said there any more");
	is_int(to_and_fro(&rig, p + 6 * MIB, 2 * MIB, s), 20,
		"what nobody speaks of goes on");
	glk_fault_set(rig.drv, "managed_say:from=1:err=EIO");
	told(&rig, p + 6 * MIB, GPU | HOST);
	glk_fault_set(rig.drv, "off");
	is_int(advised(&rig), 1, "where the driver does not listen nothing counts");
	rig_close(&rig, 1);
}

/* Blocks that share a slot share what is said of it. */
static void small(void)
{
	struct CUstream_st *s;
	struct rig rig;
	uint64_t p[8];

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	for (int i = 0; i < 8; i++)
		p[i] = managed(&rig, 4096, s);
	told(&rig, p[3], GPU);
	told(&rig, p[4], GPU);
	is_int(said(&rig), 1, "once for all of them");
	is_int(glk_cache_managed_say(&rig.cache, p[7], 0, GLK_MANAGED_ACCESSED,
		       (struct glk_place){GLK_PLACE_GPU, 0}),
		0, "advice for one of them");
	is_int(said(&rig), 3, "takes it back for all");
	for (int i = 0; i < 8; i++)
		is_int(rig_free(&rig, p[i], s), 0, "freed");
	ok(rig_is_sound(&rig), "the books agree");
	rig_close(&rig, 0);
}

/* What was seen of the block before is not said of the next one. */
static void before(void)
{
	struct CUstream_st *s;
	struct rig rig;
	uint64_t p, q, r;
	int64_t seen;

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	p = managed(&rig, 8 * MIB, s);
	seen = glk_clock_raw_ns();
	is_int(rig_free(&rig, p, s), 0, "freed");
	ok(managed(&rig, 8 * MIB, s) == p, "and given again");
	for (int i = 0; i < 4; i++)
		glk_cache_managed_ease(
			&rig.cache, p + (size_t)i * 2 * MIB, GPU | HOST, seen);
	is_int(said(&rig), 0, "what went to and fro was the block before");
	told(&rig, p + 6 * MIB, GPU | HOST);
	is_int(said(&rig), 2, "what does so now is this one");
	q = managed(&rig, 4096, s);
	seen = glk_clock_raw_ns();
	is_int(rig_free(&rig, q, s), 0, "a small one is freed");
	r = managed(&rig, 4096, s);
	ok(q == r, "and given again");
	glk_cache_managed_ease(&rig.cache, r, GPU, seen);
	is_int(said(&rig), 2, "nothing is said of it either");
	told(&rig, r, GPU);
	is_int(said(&rig), 3, "until it goes to and fro");
	rig_close(&rig, 2);
}

static struct rig *speaking;
static int (*say_driver)(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_say what, struct glk_place place);

/* Another thread is told of it while something is taken back. */
static int say_late(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_say what, struct glk_place place)
{
	struct rig *rig = speaking;

	speaking = NULL;
	if (rig)
		told(rig, addr, GPU);
	return say_driver(drv, addr, size, what, place);
}

/* What is said while a new block has its memory cleared of the old would be taken back with it. */
static void meanwhile(void)
{
	const struct glk_drv_ops *real;
	struct glk_drv_ops late;
	struct CUstream_st *s;
	struct rig rig;
	uint64_t p;

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	p = managed(&rig, 2 * MIB, s);
	told(&rig, p, GPU);
	is_int(rig_free(&rig, p, s), 0, "freed");
	real = rig.drv->ops;
	late = *real;
	say_driver = real->managed_say;
	late.managed_say = say_late;
	rig.drv->ops = &late;
	speaking = &rig;
	ok(managed(&rig, 2 * MIB, s) == p && !speaking,
		"given again, and told of just then");
	rig.drv->ops = real;
	told(&rig, p, GPU);
	ok(to_and_fro(&rig, p, 2 * MIB, s) <= 1, "what is told later is heard");
	rig_close(&rig, 1);
}

#define ROUNDS 400

struct worker {
	struct rig *rig;
	struct CUstream_st *stream;
	uint64_t at;
	int odd;
};

/* Has a block, says something of it at times, and frees it. */
static void *use(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t addr = managed(w->rig, (size_t)(i % 5 + 1) * MIB, w->stream);

		if (!addr) {
			w->odd++;
			continue;
		}
		__atomic_store_n(&w->at, addr, __ATOMIC_RELAXED);
		if (i % 3 == 0)
			w->odd += glk_cache_managed_say(&w->rig->cache, addr, 0,
					  GLK_MANAGED_ACCESSED,
					  (struct glk_place){GLK_PLACE_GPU, 0}) != 0;
		w->odd += rig_free(w->rig, addr, w->stream) != 0;
	}
	return NULL;
}

static void *ease(void *arg)
{
	struct worker *w = arg;

	for (uint64_t i = 0; i < ROUNDS * 4; i++)
		told(w->rig,
			__atomic_load_n(&w[-(int)(i % 2) - 1].at, __ATOMIC_RELAXED) +
				i % 5 * MIB,
			GPU | HOST);
	return NULL;
}

/* Nobody's free or advice is refused since somebody else drains events. */
static void threads(const char *chunks)
{
	const char *const mine[] = {chunks, "soft.streams=stepped", NULL};
	struct worker w[3] = {0};
	pthread_t thread[3];
	struct rig rig;

	rig_open(&rig, mine);
	for (int i = 0; i < 3; i++)
		w[i] = (struct worker){.rig = &rig, .stream = rig_stream(&rig)};
	for (int i = 0; i < 3; i++)
		if (pthread_create(&thread[i], NULL, i < 2 ? use : ease, &w[i]))
			tap_bail("no thread");
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	is_int(w[0].odd + w[1].odd, 0, "nobody is refused anything");
	ok(rig_is_sound(&rig), "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	ends();
	nothing();
	own();
	small();
	before();
	meanwhile();
	threads("tier.managed_chunk=64MiB");
	/* chunks that are too small go */
	threads("tier.managed_chunk=2MiB");
	return tap_done();
}
