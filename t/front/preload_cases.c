/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a program gets from the hooks, case by case. Runs under the preload; knows the driver's
 * figures, and nothing of glake.
 */
#define TAP_NO_LOG
#include "tap.h"

#include "preload_calls.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static struct calls cu;
static const struct fake_state *fake;
static struct CUctx_st *primary;

static fake_address plain(size_t size)
{
	fake_address ptr = 0;

	return cu.cuMemAlloc(&ptr, size) ? 0 : ptr;
}

static fake_address ordered(size_t size, struct CUstream_st *stream)
{
	fake_address ptr = 0;

	return cu.cuMemAllocAsync(&ptr, size, stream) ? 0 : ptr;
}

/* Calls of the driver's own function since the last question about it. */
static int driver_calls(const char *name)
{
	static struct {
		const char *name;
		int calls;
	} before[16];
	int now = fake->count(name), since, i;

	for (i = 0; before[i].name && strcmp(before[i].name, name); i++)
		;
	since = now - before[i].calls;
	before[i].name = name;
	before[i].calls = now;
	return since;
}

static void sizes(void)
{
	fake_address ptr = 7;

	ptr = plain(MIB);
	ok(ptr, "a block");
	memset((void *)(uintptr_t)ptr, 1, MIB);
	is_int(driver_calls("cuMemAlloc_v2"), 0, "not the driver's");
	ok(driver_calls("cuMemCreate") > 0, "but made of its pages");
	is_int(cu.cuMemFree(ptr), 0, "freed");
	is_int(driver_calls("cuMemFree_v2"), 0, "not by the driver");
	is_int(cu.cuMemAlloc(&ptr, 0), 1, "size 0 is refused by the driver");
	is_int(cu.cuMemAlloc(NULL, MIB), 1, "and a place that is none");
	is_int(driver_calls("cuMemAlloc_v2"), 2, "  it was asked");
	is_int(cu.cuMemAllocAsync(&ptr, 0, NULL), 1, "size 0 in order");
	is_int(cu.cuMemAlloc(&ptr, SIZE_MAX), 2, "more than there is: out of memory");
	is_int(cu.cuMemAlloc(&ptr, SIZE_MAX - 100), 2, "and what rounds up to nothing");
	is_int(cu.cuMemAlloc(&ptr, (size_t)1 << 62), 2,
		"and more addresses than there are");
	is_int(cu.cuMemAllocAsync(&ptr, 2 * FAKE_MEMORY, NULL), 2,
		"and more than a GPU has");
	is_int(driver_calls("cuMemAlloc_v2"), 0, "the driver was not asked");
	ptr = plain(FAKE_MEMORY - 64 * MIB);
	ok(ptr, "nearly all of it");
	ok(!plain(128 * MIB), "is all of it");
	is_int(cu.cuMemFree(ptr), 0, "freed");
	ptr = plain(128 * MIB);
	ok(ptr, "there again");
	is_int(cu.cuMemFree(ptr), 0, "freed");
}

static void frees(void)
{
	fake_address ptr = plain(MIB), other = plain(MIB), q;
	struct CUstream_st *stream;

	driver_calls("cuMemFree_v2");
	is_int(cu.cuMemFree(0), 0, "nothing is freed");
	is_int(driver_calls("cuMemFree_v2"), 1, "by the driver");
	is_int(cu.cuMemFree(ptr + 512), 1, "the inside of a block is refused");
	is_int(cu.cuMemFree(ptr), 0, "its beginning is not");
	is_int(cu.cuMemFree(ptr), 1, "a double free is refused");
	is_int(cu.cuMemFreeAsync(ptr, NULL), 1, "in order too");
	driver_calls("cuMemFree_v2");
	is_int(cu.cuMemFree(0x1234567800), 1, "what is nobody's is the driver's");
	is_int(driver_calls("cuMemFree_v2"), 1, "  to refuse");
	is_int(cu.cuMemFree(other), 0, "another block");
	is_int(cu.cuStreamCreate(&stream, 0), 0, "a stream");
	ptr = plain(MIB);
	q = ordered(MIB, stream);
	driver_calls("cuCtxSynchronize");
	is_int(cu.cuMemFreeAsync(ptr, stream), 0, "a plain block freed in order");
	is_int(cu.cuMemFree(q), 0, "and the other way round");
	is_int(driver_calls("cuCtxSynchronize"), 0, "which waits for nothing");
	ptr = plain(MIB);
	is_int(cu.cuMemFree(ptr), 0, "a plain block, freed as such");
	is_int(driver_calls("cuCtxSynchronize"), 1, "waits for the GPU");
	is_int(cu.cuStreamDestroy(stream), 0, "the stream's end");
}

/* The driver's own blocks, which a context that is not served gets. */
static void foreign(void)
{
	struct CUctx_st *second = fake->context(0);
	fake_address theirs = 0, base = 0, ours = plain(MIB);
	size_t size = 0;
	char handle[64];

	cu.cuCtxSetCurrent(second);
	/* asked twice if the library has all memory, which it gives back then */
	cu.cuMemFree(plain(3 * MIB));
	driver_calls("cuMemAlloc_v2");
	theirs = plain(3 * MIB);
	is_int(driver_calls("cuMemAlloc_v2"), 1, "a second context is the driver's");
	is_int(cu.cuMemFree(ours), 0, "a block may be freed in it");
	cu.cuCtxSetCurrent(primary);
	driver_calls("cuMemFree_v2");
	is_int(cu.cuMemGetAddressRange(&base, &size, theirs + MIB), 0,
		"range of the driver's");
	ok(base == theirs && size == 3 * MIB, "  as it is");
	is_int(cu.cuIpcGetMemHandle(handle, theirs), 0, "a handle of the driver's");
	is_int(cu.cuMemFree(theirs), 0, "freed in the first");
	is_int(driver_calls("cuMemFree_v2"), 1, "by the driver");
	ours = plain(2 * MIB + 5);
	is_int(cu.cuMemGetAddressRange(&base, &size, ours + MIB), 0, "range of a block");
	ok(base == ours && size == 2 * MIB + 5, "  as it is");
	is_int(cu.cuMemGetAddressRange(NULL, &size, ours), 0, "half of it");
	is_int(cu.cuMemGetAddressRange(NULL, NULL, ours), 0, "none of it");
	is_int(cu.cuMemFree(ours), 0, "freed");
	ok(cu.cuMemGetAddressRange(&base, &size, ours), "no range of what was freed");
	cu.cuCtxSetCurrent(NULL);
	is_int(cu.cuMemAlloc(&ours, MIB), 201, "no context, no memory");
	cu.cuCtxSetCurrent(primary);
}

static void rows(void)
{
	fake_address ptr = 0;
	size_t pitch = 0;

	driver_calls("cuMemAllocPitch_v2");
	is_int(cu.cuMemAllocPitch(&ptr, &pitch, 1001, 5, 8), 0, "rows");
	is_int((int64_t)pitch, 1024, "of a pitch");
	memset((void *)(uintptr_t)ptr, 2, 5 * pitch);
	is_int(cu.cuMemFree(ptr), 0, "freed");
	is_int(driver_calls("cuMemAllocPitch_v2"), 0, "not the driver's");
	is_int(cu.cuMemAllocPitch(&ptr, &pitch, 1001, 5, 3), 1, "no such element");
	is_int(driver_calls("cuMemAllocPitch_v2"), 1, "  says the driver");
	ok(cu.cuMemAllocPitch(&ptr, &pitch, SIZE_MAX / 2, 3, 4),
		"more than can be counted");
	ok(cu.cuMemAllocPitch(&ptr, &pitch, SIZE_MAX, 1, 4), "in one row");
}

static void figures(void)
{
	size_t left = 0, total = 0, before = 0;
	fake_address ptr;

	/* small blocks that wait in bins merge before pages are mapped */
	cu.cuMemFree(plain(256 * MIB));
	cu.cuMemGetInfo(&before, &total);
	ptr = plain(256 * MIB);
	cu.cuMemGetInfo(&left, &total);
	is_int((int64_t)(before - left), 256 * MIB, "less is free by a block");
	is_int((int64_t)total, FAKE_MEMORY, "of all there is");
	cu.cuMemFree(ptr);
	cu.cuMemGetInfo(&left, &total);
	is_int((int64_t)left, (int64_t)before,
		"pages that are kept are free to the program");
}

/* Memory that is only free behind work: plain memory is waited for. */
static void waits(void)
{
	struct CUstream_st *stream;
	fake_address ptr;

	cu.cuStreamCreate(&stream, 0);
	ptr = ordered(900 * MIB, stream);
	ok(ptr, "most of the memory, in order");
	stream->held = true;
	is_int(cu.cuMemFreeAsync(ptr, stream), 0, "is freed behind work");
	ptr = plain(900 * MIB);
	ok(ptr, "and asked for to be used at once");
	ok(!stream->held, "the work was waited for");
	is_int(cu.cuMemFree(ptr), 0, "freed");
	cu.cuStreamDestroy(stream);
	/* the handle comes back for another stream */
	cu.cuStreamCreate(&stream, 0);
	ptr = ordered(MIB, stream);
	is_int(cu.cuMemFreeAsync(ptr, stream), 0,
		"a stream of a handle that was another's");
	cu.cuStreamDestroy(stream);
}

static void captures(void)
{
	struct CUstream_st *stream, *other;
	fake_address before, late[3], graphs;
	void *graph;

	cu.cuStreamCreate(&stream, 0);
	cu.cuStreamCreate(&other, 0);
	before = ordered(MIB, stream);
	late[0] = plain(400 * MIB);
	late[1] = plain(100 * MIB);
	driver_calls("cuMemAllocAsync");
	driver_calls("cuMemFreeAsync");
	is_int(cu.cuStreamBeginCapture(stream, 0), 0, "a capture");
	graphs = ordered(MIB, stream);
	is_int(driver_calls("cuMemAllocAsync"), 1, "has memory of the driver");
	is_int(cu.cuMemFreeAsync(graphs, stream), 0, "and frees it");
	is_int(driver_calls("cuMemFreeAsync"), 1, "  by the driver");
	is_int(cu.cuMemFreeAsync(before, stream), 1, "but not what is none of it");
	graphs = ordered(MIB, other);
	is_int(driver_calls("cuMemAllocAsync"), 0, "another stream is served");
	is_int(cu.cuMemFreeAsync(graphs, other), 0, "  and freed on");
	late[2] = plain(MIB);
	ok(late[2], "plain memory meanwhile");
	for (int i = 0; i < 3; i++)
		is_int(cu.cuMemFree(late[i]), 0, "is freed");
	is_int(cu.cuMemFree(late[0]), 1, "once");
	is_int(cu.cuMemFreeAsync(late[1], other), 1, "in one way");
	ok(!fake->broken(), "and the capture lives");
	ok(!plain(600 * MIB), "what was freed is not free yet");
	ok(!fake->broken(), "nor waited for");
	is_int(cu.cuStreamEndCapture(stream, &graph), 0, "the capture ends");
	late[0] = plain(900 * MIB);
	ok(late[0], "now it is");
	is_int(cu.cuMemFree(late[0]), 0, "freed");
	is_int(cu.cuMemFreeAsync(before, stream), 0, "as is the block from before");
	is_int(cu.cuStreamBeginCapture(other, 0), 0, "a stream captures");
	is_int(cu.cuStreamDestroy(other), 0, "and is destroyed");
	late[0] = plain(MIB);
	driver_calls("cuCtxSynchronize");
	is_int(cu.cuMemFree(late[0]), 0, "a free");
	is_int(driver_calls("cuCtxSynchronize"), 1, "waits again");
	cu.cuStreamDestroy(stream);
}

/* A stream that was drawn into a capture, and is destroyed before that is over. */
static void drawn_in(void)
{
	struct CUstream_st *stream, *drawn;
	fake_address ptr;
	void *graph;

	cu.cuStreamCreate(&stream, 0);
	cu.cuStreamCreate(&drawn, 0);
	ptr = ordered(MIB, drawn);
	is_int(cu.cuMemFreeAsync(ptr, drawn), 0, "work on a stream");
	cu.cuStreamBeginCapture(stream, 0);
	drawn->captures = true;
	driver_calls("cuStreamDestroy_v2");
	is_int(cu.cuStreamDestroy(drawn), 0, "that is destroyed in a capture of another");
	is_int(driver_calls("cuStreamDestroy_v2"), 0, "is there as long as that lasts");
	drawn->captures = false;
	is_int(cu.cuStreamEndCapture(stream, &graph), 0, "when it ends");
	is_int(driver_calls("cuStreamDestroy_v2"), 1, "it goes");
	cu.cuStreamDestroy(stream);
	ptr = plain(900 * MIB);
	ok(ptr, "memory of all streams");
	is_int(cu.cuMemFree(ptr), 0, "freed");
}

struct props {
	unsigned type, handles;
	int location[2];
	void *win32;
	size_t most;
	unsigned short usage;
	unsigned char reserved[54];
};

static int from_pool(void *pool)
{
	fake_address ptr;

	driver_calls("cuMemAllocFromPoolAsync");
	if (cu.cuMemAllocFromPoolAsync(&ptr, MIB, pool, NULL) ||
		cu.cuMemFreeAsync(ptr, NULL))
		return -1;
	return driver_calls("cuMemAllocFromPoolAsync");
}

static int without_pool(void)
{
	driver_calls("cuMemAllocAsync");
	cu.cuMemFreeAsync(ordered(MIB, NULL), NULL);
	return driver_calls("cuMemAllocAsync");
}

static void pools(void)
{
	struct props props = {.type = 1, .location = {1, 0}};
	void *first, *own, *shared, *away;

	cu.cuDeviceGetDefaultMemPool(&first, 0);
	cu.cuMemPoolCreate(&own, &props);
	props.handles = 1;
	cu.cuMemPoolCreate(&shared, &props);
	props = (struct props){.type = 1, .location = {1, 1}};
	cu.cuMemPoolCreate(&away, &props);
	is_int(from_pool(first), 0, "the pool there is at first is served");
	is_int(from_pool(own), 0, "and one without promises");
	is_int(from_pool(shared), 1, "one that can be shared is the driver's");
	is_int(from_pool(away), 1, "and one of another GPU");
	is_int(from_pool((void *)77), 1, "and one that nobody knows");
	is_int(without_pool(), 0, "memory without a pool is served");
	cu.cuDeviceSetMemPool(0, shared);
	is_int(without_pool(), 1, "unless that is to come from one that is shared");
	cu.cuDeviceSetMemPool(0, own);
	is_int(without_pool(), 0, "or not");
	cu.cuDeviceSetMemPool(0, first);
	is_int(without_pool(), 0, "as at first");
	cu.cuMemPoolDestroy(own);
	is_int(from_pool(own), 1, "one that has ended is not known");
}

static size_t pool_has(void *pool, unsigned attribute)
{
	unsigned long long value = 0;

	return cu.cuMemPoolGetAttribute(pool, attribute, &value) ? SIZE_MAX : value;
}

/* What a pool says and gives back: its own 4096 and 512 bytes, see preload_cuda_memory.h, and the library's. */
static void pool_figures(void)
{
	enum { RESERVED = 5, RESERVED_HIGH, USED, USED_HIGH };
	struct props props = {.type = 1, .location = {1, 0}, .handles = 1};
	unsigned long long zero = 0, one = 1;
	void *first, *own, *shared;
	size_t used, reserved;
	fake_address ptr;
	int follows = 0;

	cu.cuDeviceGetDefaultMemPool(&first, 0);
	cu.cuMemPoolCreate(&shared, &props);
	props.handles = 0;
	cu.cuMemPoolCreate(&own, &props);
	cu.cuMemPoolTrimTo(first, 0);
	used = pool_has(first, USED);
	reserved = pool_has(first, RESERVED);
	is_int(cu.cuMemAllocFromPoolAsync(&ptr, 64 * MIB, own, NULL), 0, "64 MiB");
	is_int(pool_has(first, USED) - used, 64 * MIB, "are used");
	is_int(pool_has(own, USED), pool_has(first, USED),
		"in each pool that is served, since they have their memory in common");
	ok(pool_has(own, RESERVED) >= reserved + 64 * MIB - used, "and held");
	is_int(pool_has(shared, USED), 512, "one that can be shared has its own alone");
	is_int(pool_has(shared, RESERVED), 4096, "as the driver says it");
	is_int(pool_has(own, 4), 4096, "a threshold is the driver's");
	is_int(cu.cuMemPoolGetAttribute(own, 1, &follows), 0, "and so is an int");
	is_int(follows, 1, "with the bytes of one");
	cu.cuMemFreeAsync(ptr, NULL);
	is_int(pool_has(own, USED), used, "freed");
	ok(pool_has(own, USED_HIGH) >= used + 64 * MIB, "a peak is kept");
	is_int(cu.cuMemPoolSetAttribute(shared, USED_HIGH, &zero), 0, "of another pool");
	ok(pool_has(own, USED_HIGH) >= used + 64 * MIB, "it is not set");
	is_int(cu.cuMemPoolSetAttribute(own, USED_HIGH, &one), 1, "nor to another value");
	ok(pool_has(own, USED_HIGH) >= used + 64 * MIB, "than 0");
	is_int(cu.cuMemPoolSetAttribute(own, USED_HIGH, &zero), 0, "to 0");
	is_int(pool_has(own, USED_HIGH), used, "it is what is used now");
	is_int(pool_has(own, RESERVED_HIGH), pool_has(own, RESERVED),
		"and so is that of what is held");
	ok(pool_has(own, RESERVED) >= 64 * MIB, "memory is held");
	is_int(cu.cuMemPoolTrimTo(shared, 0), 0, "a trim of another pool");
	ok(pool_has(own, RESERVED) >= 64 * MIB, "leaves it");
	is_int(cu.cuMemPoolTrimTo(own, 128 * MIB), 0, "one that keeps more");
	ok(pool_has(own, RESERVED) >= 64 * MIB, "too");
	is_int(cu.cuMemPoolTrimTo(own, 0), 0, "and one that keeps nothing");
	is_int(pool_has(own, RESERVED), reserved, "gives it to the driver");
	is_int(pool_has(own, RESERVED_HIGH) >= reserved + 64 * MIB - used, 1,
		"the peak of what was held");
	is_int(cu.cuMemPoolSetAttribute(first, RESERVED_HIGH, &zero), 0, "is set");
	is_int(pool_has(first, RESERVED_HIGH), reserved, "to what is held now");
	cu.cuMemPoolDestroy(own);
	is_int(pool_has(own, USED), 512, "one that has ended has its own alone");
}

/* What cuGetProcAddress answers is replaced where it is a function that we know. */
static void versions(void)
{
	fake_result (*free_v9)(fake_address, int);
	proc_v12000 *proc;
	fake_address ptr = 0;
	unsigned status = 9;
	void *fn, *own;

	fn = dlsym(driver_open(), "cuGetProcAddress_v2");
	memcpy(&proc, &fn, sizeof(fn));
	is_int(proc("cuMemFree", &fn, 13000, 0, &status), 0, "a newer cuMemFree");
	memcpy(&free_v9, &fn, sizeof(fn));
	is_int(free_v9(77, 0), 1, "is the driver's");
	is_int(fake->count("cuMemFree_v9"), 1, "  own");
	is_int(proc("cuMemAllocAsync", &fn, 12000, 2, &status), 0, "one for threads");
	memcpy(&cu.cuMemAllocAsync, &fn, sizeof(fn));
	driver_calls("cuMemAllocAsync_ptsz");
	ptr = ordered(MIB, NULL);
	is_int(driver_calls("cuMemAllocAsync_ptsz"), 0, "is served");
	is_int(cu.cuMemFree(ptr), 0, "  and freed");
	is_int(proc("cuNoSuchThing", &fn, 12000, 0, &status), 0, "what there is not");
	ok(!fn && status == 1, "  stays so");
	is_int(proc("cuMemFree", &fn, 99000, 0, &status), 1, "an error stays one");
	own = dlsym(RTLD_DEFAULT, "malloc");
	ok(own == (void *)malloc, "dlsym finds what is nobody's");
	ok(!dlsym(RTLD_DEFAULT, "no_such_thing") && dlerror(),
		"and not what is not there");
	ok(!dlsym(driver_open(), "cuNoSuchThing"), "in the driver neither");
	has_str(dlerror(), "cuNoSuchThing", "  and says so");
}

static void *work(void *arg)
{
	struct CUstream_st *stream;
	uintptr_t wrong = 0;

	calls_use(&cu, 0);
	cu.cuStreamCreate(&stream, 0);
	for (int i = 0; i < 300; i++) {
		size_t size = 1000 + (size_t)i * 777;
		fake_address p = plain(size), q = ordered(size, stream);

		if (!p || !q) {
			wrong++;
			continue;
		}
		memset((void *)(uintptr_t)p, i, size);
		memset((void *)(uintptr_t)q, i + 1, size);
		wrong += ((char *)(uintptr_t)p)[size - 1] != (char)i;
		wrong += cu.cuMemFree(p) != 0;
		wrong += cu.cuMemFreeAsync(q, stream) != 0;
	}
	cu.cuStreamDestroy(stream);
	return (void *)wrong;
}

static void threads(void)
{
	pthread_t thread[4];
	uintptr_t wrong = 0;
	void *found;

	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, work, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], &found);
		wrong += (uintptr_t)found;
	}
	is_int((int64_t)wrong, 0, "threads");
}

static void resets(void)
{
	fake_address ptr = plain(300 * MIB);

	ok(ptr && fake->used(0) >= 300 * MIB, "memory");
	is_int(cu.cuDevicePrimaryCtxReset(0), 0, "a reset");
	is_int((int64_t)fake->used(0), 0, "takes it");
	is_int(cu.cuMemFree(ptr), 1, "it is nobody's now");
	ptr = plain(300 * MIB);
	driver_calls("cuMemAlloc_v2");
	ok(ptr && fake->used(0) >= 300 * MIB, "there is memory again");
	is_int(cu.cuMemFree(ptr), 0, "and a free of it");
	is_int(driver_calls("cuMemAlloc_v2"), 0, "not of the driver");
}

/* Another GPU, and one that may reach its memory. */
static void gpus(void)
{
	struct CUctx_st *other = calls_use(&cu, 1);
	fake_address ptr = plain(MIB);

	driver_calls("cuMemAlloc_v2");
	ok(ptr && fake->used(1), "memory of another GPU");
	is_int((int64_t)fake->grants(), 1, "which it alone may use");
	cu.cuCtxSetCurrent(primary);
	is_int(cu.cuMemFree(ptr), 0, "freed where the first is current");
	is_int(cu.cuCtxEnablePeerAccess(other, 0), 0, "it opens its memory to the first");
	cu.cuCtxSetCurrent(other);
	ptr = plain(64 * MIB);
	is_int((int64_t)fake->grants(), 2, "which may use new memory too");
	is_int(cu.cuMemFree(ptr), 0, "freed");
	cu.cuCtxSetCurrent(primary);
	is_int(cu.cuCtxDisablePeerAccess(other), 0, "no more");
	cu.cuCtxSetCurrent(other);
	ptr = plain(256 * MIB);
	is_int((int64_t)fake->grants(), 1, "from now on it alone again");
	is_int(cu.cuMemFree(ptr), 0, "freed");
	is_int(driver_calls("cuMemAlloc_v2"), 0, "all of it ours");
	cu.cuCtxSetCurrent(primary);
}

/* A right that was given before the first memory. Runs in a child that has used nothing yet. */
static int rights_come_first(void)
{
	struct CUctx_st *other = calls_use(&cu, 1);
	struct CUctx_st *first = calls_use(&cu, 0);
	fake_address ptr;

	if (cu.cuCtxEnablePeerAccess(other, 0))
		return 1;
	cu.cuCtxSetCurrent(other);
	ptr = plain(64 * MIB);
	cu.cuCtxSetCurrent(first);
	return !ptr ? 2 : fake->count("cuMemAlloc_v2") ? 3 : fake->grants() != 2 ? 4 : 0;
}

static void early_rights(void)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(rights_come_first());
	ok(waitpid(pid, &status, 0) == pid, "a child");
	is_int(status, 0, "a right that comes before the memory");
}

int main(int count, char **arguments)
{
	tap_plan_later();
	fake = driver_state();
	cu = calls_by(count > 1 ? arguments[1] : "dlsym");
	early_rights();
	primary = calls_use(&cu, 0);
	sizes();
	frees();
	foreign();
	rows();
	figures();
	waits();
	captures();
	drawn_in();
	pools();
	pool_figures();
	threads();
	resets();
	gpus();
	versions();
	return tap_done();
}
