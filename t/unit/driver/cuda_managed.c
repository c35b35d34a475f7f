/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What goes to the driver for managed memory, by drivers of both ages, and which GPUs have none. */
#include "cuda_fake.h"
#include "tap.h"

#include <errno.h>

#define AT   UINT64_C(0x600000000000)
#define SIZE ((size_t)4 << 20)

static struct glk_cuda_lib lib;
static struct fake *fake;
static struct glk_drv *drv;

static struct glake_error record(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error;
}

static const struct glk_place gpu = {GLK_PLACE_GPU, 1}, node = {GLK_PLACE_HOST, 3},
			      any = {GLK_PLACE_ANY, 0};

static void had(void)
{
	uint64_t addr = 5;

	is_int(drv->ops->managed_alloc(drv, 1, SIZE, &addr), 0, "managed memory");
	ok(addr == AT && fake->size == SIZE && fake->flags == GLK_CU_ATTACH_GLOBAL,
		"for all streams");
	ok(fake->context == FAKE_CONTEXT(1), "in the context of its GPU");
	fake->capturing = GLK_CU_CAPTURE_ACTIVE;
	is_int(drv->ops->managed_alloc(drv, 1, SIZE, &addr), 0,
		"while a stream captures");
	is_int(drv->ops->managed_free(drv, AT), 0, "and given back");
	ok(!fake->capture_broken && fake->address == AT, "the capture lives");
	fake->capturing = 0;
	is_int(drv->ops->managed_alloc(drv, 7, SIZE, &addr), -EINVAL,
		"there is no GPU 7");
	fake->no_managed = true;
	is_int(drv->ops->managed_alloc(drv, 0, SIZE, &addr), -EOPNOTSUPP,
		"a GPU without");
	is_int(record().error_class, GLAKE_ERROR_UNSUPPORTED, "  its class");
	has_str(record().text, "has no managed memory", "  a sentence");
	fake->no_managed = false;
	fake->no_sharing = true;
	is_int(drv->ops->managed_alloc(drv, 0, SIZE, &addr), -EOPNOTSUPP,
		"one that has it alone while it works");
	has_str(record().text, "share", "  a sentence");
	fake->no_sharing = false;
	fake->fail_call = "cuMemAllocManaged";
	fake->fail_result = GLK_CU_OUT_OF_MEMORY;
	addr = 5;
	is_int(drv->ops->managed_alloc(drv, 0, SIZE, &addr), -ENOMEM, "none left");
	is_int((int64_t)addr, 5, "  the output is left alone");
	fake->fail_call = NULL;
}

static void said(unsigned signature)
{
	is_int(drv->ops->managed_say(drv, AT, SIZE, GLK_MANAGED_PREFER, gpu), 0, "a GPU");
	is_int(fake->managed_signature, signature, "  by the function that is there");
	ok(fake->managed_advice == GLK_CU_ADVICE_PREFER && fake->managed.id == 1 &&
			fake->size == SIZE,
		"  is said");
	is_int(drv->ops->managed_say(drv, AT, SIZE, GLK_MANAGED_PREFER, node), 0,
		"a node");
	ok(signature == 1 ? fake->managed.id == -1
			  : fake->managed.type == GLK_CU_LOCATION_HOST_NUMA &&
				fake->managed.id == 3,
		"  is said, or the host");
	is_int(drv->ops->managed_say(drv, AT, SIZE, GLK_MANAGED_ACCESSED, node), 0,
		"who uses it");
	ok(fake->managed_advice == GLK_CU_ADVICE_ACCESSED &&
			(signature == 1 ? fake->managed.id == -1
					: fake->managed.type == GLK_CU_LOCATION_HOST),
		"  is the host as a whole");
	is_int(drv->ops->managed_say(drv, AT, SIZE, GLK_MANAGED_UNPREFER, any), 0,
		"no more");
	is_int(fake->managed_advice, GLK_CU_ADVICE_UNPREFER, "  is said");
	is_int(drv->ops->managed_say(drv, AT, SIZE, GLK_MANAGED_PREFER,
		       (struct glk_place){GLK_PLACE_GPU, 9}),
		-EINVAL, "a GPU that is none");
	is_int(drv->ops->managed_prefetch(drv, AT, SIZE, node, 0, FAKE_STREAM), 0,
		"a prefetch");
	is_int(fake->managed_signature, signature, "  likewise");
	fake->fail_call = "cuMemPrefetchAsync_v1";
	fake->fail_result = GLK_CU_INVALID_VALUE;
	is_int(drv->ops->managed_prefetch(drv, AT, SIZE, gpu, 0, FAKE_STREAM),
		signature == 1 ? -EINVAL : 0, "what the driver refuses");
	fake->fail_call = NULL;
}

static void asked(void)
{
	struct glk_place place = {GLK_PLACE_HOST, 99};

	fake->managed = (struct glk_cu_location){GLK_CU_LOCATION_DEVICE, 1};
	is_int(drv->ops->managed_ask(drv, AT, SIZE, GLK_MANAGED_PREFERRED, &place), 0,
		"asked");
	ok(place.kind == GLK_PLACE_GPU && place.id == 1, "a GPU");
	fake->managed = (struct glk_cu_location){GLK_CU_LOCATION_HOST_NUMA, 3};
	is_int(drv->ops->managed_ask(drv, AT, SIZE, GLK_MANAGED_PREFETCHED, &place), 0,
		"asked");
	ok(place.kind == GLK_PLACE_HOST && place.id == 3, "a node");
	fake->managed = (struct glk_cu_location){GLK_CU_LOCATION_HOST, 0};
	is_int(drv->ops->managed_ask(drv, AT, SIZE, GLK_MANAGED_PREFETCHED, &place), 0,
		"asked");
	ok(place.kind == GLK_PLACE_ANY, "the host");
	fake->managed = (struct glk_cu_location){GLK_CU_LOCATION_NONE, -2};
	is_int(drv->ops->managed_ask(drv, AT, SIZE, GLK_MANAGED_PREFERRED, &place),
		-ENOENT, "nowhere");
}

/* A driver of before 12.2, and one without any of it. */
static void older(void)
{
	struct glk_place place;
	uint64_t addr;

	lib.version = 12010;
	lib.cuMemAdvise_v2 = NULL;
	lib.cuMemPrefetchAsync_v2 = NULL;
	said(1);
	fake->managed = (struct glk_cu_location){77, 1};
	is_int(drv->ops->managed_ask(drv, AT, SIZE, GLK_MANAGED_PREFERRED, &place), 0,
		"asked");
	ok(place.kind == GLK_PLACE_GPU && place.id == 1, "a GPU, by its number");
	fake->managed.id = -1;
	is_int(drv->ops->managed_ask(drv, AT, SIZE, GLK_MANAGED_PREFERRED, &place), 0,
		"asked");
	ok(place.kind == GLK_PLACE_ANY, "the host, by its");
	fake->managed.id = -2;
	is_int(drv->ops->managed_ask(drv, AT, SIZE, GLK_MANAGED_PREFERRED, &place),
		-ENOENT, "nowhere");
	lib.cuMemAllocManaged = NULL;
	lib.cuMemAdvise_v1 = NULL;
	lib.cuMemPrefetchAsync_v1 = NULL;
	lib.cuMemRangeGetAttribute = NULL;
	is_int(drv->ops->managed_alloc(drv, 0, SIZE, &addr), -EOPNOTSUPP, "no function");
	is_int(drv->ops->managed_say(drv, AT, SIZE, GLK_MANAGED_PREFER, gpu), -EOPNOTSUPP,
		"no function");
	is_int(drv->ops->managed_prefetch(drv, AT, SIZE, gpu, 0, FAKE_STREAM),
		-EOPNOTSUPP, "no function");
	is_int(drv->ops->managed_ask(drv, AT, SIZE, GLK_MANAGED_PREFERRED, &place),
		-EOPNOTSUPP, "no function");
}

/* What a library that is loaded takes from an older driver. */
static void versions(void)
{
	struct glk_cuda_lib old;

	fake->version = 12010;
	is_int(glk_cuda_lib_load(fake_path(12000), &old), 0, "a driver of 12.1");
	ok(!old.cuMemAdvise_v2 && !old.cuMemPrefetchAsync_v2 && old.cuMemAdvise_v1 &&
			old.cuMemPrefetchAsync_v1,
		"has the older functions alone");
	fake->version = 13000;
}

int main(void)
{
	struct glk_cuda *cuda = fake_open(&lib, &fake);

	if (!cuda)
		tap_skip_all("the false libcuda.so.1 is not beside this program");
	tap_plan_later();
	drv = &cuda->drv;
	had();
	said(2);
	asked();
	older();
	versions();
	is_int(drv->ops->close(drv), 0, "closed");
	is_int(fake->pushes, fake->pops, "the thread has its contexts back");
	return tap_done();
}
