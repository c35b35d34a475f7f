// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Memory of cudaMalloc in messages of UCX between two processes of one host. UCX finds out by
 * itself whose memory it is and how to reach it, and keeps what it found in caches of its own,
 * which have to notice when memory goes and comes back as another. The blocks are of many sizes,
 * between others that come and go. Each message is a pattern that the other side checks and
 * answers with another. Built against libucp; see preload.py.
 *
 *	preload-ucx [BYTES]	the largest message, 96 MiB
 */
#include "preload.cuh"

#include <ucp/api/ucp.h>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#define FINE(call)                                                                       \
	do {                                                                             \
		ucs_status_t fine = (call);                                              \
		if (fine != UCS_OK) {                                                    \
			fprintf(stderr, "%s: %s\n", #call, ucs_status_string(fine));     \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

#define ROUNDS 80
#define WARM                                                                             \
	16 /* rounds that are not timed: connections are made, code comes to the GPU */

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h peer;

static void all_of(ssize_t done, size_t size)
{
	if (done != (ssize_t)size) {
		fprintf(stderr, "the other process is gone\n");
		exit(1);
	}
}

/* Both sides tell each other where they are. */
static void meet(int socket)
{
	ucp_params_t params = {};
	ucp_worker_params_t worker_params = {};
	ucp_ep_params_t ep_params = {};
	ucp_address_t *own;
	size_t length, theirs;

	params.field_mask = UCP_PARAM_FIELD_FEATURES;
	params.features = UCP_FEATURE_TAG;
	FINE(ucp_init(&params, nullptr, &context));
	FINE(ucp_worker_create(context, &worker_params, &worker));
	FINE(ucp_worker_get_address(worker, &own, &length));
	all_of(write(socket, &length, sizeof(length)), sizeof(length));
	all_of(write(socket, own, length), length);
	all_of(read(socket, &theirs, sizeof(theirs)), sizeof(theirs));
	std::vector<char> address(theirs);
	all_of(recv(socket, address.data(), theirs, MSG_WAITALL), theirs);
	ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
	ep_params.address = (ucp_address_t *)address.data();
	FINE(ucp_ep_create(worker, &ep_params, &peer));
	ucp_worker_release_address(worker, own);
}

static void finish(void *request)
{
	ucs_status_t status = UCS_PTR_RAW_STATUS(request);

	if (UCS_PTR_IS_PTR(request)) {
		while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
			ucp_worker_progress(worker);
		ucp_request_free(request);
	}
	FINE(status);
}

static void say(const word *p, size_t words)
{
	ucp_request_param_t param = {};

	finish(ucp_tag_send_nbx(peer, p, words * sizeof(word), 1, &param));
}

static void hear(word *p, size_t words)
{
	ucp_request_param_t param = {};

	finish(ucp_tag_recv_nbx(
		worker, p, words * sizeof(word), 1, ~(ucp_tag_t)0, &param));
}

/* Nobody leaves while the other one still reads. */
static void leave(int socket)
{
	ucp_request_param_t param = {};
	char done = 1;

	finish(ucp_ep_flush_nbx(peer, &param));
	all_of(write(socket, &done, 1), 1);
	while (recv(socket, &done, 1, MSG_DONTWAIT) < 0)
		ucp_worker_progress(worker);
	finish(ucp_ep_close_nbx(peer, &param));
}

static size_t words_of(int round, size_t most)
{
	static const size_t part[] = {100000, 1, 4000, 150, 30, 10, 60, 2};
	size_t words = most / part[round % 8] / sizeof(word);

	return round % 8 == 1 ? words : words + (size_t)round * 37 + 5;
}

/* Other blocks of the program, so that memory is cut up in other ways each time. */
static void stir(std::vector<void *> &others, int round, size_t most)
{
	size_t sizes[] = {most / 3, most / 40, most / 7, most / 500};
	void *p;

	MUST(cudaMalloc(&p, sizes[round % 4] + (size_t)round * 1000));
	others.push_back(p);
	if (others.size() < 6)
		return;
	MUST(cudaFree(others[(size_t)round % 5]));
	others.erase(others.begin() + round % 5);
}

static int converse(int socket, bool first, size_t most)
{
	std::vector<void *> others;
	word *wrong;
	double first_took = 0, took = 0, slowest = 0, bytes = 0;

	MUST(cudaSetDevice(0));
	wrong = counters();
	meet(socket);
	for (int round = 0; round < ROUNDS; round++) {
		size_t words = words_of(round, most);
		word *out, *in;

		stir(others, round + (first ? 0 : 1), most);
		MUST(cudaMalloc(&out, words * sizeof(word)));
		MUST(cudaMalloc(&in, words * sizeof(word)));
		MUST(cudaMemset(in, 0, words * sizeof(word)));
		fill<<<64, 256>>>(out, words, (word)round * 2 + first);
		MUST(cudaDeviceSynchronize());
		auto start = std::chrono::steady_clock::now();
		if (first)
			say(out, words);
		hear(in, words);
		if (!first)
			say(out, words);
		double s = std::chrono::duration<double>(
			std::chrono::steady_clock::now() - start)
				   .count();
		if (round < WARM) {
			first_took += s;
		} else {
			took += s;
			slowest = s > slowest ? s : slowest;
			bytes += 2. * (double)(words * sizeof(word));
		}
		check<<<64, 256>>>(in, words, (word)round * 2 + !first, wrong);
		MUST(cudaDeviceSynchronize());
		MUST(cudaFree(in));
		MUST(cudaFree(out));
	}
	if (first)
		fprintf(stderr,
			"ucx: %.2f GB/s, slowest of %d rounds %.2f ms, the first %d took "
			"%.2f ms\n",
			bytes / took / 1e9, ROUNDS - WARM, slowest * 1e3, WARM,
			first_took * 1e3);
	leave(socket);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	for (void *p : others)
		MUST(cudaFree(p));
	if (wrong[0])
		fprintf(stderr, "ucx: %llu words wrong\n", wrong[0]);
	return wrong[0] ? 3 : 0;
}

int main(int argc, char **argv)
{
	size_t most = argc > 1 ? strtoull(argv[1], nullptr, 0) : (size_t)96 << 20;
	int pair[2], status = -1, own;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	pid_t child = fork(); /* before CUDA is used */
	if (child < 0)
		return 1;
	if (!child)
		return converse(pair[1], false, most);
	own = converse(pair[0], true, most);
	waitpid(child, &status, 0);
	printf("ucx: %d messages each way, %d and %d\n", ROUNDS, own, status);
	return own || status;
}
