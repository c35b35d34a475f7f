/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a suspension in place and its end cost where there are many small blocks: so many steps for each,
 * however many lie beside it. */
#include "plan_parts.h"

#include <stdlib.h>

/* Divides a page, so that all lie side by side. */
#define SIZE (16 << 10)
#define FEW  800
#define MANY (4 * FEW)

/* Steps for a block: those of the walks of a suspension and of its end, and what a part looks at. */
#define STEPS 8

static struct rig rig;
static struct CUstream_st *a;
static struct held list[MANY];

/* The steps of both; every `nth` block is pinned, none for 0. */
static uint32_t steps_of(int blocks, int nth)
{
	struct glake_suspended did;
	int err = 0, torn = 0;
	uint32_t steps;

	rig_open(&rig,
		(const char *const[]){"soft.host_memory=512MiB", "tier.host=400MiB",
			"policy.bins=0", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < blocks && !err; i++) {
		err = plan_take(&rig, &list[i], SIZE, a);
		if (!err && nth && i % nth == nth / 2)
			err = glk_cache_advise(
				&rig.cache, list[i].addr, GLAKE_ADVICE_PINNED);
	}
	is_int(err, 0, "blocks");
	steps = rig.cache.plans.steps;
	is_int(glk_cache_suspend(&rig.cache, true, &did), 0, "suspended in place");
	is_int((int64_t)did.moved_blocks, nth ? 0 : blocks, "with those that may go");
	is_int((int64_t)did.stayed_blocks, nth ? blocks : 0, "and without the others");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
	is_int((int64_t)did.stayed, 0, "all are back");
	steps = rig.cache.plans.steps - steps;
	for (int i = 0; i < blocks; i++)
		torn += !plan_drop(&rig, &list[i], a);
	is_int(torn, 0, "with what was written");
	rig_close(&rig, 0);
	return steps;
}

static void grows(int nth, const char *what)
{
	uint32_t few = steps_of(FEW, nth), many = steps_of(MANY, nth);

	/* passes over what others hold are few, and what is pinned asks for all of them */
	ok(few <= (nth ? 4 : 1) * STEPS * FEW && many <= (nth ? 4 : 1) * STEPS * MANY,
		"%s: %u steps for %d blocks, %u for %d", what, few, FEW, many, MANY);
}

int main(void)
{
	tap_plan_later();
	grows(0, "all go");
	/* one on each page at least */
	grows(50, "none may");
	return tap_done();
}
