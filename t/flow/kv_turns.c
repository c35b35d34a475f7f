/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Two engines with KV caches and loads by turns, on the software device: see turns.h. */
#include "context.h"
#include "turns.h"

static int open_soft(struct glake **ret_ctx, uint64_t bytes)
{
	char memory[64];
	const char *const settings[] = {memory, NULL};

	snprintf(memory, sizeof(memory), "soft.memory=%zu", (size_t)bytes);
	*ret_ctx = flow_open(settings);
	return 0;
}

static void write_here(void *at, size_t bytes, unsigned char value)
{
	memset(at, value, bytes);
}

static unsigned char read_here(const void *at)
{
	return *(const unsigned char *)at;
}

static int wait_here(struct glake *ctx, struct CUstream_st *stream)
{
	return glake_soft_stream_sync(ctx, 0, stream);
}

int main(void)
{
	const struct turns_way way = {.open = open_soft,
		.write = write_here,
		.read = read_here,
		.wait = wait_here,
		.slots = 12,
		.tokens = 2048,
		.lanes = 4,
		.bytes = 128 * MIB};
	int pair[2], sockets[2];
	pid_t child[2];

	tap_plan_later();
	for (int i = 0; i < 2; i++) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
			tap_bail("no sockets");
		child[i] = flow_fork(200);
		if (!child[i]) {
			close(pair[0]);
			_exit(turns_engine(&way, pair[1], (uint64_t)i + 1));
		}
		close(pair[1]);
		sockets[i] = pair[0];
	}
	turns_judge(&way, sockets);
	for (int i = 0; i < 2; i++) {
		close(sockets[i]);
		is_int(flow_wait(child[i]), 0, "an engine ends");
	}
	return tap_done();
}
