/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is walked for: streams that have ended, and limbo against a device that is stepped. */
#include "plan_parts.h"

#define MANY 20

static struct rig rig;

static const struct glk_survey_stream *find(
	const struct glk_survey *survey, const char *name)
{
	for (size_t i = 0; i < survey->streams; i++)
		if (!strcmp(survey->stream[i].name, name))
			return &survey->stream[i];
	return NULL;
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

/* More streams than are named: those with the most are, the others are told of as one. */
static void names_largest(void)
{
	const struct glk_survey_stream *one;
	struct glk_survey survey;
	uint64_t addr[MANY];
	size_t sum = 0;
	char name[32];

	rig_open(&rig, NULL);
	for (int i = 0; i < MANY; i++)
		addr[i] = rig_alloc(
			&rig, 4096 * (size_t)(i + 1), i ? rig_stream(&rig) : NULL);
	rig_free(&rig, rig_alloc(&rig, 512, NULL), NULL);
	glk_cache_survey(&rig.cache, &survey);
	is_int((int64_t)survey.streams, GLK_SURVEY_STREAMS + 2,
		"those with most, the ended, the rest");
	for (size_t i = 0; i < survey.streams; i++)
		sum += survey.stream[i].given;
	is_int((int64_t)sum, (int64_t)rig_figures(&rig).given, "all bytes are told");
	snprintf(name, sizeof(name), "0x%" PRIx64,
		(uint64_t)(uintptr_t)rig.stream[MANY - 2]);
	one = find(&survey, name);
	ok(one && one->given == 4096 * MANY && one->blocks == 1,
		"the largest by its name");
	for (int i = 0; i < MANY; i++)
		rig_free(&rig, addr[i], i ? rig.stream[i - 1] : NULL);
	glk_cache_survey(&rig.cache, &survey);
	rig_close(&rig, 0);

	rig_open(&rig, NULL);
	addr[0] = rig_alloc(&rig, 4096, NULL);
	glk_cache_survey(&rig.cache, &survey);
	one = find(&survey, "legacy");
	ok(one && one->given == 4096, "the legacy stream has a name of its own");
	rig_free(&rig, addr[0], NULL);
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

int main(void)
{
	tap_plan_later();
	ended();
	names_largest();
	limbo();
	return tap_done();
}
