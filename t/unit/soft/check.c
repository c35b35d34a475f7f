/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every rule of the driver, broken once: the answer, and the sentence that names the rule. */
#include "setup.h"

#include "base/slab.h"
#include "soft/check.h"
#include "soft/fault.h"
#include "soft/soft.h"

#include <errno.h>
#include <pthread.h>

#define BIG (4 * GRANULE)

static struct glk_drv *drv;
static uint64_t base;	    /* a reservation of 16 granules */
static uint64_t small, big; /* pages of 1 and 4 granules */
static const struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_WRITE};

static void reservations(void)
{
	uint64_t addr = 0;

	breaks(drv->ops->reserve(drv, 0, 0, &addr), -EINVAL,
		"cuMemAddressReserve rule: a "
		"reservation has whole granules");
	breaks(drv->ops->reserve(drv, GRANULE + 4096, 0, &addr), -EINVAL,
		"whole granules");
	breaks(drv->ops->reserve(drv, GRANULE, 3 * GRANULE, &addr), -EINVAL,
		"power of two");
	is_int((int64_t)addr, 0, "no output on failure");
	is_int(drv->ops->reserve(drv, BIG, 64 * GRANULE, &addr), 0, "an aligned one");
	is_int((int64_t)(addr % (64 * GRANULE)), 0, "is aligned");
	breaks(drv->ops->unreserve(drv, addr + GRANULE, GRANULE), -EINVAL, "freed whole");
	breaks(drv->ops->unreserve(drv, addr, 2 * BIG), -EINVAL, "is not reserved");
	is_int(drv->ops->unreserve(drv, addr, BIG), 0, "it goes");
	breaks(drv->ops->unreserve(drv, addr, BIG), -EINVAL, "is not reserved");
	is_int(drv->ops->reserve(drv, SIZE_MAX & ~(GRANULE - 1), 0, &addr), -ENOMEM,
		"more than all addresses");
	is_int(setup_error().error_class, GLAKE_ERROR_ADDRESS,
		"is a matter of addresses");
}

static void pages(void)
{
	struct glk_place nowhere = {GLK_PLACE_HOST, 7};
	uint64_t page = 0;

	breaks(drv->ops->create(drv, setup_gpu(0), 0, 0, &page), -EINVAL,
		"cuMemCreate rule: a page has whole granules");
	breaks(drv->ops->create(drv, setup_gpu(0), 4096, 0, &page), -EINVAL,
		"whole granules");
	breaks(drv->ops->create(drv, setup_gpu(2), GRANULE, 0, &page), -EINVAL,
		"does not exist");
	breaks(drv->ops->create(drv, setup_gpu(-1), GRANULE, 0, &page), -EINVAL,
		"does not exist");
	breaks(drv->ops->create(drv, nowhere, GRANULE, 0, &page), -EINVAL, "NUMA node 7");
	breaks(drv->ops->create(drv, setup_gpu(0), GRANULE, 0x80, &page), -EINVAL,
		"unknown flags 0x80");
	breaks(drv->ops->create(drv, setup_gpu(0), GRANULE, GLK_PAGE_RDMA, &page),
		-EOPNOTSUPP, "neither fabric nor RDMA");
	is_int(drv->ops->create(drv, setup_gpu(0), 256 * GLK_MIB, 0, &page), 0,
		"a page as large as the GPU");
	is_int(drv->ops->release(drv, page), 0, "goes again");
	breaks(drv->ops->release(drv, page), -EINVAL, "was released");
	breaks(drv->ops->release(drv, 12345), -EINVAL, "0x3039 is none");
	breaks(drv->ops->create(drv, setup_gpu(0), 258 * GLK_MIB, 0, &page), -ENOMEM,
		"268435456 bytes are free");
	is_int(setup_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "memory of the GPU");
	breaks(drv->ops->create(drv, (struct glk_place){GLK_PLACE_HOST, 1}, 66 * GLK_MIB,
		       0, &page),
		-ENOMEM, "are free");
	is_int(setup_error().error_class, GLAKE_ERROR_NOMEM_HOST, "memory of the host");
}

static void shares(void)
{
	struct glk_place place;
	uint64_t page = 0;
	int fd = -1;

	is_int(drv->ops->create(drv, setup_gpu(0), GRANULE, 0, &page), 0, "a page");
	breaks(drv->ops->export_fd(drv, page, &fd), -EINVAL,
		"exported as it was made to be");
	is_int(drv->ops->page_place(drv, page, &place), 0, "it lies somewhere");
	is_int(drv->ops->release(drv, page), 0, "it goes");
	breaks(drv->ops->export_fd(drv, page, &fd), -EINVAL, "was released");
	breaks(drv->ops->page_place(drv, page, &place), -EINVAL, "was released");
	is_int(fd, -1, "no output");
	breaks(drv->ops->dmabuf_fd(drv, base, 100, &fd), -EINVAL, "whole pages");
	breaks(drv->ops->dmabuf_fd(drv, base + 8, 4096, &fd), -EINVAL, "whole pages");
	breaks(drv->ops->dmabuf_fd(drv, base, 0, &fd), -EINVAL, "whole pages");
	breaks(drv->ops->dmabuf_fd(drv, base, 4096, &fd), -EINVAL, "must be mapped");
	breaks(drv->ops->dmabuf_fd(drv, base + BIG, BIG + 4096, &fd), -EINVAL,
		"must be mapped");
	breaks(drv->ops->dmabuf_fd(drv, 0, 4096, &fd), -EINVAL, "must be mapped");
	breaks(drv->ops->dmabuf_fd(drv, base + BIG, BIG, &fd), -EOPNOTSUPP,
		"no operation dmabuf_fd");
}

static void maps(void)
{
	breaks(drv->ops->map(drv, base + 4096, GRANULE, small), -EINVAL,
		"cuMemMap rule: offset and size must be whole granules");
	breaks(drv->ops->map(drv, base, GRANULE + 4096, small), -EINVAL,
		"whole granules");
	breaks(drv->ops->map(drv, base, GRANULE, big), -EINVAL, "mapped whole");
	breaks(drv->ops->map(drv, base, 2 * GRANULE, small), -EINVAL, "mapped whole");
	breaks(drv->ops->map(drv, base + 14 * GRANULE, BIG, big), -EINVAL,
		"not inside one reservation");
	breaks(drv->ops->map(drv, GRANULE, GRANULE, small), -EINVAL,
		"not inside one reservation");
	breaks(drv->ops->map(drv, base, GRANULE, 0), -EINVAL, "is none");
	is_int(drv->ops->map(drv, base + BIG, BIG, big), 0, "a right one");
	breaks(drv->ops->map(drv, base + BIG, BIG, big), -EINVAL, "is not free");
	breaks(drv->ops->map(drv, base + BIG + 3 * GRANULE, GRANULE, small), -EINVAL,
		"is not free");
	breaks(drv->ops->map(drv, base + 2 * GRANULE, BIG, big), -EINVAL, "is not free");
}

/* On entry [base + 4, base + 8) granules are mapped to `big`. */
static void rights(void)
{
	struct glk_grant wrong = grant;

	breaks(drv->ops->set_access(drv, base, BIG, &grant, 1), -EINVAL,
		"cuMemSetAccess rule");
	has_str(setup_error().text, "must be mapped", "  and what it lacks");
	breaks(drv->ops->set_access(drv, base + BIG, 2 * GRANULE, &grant, 1), -EINVAL,
		"cuts the mapping");
	breaks(drv->ops->set_access(drv, base + BIG + GRANULE, GRANULE, &grant, 1),
		-EINVAL, "cuts the mapping");
	breaks(drv->ops->set_access(drv, base + BIG, 2 * BIG, &grant, 1), -EINVAL,
		"must be mapped");
	breaks(drv->ops->set_access(drv, base + BIG, BIG, &grant, 0), -EINVAL,
		"0 grants");
	wrong.who.id = 9;
	breaks(drv->ops->set_access(drv, base + BIG, BIG, &wrong, 1), -EINVAL,
		"place 9 of kind 0");
	wrong = grant;
	wrong.access = 2;
	breaks(drv->ops->set_access(drv, base + BIG, BIG, &wrong, 1), -EINVAL,
		"access 2 is unknown");
	wrong.who = (struct glk_place){GLK_PLACE_HOST, 5};
	wrong.access = GLK_ACCESS_READ;
	breaks(drv->ops->set_access(drv, base + BIG, BIG, &wrong, 1), -EINVAL,
		"NUMA node 5 does not exist");
	is_int(drv->ops->set_access(drv, base + BIG, BIG, &grant, 1), 0, "a right one");
}

static void copies(void)
{
	uint64_t host[8] = {0};

	breaks(drv->ops->copy(drv, base, (uint64_t)host, 8, NULL), -EINVAL,
		"cuMemcpyAsync rule");
	breaks(drv->ops->copy(drv, (uint64_t)host, base + BIG - 8, 16, NULL), -EINVAL,
		"is not mapped");
	breaks(drv->ops->copy(drv, base + BIG, (uint64_t)host, SIZE_MAX, NULL), -EINVAL,
		"is no range");
	breaks(drv->ops->fill(drv, base + BIG + 2, 0, 1, NULL), -EINVAL, "are no range");
	breaks(drv->ops->fill(drv, base + BIG, 0, SIZE_MAX / 2, NULL), -EINVAL,
		"are no range");
	breaks(drv->ops->fill(drv, base, 0, 1, NULL), -EINVAL, "is not mapped");
	is_int(drv->ops->map(drv, base, GRANULE, small), 0, "mapped without access");
	breaks(drv->ops->fill(drv, base, 0, 1, NULL), -EINVAL,
		"may be written by no GPU");
	breaks(drv->ops->copy(drv, (uint64_t)host, base, 8, NULL), -EINVAL,
		"may be read by no GPU");
	is_int(drv->ops->fill(drv, base + BIG, 7, 4, NULL), 0, "a right one");
	is_int(drv->ops->copy(drv, (uint64_t)host, base + BIG, 16, NULL), 0,
		"and another");
	is_int((int64_t)host[1], (int64_t)7 << 32 | 7, "moved the words");
	is_int((int64_t)host[2], 0, "and no more");
}

static void unmaps(void)
{
	breaks(drv->ops->unreserve(drv, base, 16 * GRANULE), -EINVAL,
		"cuMemAddressFree rule: a reservation is empty");
	breaks(drv->ops->unmap(drv, base, 2 * GRANULE), -EINVAL, "must be mapped");
	breaks(drv->ops->unmap(drv, base + BIG, GRANULE), -EINVAL, "cuts the mapping");
	breaks(drv->ops->unmap(drv, base + BIG, 0), -EINVAL,
		"not inside one reservation");
	is_int(drv->ops->release(drv, big), 0, "a mapped page may be released");
	breaks(drv->ops->map(drv, base + 2 * BIG, BIG, big), -EINVAL,
		"after its release");
	is_int(*(uint32_t *)(base + BIG), 7, "and keeps its memory");
	is_int(drv->ops->unmap(drv, base + BIG, BIG), 0, "until its unmap");
	breaks(drv->ops->unmap(drv, base + BIG, BIG), -EINVAL, "must be mapped");
}

static void events(void)
{
	struct glk_drv_event *event = NULL;
	struct CUstream_st *stream = NULL;

	breaks(drv->ops->event_new(drv, 2, &event), -EINVAL, "GPU 2 does not exist");
	is_int(drv->ops->event_new(drv, 1, &event), 0, "an event");
	is_int(drv->ops->event_query(drv, event), 0, "never recorded: done");
	is_int(drv->ops->stream_new(drv, 0, &stream), 0, "a stream of another GPU");
	breaks(drv->ops->event_record(drv, event, stream), -EINVAL, "an event of GPU 1");
	is_int(drv->ops->stream_wait(drv, stream, event), 0,
		"waiting across GPUs is right");
	is_int(drv->ops->event_free(drv, event), 0, "the event goes");
	breaks(drv->ops->event_query(drv, event), -EINVAL, "an event must be alive");
	breaks(drv->ops->event_record(drv, event, stream), -EINVAL, "must be alive");
	breaks(drv->ops->stream_wait(drv, stream, event), -EINVAL, "must be alive");
	breaks(drv->ops->event_free(drv, event), -EINVAL, "must be alive");
	breaks(drv->ops->event_sync(drv, event), -EINVAL, "must be alive");
	breaks(drv->ops->event_query(drv, (struct glk_drv_event *)&event), -EINVAL,
		"must be alive");
	is_int(drv->ops->stream_free(drv, 0, stream), 0, "the stream goes");
}

/* A failing driver leaves the ledger as it was: each call succeeds when it is tried again. */
static void survives_faults(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv_event *event = NULL;
	struct CUstream_st *stream = NULL;
	uint64_t addr = 0, page = 0;

	snprintf(conf.driver_fault, sizeof(conf.driver_fault), "off");
	drv = setup_open(&conf);
#define twice(name, call)                                                                \
	is_int(glk_fault_set(drv, name ":nth=1:err=EIO"), 0, name " shall fail");        \
	is_int(call, -EIO, "  it does");                                                 \
	is_int(call, 0, "  and then not")
	twice("reserve", drv->ops->reserve(drv, BIG, 0, &addr));
	twice("create", drv->ops->create(drv, setup_gpu(0), BIG, 0, &page));
	twice("map", drv->ops->map(drv, addr, BIG, page));
	twice("set_access", drv->ops->set_access(drv, addr, BIG, &grant, 1));
	twice("unmap", drv->ops->unmap(drv, addr, BIG));
	twice("release", drv->ops->release(drv, page));
	twice("unreserve", drv->ops->unreserve(drv, addr, BIG));
	twice("event_new", drv->ops->event_new(drv, 0, &event));
	twice("stream_new", drv->ops->stream_new(drv, 0, &stream));
	twice("event_record", drv->ops->event_record(drv, event, stream));
	twice("event_query", drv->ops->event_query(drv, event));
	twice("event_sync", drv->ops->event_sync(drv, event));
	twice("stream_wait", drv->ops->stream_wait(drv, stream, event));
	twice("event_free", drv->ops->event_free(drv, event));
	twice("stream_sync", drv->ops->stream_sync(drv, 0, stream));
	twice("stream_free", drv->ops->stream_free(drv, 0, stream));
#undef twice
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

/* Threads that keep to the rules on addresses of their own never meet. */
enum { THREADS = 4, ROUNDS = 100 };

static void *one_thread(void *arg)
{
	uint64_t *errors = arg, addr = 0, page = 0;
	struct glk_drv_event *event = NULL;
	struct CUstream_st *stream = NULL;
	int err;

	err = drv->ops->reserve(drv, 2 * BIG, 0, &addr);
	err |= drv->ops->stream_new(drv, 0, &stream);
	for (uint32_t i = 0; !err && i < ROUNDS; i++) {
		uint64_t at = addr + (i & 1 ? BIG : 0);

		err |= drv->ops->create(drv, setup_gpu(0), BIG, 0, &page);
		err |= drv->ops->map(drv, at, BIG, page);
		err |= drv->ops->set_access(drv, at, BIG, &grant, 1);
		err |= drv->ops->fill(drv, at + GRANULE, i + 1, 2, stream);
		err |= drv->ops->event_new(drv, 0, &event);
		err |= drv->ops->event_record(drv, event, stream);
		err |= drv->ops->event_query(drv, event);
		err |= drv->ops->event_free(drv, event);
		err |= *(volatile uint32_t *)(at + GRANULE + 4) != i + 1;
		err |= drv->ops->unmap(drv, at, BIG);
		err |= drv->ops->release(drv, page);
	}
	err |= drv->ops->stream_free(drv, 0, stream);
	err |= drv->ops->unreserve(drv, addr, 2 * BIG);
	*errors = (uint64_t)(err != 0);
	return NULL;
}

static void threads(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};
	struct glk_conf conf = setup_conf();
	uint64_t errors[THREADS], sum = 0;
	pthread_t ids[THREADS];

	drv = setup_open(&conf);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&ids[i], NULL, one_thread, &errors[i]))
			tap_bail("no threads");
	for (int i = 0; i < THREADS; i++) {
		pthread_join(ids[i], NULL);
		sum += errors[i];
	}
	is_int((int64_t)sum, 0, "four threads at once meet no error");
	drv->ops->figures(drv, &stats);
	is_int((int64_t)stats.calls[GLAKE_CALL_UNMAP], THREADS * ROUNDS,
		"and every call of theirs is counted");
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

static const struct glk_drv_ops *below;
static uint64_t only, again; /* a driver that has addresses for one reservation */

static int reserve_only(struct glk_drv *inner, size_t size, size_t align, uint64_t *ret)
{
	*ret = only;
	return 0;
}

/* Another thread gets the addresses the moment they are free. */
static int unreserve_amid(struct glk_drv *inner, uint64_t addr, size_t size)
{
	if (!again)
		is_int(drv->ops->reserve(drv, size, 0, &again), 0, "somebody else's now");
	return 0;
}

static void same_addresses(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv_ops between;
	struct glk_drv *bottom;
	uint64_t addr = 0;

	drv = setup_open(&conf);
	for (bottom = drv; bottom->inner;)
		bottom = bottom->inner;
	below = bottom->ops;
	if (below->reserve(bottom, BIG, 0, &only))
		tap_bail("no addresses");
	between = *below;
	between.reserve = reserve_only;
	between.unreserve = unreserve_amid;
	bottom->ops = &between;
	is_int(drv->ops->reserve(drv, BIG, 0, &addr), 0, "a reservation");
	is_int(drv->ops->unreserve(drv, addr, BIG), 0, "it goes");
	is_int(drv->ops->unreserve(drv, again, BIG), 0, "and so does that of the other");
	bottom->ops = below;
	below->unreserve(bottom, only, BIG);
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

static void leaks(void)
{
	struct glk_conf conf = setup_conf();
	uint64_t before = glk_region_bytes();
	struct glk_drv_event *event = NULL;
	struct CUstream_st *stream = NULL;
	uint64_t addr = 0, page = 0;

	drv = setup_open(&conf);
	drv->ops->reserve(drv, BIG, 0, &addr);
	drv->ops->create(drv, setup_gpu(0), BIG, 0, &page);
	drv->ops->map(drv, addr, BIG, page);
	drv->ops->event_new(drv, 0, &event);
	drv->ops->stream_new(drv, 0, &stream);
	tap_expect_log(1);
	breaks(glk_drv_close(drv), -EBUSY,
		"1 pages, 1 mappings, 1 reservations, 1 events and 1 streams left");
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "and yet all is given back");
}

int main(void)
{
	struct glk_conf conf = setup_conf();

	tap_plan_later();
	drv = setup_open(&conf);
	is_int(drv->ops->reserve(drv, 16 * GRANULE, 0, &base), 0, "a reservation");
	reservations();
	pages();
	is_int(drv->ops->create(drv, setup_gpu(0), GRANULE, 0, &small), 0,
		"a small page");
	is_int(drv->ops->create(drv, setup_gpu(1), BIG, 0, &big), 0, "a big page");
	maps();
	shares();
	rights();
	copies();
	unmaps();
	events();
	is_int(drv->ops->unmap(drv, base, GRANULE), 0, "the last mapping goes");
	is_int(drv->ops->release(drv, small), 0, "the last page goes");
	is_int(drv->ops->unreserve(drv, base, 16 * GRANULE), 0, "the reservation goes");
	is_int(glk_drv_close(drv), 0, "nothing is left");
	survives_faults();
	threads();
	same_addresses();
	leaks();
	return tap_done();
}
