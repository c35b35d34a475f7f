/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Managed memory of the software device: where it lies, what moves it, what the judge refuses. */
#include "base/conf.h"
#include "soft/open.h"
#include "soft/soft.h"
#include "tap.h"

#include <glake/error.h>

#include <errno.h>

#define MIB ((size_t)1 << 20)

static struct glk_drv *drv;

static struct glk_drv *open_with(const char *const *settings)
{
	struct glk_conf conf;
	struct glk_drv *opened;

	glk_conf_init(&conf);
	glk_conf_set(&conf, "driver.backend=soft");
	glk_conf_set(&conf, "soft.memory=32MiB");
	glk_conf_set(&conf, "soft.nodes=2");
	for (; *settings; settings++)
		if (glk_conf_set(&conf, *settings))
			tap_bail(*settings);
	if (glk_drv_open(&conf, NULL, 0, &opened))
		tap_bail("no software device");
	return opened;
}

static struct glk_soft_managed did(int device)
{
	struct glk_soft_managed figures;

	if (glk_soft_managed_figures(drv, device, &figures))
		tap_bail("no figures");
	return figures;
}

static uint64_t have(size_t size)
{
	uint64_t addr = 0;

	if (drv->ops->managed_alloc(drv, 0, size, &addr))
		tap_bail("no managed memory");
	return addr;
}

static const struct glk_place gpu = {GLK_PLACE_GPU, 0}, other = {GLK_PLACE_GPU, 1},
			      node = {GLK_PLACE_HOST, 1};

static void rules(void)
{
	uint64_t addr = have(8 * MIB);
	struct glk_place place;

	is_int(drv->ops->managed_alloc(drv, 0, 0, &addr), -EINVAL, "no bytes");
	is_int(drv->ops->managed_alloc(drv, 5, MIB, &addr), -EINVAL, "no such GPU");
	is_int(drv->ops->managed_free(drv, addr + 4096), -EINVAL,
		"the middle is no piece");
	is_int(drv->ops->managed_say(drv, addr, 9 * MIB, GLK_MANAGED_PREFER, gpu),
		-EINVAL, "over the end");
	is_int(drv->ops->managed_say(drv, addr, 0, GLK_MANAGED_PREFER, gpu), -EINVAL,
		"no bytes");
	is_int(drv->ops->managed_prefetch(drv, addr - 1, MIB, gpu, 0, NULL), -EINVAL,
		"before the beginning");
	is_int(drv->ops->managed_prefetch(
		       drv, addr, MIB, (struct glk_place){GLK_PLACE_HOST, 2}, 0, NULL),
		-EINVAL, "no such node");
	is_int(drv->ops->managed_ask(drv, addr, MIB, GLK_MANAGED_PREFERRED, &place),
		-ENOENT, "nothing was said");
	is_int(drv->ops->fill(drv, addr + 7 * MIB, 1, MIB, NULL), -EINVAL,
		"work over the end is refused");
	is_int(drv->ops->fill(drv, addr, 1, 2 * MIB, NULL), 0,
		"work on all of it is not");
	is_int(drv->ops->managed_free(drv, addr), 0, "freed");
	is_int(drv->ops->managed_free(drv, addr), -EINVAL, "once");
	is_int(drv->ops->managed_say(drv, addr, MIB, GLK_MANAGED_PREFER, gpu), -EINVAL,
		"and is no managed memory any more");
}

/* By whom a block is touched, and where it lies. */
static void touched(void)
{
	uint64_t addr = have(8 * MIB);
	struct glk_soft_managed a, b;

	is_int(glk_soft_managed_touch(drv, 0, addr, 8 * MIB, true), 0, "the host");
	a = did(0);
	is_int((int64_t)a.host_faults, 4, "finds nothing there");
	is_int((int64_t)a.to_host, 0, "so nothing is moved");
	glk_soft_managed_touch(drv, 0, addr, 8 * MIB, false);
	is_int((int64_t)did(0).host_faults, 4, "again: it is there");
	is_int(glk_soft_work(drv, 0, NULL, addr, 8 * MIB, false), 0, "a GPU");
	b = did(0);
	is_int((int64_t)(b.gpu_faults - a.gpu_faults), 4, "has it moved");
	is_int((int64_t)(b.to_gpu - a.to_gpu), 8 * (int64_t)MIB, "  all of it");
	glk_soft_work(drv, 1, NULL, addr, 2 * MIB, false);
	is_int((int64_t)did(1).gpu_faults, 1, "another GPU takes a block");
	is_int((int64_t)did(0).resident, 6 * (int64_t)MIB, "  from the first");
	is_int((int64_t)did(1).resident, 2 * (int64_t)MIB, "  to itself");
	is_int(drv->ops->managed_say(drv, addr, 8 * MIB, GLK_MANAGED_PREFER, gpu), 0,
		"best here");
	drv->ops->managed_prefetch(drv, addr, 8 * MIB, gpu, 0, NULL);
	a = did(1);
	is_int((int64_t)did(0).resident, 8 * (int64_t)MIB, "prefetched");
	glk_soft_work(drv, 1, NULL, addr, 8 * MIB, false);
	is_int((int64_t)(did(1).remote - a.remote), 4, "the other uses it over the link");
	is_int((int64_t)(did(1).gpu_faults - a.gpu_faults), 4, "  after a fault each");
	drv->ops->managed_say(drv, addr, 8 * MIB, GLK_MANAGED_ACCESSED, other);
	a = did(1);
	glk_soft_work(drv, 1, NULL, addr, 8 * MIB, false);
	is_int((int64_t)(did(1).gpu_faults - a.gpu_faults), 0,
		"  without, once that is said");
	drv->ops->managed_say(drv, addr, 8 * MIB, GLK_MANAGED_UNACCESSED, other);
	drv->ops->managed_say(drv, addr, 8 * MIB, GLK_MANAGED_UNPREFER, node);
	glk_soft_work(drv, 1, NULL, addr, 8 * MIB, false);
	is_int((int64_t)did(1).resident, 8 * (int64_t)MIB,
		"and takes it, once that is not");
	drv->ops->managed_say(drv, addr, 8 * MIB, GLK_MANAGED_ACCESSED, other);
	glk_soft_managed_touch(drv, 0, addr, 8 * MIB, false);
	a = did(1);
	glk_soft_work(drv, 1, NULL, addr, 8 * MIB, false);
	is_int((int64_t)(did(1).gpu_faults - a.gpu_faults), 0,
		"who was said to use it does not take it from the host");
	is_int((int64_t)(did(1).remote - a.remote), 4, "  but uses it there");
	drv->ops->managed_say(drv, addr, 8 * MIB, GLK_MANAGED_PREFER, other);
	glk_soft_work(drv, 1, NULL, addr, 8 * MIB, false);
	is_int((int64_t)did(1).resident, 8 * (int64_t)MIB, "  unless it is best there");
	is_int(drv->ops->managed_free(drv, addr), 0, "freed");
	is_int((int64_t)(did(0).resident + did(1).resident), 0, "nothing is left there");
}

/* The least recently used goes; what is no managed memory has the first right. */
static void full(void)
{
	size_t left = 0, total = 0;
	uint64_t addr = have(64 * MIB), page = 0;
	struct glk_soft_managed a;

	glk_soft_work(drv, 0, NULL, addr, 32 * MIB, true);
	glk_soft_work(drv, 0, NULL, addr, 2 * MIB, false);
	drv->ops->memory_info(drv, 0, &left, &total);
	is_int((int64_t)left, 0, "the GPU is full");
	glk_soft_work(drv, 0, NULL, addr + 40 * MIB, 2 * MIB, true);
	is_int((int64_t)did(0).evicted, 1, "one block goes");
	a = did(0);
	glk_soft_work(drv, 0, NULL, addr, 2 * MIB, false);
	is_int((int64_t)(did(0).gpu_faults - a.gpu_faults), 0, "  not the one used last");
	glk_soft_work(drv, 0, NULL, addr + 2 * MIB, 2 * MIB, false);
	is_int((int64_t)(did(0).gpu_faults - a.gpu_faults), 1,
		"  but the one used first");
	is_int(drv->ops->create(drv, gpu, 32 * MIB, 0, &page), 0, "a page takes all");
	is_int((int64_t)did(0).resident, 0, "everything goes");
	a = did(0);
	glk_soft_work(drv, 0, NULL, addr, 2 * MIB, false);
	is_int((int64_t)did(0).resident, 0, "there is no room for what is touched");
	is_int((int64_t)(did(0).remote - a.remote), 1, "  it is used from the host");
	is_int(drv->ops->release(drv, page), 0, "the page goes");
	is_int(drv->ops->managed_free(drv, addr), 0, "and the rest");
}

/* Queued work holds a piece, and is judged by the streams it is on. */
static void queued(void)
{
	static const char *const stepped[] = {"soft.streams=stepped", NULL};
	struct CUstream_st *a = NULL, *b = NULL;
	struct glk_place place;
	uint64_t addr;

	drv = open_with(stepped);
	addr = have(8 * MIB);
	drv->ops->stream_new(drv, 0, &a);
	drv->ops->stream_new(drv, 0, &b);
	is_int(drv->ops->managed_prefetch(drv, addr, 8 * MIB, node, 0, a), 0,
		"a prefetch");
	is_int(drv->ops->managed_ask(drv, addr, MIB, GLK_MANAGED_PREFETCHED, &place),
		-ENOENT, "is queued");
	is_int(drv->ops->managed_free(drv, addr), -EINVAL, "and keeps the piece");
	is_int(glk_soft_work(drv, 0, b, addr, 8 * MIB, true), 0,
		"work of another stream may be beside it");
	is_int(glk_soft_work(drv, 0, a, addr + 7 * MIB, MIB, false), -EINVAL,
		"but not beside that work");
	is_int(drv->ops->device_sync(drv, 0), 0, "all of it runs");
	is_int(drv->ops->managed_ask(drv, addr, 8 * MIB, GLK_MANAGED_PREFETCHED, &place),
		0, "it was sent");
	ok(place.kind == GLK_PLACE_HOST && place.id == 1, "  to that node");
	glk_soft_capture_begin(drv, 0, a);
	is_int(drv->ops->managed_prefetch(drv, addr, MIB, node, 0, a), -EBUSY,
		"none in a capture, which it breaks");
	ok(glk_soft_capture_end(drv, 0, a, &(uint32_t){0}) < 0, "  as the end says");
	drv->ops->stream_free(drv, 0, a);
	drv->ops->stream_free(drv, 0, b);
	is_int(drv->ops->managed_free(drv, addr), 0, "freed");
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

static void left_over(void)
{
	static const char *const none[] = {NULL};

	drv = open_with(none);
	have(4 * MIB);
	tap_expect_log(1);
	is_int(glk_drv_close(drv), -EBUSY, "what was not freed is said at the end");
}

int main(void)
{
	static const char *const two[] = {"soft.gpus=2", NULL};

	tap_plan_later();
	drv = open_with(two);
	rules();
	touched();
	full();
	is_int(glk_drv_close(drv), 0, "nothing is left");
	queued();
	left_over();
	return tap_done();
}
