/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_SOFT_QUEUES_H
#define GLK_UNIT_SOFT_QUEUES_H

/* A stepped software device with streams, events of the program and one page mapped twice. */
#include "setup.h"

#include "soft/soft.h"

#include <errno.h>

#define STREAMS 4
#define EVENTS	4
#define SPAN	(2 * GRANULE)
#define WORD	sizeof(uint32_t)

static const struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};

static struct glk_drv *drv;
static struct CUstream_st *streams[STREAMS];
static struct CUevent_st *events[EVENTS];
static uint64_t base, alias, page;

static inline void page_map(void)
{
	if (drv->ops->create(drv, setup_gpu(0), SPAN, 0, &page) ||
		drv->ops->map(drv, base, SPAN, page) ||
		drv->ops->map(drv, alias, SPAN, page) ||
		drv->ops->set_access(drv, base, SPAN, &grant, 1) ||
		drv->ops->set_access(drv, alias, SPAN, &grant, 1))
		tap_bail("no page");
}

static inline int page_unmap(void)
{
	int err;

	err = drv->ops->unmap(drv, base, SPAN);
	err |= drv->ops->unmap(drv, alias, SPAN);
	return err ? err : drv->ops->release(drv, page);
}

static inline void set_up(const struct glk_conf *conf)
{
	int err = 0;

	drv = setup_open(conf);
	for (int i = 0; i < STREAMS; i++)
		err |= drv->ops->stream_new(drv, 0, &streams[i]);
	for (int i = 0; i < EVENTS; i++)
		err |= drv->ops->user_event_new(drv, 0, &events[i]);
	err |= drv->ops->reserve(drv, 8 * GRANULE, 0, &base);
	if (err)
		tap_bail("the test cannot be set up");
	alias = base + 4 * GRANULE;
	page_map();
}

static inline void take_down(void)
{
	int err = 0;

	for (int i = 0; i < STREAMS; i++)
		err |= drv->ops->stream_free(drv, 0, streams[i]);
	for (int i = 0; i < EVENTS; i++)
		err |= drv->ops->user_event_free(drv, events[i]);
	err |= page_unmap();
	err |= drv->ops->unreserve(drv, base, 8 * GRANULE);
	err |= glk_drv_close(drv);
	is_int(err, 0, "all is taken down, nothing is left");
}

static inline int work(int stream, uint64_t addr, size_t size, bool write)
{
	return glk_soft_work(drv, 0, streams[stream], addr, size, write);
}

/* Fills a word of the page. */
static inline int fill(int stream, uint32_t at, uint32_t value)
{
	return drv->ops->fill(drv, base + at * WORD, value, 1, streams[stream]);
}

static inline int record(int stream, int event)
{
	return drv->ops->user_event_record(drv, 0, events[event], streams[stream]);
}

static inline int wait_for(int stream, int event)
{
	return drv->ops->user_event_wait(drv, 0, streams[stream], events[event]);
}

static inline int begin(int stream)
{
	return glk_soft_capture_begin(drv, 0, streams[stream]);
}

static inline int end(int stream, uint32_t *ret_graph)
{
	return glk_soft_capture_end(drv, 0, streams[stream], ret_graph);
}

static inline uint64_t capture_of(int stream)
{
	struct glk_stream_facts facts = {7, 7};

	drv->ops->stream_facts(drv, 0, streams[stream], &facts);
	return facts.capture;
}

static inline uint32_t pending(int stream)
{
	uint32_t count = 99;

	glk_soft_pending(drv, 0, streams[stream], &count);
	return count;
}

static inline uint32_t word(uint32_t at)
{
	return ((volatile uint32_t *)base)[at];
}

#endif
