/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A GPU that is suspended again and again: what memory of the host the first suspension had made is there
 * for the next, and how many calls of the driver one takes. What is counted is counted in calls, which
 * take as long on every machine.
 */
#include "plan_parts.h"

#include <time.h>

static struct rig rig;
static struct CUstream_st *a;

/* Of the host. */
#define ROOM "pool.large_page=4MiB", "soft.host_memory=2GiB", "tier.host=1GiB"

#define LARGE 4
#define SMALL 24

struct job {
	struct held large[LARGE], small[SMALL];
};

/* 8 MiB in pages of 4, and blocks between 100 KiB and 1 MiB that share theirs. */
static void begin(struct job *job, const char *const *settings)
{
	int err = 0;

	rig_open(&rig, settings);
	a = rig_stream(&rig);
	for (int i = 0; i < LARGE; i++)
		err = err ? err : plan_take(&rig, &job->large[i], 8 * MIB, a);
	for (size_t i = 0; i < SMALL; i++)
		err = err ? err
			  : plan_take(&rig, &job->small[i], (100 + i * 7919 % 924) << 10,
				    a);
	is_int(err, 0, "blocks");
}

static void end(struct job *job)
{
	bool same = true;

	for (int i = 0; i < LARGE; i++)
		same &= plan_drop(&rig, &job->large[i], a);
	for (int i = 0; i < SMALL; i++)
		same &= plan_drop(&rig, &job->small[i], a);
	ok(same, "all have what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static uint64_t host_held(void)
{
	return rig_figures(&rig).host_held;
}

/* Calls that cost: of pages and mappings. */
struct calls {
	uint64_t creates, maps, accesses, unmaps, releases;
};

static struct calls now(void)
{
	return (struct calls){rig_calls(&rig, GLAKE_CALL_CREATE),
		rig_calls(&rig, GLAKE_CALL_MAP), rig_calls(&rig, GLAKE_CALL_SET_ACCESS),
		rig_calls(&rig, GLAKE_CALL_UNMAP), rig_calls(&rig, GLAKE_CALL_RELEASE)};
}

static struct calls since(struct calls was)
{
	struct calls is = now();

	return (struct calls){is.creates - was.creates, is.maps - was.maps,
		is.accesses - was.accesses, is.unmaps - was.unmaps,
		is.releases - was.releases};
}

static struct calls suspend(bool in_place)
{
	struct glake_suspended did;
	struct calls was = now();

	if (!is_int(in_place ? glk_cache_suspend(&rig.cache, true, &did)
			     : glk_cache_suspend(&rig.cache, false, &did),
		    0, in_place ? "suspended in place" : "suspended"))
		tap_note("%s", rig_error().text);
	return since(was);
}

static struct calls resume(void)
{
	struct glake_suspended did;
	struct calls was = now();

	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
	return since(was);
}

/* Nothing of the host is made again, for each call that would make some fails, and nothing given back,
 * until a trim says so. */
static void makes_once(bool in_place)
{
	uint64_t held, given;
	struct job job;

	begin(&job, (const char *const[]){ROOM, NULL});
	suspend(in_place);
	held = host_held();
	resume();
	is_int((int64_t)host_held(), (int64_t)held, "the host keeps what it has");
	for (int i = 0; i < 2; i++) {
		glk_fault_set(rig.drv,
			in_place ? "create:from=1:err=EIO" : "host_lock:from=1:err=EIO");
		suspend(in_place);
		glk_fault_set(rig.drv, "off");
		is_int((int64_t)host_held(), (int64_t)held, "the host holds no more");
		resume();
		is_int((int64_t)host_held(), (int64_t)held, "and no less");
	}
	is_int(glk_cache_trim(&rig.cache, 0, false, &given), 0, "a trim");
	is_int((int64_t)host_held(), 0, "gives it back");
	end(&job);
}

/* Whether so many bytes are there some time later, of which the thread is given ten minutes. */
static bool comes_to(uint64_t bytes, bool pages)
{
	for (int i = 0; i < 60000; i++) {
		uint64_t there;

		glk_lock(&rig.cache.lock);
		there = rig.cache.mover.store.there;
		glk_unlock(&rig.cache.lock);
		/* one that is counted among those held may still be in the making */
		if ((pages ? glk_node_free(rig.cache.host) : there) >= bytes)
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return false;
}

/* Ready before the first, and left by a trim. */
static void is_ready(bool in_place)
{
	uint64_t held, given;
	struct job job;

	begin(&job,
		(const char *const[]){ROOM,
			in_place ? "tier.place_reserve=800MiB"
				 : "tier.host_reserve=128MiB",
			NULL});
	ok(comes_to((in_place ? 800 : 128) * MIB, in_place),
		"some time after the first request");
	held = host_held();
	glk_fault_set(
		rig.drv, in_place ? "create:from=1:err=EIO" : "host_lock:from=1:err=EIO");
	suspend(in_place);
	glk_fault_set(rig.drv, "off");
	resume();
	glk_cache_trim(&rig.cache, 0, false, &given);
	is_int((int64_t)host_held(), (int64_t)held, "a trim leaves the reserve");
	end(&job);
}

/* A reserve of one kind makes way for the other, as far as tier.host wants it. */
static void makes_way(bool in_place)
{
	uint64_t most = 192 * MIB;
	struct job job;

	begin(&job,
		(const char *const[]){"pool.large_page=4MiB", "soft.host_memory=2GiB",
			"tier.host=192MiB",
			in_place ? "tier.host_reserve=192MiB"
				 : "tier.place_reserve=192MiB",
			NULL});
	ok(comes_to(most, !in_place), "all that there may be is made ready");
	for (int i = 0; i < 2; i++) {
		suspend(in_place);
		ok(host_held() <= most, "suspended in no more than tier.host");
		resume();
	}
	suspend(!in_place);
	ok(host_held() <= most, "and likewise");
	resume();
	end(&job);
}

/* Whether calls are as many as so many pages of the GPU, or of the host, and so many parts ask for. */
static bool is_linear(const char *what, struct calls did, uint64_t pages, uint64_t parts)
{
	tap_note(
		"%s: %llu pages in %llu parts; %llu created, %llu mapped, %llu released, rights "
		"%llu times, unmapped %llu times",
		what, (unsigned long long)pages, (unsigned long long)parts,
		(unsigned long long)did.creates, (unsigned long long)did.maps,
		(unsigned long long)did.releases, (unsigned long long)did.accesses,
		(unsigned long long)did.unmaps);
	return did.maps <= 2 * pages && did.creates <= pages && did.releases <= pages &&
		did.accesses <= 3 * parts && did.unmaps <= 2 * parts + 2;
}

/* What a suspension in place and its end cost: each page of the GPU is mapped once more, each of the
 * host once, whatever the number of blocks, and rights and unmapping are for many at once. Twice as much
 * costs no more than twice as many calls. */
static void costs(void)
{
	struct held more[4];
	struct calls out, back, twice, again;
	struct job job;
	int err = 0;

	begin(&job, (const char *const[]){ROOM, NULL});
	suspend(true);
	resume();
	out = suspend(true);
	back = resume();
	/* 32 MiB in pages of 4, and 23 or less in pages of 2 or 4; parts: four blocks, and the rest */
	ok(is_linear("there", out, 8 + 24, 6), "a suspension in so many calls");
	is_int((int64_t)out.creates, 0, "which makes no page");
	ok(is_linear("back", back, 8 + 24, 6), "and its end");
	is_int((int64_t)back.releases, 0, "which gives none back");
	for (int i = 0; i < 4; i++)
		err = err ? err : plan_take(&rig, &more[i], 16 * MIB, a);
	is_int(err, 0, "blocks");
	suspend(true);
	resume();
	twice = suspend(true);
	again = resume();
	/* 16 pages of the GPU more, and for each of four parts 3 large ones of the host and 4 small ones */
	ok(twice.maps <= out.maps + 16 + 4 * 7 + 4 &&
			twice.releases <= out.releases + 16 + 2 &&
			twice.accesses <= out.accesses + 3 * 4 &&
			twice.unmaps <= out.unmaps + 2 * 4,
		"more costs as much more");
	ok(again.maps <= back.maps + 2 * 16 + 4 &&
			again.creates <= back.creates + 16 + 2 &&
			again.accesses <= back.accesses + 3 * 4 &&
			again.unmaps <= back.unmaps + 2 * 4,
		"on the way back too");
	for (int i = 0; i < 4; i++)
		ok(plan_drop(&rig, &more[i], a), "with what was written");
	end(&job);
}

int main(void)
{
	if (tap_one_thread_takes_long())
		tap_skip_all("takes too long here");
	tap_plan_later();
	for (int i = 0; i < 2; i++) {
		makes_once(i);
		is_ready(i);
		makes_way(i);
	}
	costs();
	return tap_done();
}
