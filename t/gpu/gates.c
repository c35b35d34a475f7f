/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the driver does with a stream that waits for a word of the host: whether calls that change mappings pass it,
 * whatever is queued behind it, and what it takes to let the stream go. And three ways to take the memory of a block
 * away when it is freed: not at all, behind a wait of the host, and by another thread, while the stream waits.
 */
#include "kernels.h"

#include <pthread.h>
#include <sys/prctl.h>

static struct glk_drv *drv;
static struct gpu_work work;
static struct {
	int (*wait_value)(struct CUstream_st *stream, uint64_t addr, uint32_t value,
		unsigned flags);
	int (*write_value)(struct CUstream_st *stream, uint64_t addr, uint32_t value,
		unsigned flags);
	int (*host_alloc)(void **ptr, size_t size, unsigned flags);
	int (*host_free)(void *ptr);
	int (*to_gpu)(
		uint64_t to, const void *from, size_t size, struct CUstream_st *stream);
	int (*from_gpu)(void *to, uint64_t from, size_t size, struct CUstream_st *stream);
	int (*clear)(
		uint64_t to, unsigned value, size_t count, struct CUstream_st *stream);
	int (*unload)(void *module);
	int (*write)(uint64_t to, const void *from, size_t size);
	int (*info)(size_t *free, size_t *total);
} cu;

/* What a stream writes when it comes to a gate, what it waits for, and what it writes behind it. */
static struct words {
	_Atomic uint32_t at, open, past;
	uint32_t unused[13];
} * words;
static uint32_t serial;
static void *spin_kernel;

static const char spin_ptx[] = ".version 7.0\n"
			       ".target sm_70\n"
			       ".address_size 64\n"
			       ".visible .entry spin(.param .u64 ns)\n"
			       "{\n"
			       ".reg .b64 %rd<5>;\n"
			       ".reg .pred %p<2>;\n"
			       "ld.param.u64 %rd1, [ns];\n"
			       "mov.u64 %rd2, %globaltimer;\n"
			       "LOOP:\n"
			       "mov.u64 %rd3, %globaltimer;\n"
			       "sub.u64 %rd4, %rd3, %rd2;\n"
			       "setp.lt.u64 %p1, %rd4, %rd1;\n"
			       "@%p1 bra LOOP;\n"
			       "ret;\n"
			       "}\n";

static void load(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	void *module = NULL, *memory = NULL;
	const struct {
		void **fn;
		const char *name;
	} table[] = {
		{(void **)&cu.wait_value, "cuStreamWaitValue32_v2"},
		{(void **)&cu.write_value, "cuStreamWriteValue32_v2"},
		{(void **)&cu.host_alloc, "cuMemHostAlloc"},
		{(void **)&cu.host_free, "cuMemFreeHost"},
		{(void **)&cu.to_gpu, "cuMemcpyHtoDAsync_v2"},
		{(void **)&cu.from_gpu, "cuMemcpyDtoHAsync_v2"},
		{(void **)&cu.clear, "cuMemsetD32Async"},
		{(void **)&cu.unload, "cuModuleUnload"},
		{(void **)&cu.write, "cuMemcpyHtoD_v2"},
		{(void **)&cu.info, "cuMemGetInfo_v2"},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		*table[i].fn = cuda ? dlsym(cuda, table[i].name) : NULL;
		if (!*table[i].fn)
			tap_bail(table[i].name);
	}
	must_cuda(cu.host_alloc(&memory, sizeof(*words), 1), "no locked memory");
	words = memory;
	memset(words, 0, sizeof(*words));
	must_cuda(work.extra.module_load(&module, spin_ptx), "no module");
	must_cuda(work.extra.module_function(&spin_kernel, module, "spin"), "no kernel");
}

static int spin(uint64_t ns, struct CUstream_st *stream)
{
	void *args[] = {&ns};

	return work.extra.launch(spin_kernel, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

static uint64_t word(_Atomic uint32_t *w)
{
	return (uint64_t)(uintptr_t)w;
}

static void queue_gate(struct CUstream_st *stream, uint32_t n)
{
	must_cuda(cu.write_value(stream, word(&words->at), n, 0), "write value");
	must_cuda(cu.wait_value(stream, word(&words->open), n, 0), "wait value");
}

/* ---- Which calls pass a stream that waits ---- */

#define LATE_MS 1500

static atomic_bool passed, late;

/* Lets the stream go where nobody else does. */
static void *watch(void *arg)
{
	struct timespec ms = {.tv_nsec = 1000000};

	(void)arg;
	for (int i = 0; i < LATE_MS && !atomic_load(&passed); i++)
		nanosleep(&ms, NULL);
	if (!atomic_load(&passed)) {
		atomic_store(&late, true);
		atomic_store(&words->open, serial);
	}
	return NULL;
}

enum behind {
	NOTHING,
	KERNEL,
	CLEAR,
	DOWN,
	UP,
	UP_PAGEABLE,
	OTHER_KERNEL,
	OTHER_UP,
	OTHER_DOWN,
	BEHINDS
};

static const char *const behind_names[BEHINDS] = {
	"nothing",
	"a kernel behind the gate",
	"a fill of 64 MiB behind the gate",
	"a copy of 64 MiB to the host behind the gate",
	"a copy of 64 MiB to the GPU behind the gate",
	"a copy of 16 KiB of pageable memory to the GPU behind the gate",
	"a kernel of 100 ms on another stream",
	"1 GiB to the GPU on another stream",
	"1 GiB to the host on another stream",
};

#define LARGE ((size_t)1 << 30)

static void queue_behind(enum behind what, uint64_t gpu, void *host,
	struct CUstream_st *stream, struct CUstream_st *other)
{
	static char pageable[16 << 10];
	size_t mib64 = (size_t)64 << 20;
	int result = 0;

	switch (what) {
	case KERNEL:
		result = spin(10000, stream);
		break;
	case CLEAR:
		result = cu.clear(gpu, 1, mib64 / 4, stream);
		break;
	case DOWN:
		result = cu.from_gpu(host, gpu, mib64, stream);
		break;
	case UP:
		result = cu.to_gpu(gpu, host, mib64, stream);
		break;
	case UP_PAGEABLE:
		result = cu.to_gpu(gpu, pageable, sizeof(pageable), stream);
		break;
	case OTHER_KERNEL:
		result = spin(100000000, other);
		break;
	case OTHER_UP:
		result = cu.to_gpu(gpu, host, LARGE, other);
		break;
	case OTHER_DOWN:
		result = cu.from_gpu(host, gpu, LARGE, other);
		break;
	default:
		break;
	}
	must_cuda(result, behind_names[what]);
}

#define PAGES 16

static void pass(enum behind what, bool legacy)
{
	const struct glk_place gpu = {GLK_PLACE_GPU, 0};
	const struct glk_grant grant = {gpu, GLK_ACCESS_WRITE};
	struct CUstream_st *stream = NULL, *other = NULL;
	uint64_t addr, page[PAGES], more, memory;
	double t[6] = {0}, begin, past;
	bool held;
	pthread_t watcher;
	void *host = NULL;

	if (!legacy)
		must_cuda(work.stream_create(&stream, NON_BLOCKING), "no stream");
	must_cuda(work.stream_create(&other, NON_BLOCKING), "no stream");
	must_cuda(cu.host_alloc(&host, LARGE, 0), "no locked memory");
	must_cuda(work.mem_alloc(&memory, LARGE), "no memory");
	must(drv->ops->reserve(drv, PAGES * PAGE, PAGE, &addr), "no addresses");
	for (int i = 0; i < PAGES; i++) {
		must(drv->ops->create(drv, gpu, PAGE, 0, &page[i]), "no page");
		must(drv->ops->map(drv, addr + (size_t)i * PAGE, PAGE, page[i]), "map");
		must(drv->ops->set_access(drv, addr + (size_t)i * PAGE, PAGE, &grant, 1),
			"access");
	}
	must_cuda(work.sync(), "wait");
	serial++;
	atomic_store(&passed, false);
	atomic_store(&late, false);
	must(pthread_create(&watcher, NULL, watch, NULL), "no thread");
	queue_gate(stream, serial);
	begin = now_s();
	queue_behind(what, memory, host, stream, other);
	must_cuda(cu.write_value(stream, word(&words->past), serial, 0), "write value");
	t[0] = now_s() - begin;
	while (atomic_load(&words->at) != serial)
		;
	begin = now_s();
	for (int i = 0; i < PAGES; i++)
		must(drv->ops->unmap(drv, addr + (size_t)i * PAGE, PAGE), "unmap");
	t[1] = now_s() - begin;
	begin = now_s();
	for (int i = 0; i < PAGES; i++)
		must(drv->ops->map(drv, addr + (size_t)i * PAGE, PAGE, page[i]), "map");
	t[2] = now_s() - begin;
	begin = now_s();
	for (int i = 0; i < PAGES; i++)
		must(drv->ops->set_access(drv, addr + (size_t)i * PAGE, PAGE, &grant, 1),
			"access");
	t[3] = now_s() - begin;
	begin = now_s();
	must(drv->ops->create(drv, gpu, PAGE, 0, &more), "create");
	must(drv->ops->release(drv, more), "release");
	t[4] = now_s() - begin;
	held = atomic_load(&words->past) != serial;
	atomic_store(&passed, true);
	begin = now_s();
	atomic_store(&words->open, serial);
	while (atomic_load(&words->past) != serial)
		;
	past = now_s() - begin;
	must_cuda(work.sync(), "wait");
	pthread_join(watcher, NULL);
	ok(!atomic_load(&late) && held, "calls pass a gate of %s stream with %s",
		legacy ? "the legacy" : "a", behind_names[what]);
	tap_note(
		"queued in %.1f us; unmap %.1f, map %.1f, access %.1f us a page; create and release %.1f; past the gate %.1f us after it opened",
		t[0] * 1e6, t[1] / PAGES * 1e6, t[2] / PAGES * 1e6, t[3] / PAGES * 1e6,
		t[4] * 1e6, past * 1e6);
	for (int i = 0; i < PAGES; i++) {
		must(drv->ops->unmap(drv, addr + (size_t)i * PAGE, PAGE), "unmap");
		must(drv->ops->release(drv, page[i]), "release");
	}
	must(drv->ops->unreserve(drv, addr, PAGES * PAGE), "unreserve");
	must_cuda(work.mem_free(memory), "free");
	must_cuda(cu.host_free(host), "free");
	must_cuda(work.stream_destroy(other), "end");
	if (stream)
		must_cuda(work.stream_destroy(stream), "end");
}

/* ---- What others do meanwhile ---- */

enum beside {
	ALLOC,
	FREE,
	LOAD,
	LAUNCH,
	UNLOAD,
	SYNC,
	READ,
	WRITE,
	HOST_ALLOC,
	HOST_FREE,
	STREAM,
	INFO,
	BESIDES
};

static const char *const beside_names[BESIDES] = {"cuMemAlloc", "cuMemFree",
	"cuModuleLoadData", "the first launch of a kernel", "cuModuleUnload",
	"cuCtxSynchronize", "cuMemcpyDtoH", "cuMemcpyHtoD of 64 MiB, pageable",
	"cuMemHostAlloc", "cuMemFreeHost", "cuStreamCreate and cuStreamDestroy",
	"cuMemGetInfo"};

static struct {
	enum beside what;
	uint64_t gpu;
	void *host, *module, *function, *pageable;
	struct CUstream_st *other;
	int result;
	atomic_bool begun, ended;
	double took;
} beside;

/* Queued on another stream, which does not wait for the one at the gate. */
static void *do_beside(void *arg)
{
	struct CUstream_st *stream = NULL;
	double begin = now_s();
	size_t free, total;
	uint64_t ns = 1000;
	void *args[] = {&ns};

	(void)arg;
	work.extra.context_set(work.extra.primary);
	atomic_store(&beside.begun, true);
	switch (beside.what) {
	case ALLOC:
		beside.result = work.mem_alloc(&beside.gpu, 64 << 20);
		break;
	case FREE:
		beside.result = work.mem_free(beside.gpu);
		break;
	case LOAD:
		beside.result = work.extra.module_load(&beside.module, spin_ptx);
		break;
	case LAUNCH:
		beside.result = work.extra.module_function(
			&beside.function, beside.module, "spin");
		if (!beside.result)
			beside.result = work.extra.launch(beside.function, 1, 1, 1, 1, 1,
				1, 0, beside.other, args, NULL);
		break;
	case UNLOAD:
		beside.result = cu.unload(beside.module);
		break;
	case SYNC:
		beside.result = work.sync();
		break;
	case READ:
		beside.result = work.mem_read(&total, work.counters, 8);
		break;
	case WRITE:
		beside.result = cu.write(beside.gpu, beside.pageable, 64 << 20);
		break;
	case HOST_ALLOC:
		beside.result = cu.host_alloc(&beside.host, 64 << 20, 0);
		break;
	case HOST_FREE:
		beside.result = cu.host_free(beside.host);
		break;
	case STREAM:
		beside.result = work.stream_create(&stream, NON_BLOCKING);
		if (!beside.result)
			beside.result = work.stream_destroy(stream);
		break;
	case INFO:
		beside.result = cu.info(&free, &total);
		break;
	default:
		break;
	}
	beside.took = now_s() - begin;
	atomic_store(&beside.ended, true);
	return NULL;
}

static void meanwhile(enum beside what, struct CUstream_st *stream)
{
	const struct glk_place gpu = {GLK_PLACE_GPU, 0};
	struct timespec pause = {.tv_nsec = 20000000};
	pthread_t watcher, other;
	double begin, took;
	uint64_t addr, page;
	bool before;

	must(drv->ops->reserve(drv, PAGE, PAGE, &addr), "no addresses");
	must(drv->ops->create(drv, gpu, PAGE, 0, &page), "no page");
	must(gpu_map(drv, 0, addr, PAGE, page), "map");
	must_cuda(work.sync(), "wait");
	serial++;
	atomic_store(&passed, false);
	atomic_store(&late, false);
	atomic_store(&beside.begun, false);
	atomic_store(&beside.ended, false);
	beside.what = what;
	must(pthread_create(&watcher, NULL, watch, NULL), "no thread");
	queue_gate(stream, serial);
	while (atomic_load(&words->at) != serial)
		;
	must(pthread_create(&other, NULL, do_beside, NULL), "no thread");
	while (!atomic_load(&beside.begun))
		;
	nanosleep(&pause, NULL);
	before = atomic_load(&beside.ended);
	begin = now_s();
	must(drv->ops->unmap(drv, addr, PAGE), "unmap");
	took = now_s() - begin;
	atomic_store(&passed, true);
	atomic_store(&words->open, serial);
	pthread_join(watcher, NULL);
	pthread_join(other, NULL);
	must_cuda(work.sync(), "wait");
	tap_note("%s beside a gate: %s it (%d, %.3f ms); unmap %s, %.3f ms",
		beside_names[what], before ? "passes" : "waits for", beside.result,
		beside.took * 1e3,
		atomic_load(&late) ? "WAITED UNTIL IT WAS OPENED" : "passes", took * 1e3);
	must(drv->ops->release(drv, page), "release");
	must(drv->ops->unreserve(drv, addr, PAGE), "unreserve");
}

static void all_beside(void)
{
	struct CUstream_st *stream = NULL;

	must_cuda(work.stream_create(&stream, NON_BLOCKING), "no stream");
	must_cuda(work.stream_create(&beside.other, NON_BLOCKING), "no stream");
	beside.pageable = calloc(1, 64 << 20);
	for (int legacy = 0; legacy < 2; legacy++) {
		tap_note("%s stream at the gate:", legacy ? "the legacy" : "a");
		for (int what = 0; what < BESIDES; what++) {
			if (what == FREE || what == WRITE)
				must_cuda(work.mem_alloc(&beside.gpu, 64 << 20),
					"no memory");
			meanwhile(what, legacy ? NULL : stream);
			if (what == ALLOC || what == WRITE)
				must_cuda(work.mem_free(beside.gpu), "free");
		}
	}
	free(beside.pageable);
	ok(true, "what others do beside a gate was told");
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* From the stream's coming to a gate until it is past it, where the host opens it at once. */
static void latency(bool legacy)
{
	enum { ROUNDS_OF = 2000 };
	static double took[ROUNDS_OF], call[ROUNDS_OF];
	struct CUstream_st *stream = NULL;
	double begin;

	if (!legacy)
		must_cuda(work.stream_create(&stream, NON_BLOCKING), "no stream");
	for (int i = 0; i < ROUNDS_OF; i++) {
		serial++;
		must_cuda(spin(20000, stream), "a kernel");
		begin = now_s();
		queue_gate(stream, serial);
		call[i] = now_s() - begin;
		must_cuda(cu.write_value(stream, word(&words->past), serial, 0),
			"write value");
		while (atomic_load(&words->at) != serial)
			;
		begin = now_s();
		atomic_store(&words->open, serial);
		while (atomic_load(&words->past) != serial)
			;
		took[i] = now_s() - begin;
	}
	must_cuda(work.sync(), "wait");
	qsort(took, ROUNDS_OF, sizeof(*took), by_size);
	qsort(call, ROUNDS_OF, sizeof(*call), by_size);
	tap_note(
		"a gate of %s stream: queued in %.1f us (%.1f at most in 99 of 100), passed %.1f us after it opened (%.1f)",
		legacy ? "the legacy" : "a", call[ROUNDS_OF / 2] * 1e6,
		call[ROUNDS_OF * 99 / 100] * 1e6, took[ROUNDS_OF / 2] * 1e6,
		took[ROUNDS_OF * 99 / 100] * 1e6);
	if (stream)
		must_cuda(work.stream_destroy(stream), "end");
}

/* ---- Blocks whose memory goes ---- */

enum way { STAYS, WAITS, GATE, GATE_AHEAD, WAYS };

static const char *const way_names[WAYS] = {
	"the memory stays", "the host waits", "a gate", "a gate, mapped ahead"};

/* Blocks of a page each, at addresses that are used once. */
#define HAVE  256
#define PAIRS 2000

static struct block {
	uint64_t addr, page;
	uint32_t gate;
} ring[HAVE], freed[HAVE];
static _Atomic uint32_t made, taken, gone, went;
static atomic_bool ends, sleeps;
static uint64_t addresses;
static _Atomic uint64_t next_address;

static void map_one(struct block *b)
{
	b->addr = addresses + (atomic_fetch_add(&next_address, 2) + 1) * PAGE;
	must(gpu_map(drv, 0, b->addr, PAGE, b->page), "map");
}

/* The other thread: takes the memory of what was freed away once the stream is at its gate, and opens that. */
static void *helper(void *arg)
{
	struct timespec nap = {.tv_nsec = 5000};
	enum way way = *(enum way *)arg;

	prctl(PR_SET_TIMERSLACK, 1);
	while (!atomic_load(&ends) || atomic_load(&went) != atomic_load(&gone)) {
		uint32_t to = atomic_load(&gone), from = atomic_load(&went), at, n;

		n = atomic_load(&words->at);
		for (at = from; at != to && (int32_t)(freed[at % HAVE].gate - n) <= 0;
			at++)
			must(drv->ops->unmap(drv, freed[at % HAVE].addr, PAGE), "unmap");
		if (at == from) {
			if (atomic_load(&sleeps))
				nanosleep(&nap, NULL);
			continue;
		}
		atomic_store(&words->open, n);
		for (; from != at; from++) {
			struct block *b = &ring[atomic_load(&made) % HAVE];

			b->page = freed[from % HAVE].page;
			if (way == GATE_AHEAD)
				map_one(b);
			atomic_fetch_add(&made, 1);
			atomic_store(&went, from + 1);
		}
	}
	return NULL;
}

static double pairs(enum way way, uint64_t kernel_ns, int kernels, int a_time, bool naps,
	struct CUstream_st *stream)
{
	struct block b[8];
	pthread_t thread;
	double begin;

	atomic_store(&ends, false);
	atomic_store(&sleeps, naps);
	if (way >= GATE)
		must(pthread_create(&thread, NULL, helper, &way), "no thread");
	begin = now_s();
	for (int i = 0; i < PAIRS; i += a_time) {
		for (int k = 0; k < a_time; k++) {
			while (atomic_load(&made) == atomic_load(&taken))
				;
			b[k] = ring[atomic_load(&taken) % HAVE];
			atomic_fetch_add(&taken, 1);
			if (way == WAITS || way == GATE)
				map_one(&b[k]);
			must_cuda(cu.clear(b[k].addr, 1, 1024, stream), "fill");
			for (int j = 0; j < kernels; j++)
				must_cuda(spin(kernel_ns, stream), "a kernel");
		}
		for (int k = 0; k < a_time; k++) {
			if (way == WAITS) {
				must_cuda(work.stream_sync(stream), "wait");
				must(drv->ops->unmap(drv, b[k].addr, PAGE), "unmap");
			}
			if (way >= GATE) {
				b[k].gate = ++serial;
				freed[atomic_load(&gone) % HAVE] = b[k];
				queue_gate(stream, serial);
				atomic_fetch_add(&gone, 1);
				continue;
			}
			ring[atomic_load(&made) % HAVE] = b[k];
			atomic_fetch_add(&made, 1);
		}
	}
	must_cuda(work.sync(), "wait");
	begin = now_s() - begin;
	atomic_store(&ends, true);
	if (way >= GATE)
		pthread_join(thread, NULL);
	return begin / PAIRS * 1e6;
}

static void blocks(struct CUstream_st *stream, const char *name)
{
	static const struct {
		uint64_t ns;
		int kernels, a_time;
	} jobs[] = {
		{2000, 0, 1}, {2000, 4, 1}, {20000, 2, 1}, {20000, 8, 1}, {20000, 2, 4}};
	const struct glk_place gpu = {GLK_PLACE_GPU, 0};

	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++)
		for (int way = 0; way < WAYS; way++) {
			bool mapped = way == STAYS || way == GATE_AHEAD;
			double us[2];

			atomic_store(&made, 0);
			atomic_store(&taken, 0);
			atomic_store(&gone, 0);
			atomic_store(&went, 0);
			atomic_store(&next_address, 0);
			must(drv->ops->reserve(drv, 16384 * PAGE, PAGE, &addresses),
				"no addresses");
			for (int k = 0; k < HAVE; k++) {
				must(drv->ops->create(drv, gpu, PAGE, 0, &ring[k].page),
					"no page");
				if (mapped)
					map_one(&ring[k]);
			}
			atomic_store(&made, HAVE);
			for (int naps = 0; naps < (way >= GATE ? 2 : 1); naps++)
				us[naps] = pairs(way, jobs[i].ns, jobs[i].kernels,
					jobs[i].a_time, naps, stream);
			tap_note(
				"%s stream, %d kernels of %d us, %d blocks at a time, %s: %.1f us a block%s",
				name, jobs[i].kernels, (int)jobs[i].ns / 1000,
				jobs[i].a_time, way_names[way], us[0],
				way >= GATE ? ", with a thread that turns" : "");
			if (way >= GATE)
				tap_note("  with one that sleeps: %.1f", us[1]);
			for (int k = 0; k < HAVE; k++) {
				struct block *b =
					&ring[(atomic_load(&taken) + (unsigned)k) % HAVE];

				if (mapped)
					must(drv->ops->unmap(drv, b->addr, PAGE),
						"unmap");
				must(drv->ops->release(drv, b->page), "release");
			}
			must(drv->ops->unreserve(drv, addresses, 16384 * PAGE),
				"unreserve");
		}
}

int main(void)
{
	struct CUstream_st *stream = NULL;

	drv = gpu_open();
	gpu_work_init(&work);
	load();
	tap_plan_later();
	for (int legacy = 0; legacy < 2; legacy++) {
		latency(legacy);
		for (int what = 0; what < BEHINDS; what++)
			pass(what, legacy);
	}
	all_beside();
	blocks(NULL, "legacy");
	must_cuda(work.stream_create(&stream, NON_BLOCKING), "no stream");
	blocks(stream, "own");
	must_cuda(work.stream_destroy(stream), "end");
	return tap_done();
}
