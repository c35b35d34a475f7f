/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arenas of managed memory: streams, chunks, and every call of the driver that fails. */
#include "rig.h"

#include "base/clock.h"
#include "cache/managed/managed.h"
#include "move/away.h"

#include <stdio.h>
#include <time.h>

static uint64_t managed(struct rig *rig, size_t size, struct CUstream_st *stream)
{
	uint64_t addr = 0;

	return rig_try(rig, size, stream, GLAKE_ALLOC_MANAGED, &addr) ? 0 : addr;
}

/* What a stream has freed another has behind a wait, or elsewhere, as in every arena. */
static void streams(void)
{
	static const char *const settings[] = {
		"soft.streams=stepped", "tier.managed_chunk=16MiB", NULL};
	struct CUstream_st *a, *b;
	uint64_t p, q, waits;
	struct rig rig;

	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	p = managed(&rig, 10 * MIB, a);
	ok(p, "a block");
	rig_work(&rig, p, 10 * MIB, a);
	is_int(rig_free(&rig, p, a), 0, "freed with work queued");
	ok(managed(&rig, 10 * MIB, a) == p, "its own stream has it at once");
	rig_work(&rig, p, 10 * MIB, a);
	is_int(rig_free(&rig, p, a), 0, "freed again");
	waits = rig_calls(&rig, GLAKE_CALL_STREAM_WAIT);
	q = managed(&rig, 10 * MIB, b);
	ok(q == p, "another stream has it too");
	ok(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT) > waits, "  behind a wait");
	rig_work(&rig, q, 10 * MIB, b);
	is_int(glk_cache_use(&rig.cache, q, a), 0, "a further stream uses it");
	is_int(rig_free(&rig, q, b), 0, "freed");
	is_int((int64_t)rig_figures(&rig).managed_chunks, 1, "all in one chunk");
	ok(rig_is_sound(&rig), "the books agree");
	rig_close(&rig, 0);
}

/* A stream on which a block moves uses it: what it does then is before whoever has the memory next. */
static void moved_on(int how)
{
	static const char *const settings[] = {
		"soft.streams=stepped", "tier.managed_chunk=16MiB", NULL};
	static const char *const name[] = {"a prefetch", "a fetch", "a spill"};
	const struct glk_place gpu = {GLK_PLACE_GPU, 0};
	struct CUstream_st *a, *b;
	uint64_t p, waits;
	struct rig rig;
	int err;

	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	p = managed(&rig, 10 * MIB, a);
	err = how == 0	   ? glk_cache_managed_prefetch(&rig.cache, p, 0, gpu, b)
		: how == 1 ? glk_cache_fetch(&rig.cache, p, b)
			   : glk_cache_spill(&rig.cache, p, b);
	is_int(err, 0, name[how]);
	rig_work(&rig, p, 10 * MIB, b);
	is_int(rig_free(&rig, p, a), 0, "freed on the other stream");
	waits = rig_calls(&rig, GLAKE_CALL_STREAM_WAIT);
	ok(managed(&rig, 10 * MIB, a) == p, "which has it again");
	ok(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT) > waits, "  behind a wait");
	rig_work(&rig, p, 10 * MIB, a);
	is_int(rig_free(&rig, p, a), 0, "freed");
	rig_close(&rig, 0);
}

struct asker {
	struct rig *rig;
	uint64_t addr;
	struct CUstream_st *stream;
	int err;
};

static void *give_back(void *arg)
{
	struct asker *a = arg;

	a->err = rig_free(a->rig, a->addr, a->stream);
	return NULL;
}

static void *ask(void *arg)
{
	struct asker *a = arg;

	a->err = glk_cache_managed_say(&a->rig->cache, a->addr + 100, 0,
		GLK_MANAGED_PREFER, (struct glk_place){GLK_PLACE_GPU, 0});
	return NULL;
}

/* Who speaks of a block that another thread moves waits, and so does who frees one that is spoken
 * of. */
static void in_hands(void)
{
	struct glk_moving moving = {0};
	struct timespec soon = {.tv_nsec = 50000000};
	struct glk_extent *e;
	struct CUstream_st *s;
	pthread_t thread;
	struct asker a;
	struct rig rig;

	rig_open(&rig, NULL);
	s = rig_stream(&rig);
	a = (struct asker){
		.rig = &rig, .addr = managed(&rig, MIB, s), .stream = s, .err = 1};
	is_int(glk_away_start(&rig.cache), 0, "blocks may be moved");
	glk_lock(&rig.cache.lock);
	e = glk_lookup_claim(glk_cache_range(&rig.cache, a.addr), a.addr);
	moving = (struct glk_moving){.addr = a.addr, .size = MIB};
	glk_away_announce(&rig.cache, &moving);
	glk_unlock(&rig.cache.lock);
	if (!e || pthread_create(&thread, NULL, ask, &a))
		tap_bail("no thread");
	nanosleep(&soon, NULL);
	glk_lock(&rig.cache.lock);
	glk_extent_set(e, GLK_EXTENT_LIVE);
	glk_away_done(&rig.cache, &moving);
	glk_unlock(&rig.cache.lock);
	pthread_join(thread, NULL);
	is_int(a.err, 0, "who asked meanwhile has waited");
	e = glk_lookup_hold(glk_cache_range(&rig.cache, a.addr), a.addr);
	ok(e, "held");
	a.err = 1;
	if (!e || pthread_create(&thread, NULL, give_back, &a))
		tap_bail("no thread");
	nanosleep(&soon, NULL);
	ok(glk_extent_state(e) == GLK_EXTENT_HELD, "it cannot be freed");
	glk_word_let_go(&e->word);
	pthread_join(thread, NULL);
	is_int(a.err, 0, "who frees it meanwhile has waited");
	rig_close(&rig, 0);
}

/* Sizes of all kinds fill a chunk, and all of it is had again. */
static void sizes(void)
{
	static const char *const settings[] = {"tier.managed_chunk=32MiB", NULL};
	static const size_t size[] = {
		1, 512, 4097, 250000, MIB / 4, MIB / 4 + 1, 3 * MIB};
	struct CUstream_st *s;
	uint64_t addr[200];
	bool apart = true;
	struct rig rig;

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < 200; i++) {
			addr[i] = managed(&rig, size[i % 7], s);
			apart &= addr[i] && !(addr[i] % GLAKE_GRAIN);
			if (addr[i])
				memset((void *)addr[i], i, size[i % 7]);
		}
		for (int i = 0; i < 200; i++)
			apart &= *(unsigned char *)addr[i] == i &&
				((unsigned char *)addr[i])[size[i % 7] - 1] == i;
		ok(rig_is_sound(&rig), "the books agree");
		for (int i = 0; i < 200; i++)
			apart &= !rig_free(&rig, addr[i], s);
	}
	ok(apart, "blocks of all sizes, each for itself");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_MANAGED_ALLOC),
		(int64_t)rig_figures(&rig).managed_chunks, "a call for each chunk");
	ok(rig_figures(&rig).managed_chunks <= 5, "few chunks");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "no page of the GPU");
	rig_close(&rig, 0);
}

/* What was said of memory is not said of the next block in it. */
static void said(void)
{
	struct glk_place place = {0};
	struct CUstream_st *s;
	struct rig rig;
	uint64_t p, calls;

	rig_open(&rig, NULL);
	s = rig_stream(&rig);
	p = managed(&rig, 6 * MIB, s);
	is_int(glk_cache_managed_say(&rig.cache, p + 100, 0, GLK_MANAGED_PREFER,
		       (struct glk_place){GLK_PLACE_HOST, 0}),
		0, "a place");
	is_int(glk_cache_managed_say(&rig.cache, p, MIB, GLK_MANAGED_ACCESSED,
		       (struct glk_place){GLK_PLACE_GPU, 0}),
		0, "a user");
	is_int(glk_cache_managed_ask(&rig.cache, p, 0, GLK_MANAGED_PREFERRED, &place), 0,
		"it is known");
	is_int(rig_free(&rig, p, s), 0, "freed");
	glk_fault_set(rig.drv, "managed_say:from=1:err=EIO");
	ok(managed(&rig, 6 * MIB, s) == p,
		"given again where the driver does not listen");
	is_int(rig_free(&rig, p, s), 0, "freed");
	glk_fault_set(rig.drv, "off");
	calls = rig_calls(&rig, GLAKE_CALL_MANAGED_ADVISE);
	ok(managed(&rig, 6 * MIB, s) == p, "and where it does");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_MANAGED_ADVISE) - calls), 2,
		"both are taken back");
	is_int(glk_cache_managed_ask(&rig.cache, p, 0, GLK_MANAGED_PREFERRED, &place),
		-ENOENT, "nothing is said of it");
	/* each who was said to use some of the chunk; no place was named */
	for (int host = 0; host < 2; host++) {
		is_int(glk_cache_managed_say(&rig.cache, p, 0, GLK_MANAGED_ACCESSED,
			       (struct glk_place){
				       host ? GLK_PLACE_HOST : GLK_PLACE_GPU, 0}),
			0, host ? "the host uses it" : "the GPU uses it");
		is_int(rig_free(&rig, p, s), 0, "freed");
		calls = rig_calls(&rig, GLAKE_CALL_MANAGED_ADVISE);
		ok(managed(&rig, 6 * MIB, s) == p, "given again");
		is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_MANAGED_ADVISE) - calls),
			1 + host,
			host ? "with the host as one thing more"
			     : "what was said is taken back");
	}
	is_int(glk_cache_managed_say(&rig.cache, p, 0, GLK_MANAGED_PREFER,
		       (struct glk_place){GLK_PLACE_HOST, 0}),
		0, "a place, and nobody who uses it");
	is_int(rig_free(&rig, p, s), 0, "freed");
	calls = rig_calls(&rig, GLAKE_CALL_MANAGED_ADVISE);
	ok(managed(&rig, 6 * MIB, s) == p, "given again");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_MANAGED_ADVISE) - calls), 1,
		"the place alone is taken back");
	rig_close(&rig, 1);
}

/* One request, one free and a trim, with the n-th call of the driver failing. */
static bool sweep(const char *kind, int n, bool sticky, bool *ret_struck)
{
	static const char *const settings[] = {"tier.managed_chunk=16MiB", NULL};
	uint64_t passed = 0, failed = 0, addr = 0, again, released;
	struct glake_stats before, after;
	struct rig_end end;
	struct CUstream_st *s;
	char fault[80];
	struct rig rig;
	bool fine;
	int err;

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	again = managed(&rig, 14 * MIB, s);
	glk_cache_managed_say(
		&rig.cache, again, 0, GLK_MANAGED_PREFER, (struct glk_place){0});
	before = rig_figures(&rig);
	snprintf(fault, sizeof(fault), "any:nth=%d:%s", n, sticky ? "sticky=1" : kind);
	if (glk_fault_set(rig.drv, fault))
		tap_bail(rig_error().text);
	err = rig_try(&rig, 8 * MIB, s, GLAKE_ALLOC_MANAGED, &addr);
	after = rig_figures(&rig);
	fine = !err ||
		(after.live == before.live && after.managed == before.managed &&
			after.managed_held == before.managed_held);
	if (!err)
		fine &= !rig_free(&rig, addr, s) || sticky;
	glk_cache_managed_prefetch(
		&rig.cache, again, 0, (struct glk_place){GLK_PLACE_GPU, 0}, s);
	fine &= !rig_free(&rig, again, s) || sticky;
	glk_cache_trim(&rig.cache, 0, false, &released);
	glk_fault_count(rig.drv, &passed, &failed);
	*ret_struck = failed > 0;
	glk_fault_set(rig.drv, "off");
	fine &= rig_is_sound(&rig);
	if (!sticky) {
		glk_cache_trim(&rig.cache, 0, false, &released);
		fine &= !rig_figures(&rig).managed_held;
		again = managed(&rig, 8 * MIB, s);
		fine &= again && !rig_free(&rig, again, s);
	}
	end = rig_end(&rig);
	fine &= !end.device && !end.cache;
	if (!fine)
		tap_note("%s: %s", fault, rig_error().text);
	return fine;
}

static void faults(void)
{
	static const char *const kinds[] = {"err=ENOMEM", "err=EIO", "err=EOPNOTSUPP"};
	bool fine = true, struck;
	int runs = 0;

	for (int kind = 0; kind < 4; kind++) {
		struck = true;
		for (int n = 1; struck && n < 200; n++, runs++)
			fine &= sweep(kinds[kind % 3], n, kind == 3, &struck);
	}
	ok(fine && runs > 20, "each call fails once, and the device is lost: %d runs",
		runs);
}

/* Chunks that the driver does not take back are tried again. */
static void kept(void)
{
	static const char *const settings[] = {"tier.managed_chunk=16MiB", NULL};
	struct CUstream_st *s;
	uint64_t released;
	struct rig rig;

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	is_int(rig_free(&rig, managed(&rig, MIB, s), s), 0, "a chunk without blocks");
	glk_fault_set(rig.drv, "managed_free:from=1:err=EIO");
	is_int(glk_cache_trim(&rig.cache, 0, false, &released), 0, "trimmed");
	glk_fault_set(rig.drv, "off");
	is_int(glk_cache_trim(&rig.cache, 0, false, &released), 0, "and again");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_MANAGED_FREE), 3,
		"it was tried each time");
	rig_close(&rig, 0);
}

static int asked;
static int (*ask_driver)(
	struct glk_drv *drv, int device, size_t *ret_free, size_t *ret_total);

static int count_asking(
	struct glk_drv *drv, int device, size_t *ret_free, size_t *ret_total)
{
	asked++;
	return ask_driver(drv, device, ret_free, ret_total);
}

/* How often the driver is asked what is free, by requests that managed memory has no room for. */
static void full(const char *most)
{
	const char *const settings[] = {"pool.managed=yes", most, "soft.memory=128MiB",
		"tier.managed_chunk=16MiB", NULL};
	const struct glk_drv_ops *real;
	struct glk_drv_ops counting;
	uint64_t keep[8], p = 0, released;
	bool fine = true, limited = !strcmp(most, "tier.managed=96MiB");
	struct CUstream_st *s;
	struct rig rig;
	int64_t took;
	int n = 0;

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	while (n < 8 && rig_figures(&rig).managed_held < 96 * MIB)
		keep[n++] = rig_alloc(&rig, 16 * MIB, s);
	ok(rig_figures(&rig).managed_held == 96 * MIB, "%s: full", most);
	is_int(rig_try(&rig, 40 * MIB, s, GLAKE_ALLOC_MANAGED, &p), -ENOMEM,
		"more that has to be managed is refused");
	is_int(rig_error().error_class,
		limited ? GLAKE_ERROR_LIMIT : GLAKE_ERROR_NOMEM_DEVICE,
		"for the limit, or for what is free where it is below that");
	is_int(rig_free(&rig, rig_alloc(&rig, 40 * MIB, s), s), 0,
		"what idles on the GPU");
	real = rig.drv->ops;
	counting = *real;
	ask_driver = real->memory_info;
	counting.memory_info = count_asking;
	rig.drv->ops = &counting;
	asked = 0;
	took = glk_clock_ns();
	for (int i = 0; i < 1000; i++) {
		p = rig_alloc(&rig, 40 * MIB, s);
		fine &= p && !rig_free(&rig, p, s);
	}
	ok(fine, "serves a thousand requests");
	took = glk_clock_ns() - took;
	/* what it said stands for 5 ms, be they those of one request */
	ok(asked < 500 || asked <= 3 * (1 + took / 5000000),
		"of which %d asked the driver", asked);
	ok(rig_figures(&rig).managed == (uint64_t)n * 16 * MIB,
		"none of them is managed");
	rig.cache.managed->refused.until_ns = INT64_MAX;
	/* the limit is asked each time */
	ok((rig.cache.managed->refused.bytes > 0) == !limited &&
			glk_chunk_refused(&rig.cache, 40 * MIB) ==
				glk_chunk_refused(&rig.cache, 40 * MIB - 1) &&
			!glk_chunk_refused(&rig.cache, 38 * MIB),
		"what the driver said stands for all that want as many pages");
	rig.cache.managed->refused.until_ns = 0;
	is_int(glk_cache_trim(&rig.cache, 0, false, &released), 0, "the GPU's own go");
	for (int i = 0; i < 3; i++)
		is_int(rig_free(&rig, keep[i], s), 0, "and so do three chunks");
	p = rig_alloc(&rig, 40 * MIB, s);
	ok(rig_figures(&rig).managed == (size_t)(n - 3) * 16 * MIB + 40 * MIB,
		"what comes next is managed at once");
	rig.drv->ops = real;
	rig_close(&rig, (size_t)n - 2);
}

int main(void)
{
	tap_plan_later();
	streams();
	for (int how = 0; how < 3; how++)
		moved_on(how);
	in_hands();
	sizes();
	said();
	faults();
	kept();
	full("tier.managed=96MiB");
	full("tier.managed=136MiB"); /* which the last request would just keep to */
	full("tier.managed=0");
	return tap_done();
}
