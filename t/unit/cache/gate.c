/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mappings that go when a stream comes to the place of a free: the books meanwhile and afterwards, and what fails. */
#include "rig.h"

#include "base/error.h"
#include "cache/sampled.h"
#include "guard/guard.h"

#include <time.h>

static struct rig rig;
static struct CUstream_st *a;

static void set_up(const char *setting)
{
	rig_open(&rig,
		(const char *const[]){
			"soft.gates=yes", "soft.streams=stepped", setting, NULL});
	a = rig_stream(&rig);
	if (glk_guard_set(&rig.cache, GLK_GUARD_FULL, 1))
		tap_bail(rig_error().text);
}

static void take_down(void)
{
	/* what found no gate waits for that */
	rig.drv->ops->device_sync(rig.drv, 0);
	glk_guard_fini(&rig.cache);
	rig_close(&rig, 0);
}

static bool comes_and_goes(size_t size)
{
	uint64_t addr;

	return !rig_try(&rig, size, a, 0, &addr) && !rig_free(&rig, addr, a);
}

/* Plans under way: gates that are not in the books. */
static uint32_t under_way(void)
{
	uint32_t count;

	glk_lock(&rig.cache.lock);
	count = rig.cache.plans.under_way;
	glk_unlock(&rig.cache.lock);
	return count;
}

static void await_none(void)
{
	static const struct timespec soon = {.tv_nsec = 1000000};

	while (under_way())
		nanosleep(&soon, NULL);
}

static void books(void)
{
	int torn = 0;

	set_up(NULL);
	for (int i = 0; i < 5; i++)
		torn += !comes_and_goes(3 * MIB);
	ok(!torn && under_way() == 5, "five blocks are behind gates");
	is_int((int64_t)rig_figures(&rig).live, 0, "  and not live");
	is_int(rig.drv->ops->stream_sync(rig.drv, 0, a), 0, "their stream goes on");
	await_none();
	is_sound(&rig, "the books agree");
	ok(comes_and_goes(10 * MIB), "others follow");
	take_down();
}

/* Who waits for the stream with the lock keeps nobody from opening its gates. */
static void held(void)
{
	int torn = 0;

	set_up(NULL);
	for (int i = 0; i < 5; i++)
		torn += !comes_and_goes(3 * MIB);
	glk_lock(&rig.cache.lock);
	torn += rig.drv->ops->stream_sync(rig.drv, 0, a) != 0;
	ok(!torn && rig.cache.plans.under_way, "a stream passes all of its gates");
	glk_unlock(&rig.cache.lock);
	await_none();
	is_sound(&rig, "the books agree");
	take_down();
}

/* A GPU that is lost comes to no gate: what is behind them is taken back all the same. */
static void lost(void)
{
	int torn = 0;

	set_up(NULL);
	for (int i = 0; i < 5; i++)
		torn += !comes_and_goes(3 * MIB);
	ok(!torn && under_way() == 5, "five blocks are behind gates");
	torn = glk_fault_set(rig.drv, "memory_info:from=1:err=ENODEV");
	await_none();
	torn += glk_fault_set(rig.drv, "off");
	ok(!torn, "the GPU is lost, and nobody waits for them");
	is_sound(&rig, "the books agree");
	take_down();
}

static void fails(const char *rule)
{
	int torn = 0, struck = 0;

	set_up(NULL);
	for (int nth = 1; nth < 6; nth++) {
		char text[64];

		snprintf(text, sizeof(text), rule, nth);
		torn += glk_fault_set(rig.drv, text) != 0;
		for (int i = 0; i < 3; i++)
			torn += !comes_and_goes(3 * MIB);
		rig.drv->ops->stream_sync(rig.drv, 0, a);
		await_none();
		struck += rig_struck(&rig);
		torn += !rig_is_sound(&rig);
	}
	torn += glk_fault_set(rig.drv, "off") != 0;
	ok(!torn, "%s: struck %d times", rule, struck);
	tap_expect_log(tap.logs - tap.expected);
	take_down();
}

static const struct glk_drv_ops *all;

/* The stream tells that it has come there, and does not wait. */
static int half_gate(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_drv_gate *words, uint32_t number)
{
	(void)stream;
	glk_store_release(&words->at, number);
	rig.drv->ops = all;
	return glk_error(-EIO, GLAKE_ERROR_DRIVER, "half a gate on GPU %d of %p", device,
		(void *)drv);
}

/* What is left of a gate that was refused is not taken for the next one. */
static void half(void)
{
	static const struct timespec soon = {.tv_nsec = 1000000};
	struct glk_drv_ops half;
	int torn = 0;

	set_up(NULL);
	all = rig.drv->ops;
	half = *all;
	half.gate = half_gate;
	rig.drv->ops = &half;
	torn += !comes_and_goes(3 * MIB) || under_way();
	ok(!torn && rig.drv->ops == all, "where there is half a gate a free waits");
	torn += !comes_and_goes(3 * MIB);
	for (int i = 0; i < 100; i++)
		nanosleep(&soon, NULL);
	ok(!torn && under_way() == 1, "the next one is taken away behind its own gate");
	is_int(rig.drv->ops->stream_sync(rig.drv, 0, a), 0, "  which its stream passes");
	await_none();
	is_sound(&rig, "the books agree");
	take_down();
}

/* Who can have no gate does not wait for those of another stream. */
static void full(void)
{
	struct CUstream_st *b;
	uint32_t gates = 0;
	uint64_t addr;
	int torn = 0;

	set_up(NULL);
	/* a page each, and the 32nd part of the memory */
	while (gates < 16 && !torn) {
		torn += !comes_and_goes(1000);
		gates++;
	}
	ok(!torn && under_way() == gates, "there are as many gates as there may be");
	b = rig_stream(&rig);
	torn += rig_try(&rig, 1000, b, 0, &addr) || rig_free(&rig, addr, b);
	ok(!torn && under_way() == gates, "another stream's memory goes meanwhile");
	rig.drv->ops->stream_sync(rig.drv, 0, a);
	await_none();
	is_sound(&rig, "the books agree");
	take_down();
}

/* The stream goes on when the other thread waits. */
static void *pass(void *arg)
{
	static const struct timespec soon = {.tv_nsec = 1000000};

	nanosleep(&soon, NULL);
	return rig.drv->ops->stream_sync(rig.drv, 0, a) ? NULL : arg;
}

/* Who can have one when one is gone waits for that, and for nothing else. */
static void one_more(void)
{
	void *passed = NULL;
	pthread_t thread;
	int torn = 0;

	set_up(NULL);
	torn += pthread_create(&thread, NULL, pass, &rig) != 0;
	for (int i = 0; i < 17; i++)
		torn += !comes_and_goes(1000);
	torn += pthread_join(thread, &passed) || !passed;
	ok(!torn, "one more than there may be waits until one is gone");
	rig.drv->ops->stream_sync(rig.drv, 0, a);
	await_none();
	is_sound(&rig, "the books agree");
	take_down();
}

/* There is no thread to be had, or no memory: frees wait. */
static void without(void)
{
	pthread_attr_t before;
	int torn = 0;

	set_up(NULL);
	before = rig_no_threads();
	torn += !comes_and_goes(3 * MIB) || under_way();
	pthread_setattr_default_np(&before);
	torn += !comes_and_goes(3 * MIB) || under_way();
	ok(!torn, "without a thread a free waits, and the next one too");
	take_down();
	for (int nth = 1; nth < 8; nth++) {
		set_up(NULL);
		glk_region_fail_after((uint32_t)nth);
		comes_and_goes(3 * MIB);
		glk_region_fail_after(0);
		torn += !comes_and_goes(3 * MIB);
		rig.drv->ops->stream_sync(rig.drv, 0, a);
		await_none();
		torn += !rig_is_sound(&rig);
		tap_expect_log(tap.logs - tap.expected);
		take_down();
	}
	ok(!torn, "nor is anything lost without memory");
}

/* The end waits for what is behind gates. */
static void ends(void)
{
	set_up(NULL);
	ok(comes_and_goes(3 * MIB) && under_way() == 1,
		"one is behind a gate at the end");
	take_down();
}

int main(void)
{
	tap_plan_later();
	books();
	held();
	lost();
	fails("gate:nth=%d:err=EIO");
	fails("unmap:nth=%d:err=EIO");
	half();
	full();
	one_more();
	without();
	ends();
	return tap_done();
}
