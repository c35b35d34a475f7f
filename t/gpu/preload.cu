// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Small programs of the kind that every CUDA user has written, which know nothing of glake. Each
 * prints what it computed, and that must not depend on where the memory comes from:
 *
 *	preload PROGRAM
 *
 * preload.py builds it with the static and with the shared runtime and runs each program plain
 * and under libglake-preload.so.
 */
#include "preload_ipc.cuh"
#include "preload_odd.cuh"

#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

/* Vectors of many sizes, added. */
static void vectors()
{
	double sum = 0;

	for (size_t n = 1000; n < 40000000; n = n * 3 + 17) {
		std::vector<float> host(n);
		float *a, *b, *c;

		for (size_t i = 0; i < n; i++)
			host[i] = (float)(i % 1000);
		MUST(cudaMalloc(&a, n * sizeof(float)));
		MUST(cudaMalloc(&b, n * sizeof(float)));
		MUST(cudaMalloc(&c, n * sizeof(float)));
		MUST(cudaMemcpy(
			a, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
		MUST(cudaMemcpy(b, a, n * sizeof(float), cudaMemcpyDeviceToDevice));
		add<<<256, 256>>>(a, b, c, n);
		MUST(cudaMemcpy(
			host.data(), c, n * sizeof(float), cudaMemcpyDeviceToHost));
		for (size_t i = 0; i < n; i += 97)
			sum += host[i];
		MUST(cudaFree(a));
		MUST(cudaFree(c));
		MUST(cudaFree(b));
	}
	printf("vectors %.0f\n", sum);
}

/* Blocks that come and go in the order of four streams, and go from one to another by events. */
static void streams()
{
	const size_t n = 300000;
	word *wrong = counters();
	cudaStream_t stream[4];
	cudaEvent_t event[4];

	for (int i = 0; i < 4; i++) {
		MUST(cudaStreamCreateWithFlags(
			&stream[i], i % 2 ? cudaStreamNonBlocking : 0));
		MUST(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming));
	}
	for (int round = 0; round < 400; round++) {
		int from = round % 4, to = (round + 1) % 4;
		size_t size = n - (size_t)(round % 13) * 20000;
		word *p;

		MUST(cudaMallocAsync(&p, size * sizeof(word), stream[from]));
		fill<<<64, 256, 0, stream[from]>>>(p, size, (word)round);
		MUST(cudaEventRecord(event[from], stream[from]));
		MUST(cudaStreamWaitEvent(stream[to], event[from], 0));
		check<<<64, 256, 0, stream[to]>>>(p, size, (word)round, wrong);
		MUST(cudaFreeAsync(p, stream[to]));
	}
	for (int i = 0; i < 4; i++) {
		MUST(cudaStreamDestroy(stream[i]));
		MUST(cudaEventDestroy(event[i]));
	}
	MUST(cudaDeviceSynchronize());
	printf("streams %llu wrong, sum %llu\n", wrong[0], wrong[1]);
}

/* A graph that allocates, and one that uses memory from before. */
static void graph()
{
	const size_t n = 1 << 20;
	word *wrong = counters(), *kept;
	cudaStream_t stream;
	cudaGraph_t captured;
	cudaGraphExec_t exec;

	MUST(cudaStreamCreate(&stream));
	MUST(cudaMallocAsync(&kept, n * sizeof(word), stream));
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	for (int i = 0; i < 3; i++) {
		word *p;

		MUST(cudaMallocAsync(&p, n * sizeof(word), stream));
		fill<<<64, 256, 0, stream>>>(p, n, (word)i + 7);
		fill<<<64, 256, 0, stream>>>(kept, n, (word)i + 70);
		check<<<64, 256, 0, stream>>>(p, n, (word)i + 7, wrong);
		check<<<64, 256, 0, stream>>>(kept, n, (word)i + 70, wrong);
		MUST(cudaFreeAsync(p, stream));
	}
	MUST(cudaStreamEndCapture(stream, &captured));
	MUST(cudaGraphInstantiate(&exec, captured, 0));
	for (int i = 0; i < 20; i++) {
		word *between;

		MUST(cudaGraphLaunch(exec, stream));
		MUST(cudaMallocAsync(&between, n * sizeof(word), stream));
		fill<<<64, 256, 0, stream>>>(between, n, 5);
		check<<<64, 256, 0, stream>>>(between, n, 5, wrong);
		MUST(cudaFreeAsync(between, stream));
	}
	MUST(cudaStreamSynchronize(stream));
	MUST(cudaGraphExecDestroy(exec));
	MUST(cudaGraphDestroy(captured));
	MUST(cudaFreeAsync(kept, stream));
	MUST(cudaStreamDestroy(stream));
	printf("graph %llu wrong, sum %llu\n", wrong[0], wrong[1]);
}

/* Memory that comes and goes while a stream captures in the mode that allows it. */
static void meanwhile()
{
	const size_t n = 1 << 20;
	word *wrong = counters(), *before, *during;
	cudaStream_t stream, other;
	cudaGraph_t captured;
	cudaGraphExec_t exec;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	MUST(cudaMalloc(&before, n * sizeof(word)));
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
	MUST(cudaMalloc(&during, n * sizeof(word)));
	fill<<<64, 256, 0, stream>>>(during, n, 3);
	MUST(cudaFree(before));
	for (int i = 0; i < 50; i++) {
		word *p;

		MUST(cudaMallocAsync(&p, n * sizeof(word) + (size_t)i * 4096, other));
		fill<<<64, 256, 0, other>>>(p, n, (word)i);
		check<<<64, 256, 0, other>>>(p, n, (word)i, wrong);
		MUST(cudaFreeAsync(p, other));
	}
	check<<<64, 256, 0, stream>>>(during, n, 3, wrong);
	MUST(cudaStreamEndCapture(stream, &captured));
	MUST(cudaGraphInstantiate(&exec, captured, 0));
	for (int i = 0; i < 5; i++)
		MUST(cudaGraphLaunch(exec, stream));
	MUST(cudaDeviceSynchronize());
	MUST(cudaGraphExecDestroy(exec));
	MUST(cudaGraphDestroy(captured));
	MUST(cudaFree(during));
	MUST(cudaStreamDestroy(stream));
	MUST(cudaStreamDestroy(other));
	printf("meanwhile %llu wrong, sum %llu\n", wrong[0], wrong[1]);
}

static void worker(int id, word *wrong)
{
	cudaStream_t stream;

	MUST(cudaSetDevice(0));
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int round = 0; round < 100; round++) {
		size_t n = 1000 + (size_t)((id * 7919 + round * 104729) % 900000);
		word *p, *q;

		MUST(cudaMalloc(&p, n * sizeof(word)));
		MUST(cudaMallocAsync(&q, n * sizeof(word), stream));
		fill<<<32, 256, 0, stream>>>(p, n, (word)(id * 1000 + round));
		fill<<<32, 256, 0, stream>>>(q, n, (word)(id * 2000 + round));
		check<<<32, 256, 0, stream>>>(p, n, (word)(id * 1000 + round), wrong);
		check<<<32, 256, 0, stream>>>(q, n, (word)(id * 2000 + round), wrong);
		MUST(cudaFreeAsync(q, stream));
		MUST(cudaFree(p));
	}
	MUST(cudaStreamDestroy(stream));
}

static void threads()
{
	word *wrong = counters();
	std::vector<std::thread> all;

	for (int i = 0; i < 8; i++)
		all.emplace_back(worker, i, wrong);
	for (auto &thread : all)
		thread.join();
	MUST(cudaDeviceSynchronize());
	printf("threads %llu wrong, sum %llu\n", wrong[0], wrong[1]);
}

/* Rows of their own pitch, in two and three dimensions. */
static void pitch()
{
	const size_t width = 1001, height = 77, depth = 5;
	std::vector<unsigned char> in(width * height), out(width * height);
	cudaExtent extent = make_cudaExtent(width, height, depth);
	cudaPitchedPtr box;
	unsigned long sum = 0;
	size_t step;
	void *rows;

	for (size_t i = 0; i < in.size(); i++)
		in[i] = (unsigned char)(i * 31);
	MUST(cudaMallocPitch(&rows, &step, width, height));
	MUST(cudaMemcpy2D(
		rows, step, in.data(), width, width, height, cudaMemcpyHostToDevice));
	MUST(cudaMemcpy2D(
		out.data(), width, rows, step, width, height, cudaMemcpyDeviceToHost));
	MUST(cudaFree(rows));
	MUST(cudaMalloc3D(&box, extent));
	MUST(cudaMemset3D(box, 3, extent));
	MUST(cudaMemcpy2D(in.data(), width, box.ptr, box.pitch, width, height,
		cudaMemcpyDeviceToHost));
	MUST(cudaFree(box.ptr));
	for (size_t i = 0; i < in.size(); i++)
		sum += out[i] * 7u + in[i];
	printf("pitch %lu step %zu box %zu\n", sum, step, box.pitch);
}

/* cudaFree waits for the kernel that still writes, so that the next owner is not written to. */
static void wait()
{
	const size_t n = 1 << 22;
	word *wrong = counters();
	cudaStream_t stream, other;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	for (int i = 0; i < 10; i++) {
		word *p, *q;

		MUST(cudaMalloc(&p, n * sizeof(word)));
		slow_fill<<<64, 256, 0, stream>>>(p, n, 1, 20000000);
		MUST(cudaFree(p));
		MUST(cudaMalloc(&q, n * sizeof(word)));
		fill<<<64, 256, 0, other>>>(q, n, 2);
		MUST(cudaStreamSynchronize(other));
		check<<<64, 256, 0, other>>>(q, n, 2, wrong);
		MUST(cudaStreamSynchronize(other));
		MUST(cudaFree(q));
	}
	printf("wait %llu wrong, sum %llu\n", wrong[0], wrong[1]);
}

/* Blocks of either kind freed by the function of the other, and what must be refused. */
static void refused()
{
	cudaError_t results[8];
	cudaStream_t stream;
	void *p, *q, *none = (void *)1;

	MUST(cudaStreamCreate(&stream));
	MUST(cudaMalloc(&p, 1 << 20));
	MUST(cudaFreeAsync(p, stream));
	MUST(cudaMallocAsync(&q, 1 << 20, stream));
	MUST(cudaStreamSynchronize(stream));
	MUST(cudaFree(q));
	results[0] = cudaMalloc(&none, 0);
	results[1] = cudaFree(nullptr);
	results[2] = cudaMalloc(&p, (size_t)1 << 50);
	results[3] = cudaGetLastError();
	results[4] = cudaMallocAsync(&p, (size_t)1 << 50, stream);
	cudaGetLastError();
	MUST(cudaMalloc(&p, 1 << 20));
	results[5] = cudaFree((char *)p + 512);
	cudaGetLastError();
	MUST(cudaFree(p));
	results[6] = cudaFree(p);
	results[7] = cudaGetLastError();
	printf("refused");
	for (cudaError_t result : results)
		printf(" %d", result);
	printf(" %p\n", none);
}

/* A reset takes all memory with it, and the program goes on. */
static void reset()
{
	word *wrong, sum[2] = {0, 0};

	for (int i = 0; i < 3; i++) {
		word *p, *lost;

		MUST(cudaMalloc(&lost, 32 << 20));
		MUST(cudaMalloc(&p, 8 << 20));
		wrong = counters();
		fill<<<64, 256>>>(p, 1 << 20, (word)i);
		check<<<64, 256>>>(p, 1 << 20, (word)i, wrong);
		MUST(cudaDeviceSynchronize());
		sum[0] += wrong[0];
		sum[1] += wrong[1];
		MUST(cudaDeviceReset());
	}
	printf("reset %llu wrong, sum %llu\n", sum[0], sum[1]);
}

/* The driver's functions by way of the runtime. */
static void entry()
{
	typedef CUresult (*alloc_fn)(CUdeviceptr *, size_t);
	typedef CUresult (*free_fn)(CUdeviceptr);
	cudaDriverEntryPointQueryResult found;
	void *alloc = nullptr, *release = nullptr;
	CUdeviceptr p = 0;
	CUresult result;

	MUST(cudaFree(nullptr));
#if CUDART_VERSION < 13000
	MUST(cudaGetDriverEntryPoint("cuMemAlloc", &alloc, cudaEnableDefault, &found));
#else
	MUST(cudaGetDriverEntryPointByVersion(
		"cuMemAlloc", &alloc, 12000, cudaEnableDefault, &found));
#endif
	MUST(cudaGetDriverEntryPointByVersion(
		"cuMemFree", &release, 12000, cudaEnableDefault, &found));
	result = ((alloc_fn)alloc)(&p, 1 << 20);
	printf("entry %d", result);
	MUST(cudaMemset((void *)p, 1, 1 << 20));
	printf(" %d\n", ((free_fn)release)(p));
}

static double now()
{
	using namespace std::chrono;

	return (double)duration_cast<nanoseconds>(steady_clock::now().time_since_epoch())
		.count();
}

/* How much memory there is, said and given: not for comparison, but for a budget. */
static void all()
{
	size_t left = 0, total = 0, step = 64 << 20, given = 0;
	void *p;

	MUST(cudaMemGetInfo(&left, &total));
	fprintf(stderr, "all: %zu of %zu MiB free, ", left >> 20, total >> 20);
	while (cudaMalloc(&p, step) == cudaSuccess)
		given += step;
	MUST(cudaMemGetInfo(&left, &total));
	fprintf(stderr, "%zu MiB given, then: %s; %zu free\n", given >> 20,
		cudaGetErrorString(cudaGetLastError()), left >> 20);
	printf("all\n");
}

static void pairs(cudaStream_t stream, int rounds)
{
	void *p;

	for (int i = 0; i < rounds; i++) {
		MUST(cudaMallocAsync(&p, 1 << 20, stream));
		MUST(cudaFreeAsync(p, stream));
	}
}

/* ns of a call each; what is measured goes to stderr. */
static void cost()
{
	const int rounds = 2000;
	cudaStream_t stream, other;
	cudaEvent_t event;
	size_t sizes[] = {4096, 1 << 20, 64 << 20};
	double start;
	void *p;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	for (size_t size : sizes) {
		for (int i = 0; i < 10; i++) {
			MUST(cudaMalloc(&p, size));
			MUST(cudaFree(p));
			MUST(cudaMallocAsync(&p, size, stream));
			MUST(cudaFreeAsync(p, stream));
		}
		start = now();
		for (int i = 0; i < rounds; i++) {
			MUST(cudaMalloc(&p, size));
			MUST(cudaFree(p));
		}
		fprintf(stderr, "cost: %9zu bytes: cudaMalloc and cudaFree %.0f ns", size,
			(now() - start) / rounds);
		start = now();
		for (int i = 0; i < rounds; i++) {
			MUST(cudaMallocAsync(&p, size, stream));
			MUST(cudaFreeAsync(p, stream));
		}
		fprintf(stderr, ", cudaMallocAsync and cudaFreeAsync %.0f ns\n",
			(now() - start) / rounds);
		MUST(cudaDeviceSynchronize());
	}
	start = now();
	for (int i = 0; i < rounds; i++)
		MUST(cudaEventRecord(event, stream));
	fprintf(stderr, "cost: cudaEventRecord %.0f ns", (now() - start) / rounds);
	start = now();
	for (int i = 0; i < rounds; i++)
		MUST(cudaStreamWaitEvent(other, event, 0));
	fprintf(stderr, ", cudaStreamWaitEvent %.0f ns\n", (now() - start) / rounds);
	MUST(cudaDeviceSynchronize());
	{
		std::vector<std::thread> all;

		start = now();
		for (int i = 0; i < 8; i++)
			all.emplace_back([] {
				cudaStream_t own;

				MUST(cudaStreamCreateWithFlags(
					&own, cudaStreamNonBlocking));
				pairs(own, 20000);
				MUST(cudaStreamSynchronize(own));
				MUST(cudaStreamDestroy(own));
			});
		for (auto &thread : all)
			thread.join();
		fprintf(stderr,
			"cost: 8 threads, a stream each: cudaMallocAsync and "
			"cudaFreeAsync %.0f ns\n",
			(now() - start) / 20000);
	}
	printf("cost\n");
}

static const struct {
	const char *name;
	void (*run)();
} programs[] = {{"vectors", vectors}, {"streams", streams}, {"graph", graph},
	{"meanwhile", meanwhile}, {"all", all}, {"threads", threads}, {"pitch", pitch},
	{"wait", wait}, {"refused", refused}, {"reset", reset}, {"entry", entry},
	{"ipc", ipc}, {"odd", odd}, {"cost", cost}};

int main(int count, char **arguments)
{
	for (auto &program : programs)
		if (count == 2 && !strcmp(arguments[1], program.name)) {
			program.run();
			return 0;
		}
	fprintf(stderr, "usage: preload PROGRAM\n");
	return 2;
}
