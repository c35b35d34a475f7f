// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Memory of one process in another, for preload.cu: the parent owns it, the child opens it. What
 * is printed is the same for memory of the driver.
 */
#ifndef GLK_GPU_PRELOAD_IPC_CUH
#define GLK_GPU_PRELOAD_IPC_CUH

#include "preload.cuh"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

struct letter {
	cudaIpcMemHandle_t handle;
	int device; /* on which it is to be opened */
	size_t words;
	word seed;
};

static void talk(ssize_t done, size_t size)
{
	if (done != (ssize_t)size) {
		fprintf(stderr, "ipc: the other one is gone\n");
		exit(1);
	}
}

static void expect(const word *p, size_t n, word seed, const char *who)
{
	word *wrong = counters();

	check<<<64, 256>>>(p, n, seed, wrong);
	MUST(cudaDeviceSynchronize());
	if (wrong[0]) {
		fprintf(stderr, "ipc: %s finds %llu words wrong\n", who, wrong[0]);
		exit(1);
	}
	MUST(cudaFree(wrong));
}

/* Checks what the owner wrote, and writes for him. */
static void ipc_child(int from, int to)
{
	letter got;
	char done = 1;

	while (read(from, &got, sizeof(got)) == sizeof(got)) {
		auto start = std::chrono::steady_clock::now();
		void *p, *again;

		MUST(cudaSetDevice(got.device));
		MUST(cudaIpcOpenMemHandle(&p, got.handle, cudaIpcMemLazyEnablePeerAccess));
		std::chrono::duration<double, std::micro> took =
			std::chrono::steady_clock::now() - start;
		fprintf(stderr, "ipc: %zu words opened on GPU %d in %.0f us\n", got.words,
			got.device, took.count());
		MUST(cudaIpcOpenMemHandle(&again, got.handle, cudaIpcMemLazyEnablePeerAccess));
		if (again != p)
			exit(3);
		expect((word *)p, got.words, got.seed, "the opener");
		fill<<<64, 256>>>((word *)p, got.words, got.seed + 1);
		MUST(cudaDeviceSynchronize());
		MUST(cudaIpcCloseMemHandle(p));
		MUST(cudaIpcCloseMemHandle(p));
		talk(write(to, &done, 1), 1);
	}
	exit(0);
}

static void ipc()
{
	const size_t sizes[] = {1000, 1 << 19, 1 << 25, 1 << 28};
	int there[2], back[2], status = -1, gpus = 0;
	cudaError_t own = cudaSuccess;
	word seed = 1;
	char done;

	if (pipe(there) || pipe(back))
		exit(1);
	pid_t pid = fork(); /* before CUDA is used */
	if (!pid) {
		close(there[1]);
		ipc_child(there[0], back[1]);
	}
	close(back[1]);
	MUST(cudaGetDeviceCount(&gpus));
	for (int i = 0; i < 8; i++) {
		size_t words = sizes[i / 2];
		letter letter = {{}, i % 2 < gpus ? i % 2 : 0, words, seed};
		word *p;
		void *q;

		MUST(cudaMalloc(&p, words * sizeof(word)));
		fill<<<64, 256>>>(p, words, seed);
		MUST(cudaDeviceSynchronize());
		MUST(cudaIpcGetMemHandle(&letter.handle, p));
		talk(write(there[1], &letter, sizeof(letter)), sizeof(letter));
		talk(read(back[0], &done, 1), 1);
		expect(p, words, seed + 1, "the owner");
		own = cudaIpcOpenMemHandle(&q, letter.handle, cudaIpcMemLazyEnablePeerAccess);
		cudaGetLastError();
		MUST(cudaFree(p));
		seed += 2;
	}
	close(there[1]);
	waitpid(pid, &status, 0);
	printf("ipc %d, in the process itself: %d\n", status, own);
}

#endif
