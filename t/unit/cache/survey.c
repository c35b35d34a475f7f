/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is walked for: streams against who asked, limbo against a device that is stepped, holes against
 * a walk slot by slot; times are counted once for each call; and readers beside a storm.
 */
#include "plan_parts.h"

#include "seed.h"

#define BLOCKS	300
#define STREAMS 24

struct model {
	uint64_t bytes[STREAMS + 1],
		blocks[STREAMS + 1]; /* the last: on the legacy stream */
};

static struct rig rig;

static struct CUstream_st *stream_of(int i)
{
	return i < STREAMS ? rig.stream[i] : NULL;
}

static size_t draw(uint64_t *state)
{
	return 1 + seed_below(state, seed_below(state, 3) ? 200 << 10 : 12 * MIB);
}

static const struct glk_survey_stream *find(
	const struct glk_survey *survey, const char *name)
{
	for (size_t i = 0; i < survey->streams; i++)
		if (!strcmp(survey->stream[i].name, name))
			return &survey->stream[i];
	return NULL;
}

/* Whether those that are named are as they should be, the largest ones, and the others the rest. */
static bool agrees(const struct model *model)
{
	uint64_t bytes = 0, blocks = 0, quick = 0, least = UINT64_MAX, all = 0, count = 0;
	struct glake_stats s = rig_figures(&rig);
	struct glk_survey survey;
	bool same = true;
	char name[32];

	glk_cache_survey(&rig.cache, &survey);
	for (size_t i = 0; i < survey.streams; i++) {
		bytes += survey.stream[i].given;
		blocks += survey.stream[i].blocks;
		quick += survey.stream[i].quick;
		if (i < GLK_SURVEY_STREAMS &&
			least > survey.stream[i].given + survey.stream[i].quick)
			least = survey.stream[i].given + survey.stream[i].quick;
	}
	for (int i = 0; i <= STREAMS; i++) {
		const struct glk_survey_stream *one;

		snprintf(name, sizeof(name), "0x%" PRIx64,
			(uint64_t)(uintptr_t)stream_of(i));
		one = find(&survey, i < STREAMS ? name : "legacy");
		all += model->bytes[i];
		count += model->blocks[i];
		if (one)
			same &= one->given == model->bytes[i] &&
				one->blocks == model->blocks[i];
		else
			same &= model->bytes[i] <= least;
	}
	if (!same || bytes != all || blocks != count || quick != s.quick ||
		bytes != s.given)
		tap_note("%" PRIu64 " bytes of %" PRIu64 ", %" PRIu64
			 " blocks of %" PRIu64 ", %" PRIu64 " in bins of %" PRIu64,
			bytes, all, blocks, count, quick, s.quick);
	return same && bytes == all && blocks == count && quick == s.quick &&
		bytes == s.given && survey.streams == GLK_SURVEY_STREAMS + 2;
}

static void streams(uint64_t seed)
{
	uint64_t state = seed_thread(seed, 1);
	static struct {
		uint64_t addr;
		size_t size;
		int stream;
	} held[BLOCKS];
	struct model model = {0};
	const char *const settings[] = {"pool.budget=700MiB", NULL};
	bool right = true;

	rig_open(&rig, settings);
	for (int i = 0; i < STREAMS; i++)
		rig_stream(&rig);
	memset(held, 0, sizeof(held));
	for (int i = 0; i <= STREAMS; i++)
		rig_free(&rig, rig_alloc(&rig, 512, stream_of(i)), stream_of(i));
	for (int n = 0; n < 3000; n++) {
		size_t i = seed_below(&state, BLOCKS);
		size_t given = (held[i].size + 511) & ~(size_t)511;
		int on = (int)seed_below(&state, STREAMS + 1);

		if (held[i].addr) {
			/* as often on another stream than its own */
			rig_free(&rig, held[i].addr,
				stream_of(n % 2 ? on : held[i].stream));
			model.bytes[held[i].stream] -= given;
			model.blocks[held[i].stream]--;
			held[i].addr = 0;
			continue;
		}
		held[i].size = draw(&state);
		held[i].stream = on;
		held[i].addr = rig_alloc(&rig, held[i].size, stream_of(on));
		if (!held[i].addr)
			continue;
		given = (held[i].size + 511) & ~(size_t)511;
		model.bytes[on] += given;
		model.blocks[on]++;
		if (n % 100 == 0)
			right &= agrees(&model);
	}
	ok(right,
		"blocks and bytes of streams are those of who asked, on any stream freed");
	ok(agrees(&model), "and at the end");
	for (int i = 0; i < BLOCKS; i++)
		if (held[i].addr)
			rig_free(&rig, held[i].addr, stream_of(held[i].stream));
	memset(&model, 0, sizeof(model));
	ok(agrees(&model), "nothing is of any of them when all was freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void ended(void)
{
	const struct glk_survey_stream *one;
	struct glk_survey survey;
	uint64_t addr;

	rig_open(&rig, NULL);
	rig_stream(&rig);
	addr = rig_alloc(&rig, 3 * MIB, rig.stream[0]);
	glk_cache_stream_end(&rig.cache, rig.stream[0]);
	glk_cache_survey(&rig.cache, &survey);
	one = find(&survey, "ended");
	ok(one && one->given == 3 * MIB && one->blocks == 1,
		"what a stream leaves is told of those that have ended");
	rig_free(&rig, addr, NULL);
	rig_close(&rig, 0);
}

static uint64_t limbo_of(const char *name)
{
	const struct glk_survey_stream *one;
	struct glk_survey survey;

	glk_cache_survey(&rig.cache, &survey);
	one = find(&survey, name);
	return name ? (one ? one->limbo : UINT64_MAX) : survey.limbo;
}

/* Under the lock. */
static void ask(void)
{
	glk_lock(&rig.cache.lock);
	glk_event_poll(&rig.cache.streams);
	glk_unlock(&rig.cache.lock);
}

static void limbo(void)
{
	const char *const settings[] = {"soft.streams=stepped", "policy.bins=0", NULL};
	struct glk_survey survey;
	char a[32], b[32];
	uint64_t one, two, beside;

	rig_open(&rig, settings);
	snprintf(a, sizeof(a), "0x%" PRIx64, (uint64_t)(uintptr_t)rig_stream(&rig));
	snprintf(b, sizeof(b), "0x%" PRIx64, (uint64_t)(uintptr_t)rig_stream(&rig));
	one = rig_alloc(&rig, 16 * MIB, rig.stream[0]);
	two = rig_alloc(&rig, 8 * MIB, rig.stream[1]);
	rig_work(&rig, one, 16 * MIB, rig.stream[0]);
	rig_work(&rig, two, 8 * MIB, rig.stream[1]);
	glk_cache_survey(&rig.cache, &survey);
	ok(!survey.limbo, "no memory of live blocks is in limbo");
	glk_cache_use(&rig.cache, two, rig.stream[0]);
	rig_free(&rig, one, rig.stream[0]);
	ask();
	is_int(limbo_of(a), 16 * MIB, "what is free, and whose work is not done, is");
	is_int(limbo_of(b), 0, "by its stream");
	rig_free(&rig, two, rig.stream[1]);
	ask();
	is_int(limbo_of(a), 24 * MIB, "behind two streams it counts for both");
	is_int(limbo_of(b), 8 * MIB, "of these");
	glk_cache_survey(&rig.cache, &survey);
	is_int(survey.limbo, 24 * MIB, "and once in all");
	is_int(rig_figures(&rig).idle, 24 * MIB, "it is idle");
	is_int(survey.ready_hole, 24 * MIB, "and one hole that needs no call");
	glk_soft_run_all(rig.drv);
	ask();
	glk_cache_survey(&rig.cache, &survey);
	is_int(survey.limbo, 0, "nothing is once it is known to be done");
	one = rig_alloc(&rig, 5 * MIB, rig.stream[0]);
	beside = rig_alloc(&rig, 3 * MIB, rig.stream[0]);
	rig_free(&rig, one, rig.stream[0]);
	glk_cache_survey(&rig.cache, &survey);
	ok(survey.ready_hole < 24 * MIB && survey.ready_hole >= 16 * MIB,
		"a block makes the hole smaller");
	rig_free(&rig, beside, rig.stream[0]);
	rig_close(&rig, 0);
}

static struct glake_histogram times(enum glk_timed what)
{
	struct glake_histogram h;

	glk_times_read(&rig.cache.times[what], &h);
	return h;
}

static void timed(void)
{
	const char *const settings[] = {"pool.budget=64MiB", "policy.bins=0", NULL};
	struct glake_stats s;
	struct glake_histogram h;
	uint64_t addr[9], refused;

	rig_open(&rig, settings);
	for (int i = 0; i < 9; i++)
		addr[i] = rig_alloc(&rig, 4 * MIB, NULL);
	is_int(rig_try(&rig, 60 * MIB, NULL, 0, &refused), -ENOMEM, "one is refused");
	is_int(glk_cache_spill(&rig.cache, addr[0], NULL), 0, "one goes");
	is_int(glk_cache_spill(&rig.cache, addr[1], NULL), 0, "another one");
	is_int(glk_cache_fetch(&rig.cache, addr[0], NULL), 0, "one comes back");
	for (int i = 0; i < 9; i++)
		rig_free(&rig, addr[i], NULL);
	s = rig_figures(&rig);
	is_int(times(GLK_TIMED_REQUEST).count, (int64_t)(s.misses + s.oom),
		"each request that missed or was refused has its time");
	is_int(times(GLK_TIMED_FREE).count, 9, "and each free that merged");
	is_int(times(GLK_TIMED_SPILL).count, 2, "and who went");
	is_int(times(GLK_TIMED_FETCH).count, 1, "and who came");
	is_int(s.spilled, 8 * MIB, "bytes that went");
	is_int(s.fetched, 4 * MIB, "and came");
	ok(s.store >= s.store_used && s.store && s.host_held == s.store,
		"memory of the host is held for them");
	is_int(s.store_used, 0, "and empty at the end");
	h = times(GLK_TIMED_HOLD);
	ok(h.count >= 9 + 10 + 3 && h.longest <= h.sum, "turns of the lock");
	rig_close(&rig, 0);
}

#define TURNS 1000

static glk_atomic(bool) done;

static void *churn(void *arg)
{
	struct CUstream_st *stream = arg;
	uint64_t state = (uintptr_t)arg, addr[16] = {0};

	for (int n = 0; n < TURNS; n++) {
		size_t i = seed_below(&state, 16);

		if (addr[i])
			rig_free(&rig, addr[i], stream);
		addr[i] = addr[i]
			? 0
			: rig_alloc(&rig,
				  1 + seed_below(&state, n % 8 ? 64 << 10 : 6 * MIB),
				  stream);
	}
	for (int i = 0; i < 16; i++)
		if (addr[i])
			rig_free(&rig, addr[i], stream);
	return NULL;
}

/* Counters never go back, whoever writes. */
static void *watch(void *arg)
{
	struct glake_histogram before = {0}, now;
	struct glake_stats was = {0}, s;
	struct glk_survey survey;
	bool *back = arg;

	do {
		glk_cache_survey(&rig.cache, &survey);
		s = rig_figures(&rig);
		now = times(GLK_TIMED_REQUEST);
		*back |= now.count < before.count || now.sum < before.sum ||
			s.allocs < was.allocs || s.frees < was.frees ||
			s.hits < was.hits || s.misses < was.misses ||
			s.misses > s.allocs || survey.streams > GLK_SURVEY_STREAMS + 2;
		before = now;
		was = s;
	} while (!glk_load_relaxed(&done));
	return NULL;
}

static void storm(void)
{
	const char *const settings[] = {"soft.streams=worker", NULL};
	pthread_t thread[4], reader;
	struct model model = {0};
	bool back = false;
	struct glake_stats s;

	rig_open(&rig, settings);
	/* more than are named */
	for (int i = 0; i < STREAMS; i++) {
		rig_stream(&rig);
		rig_free(&rig, rig_alloc(&rig, 512, stream_of(i)), stream_of(i));
	}
	rig_free(&rig, rig_alloc(&rig, 512, NULL), NULL);
	pthread_create(&reader, NULL, watch, &back);
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, churn, rig.stream[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	glk_store_relaxed(&done, true);
	pthread_join(reader, NULL);
	ok(!back, "beside a storm nothing goes back");
	ok(agrees(&model), "at rest all is exact again");
	s = rig_figures(&rig);
	is_int(times(GLK_TIMED_REQUEST).count, (int64_t)(s.misses + s.oom),
		"no time was lost");
	is_int(s.in_flight, 0, "nor is anything in flight");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	streams(seed);
	ended();
	limbo();
	timed();
	storm();
	return tap_done();
}
