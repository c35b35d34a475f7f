/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a suspension and its end cost where there are many small blocks: so many steps for each, however many lie
 * beside it. Each is a step of the lock too, which others have after GLK_PLAN_STEPS of them. */
#include "tag_parts.h"

#include <stdlib.h>

/* Divides a page, so that all lie side by side. */
#define SIZE (16 << 10)
#define FEW  800
#define MANY (4 * FEW)

static struct held list[MANY];

/* The steps of both; every `nth` block is pinned, none for 0. With a tag blocks go away. */
static uint32_t steps_of(int blocks, int nth, uint32_t tag)
{
	int err = 0, torn = 0;
	uint32_t steps;

	rig_open(&rig,
		(const char *const[]){"soft.host_memory=512MiB", "tier.host=400MiB",
			"policy.bins=0", NULL});
	a = b = rig_stream(&rig);
	is_int(glk_cache_tag_open(&rig.cache, TAG), 0, "a tag");
	for (int i = 0; i < blocks && !err; i++) {
		err = take(&list[i], SIZE, tag, a);
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
	is_int((int64_t)did.moved_blocks, nth ? 0 : blocks, "that had gone");
	steps = rig.cache.plans.steps - steps;
	for (int i = 0; i < blocks; i++)
		torn += !plan_drop(&rig, &list[i], a);
	is_int(torn, 0, "with what was written");
	rig_close(&rig, 0);
	return steps;
}

/* So many steps a block: walks over what goes together, and what looks for it. */
static void grows(int nth, uint32_t tag, uint32_t least, uint32_t most, const char *what)
{
	uint32_t few = steps_of(FEW, nth, tag), many = steps_of(MANY, nth, tag);

	ok(few >= least * FEW && few <= most * FEW && many >= least * MANY &&
			many <= most * MANY,
		"%s: %u steps for %d blocks, %u for %d", what, few, FEW, many, MANY);
}

int main(void)
{
	tap_plan_later();
	grows(0, 0, 15, 17, "all go in place");
	grows(0, TAG, 11, 13, "all go away");
	/* one on each page at least; passes over what others hold are few, and what is pinned asks for all of them */
	grows(50, 0, 0, 12, "none may");
	return tap_done();
}
