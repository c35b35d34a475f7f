/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A GPU's blocks begin with the first request and end with everything given back. */
#include "rig.h"

#include <errno.h>

static void begins(void)
{
	struct CUstream_st *a;
	struct glake_stats s;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_RESERVE), 0,
		"nothing is reserved before it is used");
	s = rig_figures(&rig);
	ok(!s.address_space && !s.reserved && !s.live && !s.free_extents,
		"figures of a GPU nobody used");
	ok(!glk_cache_range(&rig.cache, 0x1000), "no address is its own");
	ok(rig_alloc(&rig, 100, a), "the first request");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_RESERVE), 1, "reserves once");
	is_int((int64_t)rig_figures(&rig).address_space, INT64_C(4) << 30,
		"four times the memory of the GPU");
	ok(rig_alloc(&rig, 5 * MIB, a), "the next one");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_RESERVE), 1, "does not");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Addresses are had or not; nothing stays when they are not. */
static void tries_again(void)
{
	struct CUstream_st *a;
	uint64_t addr = 4, metadata, before = glk_region_bytes();
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	metadata = glk_region_bytes();
	glk_fault_set(rig.drv, "reserve:from=1:err=ENOMEM");
	is_int(rig_try(&rig, 100, a, 0, &addr), -ENOMEM, "no addresses");
	is_int((int64_t)glk_region_bytes(), (int64_t)metadata, "no tables stay");
	glk_fault_set(rig.drv, "reserve:from=1:err=EIO");
	is_int(rig_try(&rig, 100, a, 0, &addr), -EIO, "another failure");
	is_int((int64_t)glk_region_bytes(), (int64_t)metadata, "no tables stay");
	for (uint32_t n = 1; n < 64; n++) {
		glk_fault_set(rig.drv, "off");
		glk_region_fail_after(n);
		if (!rig_try(&rig, 100, a, 0, &addr))
			break;
		if (rig_error().error_class != GLAKE_ERROR_NOMEM_HOST)
			break;
	}
	glk_region_fail_after(0);
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_HOST, "no memory for a table");
	ok(glk_load_relaxed(&rig.cache.started), "each failed once, then it began");
	ok(addr != 4, "with a block");
	glk_fault_set(rig.drv, "off");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "no tables stay at the end");

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	glk_fault_set(rig.drv, "reserve:from=1:len=2:err=ENOMEM");
	ok(rig_alloc(&rig, 100, a), "fewer addresses than wanted");
	is_int((int64_t)rig_figures(&rig).address_space, INT64_C(1) << 30, "a quarter");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void never_used(void)
{
	struct rig rig;

	rig_open(&rig, NULL);
	rig_close(&rig, 0);
}

#define TAG 0x101u

/* What a tag had cannot be unmapped at the end. */
static void ends_tag(void)
{
	struct rig_end end;
	struct rig rig;

	rig_open(&rig, NULL);
	if (glk_cache_tag_open(&rig.cache, TAG) || glk_seat_set_tag(&rig.cache, TAG))
		tap_bail("no tag");
	glk_seat_leave(&rig.cache);
	ok(rig_alloc(&rig, 8 * MIB, rig_stream(&rig)), "a block of a tag");
	glk_seat_set_tag(&rig.cache, 0);
	glk_fault_set(rig.drv, "unmap:p=1000000:err=EIO");
	end = rig_end(&rig);
	is_int(end.cache, -EIO, "the end says that it could not be unmapped");
	tap_expect_log(tap.logs - tap.expected);
}

/* All that a GPU may have at its end. */
static void use_all(struct rig *rig)
{
	struct CUstream_st *a = rig_stream(rig);
	uint64_t addr;

	if (glk_cache_tag_open(&rig->cache, TAG) || glk_seat_set_tag(&rig->cache, TAG))
		tap_bail("no tag");
	glk_seat_leave(&rig->cache);
	addr = rig_alloc(rig, 8 * MIB, a);
	glk_seat_set_tag(&rig->cache, 0);
	addr = addr ? rig_alloc(rig, 8 * MIB, a) : 0;
	if (!addr || glk_cache_spill(&rig->cache, addr, a) ||
		!rig_alloc(rig, 4 * MIB, a) || rig_begin(rig, 1, a) ||
		!rig_alloc(rig, 4 * MIB, a) || rig_end_pool(rig, 1) ||
		rig_try(rig, 3 * MIB, a, GLAKE_ALLOC_MANAGED, &addr) ||
		glk_hostpool_alloc(&rig->cache.hostpool, MIB, 0, &addr))
		tap_bail(rig_error().text);
}

/* One call of the end fails, or all from one on: what the device has left then is told. */
static void tells_of_each(const char *rule, int calls)
{
	int wrong = 0, left = 0;

	for (int nth = 1; nth <= calls; nth++) {
		struct rig_end end;
		char text[64];
		struct rig rig;

		rig_open(&rig,
			(const char *const[]){
				"soft.host_memory=512MiB", "tier.host=256MiB", NULL});
		use_all(&rig);
		snprintf(text, sizeof(text), "%s=%d:err=EIO", rule, nth);
		glk_fault_set(rig.drv, text);
		end = rig_end(&rig);
		left += end.device != 0;
		wrong += end.device && !end.cache;
	}
	ok(!wrong && left, "%s at the end, which is told: %d times", rule, left);
	tap_expect_log(tap.logs - tap.expected);
}

int main(void)
{
	tap_plan_later();
	begins();
	tries_again();
	never_used();
	ends_tag();
	tells_of_each("unmap:from", 8);
	tells_of_each("release:from", 8);
	tells_of_each("managed_free:from", 2);
	/* of what moves contents; the streams' own are nobody's loss */
	tells_of_each("event_free:nth", 4);
	tells_of_each("stream_free:nth", 4);
	return tap_done();
}
