/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Links of the software device whose time a test makes. */
#include "soft/soft.h"

#include "setup.h"

#include <errno.h>
#include <sys/mman.h>

#define SPAN (2 * GRANULE)

static const struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};
static struct glk_drv *drv;
static struct CUstream_st *one, *two;
static uint64_t base, page;
static unsigned char *host;

static void set_up_of(struct glk_conf *conf)
{
	drv = setup_open(conf);
	host = mmap(
		NULL, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (host == MAP_FAILED || drv->ops->stream_new(drv, 0, &one) ||
		drv->ops->stream_new(drv, 0, &two) ||
		drv->ops->reserve(drv, SPAN, 0, &base) ||
		drv->ops->create(drv, setup_gpu(0), SPAN, 0, &page) ||
		drv->ops->map(drv, base, SPAN, page) ||
		drv->ops->set_access(drv, base, SPAN, &grant, 1))
		tap_bail("the test cannot be set up");
}

static void set_up(int streams)
{
	struct glk_conf conf = setup_conf();

	conf.soft_streams = streams;
	conf.soft_link = 1000; /* a byte a ns */
	set_up_of(&conf);
}

static void take_down(void)
{
	int err = 0;

	err |= drv->ops->stream_free(drv, 0, one);
	err |= drv->ops->stream_free(drv, 0, two);
	err |= drv->ops->unmap(drv, base, SPAN) | drv->ops->release(drv, page);
	err |= drv->ops->unreserve(drv, base, SPAN) | glk_drv_close(drv);
	is_int(err, 0, "nothing is left");
	munmap(host, SPAN);
}

static uint32_t at(size_t offset)
{
	return *(uint32_t *)(base + offset);
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
	drv->ops->copy(drv, base, (uintptr_t)host, 1000, one);
	is_int(drv->ops->stream_sync(drv, 0, one), 0, "time goes on for who waits");
	is_int(pace() - since, 2500, "to the end of what he waits for");
	drv->ops->event_free(drv, first);
	drv->ops->event_free(drv, second);
	take_down();
}

/* From another node than the GPU's a copy goes over the link between nodes as well. */
static void across(void)
{
	struct glk_conf conf = setup_conf();
	int64_t before = 0, after = 0;
	uint64_t bytes = 0;
	int node = 1;

	conf.soft_link = 1000;
	conf.soft_across = 500;
	conf.soft_nodes = 2;
	set_up_of(&conf);
	is_int(drv->ops->copy(drv, base, (uintptr_t)host, 1000, one), 0,
		"memory of which nobody knows where it lies");
	glk_soft_link_time(drv, 0, one, &before);
	is_int(before, 1000, "is near");
	is_int(drv->ops->host_lock(drv, 0, host, SPAN) |
			drv->ops->host_node(drv, host, &node),
		0, "some lies on the other node");
	drv->ops->copy(drv, base, (uintptr_t)host, 1000, one);
	glk_soft_link_time(drv, 0, one, &after);
	is_int(after - before, 2000, "from there it takes as long as that link");
	drv->ops->copy(drv, (uintptr_t)host, base, 500, one);
	glk_soft_link_time(drv, 0, one, &before);
	is_int(before - after, 1000, "and so it does there");
	is_int(glk_soft_across_bytes(drv, false, &bytes), 0, "bytes from there");
	is_int((int64_t)bytes, 1000, "are counted");
	is_int(glk_soft_across_bytes(drv, true, &bytes), 0, "and those that go there");
	is_int((int64_t)bytes, 500, "are too");
	is_int(drv->ops->host_unlock(drv, 0, host), 0, "let go");
	take_down();
}

int main(void)
{
	tap_plan_later();
	across();
	paces();
	return tap_done();
}
