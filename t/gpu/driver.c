/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The operations of the driver table on a real GPU: what it is, pages and addresses, aliases
 * and remaps with real data, host pages, export, streams and events, and refused calls.
 */
#include "gpu.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>

static struct glk_drv *drv;
static struct gpu_extra cuda;
static struct glake_device info;
static struct CUstream_st *stream, *other;
static uint64_t span; /* 64 pages of addresses */

#define SPAN   (64 * PAGE)
#define AT(n)  (span + (n)*PAGE)
#define GPU(n) ((struct glk_place){GLK_PLACE_GPU, (n)})

static void describe(void)
{
	size_t free = 0, total = 0;
	int count = 0;

	is_done(drv->ops->device_count(drv, &count), "device count");
	ok(count > 0, "%d GPUs, driver API %d", count, glk_cuda_version(drv));
	info.sz = sizeof(info);
	must(drv->ops->device_info(drv, 0, &info), "no description of GPU 0");
	tap_note("%s, %s, PCI %s, node %d, compute %d.%d, caps %#x", info.name, info.uuid,
		info.pci, info.numa_node, info.major, info.minor, info.caps);
	tap_note("memory %" PRIu64 ", granularity %" PRIu64 ", recommended %" PRIu64,
		info.memory, info.granularity, info.granularity_recommended);
	ok(info.name[0], "it has a name");
	ok((!strncmp(info.uuid, "GPU-", 4) || !strncmp(info.uuid, "MIG-", 4)) &&
			strlen(info.uuid) == 40,
		"a UUID");
	ok(strlen(info.pci) == 12 && info.pci[4] == ':', "a PCI address");
	ok(info.caps & GLAKE_CAP_VMM, "virtual memory management");
	ok(info.granularity && PAGE % info.granularity == 0, "2 MiB is a size of page");
	ok(!info.free_valid, "free memory is not told without a context");

	is_done(drv->ops->memory_info(drv, 0, &free, &total), "memory info makes one");
	ok(free && free <= total, "%zu of %zu bytes free", free, total);
	info.sz = sizeof(info);
	is_done(drv->ops->device_info(drv, 0, &info), "describe again");
	ok(info.free_valid, "now it is told");
}

static uint64_t page_new(uint32_t flags)
{
	uint64_t page = 0;

	must(drv->ops->create(drv, GPU(0), PAGE, flags, &page), "no page");
	return page;
}

/* One page at two addresses: what is written through one is read through the other. */
static void aliases(void)
{
	uint64_t page = page_new(0), words[4] = {0};

	is_done(gpu_map(drv, 0, AT(0), PAGE, page), "a page at one address");
	is_done(gpu_map(drv, 0, AT(5), PAGE, page), "and at another");
	is_done(pattern_write(drv, 0, AT(0), PAGE, 1, stream), "write through the first");
	is_int(pattern_check(drv, 0, AT(5), PAGE, 1, stream), 0,
		"read through the second");
	is_done(pattern_write(drv, 0, AT(5), PAGE, 2, stream),
		"write through the second");
	is_int(pattern_check(drv, 0, AT(0), PAGE, 2, stream), 0,
		"read through the first");

	/* In stream order, without waiting between. */
	is_done(drv->ops->fill(drv, AT(0), 0x11111111, PAGE / 4, stream), "fill by one");
	is_done(drv->ops->copy(drv, AT(0) + PAGE / 2, AT(5), 4096, stream),
		"copy across");
	is_done(drv->ops->fill(drv, AT(5), 0x22222222, PAGE / 8, stream),
		"fill by the other");
	is_done(drv->ops->copy(drv, (uintptr_t)words, AT(0), 8, stream),
		"read the first word");
	is_done(drv->ops->copy(drv, (uintptr_t)(words + 1), AT(0) + PAGE / 2, 8, stream),
		"and one of the half copied");
	is_done(drv->ops->stream_sync(drv, 0, stream), "wait");
	ok(words[0] == 0x2222222222222222, "last written, last read");
	ok(words[1] == 0x1111111111111111, "copied before");

	is_done(drv->ops->unmap(drv, AT(0), PAGE), "unmap the first");
	is_done(pattern_write(drv, 0, AT(5), PAGE, 3, stream), "the second still writes");
	is_int(pattern_check(drv, 0, AT(5), PAGE, 3, stream), 0, "and reads");
	is_done(drv->ops->release(drv, page), "release while mapped");
	is_int(pattern_check(drv, 0, AT(5), PAGE, 3, stream), 0, "the mapping keeps it");
	is_done(drv->ops->unmap(drv, AT(5), PAGE), "unmap the second");
}

/* An address changes its page between pieces of queued work, and no data gets lost. */
static void remaps(void)
{
	uint64_t one = page_new(0), two = page_new(0);
	struct glk_drv_event *event = NULL;

	must(drv->ops->event_new(drv, 0, &event), "no event");
	must(gpu_map(drv, 0, AT(0), PAGE, one), "no mapping");
	is_done(pattern_write(drv, 0, AT(0), PAGE, 4, stream), "write to the first page");
	is_done(drv->ops->event_record(drv, event, stream), "record");
	is_done(drv->ops->stream_sync(drv, 0, stream), "wait");
	is_done(drv->ops->event_query(drv, event), "passed");
	is_done(drv->ops->unmap(drv, AT(0), PAGE), "unmap");
	is_done(gpu_map(drv, 0, AT(0), PAGE, two), "the second page at the same address");
	is_done(pattern_write(drv, 0, AT(0), PAGE, 5, other), "write by another stream");
	is_done(gpu_map(drv, 0, AT(1), PAGE, one), "the first page next to it");
	is_int(pattern_check(drv, 0, AT(0), PAGE, 5, stream), 0,
		"the second has its data");
	is_int(pattern_check(drv, 0, AT(1), PAGE, 4, stream), 0, "the first has its own");
	is_done(drv->ops->unmap(drv, AT(0), 2 * PAGE), "both unmapped in one call");
	drv->ops->release(drv, one);
	drv->ops->release(drv, two);
	is_done(drv->ops->event_free(drv, event), "end the event");
}

/* Pages in shuffled order make one run of addresses. */
static void stitched(void)
{
	uint64_t pages[8];
	struct glk_grant grant = {GPU(0), GLK_ACCESS_WRITE};

	for (int i = 0; i < 8; i++)
		pages[i] = page_new(0);
	for (size_t i = 0; i < 8; i++)
		is_done(drv->ops->map(drv, AT(i), PAGE, pages[(i * 5 + 3) % 8]), "map");
	is_done(drv->ops->set_access(drv, AT(0), 8 * PAGE, &grant, 1),
		"access in one call");
	is_done(pattern_write(drv, 0, AT(0), 8 * PAGE, 6, stream), "write across all");
	is_int(pattern_check(drv, 0, AT(0), 8 * PAGE, 6, stream), 0, "read across all");
	is_done(drv->ops->unmap(drv, AT(0), 8 * PAGE), "unmap in one call");
	/* The page that came first, alone, holds the pattern's first part. */
	must(gpu_map(drv, 0, AT(9), PAGE, pages[3]), "no mapping");
	is_int(pattern_check(drv, 0, AT(9), PAGE, 6, stream), 0,
		"each page has its part");
	is_done(drv->ops->unmap(drv, AT(9), PAGE), "unmap");
	for (int i = 0; i < 8; i++)
		is_done(drv->ops->release(drv, pages[i]), "release");
}

static void read_only(void)
{
	struct glk_grant grant = {GPU(0), GLK_ACCESS_READ};
	uint64_t page = page_new(0);

	must(gpu_map(drv, 0, AT(0), PAGE, page), "no mapping");
	is_done(pattern_write(drv, 0, AT(0), PAGE, 7, stream), "write");
	is_done(drv->ops->set_access(drv, AT(0), PAGE, &grant, 1),
		"then make it read-only");
	is_int(pattern_check(drv, 0, AT(0), PAGE, 7, stream), 0, "it reads");
	grant.access = GLK_ACCESS_NONE;
	is_done(drv->ops->set_access(drv, AT(0), PAGE, &grant, 1), "no access at all");
	grant.access = GLK_ACCESS_WRITE;
	is_done(drv->ops->set_access(drv, AT(0), PAGE, &grant, 1), "and back");
	is_int(pattern_check(drv, 0, AT(0), PAGE, 7, stream), 0, "nothing was lost");
	is_done(drv->ops->unmap(drv, AT(0), PAGE), "unmap");
	is_done(drv->ops->release(drv, page), "release");
}

static sigjmp_buf no_access;

static void on_fault(int signal)
{
	siglongjmp(no_access, signal);
}

/* A page of the host: the GPU writes it, the CPU reads it at the same address. */
static void host_page(void)
{
	int node = info.numa_node < 0 ? 0 : info.numa_node;
	struct glk_place place = {GLK_PLACE_HOST, node};
	struct glk_grant grants[2] = {
		{GPU(0), GLK_ACCESS_WRITE}, {place, GLK_ACCESS_WRITE}};
	struct sigaction action = {.sa_handler = on_fault}, segv, bus;
	volatile uint64_t wrong = 1;
	uint64_t page = 0;

	if (!(info.caps & GLAKE_CAP_HOST_NUMA)) {
		tap_skip("pages on the host", "this GPU or driver has none");
		return;
	}
	must(drv->ops->create(drv, place, PAGE, 0, &page), "no page on the host");
	is_done(drv->ops->map(drv, AT(0), PAGE, page), "map");
	is_done(drv->ops->set_access(drv, AT(0), PAGE, grants, 2),
		"for the GPU and the host");
	is_done(pattern_write(drv, 0, AT(0), PAGE, 8, stream), "written by the GPU");
	is_int(pattern_check(drv, 0, AT(0), PAGE, 8, stream), 0, "read by the GPU");

	sigaction(SIGSEGV, &action, &segv);
	sigaction(SIGBUS, &action, &bus);
	if (!sigsetjmp(no_access, 1))
		wrong = pattern_wrong((const uint64_t *)(uintptr_t)AT(0), PAGE, 8);
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	is_int(wrong, 0, "read by the CPU at the same address");
	is_done(drv->ops->unmap(drv, AT(0), PAGE), "unmap");
	is_done(drv->ops->release(drv, page), "release");
}

static void exported(void)
{
	uint64_t page, same = 0;
	int fd = -1, again = -1;

	if (!(info.caps & GLAKE_CAP_FD)) {
		tap_skip("export", "this GPU or driver exports no descriptors");
		return;
	}
	page = page_new(GLK_PAGE_EXPORT_FD);
	must(gpu_map(drv, 0, AT(0), PAGE, page), "no mapping");
	is_done(pattern_write(drv, 0, AT(0), PAGE, 9, stream), "write");
	is_done(drv->ops->export_fd(drv, page, &fd), "export");
	ok(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC), "a descriptor closed on exec");
	is_done(drv->ops->export_fd(drv, page, &again), "export again");
	is_done(drv->ops->import_fd(drv, fd, &same), "import");
	close(fd);
	close(again);
	is_done(gpu_map(drv, 0, AT(1), PAGE, same), "map what was imported");
	is_int(pattern_check(drv, 0, AT(1), PAGE, 9, stream), 0, "it is the same memory");
	is_done(drv->ops->unmap(drv, AT(0), PAGE), "unmap");
	is_done(drv->ops->release(drv, page), "release the exporter's handle");
	is_int(pattern_check(drv, 0, AT(1), PAGE, 9, stream), 0,
		"the importer's lives on");
	is_done(drv->ops->unmap(drv, AT(1), PAGE), "unmap");
	is_done(drv->ops->release(drv, same), "release");

	page = page_new(0);
	ok(drv->ops->export_fd(drv, page, &fd) < 0,
		"a page not made for it is not exported");
	gpu_why();
	is_done(drv->ops->release(drv, page), "release");
}

static void flags(void)
{
	uint64_t page = 0;
	int err;

	if (info.caps & GLAKE_CAP_RDMA) {
		is_done(drv->ops->create(drv, GPU(0), PAGE, GLK_PAGE_RDMA, &page),
			"for RDMA");
		is_done(drv->ops->release(drv, page), "release");
	} else {
		tap_skip("RDMA", "not by this GPU");
	}
	/* Needs a service beside the driver; refused or granted, never a crash. */
	err = drv->ops->create(drv, GPU(0), PAGE, GLK_PAGE_FABRIC, &page);
	ok(!err || err == -EPERM || err == -EOPNOTSUPP || err == -EINVAL,
		"a fabric page is granted or refused: %d", err);
	if (err)
		gpu_why();
	else
		drv->ops->release(drv, page);
}

/* Each refused call leaves things as they were. */
static void refused(void)
{
	uint64_t page = page_new(0), out = 5;

	ok(drv->ops->map(drv, AT(0), PAGE / 2, page) < 0, "half a page is not mapped");
	gpu_why();
	ok(drv->ops->map(drv, AT(0) + 4096, PAGE, page) < 0, "nor at an odd address");
	gpu_why();
	is_done(gpu_map(drv, 0, AT(0), PAGE, page), "it is mapped as it should be");
	ok(drv->ops->map(drv, AT(0), PAGE, page) < 0, "but not twice at one address");
	gpu_why();
	is_done(pattern_write(drv, 0, AT(0), PAGE, 10, stream), "which still writes");
	ok(drv->ops->unmap(drv, AT(0), PAGE / 2) < 0, "half a mapping is not unmapped");
	gpu_why();
	is_int(pattern_check(drv, 0, AT(0), PAGE, 10, stream), 0, "which still reads");
	is_done(drv->ops->unmap(drv, AT(0), PAGE), "the whole is");
	is_done(drv->ops->release(drv, page), "release");

	ok(drv->ops->create(drv, GPU(0), PAGE / 2 + 1, 0, &out) < 0,
		"a page of an odd size");
	gpu_why();
	is_int(drv->ops->create(
		       drv, GPU(0), (size_t)(2 * info.memory) & ~(PAGE - 1), 0, &out),
		-ENOMEM, "a page of twice the GPU");
	is_int(gpu_class(), GLAKE_ERROR_NOMEM_DEVICE, "is more than the GPU has");
	gpu_why();
	ok(drv->ops->reserve(drv, (size_t)1 << 60, PAGE, &out) < 0, "2^60 addresses");
	gpu_why();
	is_int(out, 5, "the outputs are left alone");
}

static void events(void)
{
	struct glk_drv_event *first = NULL, *second = NULL;
	uint64_t page = page_new(0);
	static struct gate gate;

	must(drv->ops->event_new(drv, 0, &first), "no event");
	must(drv->ops->event_new(drv, 0, &second), "no event");
	must(gpu_map(drv, 0, AT(0), PAGE, page), "no mapping");
	is_done(drv->ops->event_query(drv, first), "an event never recorded has passed");

	is_int(gate_close(&cuda, &gate, stream), 0, "hold a stream");
	is_done(drv->ops->fill(drv, AT(0), 1, PAGE / 4, stream), "work behind it");
	is_done(drv->ops->event_record(drv, first, stream), "record behind it");
	is_done(drv->ops->stream_wait(drv, other, first), "another stream waits");
	is_done(drv->ops->event_record(drv, second, other), "record there");
	is_int(drv->ops->event_query(drv, first), -EAGAIN, "pending");
	is_int(drv->ops->event_query(drv, second), -EAGAIN, "so is the other");

	/* Mapping beside running work waits for nothing. */
	is_done(gpu_map(drv, 0, AT(1), PAGE, page), "map meanwhile");
	is_done(drv->ops->unmap(drv, AT(1), PAGE), "unmap meanwhile");
	is_int(drv->ops->event_query(drv, first), -EAGAIN, "still pending");
	is_int(atomic_load(&gate.late), 0, "no call has waited for the stream");
	gate_open(&gate);
	is_done(drv->ops->stream_sync(drv, 0, other), "let go and wait");
	is_done(drv->ops->event_query(drv, first), "the first has passed");
	is_done(drv->ops->event_query(drv, second), "so has the second");

	is_done(drv->ops->fill(drv, AT(0), 3, PAGE / 4, NULL),
		"the default stream works");
	is_done(drv->ops->event_record(drv, first, NULL), "and records");
	is_done(drv->ops->device_sync(drv, 0), "wait for the GPU");
	is_done(drv->ops->event_query(drv, first), "passed");
	is_done(drv->ops->event_free(drv, first), "end");
	is_int(drv->ops->event_free(drv, first), -EINVAL, "end again");
	is_done(drv->ops->event_free(drv, second), "end the other");
	is_done(drv->ops->unmap(drv, AT(0), PAGE), "unmap");
	is_done(drv->ops->release(drv, page), "release");
}

static uint64_t id_of(struct CUstream_st *of)
{
	struct glk_stream_facts facts = {0, 77};

	is_done(drv->ops->stream_facts(drv, 0, of, &facts), "facts of a stream");
	is_int(facts.capture, 0, "it captures nothing");
	return facts.id;
}

static void facts(void)
{
	struct CUstream_st *again = NULL;
	uint64_t id;

	if (glk_cuda_version(drv) < 12000) {
		is_int(id_of(stream), 0, "no numbers before CUDA 12.0");
		return;
	}
	id = id_of(stream);
	ok(id && id != id_of(other), "streams have numbers of their own");
	ok(id == id_of(stream), "which stay");
	ok(id_of(NULL) == id_of(GLK_STREAM_LEGACY), "the default stream has two names");
	ok(id_of(GLK_STREAM_PER_THREAD) != id_of(NULL), "the thread's own is another");
	must(drv->ops->stream_new(drv, 0, &again), "no stream");
	id = id_of(again);
	is_done(drv->ops->stream_free(drv, 0, again), "end a stream");
	must(drv->ops->stream_new(drv, 0, &again), "no stream");
	ok(id_of(again) != id, "the next one has another number, whatever its handle");
	is_done(drv->ops->stream_owner(drv, 0, again), "it is of GPU 0");
	is_done(drv->ops->stream_owner(drv, 0, NULL), "as is the default stream");
	is_done(drv->ops->stream_free(drv, 0, again), "end it");
}

static void user_events(void)
{
	struct CUevent_st *event = NULL;
	static struct gate gate;
	struct glk_drv_event *behind = NULL;

	must(drv->ops->user_event_new(drv, 0, &event), "no event");
	must(drv->ops->event_new(drv, 0, &behind), "no event");
	is_int(gate_close(&cuda, &gate, stream), 0, "hold a stream");
	is_done(drv->ops->user_event_record(drv, 0, event, stream), "record behind it");
	is_done(drv->ops->user_event_wait(drv, 0, other, event), "another stream waits");
	is_done(drv->ops->event_record(drv, behind, other), "record there");
	is_int(drv->ops->event_query(drv, behind), -EAGAIN, "pending");
	gate_open(&gate);
	is_done(drv->ops->stream_sync(drv, 0, other), "let go and wait");
	is_done(drv->ops->event_query(drv, behind), "passed");
	is_done(drv->ops->user_event_record(drv, 0, event, NULL), "the default stream");
	is_done(drv->ops->user_event_wait(drv, 0, GLK_STREAM_PER_THREAD, event),
		"and the thread's own");
	is_done(drv->ops->device_sync(drv, 0), "wait for the GPU");
	is_done(drv->ops->event_free(drv, behind), "end an event");
	is_done(drv->ops->user_event_free(drv, event), "end the other");
}

/* A page of GPU 0 in the hands of GPU 1. */
static void peers(void)
{
	struct glk_grant grants[2] = {
		{GPU(0), GLK_ACCESS_WRITE}, {GPU(1), GLK_ACCESS_WRITE}};
	struct CUstream_st *far = NULL;
	uint64_t page;
	int count = 0, err;

	drv->ops->device_count(drv, &count);
	if (count < 2) {
		tap_skip("peer access", "one GPU only");
		return;
	}
	page = page_new(0);
	must(drv->ops->map(drv, AT(0), PAGE, page), "no mapping");
	err = drv->ops->set_access(drv, AT(0), PAGE, grants, 2);
	if (err == -EOPNOTSUPP) {
		tap_skip("peer access", "not between these GPUs");
	} else {
		is_done(err, "access for both");
		must(drv->ops->stream_new(drv, 1, &far), "no stream on GPU 1");
		is_done(drv->ops->stream_owner(drv, 1, far), "which is of GPU 1");
		is_int(drv->ops->stream_owner(drv, 0, far), -EINVAL, "not of GPU 0");
		is_done(pattern_write(drv, 1, AT(0), PAGE, 11, far), "written by GPU 1");
		is_int(pattern_check(drv, 0, AT(0), PAGE, 11, stream), 0,
			"read by GPU 0");
		is_done(drv->ops->stream_free(drv, 1, far), "end the stream");
	}
	is_done(drv->ops->unmap(drv, AT(0), PAGE), "unmap");
	is_done(drv->ops->release(drv, page), "release");
}

static void all(void)
{
	aliases();
	remaps();
	stitched();
	read_only();
	exported();
	flags();
	refused();
	host_page();
	events();
	facts();
	user_events();
	peers();
}

int main(void)
{
	size_t before = 0, after = 0, total = 0;
	void *context = &context;

	drv = gpu_open();
	tap_plan_later();
	describe();
	cuda = gpu_extra();
	must(drv->ops->stream_new(drv, 0, &stream), "no stream");
	must(drv->ops->stream_new(drv, 0, &other), "no stream");
	must(drv->ops->reserve(drv, SPAN, PAGE, &span), "no addresses");
	ok(span % PAGE == 0, "addresses at a multiple of the page");

	tap_note("first round: no context is current in this thread");
	all();
	ok(!cuda.context(&context) && !context, "and none was left current");
	/* The first round made the driver load code and tables, which it keeps. */
	must(drv->ops->memory_info(drv, 0, &before, &total), "no memory info");
	tap_note("second round: the program's own context is current");
	cuda.context_set(cuda.primary);
	all();
	ok(!cuda.context(&context) && context == cuda.primary, "and it still is");
	must(drv->ops->memory_info(drv, 0, &after, &total), "no memory info");
	is_int(after, before, "all memory is back");

	is_done(drv->ops->unreserve(drv, span, SPAN), "give the addresses back");
	is_done(drv->ops->stream_free(drv, 0, stream), "end a stream");
	is_done(drv->ops->stream_free(drv, 0, other), "end the other");
	is_done(drv->ops->close(drv), "close");
	return tap_done();
}
