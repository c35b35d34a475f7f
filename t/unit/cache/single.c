/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contiguous blocks: one handle each, parked when freed. */
#include "rig.h"

#include <errno.h>

static void gives(void)
{
	struct CUstream_st *a;
	uint64_t one, two;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	one = rig_single(&rig, 20 * MIB, a);
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_CREATE), 1, "one handle");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_MAP), 1, "one map");
	memset((void *)one, 0x77, 20 * MIB);
	two = rig_single(&rig, 3 * MIB, a);
	ok(one && two && one != two, "another");
	is_int((int64_t)rig_figures(&rig).reserved, 24 * (int64_t)MIB,
		"in whole granules");
	is_int((int64_t)rig_figures(&rig).given, 24 * (int64_t)MIB, "given");
	is_int((int64_t)rig_figures(&rig).live, 23 * (int64_t)MIB, "asked for");
	is_int(rig_free(&rig, one + 4 * MIB, a), -EINVAL, "the inside of it");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

static void parks(void)
{
	uint64_t one, again, calls;
	struct CUstream_st *a, *b;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	one = rig_single(&rig, 20 * MIB, a);
	rig_work(&rig, one, 20 * MIB, a);
	rig_free(&rig, one, a);
	is_int(rig_free(&rig, one, a), -EINVAL, "freed twice");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");
	is_int((int64_t)rig_figures(&rig).free_pages, 20 * (int64_t)MIB, "it is parked");
	is_sound(&rig, "the books agree");
	calls = rig_all_calls(&rig);
	again = rig_single(&rig, 20 * MIB - 1, a);
	is_int((int64_t)again, (int64_t)one, "for the next of its size");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "without a call of the driver");
	rig_free(&rig, again, a);
	ok(rig_single(&rig, 18 * MIB, a) != one, "not for one of another size");
	again = rig_single(&rig, 20 * MIB, b);
	is_int((int64_t)again, (int64_t)one, "for another stream too");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 1, "behind a wait");
	rig_work(&rig, again, 20 * MIB, b);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Of several parked ones, the one that needs no wait. */
static void chooses(void)
{
	struct CUstream_st *a, *b;
	uint64_t of_a, of_b;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	of_a = rig_single(&rig, 4 * MIB, a);
	of_b = rig_single(&rig, 4 * MIB, b);
	rig_free(&rig, of_a, a);
	rig_free(&rig, of_b, b);
	is_int((int64_t)rig_single(&rig, 4 * MIB, a), (int64_t)of_a, "A gets its own");
	is_int((int64_t)rig_single(&rig, 4 * MIB, b), (int64_t)of_b, "so does B");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 0, "nobody waits");
	rig_close(&rig, 2);

	rig_open(&rig,
		(const char *const[]){
			"soft.streams=stepped", RIG_NEVER, NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	of_a = rig_single(&rig, 4 * MIB, a);
	rig_free(&rig, of_a, a);
	ok(rig_single(&rig, 4 * MIB, b) != of_a, "never: B does not get A's");
	ok(rig_single(&rig, 4 * MIB, a) == of_a, "A does");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* A parked one whose work goes on stays mapped, and memory comes from elsewhere. */
static void waits(void)
{
	struct CUstream_st *a;
	size_t released = 1;
	uint64_t one;
	int err = 0;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	one = rig_single(&rig, 4 * MIB, a);
	rig_work(&rig, one, 4 * MIB, a);
	rig_free(&rig, one, a);
	glk_event_poll(rig.cache.streams);
	released = glk_single_release(&rig.cache, UINT64_MAX, &err);
	ok(!released && !err, "not released while a kernel uses it");
	is_sound(&rig, "the books agree");
	glk_soft_run_all(rig.drv);
	glk_event_poll(rig.cache.streams);
	released = glk_single_release(&rig.cache, 1, &err);
	ok(released == 4 * MIB && !err, "released after it");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "no memory is held");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/*
 * The driver keeps a mapping of many granules. None of its addresses may be given again, not
 * even the last ones there are: a map over them would fail for ever.
 */
static void is_kept(void)
{
	struct CUstream_st *a;
	uint64_t one, got = 0;
	struct rig rig;
	int err = 0, given = 0;

	rig_open(&rig, (const char *const[]){"map.span=1GiB", NULL});
	a = rig_stream(&rig);
	one = rig_single(&rig, 16 * MIB, a);
	rig_free(&rig, one, a);
	glk_event_poll(rig.cache.streams);
	tap_expect_log(1);
	glk_fault_set(rig.drv, "unmap:nth=1:err=EIO");
	got = glk_single_release(&rig.cache, UINT64_MAX, &err);
	glk_fault_set(rig.drv, "off");
	ok(!got && err == -EIO, "the driver keeps a mapping");
	is_int((int64_t)rig_figures(&rig).lost, 16 * (int64_t)MIB, "its page is lost");
	is_sound(&rig, "the books agree");
	while (!(err = rig_try(&rig, 2 * MIB, a, GLAKE_ALLOC_CONTIGUOUS, &got)))
		given++;
	is_int(err, -ENOMEM, "all addresses are given");
	is_int(rig_error().error_class, GLAKE_ERROR_ADDRESS, "  its class");
	is_int(given, (256 - 16) / 2, "but those");
	is_sound(&rig, "the books agree");
	rig_close(&rig, (size_t)given);
}

/* Step by step, what a request fails on is undone. */
static void fails(void)
{
	static const char *const faults[] = {"create:nth=1:err=EIO", "map:nth=1:err=EIO",
		"set_access:nth=1:err=ENOMEM", "set_access:nth=1:err=EIO"};
	static const int errors[] = {-EIO, -EIO, -ENOMEM, -EIO};
	struct CUstream_st *a;
	uint64_t addr = 3;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, 1, a), a);
	/* a request that fails for want of memory is tried again when bins gave some back */
	rig_flush(&rig);
	for (int i = 0; i < 4; i++) {
		uint64_t held = rig_figures(&rig).reserved;

		glk_fault_set(rig.drv, faults[i]);
		is_int(rig_try(&rig, 6 * MIB, a, GLAKE_ALLOC_CONTIGUOUS, &addr),
			errors[i], faults[i]);
		glk_fault_set(rig.drv, "off");
		is_int((int64_t)rig_figures(&rig).reserved, (int64_t)held, "undone");
		is_sound(&rig, "the books agree");
	}
	is_int((int64_t)addr, 3, "the output is as it was");
	ok(rig_single(&rig, 6 * MIB, a), "and then it works");
	rig_close(&rig, 1);
}

int main(void)
{
	tap_plan_later();
	gives();
	parks();
	chooses();
	waits();
	is_kept();
	fails();
	return tap_done();
}
