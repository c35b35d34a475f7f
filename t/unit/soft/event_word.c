/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Streams of the software device that wait for words, and links whose time a test makes. */
#include "soft/soft.h"

#include "seed.h"
#include "setup.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#define SPAN (2 * GRANULE)

static const struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};
static struct glk_drv *drv;
static struct CUstream_st *one, *two;
static uint64_t base, page;
static unsigned char *host;
static glk_drv_word *word;

static void set_up(int streams)
{
	struct glk_conf conf = setup_conf();

	conf.soft_streams = streams;
	conf.soft_link = 1000; /* a byte a ns */
	drv = setup_open(&conf);
	word = mmap(
		NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	host = mmap(
		NULL, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (word == MAP_FAILED || host == MAP_FAILED ||
		drv->ops->stream_new(drv, 0, &one) ||
		drv->ops->stream_new(drv, 0, &two) ||
		drv->ops->host_lock(drv, 0, (void *)word, 4096) ||
		drv->ops->reserve(drv, SPAN, 0, &base) ||
		drv->ops->create(drv, setup_gpu(0), SPAN, 0, &page) ||
		drv->ops->map(drv, base, SPAN, page) ||
		drv->ops->set_access(drv, base, SPAN, &grant, 1))
		tap_bail("the test cannot be set up");
}

static void take_down(void)
{
	int err = 0;

	err |= drv->ops->stream_free(drv, 0, one);
	err |= drv->ops->stream_free(drv, 0, two);
	err |= drv->ops->host_unlock(drv, 0, (void *)word);
	err |= drv->ops->unmap(drv, base, SPAN) | drv->ops->release(drv, page);
	err |= drv->ops->unreserve(drv, base, SPAN) | glk_drv_close(drv);
	is_int(err, 0, "nothing is left");
	munmap((void *)word, 4096);
	munmap(host, SPAN);
}

static uint32_t at(size_t offset)
{
	return *(uint32_t *)(base + offset);
}

static void words(int streams)
{
	struct glk_drv_event *event;
	uint32_t graph;

	set_up(streams);
	if (drv->ops->event_new(drv, 0, &event))
		tap_bail("no event");
	is_int(drv->ops->stream_wait_word(drv, 0, one, word, 5), 0, "a wait for a word");
	drv->ops->fill(drv, base, 7, 1, one);
	drv->ops->event_record(drv, event, one);
	glk_soft_run_all(drv);
	is_int(at(0), 0, "holds what is queued behind it");
	is_int(drv->ops->event_query(drv, event), -EAGAIN, "an event too");
	glk_store_release(word, 4); /* pairs with: glk_soft_word_is_there */
	glk_soft_run_all(drv);
	is_int(drv->ops->event_query(drv, event), -EAGAIN, "also when the word is less");
	/* a second stream, whose work only the word orders behind */
	is_int(drv->ops->fill(drv, base, 9, 1, two), 0,
		"what others queue may be in order by the word");
	is_int(drv->ops->stream_sync(drv, 0, two), 0, "and runs");
	is_int(at(0), 9, "at once");
	glk_store_release(word, 6); /* pairs with: glk_soft_word_is_there */
	is_int(drv->ops->event_sync(drv, event), 0, "when it is more it goes on");
	is_int(at(0), 7, "after it");
	is_int(drv->ops->stream_wait_word(drv, 0, one, word, 6), 0,
		"a word that is there");
	is_int(drv->ops->stream_sync(drv, 0, one), 0, "holds nothing");
	is_int(drv->ops->stream_wait_word(
		       drv, 0, one, (const glk_drv_word *)(uintptr_t)host, 1),
		-EINVAL, "memory that is not locked");
	is_int(drv->ops->stream_wait_word(drv, 1, one, word, 1), -EINVAL,
		"a stream of another GPU");
	glk_soft_capture_begin(drv, 0, one);
	is_int(drv->ops->stream_wait_word(drv, 0, one, word, 1), -EBUSY,
		"not in a capture");
	is_int(glk_soft_capture_end(drv, 0, one, &graph), -EIO, "which it breaks");
	drv->ops->event_free(drv, event);
	take_down();
}

static void *write_later(void *arg)
{
	struct timespec ts = {.tv_nsec = 2000000};

	nanosleep(&ts, NULL);
	glk_store_release(word, 1); /* pairs with: glk_soft_word_is_there */
	return NULL;
}

/* The host waits while another thread writes. */
static void waited_for(int streams)
{
	pthread_t thread;

	set_up(streams);
	drv->ops->stream_wait_word(drv, 0, one, word, 1);
	drv->ops->fill(drv, base, 3, 1, one);
	if (pthread_create(&thread, NULL, write_later, NULL))
		tap_bail("no thread");
	is_int(drv->ops->stream_sync(drv, 0, one), 0, "the host waits for the stream");
	is_int(at(0), 3, "to its end");
	pthread_join(thread, NULL);
	take_down();
}

/* Work on both sides of a wait, on streams that are in no order else, is a race still. */
static void races(void)
{
	set_up(GLK_SOFT_STREAMS_STEPPED);
	drv->ops->fill(drv, base, 1, 1, one);
	drv->ops->stream_wait_word(drv, 0, one, word, 1);
	is_int(drv->ops->fill(drv, base, 2, 1, two), -EINVAL,
		"what stands before the word is not put in order by it");
	glk_store_release(word, 1); /* pairs with: glk_soft_word_is_there */
	drv->ops->stream_sync(drv, 0, one);
	take_down();
}

static int64_t pace(void)
{
	int64_t now = -1;

	glk_soft_pace_time(drv, &now);
	return now;
}

static void paces(void)
{
	struct glk_drv_event *first, *second;
	int64_t since;

	set_up(GLK_SOFT_STREAMS_STEPPED);
	is_int(glk_soft_pace(drv), -EINVAL, "no pace where a test makes the steps");
	take_down();
	set_up(GLK_SOFT_STREAMS_WORKER);
	is_int(glk_soft_pace(drv), 0, "the pace of links");
	drv->ops->event_new(drv, 0, &first);
	drv->ops->event_new(drv, 0, &second);
	since = pace();
	host[0] = 5;
	host[1000] = 6;
	is_int(drv->ops->copy(drv, base, (uintptr_t)host, 1000, one), 0, "a copy");
	drv->ops->event_record(drv, first, one);
	is_int(drv->ops->copy(drv, base + 1000, (uintptr_t)host + 1000, 500, two), 0,
		"and one over the same link");
	drv->ops->event_record(drv, second, two);
	is_int(drv->ops->event_query(drv, first), -EAGAIN, "is under way");
	ok(!at(0), "no byte is there");
	is_int(glk_soft_pace_step(drv), 0, "time goes on");
	is_int(pace() - since, 1000, "to its end");
	is_int(drv->ops->event_query(drv, first), 0, "it has arrived");
	is_int(at(0), 5, "it has");
	is_int(drv->ops->event_query(drv, second), -EAGAIN, "the other one has not");
	is_int(glk_soft_pace_step(drv), 0, "time goes on");
	is_int(pace() - since, 1500, "to the end of that");
	is_int(at(1000), 6, "which has arrived");
	is_int(glk_soft_pace_step(drv), -EAGAIN, "nothing is under way");
	glk_soft_pace_link(drv, 0, 500);
	drv->ops->copy(drv, base, (uintptr_t)host, 1000, one);
	is_int(drv->ops->stream_sync(drv, 0, one), 0, "time goes on for who waits");
	is_int(pace() - since, 3500, "a link with half takes twice as long");
	glk_soft_pace_link(drv, 0, -1);
	drv->ops->copy(drv, base, (uintptr_t)host, 1000, one);
	is_int(glk_soft_pace_step(drv), -EAGAIN,
		"over one that stands still nothing goes");
	is_int(drv->ops->stream_sync(drv, 0, one), -EBUSY, "nor ever would");
	glk_soft_pace_link(drv, 0, 1000);
	is_int(drv->ops->stream_sync(drv, 0, one), 0, "until it goes on");
	is_int(pace() - since, 4500, "at what it carries then");
	is_int(glk_soft_pace_link(drv, 99, 1), -EINVAL, "no such link");
	drv->ops->event_free(drv, first);
	drv->ops->event_free(drv, second);
	take_down();
}

int main(void)
{
	tap_plan_later();
	words(GLK_SOFT_STREAMS_WORKER);
	words(GLK_SOFT_STREAMS_STEPPED);
	waited_for(GLK_SOFT_STREAMS_WORKER);
	waited_for(GLK_SOFT_STREAMS_STEPPED);
	waited_for(GLK_SOFT_STREAMS_RANDOM);
	races();
	paces();
	return tap_done();
}
