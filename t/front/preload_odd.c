/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What goes wrong at the edges: threads that come first all at once, resets amid threads,
 * frees of the wrong thing by many, streams of threads, what is said of addresses, memory that
 * is none of ours, handles of blocks whose free fails, a driver that has nothing left. Runs
 * under the preload.
 */
#define TAP_NO_LOG
#include "tap.h"

#include "preload_calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define RESETS	40
#define ROUNDS	200

#define MANY_RESETS 300

typedef fake_result alloc_in_order(fake_address *, size_t, struct CUstream_st *);
typedef fake_result free_in_order(fake_address, struct CUstream_st *);

static struct calls cu;
static const struct fake_state *fake;
static pthread_barrier_t together;
static atomic_bool stop;
static atomic_int served;

static uintptr_t run(void *(*body)(void *), int count)
{
	pthread_t thread[THREADS];
	uintptr_t wrong = 0;
	void *found;

	for (uintptr_t i = 0; i < (uintptr_t)count; i++)
		if (pthread_create(&thread[i], NULL, body, (void *)i))
			tap_bail("no thread");
	for (int i = 0; i < count; i++) {
		pthread_join(thread[i], &found);
		wrong += (uintptr_t)found;
	}
	return wrong;
}

static void *come_first(void *arg)
{
	struct CUctx_st *context = NULL;
	fake_address ptr = 0;
	uintptr_t wrong = 0;

	wrong += cu.cuDevicePrimaryCtxRetain(&context, (int)((uintptr_t)arg % 2)) != 0;
	wrong += cu.cuCtxSetCurrent(context) != 0;
	pthread_barrier_wait(&together);
	wrong += cu.cuMemAlloc(&ptr, 100000) != 0;
	if (ptr)
		memset((void *)(uintptr_t)ptr, 1, 100000);
	wrong += cu.cuMemFree(ptr) != 0;
	return (void *)wrong;
}

/* In a child, so that it is the first use. */
static int first_use(void)
{
	uintptr_t wrong;

	pthread_barrier_init(&together, NULL, THREADS);
	wrong = run(come_first, THREADS);
	return wrong ? 1 : fake->count("cuMemAlloc_v2") ? 2 : 0;
}

static void first_uses(void)
{
	int status = 0, wrong = 0;

	for (int i = 0; i < 10 && !wrong; i++) {
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (!pid) {
			alarm(900); /* the test itself has less time */
			_exit(first_use());
		}
		if (waitpid(pid, &status, 0) != pid)
			tap_bail("no child");
		wrong = status;
	}
	is_int(wrong, 0, "threads that come first all at once");
}

/* Memory may go at any time, so it is not touched; what is not served now the driver serves. */
static void *go_on(void *arg)
{
	struct CUstream_st *stream;
	uintptr_t wrong = 0;
	fake_address p, q;
	size_t left, total;
	int before;

	calls_use(&cu, 0);
	cu.cuStreamCreate(&stream, 0);
	while (!atomic_load(&stop)) {
		fake_result first = cu.cuMemAlloc(&p, 50000 + (uintptr_t)arg * 1000);
		fake_result second = cu.cuMemAllocAsync(&q, MIB, stream);

		wrong += (first && first != 2) || (second && second != 2);
		cu.cuMemGetAddressRange(&p, NULL, p);
		cu.cuMemGetInfo(&left, &total);
		if (!first)
			cu.cuMemFree(p);
		if (!second)
			cu.cuMemFreeAsync(q, stream);
		before = atomic_fetch_add(&served, 1);
		wrong += before < 0;
	}
	cu.cuStreamDestroy(stream);
	return (void *)wrong;
}

static void *reset(void *arg)
{
	uintptr_t wrong = 0;

	calls_use(&cu, 0);
	for (int i = 0; i < RESETS; i++) {
		int seen = atomic_load(&served);

		while (atomic_load(&served) < seen + 5)
			tap_moment();
		wrong += cu.cuDevicePrimaryCtxReset(0) != 0;
	}
	return (void *)wrong;
}

static void *reset_or_go_on(void *arg)
{
	static atomic_int resetting = 2;
	void *found;

	if ((uintptr_t)arg >= 2)
		return go_on(arg);
	found = reset(arg);
	if (atomic_fetch_sub(&resetting, 1) == 1)
		atomic_store(&stop, true);
	return found;
}

static void resets(void)
{
	fake_address ptr = 0;
	int before;

	is_int((int64_t)run(reset_or_go_on, 5), 0,
		"resets by two, amid three that go on");
	is_int(cu.cuDevicePrimaryCtxReset(0), 0, "one more");
	is_int((int64_t)fake->used(0), 0, "nothing is left behind");
	before = fake->count("cuMemAlloc_v2");
	is_int(cu.cuMemAlloc(&ptr, MIB), 0, "memory again");
	is_int(fake->count("cuMemAlloc_v2") - before, 0, "  which is served");
	is_int(cu.cuMemFree(ptr), 0, "  and freed");
}

/* As a suite of tests does that begins each one anew. */
static void many_resets(void)
{
	int before = fake->count("cuMemAlloc_v2"), wrong = 0;
	fake_address ptr;

	for (int i = 0; i < MANY_RESETS && !wrong; i++)
		wrong = cu.cuMemAlloc(&ptr, MIB) || cu.cuDevicePrimaryCtxReset(0);
	is_int(wrong, 0, "many resets");
	is_int(fake->count("cuMemAlloc_v2") - before, 0, "  all memory is served");
	is_int((int64_t)fake->used(0), 0, "  and goes each time");
}

static fake_address shared[ROUNDS];

/* All free the same blocks; each is freed once. Returns how often it was. */
static void *free_all(void *arg)
{
	uintptr_t freed = 0;

	calls_use(&cu, 0);
	pthread_barrier_wait(&together);
	for (int i = 0; i < ROUNDS; i++) {
		cu.cuMemFree(shared[i] + 512);
		freed += ((uintptr_t)arg % 2 ? cu.cuMemFree(shared[i])
					     : cu.cuMemFreeAsync(shared[i], NULL)) == 0;
	}
	return (void *)freed;
}

static void frees(void)
{
	pthread_barrier_init(&together, NULL, THREADS);
	for (int i = 0; i < ROUNDS; i++)
		if (cu.cuMemAlloc(&shared[i], 2000 + (size_t)i * 3000))
			tap_bail("no memory");
	is_int((int64_t)run(free_all, THREADS), ROUNDS,
		"blocks that all threads free at once are freed once");
}

static void of_threads(const char *how, alloc_in_order *alloc, free_in_order *release)
{
	fake_address ptr = 0, q = 0;

	tap_note("%s", how);
	is_int(alloc(&ptr, MIB, NULL), 0, "memory on the stream of the thread");
	is_int(fake->count("cuMemAllocAsync_ptsz"), 0, "  is served");
	is_int(release(ptr, NULL), 0, "  and freed");
	is_int(release(ptr, NULL), 1, "  once");
	is_int(fake->count("cuMemFreeAsync_ptsz"), 0, "  not by the driver");
	is_int(cu.cuMemAlloc(&q, MIB), 0, "plain memory");
	is_int(release(q, NULL), 0, "  is freed there too");
	is_int(alloc(&ptr, MIB, NULL), 0, "memory of the thread");
	is_int(cu.cuMemFreeAsync(ptr, NULL), 0, "  on the stream of all");
}

static void streams_of_threads(void)
{
	alloc_in_order *alloc;
	free_in_order *release;
	proc_v12000 *proc;
	unsigned status;
	void *fn;

	fn = dlsym(driver_open(), "cuMemAllocAsync_ptsz");
	memcpy(&alloc, &fn, sizeof(fn));
	fn = dlsym(driver_open(), "cuMemFreeAsync_ptsz");
	memcpy(&release, &fn, sizeof(fn));
	of_threads("dlsym", alloc, release);
	fn = dlsym(driver_open(), "cuGetProcAddress_v2");
	memcpy(&proc, &fn, sizeof(fn));
	proc("cuMemAllocAsync", &fn, 12000, 2, &status);
	memcpy(&alloc, &fn, sizeof(fn));
	proc("cuMemFreeAsync", &fn, 12000, 2, &status);
	memcpy(&release, &fn, sizeof(fn));
	of_threads("cuGetProcAddress", alloc, release);
}

struct answers {
	struct CUctx_st *context;
	fake_address start;
	size_t size;
	int capable;
};

static struct answers ask(fake_address ptr, bool one_by_one)
{
	const unsigned which[] = {1, 11, 12, 10};
	struct answers a = {NULL, 0, 0, -1};
	void *values[] = {&a.context, &a.start, &a.size, &a.capable};

	if (!one_by_one && cu.cuPointerGetAttributes(4, which, values, ptr))
		return (struct answers){0};
	for (int i = 0; one_by_one && i < 4; i++)
		if (cu.cuPointerGetAttribute(values[i], which[i], ptr))
			return (struct answers){0};
	return a;
}

static void attributes(struct CUctx_st *primary)
{
	fake_address ours = 0, theirs = 0;
	struct answers a;
	int device = -1;

	is_int(cu.cuMemAlloc(&ours, 5 * MIB + 7), 0, "a block of some pages");
	is_int(cu.cuMemAllocManaged(&theirs, 3 * MIB, 1), 0, "managed memory");
	for (int i = 0; i < 2; i++) {
		a = ask(ours + 4 * MIB, i);
		ok(a.start == ours && a.size == 5 * MIB + 7, "the range is the block");
		ok(a.context == primary, "its context is the one it was made in");
		is_int(a.capable, 1, "it can have a handle for other processes");
		a = ask(theirs + MIB, i);
		ok(a.start == theirs && a.size == 3 * MIB, "of what is the driver's");
		is_int(a.capable, 1, "  all is as it says");
		a = ask(0x123456789000, i);
		ok(!a.context && !a.capable, "and of what is nobody's");
	}
	is_int(cu.cuPointerGetAttribute(&device, 9, theirs), 0, "what else there is");
	is_int(device, 0, "  is the driver's to say");
	is_int(cu.cuMemFree(theirs), 0, "managed memory is freed");
	is_int(fake->count("cuMemAllocManaged"), 1, "  where it came from");
	is_int(cu.cuMemFree(ours), 0, "and the block");
	a = ask(ours, false);
	ok(!a.context && !a.capable, "of which nothing is left to say");
}

/* Blocks that follow each other at an address have numbers of their own. */
static void numbers(void)
{
	uint64_t one = 0, again = 1, next = 0, theirs = 0;
	fake_address ptr = 0, other = 0, managed = 0;
	unsigned which = 7;
	void *value = &again;

	is_int(cu.cuMemAlloc(&ptr, 5 * MIB), 0, "a block");
	is_int(cu.cuPointerGetAttribute(&one, 7, ptr), 0, "  has a number");
	is_int(cu.cuPointerGetAttributes(1, &which, &value, ptr + 4 * MIB), 0,
		"  of which it tells everywhere");
	ok(one && one == again, "  the same");
	is_int(cu.cuMemFree(ptr), 0, "freed");
	is_int(cu.cuMemAlloc(&other, 5 * MIB), 0, "the next one");
	is_int(cu.cuPointerGetAttribute(&next, 7, other), 0, "  has a number");
	ok(other == ptr && next != one, "  of its own, at the same address");
	is_int(cu.cuMemFree(other), 0, "freed");
	is_int(cu.cuMemAllocManaged(&managed, 3 * MIB, 1), 0, "managed memory");
	is_int(cu.cuPointerGetAttribute(&theirs, 7, managed), 0, "  has a number");
	ok(theirs == managed / (2 * MIB), "  that the driver tells");
	is_int(cu.cuMemFree(managed), 0, "freed");
}

/* A handle is that of a block until its free succeeds, also where that is late. */
static void handles(struct CUctx_st *primary)
{
	struct calls_handle before, after;
	struct CUstream_st *foreign, *captures;
	fake_address ptr = 0;
	void *graph;

	cu.cuCtxSetCurrent(fake->context(0));
	is_int(cu.cuStreamCreate(&foreign, 0), 0, "a stream of another context");
	cu.cuCtxSetCurrent(primary);
	is_int(cu.cuStreamCreate(&captures, 0), 0, "and one that captures");
	is_int(cu.cuMemAlloc(&ptr, MIB), 0, "a block");
	is_int(cu.cuIpcGetMemHandle(&before, ptr), 0, "its handle");
	is_int(cu.cuStreamBeginCapture(captures, 0), 0, "a capture");
	is_int(cu.cuMemFreeAsync(ptr, foreign), 900, "a free that cannot be waited for");
	is_int(cu.cuIpcGetMemHandle(&after, ptr), 0, "  leaves the block");
	ok(!memcmp(&before, &after, sizeof(before)), "  its handle");
	is_int(cu.cuMemFree(ptr), 0, "a free that is put by");
	is_int(cu.cuIpcGetMemHandle(&after, ptr), 1, "  leaves no handle");
	is_int(cu.cuStreamEndCapture(captures, &graph), 0, "the capture ends");
	is_int(cu.cuMemAlloc(&ptr, MIB), 0, "a block");
	is_int(cu.cuIpcGetMemHandle(&before, ptr), 0, "its handle");
	is_int(cu.cuMemFree(ptr), 0, "freed");
	is_int(cu.cuMemAlloc(&ptr, MIB), 0, "the same again");
	is_int(cu.cuIpcGetMemHandle(&after, ptr), 0, "its handle");
	ok(memcmp(&before, &after, sizeof(before)) != 0, "  is another");
	is_int(cu.cuMemFree(ptr), 0, "freed");
	cu.cuStreamDestroy(foreign);
	cu.cuStreamDestroy(captures);
}

/* What the library keeps is there for the driver when that has nothing left. */
static void room(struct CUctx_st *primary)
{
	const int prop[8] = {[0] = 1, [2] = 1, [3] = 0};
	unsigned long long page = 0;
	struct CUstream_st *stream;
	fake_address ptr = 0;

	cu.cuStreamCreate(&stream, 0);
	is_int(cu.cuMemAllocAsync(&ptr, 900 * MIB, stream), 0, "most of a GPU");
	stream->held = true;
	is_int(cu.cuMemFreeAsync(ptr, stream), 0, "  is freed behind work");
	is_int(cu.cuMemCreate(&page, 600 * MIB, prop, 0), 2, "  which is not waited for");
	ok(stream->held, "  by anyone");
	fake->release();
	is_int(cu.cuMemCreate(&page, 600 * MIB, prop, 0), 0, "a page of the program");
	is_int(cu.cuMemRelease(page), 0, "  goes");
	is_int(cu.cuMemAlloc(&ptr, 900 * MIB), 0, "most of it again");
	is_int(cu.cuMemFree(ptr), 0, "  is freed");
	cu.cuCtxSetCurrent(fake->context(0));
	is_int(cu.cuMemAlloc(&ptr, 700 * MIB), 0, "memory of another context");
	is_int(cu.cuMemCreate(&page, 600 * MIB, prop, 0), 2, "more than there is");
	is_int(cu.cuMemFree(ptr), 0, "freed");
	cu.cuCtxSetCurrent(primary);
	cu.cuStreamDestroy(stream);
}

int main(int count, char **arguments)
{
	struct CUctx_st *primary;

	tap_plan_later();
	fake = driver_state();
	cu = calls_by(count > 1 ? arguments[1] : "dlsym");
	first_uses();
	primary = calls_use(&cu, 0);
	attributes(primary);
	numbers();
	handles(primary);
	room(primary);
	streams_of_threads();
	frees();
	resets();
	many_resets();
	return tap_done();
}
