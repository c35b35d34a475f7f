/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two engines with KV caches of a 7B's shape and loads by turns, a process each, on one GPU: see turns.h. They are
 * forked before CUDA is touched here.
 */
#include "kernels.h"
#include "turns.h"

#include <sys/wait.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static struct gpu_work work;

static int open_cuda(struct glake **ret_ctx, uint64_t bytes)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA};
	int err;

	(void)bytes;
	gpu_open();
	err = glake_open(&options, ret_ctx);
	work.extra = gpu_extra();
	gpu_work_symbols(&work);
	work.extra.context_set(work.extra.primary);
	return err;
}

static void write_there(void *at, size_t bytes, unsigned char value)
{
	must_cuda(work.mem_clear((uint64_t)(uintptr_t)at, value, bytes), "a fill");
}

static unsigned char read_there(const void *at)
{
	unsigned char value = 0;

	must_cuda(work.mem_read(&value, (uint64_t)(uintptr_t)at, 1), "a copy");
	return value;
}

static int wait_there(struct glake *ctx, struct CUstream_st *stream)
{
	(void)ctx, (void)stream;
	return work.sync();
}

int main(void)
{
	const struct turns_way way = {.open = open_cuda,
		.write = write_there,
		.read = read_there,
		.wait = wait_there,
		.slots = 48,
		.tokens = 4096,
		.lanes = 64,
		.bytes = 5 * GIB};
	int pair[2], sockets[2], status;
	size_t before = 0, after = 0, total = 0;
	struct glk_drv *drv;
	pid_t child[2];
	char first;

	for (int i = 0; i < 2; i++) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
			tap_bail("no sockets");
		child[i] = fork();
		if (child[i] < 0)
			tap_bail("no fork");
		if (!child[i]) {
			close(pair[0]);
			/* where there is no GPU nobody asks for anything */
			if (recv(pair[1], &first, 1, MSG_PEEK) <= 0)
				_exit(0);
			_exit(turns_engine(&way, pair[1], (uint64_t)i + 1));
		}
		close(pair[1]);
		sockets[i] = pair[0];
	}
	drv = gpu_open();
	tap_plan_later();
	must(drv->ops->memory_info(drv, 0, &before, &total), "no memory info");
	turns_judge(&way, sockets);
	for (int i = 0; i < 2; i++) {
		close(sockets[i]);
		is_int(waitpid(child[i], &status, 0) == child[i] ? status : -1, 0,
			"an engine ends");
	}
	must(drv->ops->memory_info(drv, 0, &after, &total), "no memory info");
	ok(after + 16 * MIB >= before, "all memory is back");
	must(drv->ops->close(drv), "close");
	return tap_done();
}
