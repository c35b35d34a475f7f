/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * GPUs of one process use each other's memory, as tensors are copied between them and NCCL reads
 * them in place. With memory of its own PyTorch asks the driver for that when it is first needed;
 * the memory here is mapped page by page, and nobody tells a plug-in. So it is granted when a
 * process begins to use a second GPU, to and from all that it uses: a process that stays on one,
 * as in most training on many, has nothing of it. Where GPUs cannot reach each other it is refused
 * by the driver and PyTorch copies through the host.
 */
#include "front/torch.h"

#include "base/atomic.h"

#include <pthread.h>

#define DEVICES_MAX 64

static glk_atomic(int) known[DEVICES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool glk_torch_peers_known(int device)
{
	return device < 0 || device >= DEVICES_MAX || glk_load_relaxed(&known[device]);
}

void glk_torch_peers_meet(struct glake *ctx, int device)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < DEVICES_MAX && !glk_load_relaxed(&known[device]); i++) {
		if (i == device || !glk_load_relaxed(&known[i]))
			continue;
		glake_peer_access(ctx, device, i, 1);
		glake_peer_access(ctx, i, device, 1);
	}
	glk_store_relaxed(&known[device], 1);
	pthread_mutex_unlock(&lock);
}
