/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A stream that ends, unannounced, while a request on it waits for the lock: the request is refused, and leaves
 * no row behind that would have the handle, though the stream has work left and so a bit. And one whose number
 * has gone to another stream before anybody looked for those that ended: its row is found all the same.
 */
#include "../rig.h"

#include <sched.h>

#define KIB 1024

static struct rig rig;
static struct CUstream_st *ending;
static uint64_t got;
static int answer, error_class;

static void *ask(void *arg)
{
	answer = glk_cache_alloc(&rig.cache, 96 * KIB, ending, 0, &got);
	error_class = rig_error().error_class;
	return arg;
}

static void number_goes_on(void)
{
	struct glk_streams *streams = &rig.cache.streams;
	struct CUstream_st *next;
	uint32_t id = 0, other = 0;

	rig_open(&rig, NULL);
	rig_alloc(&rig, MIB, NULL);
	ending = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, 64 * KIB, ending), ending);
	glk_stream_get(streams, ending, NULL, &id);
	glk_lock(&rig.cache.lock);
	glk_stream_lose(streams, glk_stream_at(streams, id));
	glk_clock_sync_all(streams);
	glk_unlock(&rig.cache.lock);
	for (int i = 0; i < 8 && other != id; i++) {
		next = rig_stream(&rig);
		glk_stream_get(streams, next, NULL, &other);
	}
	is_int(other, id, "the number of a stream with freed blocks goes to another one");
	ok(rig_figures(&rig).quick >= 64 * KIB, "before its blocks do");
	ok(rig_alloc(&rig, 3 * MIB, NULL) != 0, "a request on neither");
	is_int((int64_t)rig_figures(&rig).quick, 0, "finds them");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

int main(void)
{
	struct glk_streams *streams = &rig.cache.streams;
	struct CUstream_st *other;
	uint32_t id = 0, next = 0;
	pthread_t thread;
	uint64_t addr;

	tap_plan_later();
	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	rig_alloc(&rig, 8 * KIB * KIB, NULL);
	ending = rig_stream(&rig);
	other = rig_stream(&rig);
	addr = rig_alloc(&rig, 64 * KIB, ending);
	rig_work(&rig, addr, 64 * KIB, ending);
	rig_free(&rig, addr, ending);
	rig_free(&rig, rig_alloc(&rig, 64 * KIB, other), other);
	glk_stream_get(streams, ending, NULL, &id);
	glk_lock(&rig.cache.lock);
	if (pthread_create(&thread, NULL, ask, NULL))
		tap_bail("no thread");
	while (!glk_load_relaxed(&rig.cache.lock.waiters))
		sched_yield();
	glk_stream_lose(streams, glk_stream_at(streams, id));
	ok(glk_stream_at(streams, id)->bit < GLK_STREAM_BITS, "it has work left");
	glk_unlock(&rig.cache.lock);
	pthread_join(thread, NULL);
	is_int(answer, -EINVAL, "a request that had found it is refused");
	is_int(error_class, GLAKE_ERROR_INVAL, "  its class");
	ok(glk_load_relaxed(&rig.cache.rows[id].handle) == GLK_ROW_ENDED,
		"its row is ended");
	glk_cache_stream_end(&rig.cache, other);
	rig_free(&rig, rig_alloc(&rig, KIB * KIB, NULL), NULL);
	ok(glk_load_relaxed(&rig.cache.rows[id].handle) == GLK_ROW_ENDED,
		"and stays so when another stream ends");
	is_int((int64_t)rig_figures(&rig).quick, 0, "nothing is left in its bins");
	glk_soft_run_all(rig.drv);
	glk_lock(&rig.cache.lock);
	glk_clock_sync_all(streams);
	glk_unlock(&rig.cache.lock);
	for (int i = 0; i < 8 && next != id; i++) {
		other = rig_stream(&rig);
		glk_stream_get(streams, other, NULL, &next);
	}
	is_int(next, id, "its number goes to another one");
	ok(rig_alloc(&rig, 64 * KIB, other) != 0, "which is served");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
	number_goes_on();
	return tap_done();
}
